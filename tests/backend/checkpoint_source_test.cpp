// SPDX-License-Identifier: Apache-2.0
// Checkpoints that do not hold what their config.json says: copies of tests/fixtures/reference with single tensors dropped,
// renamed or replaced.
#include "backend/cpu/checkpoint_source.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cpu/model_weights.h"
#include "model/json_reader.h"
#include "model/plan.h"
#include "tests/backend/weight_shares.h"
#include "tests/backend/written_checkpoint.h"

namespace draftboard::backend::cpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using backend::testing::bytes_of_values;
using backend::testing::TemporaryFolder;
using backend::testing::TensorSet;
using model::Expected;

const std::string kReference = std::string(DRAFTBOARD_SOURCE_DIR) + "/tests/fixtures/reference/";

struct Stored {
    TensorType type;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
};

/// A checkpoint in memory that tests change before it is written.
struct Copy {
    explicit Copy(const std::string& family) {
        const auto checkpoint = Checkpoint::open(kReference + family);
        EXPECT_TRUE(checkpoint) << checkpoint.error().to_text();
        config = *model::parse_json(checkpoint->config_text(), "config.json");
        for (const std::string& name : checkpoint->names()) {
            const TensorView& view = *checkpoint->find(name);
            tensors[name] = {view.type, view.shape, {view.bytes.begin(), view.bytes.end()}};
        }
    }
    [[nodiscard]] Stored& at(const std::string& name) {
        EXPECT_TRUE(tensors.contains(name)) << name;
        return tensors[name];
    }
    void rename(const std::function<std::string(const std::string&)>& to) {
        std::map<std::string, Stored> renamed;
        for (auto& [name, tensor] : tensors) renamed[to(name)] = std::move(tensor);
        tensors = std::move(renamed);
    }
    [[nodiscard]] Checkpoint write(const TemporaryFolder& folder) const {
        TensorSet set;
        for (const auto& [name, tensor] : tensors) set.add(name, tensor.type, tensor.shape, tensor.bytes);
        set.write(folder.file("model.safetensors"));
        folder.write("config.json", config.dump());
        auto checkpoint = Checkpoint::open(folder.path());
        EXPECT_TRUE(checkpoint) << checkpoint.error().to_text();
        return std::move(*checkpoint);
    }
    [[nodiscard]] Expected<ModelWeights> load() const {
        const TemporaryFolder folder;
        return load_from(write(folder));
    }
    static Expected<ModelWeights> load_from(const Checkpoint& checkpoint) {
        const auto architecture = checkpoint.architecture();
        EXPECT_TRUE(architecture) << architecture.error().to_text();
        const auto numerics = checkpoint.numerics();
        EXPECT_TRUE(numerics) << numerics.error().to_text();
        return load_weights(checkpoint, *architecture, *numerics, {}, 0);
    }

    model::Json config;
    std::map<std::string, Stored> tensors;
};

