// SPDX-License-Identifier: Apache-2.0
#include "layers/linear_hook.h"

#include <string>
#include <utility>

#include "runtime/base/error.h"

namespace vkf {

namespace {

/// Stands in a graph for its hook while that is called.
struct AsItIs {
    Value operator()(Value, Value y) const { return y; }
};

/// Takes the hook out of a graph, and puts it back unless another has taken its place.
class HookAtWork {
public:
    explicit HookAtWork(Graph& graph) : graph_(graph), hook_(graph.linear_hook()) { graph.after_linear(AsItIs{}); }
    ~HookAtWork() {
        if (graph_.linear_hook().target<AsItIs>() != nullptr) {
            graph_.after_linear(std::move(hook_));
        }
    }
    HookAtWork(const HookAtWork&) = delete;
    HookAtWork& operator=(const HookAtWork&) = delete;

    Value operator()(Value x, Value y) const { return hook_(x, y); }

private:
    Graph& graph_;
    Graph::LinearHook hook_;
};

}  // namespace

bool has_linear_hook(const Graph& graph) {
    return graph.linear_hook() && graph.linear_hook().target<AsItIs>() == nullptr;
}

Value hooked(Value x, Value y) {
    if (!has_linear_hook(y.graph())) {
        return y;
    }
    const Value made = HookAtWork(y.graph())(x, y);
    if (!made || &made.graph() != &y.graph() || made.shape() != y.shape()) {
        throw Error("what after_linear() was given made " + (made ? made.str() : std::string("nothing")) + " of " +
                        y.str() + "; it must be of the same graph and shape",
                    "linear_layer");
    }
    return made;
}

}  // namespace vkf
