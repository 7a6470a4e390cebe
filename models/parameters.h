// SPDX-License-Identifier: Apache-2.0
// A model's parameters out of a checkpoint: found by name, checked, converted where the graph wants them otherwise than the file has them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/checkpoint.h"
#include "runtime/device/device.h"

namespace vkf {

/// What a model knows about its files, by the names that its graph uses.
struct ParameterRules {
    using Named = std::function<bool(const std::string&)>;
    std::string model_type;
    std::string base;       ///< before names; some files leave it out
    Named needless = {};    ///< in files, but not of the numbers
    Named transposed = {};  ///< matrices that lie as (in, out) in the file
    Named less_one = {};    ///< 1 is to be added
    Named unpacked = {};    ///< matrices whose rows are added, not multiplied
};

/// One parameter: where it is, and what it becomes.
struct Parameter {
    std::string name;  ///< as the graph has it
    const HostTensor* source = nullptr;
    std::vector<std::int64_t> shape = {};
    WeightType type = WeightType::f32;
    bool transposed = false, less_one = false;

    std::uint64_t bytes() const;
};

/// Every weight of the graph; matrices as this type, or as in the file. Matrices that are saved packed are (out, in) for every architecture,
/// and stay what they are. Throws Error naming a tensor that is missing, has another shape or
/// type, is packed as another type than asked for, or that is in the files and neither of the graph nor needless.
std::vector<Parameter> find_parameters(const Graph& graph, const Checkpoint& checkpoint, const ParameterRules& rules,
                                       std::optional<WeightType> matrices);
Weights load_parameters(const Device& device, const std::vector<Parameter>& parameters,
                        const LoadProgress& progress = {}, PackOn pack_on = PackOn::by_device);

/// A parameter under the graph's name as it goes up: the source's bytes, or where it is converted `owned`, which must outlive it.
HostTensor tensor_of(const Parameter& parameter, std::vector<float>& owned);

/// Writes a folder that holds the checkpoint's with these parameters: what has a type is packed, the rest stays numbers. Throws Error
/// where the folder has a model already, or a file cannot be written.
void save_parameters(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                     const std::vector<Parameter>& parameters, const LoadProgress& progress = {});

}  // namespace vkf
