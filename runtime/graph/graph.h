// SPDX-License-Identifier: Apache-2.0
// The description of a computation: values and nodes, no Vulkan. Built once, compiled for as many
// devices as wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../base/error.h"
#include "../base/export.h"
#include "dim.h"
#include "dtype.h"

namespace vkf {

class Graph;
struct OpType;

using ValueId = std::uint32_t;
using StorageId = std::uint32_t;
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

/// Who owns a tensor's bytes and how long they live.
enum class StorageKind : std::uint8_t {
    input,         ///< bound or uploaded before a run; contiguous at its current sizes
    weight,        ///< in a Weights object; immutable
    state,         ///< in a State object; outlives a run; laid out at its maximum sizes
    constant,      ///< computed on the host when the graph was built (tables)
    intermediate,  ///< in the program's scratch arena
    output,        ///< an intermediate that was given a name; bound or downloaded after a run
};

/// An input or output that is an image: texelFetch from any format that gives floats, or a storage
/// image.
enum class ImageAccess : std::uint8_t { none, sampled, storage };

struct StorageInfo {
    StorageKind kind = StorageKind::intermediate;
    std::string name;
    DType dtype = DType::f32;
    Shape shape;                                              ///< as stored, row-major
    std::shared_ptr<const std::vector<std::byte>> data = {};  ///< constants only
    ImageAccess image = ImageAccess::none;                    ///< (height, width, channels)
    /// For weights in a plan: how the weight is packed. Where it is, the shape is (rows, words of a
    /// row).
    WeightType type = WeightType::f32;
    /// For weights in a plan: the weights, behind each other in memory, whose rows together are the
    /// rows of this one, which has no bytes of its own.
    std::vector<StorageId> parts = {};
};

/// A value: a strided window on a storage.
struct ValueInfo {
    StorageId storage = 0;
    Shape shape;
    Shape strides;  ///< in elements; 0 broadcasts
    Dim offset;     ///< in elements
    /// A window on the words of a packed weight, as Lowering::words() gives it. On such a storage
    /// nothing else can be bound.
    bool words = false;

    /// True for a dense tensor from its storage's first element on, of rows of a fixed width.
    bool is_rows() const;
    /// Moves this view, which is on such a tensor with rows of `width` elements, into wider rows of
    /// `pitch` elements: its rows become their columns from `first` on. Nothing where the view runs
    /// from one row into the next.
    std::optional<ValueInfo> in_columns(std::int64_t width, std::int64_t pitch, std::int64_t first) const;
};

struct NodeInfo {
    const OpType* op = nullptr;
    std::string label;  ///< scope and op name, for messages, traces and debug labels
    std::vector<ValueId> inputs;
    std::vector<ValueId> outputs;
    std::shared_ptr<const void> params;  ///< the op's own struct; it names no values
    /// The outputs that are windows of states, which the node writes. Writes happen in the order of
    /// the nodes: a later node that reads the state sees them.
    std::vector<ValueId> writes = {};
};

/// A named size: any value from 0 to `max`.
struct SymbolInfo {
    std::string name;
    std::int64_t max = 0;
};

/// The largest value that the dim can have.
std::int64_t max_of(const Dim& dim, std::span<const SymbolInfo> symbols);

/// `value <= limit` must hold whenever the program runs (a slice whose ends are symbolic).
struct Constraint {
    Dim value, limit;
    std::string what;
};

/// A condition on the numbers of an input, checked wherever they come from the host.
struct ContentCheck {
    StorageId storage = 0;
    std::string what;  ///< the argument it is given for
    Dim limit;
    /// Says what is wrong with the numbers; empty: nothing.
    std::string (*fault)(std::span<const std::int32_t> numbers, std::int64_t limit) = nullptr;
};

/// What a node gives: a fresh tensor, or a write through an existing view of a state.
struct OutputSpec {
    DType dtype = DType::f32;
    Shape shape;
    /// Order in which the dimensions are stored, outermost first; empty = as given. {0,2,1,3}
    /// stores (B,H,L,d) as (B,L,H,d).
    std::vector<std::size_t> stored_order = {};
    /// When set: the node writes through this view; dtype and shape are ignored.
    Value into = {};
};

/// Not movable: values point at it. Belongs to one thread.
class VKF_API Graph {
public:
    Graph();
    ~Graph();
    /// Number of graphs that this process made so far, not counting clones.
    static std::uint64_t made() noexcept;
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    /// A size that can be set before each run, from 0 to `max`.
    Dim symbol(const std::string& name, std::int64_t max);

