// SPDX-License-Identifier: Apache-2.0
#pragma once
// Role of an operation of the plan -> the member function of a rank that computes it. Ranks of every device have the same member
// functions, so a plan compiles to a program on each, and an operation that none computes is an error before anything
// runs: what is priced is what is executed.

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "backend/model_shape.h"
#include "model/error.h"
#include "model/plan.h"

namespace draftboard::backend {

template <class Rank>
struct Instruction {
    void (Rank::*action)() = nullptr;
    int operation = 0;  ///< index in the plan
    int layer = -1;
};
template <class Rank>
using Program = std::vector<Instruction<Rank>>;

/// A friend of the ranks, whose operations are nobody else's.
template <class Rank>
struct RoleTable {
    using Action = void (Rank::*)();

    static Action find(std::string_view role, const model::TokenMixer* mixer) {
        // Roles that MLA and GQA share differ in what they do.
        const bool latent = mixer != nullptr && std::holds_alternative<model::MlaShape>(*mixer);
        if (role == "attention.rope_cache") return latent ? &Rank::mla_rope_cache : &Rank::gqa_rope_cache;
        if (role == "attention.o_proj") return latent ? &Rank::mla_o_proj : &Rank::gqa_o_proj;
        static constexpr std::pair<std::string_view, Action> kActions[] = {
            {"embedding", &Rank::embedding},
            {"embedding.all_reduce", &Rank::embedding_all_reduce},
            {"eagle3.fc", &Rank::eagle3_fc},
            {"mtp.norm", &Rank::mtp_norm},
            {"mtp.projection", &Rank::mtp_projection},
            {"mixer.norm", &Rank::mixer_norm},
            {"attention.qkv_a_proj", &Rank::qkv_a_proj},
            {"attention.a_norm", &Rank::a_norm},
            {"attention.q_b_proj", &Rank::q_b_proj},
            {"attention.q_proj", &Rank::q_proj},
            {"attention.kv_a_proj", &Rank::kv_a_proj},
            {"attention.absorb_q", &Rank::absorb_q},
            {"attention.mla", &Rank::mla},
            {"attention.absorb_v", &Rank::absorb_v},
            {"attention.qkv_proj", &Rank::qkv_proj},
            {"attention.qk_norm", &Rank::qk_norm},
            {"attention.gqa", &Rank::gqa},
            {"attention.output_gate", &Rank::output_gate},
            {"delta_net.in_proj", &Rank::delta_net_in_proj},
            {"delta_net.core", &Rank::delta_net_core},
            {"delta_net.gated_norm", &Rank::delta_net_gated_norm},
            {"delta_net.out_proj", &Rank::delta_net_out_proj},
            {"delta_net.rollback", &Rank::nothing},
            {"mixer.all_reduce", &Rank::block_all_reduce},
            {"feed_forward.norm", &Rank::feed_forward_norm},
            {"mlp.gate_up_proj", &Rank::gate_up_proj},
            {"mlp.activation", &Rank::activation},
            {"mlp.down_proj", &Rank::down_proj},
            {"moe.router_proj", &Rank::router_proj},
            {"moe.top_k", &Rank::top_k},
            {"moe.experts", &Rank::experts},
            {"moe.shared_gate_up_proj", &Rank::shared_gate_up_proj},
            {"moe.shared_activation", &Rank::shared_activation},
            {"moe.shared_down_proj", &Rank::shared_down_proj},
            {"moe.combine", &Rank::combine},
            {"feed_forward.all_reduce", &Rank::block_all_reduce},
            {"final.norm", &Rank::final_norm},
            {"lm_head", &Rank::lm_head},
            {"logits.all_gather", &Rank::logits_all_gather},
            {"sample", &Rank::hand_over},
            {"accept", &Rank::hand_over},
            {"draft.top_k", &Rank::hand_over},
        };
        const auto* found = std::ranges::find(kActions, role, &std::pair<std::string_view, Action>::first);
        return found == std::end(kActions) ? nullptr : found->second;
    }

    /// `device`: "CPU", for the error.
    static model::Expected<Program<Rank>> compile(const model::Plan& plan, const ModelShape& shape, std::string_view device) {
        Program<Rank> program;
        program.reserve(plan.operations.size());
        for (std::size_t i = 0; i < plan.operations.size(); ++i) {
            const model::Operation& operation = plan.operations[i];
            const model::TokenMixer* mixer =
                operation.layer < 0 ? nullptr : &shape.architecture.layers[static_cast<std::size_t>(operation.layer)].mixer;
            const Action action = find(operation.role, mixer);
            if (action == nullptr) {
                return model::fail(model::ErrorCode::unsupported,
                                   fmt::format("the {} engine has no operation '{}'", device, operation.role),
                                   operation.key(plan.pass),
                                   "choose a layout without pipeline stages, DP attention, decode context or all-to-all");
            }
            program.push_back({action, static_cast<int>(i), operation.layer});
        }
        return program;
    }
};

/// One shape of pass: its plan and what executes it.
template <class Rank>
struct CompiledPass {
    model::Plan plan;
    Program<Rank> program;
};

/// The passes of an engine, compiled when their shape first runs.
template <class Rank>
class CompiledPasses {
   public:
    /// `plan`: makes the plan of that shape. The result stays where it is.
    template <class MakePlan>
    [[nodiscard]] model::Expected<const CompiledPass<Rank>*> find(model::Pass pass, int sequences, int tokens,
                                                                  const ModelShape& shape, const MakePlan& plan) {
        const std::tuple<model::Pass, int, int> key{pass, sequences, tokens};
        if (const auto found = passes_.find(key); found != passes_.end()) return &found->second;
        auto planned = plan(pass, sequences, tokens);
        if (!planned) return tl::unexpected(planned.error());
        auto program = Rank::compile(*planned, shape);
        if (!program) return tl::unexpected(program.error());
        return &passes_.emplace(key, CompiledPass<Rank>{std::move(*planned), std::move(*program)}).first->second;
    }

   private:
    std::map<std::tuple<model::Pass, int, int>, CompiledPass<Rank>> passes_;
};

}  // namespace draftboard::backend
