// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/build_pipelines.h"

#include <algorithm>
#include <string_view>

namespace vkf {

namespace {

/// The bindings that may be texel buffers, a bit each: those whose memory is the library's.
std::uint32_t texels_of(const DeviceCore& core, const Plan& plan, const PlannedDispatch& d, const HostMemory& host) {
    std::uint32_t out = core.capabilities.texel_buffers ? d.texels : 0;
    for (std::size_t i = 0; i < d.windows.size(); ++i) {
        const StorageId storage = d.windows[i].storage;
        const bool of_host = (host.inputs_and_outputs && is_external(plan.storages[storage].kind)) ||
                             (host.scratch && plan.arena_offset[storage] != Plan::kNotInArena);
        out &= of_host ? ~(1u << i) : ~0u;
    }
    return out;
}

std::vector<KernelUse> kernels_of(const DeviceCore& core, const Plan& plan, const HostMemory& host) {
    std::vector<KernelUse> kernels;
    for (const PlannedDispatch& d : plan.dispatches) {
        for (std::size_t k = 0; k < d.dispatch.kernels.size(); ++k) {
            if (d.may_choose(k)) {
                kernels.push_back({&d.dispatch.kernels[k], texels_of(core, plan, d, host)});
            }
        }
    }
    return kernels;
}

bool takes(const Plan& plan, std::string_view kernel) {
    return std::any_of(plan.dispatches.begin(), plan.dispatches.end(), [&](const PlannedDispatch& d) {
        bool found = false;
        for (std::size_t k = 0; k < d.dispatch.kernels.size(); ++k) {
            found = found || (d.may_choose(k) && d.dispatch.kernels[k].shader->name == kernel);
        }
        return found;
    });
}

/// Plans again where the plan takes what the device has left out since.
void catch_up(const DeviceCore& core, Plan& plan) {
    bool behind = false;
    const std::vector<LeftOut> all = core.left_out_since.behind(plan.left_out);
    for (std::size_t i = plan.left_out.size(); i < all.size(); ++i) {
        behind = behind || takes(plan, all[i].kernel);
    }
    if (behind && plan.source) {
        plan = plan_again(*plan.source, all);
    }
}

/// Plans again; what keeps that from being planned at all has the result of what was refused.
Plan planned(const PlanSource& source, const std::vector<LeftOut>& without, const RefusedKernel& refused) {
    try {
        return plan_again(source, without);
    } catch (const Error& e) {
        const std::string said = e.what();
        const std::size_t behind = e.where().empty() ? 0 : e.where().size() + 2;  // ": "
        throw Error(said.substr(std::min(behind, said.size())), e.where(), refused.result());
    }
}

std::vector<const Pipeline*> built(DeviceCore& core, Plan& plan, const HostMemory& host) {
    catch_up(core, plan);
    while (true) {
        try {
            return core.pipelines->get(kernels_of(core, plan, host));
        } catch (const RefusedKernel& refused) {
            if (!plan.source) {
                throw;
            }
            std::vector<LeftOut> without = plan.left_out;
            without.push_back({refused.without(), refused.why()});
            Plan next = planned(*plan.source, without, refused);
            if (takes(next, refused.kernel())) {
                throw;  // there is no other
            }
            if (refused.lasts()) {
                core.left_out_since.add(without.back());
            }
            plan = std::move(next);
        }
    }
}

PipelineTable by_dispatch(const Plan& plan, const std::vector<const Pipeline*>& all) {
    PipelineTable out;
    auto next = all.begin();
    for (const PlannedDispatch& d : plan.dispatches) {
        std::vector<const Pipeline*>& pipelines = out.emplace_back();
        for (std::size_t k = 0; k < d.dispatch.kernels.size(); ++k) {
            pipelines.push_back(d.may_choose(k) ? *next++ : nullptr);
        }
    }
    return out;
}

}  // namespace

PipelineTable build_pipelines(DeviceCore& core, Plan& plan, const HostMemory& host) {
    const std::vector<const Pipeline*> all = built(core, plan, host);
    plan.source.reset();
    return by_dispatch(plan, all);
}

PipelineTable pipelines_for(DeviceCore& core, const Plan& plan, const HostMemory& host) {
    return by_dispatch(plan, core.pipelines->get(kernels_of(core, plan, host)));
}

}  // namespace vkf
