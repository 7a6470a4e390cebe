// SPDX-License-Identifier: Apache-2.0
// A graph lowered, scheduled and laid out in memory for a device of given capabilities: everything
// about a program that needs no Vulkan call.
// For op authors: <vkformer/advanced/plan.h>. It may change between versions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../base/export.h"
#include "../graph/graph.h"
#include "../graph/node.h"
#include "arithmetic_use.h"
#include "capabilities.h"
#include "lowering.h"
#include "memory_sizes.h"
#include "planned.h"
#include "planner.h"
#include "weight_layout.h"

namespace vkf {

struct PlanOptions {
    Arithmetic arithmetic = Arithmetic::f32;
    /// true: rewrites turn what is described into what is fast, see CompileOptions::rewrite
    bool rewrite = true;
};

/// What a plan was made of, so that it can be made again where a driver refuses a kernel.
struct PlanSource {
    std::unique_ptr<const Graph> graph;
    Capabilities device;
    WeightLayout weights;
    PlanOptions options;
};

/// True for storages that are bound to what a host, or run(), gives at each recording.
constexpr bool is_external(StorageKind kind) noexcept {
    return kind == StorageKind::input || kind == StorageKind::output;
}

/// A size that symbols may make negative.
struct SignedSize {
    std::string what;  ///< whose size it is, and how it is made
    Dim size;
};

struct Plan {
    std::vector<SymbolInfo> symbols;
    std::vector<StorageInfo> storages;
    std::vector<ValueInfo> values;
    std::vector<NodeInfo> nodes;
    std::vector<Constraint> constraints;
    std::vector<SignedSize> signed_sizes;
    std::vector<ContentCheck> content_checks;
    std::vector<PlannedDispatch> dispatches;  ///< in the order they are recorded
    std::vector<PlannedCopy> copies;          ///< none where memory is unified
    /// The work of the plan, in the order it is recorded. A step holds work of one kind.
    std::vector<PlannedWork> work;
    std::uint32_t steps = 0;
    std::vector<std::uint64_t> storage_bytes;  ///< bytes of each storage at its sizes' maxima
    /// The weights that the graph names, as they were laid out.
    std::vector<StoredTensor> weights;
    /// the place of each intermediate storage; kNotInArena for others
    std::vector<std::uint64_t> arena_offset;
    /// the place of those that ranks exchange, in memory of their own that the host sees;
    /// kNotInArena for others
    std::vector<std::uint64_t> exchange_offset;
    /// the intervals from which the arena was planned, after in-place merging
    std::vector<Interval> intervals;
    /// texts for explain(): what was rewritten and decomposed, and why
    std::vector<std::string> notes;
    ArithmeticUse arithmetic;
    MemorySizes memory;
    /// kernels that the ops were told not to take
    std::vector<LeftOut> left_out;
    /// null: the plan stays as it is, and a kernel that its device refuses is an error
    std::shared_ptr<const PlanSource> source;

    static constexpr std::uint64_t kNotInArena = ~std::uint64_t{0};

    /// Asks a dispatch's prepare function, for these values of the symbols. False where a size
    /// comes out negative; then nothing was asked.
    VKF_API bool prepare(const PlannedDispatch& planned, std::span<const std::int64_t> sizes,
                         Command& command) const noexcept;
    /// The symbol's index. Throws naming the known ones.
    VKF_API std::size_t symbol(std::string_view name, const std::string& program = {}) const;
    /// The storage of that name and kind. Throws naming the known ones.
    VKF_API StorageId named(StorageKind kind, std::string_view name, const std::string& program = {}) const;
    /// The input or output of that name. Throws naming the known ones.
    VKF_API StorageId external(std::string_view name, const std::string& program = {}) const;
};

/// Throws vkf::Error from the ops' lowering, naming the node. `weights` tells how the graph's lie
/// in memory: the error names one that is missing there or has another shape. A layout of no tensor
/// stands for weights as the graph declares them, one behind the other.
VKF_API Plan make_plan(const Graph& graph, const Capabilities& device,
                       const WeightLayout& weights = WeightLayout::none(), const PlanOptions& options = {});

/// The same graph planned once more, without these kernels.
VKF_API Plan plan_again(const PlanSource& source, std::vector<LeftOut> left_out);

}  // namespace vkf
