// SPDX-License-Identifier: Apache-2.0
// Bad input against the command line, as a table: a row is a command, its input, the exit status, and what the message
// on standard error has to name. Each has to end within kSeconds, in an exit and not in a signal, with nothing on
// standard output. Rows for one kind of file stand in the functions below; to add a case, add a row.

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/cli/bad_files.h"
#include "tests/support/process.h"

namespace draftboard::tests {
namespace {

constexpr double kSeconds = 10;
constexpr int kUsageOrInput = 2;

struct Row {
    std::string name;                    ///< words with '_', unique
    std::vector<std::string> arguments;  ///< {file} is the row's file, {tmp} its folder
    std::string place;                   ///< standard error has to hold this
    BadFile file = missing_file();
    int exit_status = kUsageOrInput;
    std::string endless_input = {};  ///< repeated on standard input; empty: nothing is there
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

const char* const kScenario = "kimi-k2.5-eagle3-founding";

/// How a command line takes a file; each meets every file of bad_files().
struct FileCommand {
    std::string name;
    std::vector<std::string> arguments;
};

std::vector<FileCommand> file_commands() {
    return {
        {"predict", {"predict", "{file}"}},
        {"explain", {"explain", "{file}"}},
        {"plan", {"plan", "{file}", "-o", "{tmp}/plan.md"}},
        {"sweep", {"sweep", "{file}", "--vary", "workload.concurrency=1,2", "-o", "{tmp}/sweep.csv"}},
        {"model_show", {"model", "show", "{file}"}},
        {"machine_show", {"machine", "show", "{file}"}},
        {"machine_import", {"machine", "import", "{file}"}},
        {"collective_machine",
         {"collective", "--machine", "{file}", "--op", "all_reduce", "--gpus", "2", "--bytes", "1024"}},
        {"predict_with_machine", {"predict", kScenario, "--set", "machine={file}"}},
        {"predict_with_architecture", {"predict", kScenario, "--set", "architecture={file}"}},
        {"predict_with_calibration", {"predict", kScenario, "--set", "calibration={file}"}},
    };
}

/// Every command that reads a file, with everything that can be wrong before the format matters.
std::vector<Row> file_rows() {
    std::vector<Row> rows;
    for (const FileCommand& command : file_commands()) {
        for (const BadFile& file : bad_files()) {
            Row row;
            row.name = command.name + "_of_" + file.name;
            row.arguments = command.arguments;
            row.place = "input.json";  // the message names the file
            row.file = file;
            rows.push_back(row);
        }
    }
    return rows;
}

/// Commands and options.
std::vector<Row> usage_rows() {
    return {
        {"no_command", {}, "predict"},
        {"unknown_command", {"predikt"}, "predikt"},
        {"empty_command", {""}, ""},
        {"unknown_option", {"predict", kScenario, "--no-such-option"}, "--no-such-option"},
        {"scenario_left_out", {"predict"}, "SCENARIO"},
        {"set_without_a_value", {"predict", kScenario, "--set"}, "--set"},
        {"set_without_an_equals_sign", {"predict", kScenario, "--set", "layout.tensor"}, "layout.tensor"},
        {"set_of_an_unknown_path", {"predict", kScenario, "--set", "layout.tenser=4"}, "tenser"},
        {"set_of_an_unknown_section", {"predict", kScenario, "--set", "colour=red"}, "colour"},
        {"set_of_a_part_of_a_number", {"predict", kScenario, "--set", "layout.tensor.x=4"}, "layout"},
        {"set_of_an_empty_path", {"predict", kScenario, "--set", "=4"}, "--set"},
        {"set_with_ten_thousand_dots",
         {"predict", kScenario, "--set", std::string(10'000, '.') + "=1"}, "--set"},
        {"unknown_scenario", {"predict", "kimi-k2.5-eagle3-foundling"}, "kimi-k2.5-eagle3-foundling"},
        {"scenario_name_that_climbs", {"predict", "../../../../etc/passwd"}, "passwd"},
        {"scenario_name_of_a_megabyte", {"predict", std::string(100'000, 'a')}, "aaa"},
        {"trace_into_a_folder_that_is_missing",
         {"predict", kScenario, "--trace", "{tmp}/no/such/folder/t.json"}, "no/such/folder"},
        {"plan_into_a_folder_that_is_missing",
         {"plan", kScenario, "-o", "{tmp}/no/such/folder/plan.md"}, "no/such/folder"},
        {"model_show_without_a_file", {"model", "show"}, "CONFIG"},
        {"machine_unknown_verb", {"machine", "destroy", "{file}"}, "destroy"},
    };
}

Row set_row(const std::string& name, const std::string& edit, const std::string& place) {
    return {name, {"predict", kScenario, "--set", edit}, place};
}

/// Values of a scenario that can't be, given by --set.
std::vector<Row> value_rows() {
    return {
        set_row("no_gpus", "layout.tensor=0", "/layout/tensor"),
        set_row("a_negative_number_of_gpus", "layout.tensor=-8", "/layout/tensor"),
        set_row("a_billion_gpus", "layout.tensor=1000000000", "/layout"),
        set_row("more_gpus_than_64_bits", "layout.tensor=99999999999999999999999", "/layout/tensor"),
        set_row("half_a_gpu", "layout.tensor=1.5", "/layout/tensor"),
        set_row("gpus_as_a_word", "layout.tensor=eight", "/layout/tensor"),
        set_row("gpus_as_a_list", "layout.tensor=[8]", "/layout/tensor"),
        set_row("degrees_that_overflow_together", "layout.pipeline=2147483647", "/layout"),
        set_row("replicas_that_overflow_together", "layout.replicas=2147483647", "/layout"),
        set_row("no_sequences", "workload.concurrency=0", "/workload/concurrency"),
        set_row("negative_sequences", "workload.concurrency=-1", "/workload/concurrency"),
        set_row("a_quintillion_sequences", "workload.concurrency=1000000000000000000", "/workload/concurrency"),
        set_row("negative_context", "workload.context_tokens=-1", "/workload/context_tokens"),
        set_row("infinite_context", "workload.context_tokens=1e400", "/workload/context_tokens"),
        set_row("memory_fraction_nan", "memory.usable_fraction=NaN", "/memory/usable_fraction"),
        set_row("memory_fraction_above_one", "memory.usable_fraction=1.5", "/memory/usable_fraction"),
        set_row("memory_fraction_negative", "memory.usable_fraction=-0.1", "/memory/usable_fraction"),
        set_row("unknown_method", "speculation.method=telepathy", "/speculation/method"),
        set_row("negative_steps", "speculation.steps=-1", "/speculation/steps"),
        set_row("a_million_steps", "speculation.steps=1000000", "/speculation/steps"),
        set_row("unknown_number_format", "memory.kv_format=fp3", "/memory/kv_format"),
        set_row("unknown_machine", "machine=8x-abacus", "8x-abacus"),
        set_row("unknown_architecture", "architecture=gpt-17", "gpt-17"),
        set_row("unknown_calibration", "calibration=no-such-calibration", "no-such-calibration"),
        set_row("unknown_constant", "constants.host.no_such_constant=1", "no_such_constant"),
    };
}

Row sweep_row(const std::string& name, const std::string& vary, const std::string& place) {
    return {name, {"sweep", kScenario, "--vary", vary, "-o", "{tmp}/sweep.csv"}, place};
}

std::vector<Row> sweep_rows() {
    return {
        sweep_row("sweep_of_an_unknown_path", "layout.tenser=1,2", "tenser"),
        sweep_row("sweep_without_values", "workload.concurrency=", "workload.concurrency"),
        sweep_row("sweep_with_step_zero", "workload.concurrency=1..8:0", "workload.concurrency"),
        sweep_row("sweep_with_a_negative_step", "workload.concurrency=1..8:-1", "workload.concurrency"),
        sweep_row("sweep_backwards", "workload.concurrency=8..1", "workload.concurrency"),
        sweep_row("sweep_of_a_billion_cells", "workload.concurrency=1..1000000000", "workload.concurrency"),
        sweep_row("sweep_with_a_tiny_step", "memory.usable_fraction=0..1:1e-12", "memory.usable_fraction"),
        sweep_row("sweep_from_nan", "memory.usable_fraction=nan..1", "memory.usable_fraction"),
        {"sweep_of_a_billion_cells_in_three_axes",
         {"sweep", kScenario, "--vary", "workload.concurrency=1..1000", "--vary", "workload.context_tokens=1..1000",
          "--vary", "speculation.steps=1..1000", "-o", "{tmp}/sweep.csv"},
         "cells"},
    };
}

Row collective_row(const std::string& name, const std::string& option, const std::string& value) {
    std::vector<std::string> arguments = {"collective", "--machine", "8x-rtx-pro-6000-pcie5"};
    const std::vector<std::pair<std::string, std::string>> defaults = {
        {"--op", "all_reduce"}, {"--gpus", "8"}, {"--bytes", "14336"}};
    for (const auto& [key, standard] : defaults) {
        if (key == option) continue;
        arguments.insert(arguments.end(), {key, standard});
    }
    arguments.push_back(option + "=" + value);
    return {name, arguments, option};
}

std::vector<Row> collective_rows() {
    std::vector<Row> rows = {
        collective_row("collective_of_no_gpus", "--gpus", "0"),
        collective_row("collective_of_minus_two_gpus", "--gpus", "-2"),
        collective_row("collective_of_a_billion_gpus", "--gpus", "1000000000"),
        collective_row("collective_of_more_gpus_than_64_bits", "--gpus", "99999999999999999999"),
        collective_row("collective_of_negative_bytes", "--bytes", "-1"),
        collective_row("collective_of_nan_bytes", "--bytes", "nan"),
        collective_row("collective_of_too_many_bytes", "--bytes", "9223372036854775807"),
        collective_row("collective_of_an_unknown_operation", "--op", "all_confuse"),
        collective_row("collective_with_an_unknown_algorithm", "--algorithm", "spiral"),
        collective_row("collective_with_an_unknown_protocol", "--protocol", "LL64"),
        collective_row("collective_with_no_channels", "--channels", "0"),
        collective_row("collective_with_a_billion_channels", "--channels", "1000000000"),
    };
    rows.push_back({"collective_on_an_unknown_machine",
                    {"collective", "--machine", "8x-abacus", "--op", "all_reduce", "--gpus", "2", "--bytes", "1"},
                    "8x-abacus"});
    return rows;
}

/// A small Qwen3-MoE config.json; `replacement` stands for the whole member line of `key`.
BadFile hf_config(const std::string& key, const std::string& value) {
    const std::vector<std::pair<std::string, std::string>> members = {
        {"architectures", "[\"Qwen3MoeForCausalLM\"]"}, {"model_type", "\"qwen3_moe\""},
        {"hidden_size", "2048"}, {"intermediate_size", "6144"}, {"moe_intermediate_size", "768"},
        {"num_hidden_layers", "4"}, {"num_attention_heads", "32"}, {"num_key_value_heads", "4"},
        {"head_dim", "128"}, {"num_experts", "128"}, {"num_experts_per_tok", "8"},
        {"decoder_sparse_step", "1"}, {"mlp_only_layers", "[]"}, {"vocab_size", "151936"},
        {"max_position_embeddings", "40960"}, {"tie_word_embeddings", "false"}, {"torch_dtype", "\"bfloat16\""}};
    std::string text = "{";
    for (const auto& [name, standard] : members) {
        text += (text.size() > 1 ? ",\n  \"" : "\n  \"") + name + "\": " + (name == key ? value : standard);
    }
    return text_file("hf_config", text + "\n}\n");
}

Row config_row(const std::string& name, const std::string& key, const std::string& value) {
    return {name, {"model", "show", "{file}"}, key, hf_config(key, value)};
}

std::vector<Row> config_rows() {
    return {
        config_row("config_of_an_unknown_model_type", "model_type", "\"perpetuum_mobile\""),
        config_row("config_with_a_number_as_model_type", "model_type", "7"),
        config_row("config_with_negative_hidden_size", "hidden_size", "-2048"),
        config_row("config_with_hidden_size_zero", "hidden_size", "0"),
        config_row("config_with_hidden_size_beyond_64_bits", "hidden_size", "1e30"),
        config_row("config_with_hidden_size_as_text", "hidden_size", "\"2048\""),
        config_row("config_without_layers", "num_hidden_layers", "0"),
        config_row("config_with_a_billion_layers", "num_hidden_layers", "1000000000"),
        config_row("config_with_no_heads", "num_attention_heads", "0"),
        config_row("config_with_no_kv_heads", "num_key_value_heads", "0"),
        config_row("config_with_fewer_experts_than_are_active", "num_experts_per_tok", "129"),
        config_row("config_with_a_negative_number_of_experts", "num_experts", "-128"),
        config_row("config_with_a_negative_vocabulary", "vocab_size", "-1"),
        config_row("config_with_a_list_of_heads", "head_dim", "[128]"),
    };
}

/// Standard input as a file.
std::vector<Row> pipe_rows() {
    std::vector<Row> rows;
    for (const char* verb : {"predict", "explain"}) {
        Row row{std::string(verb) + "_of_endless_standard_input", {verb, "/dev/stdin"}, "/dev/stdin"};
        row.endless_input = "{\"a\": [1, 2, 3], \n";
        rows.push_back(row);
        rows.push_back({std::string(verb) + "_of_endless_zeros", {verb, "/dev/zero"}, "/dev/zero"});
    }
    Row topology{"machine_import_of_endless_standard_input", {"machine", "import", "/dev/stdin"}, "/dev/stdin"};
    topology.endless_input = "GPU0\t X \tPIX\tSYS\n";
    rows.push_back(topology);
    rows.push_back({"machine_import_of_endless_zeros", {"machine", "import", "/dev/zero"}, "/dev/zero"});
    return rows;
}

std::vector<Row> all_rows() {
    std::vector<Row> rows;
    for (const auto& part : {usage_rows(), value_rows(), sweep_rows(), collective_rows(), config_rows(), pipe_rows(),
                             file_rows()}) {
        rows.insert(rows.end(), part.begin(), part.end());
    }
    return rows;
}

std::string expanded(std::string argument, const std::string& directory) {
    for (const auto& [from, to] : {std::pair<std::string, std::string>{"{file}", directory + "/input.json"},
                                   {"{tmp}", directory}}) {
        if (const auto at = argument.find(from); at != std::string::npos) argument.replace(at, from.size(), to);
    }
    return argument;
}

class BadInput : public testing::TestWithParam<Row> {};

TEST_P(BadInput, Ends_in_time_with_a_message_that_names_the_place) {
    const Row& row = GetParam();
    const TemporaryDirectory directory;
    const Keeper keeper = row.file.make(directory.path() + "/input.json");
    std::vector<std::string> arguments = {DRAFTBOARD_BINARY};
    for (const std::string& argument : row.arguments) {
        arguments.push_back(expanded(argument, directory.path()));
    }
    ProcessOptions options;
    options.timeout_seconds = kSeconds;
    options.directory = directory.path();
    options.input = row.endless_input;
    options.endless_input = !row.endless_input.empty();
    const ProcessResult result = run_process(arguments, options);

    EXPECT_EQ(result.ending(), "exit " + std::to_string(row.exit_status)) << result.errors.substr(0, 2000);
    EXPECT_NE(result.errors, "");
    EXPECT_NE(result.errors.find(row.place), std::string::npos)
        << "the message has to name '" << row.place << "': " << result.errors.substr(0, 2000);
    EXPECT_EQ(result.output, "");
    // A person reads it: a few lines of text without control characters, whatever the input held.
    EXPECT_LT(result.errors.size(), 8192u);
    for (const char c : result.errors) {
        ASSERT_TRUE(c == '\n' || c == '\t' || static_cast<unsigned char>(c) >= 0x20) << result.errors;
    }
}

INSTANTIATE_TEST_SUITE_P(Cli, BadInput, testing::ValuesIn(all_rows()),
                         [](const testing::TestParamInfo<Row>& row) { return row.param.name; });

/// The table would prove nothing if the scenario that its rows break did not work when whole.
TEST(BadInputTable, The_scenario_that_the_rows_break_works_when_whole) {
    const ProcessResult result = run_process({DRAFTBOARD_BINARY, "predict", kScenario, "--json"});
    EXPECT_EQ(result.ending(), "exit 0") << result.errors;
    EXPECT_NE(result.output.find("tokens_per_second"), std::string::npos);
}

TEST(BadInputTable, The_config_that_the_rows_break_works_when_whole) {
    const TemporaryDirectory directory;
    (void)hf_config("", "").make(directory.path() + "/config.json");
    const ProcessResult result =
        run_process({DRAFTBOARD_BINARY, "model", "show", directory.path() + "/config.json", "--json"});
    EXPECT_EQ(result.ending(), "exit 0") << result.errors;
}

}  // namespace
}  // namespace draftboard::tests
