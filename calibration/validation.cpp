// SPDX-License-Identifier: Apache-2.0
#include "calibration/validation.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "calibration/configuration_prediction.h"
#include "calibration/configuration_run.h"
#include "calibration/cpu_calibration.h"
#include "calibration/engine_session.h"
#include "calibration/cpu_texts.h"
#include "calibration/cuda_terms.h"
#include "calibration/gpu_facts.h"
#include "model/data_library.h"
#include "model/machine_json.h"
#include "model/random.h"

namespace draftboard::calibration {

using model::Expected;
using model::Json;
using model::Pass;
using model::SpeculationMethod;

namespace {

constexpr double kLeastMeasuredUs = 0.05;  // two looks at the clock are as far apart
constexpr int kTextRoom = 64;              // tokens beside prompt and output
constexpr int kTraceLength = 256;          // tokens of a text that routing is recorded on
constexpr std::size_t kTraceTexts = 12;
constexpr std::size_t kRandomTexts = 64;
constexpr int kProfileEvery = 3;           // rounds: two of a suite's six

Expected<MeasuredModel> model_of(const SuiteConfiguration& one, const std::string& data_directory) {
    if (one.random_weights) return random_model(one.model, one.layers, one.tensor_rank_of, data_directory);
    std::error_code ec;
    if (std::filesystem::exists(std::filesystem::path(one.model) / "config.json", ec)) return checkpoint_model(one.model);
    const auto shipped = std::filesystem::path(data_directory) / "models" / one.model;
    if (std::filesystem::exists(shipped / "config.json", ec)) return checkpoint_model(shipped.string());
    return model::fail(model::ErrorCode::not_found, "is no folder of a model and no shipped model", one.model, "see data/models");
}

double quantile_of(std::vector<double> values, double q) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    const double at = q * static_cast<double>(values.size() - 1);
    const auto low = static_cast<std::size_t>(at);
    const std::size_t high = std::min(low + 1, values.size() - 1);
    return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

/// Everything of one configuration while the suite runs.
struct Entry {
    SuiteConfiguration configuration;
    std::size_t number = 0;  ///< in the suite
    std::unique_ptr<ConfigurationRun> run;
    ConfigurationProgress* measured = nullptr;  ///< in the progress
    bool repeats = false;
};

/// The texts of a round: `count` of them, going on where the last round ended.
std::vector<std::vector<int>> texts_of_round(const std::vector<std::vector<int>>& texts, int round, int count) {
    std::vector<std::vector<int>> chosen;
    for (int i = 0; i < count; ++i) chosen.push_back(texts[static_cast<std::size_t>(round * count + i) % texts.size()]);
    return chosen;
}

int texts_per_round(const Suite& suite, const SuiteConfiguration& configuration) {
    // A CPU's caches take some texts to settle; a GPU's passes are alike from the first.
    return std::max(suite.prompts_per_round, (suite.device == "cuda" ? 1 : 3) * configuration.batch);
}

struct Rate {
    double cycle_us = 0;
    double length = 1;
    double spread = 0;
    double disturbed = 0;
    double tokens_per_s = 0;
};

Rate rate_of(const std::vector<RoundSample>& rounds, const SuiteConfiguration& configuration) {
    std::vector<double> cycles;
    std::vector<TextAcceptance> texts;
    Rate rate;
    for (const RoundSample& round : rounds) {
        if (round.cycle_us > 0) cycles.push_back(round.cycle_us);
        rate.disturbed += round.disturbed / static_cast<double>(rounds.size());
        texts.insert(texts.end(), round.texts.begin(), round.texts.end());
    }
    rate.cycle_us = median_of(cycles);
    rate.length = configuration.method == SpeculationMethod::none ? 1.0 : acceptance_of(texts, configuration.verify_tokens() - 1).length;
    double squares = 0;
    for (const double cycle : cycles) squares += std::pow(std::log(cycle / rate.cycle_us), 2);
    if (cycles.size() > 1) rate.spread = std::sqrt(squares / static_cast<double>(cycles.size() - 1));
    if (rate.cycle_us > 0) rate.tokens_per_s = configuration.batch * rate.length / rate.cycle_us * 1e6;
    return rate;
}

class Validator {
   public:
    Validator(const Suite& suite, const ValidationOptions& options, const ValidationCallback& callback)
        : suite_(suite), options_(options), callback_(callback) {}

