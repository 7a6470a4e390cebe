// SPDX-License-Identifier: Apache-2.0
#include "tests/tiling_check.h"

namespace vkf::test {

namespace {

View view_of(const Plan& plan, ValueId id) {
    const ValueInfo& info = plan.values[id];
    View v;
    v.size.fill(1);
    v.rank = static_cast<std::uint32_t>(info.shape.size());
    for (std::size_t i = 0; i < info.shape.size(); ++i) {
        const std::size_t at = kMaxRank - info.shape.size() + i;
        v.size[at] = static_cast<std::uint32_t>(info.shape[i].constant());
        v.stride[at] = static_cast<std::uint32_t>(info.strides[i].constant());
    }
    v.offset = static_cast<std::uint32_t>(info.offset.constant());
    return v;
}

}  // namespace

Prepared prepare(const Plan& plan, const Dispatch& d) {
    std::vector<View> views;
    for (const Binding& b : d.bindings) {
        views.push_back(view_of(plan, b.value));
    }
    for (const ValueId v : d.sizes_of) {
        views.push_back(view_of(plan, v));
    }
    Prepared e;
    d.prepare({views, plan.nodes[d.node].params.get(), d.words}, e.command);
    e.kernel = &d.kernels[e.command.kernel()];
    return e;
}

Plan plan_of(Graph& g, const Value& y, const Capabilities& device, Arithmetic arithmetic) {
    g.output("y", y);
    return make_plan(g, device, WeightLayout::none(), {.arithmetic = arithmetic});
}

std::vector<Capabilities> devices() {
    std::vector<Capabilities> out;
    for (std::uint32_t size = 1; size <= 128; ++size) {
        for (const DeviceType type : {DeviceType::cpu, DeviceType::discrete}) {
            Capabilities c;
            c.type = type;
            c.subgroup_size = c.exact_subgroup_size = c.matrix_subgroup_size = size;
            c.subgroup_shuffle = c.subgroup_quad = true;
            c.subgroup_arithmetic = size % 2 == 0;
            c.storage_buffers = 16;
            c.max_invocations = c.max_group_size[0] = 1024;
            c.shared_memory = 49152;
            c.max_subgroups = 64;
            c.float16 = true;
            c.integer_dot = c.fast_integer_dot = true;
            c.cooperative_matrix = c.cooperative_matrix_int8 = true;
            c.matrix_shapes = {{16, 16, 16}};
            c.int8_matrix_shapes = {{16, 16, 32}};
            out.push_back(c);
        }
    }
    Capabilities least;  // the minimum profile
    out.push_back(least);
    least.type = DeviceType::cpu;
    out.push_back(least);
    return out;
}

}  // namespace vkf::test
