// SPDX-License-Identifier: Apache-2.0
// A host that links libvulkan: its calls and ours do not meet. It uses Vulkan before, beside and
// after vkformer.
#include <vulkan/vulkan.h>

#include "host_device.h"
#include "tiny_layer.h"

int main() {
    const HostDevice host = make_host_device(make_host_instance());
    bool good = tiny_layer_runs(vkf::Device::create());
    good = tiny_layer_runs(
               vkf::Device::borrow({.instance = host.instance, .physical = host.physical, .device = host.device})) &&
           good;
    finish(host);
    return good ? 0 : 1;
}
