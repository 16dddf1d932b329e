// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a sweep's rows go while it runs, and how they become its result. FILE.part is a log: a line that says which question it
// answers, then rows in whatever order they are finished, each block in one write. A process that is killed loses the rows it was
// computing and no other: the next one reads the log, cuts off a torn line, and goes on. When all rows are there they are written
// in order into FILE, which appears in one step; so FILE is complete or absent, and its bytes do not depend on how often the
// sweep was interrupted or by how many threads and processes it was computed.
//
// CSV: lines of provenance that begin with '#', a header, the rows. SQLite: tables `sweep` and `provenance`, made in one go.

#include <cstdint>
#include <string>
#include <vector>

#include "model/error.h"

namespace draftboard::planning {

/// What a sweep's file says of itself, and what must be equal to go on with one.
struct SweepIdentity {
    std::string provenance;  ///< one line of JSON
    std::vector<std::string> columns;
    std::size_t axes = 0;
    std::uint64_t rows = 0;
};

struct ResultSummary {
    std::uint64_t ok = 0;
    std::uint64_t does_not_fit = 0;
    std::uint64_t refused = 0;
    std::string best;  ///< the line of the highest tok/s among those that fit, the first of equals
    double best_rate = 0;
};

enum class ResultFormat { csv, sqlite };
/// By the name's end: .csv, or .sqlite, .sqlite3 and .db.
[[nodiscard]] model::Expected<ResultFormat> result_format(const std::string& path);

class ResultLog {
 public:
    /// Opens or begins FILE.part. Errors: it can't be written, another process writes it, or it answers another question.
    [[nodiscard]] static model::Expected<ResultLog> open(const std::string& path, const SweepIdentity& identity, bool restart);
    ~ResultLog();
    ResultLog(ResultLog&& other) noexcept;
    ResultLog& operator=(ResultLog&&) = delete;

    [[nodiscard]] std::uint64_t done() const { return done_; }
    /// First and last of each run of rows that are not there yet.
    [[nodiscard]] std::vector<std::pair<std::uint64_t, std::uint64_t>> missing() const;
    /// Whole lines, from row_line(). Error: the disk is full or gone.
    [[nodiscard]] model::Expected<void> append(const std::string& lines);
    /// Writes FILE and removes the log. Precondition: nothing is missing.
    [[nodiscard]] model::Expected<ResultSummary> finish(ResultFormat format);

 private:
    ResultLog() = default;
    [[nodiscard]] model::Expected<void> scan();
    void note_lines(std::string_view lines, std::uint64_t offset);

    std::string path_;
    SweepIdentity identity_;
    int file_ = -1;
    std::uint64_t size_ = 0;
    std::uint64_t done_ = 0;
    std::vector<std::uint64_t> offsets_;  // where a row's line begins in the log, kAbsent: not there
};

/// FILE exists and answers this question in full; error: it exists and does not.
[[nodiscard]] model::Expected<bool> already_complete(const std::string& path, ResultFormat format, const SweepIdentity& identity);

}  // namespace draftboard::planning
