// SPDX-License-Identifier: Apache-2.0
// One dispatch as an op describes it: kernels, bindings, and a function that prepares push
// constants and group counts for given sizes.
// For op authors: <vkformer/advanced/dispatch.h>. It may change between versions.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "../graph/graph.h"
#include "kernel.h"

namespace vkf {

/// A value at its current sizes, as kernels address it: right-aligned to kMaxRank, leading sizes 1
/// and strides 0.
struct View {
    std::array<std::uint32_t, kMaxRank> size{};
    std::array<std::uint32_t, kMaxRank> stride{};  ///< strides in elements
    /// offset in elements from the start of the bound range
    std::uint32_t offset = 0;
    std::uint32_t rank = 0;

    /// Size of a dimension counted from the innermost: dim(0) is the last.
    std::uint32_t dim(std::size_t from_innermost) const noexcept { return size[kMaxRank - 1 - from_innermost]; }
    std::uint32_t step(std::size_t from_innermost) const noexcept { return stride[kMaxRank - 1 - from_innermost]; }
    std::uint64_t elements() const noexcept {
        std::uint64_t n = 1;
        for (const std::uint32_t s : size) {
            n *= s;
        }
        return n;
    }
    /// Number of rows: elements over the innermost size; 0 when that is 0.
    std::uint64_t rows() const noexcept { return dim(0) == 0 ? 0 : elements() / dim(0); }
};

/// One dispatch being prepared. Everything here is noexcept and allocates nothing.
class Command {
public:
    static constexpr std::size_t kMaxPush = 128;

    /// The push constants. T starts with `uint first_group, group_count`, which the recorder fills
    /// in.
    template <class T>
    void push(const T& constants) noexcept {
        static_assert(sizeof(T) <= kMaxPush && std::is_trivially_copyable_v<T>);
        std::memcpy(push_.data(), &constants, sizeof(T));
        push_size_ = sizeof(T);
    }
    /// Sets the number of work groups in all, which the recorder folds and splits. 0: nothing is
    /// dispatched.
    void groups(std::uint64_t count) noexcept { groups_ = count; }
    /// Chooses which of the dispatch's kernels serves these sizes; 0 unless said.
    void kernel(std::uint32_t index) noexcept { kernel_ = index; }
    /// Arithmetic operations and bytes moved, for reports and for bounding the work of one
    /// submission.
    void cost(double flops, double bytes) noexcept {
        flops_ = flops;
        bytes_ = bytes;
    }

    std::uint64_t groups() const noexcept { return groups_; }
    std::uint32_t kernel() const noexcept { return kernel_; }
    double flops() const noexcept { return flops_; }
    double bytes() const noexcept { return bytes_; }
    std::span<std::byte> push_bytes() noexcept { return {push_.data(), push_size_}; }
    std::span<const std::byte> push_bytes() const noexcept { return {push_.data(), push_size_}; }

private:
    alignas(16) std::array<std::byte, kMaxPush> push_{};
    std::uint32_t push_size_ = 0;
    std::uint32_t kernel_ = 0;
    std::uint64_t groups_ = 0;
    double flops_ = 0;
    double bytes_ = 0;
};

/// The data that a prepare function reads: the views in binding order, the node's parameters, words
/// fixed at lowering, and what the graph's symbols stand for.
struct Operands {
    std::span<const View> views;
    const void* node_params = nullptr;
    std::span<const std::uint32_t> words;
    std::span<const std::int64_t> symbols = {};

    const View& operator[](std::size_t binding) const noexcept { return views[binding]; }
    template <class T>
    const T& params() const noexcept {
        return *static_cast<const T*>(node_params);
    }
    /// The value of a number that the node's parameters hold: a seed, a count. No such number may
    /// choose the kernel; sizes of views may.
    std::int64_t value(const Dim& number) const noexcept { return number.eval(symbols); }
};

using Prepare = void (*)(const Operands&, Command&) noexcept;

enum class Access : std::uint8_t { read, write, read_write };

struct Binding {
    ValueId value = 0;
    Access access = Access::read;
};

/// No dispatch binds, or looks at the sizes of, more values than this.
inline constexpr std::size_t kMaxOperands = 15;

/// What ranks do together: the host of each, in the place of a kernel.
enum class Collective : std::uint8_t {
    none,
    all_reduce,  ///< the output is the sum over the ranks
    all_gather,  ///< the output is what all have, one behind the other
    broadcast,   ///< the output is what one rank has as its input
};

constexpr const char* name_of(Collective collective) noexcept {
    switch (collective) {
        case Collective::none: return "none";
        case Collective::all_reduce: return "all_reduce";
        case Collective::all_gather: return "all_gather";
        case Collective::broadcast: return "broadcast";
    }
    return "?";
}

/// The push constants of a collective: where its operands begin in what is bound, in elements.
/// Command::groups() is the number of elements that this rank gives.
struct CollectivePush {
    std::uint32_t input_offset, output_offset;
};

/// One dispatch as lowered.
struct Dispatch {
    NodeId node = 0;
    /// Where this is not none, there are two bindings, the input and the output, and no kernel. For
    /// an all_gather `words` are the columns that each rank has, for a broadcast the rank whose
    /// input it is.
    Collective collective = Collective::none;
    /// one of these is chosen at recording, by the sizes; all have the same bindings
    std::vector<Kernel> kernels;
    std::vector<Binding> bindings;
    Prepare prepare = nullptr;
    std::vector<std::uint32_t> words;
    /// index of the binding whose storage the binding in_place_output may take over; -1: none
    int in_place_input = -1;
    int in_place_output = -1;
    /// Values whose sizes, or strides, `prepare` looks at, though the kernel does not bind them:
    /// their views follow those of the bindings. Their strides must not choose the kernel. With the
    /// bindings they are at most kMaxOperands.
    std::vector<ValueId> sizes_of;
};

}  // namespace vkf
