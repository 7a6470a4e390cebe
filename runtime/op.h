// SPDX-License-Identifier: Apache-2.0
// What an op is to the runtime: a name, and a function that lowers a node to dispatches. The runtime knows no op by name.
//
// Lowering is pure: it describes dispatches (kernels, bindings, and a function that encodes push constants and group
// counts for given sizes). Pipelines, memory and command buffers come later, so an op is testable without a device.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "capabilities.h"
#include "graph.h"
#include "spirv_code.h"

namespace vkf {

class Weights;

/// What matrix products, and in f16 fused attention, may compute with.
enum class Arithmetic : std::uint8_t {
    f32,  ///< fp32, whatever weights are kept as
    f16,  ///< operands may be rounded to f16, sums are fp32: docs/numerics.md
    int8,  ///< rows of activations may be rounded to int8 where weights are kept as int8, sums are exact: docs/numerics.md
};

/// One SPIR-V module: embedded in the library, or compiled at run time.
struct Shader {
    const char* name;
    SpirvCode code;
};

/// A module with its specialization constants: constant 0 is the local size, the others as the shader's header numbers them.
struct Kernel {
    const Shader* shader = nullptr;
    std::vector<std::uint32_t> constants;
    std::string why;  ///< for explain(): what decided for this variant
    /// Keeps a shader that was compiled at run time alive, for as long as a pipeline made of it can be found by its address.
    std::shared_ptr<const Shader> owner = {};
    /// What it binds, where its constants, which decide it, leave it less than the shader declares: the buffers behind are never touched.
    /// 0: all. Set by Lowering::dispatch.
    std::uint32_t bindings = 0;
    /// Size that its subgroups must have, all of them full (Capabilities::matrix_subgroup_size); 0: whatever the device takes.
    std::uint32_t subgroup_size = 0;

    bool operator==(const Kernel& other) const { return shader == other.shader && constants == other.constants; }
};

/// A value at its current sizes, as kernels address it: right-aligned to kMaxRank, leading sizes 1 and strides 0.
struct View {
    std::array<std::uint32_t, kMaxRank> size{};
    std::array<std::uint32_t, kMaxRank> stride{};  ///< in elements
    std::uint32_t offset = 0;                      ///< in elements, from the start of the bound range
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
    /// True when elements lie densely in row-major order (sizes of 1 do not matter).
    bool dense() const noexcept {
        std::uint64_t expected = 1;
        for (std::size_t i = kMaxRank; i-- > 0;) {
            if (size[i] != 1 && stride[i] != expected) {
                return false;
            }
            expected *= size[i];
        }
        return true;
    }
};

/// One dispatch being encoded. Everything here is noexcept and allocates nothing.
class Command {
public:
    static constexpr std::size_t kMaxPush = 128;

    /// The push constants. T starts with `uint first_group, group_count`, which the recorder fills in.
    template <class T>
    void push(const T& constants) noexcept {
        static_assert(sizeof(T) <= kMaxPush && std::is_trivially_copyable_v<T>);
        std::memcpy(push_.data(), &constants, sizeof(T));
        push_size_ = sizeof(T);
    }
    /// Work groups in all; folded and split by the recorder. None: nothing is dispatched.
    void groups(std::uint64_t count) noexcept { groups_ = count; }
    /// Which of the dispatch's kernels serves these sizes; 0 unless said.
    void kernel(std::uint32_t index) noexcept { kernel_ = index; }
    /// Arithmetic operations and bytes moved, for reports and for bounding the work of one submission.
    void cost(double flops, double bytes) noexcept {
        flops_ = flops;
        bytes_ = bytes;
    }

    std::uint64_t groups() const noexcept { return groups_; }
    std::uint32_t kernel() const noexcept { return kernel_; }
    double flops() const noexcept { return flops_; }
    double bytes() const noexcept { return bytes_; }
    std::span<std::byte> push_bytes() noexcept { return {push_.data(), push_size_}; }

private:
    alignas(16) std::array<std::byte, kMaxPush> push_{};
    std::uint32_t push_size_ = 0;
    std::uint32_t kernel_ = 0;
    std::uint64_t groups_ = 0;
    double flops_ = 0;
    double bytes_ = 0;
};

/// What an encode function reads: the views in binding order, the node's parameters, and words fixed at lowering.
struct Operands {
    std::span<const View> views;
    const void* node_params = nullptr;
    std::span<const std::uint32_t> words;

