// SPDX-License-Identifier: Apache-2.0
// From nodes to dispatches. Lowering is pure: it describes dispatches; pipelines, memory and
// command buffers come later, so an op is testable without a device.
// For op authors: <vkformer/advanced/lowering.h>. It may change between versions.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../graph/graph.h"
#include "../graph/node.h"
#include "../graph/op.h"
#include "capabilities.h"
#include "dispatch.h"

namespace vkf {

/// A Lowering is handed to an op when a program is compiled. The op looks at its node, asks what
/// the device can do, and emits dispatches.
class VKF_API Lowering {
public:
    Lowering(const Capabilities& device, std::vector<ValueInfo>& values, std::vector<StorageInfo>& storages,
             std::span<const SymbolInfo> symbols, std::vector<Dispatch>& out, Arithmetic arithmetic = Arithmetic::f32)
        : device_(device),
          values_(values),
          storages_(storages),
          symbols_(symbols),
          out_(out),
          arithmetic_(arithmetic) {}

    void begin(NodeId id, const NodeInfo& node) {
        id_ = id;
        node_ = &node;
    }

    const Capabilities& device() const noexcept { return device_; }
    /// The arithmetic that the program was compiled for.
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
    /// The type in which the weight behind a value lies in memory; f32 for everything that is no
    /// weight.
    WeightType weight_type(ValueId id) const { return storages_[values_[id].storage].type; }
    /// The 32-bit words of a value that is whole rows of a packed weight: (rows, words of a row).
    /// Throws for any other view of such a weight.
    ValueId words(ValueId id);
    /// Joins whole weights to one weight that has the rows of them all. They are matrices with rows
    /// of one length, or vectors, and lie behind each other in memory
    /// (RewriteSite::why_not_adjacent).
    ValueId join(std::span<const ValueId> parts);
    /// Largest value a size can have, each symbol between 0 and its maximum.
    std::int64_t max_of(const Dim& dim) const;
    /// Bytes a binding of this value must cover.
    std::uint64_t bytes_of(ValueId id) const;
    /// A window on a value: for tensors larger than one descriptor may cover.
    ValueId slice(ValueId id, std::size_t dim, const Dim& start, const Dim& length);
    /// Any window on a value's storage.
    ValueId window(ValueId id, const Shape& shape, const Shape& strides, const Dim& offset);
    /// The value cut along `dim` into windows each of which a descriptor can cover, all but the
    /// last of a multiple of `step` elements; one window when it fits whole. Throws naming the op
    /// and the tensor when even so many elements of `dim` do not fit.
    std::vector<ValueId> chunks(ValueId id, std::size_t dim, std::int64_t step = 1);
    /// Throws Error naming the op and the tensor where no descriptor covers the value.
    void check_range(ValueId id) const;
    /// Throws Error naming the op where `what` takes more rounds of a shader's loops than a
    /// processor's driver may allow.
    void check_rounds(std::int64_t rounds, const std::string& what) const;
    /// A fresh tensor in the scratch arena.
    ValueId scratch(DType dtype, const Shape& shape);
    /// Returns the tensor that `make` returns; `make` also emits the dispatches that fill it.
    /// `from` is the view it is made of, and `how` names the way. Where an earlier node made the
    /// same of the same view, returns that tensor instead, except for views of states, which change
    /// from node to node.
    ValueId once(std::string_view how, ValueId from, const std::function<ValueId()>& make);

    /// Emits a dispatch; bindings in the order of the shader's binding numbers.
    Dispatch& dispatch(std::vector<Kernel> kernels, std::initializer_list<Binding> bindings, Prepare prepare,
                       std::vector<std::uint32_t> words = {});

    /// Emits what all ranks do together with dense tensors of 32 bits, of which both are scratch or
    /// a node's result that is no output of the graph. Where the output has the input's size, it
    /// may take over its memory.
    Dispatch& collective(Collective what, ValueId input, ValueId output, std::vector<std::uint32_t> words = {});
    /// True where a collective can read or write the value where it lies.
    bool is_exchangeable(ValueId id) const;

private:
    [[noreturn]] void refuse_packed(ValueId id) const;

    const Capabilities& device_;
    std::vector<ValueInfo>& values_;
    std::vector<StorageInfo>& storages_;
    std::span<const SymbolInfo> symbols_;
    std::vector<Dispatch>& out_;
    Arithmetic arithmetic_;
    NodeId id_ = 0;
    const NodeInfo* node_ = nullptr;
    struct Made {
        std::string_view how;
        ValueId from, tensor;
    };
    std::vector<Made> made_;
};

}  // namespace vkf
