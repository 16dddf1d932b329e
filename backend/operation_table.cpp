// SPDX-License-Identifier: Apache-2.0
#include "backend/operation_table.h"

#include <algorithm>

#include <fmt/format.h>

namespace draftboard::backend {

namespace {

/// "decode/L03/attention.o_proj" -> "attention.o_proj"
std::string role_of(const std::string& key) { return key.substr(key.rfind('/') + 1); }

double number(const model::Json& operation, const char* name) {
    return operation.contains(name) && operation.at(name).is_number() ? operation.at(name).get<double>() : 0;
}

}  // namespace

std::vector<PassTable> operation_tables(const model::Json& profile) {
    std::vector<PassTable> tables;
    for (const model::Json& pass : profile.at("passes")) {
        if (pass.at("pass") == "prefill") continue;
        PassTable table;
        table.model = pass.value("model", "target");
        table.pass = pass.at("pass").get<std::string>();
        table.sequences = pass.at("sequences").get<int>();
        table.tokens = pass.at("tokens").get<int>();
        table.context = number(pass, "context");
        for (const model::Json& operation : pass.at("operations")) {
            const std::string role = role_of(operation.at("key").get<std::string>());
            auto row = std::ranges::find(table.rows, role, &OperationRow::role);
            if (row == table.rows.end()) row = table.rows.insert(table.rows.end(), {role, 0, 0, 0});
            ++row->count;
            row->us += number(operation, "median_us") + number(operation, "wait_us");
            table.weight_bytes += number(operation, "weight_bytes");
            table.cache_bytes += number(operation, "cache_bytes");
            if (number(operation, "message_bytes") > 0) continue;
            row->bytes +=
                number(operation, "weight_bytes") + number(operation, "cache_bytes") + number(operation, "activation_bytes");
        }
        for (const OperationRow& row : table.rows) table.us += row.us;
        std::ranges::stable_sort(table.rows, std::ranges::greater{}, &OperationRow::us);
        tables.push_back(std::move(table));
    }
    return tables;
}

std::string to_text(const std::vector<PassTable>& tables, double ceiling_gb_per_s) {
    std::string text;
    for (const PassTable& table : tables) {
        const double bytes = table.weight_bytes + table.cache_bytes;
        text += fmt::format("{} {}, {} x {} rows, context {:.0f}: operations {:.3f} ms, weights and caches {:.3f} GB",
                            table.model, table.pass, table.sequences, table.tokens, table.context, table.us * 1e-3, bytes * 1e-9);
        if (ceiling_gb_per_s > 0)
            text += fmt::format(", at the ceiling of {:.0f} GB/s {:.3f} ms", ceiling_gb_per_s, bytes / ceiling_gb_per_s * 1e-6);
        text += fmt::format("\n  {:<28} {:>6} {:>10} {:>7} {:>10} {:>8} {:>8}\n", "operation", "count", "us", "share", "MB",
                            "GB/s", "ceiling");
        for (const OperationRow& row : table.rows) {
            const std::string share =
                ceiling_gb_per_s > 0 && row.bytes > 0 ? fmt::format("{:.0f} %", 100 * row.gb_per_s() / ceiling_gb_per_s) : "";
            text += fmt::format("  {:<28} {:>6} {:>10.1f} {:>5.1f} % {:>10.2f} {:>8.0f} {:>8}\n", row.role, row.count, row.us,
                                table.us > 0 ? 100 * row.us / table.us : 0, row.bytes * 1e-6, row.gb_per_s(), share);
        }
    }
    return text;
}

model::Json to_json(const std::vector<PassTable>& tables, double ceiling_gb_per_s) {
    model::Json json = {{"ceiling_gb_per_s", ceiling_gb_per_s}, {"passes", model::Json::array()}};
    for (const PassTable& table : tables) {
        model::Json pass = {{"model", table.model},
                            {"pass", table.pass},
                            {"sequences", table.sequences},
                            {"tokens", table.tokens},
                            {"context", table.context},
                            {"us", table.us},
                            {"weight_bytes", table.weight_bytes},
                            {"cache_bytes", table.cache_bytes},
                            {"operations", model::Json::array()}};
        for (const OperationRow& row : table.rows) {
            pass["operations"].push_back(
                {{"role", row.role}, {"count", row.count}, {"us", row.us}, {"bytes", row.bytes}, {"gb_per_s", row.gb_per_s()}});
        }
        json["passes"].push_back(std::move(pass));
    }
    return json;
}

}  // namespace draftboard::backend
