// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/bad_files.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace draftboard::tests {

namespace {

void write_text(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
}

/// Writes into a named pipe until it goes. The pipe is opened for reading too, so that opening does
/// not wait.
class EndlessWriter {
 public:
    EndlessWriter(const std::string& path, std::string repeated) : repeated_(std::move(repeated)) {
        if (mkfifo(path.c_str(), 0600) != 0) throw std::runtime_error("mkfifo failed for " + path);
        descriptor_ = open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
        if (descriptor_ < 0) throw std::runtime_error("cannot open " + path);
        thread_ = std::thread([this] { loop(); });
    }
    ~EndlessWriter() {
        stop_ = true;
        thread_.join();
        close(descriptor_);
    }
    EndlessWriter(const EndlessWriter&) = delete;
    EndlessWriter& operator=(const EndlessWriter&) = delete;

 private:
    void loop() {
        while (!stop_) {
            pollfd watched{descriptor_, POLLOUT, 0};
            if (poll(&watched, 1, 20) <= 0) continue;
            [[maybe_unused]] const ssize_t count =
                write(descriptor_, repeated_.data(), repeated_.size());
        }
    }

    std::string repeated_;
    int descriptor_ = -1;
    std::atomic<bool> stop_ = false;
    std::thread thread_;
};

}  // namespace

BadFile text_file(std::string name, std::string text) {
    return generated_file(std::move(name), [text = std::move(text)] { return text; });
}

BadFile generated_file(std::string name, std::function<std::string()> text) {
    return {std::move(name), [text = std::move(text)](const std::string& path) -> Keeper {
                write_text(path, text());
                return nullptr;
            }};
}

BadFile missing_file() {
    return {"missing", [](const std::string&) -> Keeper { return nullptr; }};
}

BadFile directory_file() {
    return {"directory", [](const std::string& path) -> Keeper {
                std::filesystem::create_directory(path);
                return nullptr;
            }};
}

BadFile huge_file(std::int64_t bytes) {
    return {"huge", [bytes](const std::string& path) -> Keeper {
                write_text(path, "{");
                std::filesystem::resize_file(path, static_cast<std::uintmax_t>(bytes));
                return nullptr;
            }};
}

BadFile endless_pipe(std::string repeated) {
    return {"endless_pipe", [repeated = std::move(repeated)](const std::string& path) -> Keeper {
                return std::make_shared<EndlessWriter>(path, repeated);
            }};
}

std::string garbage_bytes(std::size_t count) {
    std::string bytes;
    std::uint64_t state = 1;
    for (std::size_t i = 0; i < count; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX constants
        bytes += static_cast<char>(state >> 56);
    }
    return bytes;
}

std::vector<BadFile> bad_files() {
    std::string fifo_text;
    for (int i = 0; i < 1024; ++i) fifo_text += "[1,\n";
    return {
        missing_file(),
        directory_file(),
        text_file("empty", ""),
        text_file(
            "truncated_json",
            "{\n  \"format\": \"draftboard.scenario\",\n  \"version\": 1,\n  \"layout\": {\"ten"),
        generated_file("garbage", [] { return garbage_bytes(100'000); }),
        text_file("zeros", std::string(4096, '\0')),
        generated_file("deep_arrays", [] { return std::string(2'000'000, '['); }),
        generated_file("deep_objects",
                       [] {
                           std::string text;
                           for (int i = 0; i < 200'000; ++i) text += "{\"a\":";
                           return text;
                       }),
        generated_file("deep_xml",
                       [] {
                           std::string text = "<system version=\"1\">";
                           for (int i = 0; i < 200'000; ++i) text += "<pci>";
                           return text;
                       }),
        generated_file("one_long_line", [] { return std::string(8'000'000, 'x'); }),
        text_file("nan_in_json", "{\"format\": \"draftboard.scenario\", \"version\": NaN}"),
        text_file("json_null", "null"),
        text_file("json_list", "[]"),
        text_file("json_number", "1e400"),
        text_file("json_string", "\"GPU0\""),
        text_file("empty_object", "{}"),
        text_file("wrong_format", "{\"format\": \"recipe\", \"version\": 1}"),
        text_file("future_version",
                  "{\"format\": \"draftboard.scenario\", \"version\": 999999999999999999999999}"),
        text_file("invalid_utf8", "{\"format\": \"\xff\xfe\xc0\x80\"}"),
        huge_file(200'000'000),
        endless_pipe(fifo_text),
    };
}

}  // namespace draftboard::tests
