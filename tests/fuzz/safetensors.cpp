// SPDX-License-Identifier: Apache-2.0
// libFuzzer entry: whatever the bytes, the reader accepts or throws Error, and every accepted
// tensor lies within them.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "models/files/safetensors.h"
#include "runtime/base/error.h"
#include "runtime/graph/packed.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
    try {
        const vkf::Safetensors file = vkf::Safetensors::parse(bytes, "fuzz");
        std::size_t total = 0;
        for (const vkf::HostTensor& tensor : file.tensors()) {
            if (file.find(tensor.name) != &tensor) std::abort();
            if (vkf::byte_size(tensor.dtype, tensor.shape) != tensor.data.size()) std::abort();
            std::uint8_t sum = 0;
            for (const std::byte value : tensor.data)
                sum = static_cast<std::uint8_t>(sum + std::to_integer<unsigned>(value));
            [[maybe_unused]] const volatile std::uint8_t touched = sum;
            total += tensor.data.size();
        }
        if (total > size) std::abort();
    } catch (const vkf::Error&) {
    }
    return 0;
}
