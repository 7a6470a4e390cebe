// SPDX-License-Identifier: Apache-2.0
// The description of a computation: values and nodes, no Vulkan. Built once, compiled for as many
// devices as wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../base/error.h"
#include "../base/export.h"
#include "value.h"

namespace vkf {

struct Constraint;
struct ContentCheck;
struct NodeInfo;
struct NodeRange;
struct OpType;
struct OutputSpec;

/// A graph cannot be moved, because values point at it. It belongs to one thread.
class VKF_API Graph {
public:
    Graph();
    ~Graph();
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    /// A size that can be set before each run, from 0 to `max`, which is at least 1 and at most
    /// 2^32 - 1. The same name gives the same size, and must come with the same maximum. A graph
    /// has at most 4096 such sizes.
    Dim symbol(const std::string& name, std::int64_t max);

    /// A tensor that the caller gives before each run: f32, f16, bf16 or i32, like a state. A graph
    /// computes in f32: to(x, DType::f32) reads f16 and bf16. In memory these take 2 bytes an
    /// element, and the whole tensor a multiple of 4 bytes. No tensor has more than 2^32 - 1
    /// elements.
    Value input(const std::string& name, Shape shape, DType dtype = DType::f32);
    /// A trained parameter, found by name in the Weights the graph is compiled with. The same name
    /// gives the same value. Its type is f32 or i32; Device::load() decides how memory keeps the
    /// numbers.
    Value weight(const std::string& name, Shape shape, DType dtype = DType::f32);
    /// A parameter of which this rank has a part, of this shape; names the whole. Whoever loads it
    /// cuts that out (cut()).
    Value weight(const std::string& name, Shape shape, const Shard& shard);
    /// A tensor that outlives a run (a KV cache); zero at first. The same name gives the same
    /// value.
    Value state(const std::string& name, Shape shape, DType dtype = DType::f32);
    /// A tensor whose numbers are known now; they are kept with the program.
    Value constant(const std::string& name, const std::vector<std::int64_t>& shape, std::span<const float> data);
    Value constant(const std::string& name, const std::vector<std::int64_t>& shape, std::span<const std::int32_t> data);
    /// Gives a computed value a name under which it can be bound or downloaded. It must be
    /// contiguous and whole: a view of another order must go through contiguous() first.
    void output(const std::string& name, Value value);

    // The functions that follow are for op authors.

    /// Adds a node. Outputs get fresh storages unless `OutputSpec::into` says otherwise.
    std::vector<Value> add_node(const OpType& op, std::vector<Value> inputs, std::shared_ptr<const void> params,
                                const std::vector<OutputSpec>& outputs);
    /// Makes an input or output of shape (height, width, channels) one that is bound to an image
    /// instead of a buffer.
    void as_image(const Value& value, ImageAccess image);
    /// Another window on the same storage.
    Value add_view(const Value& base, Shape shape, Shape strides, Dim offset);
    /// Makes `value <= limit` a condition of every run; `what` names the condition in the error.
    void constrain(Dim value, Dim limit, std::string what);
    /// Checks the numbers of an i32 input whenever they are uploaded, and those of a constant now.
    /// Values that are computed, and inputs that a host binds, are not checked: kernels must
    /// tolerate any number.
    void check_content(const Value& value, std::string what, Dim limit,
                       std::string (*fault)(std::span<const std::int32_t> numbers, std::int64_t limit));

    /// What each linear layer that is described from now on does with its result: given its input x
    /// and its result y before the activation, gives the value to go on with, of y's shape. Called
    /// within the layer's Scope, so that scoped() tells its name; not for linear layers that it
    /// describes itself. Layers whose heads, widths or vocabulary are shared out over ranks throw
    /// Error where there is one.
    using LinearHook = std::function<Value(Value x, Value y)>;
    void after_linear(LinearHook hook) { linear_hook_ = std::move(hook); }
    const LinearHook& linear_hook() const noexcept { return linear_hook_; }

    // The functions that follow are for whoever describes graphs.

    /// Names of weights and states added inside are prefixed "NAME.", and node labels too; inputs,
    /// outputs, constants and symbols keep theirs. Use through Scope. pop_scope() throws Error
    /// where none is open.
    void push_scope(const std::string& name);
    void pop_scope();
    /// `name` with the open scopes before it.
    std::string scoped(std::string_view name) const;
    /// The rank that layers describe from now on: they share their heads, widths and vocabularies
    /// out over the ranks. One of one at first. Throws Error as check_rank() does.
    void set_rank(const Rank& rank);
    const Rank& rank() const noexcept { return rank_; }
    /// The nodes added in between are a block, which gradients() computes again. Use through
    /// Recompute.
    void begin_recompute();
    void end_recompute();