    Expected<Validation> run() {
        if (auto ok = prepare(); !ok) return tl::unexpected(ok.error());
        if (auto ok = go_on(); !ok) return tl::unexpected(ok.error());
        const auto lists = engines_of_suite();
        if (!options_.device.is_gpu()) {
            if (auto ok = run_together(lists, 0, 1); !ok) return tl::unexpected(ok.error());
        } else if (auto ok = run_in_turn(lists); !ok) {
            return tl::unexpected(ok.error());
        }
        validation_.complete = !stopped_;
        std::stable_sort(compared_.begin(), compared_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
        for (auto& one : compared_) validation_.results.push_back(std::move(one.second));
        validation_.groups = group_results(validation_.results);
        return std::move(validation_);
    }

   private:
    using AcceptanceKey = std::tuple<std::string, SpeculationMethod, int, int, int, int, std::vector<double>>;  // tree: its own steps and size
    using EnginesKey = std::tuple<std::string, int, std::string, SpeculationMethod>;  // model, ranks, launch, drafter model
    using EngineLists = std::map<EnginesKey, std::vector<std::size_t>>;               // numbers of configurations

    static AcceptanceKey key_of(const SuiteConfiguration& one) {
        const bool tree = one.top_k > 1;
        return {one.model_label(), one.method, one.context, one.top_k, tree ? one.steps : 0, tree ? one.draft_tokens : 0, one.scripted_rates};
    }

    void tell(double share, const std::string& what) const {
        if (callback_) callback_(begun_ + share * part_, what);
    }

    /// One model's engines after another, as they have room. A failure ends its engines' turn and is kept.
    Expected<void> run_in_turn(const EngineLists& lists) {
        double done = 0;
        std::string before;  // the failure of the engines just before these
        for (const auto& list : lists) {
            const double share = static_cast<double>(list.second.size()) / static_cast<double>(suite_.configurations.size());
            const std::string group = engines_name(list.first);
            if (progress_.has_failed(group)) {
                validation_.notes.push_back("not run, failed before: " + group);
                done += share;
                continue;
            }
            const auto ok = run_together({list}, done, share);
            if (stopped_) return {};
            // No device, and nothing that another run could go on from: the environment's error, nobody's failure.
            const bool nothing = compared_.empty() && progress_.measured_rounds() == 0;
            if (!ok && nothing && ok.error().code == model::ErrorCode::unavailable) return ok;
            if (!ok && !before.empty()) {
                if (nothing && first_error_) return tl::unexpected(*first_error_);
                // Two in a row: the first may have taken the device along.
                validation_.notes.push_back(fmt::format("stopped: {} failed, then {}; the device may be unusable to this process, --resume goes on without the first",
                                                        before, group));
                stopped_ = true;
                return {};
            }
            if (!ok) {
                const std::string what = group + ": " + ok.error().to_text();
                if (nothing && lists.size() == 1) return ok;
                validation_.notes.push_back("not run, " + what);
                progress_.failed.push_back(what);
                if (!keep()) return {};
                first_error_ = first_error_ ? first_error_ : ok.error();
            }
            before = ok ? std::string() : group;
            done += share;
        }
        if (compared_.empty() && first_error_) return tl::unexpected(*first_error_);
        return {};
    }

    static std::string engines_name(const EnginesKey& key) {
        const auto& [model, ranks, launch, method] = key;
        return fmt::format("{} r{} {} {}", model, ranks, launch, to_name(method));
    }

    /// Takes up what an earlier run measured.
    Expected<void> go_on() {
        progress_ = options_.progress;
        const std::string settings = validation_settings(suite_);
        if (progress_.settings.empty()) {
            progress_.settings = settings;
            progress_.box = box_;
        }
        if (progress_.settings != settings) {
            return model::fail(model::ErrorCode::invalid_input, "was measured for another suite: " + progress_.settings, suite_.name,
                               "give the same suite, or start again");
        }
        if (progress_.box == box_) return {};
        return model::fail(model::ErrorCode::invalid_input, "was measured on another box, or one that has changed: " + changes(progress_.box, box_), suite_.name,
                           "go on where it began, or start again");
    }

    /// What of two boxes' own descriptions differs.
    static std::string changes(const Json& then, const Json& now) {
        std::string out;
        for (const auto& change : Json::diff(then, now)) {
            if (out.size() < 200) out += (out.empty() ? "" : ", ") + change.value("path", std::string("/")).substr(0, 60);
        }
        return out;
    }

    /// After everything that was measured; false: the caller of all wants it to end here.
    bool keep() {
        if (options_.keep && !options_.keep(progress_)) stopped_ = true;
        return !stopped_;
    }

    /// These engines' configurations, from opening to comparing.
    Expected<void> run_together(const EngineLists& lists, double begun, double part) {
        begun_ = begun;
        part_ = part;
        entries_.clear();
        if (auto ok = open_runs(lists); !ok) return ok;
        if (auto ok = measure_acceptance(); !ok || stopped_) return ok;
        if (auto ok = run_rounds(); !ok || stopped_) return ok;
        for (Entry& entry : entries_) {
            if (auto ok = compare(entry); !ok) return ok;
        }
        entries_.clear();
        return {};
    }

    Expected<void> prepare() {
        auto found = find_calibration(options_.calibration, options_.data_directory);
        if (!found) return tl::unexpected(found.error());
        calibration_ = std::move(*found);
        validation_.suite = suite_;
        validation_.calibration = calibration_.name;
        validation_.bound = options_.bound;
        if (auto ok = options_.device.is_gpu() ? prepare_gpu() : prepare_cpu(); !ok) return ok;
        validation_.environment["calibration"] = calibration_.description;
        for (const CpuMeasuredShape& shape : measured_shapes(calibration_)) shapes_.insert(shape);
        auto of_calibration = read_prompt_sets(suite_.prompts, PromptHalf::calibration, options_.data_directory);
        if (!of_calibration) return tl::unexpected(of_calibration.error());
        auto of_validation = read_prompt_sets(suite_.prompts, PromptHalf::validation, options_.data_directory);
        if (!of_validation) return tl::unexpected(of_validation.error());
        calibration_prompts_ = std::move(*of_calibration);
        validation_prompts_ = std::move(*of_validation);
        return {};
    }

    Expected<void> prepare_cpu() {
        const bool of_cpu = calibration_.unknown.contains("cpu") && calibration_.unknown["cpu"].is_object();
        if (!of_cpu) {
            return model::fail(model::ErrorCode::invalid_input, "is no calibration of a CPU", options_.calibration,
                               "make one with `draftboard calibrate --device cpu -o FILE`");
        }
        std::vector<model::Problem> problems;
        const model::JsonReader cpu(calibration_.unknown["cpu"], problems);
        const CpuFacts facts = cpu_facts_from_json(cpu.at("machine"));
        const CpuCeilings ceilings = cpu_ceilings_from_json(cpu.at("ceilings"));
        clock_us_ = cpu.number_or("clock_us", 0, 0, 1e3);
        if (!problems.empty()) return tl::unexpected(to_error(problems, options_.calibration));
        auto machine = cpu_machine(facts, ceilings);
        if (!machine) return tl::unexpected(machine.error());
        machine_ = std::move(*machine);
        const auto here = probe_cpu();
        if (!here) return tl::unexpected(here.error());
        if (here->name != facts.name || here->cores != facts.cores) {
            validation_.notes.push_back(fmt::format("the calibration was made on {} with {} core(s), this is {} with {}", facts.name,
                                                    facts.cores, here->name, here->cores));
        }
        for (const SuiteConfiguration& one : suite_.configurations) {
            if (one.ranks <= here->cores) continue;
            return model::fail(model::ErrorCode::unavailable, fmt::format("{} needs {} cores, {} are there", one.name(), one.ranks, here->cores),
                               suite_.name, "choose a suite for this machine");
        }
        validation_.environment = to_json(facts);
        box_ = Json{{"cpu", here->name}, {"cores", here->cores}};
        return {};
    }

    Expected<void> prepare_gpu() {
        if (!calibration_.unknown.contains("cuda") || !calibration_.unknown["cuda"].is_object()) {
            return model::fail(model::ErrorCode::invalid_input, "is no calibration of a GPU engine", options_.calibration,
                               "make one with `draftboard calibrate --device cuda -o FILE`");
        }
        std::vector<model::Problem> problems;
        const model::JsonReader cuda(calibration_.unknown["cuda"], problems);
        clock_us_ = cuda.number_or("clock_us", 0, 0, 1e3);
        auto machine = model::find_machine(suite_.machine, options_.data_directory, "");
        if (!machine) return tl::unexpected(machine.error());
        machine_ = std::move(*machine);
        machine_.gpu = calibration_.gpu;
        machine_.peer.enabled = machine_.peer.enabled && suite_.peer_access;
        validation_.environment = model::Json{{"device", "cuda"}, {"machine", suite_.machine}, {"gpu", calibration_.gpu.name}};
        const auto now = probe_gpus();
        if (now) validation_.environment["boards"] = to_json(*now);
        box_ = now ? constant_facts(*now) : Json();
        if (now && cuda.has("gpu") && cuda.at("gpu").value().is_object()) {
            for (const std::string& changed : differences(gpu_facts_from_json(cuda.at("gpu")), *now)) {
                validation_.notes.push_back("this is not the box of the calibration: " + changed);
            }
        }
        if (!problems.empty()) return tl::unexpected(to_error(problems, options_.calibration));
        return {};
    }

    /// What of a box stays the same from one hour to the next: driver, boards and links; not its clocks, nor links that rest.
    static Json constant_facts(const GpuFacts& facts) {
        Json boards = Json::array();
        for (const GpuBoard& board : facts.boards) {
            boards.push_back({{"name", board.name}, {"uuid", board.uuid}, {"pcie_width", board.pcie_width}, {"nvlinks", board.nvlinks}, {"power_limit_w", board.power_limit_w}});
        }
        return {{"driver", facts.driver}, {"boards", std::move(boards)}};
    }

    /// A prompt of this length is continued by `tokens`, so that the mean context is the configuration's.
    [[nodiscard]] int prompt_length(const SuiteConfiguration& one) const { return std::max(2, one.context - suite_.tokens / 2); }

    [[nodiscard]] int text_length(const SuiteConfiguration& one) const { return prompt_length(one) + suite_.tokens + kTextRoom; }

    /// Configurations of one model on as many ranks share engines; a second drafter model of theirs has its own.
    [[nodiscard]] EngineLists engines_of_suite() const {
        const auto base = [](const SuiteConfiguration& one, SpeculationMethod method) {
            return EnginesKey{one.model_label(), one.ranks, one.launch, method};
        };
        EngineLists lists;
        for (std::size_t i = 0; i < suite_.configurations.size(); ++i) {
            const SuiteConfiguration& one = suite_.configurations[i];
            if (has_draft_model(one.method)) lists[base(one, one.method)].push_back(i);
        }
        for (std::size_t i = 0; i < suite_.configurations.size(); ++i) {
            const SuiteConfiguration& one = suite_.configurations[i];
            if (has_draft_model(one.method)) continue;
            const auto same = [&](const auto& list) {
                const auto& [model, ranks, launch, method] = list.first;
                return model == one.model_label() && ranks == one.ranks && launch == one.launch;
            };
            const auto first = std::find_if(lists.begin(), lists.end(), same);
            lists[first == lists.end() ? base(one, SpeculationMethod::none) : first->first].push_back(i);
        }
        return lists;
    }

    Expected<std::shared_ptr<backend::Inference>> engines_for(const std::vector<SuiteConfiguration>& list) const {
        auto model = model_of(list.front(), options_.data_directory);
        if (!model) return tl::unexpected(model.error());
        int longest = 0;
        for (const SuiteConfiguration& one : list) longest = std::max(longest, text_length(one));
        const auto launch = list.front().launch == "eager" ? backend::cuda::LaunchMode::eager : backend::cuda::LaunchMode::full;
        MeasuredDevice device = options_.device.with_launch(launch);
        device.cuda.peer_access = suite_.peer_access;
        return open_engines(list, *model, device, longest);
    }

    Expected<void> open_runs(const EngineLists& lists) {
        for (const auto& [key, numbers] : lists) {
            std::vector<SuiteConfiguration> list;
            for (const std::size_t number : numbers) list.push_back(suite_.configurations[number]);
            auto engines = engines_for(list);
            if (!engines) return tl::unexpected(engines.error());
            for (const std::size_t number : numbers) {
                auto run = ConfigurationRun::open(suite_.configurations[number], *engines);
                if (!run) return tl::unexpected(run.error());
                Entry entry;
                entry.configuration = suite_.configurations[number];
                entry.number = number;
                entry.run = std::make_unique<ConfigurationRun>(std::move(*run));
                entry.measured = &progress_.configurations[fmt::format("{}: {}", number, entry.configuration.name())];
                entry.repeats = suite_.repeat > 0 && number % static_cast<std::size_t>(suite_.repeat) == 0;
                entries_.push_back(std::move(entry));
            }
        }
        std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.number < b.number; });
        return {};
    }

