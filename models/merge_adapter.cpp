// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/adapter.h"
#include "models/decoder_parameters.h"
#include "models/files/model_folder.h"
#include "runtime/base/paths.h"
#include "runtime/base/text.h"
#include "runtime/graph/packed.h"
#include "runtime/graph/sixteen.h"

namespace vkf {

namespace {

namespace fs = std::filesystem;

/// Adds scale B A to w (out, in), or to its transpose where `turned`, summed in double precision.
/// a (rank, in), b (out, rank).
void add_product(const HostTensor& lora_a, const HostTensor& lora_b, float scale, bool turned, std::span<float> w) {
    const std::vector<float> a = widened_numbers(lora_a), b = widened_numbers(lora_b);
    const auto in = static_cast<std::size_t>(lora_a.shape[1]), out = static_cast<std::size_t>(lora_b.shape[0]);
    const auto rank = static_cast<std::size_t>(lora_a.shape[0]);
    std::vector<double> sums(in);
    for (std::size_t row = 0; row < out; ++row) {
        std::fill(sums.begin(), sums.end(), 0.0);
        for (std::size_t r = 0; r < rank; ++r) {
            const double factor = b[row * rank + r];
            for (std::size_t column = 0; column < in; ++column) {
                sums[column] += factor * a[r * in + column];
            }
        }
        for (std::size_t column = 0; column < in; ++column) {
            w[turned ? column * out + row : row * in + column] += static_cast<float>(scale * sums[column]);
        }
    }
}

/// Throws naming the matrix and the first of its new numbers that its type cannot hold.
void require_finite(const HostTensor& tensor, const std::vector<float>& numbers) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const float x = numbers[i];
        const float kept = tensor.dtype == DType::f32 ? x : widened(tensor.dtype, narrowed(tensor.dtype, x));
        if (!std::isfinite(kept)) {
            throw Error("number " + std::to_string(i) + " would be " + std::to_string(x) + " with the adapter, as " +
                            std::string(name_of(tensor.dtype)) + " not finite",
                        "tensor " + tensor.name);
        }
    }
}

/// The graph's name of a layer: adapters of the bare model leave the prefix out.
std::string graph_name(const std::string& layer, const std::string& prefix) {
    return layer.starts_with(prefix) || layer == "lm_head" ? layer : prefix + layer;
}

}  // namespace

void merge_adapter(const fs::path& folder, const Checkpoint& checkpoint, const DecoderModel& model,
                   const Adapter& adapter) {
    const ParameterRules rules = decoder_rules(model);
    const auto fail = [&](const std::string& layer, const std::string& what) {
        throw Error("layer " + layer + " of adapter " + adapter.name() + " " + what, utf8_name(checkpoint.folder()));
    };
    // layers by the names of their matrices in the files, and whether these are turned there
    std::map<std::string, std::pair<const Adapter::Layer*, bool>> merged;
    for (const auto& [name, layer] : adapter.layers_) {
        const std::string whole = graph_name(name, rules.optional_prefix) + ".weight";
        if (const auto copy = rules.copies.find(whole); copy != rules.copies.end()) {
            fail(name, "cannot be merged: the matrix is tied to " + copy->second);
        }
        const bool bare = checkpoint.find(whole) == nullptr && whole.starts_with(rules.optional_prefix);
        const std::string in_file = bare ? whole.substr(rules.optional_prefix.size()) : whole;
        const HostTensor* matrix = checkpoint.find(in_file);
        const bool turned = rules.stored_transposed && rules.stored_transposed(whole);
        const std::vector<std::int64_t> shape = turned ? std::vector{layer.a->shape[1], layer.b->shape[0]}
                                                       : std::vector{layer.b->shape[0], layer.a->shape[1]};
        if (matrix == nullptr || matrix->shape != shape || matrix->type != WeightType::f32) {
            fail(name, "is " + shape_text(shape) + ", and " +
                           (matrix == nullptr        ? "the model has none"
                            : matrix->shape != shape ? "the model's is " + shape_text(matrix->shape)
                                                     : "the model's is packed"));
        }
        if (!merged.emplace(in_file, std::pair{&layer, turned}).second) {
            fail(name, "is there twice, with " + rules.optional_prefix + " before it and without");
        }
    }
    check_config_is_there(checkpoint.folder());
    make_model_folder(folder);
    std::vector<HostTensor> tensors;
    for (const std::string& name : checkpoint.names()) {
        tensors.push_back(*checkpoint.find(name));
    }
    std::vector<std::byte> bytes;
    const auto next = [&](std::size_t i) {
        const auto found = merged.find(tensors[i].name);
        if (found == merged.end()) {
            return tensors[i].data;
        }
        const auto& [layer, turned] = found->second;
        std::vector<float> w = widened_numbers(tensors[i]);
        add_product(*layer->a, *layer->b, layer->scale, turned, w);
        require_finite(tensors[i], w);
        bytes.resize(tensors[i].data.size());
        if (tensors[i].dtype == DType::f32) {
            std::memcpy(bytes.data(), w.data(), bytes.size());
        } else {
            narrow(tensors[i].dtype, w, bytes.data());
        }
        return std::span<const std::byte>(bytes);
    };
    write_model_folder(folder, checkpoint.folder(), tensors, next);
}

}  // namespace vkf
