# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of the tiny models: 256 bytes, two marks, and padding up to a multiple of 16.

There is no tokenizer library and no merge table. A text is BOS followed by its UTF-8 bytes; EOS ends a
document. Tokens 258..271 never occur: they only round the vocabulary so that it divides by tensor-parallel
ranks and by matrix tiles.
"""
import json

BYTES = 256
BOS = 256
EOS = 257
VOCABULARY = 272
TOKENIZER_FILE = "byte_tokenizer.json"


def encode(text):
    """BOS and the UTF-8 bytes of a text."""
    return [BOS] + list(text.encode("utf-8"))


def decode(tokens):
    """The text of the bytes among the tokens; what is not UTF-8 becomes U+FFFD."""
    return bytes(token for token in tokens if token < BYTES).decode("utf-8", errors="replace")


def write_tokenizer(folder):
    """byte_tokenizer.json: all that an engine needs to know about the vocabulary."""
    document = {"format": "draftboard.byte_tokenizer", "version": 1, "bos": BOS, "eos": EOS}
    (folder / TOKENIZER_FILE).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