    /// Texts of a configuration's prompts: of the shipped sets, or random tokens, another lot of them for each half.
    [[nodiscard]] std::vector<std::vector<int>> texts_for(PromptHalf half, backend::Inference& inference, int length) const {
        if (inference.tokenizer()) {
            return texts_of_length(half == PromptHalf::calibration ? calibration_prompts_ : validation_prompts_, length, *inference.tokenizer());
        }
        model::Random random(half == PromptHalf::calibration ? 11 : 12);
        const auto tokens = static_cast<std::uint32_t>(std::min(inference.target().vocabulary(), 1 << 14));
        std::vector<std::vector<int>> texts(kRandomTexts);
        for (auto& text : texts) {
            for (int i = 0; i < length; ++i) text.push_back(static_cast<int>(random.below(tokens)));
        }
        return texts;
    }

    /// What predictions may know of acceptance and routing: the calibration's half of the prompts, on one rank.
    Expected<void> measure_acceptance() {
        std::map<AcceptanceKey, SuiteConfiguration> deepest;
        for (const Entry& entry : entries_) {
            const SuiteConfiguration& one = entry.configuration;
            if (one.method == SpeculationMethod::none) continue;
            auto [at, fresh] = deepest.try_emplace(key_of(one), one);
            if (!fresh && one.steps > at->second.steps) at->second = one;
        }
        std::size_t done = 0;
        for (auto& [key, one] : deepest) {
            if (!options_.device.is_gpu()) {
                one.ranks = 1;
                one.batch = 4;
            }
            tell(0.2 * static_cast<double>(done++) / static_cast<double>(deepest.size()), "acceptance of " + one.name());
            // A GPU has no room for a second set of engines; the open ones are deep enough.
            const auto open = std::find_if(entries_.begin(), entries_.end(), [&, wanted = key](const Entry& entry) {
                return entry.configuration.method != SpeculationMethod::none && key_of(entry.configuration) == wanted;
            });
            const std::string name = acceptance_name(one);
            if (const auto known = progress_.acceptance.find(name); known != progress_.acceptance.end()) {
                acceptance_[key] = known->second;
                continue;
            }
            std::shared_ptr<backend::Inference> engines;
            if (options_.device.is_gpu()) {
                engines = open->run->shared_inference();
            } else {
                auto made = engines_for({one});
                if (!made) return tl::unexpected(made.error());
                engines = std::move(*made);
            }
            auto run = ConfigurationRun::open(one, std::move(engines));
            if (!run) return tl::unexpected(run.error());
            const auto texts = texts_for(PromptHalf::calibration, run->inference(), prompt_length(one));
            auto sample = run->decode(texts, suite_.tokens);
            if (!sample) return tl::unexpected(sample.error());
            progress_.acceptance[name] = sample->texts;
            acceptance_[key] = std::move(sample->texts);
            if (!keep()) return {};
        }
        for (Entry& entry : entries_) {
            if (routing_.contains(entry.configuration.model_label())) continue;
            model::Routing& routing = routing_[entry.configuration.model_label()];
            backend::Inference& inference = entry.run->inference();
            auto texts = texts_for(PromptHalf::calibration, inference, std::min(kTraceLength, prompt_length(entry.configuration)));
            texts.resize(std::min(texts.size(), kTraceTexts));
            auto trace = inference.routing_trace(texts);
            if (!trace) continue;  // a model without experts: uniform routing is never asked for
            routing.kind = model::RoutingKind::trace;
            routing.trace_file = "recorded on the calibration's prompts";
            routing.trace = std::move(*trace);
        }
        return {};
    }