TEST(CheckpointSource, A_tensor_that_is_missing_misshapen_or_of_another_type_is_named) {
    struct Row {
        const char* family;
        const char* tensor;
        std::function<void(Copy&, Stored&)> change;
        const char* says;
    };
    const auto drop = [](Copy& copy, Stored& tensor) {
        for (auto it = copy.tensors.begin(); it != copy.tensors.end(); ++it) {
            if (&it->second == &tensor) {
                copy.tensors.erase(it);
                return;
            }
        }
    };
    const auto transpose = [](Copy&, Stored& tensor) { std::swap(tensor.shape.front(), tensor.shape.back()); };
    const auto flatten = [](Copy&, Stored& tensor) {
        std::int64_t count = 1;
        for (const auto extent : tensor.shape) count *= extent;
        tensor.shape = {count};
    };
    const auto as_f16 = [](Copy&, Stored& tensor) { tensor.type = TensorType::f16; };
    const auto as_i16 = [](Copy&, Stored& tensor) { tensor.type = TensorType::i16; };
    const auto infinite = [](Copy&, Stored& tensor) {
        const std::uint32_t f32 = 0x7f800000u;
        const std::uint16_t bf16 = 0x7f80;
        if (tensor.type == TensorType::f32) std::memcpy(tensor.bytes.data(), &f32, 4);
        else std::memcpy(tensor.bytes.data(), &bf16, 2);
    };
    const auto zero = [](Copy&, Stored& tensor) { std::fill(tensor.bytes.begin(), tensor.bytes.end(), std::byte{0}); };
    for (const Row& row : std::vector<Row>{
             {"deepseek_v3", "model.norm.weight", drop, "\"model.norm.weight\" is missing"},
             {"deepseek_v3", "model.embed_tokens.weight", transpose, "has the shape"},
             {"deepseek_v3", "model.layers.0.self_attn.o_proj.weight", flatten, "has the shape"},
             {"deepseek_v3", "model.layers.0.self_attn.kv_b_proj.weight", as_f16, "is F16, but config.json makes it bf16"},
             {"deepseek_v3", "model.layers.2.mlp.experts.3.up_proj.weight", drop, "up_proj.weight\" is missing"},
             {"deepseek_v3", "model.layers.2.mlp.gate.e_score_correction_bias", drop, "is missing"},
             {"deepseek_v3", "model.layers.1.input_layernorm.weight", as_i16, "is I16; F32, BF16 or F16 is expected"},
             {"deepseek_v3_fp8", "model.layers.1.self_attn.o_proj.weight_scale_inv", drop, "weight_scale_inv\" is missing"},
             {"deepseek_v3_fp8", "model.layers.1.self_attn.o_proj.weight_scale_inv", flatten, "has the shape"},
             {"deepseek_v3_fp8", "model.layers.1.self_attn.o_proj.weight_scale_inv", infinite, "not finite"},
             {"kimi_k2_int4", "model.layers.1.mlp.experts.0.down_proj.weight_packed", drop, "weight_packed\" is missing"},
             {"kimi_k2_int4", "model.layers.1.mlp.experts.0.down_proj.weight_packed", flatten, "has the shape"},
             {"kimi_k2_int4", "model.layers.1.mlp.experts.0.down_proj.weight_scale", drop, "weight_scale\" is missing"},
             {"kimi_k2_int4", "model.layers.1.mlp.experts.0.down_proj.weight_scale", infinite, "not finite"},
             {"kimi_k2_int4", "model.layers.1.mlp.experts.0.down_proj.weight_shape", zero, "says [0, 0], but the architecture says"},
             {"qwen3_5_moe", "model.layers.0.linear_attn.conv1d.weight", transpose, "has the shape"},
             {"qwen3_5_moe", "model.layers.0.linear_attn.A_log", drop, "A_log\" is missing"},
         }) {
        SCOPED_TRACE(row.tensor);
        Copy copy(row.family);
        row.change(copy, copy.at(row.tensor));
        const auto weights = copy.load();
        ASSERT_FALSE(weights);
        EXPECT_THAT(weights.error().message, HasSubstr(row.tensor));
        EXPECT_THAT(weights.error().message, HasSubstr(row.says));
        EXPECT_FALSE(weights.error().context.empty());
    }
}

TEST(CheckpointSource, Quantised_weights_under_a_plain_config_are_refused_and_the_other_way_round) {
    Copy fp8("deepseek_v3_fp8");
    fp8.config.erase("quantization_config");
    EXPECT_THAT(fp8.load().error().message, HasSubstr("is F8_E4M3, but config.json makes it bf16"));
    Copy int4("kimi_k2_int4");
    int4.config.erase("quantization_config");
    EXPECT_THAT(int4.load().error().message, HasSubstr("weight_packed\" is I32, but config.json makes it bf16"));
    Copy plain("deepseek_v3");
    plain.config["quantization_config"] = Copy("deepseek_v3_fp8").config["quantization_config"];
    EXPECT_THAT(plain.load().error().message, HasSubstr("is BF16, but config.json makes it fp8_b128"));
}

TEST(CheckpointSource, Multimodal_prefixes_give_the_same_weights_and_vision_parts_are_not_missed) {
    const Copy plain("deepseek_v3");
    const auto expected = plain.load();
    Copy wrapped("deepseek_v3");
    wrapped.rename([](const std::string& name) { return "language_model." + name; });
    wrapped.tensors["vision_tower.patch.weight"] = {TensorType::u8, {1}, {std::byte{0}}};
    const TemporaryFolder folder;
    const Checkpoint checkpoint = wrapped.write(folder);
    const auto weights = Copy::load_from(checkpoint);
    ASSERT_TRUE(expected && weights) << weights.error().to_text();
    EXPECT_EQ(dequantized(*weights->lm_head), dequantized(*expected->lm_head));
    EXPECT_THAT(*unread_tensors(checkpoint, *checkpoint.architecture(), *checkpoint.numerics()), IsEmpty());

    Copy inner("deepseek_v3");
    inner.rename([](const std::string& name) {
        return name.compare(0, 6, "model.") == 0 ? "model.language_model." + name.substr(6) : name;
    });
    const auto other = inner.load();
    ASSERT_TRUE(other) << other.error().to_text();
    EXPECT_EQ(dequantized(*other->embedding), dequantized(*expected->embedding));
}

