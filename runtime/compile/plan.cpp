// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/plan.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "runtime/base/made.h"
#include "runtime/base/numbers.h"
#include "runtime/base/text.h"
#include "runtime/compile/buffer_limit.h"
#include "runtime/compile/decompose.h"
#include "runtime/compile/plan_collectives.h"
#include "runtime/compile/schedule.h"
#include "runtime/compile/stored.h"
#include "runtime/compile/texel_fetches.h"
#include "runtime/compile/weight_order.h"
#include "runtime/graph/edit.h"
#include "runtime/graph/packed.h"
#include "runtime/graph/rewrite.h"
#include "runtime/graph/wanted.h"

namespace vkf {

namespace {

/// The bytes that storages take, and the windows that dispatches have on them.
class Windows {
public:
    Windows(Plan& plan, const Capabilities& device) : plan_(plan), device_(device) {
        for (const SymbolInfo& s : plan.symbols) {
            maxima_.push_back(s.max);
        }
    }

    std::uint64_t bytes_of_storage(const StorageInfo& s) const {
        if (s.image != ImageAccess::none) {
            return 0;
        }
        std::uint64_t bytes = size_of(s.dtype);
        for (const Dim& d : s.shape) {
            bytes *= static_cast<std::uint64_t>(d.upper_bound(maxima_));
        }
        return align_up(bytes, 4);
    }