    Expected<void> run_rounds() {
        const double total = static_cast<double>(suite_.rounds) + 1;
        const auto has = [](const auto& list, int index) { return list.size() > static_cast<std::size_t>(index); };
        for (int round = 0; round < suite_.rounds; ++round) {
            std::size_t number = 0;
            for (Entry& entry : entries_) {
                const double within = static_cast<double>(number++) / static_cast<double>(entries_.size());
                tell(0.2 + 0.7 * (round + within) / total, fmt::format("round {}: {}", round + 1, entry.configuration.name()));
                if (has(entry.measured->rounds, round)) continue;
                auto sample = entry.run->decode(round_texts(entry, round), suite_.tokens);
                if (!sample) return tl::unexpected(sample.error());
                entry.measured->rounds.push_back(std::move(*sample));
                if (!keep()) return {};
            }
            for (Entry& entry : entries_) {  // the second runs, apart from the first ones
                if (!entry.repeats || has(entry.measured->repeated, round)) continue;
                auto sample = entry.run->decode(round_texts(entry, round), suite_.tokens);
                if (!sample) return tl::unexpected(sample.error());
                entry.measured->repeated.push_back(std::move(*sample));
                if (!keep()) return {};
            }
            // Operations are looked at in some of the rounds, so that no single moment of the machine decides.
            if (round % kProfileEvery != 0) continue;
            for (Entry& entry : entries_) {
                if (has(entry.measured->profiles, round / kProfileEvery)) continue;
                auto profile = entry.run->profile(round_texts(entry, round), suite_.tokens);
                if (!profile) return tl::unexpected(profile.error());
                entry.measured->profiles.push_back(std::move(*profile));
                if (!keep()) return {};
            }
        }
        return {};
    }