    /// A tensor that the caller gives before each run: f32, f16, bf16 or i32, like a state. A graph
    /// computes in f32: to(x, DType::f32) reads f16 and bf16. In memory these take 2 bytes an
    /// element, and the whole tensor a multiple of 4 bytes.
    Value input(const std::string& name, Shape shape, DType dtype = DType::f32);
    /// A trained parameter, found by name in the Weights the graph is compiled with. The same name
    /// gives the same value. Its type is f32 or i32; Device::load() decides how memory keeps the
    /// numbers.
    Value weight(const std::string& name, Shape shape, DType dtype = DType::f32);
    /// A tensor that outlives a run (a KV cache); zero at first. The same name gives the same
    /// value.
    Value state(const std::string& name, Shape shape, DType dtype = DType::f32);
    /// A tensor whose numbers are known now; they are kept with the program.
    Value constant(const std::string& name, const std::vector<std::int64_t>& shape, std::span<const float> data);
    Value constant(const std::string& name, const std::vector<std::int64_t>& shape, std::span<const std::int32_t> data);
    /// Gives a computed value a name under which it can be bound or downloaded. It must be
    /// contiguous and whole: a view of another order must go through contiguous() first.
    void output(const std::string& name, Value value);

    /// For ops: adds a node. Outputs get fresh storages unless `OutputSpec::into` says otherwise.
    std::vector<Value> add_node(const OpType& op, std::vector<Value> inputs, std::shared_ptr<const void> params,
                                const std::vector<OutputSpec>& outputs);
    /// For the image ops: an input or output of shape (height, width, channels) that is bound to an
    /// image instead of a buffer.
    void as_image(const Value& value, ImageAccess image);
    /// For views: another window on the same storage.
    Value add_view(const Value& base, Shape shape, Shape strides, Dim offset);
    /// Makes `value <= limit` a condition of every run; `what` names the condition in the error.
    void constrain(Dim value, Dim limit, std::string what);
    /// Checks the numbers of an i32 input whenever they are uploaded, and those of a constant now.
    /// Values that are computed, and inputs that a host binds, are not checked: kernels must
    /// tolerate any number.
    void check_content(const Value& value, std::string what, Dim limit,
                       std::string (*fault)(std::span<const std::int32_t> numbers, std::int64_t limit));
    /// Makes a copy that compilation may change. Values keep their ids.
    std::unique_ptr<Graph> clone() const;
    /// Adds the new nodes of replace(). It is given the graph and the old nodes, and returns, in
    /// order, what each output of the old nodes becomes: a value of the same shape and layout, or
    /// columns of wider rows, which the new nodes compute whole; or an empty value where nothing
    /// reads the output.
    using Make = std::function<std::vector<Value>(Graph&, const std::vector<NodeInfo>&)>;
    /// Replaces `nodes`, which are in graph order, by the nodes that `make` adds. The new nodes
    /// stand at the place of `at`, which is one of `nodes`. Nodes that read the old outputs read
    /// the new ones from then on. New labels have the scope of the first old node.
    void replace(const std::vector<NodeId>& nodes, const Make& make, NodeId at);

    /// Names added inside are prefixed "NAME.", and node labels too. Use through Scope.
    void push_scope(const std::string& name);
    void pop_scope();
    /// `name` with the open scopes before it.
    std::string scoped(std::string_view name) const;

    const std::vector<SymbolInfo>& symbols() const noexcept { return symbols_; }
    const std::deque<StorageInfo>& storages() const noexcept { return storages_; }
    const std::deque<ValueInfo>& values() const noexcept { return values_; }
    const std::vector<NodeInfo>& nodes() const noexcept { return nodes_; }
    const std::vector<Constraint>& constraints() const noexcept { return constraints_; }
    const std::vector<ContentCheck>& content_checks() const noexcept { return content_checks_; }

    /// Largest value a size can have, each symbol between 0 and its maximum.
    std::int64_t max_of(const Dim& dim) const;
    std::string str(const Dim& dim) const;
    std::string str(const Shape& shape) const;
    std::vector<std::string> symbol_names() const;

private:
    struct Clone {};
    explicit Graph(Clone);

    Value add_storage(StorageInfo info);
    void merge(ValueId output, const Value& made, std::size_t first_new, const std::string& label);
    Value find_or_add(StorageKind kind, const std::string& name, Shape shape, DType dtype);
    Value add_constant(const std::string& name, const std::vector<std::int64_t>& shape, DType dtype,
                       std::span<const std::byte> data, std::size_t count);
    void check_new_name(const std::string& name, const char* what) const;
    void check_shape(const std::string& name, const Shape& shape) const;

    std::vector<SymbolInfo> symbols_;
    // deques: references handed out (Value::shape()) stay good as the graph grows
    std::deque<StorageInfo> storages_;
    std::deque<ValueInfo> values_;
    std::vector<NodeInfo> nodes_;
    std::vector<Constraint> constraints_;
    std::vector<ContentCheck> content_checks_;
    std::vector<std::string> scopes_;
};

/// Prefixes the names of weights and the labels of nodes while it lives: Scope s(g, "layers.0").
class VKF_API Scope {
public:
    Scope(Graph& graph, const std::string& name) : graph_(graph) { graph_.push_scope(name); }
    ~Scope() { graph_.pop_scope(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

private:
    Graph& graph_;
};

}  // namespace vkf
