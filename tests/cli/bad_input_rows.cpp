// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/bad_input_rows.h"

#include <algorithm>
#include <utility>

namespace draftboard::tests {

namespace {

/// How a command line takes a file; each meets every file of bad_files().
struct FileCommand {
    std::string name;
    std::vector<std::string> arguments;
};

std::vector<FileCommand> file_commands() {
    return {
        {"predict", {"predict", "{file}"}},
        {"explain", {"explain", "{file}"}},
        {"explain_measured", {"explain", kScenario, "--measured", "{file}"}},
        {"plan", {"plan", "{file}", "-o", "{tmp}/plan.md"}},
        {"sweep",
         {"sweep", "{file}", "--vary", "workload.concurrency=1,2", "-o", "{tmp}/sweep.csv"}},
        {"compare", {"compare", kScenario, "{file}"}},
        {"optimize", {"optimize", "{file}"}},
        {"plan_against_published", {"plan", "--against-published", "{file}"}},
        {"model_show", {"model", "show", "{file}"}},
        {"machine_show", {"machine", "show", "{file}"}},
        {"machine_import", {"machine", "import", "{file}"}},
        {"collective_machine",
         {"collective", "--machine", "{file}", "--op", "all_reduce", "--gpus", "2", "--bytes",
          "1024"}},
        {"predict_with_machine", {"predict", kScenario, "--set", "machine={file}"}},
        {"predict_with_architecture", {"predict", kScenario, "--set", "architecture={file}"}},
        {"predict_with_calibration", {"predict", kScenario, "--set", "calibration={file}"}},
        {"run_of_a_model", {"run", "{file}", "--prompt", "x"}},
        {"run_prompts", {"run", "tiny-kimi", "--prompts-file", "{file}"}},
        {"run_tokens", {"run", "tiny-kimi", "--tokens-file", "{file}"}},
        {"run_synthetic", {"run", "--synthetic", "{file}", "--layers", "1", "--prompt", "x"}},
        {"acceptance_prompts", {"acceptance", "tiny-kimi", "--speculation", "ngram", "--prompts", "{file}"}},
        {"calibrate_read", {"calibrate", "read", "{file}"}},
        {"calibrate_import", {"calibrate", "import", "{file}", "--machine", "8x-l40s"}},
        {"validate_log", {"validate", "--log", "{file}", "--scenario", kScenario}},
        {"validate_suite", {"validate", "{file}", "--calibration", "rtx-pro-6000"}},
        {"validate_calibration", {"validate", "cpu-quick", "--calibration", "{file}"}},
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
        {"no_command", {}, "subcommand"},
        {"unknown_command", {"predikt"}, "predikt"},
        {"empty_command", {""}, ""},
        {"unknown_option", {"predict", kScenario, "--no-such-option"}, "--no-such-option"},
        {"scenario_left_out", {"predict"}, "scenario"},
        {"set_without_a_value", {"predict", kScenario, "--set"}, "--set"},
        {"set_without_an_equals_sign",
         {"predict", kScenario, "--set", "layout.tensor"},
         "layout.tensor"},
        {"set_of_an_unknown_path", {"predict", kScenario, "--set", "layout.tenser=4"}, "tenser"},
        {"set_of_an_unknown_section", {"predict", kScenario, "--set", "colour=red"}, "colour"},
        {"set_of_a_part_of_a_number",
         {"predict", kScenario, "--set", "layout.tensor.x=4"},
         "layout"},
        {"set_of_an_empty_path", {"predict", kScenario, "--set", "=4"}, "--set"},
        {"set_with_ten_thousand_dots",
         {"predict", kScenario, "--set", std::string(10'000, '.') + "=1"},
         "...."},
        {"unknown_scenario",
         {"predict", "kimi-k2.5-eagle3-foundling"},
         "kimi-k2.5-eagle3-foundling"},
        {"scenario_name_that_climbs", {"predict", "../../../../etc/passwd"}, "passwd"},
        {"scenario_name_of_100_kb", {"predict", std::string(100'000, 'a')}, "file name"},
        {"trace_into_a_folder_that_is_missing",
         {"predict", kScenario, "--trace", "{tmp}/no/such/folder/t.json"},
         "no/such/folder"},
        {"plan_into_a_folder_that_is_missing",
         {"plan", kScenario, "-o", "{tmp}/no/such/folder/plan.md"},
         "no/such/folder"},
        {"model_show_without_a_file", {"model", "show"}, "config"},
        {"machine_unknown_verb", {"machine", "destroy", "{file}"}, "destroy"},
        {"run_of_an_unknown_model", {"run", "tiny-kmi", "--prompt", "x"}, "tiny-kmi"},
        {"run_without_a_prompt", {"run", "tiny-kimi"}, "--prompt"},
        {"run_with_two_sources_of_prompts",
         {"run", "tiny-kimi", "--prompt", "x", "--prompts-file", "code"},
         "--prompts-file"},
        {"run_with_a_head_that_is_not_there",
         {"run", "tiny-qwen", "--prompt", "x", "--speculation", "eagle3"},
         "tiny-qwen-eagle3"},
        {"run_with_an_mtp_module_that_is_not_there",
         {"run", "tiny-kimi", "--prompt", "x", "--speculation", "mtp"},
         "no MTP module"},
        {"run_on_ranks_that_cut_a_head", {"run", "tiny-kimi", "--prompt", "x", "--ranks", "3"}, "/layout/tensor"},
        {"run_scripted_without_rates",
         {"run", "tiny-kimi", "--prompt", "x", "--speculation", "scripted"},
         "rate"},
        {"run_colder_than_greedy", {"run", "tiny-kimi", "--prompt", "x", "--temperature", "-1"}, "/temperature"},
        {"run_with_weights_and_without", {"run", "tiny-kimi", "--synthetic", "qwen3-30b", "--prompt", "x"}, "--synthetic"},
        {"run_without_any_weights", {"run", "--prompt", "x"}, "--synthetic"},
        {"run_made_up_text", {"run", "--synthetic", "qwen3-30b", "--prompt", "x"}, "--tokens-file"},
        {"run_more_layers_than_there_are", {"run", "--synthetic", "qwen3-30b", "--layers", "49", "--prompt", "x"}, "--layers"},
        {"run_one_rank_alone_on_the_cpu", {"run", "tiny-kimi", "--tp-rank-of", "8", "--prompt", "x"}, "--device cuda"},
        {"run_one_rank_alone_and_two", {"run", "tiny-kimi", "--tp-rank-of", "8", "--gpus", "2", "--prompt", "x"}, "--tp-rank-of"},
        {"run_with_a_profile_into_a_folder_that_is_not_there",
         {"run", "tiny-kimi", "--prompt", "x", "--profile", "{tmp}/no/such/profile.json"},
         "no/such"},
        {"run_launched_otherwise", {"run", "tiny-kimi", "--launch", "lazily", "--prompt", "x"}, "lazily"},
        {"run_on_a_device_that_is_unknown", {"run", "tiny-kimi", "--prompt", "x", "--device", "abacus"}, "abacus"},
        {"acceptance_of_plain_decoding", {"acceptance", "tiny-kimi", "--prompts", "code"}, "--speculation"},
        {"acceptance_of_an_unknown_prompt_set",
         {"acceptance", "tiny-kimi", "--prompts", "poems", "--speculation", "ngram"},
         "poems"},
        {"validate_of_an_unknown_suite", {"validate", "cpu-defualt", "--calibration", "x.json"}, "cpu-defualt"},
        {"calibrate_of_nothing", {"calibrate"}, "--device"},
        {"calibrate_with_an_unknown_model", {"calibrate", "--device", "cpu", "--model", "nope"}, "nope"},
        {"calibrate_on_no_ranks", {"calibrate", "--device", "cpu", "--ranks", "0"}, "--ranks"},
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
        set_row("more_gpus_than_64_bits", "layout.tensor=99999999999999999999999",
                "/layout/tensor"),
        set_row("half_a_gpu", "layout.tensor=1.5", "/layout/tensor"),
        set_row("gpus_as_a_word", "layout.tensor=eight", "/layout/tensor"),
        set_row("gpus_as_a_list", "layout.tensor=[8]", "/layout/tensor"),
        set_row("degrees_that_overflow_together", "layout.pipeline=2147483647", "/layout"),
        set_row("replicas_that_overflow_together", "layout.replicas=2147483647", "/layout"),
        set_row("no_sequences", "workload.concurrency=0", "/workload/concurrency"),
        set_row("negative_sequences", "workload.concurrency=-1", "/workload/concurrency"),
        set_row("a_quintillion_sequences", "workload.concurrency=1000000000000000000",
                "/workload/concurrency"),
        set_row("negative_context", "workload.context_tokens=-1", "/workload/context_tokens"),
        set_row("infinite_context", "workload.context_tokens=1e400", "/workload/context_tokens"),
        set_row("memory_fraction_nan", "memory.usable_fraction=NaN", "/memory/usable_fraction"),
        set_row("memory_fraction_above_one", "memory.usable_fraction=1.5",
                "/memory/usable_fraction"),
        set_row("memory_fraction_negative", "memory.usable_fraction=-0.1",
                "/memory/usable_fraction"),
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
        sweep_row("sweep_with_a_negative_step", "workload.concurrency=1..8:-1",
                  "workload.concurrency"),
        sweep_row("sweep_backwards", "workload.concurrency=8..1", "workload.concurrency"),
        sweep_row("sweep_of_a_billion_cells", "workload.concurrency=1..1000000000",
                  "workload.concurrency"),
        sweep_row("sweep_with_a_tiny_step", "memory.usable_fraction=0..1:1e-12",
                  "memory.usable_fraction"),
        sweep_row("sweep_from_nan", "memory.usable_fraction=nan..1", "memory.usable_fraction"),
        {"sweep_of_a_billion_cells_in_three_axes",
         {"sweep", kScenario, "--vary", "workload.concurrency=1..1000", "--vary",
          "workload.context_tokens=1..1000", "--vary", "speculation.steps=1..1000", "-o",
          "{tmp}/sweep.csv"},
         "cells"},
    };
}

Row collective_row(const std::string& name, const std::string& option, const std::string& value) {
    std::vector<std::string> arguments = {"collective", "--machine", "8x-rtx-pro-6000-direct"};
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
        collective_row("collective_with_minus_one_channels", "--channels", "-1"),
        collective_row("collective_with_a_billion_channels", "--channels", "1000000000"),
    };
    rows.push_back({"collective_on_an_unknown_machine",
                    {"collective", "--machine", "8x-abacus", "--op", "all_reduce", "--gpus", "2",
                     "--bytes", "1"},
                    "8x-abacus"});
    return rows;
}

/// A small Qwen3-MoE config.json; `replacement` stands for the whole member line of `key`.
BadFile hf_config(const std::string& key, const std::string& value) {
    const std::vector<std::pair<std::string, std::string>> members = {
        {"architectures", "[\"Qwen3MoeForCausalLM\"]"},
        {"model_type", "\"qwen3_moe\""},
        {"hidden_size", "2048"},
        {"intermediate_size", "6144"},
        {"moe_intermediate_size", "768"},
        {"num_hidden_layers", "4"},
        {"num_attention_heads", "32"},
        {"num_key_value_heads", "4"},
        {"head_dim", "128"},
        {"num_experts", "128"},
        {"num_experts_per_tok", "8"},
        {"decoder_sparse_step", "1"},
        {"mlp_only_layers", "[]"},
        {"vocab_size", "151936"},
        {"max_position_embeddings", "40960"},
        {"tie_word_embeddings", "false"},
        {"torch_dtype", "\"bfloat16\""}};
    std::string text = "{";
    for (const auto& [name, standard] : members) {
        text += (text.size() > 1 ? ",\n  \"" : "\n  \"") + name +
                "\": " + (name == key ? value : standard);
    }
    return text_file("hf_config", text + "\n}\n");
}

/// The message names the member, or the field of the architecture that it became.
Row config_row(const std::string& name, const std::string& key, const std::string& value,
               const std::string& place) {
    return {name, {"model", "show", "{file}"}, place, hf_config(key, value)};
}

std::vector<Row> config_rows() {
    return {
        config_row("config_of_an_unknown_model_type", "model_type", "\"perpetuum_mobile\"",
                   "model_type"),
        config_row("config_with_a_number_as_model_type", "model_type", "7", "model_type"),
        config_row("config_with_negative_hidden_size", "hidden_size", "-2048", "hidden_size"),
        config_row("config_with_hidden_size_zero", "hidden_size", "0", "hidden_size"),
        config_row("config_with_hidden_size_beyond_64_bits", "hidden_size", "1e30", "hidden_size"),
        config_row("config_with_hidden_size_as_text", "hidden_size", "\"2048\"", "hidden_size"),
        config_row("config_without_layers", "num_hidden_layers", "0", "num_hidden_layers"),
        config_row("config_with_a_billion_layers", "num_hidden_layers", "1000000000",
                   "num_hidden_layers"),
        config_row("config_with_no_heads", "num_attention_heads", "0", "num_attention_heads"),
        config_row("config_with_no_kv_heads", "num_key_value_heads", "0", "num_key_value_heads"),
        config_row("config_with_fewer_experts_than_are_active", "num_experts_per_tok", "129",
                   "experts_per_tok"),
        config_row("config_with_a_negative_number_of_experts", "num_experts", "-128",
                   "num_experts"),
        config_row("config_with_a_negative_vocabulary", "vocab_size", "-1", "vocab_size"),
        config_row("config_with_a_list_of_heads", "head_dim", "[128]", "head_dim"),
    };
}

/// Two GPUs behind one switch; a row breaks one part of it.
struct MachineParts {
    std::string nodes =
        R"({"id": "gpu0", "kind": "gpu"}, {"id": "gpu1", "kind": "gpu"},
      {"id": "switch0", "kind": "pcie_switch"}, {"id": "port0", "kind": "root_port"},
      {"id": "numa0", "kind": "numa_node", "numa": 0, "socket": 0},
      {"id": "memory0", "kind": "host_memory", "numa": 0})";
    std::string links =
        R"({"a": "gpu0", "b": "switch0", "kind": "pcie", "generation": 5, "width": 16},
      {"a": "gpu1", "b": "switch0", "kind": "pcie", "generation": 5, "width": 16},
      {"a": "switch0", "b": "port0", "kind": "pcie", "generation": 5, "width": 16},
      {"a": "port0", "b": "numa0", "kind": "internal", "gb_s": 64, "latency_ns": 100},
      {"a": "numa0", "b": "memory0", "kind": "memory"})";
    std::string memory_gb_s = "1792";

    [[nodiscard]] std::string text() const {
        return R"({"format": "draftboard.machine", "version": 1, "name": "test box",
  "gpu": {"name": "RTX PRO 6000", "compute_capability": "12.0", "memory_bytes": 102e9,
    "memory_gb_s": )" +
               memory_gb_s +
               R"(, "l2_bytes": 128e6, "multiprocessors": 188, "bf16_tflops": 503,
    "fp8_tflops": 1007, "fp4_tflops": 2015},
  "nodes": [)" +
               nodes + R"(],
  "links": [)" +
               links + "]}\n";
    }
    [[nodiscard]] BadFile file() const { return text_file("machine", text()); }
};

Row machine_row(const std::string& name, const std::string& place, const MachineParts& parts) {
    return {name, {"machine", "show", "{file}"}, place, parts.file()};
}

/// Nodes or links of the sound machine and one more, or none of it.
MachineParts more_nodes(const std::string& node) {
    MachineParts parts;
    parts.nodes += ", " + node;
    return parts;
}
MachineParts more_links(const std::string& link) {
    MachineParts parts;
    parts.links += ", " + link;
    return parts;
}
MachineParts only(const std::string& nodes, const std::string& links) {
    MachineParts parts;
    parts.nodes = nodes;
    parts.links = links;
    return parts;
}
MachineParts with_memory(const std::string& gb_s) {
    MachineParts parts;
    parts.memory_gb_s = gb_s;
    return parts;
}

/// `count` GPUs that hang on one switch each by one link.
MachineParts many_gpus(int count) {
    MachineParts parts;
    for (int i = 2; i < count; ++i) {
        const std::string gpu = "gpu" + std::to_string(i);
        parts.nodes += ",{\"id\":\"" + gpu + "\",\"kind\":\"gpu\"}";
        parts.links += ",{\"a\":\"" + gpu +
                       "\",\"b\":\"switch0\",\"kind\":\"pcie\",\"generation\":5,\"width\":16}";
    }
    return parts;
}

std::vector<Row> machine_rows() {
    return {
        machine_row("machine_without_gpus", "/nodes",
                    only(R"({"id": "numa0", "kind": "numa_node", "numa": 0})", "")),
        machine_row("machine_without_nodes", "nodes", only("", "")),
        machine_row("machine_with_disconnected_gpus", "/nodes",
                    only(R"({"id": "gpu0", "kind": "gpu"}, {"id": "gpu1", "kind": "gpu"})", "")),
        machine_row("machine_with_a_gpu_that_hangs_on_nothing", "/nodes/6",
                    more_nodes(R"({"id": "gpu2", "kind": "gpu"})")),
        machine_row("machine_with_a_cycle", "/links",
                    more_links(R"({"a": "gpu0", "b": "port0", "kind": "pcie", "generation": 5,
                               "width": 16})")),
        machine_row("machine_with_a_link_to_itself", "/links/5",
                    more_links(R"({"a": "gpu0", "b": "gpu0", "kind": "pcie", "generation": 5,
                               "width": 16})")),
        machine_row("machine_with_a_link_to_nowhere", "/links/5",
                    more_links(R"({"a": "gpu0", "b": "gpu9", "kind": "pcie", "generation": 5,
                               "width": 16})")),
        machine_row("machine_with_a_link_of_no_width", "/links/5",
                    more_links(R"({"a": "numa0", "b": "gpu1", "kind": "nvlink", "gb_s": -1,
                               "latency_ns": 1})")),
        machine_row("machine_with_two_nodes_of_one_name", "/nodes/6",
                    more_nodes(R"({"id": "gpu0", "kind": "gpu"})")),
        machine_row("machine_with_an_unknown_kind_of_node", "/nodes/6",
                    more_nodes(R"({"id": "tpu0", "kind": "tpu"})")),
        machine_row("machine_with_negative_memory_bandwidth", "/gpu/memory_gb_s",
                    with_memory("-1")),
        machine_row("machine_with_infinite_memory_bandwidth", "", with_memory("1e999")),
        machine_row("machine_with_memory_bandwidth_as_text", "/gpu/memory_gb_s",
                    with_memory("\"fast\"")),
        {"machine_with_a_hundred_thousand_gpus",
         {"machine", "show", "{file}"},
         "nodes",
         generated_file("machine", [] { return many_gpus(100'000).text(); })},
    };
}

/// Standard input as a file.
std::vector<Row> pipe_rows() {
    std::vector<Row> rows;
    for (const char* verb : {"predict", "explain"}) {
        Row row{
            std::string(verb) + "_of_endless_standard_input", {verb, "/dev/stdin"}, "/dev/stdin"};
        row.endless_input = "{\"a\": [1, 2, 3], \n";
        rows.push_back(row);
        rows.push_back({std::string(verb) + "_of_endless_zeros", {verb, "/dev/zero"}, "/dev/zero"});
    }
    Row topology{"machine_import_of_endless_standard_input",
                 {"machine", "import", "/dev/stdin"},
                 "/dev/stdin"};
    topology.endless_input = "GPU0\t X \tPIX\tSYS\n";
    rows.push_back(topology);
    rows.push_back(
        {"machine_import_of_endless_zeros", {"machine", "import", "/dev/zero"}, "/dev/zero"});
    return rows;
}

}  // namespace

std::vector<Row> all_rows() {
    std::vector<Row> rows;
    for (const auto& part : {usage_rows(), value_rows(), sweep_rows(), collective_rows(),
                             machine_rows(), config_rows(), pipe_rows(), file_rows()}) {
        rows.insert(rows.end(), part.begin(), part.end());
    }
    // DRAFTBOARD_COMMANDS lists the commands that this build has, from the files in cli/.
    const std::string present = std::string(",") + DRAFTBOARD_COMMANDS + ",";
    rows.erase(std::remove_if(rows.begin(), rows.end(),
                              [&](const Row& row) {
                                  const std::string command =
                                      row.arguments.empty() ? "" : row.arguments.front();
                                  return (command == "plan" || command == "sweep") &&
                                         present.find("," + command + ",") == std::string::npos;
                              }),
               rows.end());
    return rows;
}

BadFile sound_machine() { return MachineParts().file(); }
BadFile sound_config() { return hf_config("", ""); }

}  // namespace draftboard::tests