    /// What acceptance is kept under: the drafter at its deepest.
    static std::string acceptance_name(const SuiteConfiguration& one) {
        std::string rates;
        for (const double rate : one.scripted_rates) rates += fmt::format(" {:g}", rate);
        return fmt::format("{} c{} {}{}", one.model_label(), one.context, one.drafter(), rates);
    }

    std::vector<std::vector<int>> round_texts(Entry& entry, int round) const {
        const auto texts = texts_for(PromptHalf::validation, entry.run->inference(), prompt_length(entry.configuration));
        return texts_of_round(texts, round, texts_per_round(suite_, entry.configuration));
    }

    [[nodiscard]] bool unseen(const SuiteConfiguration& one) const {
        const std::string name = one.random_weights ? one.model_label() : model_name(one.model);
        const Pass pass = one.method == SpeculationMethod::none ? Pass::decode : Pass::verify;
        return !shapes_.contains({name, one.ranks, std::string(to_name(pass)), one.batch, one.verify_tokens()});
    }

    Expected<void> compare(Entry& entry) {
        const SuiteConfiguration& one = entry.configuration;
        tell(0.95, "comparing " + one.name());
        const Rate rate = rate_of(entry.measured->rounds, one);
        if (!(rate.cycle_us > 0)) {
            return model::fail(model::ErrorCode::invalid_input, "no cycle of a full batch was run", one.name(), "raise the suite's tokens or prompts");
        }
        ConfigurationResult result;
        result.configuration = one;
        result.unseen = unseen(one);
        result.measured = rate.tokens_per_s;
        result.measured_cycle_us = rate.cycle_us;
        result.measured_length = rate.length;
        result.spread = rate.spread;
        result.disturbed = rate.disturbed;
        if (entry.repeats) result.repeated = rate_of(entry.measured->repeated, one).tokens_per_s;
        if (one.held_out && !result.unseen) {
            validation_.notes.push_back(one.name() + " is marked as held out, but the calibration measured its pass");
        }

        PredictionInputs inputs;
        inputs.machine = machine_;
        inputs.calibration = options_.calibration;
        inputs.data_directory = options_.data_directory;
        const auto texts = texts_for(PromptHalf::validation, entry.run->inference(), prompt_length(one));
        inputs.run_texts = static_cast<double>(std::min(texts.size(), static_cast<std::size_t>(suite_.rounds * texts_per_round(suite_, one))));
        if (one.method != SpeculationMethod::none) {
            inputs.acceptance = acceptance_of(acceptance_.at(key_of(one)), one.top_k > 1 ? one.steps : one.verify_tokens() - 1);
        }
        inputs.routing = routing_.at(one.model_label());
        inputs.rank_alone = one.tensor_rank_of > 1;
        if (options_.device.is_gpu()) inputs.engine = entry.run->fused() ? kCudaFusedEngine : kCudaEngine;
        auto predicted = predict_configuration(one, entry.run->inference(), inputs);
        if (!predicted) return tl::unexpected(predicted.error());
        result.predicted = predicted->prediction.tokens_per_second;
        result.predicted_cycle_us = predicted->prediction.cycle_ms * 1e3;
        result.predicted_length = one.method == SpeculationMethod::none ? 1.0 : inputs.acceptance.length;
        result.terms = predicted->prediction.terms;
        compare_operations(predicted->passes, joined(entry.measured->profiles), result);
        compared_.emplace_back(entry.number, std::move(result));
        return {};
    }

