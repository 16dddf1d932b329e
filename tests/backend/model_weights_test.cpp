// SPDX-License-Identifier: Apache-2.0
// Loading into ranks. The checkpoints of tests/fixtures/reference (made by Hugging Face transformers) stand for the families;
// small architectures with made-up weights for formats and layouts.
#include "backend/cpu/model_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/backend/weight_shares.h"
#include "tests/backend/written_checkpoint.h"
#include "model/parameter_count.h"
#include "model/plan.h"

namespace draftboard::backend::cpu {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using backend::testing::TemporaryFolder;
using backend::testing::TensorSet;
using model::Architecture;
using model::ErrorCode;
using model::Layout;
using model::NumberFormat;
using model::WeightFormat;

const std::string kReference = std::string(DRAFTBOARD_SOURCE_DIR) + "/tests/fixtures/reference";

struct Loaded {
    Checkpoint checkpoint;
    Architecture architecture;
    Numerics numerics;
};

Loaded open(const std::string& path) {
    auto checkpoint = Checkpoint::open(path);
    EXPECT_TRUE(checkpoint) << checkpoint.error().to_text();
    auto architecture = checkpoint->architecture();
    EXPECT_TRUE(architecture) << architecture.error().to_text();
    auto numerics = checkpoint->numerics();
    EXPECT_TRUE(numerics) << numerics.error().to_text();
    return {std::move(*checkpoint), std::move(*architecture), std::move(*numerics)};
}

ModelWeights load(const Loaded& model, const Layout& layout = {}, int rank = 0) {
    auto weights = load_weights(model.checkpoint, model.architecture, model.numerics, layout, rank);
    EXPECT_TRUE(weights) << weights.error().to_text();
    return weights ? std::move(*weights) : ModelWeights{};
}

std::vector<std::string> reference_families() {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(kReference)) {
        if (fs::exists(entry.path() / "config.json")) out.push_back(entry.path().filename().string());
    }
    std::sort(out.begin(), out.end());
    return out;
}

/// Layouts of two and four ranks, tensor and expert parallel, that an architecture can be cut over.
std::vector<Layout> layouts_of(const Architecture& architecture) {
    std::vector<Layout> out;
    for (const auto& [tensor, expert] : {std::pair{2, 1}, std::pair{4, 1}, std::pair{2, 2}, std::pair{4, 4}}) {
        Layout layout;
        layout.tensor = tensor;
        layout.expert = expert;
        if (layout.validate(architecture).empty()) out.push_back(layout);
    }
    return out;
}

