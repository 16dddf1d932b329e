// SPDX-License-Identifier: Apache-2.0
#pragma once
// A sweep's rows as an SQLite database: table `sweep` (a row a configuration, columns as in the CSV) and table `provenance`
// (key, value). Written once, in one transaction, so that equal rows give equal bytes under one version of SQLite.

#include <memory>
#include <string>
#include <string_view>

#include "model/error.h"
#include "planning/result_log.h"

namespace draftboard::planning {

class SqliteResult {
 public:
    /// Replaces what is there.
    [[nodiscard]] static model::Expected<SqliteResult> create(const std::string& path, const SweepIdentity& identity);
    ~SqliteResult();
    SqliteResult(SqliteResult&&) noexcept;

    /// A line of row_line().
    [[nodiscard]] model::Expected<void> add(std::string_view line);
    [[nodiscard]] model::Expected<void> close();

 private:
    struct Impl;
    explicit SqliteResult(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

/// The provenance line of such a file; empty: it is none.
[[nodiscard]] std::string sqlite_provenance(const std::string& path);

}  // namespace draftboard::planning
