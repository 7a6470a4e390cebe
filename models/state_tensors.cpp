// SPDX-License-Identifier: Apache-2.0
#include "models/state_tensors.h"

#include <vector>

#include "models/files/safetensors_writer.h"
#include "runtime/base/text.h"
#include "runtime/device/corner.h"
#include "runtime/device/insides.h"

namespace vkf {

void write_states(const std::filesystem::path& path, const State& state, std::span<const HostTensor> corners,
                  std::span<const HostTensor> beside, const std::map<std::string, std::string>& metadata) {
    std::vector<HostTensor> tensors(corners.begin(), corners.end());
    tensors.insert(tensors.end(), beside.begin(), beside.end());
    std::vector<std::byte> bytes;
    const auto next = [&](std::size_t i) {
        if (i >= corners.size()) {
            return tensors[i].data;
        }
        bytes = read_corner(*Insides::store(state), *state.find(tensors[i].name), tensors[i].shape);
        return std::span<const std::byte>(bytes);
    };
    write_safetensors(path, tensors, next, metadata);
}

std::string saved_text(const HostTensor& saved) {
    return shape_text(saved.shape) + " " +
           std::string(saved.type == WeightType::f32 ? name_of(saved.dtype) : name_of(saved.type));
}

}  // namespace vkf
