// SPDX-License-Identifier: Apache-2.0
#include "planning/result_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "planning/sqlite_result.h"
#include "planning/sweep_row.h"

namespace draftboard::planning {

namespace fs = std::filesystem;
using model::ErrorCode;

namespace {

constexpr std::uint64_t kAbsent = ~std::uint64_t{0};
constexpr std::size_t kReadBytes = 1 << 20;

std::string log_path(const std::string& path) { return path + ".part"; }

std::string first_line(const SweepIdentity& identity) { return "# " + identity.provenance + "\n"; }

std::string csv_head(const SweepIdentity& identity) { return first_line(identity) + header_line(identity.columns); }

tl::unexpected<model::Error> io_error(const std::string& path, const std::string& what) {
    return model::fail(ErrorCode::invalid_input, what + ": " + std::strerror(errno), path,
                       "check that the folder exists, is writable and has room");
}

bool write_all(int file, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(file, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        text.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
}

/// Reads lines at any place of the log; rows in order are mostly neighbours, so a window is kept.
class LineReader {
 public:
    explicit LineReader(int file) : file_(file) {}
    /// The line that begins at `offset`, with its newline; empty: none.
    std::string_view at(std::uint64_t offset) {
        for (std::size_t wanted = kReadBytes; wanted <= kReadBytes * 64; wanted *= 4) {
            if (offset >= begin_ && offset < begin_ + window_.size()) {
                const std::string_view rest = std::string_view(window_).substr(offset - begin_);
                if (const auto end = rest.find('\n'); end != std::string_view::npos) return rest.substr(0, end + 1);
            }
            window_.resize(wanted);
            const ssize_t got = ::pread(file_, window_.data(), wanted, static_cast<off_t>(offset));
            window_.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
            begin_ = offset;
        }
        return {};
    }

 private:
    int file_;
    std::uint64_t begin_ = 0;
    std::string window_;
};

void count(ResultSummary& summary, std::string_view line, std::size_t axes) {
    line.remove_suffix(1);
    const auto fields = split_line(line);
    if (!fields || fields->size() <= rate_column(axes)) return;
    const std::string& status = (*fields)[status_column(axes)];
    if (status == "refused") {
        ++summary.refused;
    } else if (status == "does_not_fit") {
        ++summary.does_not_fit;
    } else {
        ++summary.ok;
        const std::string& text = (*fields)[rate_column(axes)];
        double rate = 0;
        std::from_chars(text.data(), text.data() + text.size(), rate);
        if (rate > summary.best_rate) {
            summary.best_rate = rate;
            summary.best = line;
        }
    }
}

}  // namespace

model::Expected<ResultFormat> result_format(const std::string& path) {
    const std::string extension = fs::path(path).extension().string();
    if (extension == ".csv") return ResultFormat::csv;
    if (extension == ".sqlite" || extension == ".sqlite3" || extension == ".db") return ResultFormat::sqlite;
    return model::fail(ErrorCode::invalid_input, "the result's name has to end in .csv or .sqlite", path.substr(0, 200), "");
}

model::Expected<ResultLog> ResultLog::open(const std::string& path, const SweepIdentity& identity, bool restart) {
    ResultLog log;
    log.path_ = path;
    log.identity_ = identity;
    log.file_ = ::open(log_path(path).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (log.file_ < 0) return io_error(log_path(path), "the file can't be opened");
    if (::flock(log.file_, LOCK_EX | LOCK_NB) != 0) {
        return model::fail(ErrorCode::invalid_input, "another process writes this sweep", log_path(path),
                           "wait for it, end it, or choose another -o");
    }
    if (restart && ::ftruncate(log.file_, 0) != 0) return io_error(log_path(path), "the file can't be emptied");
    log.offsets_.assign(identity.rows, kAbsent);
    if (auto scanned = log.scan(); !scanned) return tl::unexpected(scanned.error());
    return log;
}

ResultLog::ResultLog(ResultLog&& other) noexcept
    : path_(std::move(other.path_)),
      identity_(std::move(other.identity_)),
      file_(std::exchange(other.file_, -1)),
      size_(other.size_),
      done_(other.done_),
      offsets_(std::move(other.offsets_)) {}

ResultLog::~ResultLog() {
    if (file_ >= 0) ::close(file_);
}

model::Expected<void> ResultLog::scan() {
    const std::string begin = first_line(identity_);
    std::string rest;
    std::uint64_t rest_at = 0;
    std::string block(kReadBytes, '\0');
    bool begun = false;
    for (ssize_t got = 0; (got = ::pread(file_, block.data(), block.size(), static_cast<off_t>(rest_at + rest.size()))) > 0;) {
        rest.append(block.data(), static_cast<std::size_t>(got));
        if (!begun) {
            if (rest.size() < begin.size() && begin.starts_with(rest)) continue;
            if (!rest.starts_with(begin)) {
                return model::fail(ErrorCode::invalid_input,
                                   "the rows there answer another question, or were made by another version", log_path(path_),
                                   "choose another -o, remove the file, or pass --restart");
            }
            rest.erase(0, begin.size());
            rest_at = begin.size();
            begun = true;
        }
        const auto end = rest.rfind('\n');
        if (end == std::string::npos) continue;
        note_lines(std::string_view(rest).substr(0, end + 1), rest_at);
        rest.erase(0, end + 1);
        rest_at += end + 1;
    }
    // What is left is a line that was being written when its process ended.
    size_ = begun ? rest_at : 0;
    if (::ftruncate(file_, static_cast<off_t>(size_)) != 0) return io_error(log_path(path_), "the file can't be shortened");
    if (::lseek(file_, static_cast<off_t>(size_), SEEK_SET) < 0) return io_error(log_path(path_), "the file can't be written");
    if (begun) return {};
    if (!write_all(file_, begin)) return io_error(log_path(path_), "the file can't be written");
    size_ = begin.size();
    return {};
}

void ResultLog::note_lines(std::string_view lines, std::uint64_t offset) {
    while (!lines.empty()) {
        const std::size_t length = lines.find('\n') + 1;
        const std::string_view line = lines.substr(0, length);
        const auto row = row_number(line);
        const auto fields = static_cast<std::size_t>(std::count(line.begin(), line.end(), ',')) + 1;
        if (row && *row < identity_.rows && fields >= identity_.columns.size() && offsets_[*row] == kAbsent) {
            offsets_[*row] = offset;
            ++done_;
        }
        lines.remove_prefix(length);
        offset += length;
    }
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> ResultLog::missing() const {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> runs;
    for (std::uint64_t row = 0; row < offsets_.size(); ++row) {
        if (offsets_[row] != kAbsent) continue;
        if (!runs.empty() && runs.back().second + 1 == row) {
            runs.back().second = row;
        } else {
            runs.emplace_back(row, row);
        }
    }
    return runs;
}

model::Expected<void> ResultLog::append(const std::string& lines) {
    if (!write_all(file_, lines)) return io_error(log_path(path_), "the rows can't be written");
    note_lines(lines, size_);
    size_ += lines.size();
    return {};
}

model::Expected<ResultSummary> ResultLog::finish(ResultFormat format) {
    ResultSummary summary;
    LineReader lines(file_);
    const std::string temporary = path_ + ".tmp";
    if (format == ResultFormat::sqlite) {
        auto result = SqliteResult::create(temporary, identity_);
        if (!result) return tl::unexpected(result.error());
        for (const std::uint64_t offset : offsets_) {
            const std::string_view line = lines.at(offset);
            count(summary, line, identity_.axes);
            if (auto added = result->add(line); !added) return tl::unexpected(added.error());
        }
        if (auto closed = result->close(); !closed) return tl::unexpected(closed.error());
    } else {
        std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
        out << csv_head(identity_);
        for (const std::uint64_t offset : offsets_) {
            const std::string_view line = lines.at(offset);
            count(summary, line, identity_.axes);
            out << line;
        }
        out.flush();
        if (!out) return io_error(temporary, "the result can't be written");
    }
    std::error_code ec;
    fs::rename(temporary, path_, ec);
    if (ec) return model::fail(ErrorCode::invalid_input, "the result can't be put in place: " + ec.message(), path_, "");
    fs::remove(log_path(path_), ec);
    return summary;
}

model::Expected<bool> already_complete(const std::string& path, ResultFormat format, const SweepIdentity& identity) {
    std::error_code ec;
    if (!fs::exists(path, ec)) return false;
    bool same = false;
    if (format == ResultFormat::sqlite) {
        same = sqlite_provenance(path) == identity.provenance;
    } else {
        std::ifstream in(path, std::ios::binary);
        const std::string head = csv_head(identity);
        std::string found(head.size(), '\0');
        in.read(found.data(), static_cast<std::streamsize>(found.size()));
        same = in && found == head;
    }
    if (same) return true;
    return model::fail(ErrorCode::invalid_input, "the file exists and is not the result of this sweep", path,
                       "choose another -o, or pass --restart to replace it");
}

}  // namespace draftboard::planning