    const View& operator[](std::size_t binding) const noexcept { return views[binding]; }
    template <class T>
    const T& params() const noexcept {
        return *static_cast<const T*>(node_params);
    }
};

using Encode = void (*)(const Operands&, Command&) noexcept;

enum class Access : std::uint8_t { read, write, read_write };

struct Binding {
    ValueId value = 0;
    Access access = Access::read;
};

/// No dispatch binds, or looks at the sizes of, more values than this.
inline constexpr std::size_t kMaxOperands = 14;

/// One dispatch as lowered.
struct Dispatch {
    NodeId node = 0;
    std::vector<Kernel> kernels;  ///< chosen among when recorded, by sizes; all have the same bindings
    std::vector<Binding> bindings;
    Encode encode = nullptr;
    std::vector<std::uint32_t> words;
    int in_place_input = -1;  ///< binding whose storage the binding in_place_output may take over, -1: none
    int in_place_output = -1;
    /// Values whose sizes `encode` looks at, though the kernel does not bind them: their views follow those of the bindings.
    std::vector<ValueId> sizes_of;
};

/// Rounds that the loops of an invocation may have together on a processor: after 65,535 llvmpipe ends every loop, in silence. The rest is
/// for small loops that nobody counts.
constexpr std::int64_t kMostRounds = 64000;

/// Handed to an op when a program is compiled: looks at the node, asks what the device can do, emits dispatches.
class VKF_API Lowering {
public:
    Lowering(const Capabilities& device, std::vector<ValueInfo>& values, std::vector<StorageInfo>& storages,
             std::span<const SymbolInfo> symbols, std::vector<Dispatch>& out, Arithmetic arithmetic = Arithmetic::f32,
             const Weights* weights = nullptr)
        : device_(device),
          values_(values),
          storages_(storages),
          symbols_(symbols),
          out_(out),
          arithmetic_(arithmetic),
          weights_(weights) {}

    void begin(NodeId id, const NodeInfo& node) {
        id_ = id;
        node_ = &node;
    }

    const Capabilities& device() const noexcept { return device_; }
    /// What the program was compiled for.
    Arithmetic arithmetic() const noexcept { return arithmetic_; }
    const NodeInfo& node() const noexcept { return *node_; }
    template <class T>
    const T& params() const noexcept {
        return *static_cast<const T*>(node_->params.get());
    }
    ValueId input(std::size_t i) const { return node_->inputs[i]; }
    ValueId output(std::size_t i) const { return node_->outputs[i]; }
    std::size_t inputs() const noexcept { return node_->inputs.size(); }
    const ValueInfo& info(ValueId id) const { return values_[id]; }
    DType dtype(ValueId id) const { return storages_[values_[id].storage].dtype; }
    /// How the weight behind a value lies in memory; f32 for everything that is no weight.
    WeightType weight_type(ValueId id) const { return storages_[values_[id].storage].type; }
    /// The 32-bit words of rows of a packed weight, (rows, words of a row), of a value that is some of its rows, whole. Throws for
    /// any other view of it.
    ValueId words(ValueId id);
    struct Joined {
        ValueId value = 0;
        std::string apart;  ///< why there is none; empty: there is
    };
    /// Whole weights, matrices with rows of one length or vectors, as one that has the rows of them all: a window on memory that they lie
    /// behind each other in. Without Weights to ask they are taken to.
    Joined join(std::span<const ValueId> parts);
    /// Largest value a size can have, each symbol between 0 and its maximum.
    std::int64_t max_of(const Dim& dim) const;
    /// Bytes a binding of this value must cover.
    std::uint64_t bytes_of(ValueId id) const;
    /// A window on a value: for tensors larger than one descriptor may cover.
    ValueId slice(ValueId id, std::size_t dim, const Dim& start, const Dim& length);
    /// The value cut along `dim` into windows each of which a descriptor can cover; one window when it fits whole. Throws
    /// naming the op when even one element of `dim` does not fit.
    std::vector<ValueId> chunks(ValueId id, std::size_t dim);
    /// Throws Error naming the op where `what` takes more rounds of a shader's loops than a processor's driver may allow.
    void check_rounds(std::int64_t rounds, const std::string& what) const;
    /// A fresh tensor in the scratch arena.
    ValueId scratch(DType dtype, const Shape& shape);
    /// The tensor that `make` gives, and dispatches to fill, made of `from` in the way that `how` names. Where an earlier node made the same
    /// of the same view, it is that one; but for views of states, which change from node to node.
    ValueId once(std::string_view how, ValueId from, const std::function<ValueId()>& make);

    /// Emits a dispatch; bindings in the order of the shader's binding numbers.
    Dispatch& dispatch(std::vector<Kernel> kernels, std::initializer_list<Binding> bindings, Encode encode,
                       std::vector<std::uint32_t> words = {});

private:
    [[noreturn]] void refuse_packed(ValueId id) const;

    const Capabilities& device_;
    std::vector<ValueInfo>& values_;
    std::vector<StorageInfo>& storages_;
    std::span<const SymbolInfo> symbols_;
    std::vector<Dispatch>& out_;
    Arithmetic arithmetic_;
    const Weights* weights_;
    NodeId id_ = 0;
    const NodeInfo* node_ = nullptr;
    struct Made {
        std::string_view how;
        ValueId from, tensor;
    };
    std::vector<Made> made_;
};

struct OpType {
    const char* name;
    void (*lower)(Lowering&);
    /// For ops to which there are alternatives (Graph::prefer): empty when the device should run the node, else why not.
    std::string (*declined)(const Capabilities& device, const NodeInfo& node) = nullptr;
};

}  // namespace vkf