    /// The smallest aligned window that holds the value at all sizes.
    Window window_of(ValueId id, const std::string& label) const {
        const ValueInfo& v = plan_.values[id];
        const StorageInfo& s = plan_.storages[v.storage];
        const std::uint64_t element = size_of(s.dtype);
        const std::uint64_t whole = plan_.storage_bytes[v.storage];
        std::uint64_t last = static_cast<std::uint64_t>(v.offset.upper_bound(maxima_));
        for (std::size_t i = 0; i < v.shape.size(); ++i) {
            last += static_cast<std::uint64_t>(std::max<std::int64_t>(v.shape[i].upper_bound(maxima_) - 1, 0) *
                                               v.strides[i].upper_bound(maxima_));
        }
        const std::uint64_t end = std::min(whole, align_up((last + 1) * element, 4));
        const std::int64_t lowest = std::max<std::int64_t>(v.offset.lower_bound(maxima_), 0);
        // what begins at the end, having no elements at any size, has a window all the same
        const std::uint64_t first =
            std::min(std::max<std::uint64_t>(end, 1) - 1, static_cast<std::uint64_t>(lowest) * element);
        Window w;
        w.storage = v.storage;
        w.base = first / device_.storage_alignment * device_.storage_alignment;
        w.bytes = end - w.base;
        if (w.bytes > device_.storage_range) {
            throw Error(beyond_one_buffer(s, w.bytes, device_), label);
        }
        return w;
    }

private:
    Plan& plan_;
    const Capabilities& device_;
    std::vector<std::int64_t> maxima_;
};

/// Sizes of inputs, outputs and of what nodes take and give that symbols can make negative. Two of
/// them give a number of elements that is not, so what merges dimensions would not notice.
std::vector<SignedSize> signed_sizes(const Plan& plan, const std::vector<WantedOutputs>& wanted) {
    std::vector<std::int64_t> maxima;
    std::vector<std::string> names;
    for (const SymbolInfo& s : plan.symbols) {
        maxima.push_back(s.max);
        names.push_back(s.name);
    }
    std::vector<SignedSize> out;
    const auto note = [&](const Shape& shape, const std::string& whose) {
        for (const Dim& size : shape) {
            const auto same = [&](const SignedSize& o) { return o.size == size; };
            if (size.lower_bound(maxima) < 0 && std::none_of(out.begin(), out.end(), same)) {
                out.push_back({whose + ": size " + size.str(names), size});
            }
        }
    };
    for (const StorageInfo& s : plan.storages) {
        if (is_external(s.kind)) {
            note(s.shape, s.name);
        }
    }
    for (NodeId n = 0; n < plan.nodes.size(); ++n) {
        for (const std::vector<ValueId>& values : {plan.nodes[n].inputs, plan.nodes[n].outputs}) {
            for (std::size_t i = 0; wanted[n] != 0 && i < values.size(); ++i) {
                note(plan.values[values[i]].shape, plan.nodes[n].label);
            }
        }
    }
    return out;
}

/// Collectives come in one order on every rank: each writes what stands for that, a storage that
/// there is not.
StorageUse use_of(const Plan& plan, const Dispatch& d) {
    StorageUse use;
    if (d.collective != Collective::none) {
        use.writes.push_back(static_cast<StorageId>(plan.storages.size()));
    }
    for (const Binding& b : d.bindings) {
        const StorageId s = plan.values[b.value].storage;
        if (b.access != Access::write) {
            use.reads.push_back(s);
        }
        if (b.access != Access::read) {
            use.writes.push_back(s);
        }
    }
    return use;
}

bool whole(const Plan& plan, ValueId id) {
    const ValueInfo& v = plan.values[id];
    return v.offset == Dim(0) && elements(v.shape) == elements(plan.storages[v.storage].shape);
}

/// True when the dispatch reads the value's storage in its order alone, if in several bindings:
/// then an element can be overwritten by whom it is read.
bool read_in_one_order(const Plan& plan, const Dispatch& d, ValueId id) {
    const ValueInfo& v = plan.values[id];
    return std::all_of(d.bindings.begin(), d.bindings.end(), [&](const Binding& b) {
        const ValueInfo& other = plan.values[b.value];
        return other.storage != v.storage ||
               (other.shape == v.shape && other.strides == v.strides && other.offset == v.offset);
    });
}

struct Lifetime {
    std::uint32_t first = ~0u, last = 0;
    std::uint32_t uses_in_last = 0;  ///< dispatches of the last step that touch it
};

std::vector<Lifetime> lifetimes(const Plan& plan) {
    std::vector<Lifetime> lives(plan.storages.size());
    for (const PlannedDispatch& d : plan.dispatches) {
        std::vector<StorageId> seen;
        for (const Window& w : d.windows) {
            Lifetime& life = lives[w.storage];
            life.first = std::min(life.first, d.step);
            if (std::find(seen.begin(), seen.end(), w.storage) == seen.end()) {
                seen.push_back(w.storage);
                life.uses_in_last = d.step > life.last || life.uses_in_last == 0 ? 1 : life.uses_in_last + 1;
            }
            life.last = std::max(life.last, d.step);
        }
    }
    return lives;
}

/// Gives for each storage the one whose memory it takes over; itself where there is none.
/// What ranks exchange shares memory with nothing else, which would come to lie where the host
/// reads it fast and the device slowly.
std::vector<StorageId> in_place_owners(const Plan& plan, const std::vector<Lifetime>& lives,
                                       const std::vector<bool>& exchanged) {
    std::vector<StorageId> owner(plan.storages.size());
    std::iota(owner.begin(), owner.end(), StorageId{0});
    for (const PlannedDispatch& d : plan.dispatches) {
        if (d.dispatch.in_place_input < 0) {
            continue;
        }
        const ValueId in = d.dispatch.bindings[static_cast<std::size_t>(d.dispatch.in_place_input)].value;
        const ValueId out = d.dispatch.bindings[static_cast<std::size_t>(d.dispatch.in_place_output)].value;
        const StorageId from = plan.values[in].storage;
        const StorageId to = plan.values[out].storage;
        const bool dies_here = lives[from].last == d.step && lives[from].uses_in_last == 1;
        const bool same_layout =
            whole(plan, in) && whole(plan, out) && plan.values[in].shape == plan.values[out].shape &&
            plan.values[in].strides == plan.values[out].strides && plan.storages[from].dtype == plan.storages[to].dtype;
        if (dies_here && same_layout && read_in_one_order(plan, d.dispatch, in) && from != to &&
            exchanged[from] == exchanged[to] && lives[to].first == d.step &&
            plan.storages[from].kind == StorageKind::intermediate &&
            plan.storages[to].kind == StorageKind::intermediate) {
            owner[to] = owner[from];
        }
    }
    return owner;
}

/// Gives the storages of `chosen` that are used places in an arena of `bytes`; their intervals.
std::vector<Interval> place_in_arena(const Plan& plan, const std::vector<Lifetime>& lives,
                                     const std::vector<StorageId>& owner, std::uint64_t alignment,
                                     const std::vector<bool>& chosen, std::vector<std::uint64_t>& offsets,
                                     std::uint64_t& bytes) {
    std::vector<Interval> intervals;
    offsets.assign(plan.storages.size(), Plan::kNotInArena);
    std::vector<std::uint32_t> interval_of(plan.storages.size(), ~0u);
    const auto is_placed = [&](StorageId s) {
        return plan.storages[s].kind == StorageKind::intermediate && lives[s].first != ~0u && chosen[s];
    };
    for (StorageId s = 0; s < plan.storages.size(); ++s) {
        if (!is_placed(s)) {
            continue;
        }
        const StorageId o = owner[s];
        if (interval_of[o] == ~0u) {
            interval_of[o] = static_cast<std::uint32_t>(intervals.size());
            intervals.push_back({lives[s].first, lives[s].last, plan.storage_bytes[s]});
        } else {
            Interval& v = intervals[interval_of[o]];
            v.first = std::min(v.first, lives[s].first);
            v.last = std::max(v.last, lives[s].last);
            v.bytes = std::max(v.bytes, plan.storage_bytes[s]);
        }
    }
    const ArenaPlan arena = plan_arena(intervals, alignment);
    for (StorageId s = 0; s < plan.storages.size(); ++s) {
        if (is_placed(s)) {
            offsets[s] = arena.offsets[interval_of[owner[s]]];
        }
    }
    bytes = arena.bytes;
    return intervals;
}

OrderedWork ordered_work(Plan& plan) { return {plan.work, plan.dispatches, plan.storages.size(), plan.steps}; }

void plan_memory(Plan& plan, std::uint64_t alignment, bool unified) {
    std::vector<Lifetime> lives = lifetimes(plan);
    const std::vector<bool> exchanged = exchanged_storages(ordered_work(plan));
    const std::vector<StorageId> owner = in_place_owners(plan, lives, exchanged);
    const std::vector<std::uint32_t> kept = last_steps_of_exchange(ordered_work(plan));
    for (StorageId s = 0; s < lives.size(); ++s) {
        lives[s].last = std::max(lives[s].last, kept[s]);
    }
    std::vector<bool> others = exchanged;
    others.flip();
    plan.intervals = place_in_arena(plan, lives, owner, alignment, others, plan.arena_offset, plan.memory.scratch);
    place_in_arena(plan, lives, owner, alignment, exchanged, plan.exchange_offset, plan.memory.exchanged);
    for (StorageId s = 0; s < plan.storages.size(); ++s) {
        const std::uint64_t bytes = align_up(plan.storage_bytes[s], alignment);
        switch (plan.storages[s].kind) {
            case StorageKind::weight: plan.memory.weights += plan.storages[s].parts.empty() ? bytes : 0; break;
            case StorageKind::state: plan.memory.state += bytes; break;
            case StorageKind::constant: plan.memory.constants += bytes; break;
            case StorageKind::input: plan.memory.inputs += bytes; break;
            case StorageKind::output: plan.memory.outputs += bytes; break;
            case StorageKind::intermediate: break;
        }
    }
    plan.memory.mirrors = unified ? 0 : plan.memory.inputs + plan.memory.outputs;
}

bool share_memory(const Plan& plan, StorageId a, StorageId b) {
    const auto overlap = [&](const std::vector<std::uint64_t>& offsets) {
        return offsets[a] != Plan::kNotInArena && offsets[b] != Plan::kNotInArena &&
               offsets[a] < offsets[b] + plan.storage_bytes[b] && offsets[b] < offsets[a] + plan.storage_bytes[a];
    };
    return a == b || overlap(plan.arena_offset) || overlap(plan.exchange_offset);
}

/// The bindings of a dispatch in whose storage it writes nothing, a bit each.
std::uint32_t read_alone(const Plan& plan, const PlannedDispatch& d) {
    std::uint32_t out = 0;
    for (std::size_t i = 0; i < d.windows.size(); ++i) {
        bool alone = plan.storages[d.windows[i].storage].image == ImageAccess::none;
        for (std::size_t other = 0; other < d.windows.size(); ++other) {
            const bool writes = d.dispatch.bindings[other].access != Access::read;
            alone = alone && !(writes && share_memory(plan, d.windows[i].storage, d.windows[other].storage));
        }
        out |= alone ? 1u << i : 0u;
    }
    return out;
}

bool are_constant(const Shape& dims) noexcept {
    return std::all_of(dims.begin(), dims.end(), [](const Dim& d) { return d.is_constant(); });
}

bool is_constant(const ValueInfo& value) noexcept {
    return are_constant(value.shape) && are_constant(value.strides) && value.offset.is_constant();
}

/// The kernel that a dispatch whose sizes are all constant will always choose; -1 where they
/// change.
int constant_kernel(const Plan& plan, const PlannedDispatch& planned) {
    const Dispatch& d = planned.dispatch;
    const bool all = std::all_of(d.bindings.begin(), d.bindings.end(),
                                 [&](const Binding& b) { return is_constant(plan.values[b.value]); }) &&
                     std::all_of(d.sizes_of.begin(), d.sizes_of.end(),
                                 [&](ValueId id) { return are_constant(plan.values[id].shape); });
    const std::vector<std::int64_t> anything(plan.symbols.size());
    Command command;
    return all && plan.prepare(planned, anything, command) ? static_cast<int>(command.kernel()) : -1;
}

/// Collects what the kernels of the dispatches say of the arithmetic that was asked for.
ArithmeticUse arithmetic_use(const std::vector<PlannedDispatch>& dispatches, Arithmetic asked) {
    ArithmeticUse use{.asked = asked};
    std::map<std::string, std::uint32_t> reasons;
    for (const PlannedDispatch& d : dispatches) {
        for (std::size_t k = 0; k < d.dispatch.kernels.size(); ++k) {
            const Kernel& kernel = d.dispatch.kernels[k];
            if (!d.may_choose(k)) {
                continue;
            }
            use.used = kernel.arithmetic == Arithmetic::f32 ? use.used : kernel.arithmetic;
            if (!kernel.why_fp32.empty()) {
                ++reasons[kernel.why_fp32];
            }
        }
    }
    for (const auto& [reason, count] : reasons) {
        use.in_fp32.push_back({reason, count});
    }
    return use;
}

/// Notes how weights lie in memory; those that are packed become matrices of words.
void place_weights(Plan& plan, const WeightLayout& weights) {
    for (StorageInfo& s : plan.storages) {
        if (s.kind != StorageKind::weight) {
            continue;
        }
        StoredTensor& t = plan.weights.emplace_back(as_declared(s));
        if (!weights.tensors().empty()) {
            t = check_stored("weight " + t.name, t, weights.find(t.name), WantedBy::graph);
        }
        if (t.type != WeightType::f32) {
            const auto columns = static_cast<std::uint64_t>(t.shape[1]);
            s.type = t.type;
            s.columns = t.shape[1];
            s.shape[1] = Dim(static_cast<std::int64_t>(packed_row_words(t.type, columns)));
        }
    }
}

/// The dispatches in their order, and their steps from `steps` on, which is moved behind the last.
/// A collective has a step of its own, behind the dispatches that might have shared it.
std::vector<std::pair<std::uint32_t, std::uint32_t>> in_steps_of_one_kind(const Schedule& schedule,
                                                                          const std::vector<Dispatch>& lowered,
                                                                          std::uint32_t& steps) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> out;
    for (std::size_t i = 0; i < schedule.order.size();) {
        std::size_t end = i;
        bool dispatches = false;
        for (; end < schedule.order.size() && schedule.step[end] == schedule.step[i]; ++end) {
            if (lowered[schedule.order[end]].collective == Collective::none) {
                out.emplace_back(schedule.order[end], steps);
                dispatches = true;
            }
        }
        steps += dispatches ? 1 : 0;
        for (; i < end; ++i) {
            if (lowered[schedule.order[i]].collective != Collective::none) {
                out.emplace_back(schedule.order[i], steps++);
            }
        }
    }
    return out;
}

/// A step of copies between the inputs, or the outputs, and their mirrors.
void add_copies(Plan& plan, StorageKind kind, CopyDirection direction) {
    const std::size_t before = plan.copies.size();
    for (StorageId s = 0; s < plan.storages.size(); ++s) {
        if (plan.storages[s].kind == kind && plan.storages[s].image == ImageAccess::none) {
            plan.work.push_back({WorkKind::copy, static_cast<std::uint32_t>(plan.copies.size())});
            plan.copies.push_back({s, direction, plan.steps});
        }
    }
    plan.steps += plan.copies.size() != before ? 1 : 0;
}

}  // namespace

