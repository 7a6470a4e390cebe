// SPDX-License-Identifier: Apache-2.0
#include "tests/device.h"

#include <map>
#include <optional>

#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "runtime/device/program.h"
#include "runtime/device/program_core.h"
#include "tests/planted_hazard.h"

namespace vkf::test {

namespace {

std::optional<Device>& slot() {
    static std::optional<Device> device;
    return device;
}

std::map<std::string, int>& missing() {
    static std::map<std::string, int> counts;
    return counts;
}

void require_hazard(void (*plant)(DeviceCore&), const char* what) {
    plant(Insides::core(device()));
    bool seen = false;
    std::string said;
    for (const std::string& message : device().messages()) {
        seen = seen || message.find("SYNC-HAZARD") != std::string::npos;
        said += "\n  " + message;
    }
    if (!seen) {
        throw Error(std::string("the validation layer is blind: ") + what +
                    " raced without a barrier, and no hazard was reported. Newer layers want "
                    "VK_LAYER_SYNCVAL_SHADER_ACCESSES_HEURISTIC=1." +
                    (said.empty() ? "" : " It said:" + said));
    }
}

}  // namespace

const Device& device() {
    if (!slot()) {
        slot() = Device::create();
    }
    return *slot();
}

bool validated() { return Insides::core(device()).instance->messenger != VK_NULL_HANDLE; }

const Plan& plan_of(const Program& program) { return Insides::core(program).plan; }
std::size_t submissions_of(const Program& program) { return Insides::core(program).submissions; }
std::size_t pipelines_of(const Device& device) { return Insides::core(device).pipelines->size(); }

std::vector<std::string> labels_of(const Plan& plan) {
    std::vector<std::string> out;
    for (const PlannedDispatch& d : plan.dispatches) {
        out.push_back(plan.nodes[d.dispatch.node].label);
    }
    return out;
}

std::string device_line() {
    const Capabilities& c = device().capabilities();
    return c.name + ", " + c.driver + ", " + (c.minimum_profile ? "minimum profile" : "full profile") +
           (validated() ? ", validated" : ", not validated");
}

void prove_validation_sees() {
    require_hazard(plant_transfer_hazard, "two transfers");
    require_hazard(plant_dispatch_hazard, "two dispatches");
}

std::vector<std::string> close_device() {
    if (!slot()) {
        return {};
    }
    const std::shared_ptr<InstanceCore> instance = Insides::core(*slot()).instance;
    slot().reset();
    return instance->log.take();
}

void cannot_run(const std::string& what) { ++missing()[what]; }

bool has_matrices() {
    if (!device().capabilities().cooperative_matrix) {
        cannot_run("cooperative matrices");
        return false;
    }
    return true;
}

std::string not_run() {
    std::string out;
    for (const auto& [what, count] : missing()) {
        out += (out.empty() ? "" : ", ") + what + " (" + std::to_string(count) + (count == 1 ? " check)" : " checks)");
    }
    return out;
}

AsSmallGpu::AsSmallGpu(const Device& device) : device_(device), capabilities_(device.capabilities()) {
    Capabilities& c = Insides::core(device_).capabilities;
    // the variants of its kernels; fused attention's have runs of their own
    if (c.variants.empty()) {
        c.type = c.cpu() ? DeviceType::discrete : c.type;
        c.int64 = false;
        c.variants = "attention_composed";
    }
    c.max_groups[0] = 3;
    c.max_groups[1] = 2;
}

AsSmallGpu::~AsSmallGpu() { Insides::core(device_).capabilities = capabilities_; }

}  // namespace vkf::test
