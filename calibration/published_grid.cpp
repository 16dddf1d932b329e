// SPDX-License-Identifier: Apache-2.0
#include "calibration/published_grid.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "calibration/csv_table.h"
#include "model/acceptance.h"
#include "model/json_reader.h"

namespace draftboard::calibration {

using model::ErrorCode;
using model::Expected;
using model::fail;

namespace {

// Bounds of plausible fields; they keep products of them within int64.
constexpr std::int64_t kMaxDegree = 1024;
constexpr std::int64_t kMaxConcurrency = 1 << 20;
constexpr double kMaxContext = 4294967296.0;
constexpr double kMaxRate = 1e9;

/// Reads fields of one row; the first error stays.
class RowReader {
   public:
    RowReader(const CsvTable& table, std::size_t row) : table_(table), row_(row) {}

    [[nodiscard]] std::string text(std::string_view column) const {
        if (!table_.has(column)) return {};
        auto field = table_.text(row_, column);
        return field ? *field : std::string();
    }

    std::optional<double> number(std::string_view column, double low, double high) {
        if (text(column).empty() || error_) return std::nullopt;
        auto value = table_.number(row_, column, low, high);
        if (value) return *value;
        error_ = value.error();
        return std::nullopt;
    }

    std::optional<std::int64_t> integer(std::string_view column, std::int64_t high) {
        if (text(column).empty() || error_) return std::nullopt;
        auto value = table_.integer(row_, column, 0, high);
        if (value) return *value;
        error_ = value.error();
        return std::nullopt;
    }

    int degree(std::string_view column) {
        return static_cast<int>(integer(column, kMaxDegree).value_or(0));
    }

    std::vector<double> positions() {
        std::vector<double> list;
        const std::string field = text("per_position");
        const char* at = field.data();
        const char* const end = at + field.size();
        while (at < end && !error_) {
            double value = 0;
            const auto [stop, code] = std::from_chars(at, end, value);
            const bool sound = code == std::errc() && std::isfinite(value) && value >= 0 && value <= 1 &&
                               (stop == end || *stop == ';') && list.size() < model::kMaxDraftTokens;
            if (!sound) {
                error_ = model::Error{ErrorCode::invalid_input,
                                      fmt::format("per_position is \"{}\"", field.substr(0, 60)), place(),
                                      "write rates from 0 to 1 with semicolons between them"};
                break;
            }
            list.push_back(value);
            at = stop == end ? end : stop + 1;
        }
        return list;
    }

    [[nodiscard]] std::string place() const {
        return fmt::format("{}:{}", table_.name(), table_.line(row_));
    }
    [[nodiscard]] const std::optional<model::Error>& error() const { return error_; }

   private:
    const CsvTable& table_;
    std::size_t row_;
    std::optional<model::Error> error_;
};

Expected<PublishedRow> read_row(const CsvTable& table, std::size_t index) {
    RowReader reader(table, index);
    PublishedRow row;
    row.line = table.line(index);
    row.id = reader.text("id");
    row.model = reader.text("model");
    row.weights_quant = reader.text("weights_quant");
    row.kv_dtype = reader.text("kv_dtype");
    row.engine = reader.text("engine");
    row.engine_notes = reader.text("engine_notes");
    row.gpu_model = reader.text("gpu_model");
    row.topology = reader.text("topology");
    row.spec_method = reader.text("spec_method");
    row.allreduce_impl = reader.text("allreduce_impl");
    row.nccl_env = reader.text("nccl_env");
    row.cuda_graph = reader.text("cuda_graph");
    row.date = reader.text("date");
    row.source_path = reader.text("source_path");
    row.notes = reader.text("notes");
    row.gpus = reader.degree("gpus");
    row.tp = reader.degree("tp");
    row.dcp = reader.degree("dcp");
    row.ep = reader.degree("ep");
    row.pp = reader.degree("pp");
    row.concurrency = static_cast<int>(reader.integer("concurrency", kMaxConcurrency).value_or(0));
    if (const auto k = reader.integer("spec_k", model::kMaxDraftTokens - 1)) {
        row.spec_k = static_cast<int>(*k);
    }
    if (const auto context = reader.number("context_tokens", 0, kMaxContext)) {
        row.context_tokens = static_cast<std::int64_t>(*context);
    }
    row.acceptance_rate = reader.number("acceptance_rate", 0, 1);
    row.accept_length = reader.number("accept_length", 0, model::kMaxDraftTokens);
    row.per_position = reader.positions();
    row.tokens_per_second = reader.number("output_tok_s_total", 0, kMaxRate);
    row.per_user_tokens_per_second = reader.number("per_user_tok_s", 0, kMaxRate);
    row.step_ms = reader.number("step_ms", 0, kMaxRate);
    if (reader.error()) return tl::unexpected(*reader.error());
    return row;
}

}  // namespace

Expected<std::vector<PublishedRow>> parse_published_grid(std::string_view text, const std::string& name) {
    auto table = CsvTable::parse(text, name);
    if (!table) return tl::unexpected(table.error());
    if (auto known = table->require({"model", "engine", "gpus", "concurrency", "output_tok_s_total"});
        !known) {
        return tl::unexpected(known.error());
    }
    if (table->rows() > kMaxPublishedRows) {
        return fail(ErrorCode::too_large, fmt::format("more than {} rows", kMaxPublishedRows), name,
                    "split the file");
    }
    std::vector<PublishedRow> rows;
    rows.reserve(table->rows());
    for (std::size_t i = 0; i < table->rows(); ++i) {
        auto row = read_row(*table, i);
        if (!row) return tl::unexpected(row.error());
        rows.push_back(std::move(*row));
    }
    return rows;
}

Expected<std::vector<PublishedRow>> load_published_grid(const std::string& path) {
    auto text = model::read_file(path);
    if (!text) return tl::unexpected(text.error());
    return parse_published_grid(*text, path);
}

}  // namespace draftboard::calibration
