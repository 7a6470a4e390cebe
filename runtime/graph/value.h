// SPDX-License-Identifier: Apache-2.0
// Tensors in a graph: the handle, what it is a window on, and named sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../base/export.h"
#include "dim.h"
#include "dtype.h"
#include "shard.h"

namespace vkf {

class Graph;

using ValueId = std::uint32_t;
using StorageId = std::uint32_t;
/// What a value lies in that is in no graph any more.
inline constexpr StorageId kNoStorage = ~StorageId{0};
using NodeId = std::uint32_t;

/// A tensor in a graph: a handle, cheap to copy, valid as long as its graph.
class VKF_API Value {
public:
    Value() = default;  // "no tensor": optional arguments of ops
    Value(Graph& graph, ValueId id) : graph_(&graph), id_(id) {}

    explicit operator bool() const noexcept { return graph_ != nullptr; }
    Graph& graph() const;
    ValueId id() const noexcept { return id_; }
    const Shape& shape() const;
    std::size_t rank() const { return shape().size(); }
    /// Size of a dimension; negative counts from the innermost (-1).
    const Dim& size(int dim) const;
    DType dtype() const;
    /// "name (2, tokens, 64) F32", for messages.
    std::string str() const;

private:
    Graph* graph_ = nullptr;
    ValueId id_ = 0;
};

/// The owner of a tensor's bytes, and how long they live.
enum class StorageKind : std::uint8_t {
    input,         ///< bound or uploaded before a run; contiguous at its current sizes
    weight,        ///< in a Weights object; immutable
    state,         ///< in a State object; outlives a run; laid out at its maximum sizes
    constant,      ///< computed on the host (tables)
    intermediate,  ///< in the program's scratch arena
    output,        ///< an intermediate that was given a name; bound or downloaded after a run
};

/// The numbers of a constant. They may be made anew each time, so that what is refused before they
/// are needed costs nothing.
class ConstantData {
public:
    ConstantData() = default;
    virtual ~ConstantData() = default;
    ConstantData(const ConstantData&) = delete;
    ConstantData& operator=(const ConstantData&) = delete;

    virtual std::vector<std::byte> bytes() const = 0;
    /// True if both give the same numbers, as far as that can be told without making them.
    virtual bool same_as(const ConstantData& other) const = 0;
};

/// An input or output that is an image: texelFetch from any format that gives floats, or a storage
/// image.
enum class ImageAccess : std::uint8_t { none, sampled, storage };

struct StorageInfo {
    StorageKind kind = StorageKind::intermediate;
    std::string name;
    DType dtype = DType::f32;
    Shape shape;                                    ///< shape as stored, row-major
    std::shared_ptr<const ConstantData> data = {};  ///< constants only
    ImageAccess image = ImageAccess::none;          ///< (height, width, channels)
    /// The type that a weight in a plan is packed as. Where it is packed, the shape is (rows, words
    /// of a row), and `columns` the numbers of a row.
    WeightType type = WeightType::f32;
    /// The weights that this one joins, in a plan. They lie behind each other in memory, and their
    /// rows together are its rows; it has no bytes of its own.
    std::vector<StorageId> parts = {};
    /// The part of a whole tensor that a weight is, where ranks share it.
    std::optional<Shard> shard = {};
    std::int64_t columns = 0;
};

/// A value: a strided window on a storage.
struct ValueInfo {
    StorageId storage = 0;
    Shape shape;
    Shape strides;  ///< strides in elements; 0 broadcasts
    Dim offset;     ///< offset in elements
    /// A window on the words of a packed weight, as Lowering::words() gives it. On such a storage
    /// nothing else can be bound.
    bool words = false;

    /// True for a dense tensor from its storage's first element on, of rows of a fixed width.
    VKF_API bool is_rows() const;
    /// Moves this view, which is on such a tensor with rows of `width` elements, into wider rows of
    /// `pitch` elements: its rows become their columns from `first` on. Nothing where the view runs
    /// from one row into the next.
    VKF_API std::optional<ValueInfo> in_columns(std::int64_t width, std::int64_t pitch, std::int64_t first) const;
};

/// A named size: any value from 0 to `max`.
struct SymbolInfo {
    std::string name;
    std::int64_t max = 0;
};

}  // namespace vkf
