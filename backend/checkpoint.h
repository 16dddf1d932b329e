// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model folder as Hugging Face stores it: config.json, and model.safetensors or several files with
// model.safetensors.index.json. Gives tensors by name and the architecture that config.json describes. It does not know
// what the tensors mean (cpu/model_weights.h does).

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backend/eagle3_config.h"
#include "backend/numerics.h"
#include "backend/safetensors.h"
#include "model/architecture.h"

namespace draftboard::backend {

class Checkpoint {
   public:
    /// `path`: a folder. An index that names missing files, files that hold tensors twice or leave listed ones out,
    /// and names that leave the folder ("../x") are errors. Files are mapped, not copied: one that is cut short by
    /// another program while it is open ends this one with a bus error, as with every mapped file.
    [[nodiscard]] static model::Expected<Checkpoint> open(const std::string& path);

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] const std::string& config_text() const { return config_; }
    /// nullptr: not there.
    [[nodiscard]] const TensorView* find(std::string_view name) const;
    /// The same as an error that names the tensor and the nearest names there are.
    [[nodiscard]] model::Expected<const TensorView*> require(std::string_view name) const;
    [[nodiscard]] std::vector<std::string> names() const;
    [[nodiscard]] std::uint64_t bytes() const;

    /// From config.json (model/import/hf_config.h). An EAGLE-3 head's folder describes no model of its own: see eagle3().
    [[nodiscard]] model::Expected<model::Architecture> architecture() const;
    [[nodiscard]] model::Expected<Numerics> numerics() const;
    /// The head that config.json describes (architectures: LlamaForCausalLMEagle3, ...). Its weight format and whether it
    /// has an embedding of its own come from the tensors.
    using Eagle3 = Eagle3Description;
    [[nodiscard]] bool is_eagle3_head() const;
    [[nodiscard]] model::Expected<Eagle3> eagle3(const model::Architecture& target) const;
    /// byte_tokenizer.json is there: tokens 0..255 are bytes.
    [[nodiscard]] bool has_byte_tokenizer() const { return byte_tokenizer_; }

   private:
    [[nodiscard]] std::string config_path() const;
    model::Expected<void> add_file(const std::string& file);

    std::string path_;
    std::string config_;
    bool byte_tokenizer_ = false;
    std::vector<SafetensorsFile> files_;
    std::map<std::string, const TensorView*, std::less<>> tensors_;
};

}  // namespace draftboard::backend
