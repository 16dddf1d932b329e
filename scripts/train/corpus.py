#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the training corpus: code, prose and structured text, all under the licence of Python (PSF).

usage: scripts/train/corpus.py --docs HTML_FOLDER --output corpus.npz --prompts data/models/prompts

Code is the standard library of the Python that runs this (Lib/**.py and its C headers), prose the
documentation's reStructuredText sources (folder html/_sources of Debian's python3.11-doc) with the markup taken
off, structured text what structured_text.py makes of the library. Whole files are held out by a hash of their
path: 1 % of code and what was made of it, 4 % of prose, which has few and large files. Held-out prompts are cut from
held-out files only.
"""
import argparse
import json
import pathlib
import re
import sysconfig

import numpy

from structured_text import digest, documents_of, library_tables

DOMAINS = ("code", "prose", "structured")
HELD_OUT_PER_MILLE = {"code": 10, "prose": 40, "structured": 10}
SKIPPED = ("site-packages", "__pycache__", "encodings", "cjkencodings", "lib2to3/tests/data", "pydoc_data")
MIN_BYTES = 200
MAX_BYTES = 400_000
PROMPTS = 24
PROMPT_BYTES = (64, 200)

ROLE = re.compile(r":[a-zA-Z][\w:+-]*:`~?!?([^`<]*?)(?:\s*<[^>]*>)?`")
LINK = re.compile(r"`([^`<]+?)\s*<[^>]*>`_{1,2}")
DEFINITION = re.compile(r"^(\s*)\.\. (?:[\w]+:)?(?:function|method|class|attribute|data|exception|staticmethod|"
                        r"classmethod|c:\w+|describe|opcode|cmdoption|option|envvar|decorator|macro|type|var|member)"
                        r":: *(.*)$")
VERSION = re.compile(r"^(\s*)\.\. (versionadded|versionchanged|deprecated|deprecated-removed):: *(.*)$")
REMARK = re.compile(r"^(\s*)\.\. (note|warning|seealso|impl-detail|caution|tip|important|admonition|rubric|"
                    r"availability|audit-event)::? *(.*)$", re.IGNORECASE)
VERSION_WORDS = {"versionadded": "New in version", "versionchanged": "Changed in version",
                 "deprecated": "Deprecated since version", "deprecated-removed": "Deprecated, removed in version"}


def plain_prose(source):
    """reStructuredText with roles, links and directives turned into what a reader sees."""
    lines, skipped_indent = [], None
    for line in source.replace("\t", "    ").split("\n"):
        indent = len(line) - len(line.lstrip())
        if skipped_indent is not None:
            if not line.strip() or indent > skipped_indent:
                continue
            skipped_indent = None
        if match := DEFINITION.match(line):
            line = match[1] + match[2]
        elif match := VERSION.match(line):
            line = f"{match[1]}{VERSION_WORDS[match[2]]} {match[3].rstrip(':')}:"
        elif match := REMARK.match(line):
            line = f"{match[1]}{match[2].capitalize()}: {match[3]}".rstrip()
        elif re.match(r"^\s*\.\. (?:code-block|doctest|testcode|productionlist|sourcecode)", line):
            continue
        elif re.match(r"^\s*\.\.(\s|$)", line):
            skipped_indent = indent
            continue
        elif re.match(r"^\s+:[\w-]+:(\s|$)", line):
            continue
        line = LINK.sub(r"\1", ROLE.sub(r"\1", line)).replace("``", "'")
        lines.append((line[:-1] if line.endswith("::") else line).rstrip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def read_text(path):
    """The file as UTF-8 text of a usable size, or nothing."""
    data = path.read_bytes()
    if not MIN_BYTES <= len(data) <= MAX_BYTES:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def sources(root, pattern):
    """(relative path, text), sorted by path."""
    for path in sorted(root.rglob(pattern)):
        name = path.relative_to(root).as_posix()
        if any(part in name for part in SKIPPED):
            continue
        text = read_text(path)
        if text is not None:
            yield name, text


def collect(docs):
    """domain -> list of (name, text, held out)."""
    found = {domain: [] for domain in DOMAINS}
    library = pathlib.Path(sysconfig.get_paths()["stdlib"])
    headers = pathlib.Path(sysconfig.get_paths()["include"])

    def held_out(domain, name):
        return digest("held-out:" + name) % 1000 < HELD_OUT_PER_MILLE[domain]

    for name, text in sources(library, "*.py"):
        found["code"].append((f"Lib/{name}", text, held_out("code", name)))
        for document in documents_of(name, text):
            found["structured"].append((f"made of Lib/{name}", document, held_out("structured", name)))
    for name, text in sources(headers, "*.h"):
        found["code"].append((f"Include/{name}", text, held_out("code", name)))
    for name, text in library_tables():
        found["structured"].append((f"table {name}", text, False))
    for name, text in sources(docs / "_sources", "*.rst.txt"):
        if name.startswith("whatsnew/changelog"):
            continue
        prose = plain_prose(text)
        if len(prose) >= MIN_BYTES:
            found["prose"].append((f"Doc/{name.removesuffix('.txt')}", prose, held_out("prose", name)))
    return found


def cut_prompt(text, seed):
    """A piece of 64..200 bytes of a text that begins at a line and ends inside one; None where there is none."""
    lines = text.split("\n")
    low, high = PROMPT_BYTES
    for attempt in range(40):
        start = digest(f"{seed}:{attempt}") % max(1, len(lines) - 4)
        if not lines[start].strip():
            continue
        piece = "\n".join(lines[start:start + 12])
        length = low + digest(f"{seed}:{attempt}:length") % (high - low + 1)
        data = piece.encode("utf-8")[:length]
        try:
            piece = data.decode("utf-8").rstrip()
        except UnicodeDecodeError:
            continue
        if len(piece.encode("utf-8")) >= low:
            return piece
    return None


def write_prompts(found, folder):
    """PROMPTS prompts a domain, spread evenly over its held-out files."""
    folder.mkdir(parents=True, exist_ok=True)
    for domain in DOMAINS:
        held = [(name, text) for name, text, out in found[domain] if out and len(text) > 600]
        rows, seen, turn = [], set(), 0
        while len(rows) < PROMPTS and turn < 40 * PROMPTS:
            name, text = held[turn % len(held)]
            piece = cut_prompt(text, f"{name}:{turn // len(held)}")
            turn += 1
            if piece is not None and piece not in seen:
                seen.add(piece)
                rows.append({"prompt": piece, "source": name})
        if len(rows) < PROMPTS:
            raise SystemExit(f"{domain}: only {len(rows)} prompts could be cut from {len(held)} held-out files")
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{domain}.jsonl").write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--docs", type=pathlib.Path, required=True, help="the documentation's html folder")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--prompts", type=pathlib.Path, help="also write the held-out prompts to this folder")
    options = parser.parse_args()
    found = collect(options.docs)
    arrays = {}
    for domain in DOMAINS:
        for part, wanted in (("train", False), ("heldout", True)):
            texts = [text.encode("utf-8") for _, text, out in found[domain] if out == wanted]
            arrays[f"{domain}_{part}"] = numpy.frombuffer(b"".join(texts), dtype=numpy.uint8)
            arrays[f"{domain}_{part}_lengths"] = numpy.array([len(text) for text in texts], dtype=numpy.int64)
            print(f"{domain:10s} {part:8s} {len(texts):5d} documents {sum(map(len, texts)):10d} bytes")
    numpy.savez_compressed(options.output, **arrays)
    if options.prompts:
        write_prompts(found, options.prompts)


if __name__ == "__main__":
    main()
