// SPDX-License-Identifier: Apache-2.0
#include "tests/support/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace draftboard::tests {

namespace {

/// Endless input is written in pieces of at least this size: a pipe's usual capacity.
constexpr std::size_t kEndlessChunkBytes = 65536;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Both ends of a pipe, closed when they leave scope.
struct Pipe {
    int read_end = -1;
    int write_end = -1;

    Pipe() {
        std::array<int, 2> ends{};
        if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
        read_end = ends[0];
        write_end = ends[1];
    }
    ~Pipe() {
        close_end(read_end);
        close_end(write_end);
    }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;

    static void close_end(int& end) {
        if (end >= 0) close(end);
        end = -1;
    }
};

void set_non_blocking(int descriptor) {
    fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

/// Reads what is there; false at the end of the stream.
bool drain(int descriptor, std::string& text, std::size_t limit) {
    std::array<char, 65536> buffer;
    while (true) {
        const ssize_t count = read(descriptor, buffer.data(), buffer.size());
        if (count > 0) {
            const std::size_t room = limit - std::min(limit, text.size());
            text.append(buffer.data(), std::min(room, static_cast<std::size_t>(count)));
        } else if (count == 0) {
            return false;
        } else {
            return errno == EAGAIN || errno == EINTR;
        }
    }
}

[[noreturn]] void become(const std::vector<std::string>& arguments, const ProcessOptions& options,
                         const Pipe& in, const Pipe& out, const Pipe& err) {
    setpgid(0, 0);  // so that the time limit reaches its children too
    dup2(in.read_end, STDIN_FILENO);
    dup2(out.write_end, STDOUT_FILENO);
    dup2(err.write_end, STDERR_FILENO);
    signal(SIGPIPE, SIG_DFL);
    setenv("LC_ALL", "C", 1);
    setenv("TZ", "UTC", 1);
    unsetenv("COLUMNS");
    if (!options.directory.empty() && chdir(options.directory.c_str()) != 0) _exit(126);
    std::vector<char*> argv;
    for (const std::string& argument : arguments)
        argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    const std::string why = std::string("cannot execute ") + argv[0] + ": " + std::strerror(errno);
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, why.data(), why.size());
    _exit(127);
}

/// Feeds and drains the streams until both outputs end or the limit passes; true: within the limit.
bool converse(const ProcessOptions& options, const std::string& input, Pipe& in, Pipe& out,
              Pipe& err, ProcessResult& result, Clock::time_point start) {
    std::size_t fed = 0;
    while (out.read_end >= 0 || err.read_end >= 0) {
        const double left = options.timeout_seconds - seconds_since(start);
        if (left <= 0) return false;
        if (fed == input.size() && options.endless_input && !input.empty()) fed = 0;
        if (fed == input.size()) Pipe::close_end(in.write_end);
        std::array<pollfd, 3> watched{pollfd{out.read_end, POLLIN, 0},
                                      pollfd{err.read_end, POLLIN, 0},
                                      pollfd{in.write_end, POLLOUT, 0}};
        if (poll(watched.data(), watched.size(), static_cast<int>(left * 1000) + 1) < 0) continue;
        if (watched[0].revents != 0 &&
            !drain(out.read_end, result.output, options.max_output_bytes)) {
            Pipe::close_end(out.read_end);
        }
        if (watched[1].revents != 0 &&
            !drain(err.read_end, result.errors, options.max_output_bytes)) {
            Pipe::close_end(err.read_end);
        }
        if (watched[2].revents != 0) {
            const ssize_t count = write(in.write_end, input.data() + fed, input.size() - fed);
            if (count > 0)
                fed += static_cast<std::size_t>(count);
            else if (errno != EAGAIN && errno != EINTR)
                Pipe::close_end(in.write_end);
        }
    }
    return true;
}

/// Waits for the child until the limit; true: it ended.
bool wait_for(pid_t child, double timeout_seconds, Clock::time_point start, int& status) {
    while (waitpid(child, &status, WNOHANG) != child) {
        if (seconds_since(start) > timeout_seconds) return false;
        usleep(500);
    }
    return true;
}

}  // namespace

std::string ProcessResult::ending() const {
    if (!started) return "did not start: " + errors;
    if (timed_out) return "still running after " + std::to_string(static_cast<int>(seconds)) + " s";
    if (signal != 0) return "signal " + std::to_string(signal);
    return "exit " + std::to_string(exit_status);
}

ProcessResult run_process(const std::vector<std::string>& arguments,
                          const ProcessOptions& options) {
    ProcessResult result;
    if (arguments.empty()) {
        result.errors = "no command";
        return result;
    }
    signal(SIGPIPE, SIG_IGN);  // a child that closes its input early is no fault of ours
    Pipe in;
    Pipe out;
    Pipe err;
    const auto start = Clock::now();
    const pid_t child = fork();
    if (child < 0) {
        result.errors = "fork failed";
        return result;
    }
    if (child == 0) become(arguments, options, in, out, err);
    Pipe::close_end(in.read_end);
    Pipe::close_end(out.write_end);
    Pipe::close_end(err.write_end);
    set_non_blocking(in.write_end);
    set_non_blocking(out.read_end);
    set_non_blocking(err.read_end);

    std::string input = options.input;
    if (options.endless_input && !input.empty()) {
        while (input.size() < kEndlessChunkBytes) input += options.input;
    }
    int status = 0;
    result.started = true;
    result.timed_out = !converse(options, input, in, out, err, result, start) ||
                       !wait_for(child, options.timeout_seconds, start, status);
    if (result.timed_out) {
        kill(-child, SIGKILL);
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
    } else if (WIFEXITED(status)) {
        result.exit_status = WEXITSTATUS(status);
    } else if (WIFSIGNALED(status)) {
        result.signal = WTERMSIG(status);
    }
    result.seconds = seconds_since(start);
    if (result.exit_status == 127 && result.errors.starts_with("cannot execute ")) {
        result.started = false;
    }
    return result;
}

TemporaryDirectory::TemporaryDirectory() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "draftboard-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
        throw std::runtime_error("mkdtemp failed for " + pattern);
    path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

}  // namespace draftboard::tests