    static double predicted_us(const sim::PricedOperation& priced) {
        if (priced.fused) return 0;
        return sim::to_us(priced.collective ? priced.latency + priced.transport : priced.kernel);
    }

    void compare_operations(const std::vector<sim::SimulatedPass>& passes, const ProfiledPasses& profiled, ConfigurationResult& result) const {
        const SuiteConfiguration& one = result.configuration;
        std::map<std::string, double> terms;
        double accounted = 0;
        for (const sim::SimulatedPass& pass : passes) {
            const bool drafter = pass.name.starts_with("draft");
            const bool plain = pass.name == "plain";
            if (plain != (one.method == SpeculationMethod::none)) continue;
            const Pass kind = plain ? Pass::decode : pass.name == "verify" ? Pass::verify : pass.name == "draft" ? Pass::draft : Pass::draft_extend;
            const int width = plain ? 1 : kind == Pass::verify ? one.verify_tokens() : kind == Pass::draft ? one.top_k : one.steps + 1;
            const auto measured = profiled.find({drafter ? "drafter" : "target", kind, one.batch, width});
            if (measured == profiled.end()) continue;
            const std::string prefix = plain ? "plain" : drafter ? "draft" : "verify";
            const auto& operations = pass.priced.plan.operations;
            const std::size_t begun = result.timeline.size();
            for (std::size_t i = 0; i < operations.size() && i < measured->second.us.size(); ++i) {
                const double us = measured->second.us[i] - clock_us_;
                const double wait = measured->second.wait_us[i];
                const bool collective = model::is_collective(operations[i].kind);
                const std::string term = prefix + (collective ? ".collectives" : "." + std::string(to_name(sim::term_of(operations[i]))));
                terms[term] += std::max(us, 0.0) * pass.repeat;
                if (collective) terms[prefix + ".collectives.wait"] += wait * pass.repeat;
                accounted += (std::max(us, 0.0) + wait) * pass.repeat;
                result.timeline.push_back({operations[i].key(kind), collective ? "collectives" : std::string(to_name(sim::term_of(operations[i]))),
                                           predicted_us(pass.priced.operations[i]), std::max(us, 0.0), wait});
                // What runs inside of another kernel has no time of its own; launched one by one, times hold the host's launches.
                if (us < kLeastMeasuredUs || pass.priced.operations[i].fused || one.launch == "eager") continue;
                OperationComparison comparison;
                comparison.key = operations[i].key(kind);
                comparison.engine = drafter ? "drafter" : "target";
                comparison.predicted_us = predicted_us(pass.priced.operations[i]);
                comparison.measured_us = us;
                comparison.relative_uncertainty = pass.priced.info[i].relative_uncertainty;
                result.operations.push_back(std::move(comparison));
            }
            const std::vector<TimelineOperation> once(result.timeline.begin() + static_cast<std::ptrdiff_t>(begun), result.timeline.end());
            for (int i = 1; i < pass.repeat; ++i) result.timeline.insert(result.timeline.end(), once.begin(), once.end());
        }
        for (const auto& [name, us] : terms) result.measured_terms.emplace_back(name, us);
        result.measured_terms.emplace_back("launch and host", std::max(0.0, result.measured_cycle_us - accounted));
    }