TEST(CheckpointSource, Tensors_that_nothing_reads_are_listed) {
    Copy copy("deepseek_v3");
    copy.tensors["model.layers.0.self_attn.q_a_proj.bias"] = {TensorType::u8, {1}, {std::byte{0}}};
    copy.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {TensorType::u8, {1}, {std::byte{0}}};
    copy.tensors["model.layers.0.self_attn.o_proj.input_scale"] = {TensorType::u8, {1}, {std::byte{0}}};
    const TemporaryFolder folder;
    const Checkpoint checkpoint = copy.write(folder);
    const auto unread = unread_tensors(checkpoint, *checkpoint.architecture(), *checkpoint.numerics());
    ASSERT_TRUE(unread) << unread.error().to_text();
    EXPECT_THAT(*unread, ElementsAre("model.layers.0.self_attn.q_a_proj.bias"));
}

TEST(CheckpointSource, Fp8_with_one_scale_a_tensor_or_a_row_is_read) {
    // o_proj of one layer's config as per-tensor fp8: the blocks' scales are replaced by one, or one a row.
    Copy copy("deepseek_v3_fp8");
    copy.config["quantization_config"].erase("weight_block_size");
    const std::string end = ".weight_scale_inv";
    std::map<std::string, Stored> changed;
    for (const auto& [name, tensor] : copy.tensors) {
        const bool scale = name.size() > end.size() && name.substr(name.size() - end.size()) == end;
        if (!scale) {
            changed[name] = tensor;
            continue;
        }
        const std::string module = name.substr(0, name.size() - end.size());
        const std::int64_t rows = copy.at(module + ".weight").shape[0];
        const bool by_row = module.find("o_proj") != std::string::npos;
        std::vector<float> scales;
        for (std::int64_t r = 0; r < (by_row ? rows : 1); ++r) scales.push_back(static_cast<float>(r + 2));
        std::vector<std::int64_t> shape;
        if (by_row) shape = {rows, 1};
        changed[module + ".weight_scale"] = {TensorType::f32, shape, bytes_of_values(scales)};
    }
    copy.tensors = std::move(changed);
    const auto weights = copy.load();
    ASSERT_TRUE(weights) << weights.error().to_text();
    const auto& mla = std::get<MlaWeights>(weights->layers[0].mixer);
    const auto codes = [&](const char* module) { return copy.at(fmt::format("model.layers.0.self_attn.{}.weight", module)).bytes; };
    const auto value = [](std::byte code) { return fp8_e4m3_to_float(static_cast<std::uint8_t>(code)); };
    const auto o = dequantized(mla.o);
    const auto kv_b = dequantized(mla.kv_b);
    const auto last = o.size() - 1;
    EXPECT_EQ(o[last], value(codes("o_proj")[last]) * static_cast<float>(mla.o.rows + 1));  // row r: r + 2
    EXPECT_EQ(kv_b[5], value(codes("kv_b_proj")[5]) * 2);
}

TEST(CheckpointSource, Fused_experts_are_the_same_as_experts_one_by_one) {
    const auto expected = Copy("qwen3_5_moe").load();
    ASSERT_TRUE(expected) << expected.error().to_text();
    Copy other("qwen3_5_moe");
    for (int layer = 0;; ++layer) {
        const std::string prefix = fmt::format("model.layers.{}.mlp.experts", layer);
        if (!other.tensors.contains(prefix + ".0.gate_proj.weight")) break;
        Stored up{TensorType::bf16, {0, 0, 0}, {}};
        Stored down = up;
        for (std::int64_t e = 0; other.tensors.contains(fmt::format("{}.{}.gate_proj.weight", prefix, e)); ++e) {
            for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
                const Stored part = other.tensors.extract(fmt::format("{}.{}.{}.weight", prefix, e, name)).mapped();
                Stored& to = name[0] == 'd' ? down : up;
                to.bytes.insert(to.bytes.end(), part.bytes.begin(), part.bytes.end());
                to.shape = {e + 1, name[0] == 'd' ? part.shape[0] : 2 * part.shape[0], part.shape[1]};
            }
        }
        other.tensors[prefix + ".gate_up_proj"] = up;
        other.tensors[prefix + ".down_proj"] = down;
    }
    const TemporaryFolder folder;
    const Checkpoint checkpoint = other.write(folder);
    auto weights = Copy::load_from(checkpoint);
    ASSERT_TRUE(weights) << weights.error().to_text();
    std::vector<ModelWeights> one;
    one.push_back(std::move(*weights));
    expect_stitched(*expected, one, *checkpoint.architecture(), {});
    EXPECT_THAT(*unread_tensors(checkpoint, *checkpoint.architecture(), *checkpoint.numerics()), IsEmpty());
    // One expert too few is not read as the next layer's.
    Stored& up = other.at("model.layers.0.mlp.experts.gate_up_proj");
    up.bytes.resize(up.bytes.size() / static_cast<std::size_t>(up.shape[0]) * static_cast<std::size_t>(up.shape[0] - 1));
    --up.shape[0];
    EXPECT_THAT(other.load().error().message, HasSubstr("gate_up_proj\" has the shape"));
}