Plan make_plan(const Graph& graph, const Capabilities& device, const WeightLayout& weights,
               const PlanOptions& options) {
    ++made_counts.plans;
    const std::unique_ptr<Graph> work = GraphEdit::clone(graph);
    Plan plan;
    if (options.rewrite) {
        const WeightLayout layout = weights.tensors().empty() ? declared_layout(graph, device) : weights;
        const auto adjacent = [&](std::span<const StorageId> parts) { return why_not_adjacent(*work, layout, parts); };
        plan.notes = rewrite(*work, {.why_not_adjacent = adjacent, .elements = bindable_bytes(device) / sizeof(float)});
    }
    for (std::string& note : decompose_declined(*work, device)) {
        plan.notes.push_back(std::move(note));
    }
    plan.symbols = work->symbols();
    plan.storages.assign(work->storages().begin(), work->storages().end());
    plan.values.assign(work->values().begin(), work->values().end());
    plan.nodes = work->nodes();
    plan.constraints = work->constraints();
    plan.content_checks = work->content_checks();

    place_weights(plan, weights);
    const std::vector<WantedOutputs> wanted = wanted_outputs(*work);
    plan.signed_sizes = signed_sizes(plan, wanted);
    std::vector<Dispatch> lowered;
    Lowering lowering(device, plan.values, plan.storages, plan.symbols, lowered, options.arithmetic);
    for (NodeId n = 0; n < plan.nodes.size(); ++n) {
        if (wanted[n] != 0) {
            lowering.begin(n, plan.nodes[n]);
            plan.nodes[n].op->lower(lowering);
        }
    }

    const Windows windows(plan, device);
    for (const StorageInfo& s : plan.storages) {
        plan.storage_bytes.push_back(windows.bytes_of_storage(s));
    }
    std::vector<StorageUse> uses;
    for (const Dispatch& d : lowered) {
        uses.push_back(use_of(plan, d));
    }
    put_collectives_early(lowered, uses);
    const Schedule schedule = make_schedule(uses);
    const bool mirrored = !device.unified_memory;
    if (mirrored) {
        add_copies(plan, StorageKind::input, CopyDirection::to_device);
    }
    for (const auto& [index, step] : in_steps_of_one_kind(schedule, lowered, plan.steps)) {
        PlannedDispatch p;
        p.dispatch = std::move(lowered[index]);
        p.step = step;
        if (p.dispatch.bindings.size() + p.dispatch.sizes_of.size() > kMaxOperands) {
            throw Error("a dispatch binds " + std::to_string(p.dispatch.bindings.size()) + " values and looks at " +
                            std::to_string(p.dispatch.sizes_of.size()) + " more; the most is " +
                            std::to_string(kMaxOperands),
                        plan.nodes[p.dispatch.node].label);
        }
        for (const Binding& b : p.dispatch.bindings) {
            p.windows.push_back(windows.window_of(b.value, plan.nodes[p.dispatch.node].label));
        }
        p.only_kernel = constant_kernel(plan, p);
        const WorkKind kind = p.dispatch.collective == Collective::none ? WorkKind::dispatch : WorkKind::collective;
        plan.work.push_back({kind, static_cast<std::uint32_t>(plan.dispatches.size())});
        plan.dispatches.push_back(std::move(p));
    }
    if (mirrored) {
        add_copies(plan, StorageKind::output, CopyDirection::to_host);
    }
    find_ends_of_collectives(ordered_work(plan));
    plan.arithmetic = arithmetic_use(plan.dispatches, options.arithmetic);
    plan_memory(plan, device.storage_alignment, device.unified_memory);
    if (takes_texels(device)) {
        for (PlannedDispatch& d : plan.dispatches) {
            d.texels = read_alone(plan, d);
        }
    }
    plan.left_out = device.left_out;
    plan.source = std::make_shared<const PlanSource>(PlanSource{GraphEdit::clone(graph), device, weights, options});
    return plan;
}

