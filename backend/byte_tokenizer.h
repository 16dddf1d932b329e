// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tokenizer of byte-level models: tokens 0..255 are bytes, a few above them are special. And ByteStream, which turns
// tokens into text piece by piece and never gives out half a UTF-8 sequence. Not a tokenizer for any other model.
//
//   byte_tokenizer.json: {"format": "draftboard.byte_tokenizer", "version": 1, "bos": 256, "eos": 257}
//   bos and eos may be left out (-1): the model has none.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/error.h"

namespace draftboard::backend {

class ByteTokenizer {
   public:
    [[nodiscard]] static model::Expected<ByteTokenizer> load(const std::string& path);
    /// `name` stands in errors. Specials below 256 (they would be bytes), equal ones or huge ones are errors.
    [[nodiscard]] static model::Expected<ByteTokenizer> parse(std::string_view text, const std::string& name);

    [[nodiscard]] int begin_token() const { return begin_; }  ///< -1: none
    [[nodiscard]] int end_token() const { return end_; }
    /// The bytes, after the begin token if there is one and `with_begin`.
    [[nodiscard]] std::vector<int> encode(std::string_view text, bool with_begin = true) const;
    /// The bytes of the tokens; specials give nothing. May be broken UTF-8: see ByteStream for text.
    [[nodiscard]] static std::string decode(std::span<const int> tokens);

   private:
    int begin_ = -1;
    int end_ = -1;
};

/// UTF-8 from a stream of tokens. A sequence that is not complete waits; a byte that can't go on with it shows that it
/// never will be, and gives U+FFFD, one for each such piece (Unicode, "maximal subparts"). Overlong forms, surrogates
/// and values beyond U+10FFFF are not sequences.
class ByteStream {
   public:
    [[nodiscard]] std::string push(std::span<const int> tokens);
    [[nodiscard]] std::string finish();  ///< what still waits, as U+FFFD

   private:
    void push_byte(unsigned char byte, std::string& text);
    std::string waiting_;  ///< a proper beginning of a sequence, shorter than it
};

}  // namespace draftboard::backend
