// SPDX-License-Identifier: Apache-2.0
// A model's parameters out of a checkpoint: found by name, checked, and converted where the graph
// wants them otherwise than the file has them.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/files/checkpoint.h"
#include "runtime/compile/load_options.h"
#include "runtime/compile/weight_layout.h"
#include "runtime/graph/shard.h"

namespace vkf {

/// The rules that a family knows about its files. Names are those of the graph.
struct ParameterRules {
    using Named = std::function<bool(const std::string& name)>;
    std::string model_type = {};       ///< name of the family, for messages
    std::string optional_prefix = {};  ///< files of the bare model leave it out
    /// Tensors that files hold but the model does not need, by the file's names.
    Named ignored = {};
    /// Copies that files may hold, each with the tensor that it must be equal to.
    std::map<std::string, std::string> copies = {};
    Named stored_transposed = {};  ///< matrices that files keep as (in, out)
    Named stored_minus_one = {};   ///< weights that files keep less 1
    /// Tables that are never packed, because their rows are looked up and not multiplied.
    Named looked_up = {};
    /// Gives the name under which older files have the parameter; empty where there is none.
    std::function<std::string(const std::string& name)> older_name = {};
};

/// One parameter: where it is, and what it becomes.
struct Parameter {
    HostTensor source = {};  ///< the tensor in the files
    StoredTensor kept = {};  ///< under the graph's name
    bool transpose = false, add_one = false;
    /// the part of it that a rank has; by the graph's dimensions
    std::optional<Shard> shard = {};
};

/// Gives the layout of the parameters in device memory, in the order given.
WeightLayout layout_of(const std::vector<Parameter>& parameters, const Capabilities& device);

/// Finds every weight of the graph, in weight_order(). Matrices that are multiplied become what
/// `choose` or `matrices` of the options say, or stay of the file's type; `choose` gets the graph's
/// names, and no data. Matrices that are saved packed are (out, in) for every family, and stay what
/// they are. Throws Error naming a tensor that is missing, that has another shape or type, that is
/// packed as another type than asked for, or that is in the files and neither of the graph, nor
/// ignored, nor a copy that is equal.
std::vector<Parameter> find_parameters(const Graph& graph, const Checkpoint& checkpoint, const ParameterRules& rules,
                                       const LoadOptions& load);

/// The parameters that were found in a checkpoint, without their bytes, so that a plan may keep
/// them.
class FoundParameters {
public:
    FoundParameters() = default;
    FoundParameters(std::vector<Parameter> parameters, const Checkpoint& checkpoint, const ParameterRules& rules);

    /// Gives the parameters with their bytes; nothing where this checkpoint has other tensors than
    /// the one in which they were found, or a copy in it is none.
    std::optional<std::vector<Parameter>> in(const Checkpoint& checkpoint) const;

private:
    std::vector<Parameter> parameters_;
    std::vector<std::string> names_;             ///< names of all tensors in the files
    std::map<std::string, std::string> copies_;  ///< of those there are, as in ParameterRules
};

/// A parameter under the graph's name as it is uploaded: the source's bytes or, where it is
/// converted, `owned`, which must outlive the result.
HostTensor tensor_of(const Parameter& parameter, std::vector<float>& owned);

/// The numbers of a parameter in fp32, as the graph has them: tensor_of(), widened.
std::vector<float> numbers_of(const Parameter& parameter);
/// The other way: numbers as the graph has them become what the file would have.
void to_file(const Parameter& parameter, std::vector<float>& numbers);

/// Writes a copy of the checkpoint's folder with these parameters: what has a type is packed, the
/// rest stays numbers. Throws Error where the folder has a model already, or a file cannot be
/// written.
void save_parameters(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                     const std::vector<Parameter>& parameters, const LoadProgress& progress = {});

}  // namespace vkf