TEST(CheckpointSource, Qwen3_Next_is_unpacked_to_the_order_of_separate_projections) {
    // The same model twice: once as Qwen3.5 stores it, once with q, k, v, z and b, a woven together key head by key head.
    const Copy separate("qwen3_5_moe");
    const auto expected = separate.load();
    ASSERT_TRUE(expected) << expected.error().to_text();
    Copy fused("qwen3_5_moe");
    fused.config["model_type"] = "qwen3_next";
    fused.config["num_nextn_predict_layers"] = 0;
    fused.config["norm_topk_prob"] = true;
    const auto keys = fused.config["linear_num_key_heads"].get<std::int64_t>();
    const auto values = fused.config["linear_num_value_heads"].get<std::int64_t>();
    const auto dk = fused.config["linear_key_head_dim"].get<std::int64_t>();
    const auto dv = fused.config["linear_value_head_dim"].get<std::int64_t>();
    const std::int64_t n = values / keys;
    for (int layer = 0; layer < 1000; ++layer) {
        const std::string prefix = fmt::format("model.layers.{}.linear_attn.", layer);
        if (!fused.tensors.contains(prefix + "in_proj_qkv.weight")) continue;
        const Stored qkv = fused.tensors.extract(prefix + "in_proj_qkv.weight").mapped();
        const Stored z = fused.tensors.extract(prefix + "in_proj_z.weight").mapped();
        const Stored b = fused.tensors.extract(prefix + "in_proj_b.weight").mapped();
        const Stored a = fused.tensors.extract(prefix + "in_proj_a.weight").mapped();
        Stored qkvz{qkv.type, {qkv.shape[0] + z.shape[0], qkv.shape[1]}, {}};
        Stored ba{b.type, {2 * values, b.shape[1]}, {}};
        const auto append = [](Stored& to, const Stored& from, std::int64_t first, std::int64_t count) {
            const auto row = static_cast<std::ptrdiff_t>(from.bytes.size()) / from.shape[0];
            to.bytes.insert(to.bytes.end(), from.bytes.begin() + first * row, from.bytes.begin() + (first + count) * row);
        };
        for (std::int64_t h = 0; h < keys; ++h) {
            append(qkvz, qkv, h * dk, dk);
            append(qkvz, qkv, (keys + h) * dk, dk);
            append(qkvz, qkv, 2 * keys * dk + h * n * dv, n * dv);
            append(qkvz, z, h * n * dv, n * dv);
            append(ba, b, h * n, n);
            append(ba, a, h * n, n);
        }
        fused.tensors[prefix + "in_proj_qkvz.weight"] = qkvz;
        fused.tensors[prefix + "in_proj_ba.weight"] = ba;
    }
    const TemporaryFolder folder;
    const Checkpoint checkpoint = fused.write(folder);
    const auto architecture = checkpoint.architecture();
    ASSERT_TRUE(architecture) << architecture.error().to_text();
    for (const int tensor : {1, 2}) {
        model::Layout layout;
        layout.tensor = tensor;
        std::vector<ModelWeights> ranks;
        for (int r = 0; r < tensor; ++r) {
            auto share = load_weights(checkpoint, *architecture, *checkpoint.numerics(), layout, r);
            ASSERT_TRUE(share) << share.error().to_text();
            ranks.push_back(std::move(*share));
        }
        expect_stitched(*expected, ranks, *architecture, layout);
    }
}

