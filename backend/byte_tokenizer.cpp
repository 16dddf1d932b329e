// SPDX-License-Identifier: Apache-2.0
#include "backend/byte_tokenizer.h"

#include "model/json_reader.h"
#include "model/limits.h"

namespace draftboard::backend {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr int kBytes = 256;

/// Length of the sequence that `lead` begins; 0: it begins none.
std::size_t sequence_length(unsigned char lead) {
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead <= 0xDF) return 2;  // C0, C1: overlong
    if (lead >= 0xE0 && lead <= 0xEF) return 3;
    if (lead >= 0xF0 && lead <= 0xF4) return 4;  // F5 and up: beyond U+10FFFF
    return 0;
}

/// May `byte` be the second one after `lead`? Narrower than 80..BF where overlong forms, surrogates or too large values begin.
bool goes_second(unsigned char lead, unsigned char byte) {
    const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    return byte >= low && byte <= high;
}

}  // namespace

model::Expected<ByteTokenizer> ByteTokenizer::load(const std::string& path) {
    const auto text = model::read_file(path);
    if (!text) return tl::unexpected(text.error());
    return parse(*text, path);
}

model::Expected<ByteTokenizer> ByteTokenizer::parse(std::string_view text, const std::string& name) {
    const auto json = model::parse_json(text, name);
    if (!json) return tl::unexpected(json.error());
    std::vector<model::Problem> problems;
    const model::JsonReader reader(*json, problems);
    ByteTokenizer out;
    if (reader.expect_object()) {
        reader.expect_format("draftboard.byte_tokenizer", 1);
        for (const auto& [key, token] : {std::pair{"bos", &out.begin_}, std::pair{"eos", &out.end_}}) {
            if (reader.has(key)) *token = static_cast<int>(reader.integer(key, kBytes, model::kMaxVocabulary));
        }
        if (out.begin_ >= 0 && out.begin_ == out.end_) reader.problem("eos", "is the same token as bos");
    }
    if (!problems.empty()) return tl::unexpected(model::to_error(problems, name));
    return out;
}

std::vector<int> ByteTokenizer::encode(std::string_view text, bool with_begin) const {
    std::vector<int> tokens;
    tokens.reserve(text.size() + 1);
    if (with_begin && begin_ >= 0) tokens.push_back(begin_);
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
}

std::string ByteTokenizer::decode(std::span<const int> tokens) {
    std::string text;
    for (const int token : tokens) {
        if (token >= 0 && token < kBytes) text.push_back(static_cast<char>(token));
    }
    return text;
}

std::string ByteStream::push(std::span<const int> tokens) {
    std::string text;
    for (const int token : tokens) {
        if (token >= 0 && token < kBytes) push_byte(static_cast<unsigned char>(token), text);
    }
    return text;
}

void ByteStream::push_byte(unsigned char byte, std::string& text) {
    if (!waiting_.empty()) {
        const auto lead = static_cast<unsigned char>(waiting_.front());
        const bool fits = waiting_.size() == 1 ? goes_second(lead, byte) : byte >= 0x80 && byte <= 0xBF;
        if (fits) {
            waiting_.push_back(static_cast<char>(byte));
            if (waiting_.size() < sequence_length(lead)) return;
            text += waiting_;
            waiting_.clear();
            return;
        }
        text += kReplacement;
        waiting_.clear();
    }
    switch (sequence_length(byte)) {
        case 0: text += kReplacement; return;
        case 1: text.push_back(static_cast<char>(byte)); return;
        default: waiting_.push_back(static_cast<char>(byte));
    }
}

std::string ByteStream::finish() {
    std::string text;
    if (!waiting_.empty()) text = kReplacement;
    waiting_.clear();
    return text;
}

}  // namespace draftboard::backend
