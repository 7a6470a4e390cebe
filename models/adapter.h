// SPDX-License-Identifier: Apache-2.0
// LoRA adapters in files, as PEFT has them: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "../layers/lora.h"
#include "../runtime/device/state.h"
#include "decoder_model.h"
#include "files/safetensors.h"

namespace vkf {

/// An adapter of a decoder, read and checked.
class VKF_API Adapter {
public:
    /// Maps the files. Throws Error naming the file, and the field or tensor, for what is damaged
    /// and for kinds of adapters that would give other numbers: DoRA, biases, whole modules.
    explicit Adapter(const std::filesystem::path& folder);

    /// What a graph needs to take in the adapter: the layers by their names, the largest rank, and
    /// an alpha equal to it, since write() scales B itself.
    const LoraOptions& options() const noexcept { return options_; }
    /// Writes A and B into the states of Lora, and zeros into those of layers that this adapter
    /// leaves alone. Throws Error naming a layer that has no states or other sizes, and a rank that
    /// does not fit, before anything is written. Where the device fails, or the file is cut short
    /// meanwhile, some layers are written and others are not.
    void write(State& state) const;
    /// The name of the folder.
    const std::string& name() const noexcept { return name_; }

private:
    friend class Decoder;
    friend void merge_adapter(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                              const DecoderModel& model, const Adapter& adapter);
    struct Layer {
        const HostTensor* a = nullptr;  ///< (rank, in)
        const HostTensor* b = nullptr;  ///< (out, rank)
        float scale = 1.0f;             ///< alpha over the rank, or over its root (rsLoRA)
    };
    void read_layers();
    /// The layers by the names that the states have for them: adapters of the bare model leave out
    /// what stands before. Throws as write() does before anything is written.
    std::map<std::string, const Layer*> layers_in(const State& state) const;
    /// Throws as write() does before anything is written.
    void check(const State& state) const { layers_in(state); }

    std::string name_;
    Safetensors file_;
    std::map<std::string, Layer> layers_;  ///< layers, by their names
    LoraOptions options_;
};

/// Takes an adapter out of the states of Lora: a model then computes what it did without.
VKF_API void clear_adapter(State& state);

/// Writes the adapter that the states of Lora are, as PEFT does. The folder is made; what is there
/// is replaced. `base` is what the configuration calls the model. Throws Error for a state that
/// has none, and naming the file that cannot be written.
VKF_API void save_adapter(const std::filesystem::path& folder, const State& state, const LoraOptions& options,
                          const std::string& base);

/// Writes a folder with the checkpoint's model and the adapter in its matrices: W + scale B A, in
/// the types of the files. Throws Error where the folder has a model already, and naming a layer
/// that the model has not, that has other sizes, is packed or is tied to the embeddings, a number
/// that is not finite, or the checkpoint's config.json where it is gone.
VKF_API void merge_adapter(const std::filesystem::path& folder, const Checkpoint& checkpoint, const DecoderModel& model,
                           const Adapter& adapter);

}  // namespace vkf