    const Suite& suite_;
    const ValidationOptions& options_;
    const ValidationCallback& callback_;
    Calibration calibration_;
    model::Machine machine_;
    double clock_us_ = 0;
    std::set<CpuMeasuredShape> shapes_;
    std::vector<std::vector<std::string>> calibration_prompts_;
    std::vector<std::vector<std::string>> validation_prompts_;
    std::vector<Entry> entries_;
    std::map<AcceptanceKey, std::vector<TextAcceptance>> acceptance_;
    std::map<std::string, model::Routing> routing_;
    std::vector<std::pair<std::size_t, ConfigurationResult>> compared_;  // with their numbers in the suite
    double begun_ = 0;  // of the whole: share that is done before these engines' turn, and their own
    double part_ = 1;
    ValidationProgress progress_;
    Json box_;              // as the machine describes itself now
    bool stopped_ = false;  // asked to, or after a failure
    std::optional<model::Error> first_error_;
    Validation validation_;
};

}  // namespace

std::vector<GroupResult> group_results(const std::vector<ConfigurationResult>& results) {
    std::map<int, std::vector<const ConfigurationResult*>> groups;
    for (const ConfigurationResult& result : results) groups[result.configuration.group].push_back(&result);
    std::vector<GroupResult> out;
    for (const auto& [number, members] : groups) {
        const auto predicted = *std::max_element(members.begin(), members.end(),
                                                 [](auto* a, auto* b) { return a->predicted.value < b->predicted.value; });
        const auto measured = *std::max_element(members.begin(), members.end(), [](auto* a, auto* b) { return a->measured < b->measured; });
        out.push_back({predicted->configuration.group_name(), predicted->configuration.drafter(), measured->configuration.drafter(),
                       measured->measured > 0 ? 1 - predicted->measured / measured->measured : 0.0});
    }
    return out;
}

