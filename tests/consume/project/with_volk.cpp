// SPDX-License-Identifier: Apache-2.0
// A host with volk's global function pointers of its own (volk.c is compiled into it): ours neither
// set nor see them.
#include <volk.h>

#include "host_device.h"
#include "tiny_layer.h"

int main() {
    bool good = tiny_layer_runs(vkf::Device::create());
    if (vkCreateInstance != nullptr) {
        std::puts("vkformer loaded the host's volk");
        good = false;
    }
    require(volkInitialize(), "volkInitialize");
    const VkInstance instance = make_host_instance();
    volkLoadInstance(instance);
    const HostDevice host = make_host_device(instance);
    volkLoadDevice(host.device);
    const auto submit = vkQueueSubmit;
    good = tiny_layer_runs(vkf::Device::create()) && good;
    good = tiny_layer_runs(vkf::Device::borrow({.instance = host.instance,
                                                .physical = host.physical,
                                                .device = host.device,
                                                .get_instance_proc_addr = vkGetInstanceProcAddr})) &&
           good;
    if (vkQueueSubmit != submit) {
        std::puts("vkformer changed the host's volk");
        good = false;
    }
    finish(host);
    return good ? 0 : 1;
}