TEST(CheckpointSource, DeepSeek_numbers_its_MTP_module_on_and_copies_of_the_tables_are_read_only_where_they_differ) {
    Copy copy("deepseek_v3");
    const auto layers = copy.config["num_hidden_layers"].get<int>();
    copy.config["num_nextn_predict_layers"] = 1;
    const std::string last = fmt::format("model.layers.{}.", layers - 1);
    const std::string module = fmt::format("model.layers.{}.", layers);
    const auto stored = copy.tensors;
    for (const auto& [name, tensor] : stored) {
        if (name.compare(0, last.size(), last) == 0) copy.tensors[module + name.substr(last.size())] = tensor;
    }
    const Stored norm = copy.at("model.norm.weight");
    for (const char* name : {"enorm.weight", "hnorm.weight", "shared_head.norm.weight"}) copy.tensors[module + name] = norm;
    const std::int64_t hidden = norm.shape[0];
    copy.tensors[module + "eh_proj.weight"] = {TensorType::bf16, {hidden, 2 * hidden},
                                               std::vector<std::byte>(static_cast<std::size_t>(4 * hidden * hidden))};
    copy.tensors[module + "embed_tokens.weight"] = copy.at("model.embed_tokens.weight");
    Stored other_head = copy.at("lm_head.weight");
    other_head.bytes[1] ^= std::byte{0x80};  // the sign of its first number
    copy.tensors[module + "shared_head.head.weight"] = other_head;

    const TemporaryFolder folder;
    const Checkpoint checkpoint = copy.write(folder);
    const auto architecture = checkpoint.architecture();
    const auto numerics = checkpoint.numerics();
    ASSERT_TRUE(architecture && numerics);
    const auto target = Copy::load_from(checkpoint);
    ASSERT_TRUE(target) << target.error().to_text();
    const auto drafts = load_mtp(checkpoint, *architecture, *numerics, {}, 0, *target);
    ASSERT_TRUE(drafts) << drafts.error().to_text();
    EXPECT_EQ(drafts->embedding, target->embedding);
    EXPECT_EQ(dequantized(*drafts->lm_head).front(), -dequantized(*target->lm_head).front());
    EXPECT_EQ(dequantized(std::get<MlaWeights>(drafts->layers[0].mixer).o),
              dequantized(std::get<MlaWeights>(target->layers.back().mixer).o));
    EXPECT_THAT(*unread_tensors(checkpoint, *architecture, *numerics), IsEmpty());

    copy.tensors.erase(module + "enorm.weight");
    const TemporaryFolder without;
    const auto missing = load_mtp(copy.write(without), *architecture, *numerics, {}, 0, *target);
    ASSERT_FALSE(missing);
    EXPECT_THAT(missing.error().message, HasSubstr("enorm.weight"));
}

TEST(CheckpointSource, Draft_tokens_that_stand_for_nothing_are_an_error) {
    const auto target = Checkpoint::open(kReference + "deepseek_v3");
    const auto architecture = target->architecture();
    const auto weights = Copy::load_from(*target);
    ASSERT_TRUE(weights);
    const auto load = [&](const std::function<void(Copy&)>& change) {
        Copy copy("deepseek_v3/eagle3");
        change(copy);
        const TemporaryFolder folder;
        const Checkpoint head = copy.write(folder);
        const auto eagle = head.eagle3(*architecture);
        EXPECT_TRUE(eagle) << eagle.error().to_text();
        model::Speculation speculation;
        speculation.method = model::SpeculationMethod::eagle3;
        speculation.head = eagle->head;
        return load_eagle3(head, model::drafter_architecture(*architecture, speculation), *architecture, {}, 0, *weights);
    };
    ASSERT_TRUE(load([](Copy&) {}));
    const auto set = [](std::int64_t token) {
        return [token](Copy& copy) { std::memcpy(copy.at("d2t").bytes.data(), &token, 8); };
    };
    EXPECT_THAT(load(set(-1)).error().message, HasSubstr("draft token 0 stands for none"));
    EXPECT_THAT(load(set(architecture->vocabulary)).error().message, HasSubstr("draft token 0 stands for none"));
    EXPECT_THAT(load(set(std::numeric_limits<std::int64_t>::min())).error().message, HasSubstr("stands for none"));
    EXPECT_THAT(load([](Copy& c) { c.tensors.erase("d2t"); }).error().message, HasSubstr("\"d2t\" is missing"));
    EXPECT_THAT(load([](Copy& c) { std::fill(c.at("t2d").bytes.begin(), c.at("t2d").bytes.end(), std::byte{0}); }).error().message,
                HasSubstr("\"t2d\" does not mark"));
    EXPECT_THAT(load([](Copy& c) { c.at("t2d").shape.push_back(1); }).error().message, HasSubstr("\"t2d\" is not"));
}

}  // namespace
}  // namespace draftboard::backend::cpu
