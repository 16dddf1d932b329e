// SPDX-License-Identifier: Apache-2.0
#pragma once
// One scenario's document with fields changed, again and again, and the prediction of each: what sweeps, optimisation and plans
// ask with. References are read once, passes are shared through stores (sim/pass_store.h), constants through a library.
// A Variants belongs to one thread; its SharedConstants may be shared by all.

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "model/scenario.h"
#include "sim/prediction.h"

namespace draftboard::planning {

/// Constants that price, loaded once for each combination that a scenario may name, each with its store of passes.
class SharedConstants {
 public:
    explicit SharedConstants(std::string data_directory) : data_directory_(std::move(data_directory)) {}

    struct Entry {
        sim::CostConstants constants;
        std::shared_ptr<sim::PassStore> store;
    };
    /// Errors: a calibration that can't be read; they are not kept.
    [[nodiscard]] model::Expected<std::shared_ptr<const Entry>> of(const model::Scenario& scenario);

    /// What tells one set of constants from another.
    [[nodiscard]] static std::string key(const model::Scenario& scenario);
    [[nodiscard]] const std::string& data_directory() const { return data_directory_; }

 private:
    std::string data_directory_;
    std::mutex mutex_;
    std::map<std::string, std::shared_ptr<const Entry>> entries_;
};

/// A scenario's document as it was read, with where it came from.
struct BaseDocument {
    model::Json document;
    std::string source;     ///< name or path, for errors
    std::string directory;  ///< where its relative paths start
};
[[nodiscard]] model::Expected<BaseDocument> load_base(const std::string& name_or_path, const std::string& data_directory,
                                                      const model::Edits& edits);

/// A scalar acceptance length or rate belongs to the depth it was measured at: before depths vary it is replaced by the
/// probabilities of its positions, beyond which the last conditional rate goes on. True: it was. Left alone: vectors, histograms,
/// and a base that is no whole scenario.
[[nodiscard]] bool pin_acceptance(BaseDocument& base, const std::string& data_directory);

class Variants {
 public:
    Variants(std::shared_ptr<SharedConstants> shared, BaseDocument base);

    [[nodiscard]] const BaseDocument& base() const { return base_; }
    /// The base with `path=value` edits; without digest and unknown fields.
    [[nodiscard]] model::Expected<model::Scenario> scenario(const model::Edits& edits);
    [[nodiscard]] model::Expected<sim::Prediction> predict(const model::Scenario& scenario);
    [[nodiscard]] model::Expected<sim::Prediction> predict(const model::Edits& edits);
    /// What priced the last prediction.
    [[nodiscard]] model::Expected<std::shared_ptr<const SharedConstants::Entry>> constants(const model::Scenario& scenario) {
        return shared_->of(scenario);
    }

 private:
    std::shared_ptr<SharedConstants> shared_;
    BaseDocument base_;
    model::ReferenceCache references_;
    std::map<std::string, sim::Predictor> predictors_;
};

}  // namespace draftboard::planning
