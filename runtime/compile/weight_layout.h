// SPDX-License-Identifier: Apache-2.0
// Where named tensors lie in device memory, known before a byte of them is read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../base/export.h"
#include "../graph/dtype.h"
#include "../graph/host_tensor.h"
#include "capabilities.h"
#include "load_options.h"

namespace vkf {

class Graph;

/// One tensor of a layout.
struct StoredTensor {
    std::string name;
    DType dtype = DType::f32;  ///< type of the numbers that graphs see
    std::vector<std::int64_t> shape;
    std::uint32_t block = 0;
    std::uint64_t offset = 0;  ///< bytes from the start of the block
    std::uint64_t bytes = 0;
    /// how the numbers lie in memory, where graphs see F32
    WeightType type = WeightType::f32;

    bool operator==(const StoredTensor&) const = default;
};

/// Names, types, shapes and places of tensors that lie behind each other in few blocks of memory.
class VKF_API WeightLayout {
public:
    /// Assigns blocks and offsets in the order given; the caller sets each tensor's name, types,
    /// shape and bytes. Offsets are multiples of `alignment`. No block has more than `max_block`
    /// bytes, except one that holds a single larger tensor. `what` names the kind of tensor in
    /// errors. Throws Error naming a tensor that comes twice.
    WeightLayout(std::vector<StoredTensor> tensors, std::uint64_t alignment, std::uint64_t max_block,
                 const char* what = "weight");
    /// A layout without tensors.
    static const WeightLayout& none();

    /// Null when there is no tensor of that name.
    const StoredTensor* find(std::string_view name) const;
    /// The tensors, sorted by name.
    const std::vector<StoredTensor>& tensors() const noexcept { return tensors_; }
    /// Bytes of each block.
    const std::vector<std::uint64_t>& blocks() const noexcept { return blocks_; }
    /// Bytes of all blocks.
    std::uint64_t bytes() const noexcept;

private:
    std::vector<StoredTensor> tensors_;
    std::vector<std::uint64_t> blocks_;
};

/// Says what a tensor becomes in device memory: name, types, shape and bytes, without its place. A
/// matrix is kept as `matrices`, or as it is given where that is empty. The tensor's data is not
/// read. Throws Error naming a tensor whose bytes cannot be counted, or a matrix that is packed as
/// another type.
VKF_API StoredTensor stored_as(const HostTensor& tensor, std::optional<WeightType> matrices);

/// Says where Device::load() will put these tensors, and as what. This is all that compiling needs
/// to know of weights. The tensors' data is not read and may still be missing. Throws Error as
/// stored_as() does, and naming a tensor that comes twice.
VKF_API WeightLayout make_weight_layout(std::span<const HostTensor> tensors, const Capabilities& device,
                                        const LoadOptions& options = {});
/// The layout that Device::load() with this graph gives.
VKF_API WeightLayout make_weight_layout(const Graph& graph, std::span<const HostTensor> tensors,
                                        const Capabilities& device, const LoadOptions& options = {});

}  // namespace vkf
