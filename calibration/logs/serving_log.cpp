// SPDX-License-Identifier: Apache-2.0
#include "calibration/logs/serving_log.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "calibration/logs/sglang_log.h"
#include "calibration/logs/vllm_log.h"

namespace draftboard::calibration {

using model::ErrorCode;
using model::fail;

std::string_view to_name(ServingEngine engine) { return engine == ServingEngine::sglang ? "SGLang" : "vLLM"; }

struct ServingLogReader::Impl {
    std::string name;
    std::string line;     // what of the current line has come
    std::string scratch;  // the line without colours
    bool cut = false;
    std::int64_t lines = 0;
    std::int64_t cut_lines = 0;
    std::uint64_t bytes = 0;
    bool first = true;
    SglangLog sglang;
    VllmLog vllm;

    std::size_t samples() const { return sglang.samples().size() + vllm.samples().size(); }
    std::string place() const { return fmt::format("{}:{}", name, lines); }

    model::Expected<void> take_line(std::string_view text) {
        ++lines;
        text = without_colours(text, scratch);
        if (!sglang.read(text, lines) || !vllm.read(text, lines)) {
            return fail(ErrorCode::invalid_input, "here a server starts with other settings than the one before", place(),
                        "cut the log in two here and give one part, so that figures of different settings are not mixed");
        }
        if (samples() > kMaxServingSamples) {
            return fail(ErrorCode::too_large, fmt::format("the log has more than {} samples", kMaxServingSamples), place(),
                        "give a part of it; a few hundred samples a batch size are plenty");
        }
        return {};
    }
};

ServingLogReader::ServingLogReader(std::string name) : impl_(std::make_unique<Impl>()) { impl_->name = std::move(name); }
ServingLogReader::~ServingLogReader() = default;

model::Expected<void> ServingLogReader::add(std::string_view bytes) {
    Impl& state = *impl_;
    if (state.first && bytes.size() >= 2) {
        state.first = false;
        const bool gzip = bytes[0] == '\x1f' && bytes[1] == '\x8b';
        const bool zstd = bytes.starts_with("\x28\xb5\x2f\xfd");
        if (gzip || zstd) {
            return fail(ErrorCode::invalid_input, "the log is compressed", state.name, "unpack it first: zcat or zstdcat");
        }
    }
    state.bytes += bytes.size();
    while (!bytes.empty()) {
        const std::size_t end = bytes.find('\n');
        const std::string_view piece = bytes.substr(0, end);
        const bool whole = end != std::string_view::npos;
        if (whole && state.line.empty() && !state.cut && piece.size() <= kMaxLogLineBytes) {
            if (auto taken = state.take_line(piece); !taken) return taken;
        } else {
            const std::size_t room = kMaxLogLineBytes - state.line.size();
            state.line.append(piece.substr(0, room));
            if (piece.size() > room && !state.cut) {
                state.cut = true;
                ++state.cut_lines;
            }
            if (whole) {
                auto taken = state.take_line(state.line);
                state.line.clear();
                state.cut = false;
                if (!taken) return taken;
            }
        }
        if (!whole) break;
        bytes.remove_prefix(end + 1);
    }
    if (state.bytes > kMaxLogBytes) {
        return fail(ErrorCode::too_large, fmt::format("the log is larger than {} GiB", kMaxLogBytes >> 30), state.place(),
                    "give a part of it");
    }
    if (state.bytes > kMaxBytesBeforeSample && state.samples() == 0) {
        return fail(
            ErrorCode::invalid_input,
            fmt::format("no line of SGLang's or vLLM's periodic statistics in the first {} MiB", kMaxBytesBeforeSample >> 20),
            state.place(), "check that this is the server's log, and not a client's");
    }
    return {};
}

model::Expected<ServingLog> ServingLogReader::finish() {
    Impl& state = *impl_;
    if (!state.line.empty()) {
        if (auto taken = state.take_line(state.line); !taken) return tl::unexpected(taken.error());
        state.line.clear();
    }
    ServingLog sglang;
    ServingLog vllm;
    state.sglang.finish(sglang);
    state.vllm.finish(vllm);
    if (!sglang.samples.empty() && !vllm.samples.empty()) {
        return fail(ErrorCode::invalid_input,
                    fmt::format("the log has lines of SGLang (first in line {}) and of vLLM (first in line {})",
                                sglang.samples.front().line, vllm.samples.front().line),
                    state.name, "give the log of one server");
    }
    ServingLog& log = sglang.samples.empty() ? vllm : sglang;
    if (log.samples.empty()) {
        const std::int64_t malformed = sglang.malformed_lines + vllm.malformed_lines;
        const std::int64_t first = sglang.first_malformed > 0 ? sglang.first_malformed : vllm.first_malformed;
        std::string why = fmt::format("no sample of decoding in {} lines: {} of prefill, {} idle, {} malformed", state.lines,
                                      sglang.prefill_lines + vllm.prefill_lines, sglang.idle_lines + vllm.idle_lines, malformed);
        return fail(ErrorCode::invalid_input, why, first > 0 ? fmt::format("{}:{}", state.name, first) : state.name,
                    "SGLang prints \"Decode batch\" lines, vLLM \"Avg generation throughput\" lines, unless statistics are "
                    "turned off (--disable-log-stats); give the server's standard error");
    }
    log.name = state.name;
    log.lines = state.lines;
    log.cut_lines = state.cut_lines;
    return std::move(log);
}

model::Expected<ServingLog> parse_serving_log(std::string_view text, const std::string& name) {
    ServingLogReader reader(name);
    if (auto added = reader.add(text); !added) return tl::unexpected(added.error());
    return reader.finish();
}

model::Expected<ServingLog> load_serving_log(const std::string& path) {
    std::error_code ec;
    const auto status = std::filesystem::status(path, ec);
    if (ec || !std::filesystem::exists(status)) {
        return fail(ErrorCode::not_found, "the log does not exist", path, "check the path");
    }
    if (std::filesystem::is_directory(status)) {
        return fail(ErrorCode::invalid_input, "this is a directory and not a log", path, "name a file inside it");
    }
    std::ifstream stream(path, std::ios::binary);
    if (!stream) return fail(ErrorCode::invalid_input, "the log can't be opened for reading", path, "check its permissions");
    ServingLogReader reader(path);
    std::vector<char> buffer(1u << 20);
    while (stream.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || stream.gcount() > 0) {
        const std::string_view piece(buffer.data(), static_cast<std::size_t>(stream.gcount()));
        if (auto added = reader.add(piece); !added) return tl::unexpected(added.error());
    }
    return reader.finish();
}

}  // namespace draftboard::calibration
