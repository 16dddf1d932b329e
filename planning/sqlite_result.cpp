// SPDX-License-Identifier: Apache-2.0
#include "planning/sqlite_result.h"

#include <sqlite3.h>

#include <charconv>
#include <filesystem>

#include "planning/sweep_row.h"

namespace draftboard::planning {

namespace {

constexpr const char* kProvenanceKey = "sweep";

struct CloseDatabase {
    void operator()(sqlite3* database) const { sqlite3_close(database); }
};
struct CloseStatement {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;
using Statement = std::unique_ptr<sqlite3_stmt, CloseStatement>;

std::string sql_name(std::string_view name) {
    std::string out = "\"";
    for (const char c : name) {
        if (c == '"') out += '"';
        out += c;
    }
    return out + '"';
}

Statement prepare(sqlite3* database, const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    sqlite3_prepare_v2(database, sql.c_str(), static_cast<int>(sql.size()), &statement, nullptr);
    return Statement(statement);
}

/// A whole number, a number or text, by what the field looks like; an empty field is NULL.
void bind(sqlite3_stmt* statement, int at, const std::string& text) {
    const char* end = text.data() + text.size();
    std::int64_t whole = 0;
    if (const auto [last, ec] = std::from_chars(text.data(), end, whole); ec == std::errc{} && last == end) {
        sqlite3_bind_int64(statement, at, whole);
        return;
    }
    double real = 0;
    if (const auto [last, ec] = std::from_chars(text.data(), end, real); ec == std::errc{} && last == end) {
        sqlite3_bind_double(statement, at, real);
        return;
    }
    if (text.empty()) {
        sqlite3_bind_null(statement, at);
    } else {
        sqlite3_bind_text(statement, at, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
    }
}

}  // namespace

struct SqliteResult::Impl {
    std::string path;
    std::size_t columns = 0;
    Database database;
    Statement insert;

    [[nodiscard]] tl::unexpected<model::Error> error() const {
        return model::fail(model::ErrorCode::invalid_input, std::string("SQLite: ") + sqlite3_errmsg(database.get()), path,
                           "check that the folder is writable and has room");
    }
    [[nodiscard]] bool run(const std::string& sql) const {
        return sqlite3_exec(database.get(), sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK;
    }
};

SqliteResult::SqliteResult(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SqliteResult::~SqliteResult() = default;
SqliteResult::SqliteResult(SqliteResult&&) noexcept = default;

model::Expected<SqliteResult> SqliteResult::create(const std::string& path, const SweepIdentity& identity) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    auto impl = std::make_unique<Impl>();
    impl->path = path;
    impl->columns = identity.columns.size();
    sqlite3* database = nullptr;
    const int opened = sqlite3_open(path.c_str(), &database);
    impl->database.reset(database);
    if (opened != SQLITE_OK) return impl->error();
    std::string names;
    std::string places;
    for (const std::string& column : identity.columns) {
        names += (names.empty() ? "" : ", ") + sql_name(column) + (column == "row" ? " INTEGER PRIMARY KEY" : "");
        places += places.empty() ? "?" : ", ?";
    }
    // The file appears under its own name only when it is whole, so a journal would guard nothing.
    if (!impl->run("PRAGMA journal_mode = OFF") || !impl->run("PRAGMA synchronous = OFF") || !impl->run("BEGIN") ||
        !impl->run("CREATE TABLE provenance (key TEXT PRIMARY KEY, value TEXT)") ||
        !impl->run("CREATE TABLE sweep (" + names + ")")) {
        return impl->error();
    }
    const Statement provenance = prepare(database, "INSERT INTO provenance VALUES (?, ?)");
    if (!provenance) return impl->error();
    sqlite3_bind_text(provenance.get(), 1, kProvenanceKey, -1, SQLITE_STATIC);
    sqlite3_bind_text(provenance.get(), 2, identity.provenance.c_str(), -1, SQLITE_STATIC);
    if (sqlite3_step(provenance.get()) != SQLITE_DONE) return impl->error();
    impl->insert = prepare(database, "INSERT INTO sweep VALUES (" + places + ")");
    if (!impl->insert) return impl->error();
    return SqliteResult(std::move(impl));
}

model::Expected<void> SqliteResult::add(std::string_view line) {
    if (line.ends_with('\n')) line.remove_suffix(1);
    const auto fields = split_line(line);
    if (!fields || fields->size() != impl_->columns) {
        return model::fail(model::ErrorCode::invalid_input, "a row of the log is damaged: " + std::string(line.substr(0, 60)),
                           impl_->path, "pass --restart");
    }
    for (std::size_t i = 0; i < fields->size(); ++i) bind(impl_->insert.get(), static_cast<int>(i) + 1, (*fields)[i]);
    if (sqlite3_step(impl_->insert.get()) != SQLITE_DONE) return impl_->error();
    sqlite3_reset(impl_->insert.get());
    return {};
}

model::Expected<void> SqliteResult::close() {
    impl_->insert.reset();
    if (!impl_->run("COMMIT")) return impl_->error();
    impl_->database.reset();
    return {};
}

std::string sqlite_provenance(const std::string& path) {
    sqlite3* opened = nullptr;
    const int code = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READONLY, nullptr);
    const Database database(opened);
    if (code != SQLITE_OK) return {};
    const Statement statement = prepare(opened, "SELECT value FROM provenance WHERE key = ?");
    if (!statement) return {};
    sqlite3_bind_text(statement.get(), 1, kProvenanceKey, -1, SQLITE_STATIC);
    if (sqlite3_step(statement.get()) != SQLITE_ROW) return {};
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement.get(), 0));
    return text == nullptr ? std::string() : std::string(text);
}

}  // namespace draftboard::planning
