// SPDX-License-Identifier: Apache-2.0
// safetensors, and weights packed in them: what is accepted lies within the file, and can be laid
// out and read as numbers.
#include "models/files/safetensors.h"

#include "runtime/compile/weight_layout.h"
#include "runtime/device/device.h"
#include "runtime/graph/packed.h"
#include "tests/fuzz/target.h"

namespace vkf::fuzz {

namespace {

void read_tensors(Bytes bytes) {
    const Safetensors file = Safetensors::parse(bytes, "fuzz");
    std::size_t total = 0;
    for (const HostTensor& tensor : file.tensors()) {
        require(file.find(tensor.name) == &tensor, "a tensor is not found by its name");
        if (tensor.type == WeightType::f32) {
            require(byte_size(tensor.dtype, tensor.shape) == tensor.data.size(), "a tensor is not as large as it says");
        }
        std::uint8_t sum = 0;
        for (const std::byte value : tensor.data) {
            sum = static_cast<std::uint8_t>(sum + std::to_integer<unsigned>(value));
        }
        [[maybe_unused]] const volatile std::uint8_t touched = sum;
        total += tensor.data.size();
    }
    require(total <= bytes.size(), "the tensors are more than the file");
}

/// Most tensors say little about packing, so that these bytes are of a file that has it.
void read_packed(Bytes bytes) {
    const Safetensors file = Safetensors::parse(bytes, "fuzz");
    for (const std::optional<WeightType> type : {std::optional<WeightType>(), std::optional(WeightType::int8)}) {
        try {
            const WeightLayout layout = make_weight_layout(file.tensors(), Capabilities(), {.matrices = type});
            require(layout.tensors().size() == file.tensors().size(), "a tensor was lost");
        } catch (const Error&) {  // packed as another type
        }
    }
    for (const HostTensor& tensor : file.tensors()) {
        require(byte_size(tensor) == tensor.data.size(), "a tensor is not as large as it says");
        if (packable(tensor) && tensor.shape[0] > 0) {
            std::vector<std::uint32_t> row(
                packed_row_words(WeightType::int8, static_cast<std::uint64_t>(tensor.shape[1])));
            pack_rows(tensor, WeightType::int8, 0, row);
        }
    }
    device().load(file.tensors());
}

const Target kTensors("safetensors", read_tensors);
const Target kPacked("packed_weights", read_packed);

}  // namespace

}  // namespace vkf::fuzz
