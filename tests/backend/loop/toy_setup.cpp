// SPDX-License-Identifier: Apache-2.0
#include "tests/backend/loop/toy_setup.h"

#include <gtest/gtest.h>

#include "backend/model_drafter.h"
#include "backend/ngram_drafter.h"

namespace draftboard::backend {

std::string to_text(ToyMethod method) {
    switch (method) {
        case ToyMethod::none: return "none";
        case ToyMethod::eagle3_chain: return "eagle3 chain";
        case ToyMethod::eagle3_tree: return "eagle3 tree";
        case ToyMethod::mtp_chain: return "mtp chain";
        case ToyMethod::mtp_tree: return "mtp tree";
        case ToyMethod::draft_chain: return "draft model chain";
        case ToyMethod::draft_tree: return "draft model tree";
        case ToyMethod::ngram: return "ngram, padded";
        case ToyMethod::ngram_plain_misses: return "ngram, plain misses";
    }
    return "?";
}

std::vector<ToyMethod> drafting_methods() {
    return {ToyMethod::eagle3_chain, ToyMethod::eagle3_tree, ToyMethod::mtp_chain, ToyMethod::mtp_tree,
            ToyMethod::draft_chain,  ToyMethod::draft_tree,  ToyMethod::ngram,     ToyMethod::ngram_plain_misses};
}

ToyPair make_pair_of(ToyMethod method, const ToySetup& setup) {
    ToyPair out;
    out.target =
        std::make_unique<ToyModel>(ToyOptions{setup.language, ToyKind::plain, setup.capacity, setup.max_length, {}});
    if (method == ToyMethod::none) return out;
    if (method == ToyMethod::ngram || method == ToyMethod::ngram_plain_misses) {
        auto made = NgramDrafter::create({setup.steps, 1, 4, method == ToyMethod::ngram});
        EXPECT_TRUE(made.has_value());
        out.drafter = std::make_unique<NgramDrafter>(*std::move(made));
        return out;
    }
    const bool eagle3 = method == ToyMethod::eagle3_chain || method == ToyMethod::eagle3_tree;
    const bool mtp = method == ToyMethod::mtp_chain || method == ToyMethod::mtp_tree;
    const bool tree = method == ToyMethod::eagle3_tree || method == ToyMethod::mtp_tree || method == ToyMethod::draft_tree;
    ToyOptions head{setup.language, ToyKind::plain, setup.capacity, setup.drafter_max_length, {}};
    head.language.noise = setup.drafter_noise;
    ModelDrafterOptions options{DrafterReads::nothing, setup.steps, tree ? setup.top_k : 1, setup.draft_tokens, {}};
    if (eagle3) {
        head.kind = ToyKind::reads_features;
        head.draft_tokens = setup.draft_vocabulary;
        options.reads = DrafterReads::features;
        options.target_of_draft = setup.draft_vocabulary;
    } else if (mtp) {
        head.kind = ToyKind::reads_hidden;
        options.reads = DrafterReads::hidden;
    }
    out.drafter_model = std::make_unique<ToyModel>(head);
    auto made = ModelDrafter::create(*out.drafter_model, setup.language.vocabulary, options);
    EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().to_text());
    out.drafter = std::make_unique<ModelDrafter>(*std::move(made));
    return out;
}

}  // namespace draftboard::backend