Plan plan_again(const PlanSource& source, std::vector<LeftOut> left_out) {
    Capabilities device = source.device;
    device.left_out = std::move(left_out);
    return make_plan(*source.graph, device, source.weights, source.options);
}

std::size_t Plan::symbol(std::string_view name, const std::string& program) const {
    for (std::size_t i = 0; i < symbols.size(); ++i) {
        if (symbols[i].name == name) {
            return i;
        }
    }
    std::string known;
    for (const SymbolInfo& s : symbols) {
        known += (known.empty() ? "" : ", ") + s.name;
    }
    throw Error("the program has no size \"" + std::string(name) + "\"; it has: " + (known.empty() ? "none" : known),
                program);
}

namespace {

template <class Wanted>
StorageId find_named(const Plan& plan, const char* kind, std::string_view name, const std::string& program,
                     Wanted wanted) {
    for (StorageId s = 0; s < plan.storages.size(); ++s) {
        if (wanted(plan.storages[s].kind) && plan.storages[s].name == name) {
            return s;
        }
    }
    std::string known;
    for (const StorageInfo& s : plan.storages) {
        if (wanted(s.kind)) {
            known += (known.empty() ? "" : ", ") + s.name;
        }
    }
    throw Error(std::string("the program has no ") + kind + " \"" + std::string(name) +
                    "\"; it has: " + (known.empty() ? "none" : known),
                program);
}

}  // namespace

StorageId Plan::named(StorageKind kind, std::string_view name, const std::string& program) const {
    return find_named(*this, kind == StorageKind::input ? "input" : "output", name, program,
                      [&](StorageKind k) { return k == kind; });
}

StorageId Plan::external(std::string_view name, const std::string& program) const {
    return find_named(*this, "input or output", name, program, is_external);
}

}  // namespace vkf