bool OperationComparison::inside() const {
    return std::abs(std::log(std::max(predicted_us, 1e-3) / measured_us)) <= sim::kNormal90 * relative_uncertainty;
}

bool Validation::within_bound() const { return summary().median_error <= bound; }

ValidationSummary Validation::summary() const {
    ValidationSummary s;
    std::vector<double> errors;
    std::vector<double> unseen_errors;
    std::vector<double> cycle_errors;
    std::vector<double> operation_errors;
    std::vector<double> repeats;
    double inside = 0;
    double operations_inside = 0;
    double weighted = 0;
    double weight = 0;
    for (const ConfigurationResult& result : results) {
        errors.push_back(std::abs(result.error()));
        if (result.unseen) unseen_errors.push_back(errors.back());
        s.disturbed += result.disturbed / static_cast<double>(results.size());
        cycle_errors.push_back(std::abs(result.predicted_cycle_us / result.measured_cycle_us - 1));
        inside += result.inside() ? 1 : 0;
        if (result.repeated > 0) repeats.push_back(std::abs(std::log(result.repeated / result.measured)));
        for (const OperationComparison& operation : result.operations) {
            operation_errors.push_back(std::abs(operation.error()));
            weighted += operation_errors.back() * operation.measured_us;
            weight += operation.measured_us;
            operations_inside += operation.inside() ? 1 : 0;
        }
    }
    s.configurations = static_cast<int>(results.size());
    s.unseen = static_cast<int>(unseen_errors.size());
    s.median_error = quantile_of(errors, 0.5);
    s.median_error_unseen = quantile_of(unseen_errors, 0.5);
    s.p90_error = quantile_of(errors, 0.9);
    s.worst_error = quantile_of(errors, 1);
    s.median_cycle_error = quantile_of(cycle_errors, 0.5);
    s.coverage_90 = results.empty() ? 0 : inside / static_cast<double>(results.size());
    s.operations = static_cast<int>(operation_errors.size());
    s.median_operation_error = quantile_of(operation_errors, 0.5);
    s.weighted_operation_error = weight > 0 ? weighted / weight : 0;
    s.operation_coverage_90 = operation_errors.empty() ? 0 : operations_inside / static_cast<double>(operation_errors.size());
    for (const GroupResult& group : groups) s.worst_regret = std::max(s.worst_regret, group.regret);
    s.noise_floor = quantile_of(repeats, 0.5);
    s.repeated = static_cast<int>(repeats.size());
    return s;
}

std::string validation_settings(const Suite& suite) {
    std::string text = fmt::format("suite {} on {} ({}{}), {} rounds of {} texts and {} tokens, repeat {}", suite.name, suite.device, suite.machine,
                                   suite.peer_access ? "" : ", no peer access", suite.rounds, suite.prompts_per_round, suite.tokens, suite.repeat);
    for (const std::string& prompts : suite.prompts) text += ", " + prompts;
    for (const SuiteConfiguration& one : suite.configurations) text += "; " + one.name();
    return text;
}

Expected<Validation> validate_suite(const Suite& suite, const ValidationOptions& options, const ValidationCallback& callback) {
    return Validator(suite, options, callback).run();
}

}  // namespace draftboard::calibration