class ReferenceCheckpoints : public ::testing::TestWithParam<std::string> {
   protected:
    [[nodiscard]] static std::string path() { return kReference + "/" + GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Families, ReferenceCheckpoints, ::testing::ValuesIn(reference_families()),
                         [](const auto& information) { return information.param; });

TEST_P(ReferenceCheckpoints, Load_with_every_tensor_read) {
    const Loaded model = open(path());
    const ModelWeights weights = load(model);
    EXPECT_EQ(weights.layers.size(), model.architecture.layers.size());
    const auto unread = unread_tensors(model.checkpoint, model.architecture, model.numerics);
    ASSERT_TRUE(unread) << unread.error().to_text();
    EXPECT_THAT(*unread, IsEmpty());
}

TEST_P(ReferenceCheckpoints, Hold_as_many_numbers_as_the_architecture_counts) {
    const Loaded model = open(path());
    // Everything but vectors and what is lent twice: the matrices of the target.
    std::int64_t numbers = 0;
    const ModelWeights weights = load(model);
    for (const auto& matrix : matrices_of(weights, model.architecture)) numbers += matrix.weights->rows * matrix.weights->columns;
    const auto count = model::count_parameters(model.architecture);
    EXPECT_LE(numbers, count.total);
    EXPECT_GT(static_cast<double>(numbers), 0.93 * static_cast<double>(count.total));
}

TEST_P(ReferenceCheckpoints, Are_the_same_whole_and_stitched_from_the_shares_of_their_ranks) {
    const Loaded model = open(path());
    const ModelWeights whole = load(model);
    const auto layouts = layouts_of(model.architecture);
    if (layouts.empty()) GTEST_SKIP() << "two ranks would cut the blocks of this model's weights";
    for (const Layout& layout : layouts) {
        SCOPED_TRACE(layout.name());
        std::vector<ModelWeights> ranks;
        for (int r = 0; r < layout.tensor; ++r) ranks.push_back(load(model, layout, r));
        expect_stitched(whole, ranks, model.architecture, layout);
    }
}

TEST(ReferenceHeads, An_EAGLE3_head_loads_with_every_tensor_read_and_lends_the_embedding) {
    const Loaded target = open(kReference + "/deepseek_v3");
    const auto head = Checkpoint::open(kReference + "/deepseek_v3/eagle3");
    ASSERT_TRUE(head) << head.error().to_text();
    const auto eagle = head->eagle3(target.architecture);
    ASSERT_TRUE(eagle) << eagle.error().to_text();
    model::Speculation speculation;
    speculation.method = model::SpeculationMethod::eagle3;
    speculation.steps = 3;
    speculation.head = eagle->head;
    const Architecture drafter = model::drafter_architecture(target.architecture, speculation);
    const ModelWeights weights = load(target);
    const auto drafts = load_eagle3(*head, drafter, target.architecture, {}, 0, weights);
    ASSERT_TRUE(drafts) << drafts.error().to_text();
    EXPECT_EQ(drafts->embedding, weights.embedding);
    EXPECT_TRUE(drafts->layers.front().mixer_norm.empty());
    ASSERT_TRUE(drafts->fusion);
    EXPECT_EQ(drafts->fusion->projection.columns, std::int64_t{eagle->head.aux_layers} * target.architecture.hidden);
    EXPECT_EQ(drafts->fusion->target_of_draft.size(), static_cast<std::size_t>(eagle->head.draft_vocabulary));
    EXPECT_TRUE(std::is_sorted(drafts->fusion->target_of_draft.begin(), drafts->fusion->target_of_draft.end()));
    const auto unread = unread_eagle3_tensors(*head, drafter, target.architecture);
    ASSERT_TRUE(unread) << unread.error().to_text();
    EXPECT_THAT(*unread, IsEmpty());
    for (const Layout& layout : layouts_of(drafter)) {
        SCOPED_TRACE(layout.name());
        std::vector<ModelWeights> ranks;
        for (int r = 0; r < layout.tensor; ++r) {
            const ModelWeights lender = load(target, layout, r);
            auto share = load_eagle3(*head, drafter, target.architecture, layout, r, lender);
            ASSERT_TRUE(share) << share.error().to_text();
            ranks.push_back(std::move(*share));
        }
        expect_stitched(*drafts, ranks, drafter, layout);
    }
}

TEST(ReferenceHeads, An_MTP_module_borrows_embedding_and_head) {
    const Loaded target = open(kReference + "/qwen3_5_moe");
    const ModelWeights weights = load(target);
    const auto drafts = load_mtp(target.checkpoint, target.architecture, target.numerics, {}, 0, weights);
    ASSERT_TRUE(drafts) << drafts.error().to_text();
    EXPECT_EQ(drafts->embedding, weights.embedding);
    EXPECT_EQ(drafts->lm_head, weights.lm_head);
    ASSERT_TRUE(drafts->fusion);
    EXPECT_EQ(drafts->fusion->projection.columns, 2 * target.architecture.hidden);
    EXPECT_EQ(drafts->layers.size(), 1u);
    // A drafter of other ranks than the lender's has nothing to borrow.
    Layout two;
    two.tensor = 2;
    EXPECT_FALSE(load_mtp(target.checkpoint, target.architecture, target.numerics, two, 0, weights));
}

/// The trained models that are shipped; a fixture of the loader once they are there.
TEST(TrainedModels, Load_with_every_tensor_read) {
    const fs::path models = fs::path(DRAFTBOARD_SOURCE_DIR) / "data" / "models";
    int loaded = 0;
    for (const char* name : {"tiny-kimi", "tiny-qwen"}) {
        if (!fs::exists(models / name / "model.safetensors")) continue;
        SCOPED_TRACE(name);
        const Loaded model = open((models / name).string());
        const ModelWeights weights = load(model);
        const auto unread = unread_tensors(model.checkpoint, model.architecture, model.numerics);
        ASSERT_TRUE(unread) << unread.error().to_text();
        EXPECT_THAT(*unread, IsEmpty());
        if (!model.architecture.mtp.empty()) {
            EXPECT_TRUE(load_mtp(model.checkpoint, model.architecture, model.numerics, {}, 0, weights));
        }
        const std::string folder = (models / (std::string(name) + "-eagle3")).string();
        if (fs::exists(folder)) {
            const auto head = Checkpoint::open(folder);
            ASSERT_TRUE(head) << head.error().to_text();
            const auto eagle = head->eagle3(model.architecture);
            ASSERT_TRUE(eagle) << eagle.error().to_text();
            model::Speculation speculation;
            speculation.method = model::SpeculationMethod::eagle3;
            speculation.head = eagle->head;
            const Architecture drafter = model::drafter_architecture(model.architecture, speculation);
            EXPECT_TRUE(load_eagle3(*head, drafter, model.architecture, {}, 0, weights));
            EXPECT_THAT(*unread_eagle3_tensors(*head, drafter, model.architecture), IsEmpty());
        }
        ++loaded;
    }
    if (loaded == 0) GTEST_SKIP() << "no trained models in " << models;
}

TEST(ModelWeights, Norms_stored_as_their_difference_from_one_are_completed_but_not_the_gated_norm) {
    const Loaded model = open(kReference + "/qwen3_5_moe");
    const ModelWeights weights = load(model);
    const auto stored = [&](const char* name) {
        const TensorView* view = model.checkpoint.find(name);
        std::uint16_t bits = 0;
        std::memcpy(&bits, view->bytes.data(), 2);
        return bf16_to_float(bits);
    };
    EXPECT_FLOAT_EQ(weights.final_norm[0], 1 + stored("model.norm.weight"));
    EXPECT_FLOAT_EQ(weights.layers[0].mixer_norm[0], 1 + stored("model.layers.0.input_layernorm.weight"));
    EXPECT_FLOAT_EQ(std::get<DeltaNetWeights>(weights.layers[0].mixer).norm[0], stored("model.layers.0.linear_attn.norm.weight"));
}

// ---- made-up weights

model::MlaShape small_mla() { return {4, 32, 32, 16, 8, 16, std::nullopt}; }
model::GqaShape small_gqa() {
    model::GqaShape gqa;
    gqa.heads = 8;
    gqa.kv_heads = 2;
    gqa.head_dim = 16;
    gqa.rotary_dim = 16;
    gqa.qk_norm = model::QkNorm::per_head;
    gqa.output_gate = gqa.qkv_bias = gqa.output_bias = true;
    return gqa;
}

/// One dense layer and one of 8 experts, with every matrix in `format`.
Architecture small_model(const model::TokenMixer& mixer, const WeightFormat& format) {
    Architecture a;
    a.name = "small";
    a.hidden = 64;
    a.vocabulary = 96;
    a.max_context = 128;
    a.embedding_format = a.lm_head_format = WeightFormat::plain(NumberFormat::bf16);
    model::MoeFeedForward moe;
    moe.experts = 8;
    moe.experts_per_token = 2;
    moe.intermediate = 128;
    moe.shared_intermediate = 128;
    moe.scoring = model::RouterScoring::sigmoid;
    moe.correction_bias = true;
    model::LayerFormats formats{format, format, format, format, WeightFormat::plain(NumberFormat::bf16)};
    a.layers.push_back({mixer, model::DenseFeedForward{256}, formats});
    a.layers.push_back({mixer, moe, formats});
    a.mtp.push_back({{mixer, moe, formats}, false, WeightFormat::plain(NumberFormat::bf16)});
    return a;
}

const WeightFormat kInt4{NumberFormat::int4, 1, 32, 16, 0};
const WeightFormat kFp8{NumberFormat::fp8_e4m3, 16, 16, 32, 0};

ModelWeights made_up(const Architecture& architecture, const Layout& layout = {}, int rank = 0, std::uint64_t seed = 1) {
    auto weights = random_weights(architecture, layout, rank, seed);
    EXPECT_TRUE(weights) << weights.error().to_text();
    return weights ? std::move(*weights) : ModelWeights{};
}

TEST(RandomWeights, Are_the_same_function_whatever_the_layout) {
    const model::DeltaNetShape net{4, 8, 16, 16, 4, false, NumberFormat::fp32};
    model::DeltaNetShape fused = net;
    fused.fused_projections = true;
    for (const WeightFormat& format : {WeightFormat::plain(NumberFormat::bf16), WeightFormat::plain(NumberFormat::fp32), kFp8,
                                       WeightFormat::plain(NumberFormat::fp8_e4m3), kInt4}) {
        for (const model::TokenMixer& mixer : {model::TokenMixer{small_mla()}, model::TokenMixer{small_gqa()},
                                               model::TokenMixer{net}, model::TokenMixer{fused}}) {
            const Architecture architecture = small_model(mixer, format);
            const ModelWeights whole = made_up(architecture);
            const auto layouts = layouts_of(architecture);
            EXPECT_GE(layouts.size(), 2u);
            for (const Layout& layout : layouts) {
                SCOPED_TRACE(format.name() + ", " + layout.name() + ", mixer " + std::to_string(mixer.index()));
                std::vector<ModelWeights> ranks;
                for (int r = 0; r < layout.tensor; ++r) ranks.push_back(made_up(architecture, layout, r));
                expect_stitched(whole, ranks, architecture, layout);
            }
        }
    }
}

TEST(RandomWeights, Have_mean_0_and_standard_deviation_1_over_the_root_of_columns) {
    // 256 x 64 numbers: the mean of squares of a matrix has a relative error of sqrt(2/16384) = 1.1 %, quantisation adds at most 2 %.
    for (const WeightFormat& format : {WeightFormat::plain(NumberFormat::fp32), kFp8, kInt4}) {
        const ModelWeights weights = made_up(small_model(small_mla(), format));
        const WeightMatrix& gate = std::get<DenseWeights>(weights.layers[0].feed_forward).gate_up.parts[0];
        const auto values = dequantized(gate);
        double sum = 0;
        double squares = 0;
        for (const float v : values) {
            sum += v;
            squares += double{v} * v;
        }
        const auto n = static_cast<double>(values.size());
        const double deviation = 1 / std::sqrt(64.0);
        EXPECT_NEAR(sum / n, 0, 4 * deviation / std::sqrt(n)) << format.name();
        EXPECT_NEAR(std::sqrt(squares / n), deviation, (format == kInt4 ? 0.06 : 0.03) * deviation) << format.name();
    }
}

TEST(RandomWeights, Differ_between_seeds_and_tensors) {
    const Architecture architecture = small_model(small_mla(), WeightFormat::plain(NumberFormat::bf16));
    const ModelWeights one = made_up(architecture, {}, 0, 1);
    const ModelWeights two = made_up(architecture, {}, 0, 2);
    EXPECT_NE(dequantized(*one.embedding), dequantized(*two.embedding));
    EXPECT_NE(dequantized(*one.embedding), dequantized(*one.lm_head));
}

TEST(RandomWeights, Drafters_of_both_kinds_can_be_made_up) {
    const Architecture target = small_model(small_mla(), WeightFormat::plain(NumberFormat::bf16));
    const ModelWeights weights = made_up(target);
    const auto mtp = random_mtp(target, {}, 0, 3, weights);
    ASSERT_TRUE(mtp) << mtp.error().to_text();
    EXPECT_EQ(mtp->fusion->projection.columns, 128);
    EXPECT_EQ(mtp->lm_head, weights.lm_head);
    model::Speculation speculation;
    speculation.method = model::SpeculationMethod::eagle3;
    speculation.head = model::Eagle3Head{"h", 64, 1, 3, small_gqa(), 96, 48, false, WeightFormat::plain(NumberFormat::bf16), ""};
    const Architecture drafter = model::drafter_architecture(target, speculation);
    const auto eagle = random_eagle3(drafter, 3, target, {}, 0, 3, weights);
    ASSERT_TRUE(eagle) << eagle.error().to_text();
    EXPECT_EQ(eagle->fusion->projection.columns, 192);
    EXPECT_EQ(std::get<GqaWeights>(eagle->layers[0].mixer).qkv.parts[0].columns, 128);  // embedding ++ feature
    EXPECT_EQ(eagle->lm_head->rows, 48);
    EXPECT_EQ(eagle->fusion->target_of_draft, [] {
        std::vector<int> even;  // 48 of 96: every second
        for (int i = 0; i < 48; ++i) even.push_back(2 * i);
        return even;
    }());
}

TEST(RandomWeights, Too_large_for_this_machine_is_an_answer) {
    Architecture huge = small_model(small_mla(), WeightFormat::plain(NumberFormat::bf16));
    huge.hidden = 1 << 20;
    huge.vocabulary = 1 << 24;  // 2^44 numbers of the embedding alone
    const auto weights = random_weights(huge, {}, 0, 1);
    ASSERT_FALSE(weights);
    EXPECT_EQ(weights.error().code, ErrorCode::too_large);
}

// ---- refusals

TEST(EngineLimits, What_no_kernel_runs_is_refused_by_name) {
    const WeightFormat bf16 = WeightFormat::plain(NumberFormat::bf16);
    struct Row {
        const char* says;
        Architecture architecture;
    };
    std::vector<Row> rows;
    const auto row = [&](const char* says, auto change) {
        rows.push_back({says, small_model(small_gqa(), bf16)});
        change(rows.back().architecture);
    };
    const auto gqa = [](Architecture& a) -> model::GqaShape& { return std::get<model::GqaShape>(a.layers[1].mixer); };
    const auto moe = [](Architecture& a) -> model::MoeFeedForward& { return std::get<model::MoeFeedForward>(a.layers[1].feed_forward); };
    row("indexer", [](Architecture& a) {
        auto mla = small_mla();
        mla.indexer = model::SparseIndexer{2, 16, 8};
        a.layers[0].mixer = mla;
    });
    row("sinks", [&](Architecture& a) { gqa(a).sinks = true; });
    row("sliding-window", [&](Architecture& a) { gqa(a).sliding_window = 16; });
    row("norms over all heads", [&](Architecture& a) { gqa(a).qk_norm = model::QkNorm::per_layer; });
    row("biases of experts", [&](Architecture& a) { moe(a).biases = true; });
    row("limited to groups", [&](Architecture& a) {
        moe(a).scoring = model::RouterScoring::softmax;
        moe(a).correction_bias = false;
        moe(a).groups = moe(a).top_groups = 2;
    });
    row("nvfp4", [](Architecture& a) { a.layers[1].formats.routed_experts = {NumberFormat::nvfp4, 1, 16, 8, 0}; });
    row("mxfp4", [](Architecture& a) { a.layers[1].formats.routed_experts = {NumberFormat::mxfp4, 1, 32, 8, 0}; });
    row("int8", [](Architecture& a) { a.layers[0].formats.mixer = {NumberFormat::int8, 1, 32, 16, 0}; });
    row("zero points", [](Architecture& a) { a.layers[0].formats.mixer = {NumberFormat::int4, 1, 32, 16, 4}; });
    row("groups that are no multiple of 8", [](Architecture& a) { a.layers[0].formats.mixer = WeightFormat::plain(NumberFormat::int4); });
    for (const Row& r : rows) {
        SCOPED_TRACE(r.says);
        const auto weights = random_weights(r.architecture, {}, 0, 1);
        ASSERT_FALSE(weights);
        EXPECT_EQ(weights.error().code, ErrorCode::unsupported);
        EXPECT_THAT(weights.error().message, HasSubstr(r.says));
    }
    EXPECT_TRUE(random_weights(small_model(small_gqa(), bf16), {}, 0, 1));
}

TEST(EngineLimits, Layouts_that_do_not_fit_and_ranks_that_are_not_there_are_refused) {
    const Architecture architecture = small_model(small_mla(), WeightFormat::plain(NumberFormat::bf16));
    Layout layout;
    layout.pipeline = 2;
    EXPECT_EQ(random_weights(architecture, layout, 0, 1).error().code, ErrorCode::unsupported);
    layout.pipeline = 1;
    layout.tensor = 8;  // of 4 heads
    EXPECT_FALSE(random_weights(architecture, layout, 0, 1));
    layout.tensor = 2;
    EXPECT_FALSE(random_weights(architecture, layout, 2, 1));
    EXPECT_FALSE(random_weights(architecture, layout, -1, 1));
}

}  // namespace
}  // namespace draftboard::backend::cpu