    // The functions that follow read the graph. What nodes and constraints hold is declared in the
    // advanced header node.h.

    const std::vector<SymbolInfo>& symbols() const noexcept { return symbols_; }
    const std::deque<StorageInfo>& storages() const noexcept { return storages_; }
    const std::deque<ValueInfo>& values() const noexcept { return values_; }
    const std::vector<NodeInfo>& nodes() const noexcept { return nodes_; }
    const std::vector<Constraint>& constraints() const noexcept { return constraints_; }
    const std::vector<ContentCheck>& content_checks() const noexcept { return content_checks_; }
    /// The blocks of Recompute that have ended; one in another stands before it.
    const std::vector<NodeRange>& recomputed() const noexcept { return recomputed_; }
    /// True where a Recompute lives.
    bool in_recompute() const noexcept { return !open_blocks_.empty(); }

    /// Largest value a size can have, each symbol between 0 and its maximum.
    std::int64_t max_of(const Dim& dim) const;
    std::string str(const Dim& dim) const;
    std::string str(const Shape& shape) const;
    std::vector<std::string> symbol_names() const;

private:
    friend struct GraphEdit;
    friend class Recompute;
    friend class Scope;
    using Make = std::function<std::vector<Value>(Graph&, const std::vector<NodeInfo>&)>;
    struct Clone {};
    explicit Graph(Clone);

    std::unique_ptr<Graph> clone() const;
    /// Makes this graph what it was when it was cloned, where nodes, outputs and the like were
    /// added since. Takes the clone's parts; values of before, and their shapes, stay good.
    void go_back(Graph& before) noexcept;
    /// How much a graph has, each in the order in which it was added.
    struct Extent {
        std::size_t symbols, storages, values, constants, nodes, constraints, content_checks, recomputed, outputs;
    };
    Extent extent() const noexcept;
    /// Forgets what was added since. No later value has the number of one that is forgotten.
    void shrink(const Extent& to) noexcept;
    void forget_values(std::size_t from) noexcept;
    void replace(const std::vector<NodeId>& nodes, const Make& make, NodeId at);
    Value add_output(NodeInfo& node, const OutputSpec& spec);
    Value widen(NodeId id, std::shared_ptr<const void> params, const OutputSpec& output);
    NodeId repeat(NodeId id, std::vector<ValueId> inputs, std::uint32_t again);
    Value add_storage(StorageInfo info);
    void merge(ValueId output, const Value& made, std::size_t first_new, std::size_t& first_value,
               const std::string& label);
    Value find_or_add(StorageKind kind, const std::string& name, Shape shape, DType dtype,
                      const std::optional<Shard>& shard = {});
    Value add_constant(const std::string& name, const std::vector<std::int64_t>& shape, DType dtype,
                       std::shared_ptr<const ConstantData> data);
    Value keep_constant(const std::string& name, const std::vector<std::int64_t>& shape, DType dtype,
                        std::span<const std::byte> data, std::size_t count);
    std::vector<ValueId>::const_iterator named_from(const std::string& name) const;
    bool is_named(std::vector<ValueId>::const_iterator at, const std::string& name) const;
    void check_new_name(const std::string& name, const char* what) const;
    void check_shape(const std::string& name, const Shape& shape) const;
    void check_fixed(const std::string& name, const Shape& shape) const;
    /// pop_scope(), and nothing where no scope is open.
    void close_scope() noexcept;
    /// end_recompute(), and nothing where no block is open.
    void close_recompute() noexcept;

    std::vector<SymbolInfo> symbols_;
    // deques: references handed out (Value::shape()) stay good as the graph grows
    std::deque<StorageInfo> storages_;
    std::deque<ValueInfo> values_;
    /// The whole of each input, weight, state and output, in the order of their names. (Constants
    /// are named by ops, for reports alone: nobody looks them up, and a user cannot know their
    /// names.)
    std::vector<ValueId> named_;
    std::vector<ValueId> constants_;  ///< the whole of each
    std::vector<ValueId> outputs_;    ///< in the order in which they were made
    std::vector<NodeInfo> nodes_;
    std::vector<Constraint> constraints_;
    std::vector<ContentCheck> content_checks_;
    std::vector<std::string> scopes_;
    LinearHook linear_hook_;
    Rank rank_;
    std::vector<NodeRange> recomputed_;
    std::vector<NodeId> open_blocks_;  // the first node of each
};

/// Prefixes the names of weights and states and the labels of nodes while it lives:
/// Scope s(g, "layers.0").
class VKF_API Scope {
public:
    Scope(Graph& graph, const std::string& name) : graph_(graph) { graph_.push_scope(name); }
    ~Scope() { graph_.close_scope(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

private:
    Graph& graph_;
};

}  // namespace vkf
