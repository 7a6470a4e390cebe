// SPDX-License-Identifier: Apache-2.0
// Attention in a program that has Vulkan of its own: its dispatch, ours, and its dispatch again, in
// its one command buffer and one submit.
#define VOLK_IMPLEMENTATION
#include "host.h"

#include <vkformer/vkformer.h>

#include <cstdio>

#include "check.h"
#include "passes.comp.h"

constexpr std::uint32_t kTokens = 64, kWidth = 8, kCount = kTokens * kWidth, kBytes = kCount * sizeof(float);

int main() try {
    // its buffer holds x and behind it y
    const Host host(2 * kBytes, passes_comp, sizeof(passes_comp));

    vkf::Graph g;
    const vkf::Value x = g.input("x", {1, 1, kTokens, kWidth});
    g.output("y", vkf::scaled_dot_product_attention(x, x, x, {.mask = {.causal = vkf::Causal::top_left}}));
    const vkf::Device device = vkf::Device::borrow(
        {.instance = host.instance,
         .physical = host.physical,
         .device = host.device,
         .get_instance_proc_addr = reinterpret_cast<vkf::GetInstanceProcAddr>(vkGetInstanceProcAddr)});
    vkf::Program attention = device.compile(g);
    attention.allocate();  // scratch; recording allocates nothing

    host.begin();
    host.dispatch(0, kCount / 64);  // makes x
    host.barrier(VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_READ_BIT);
    const vkf::BufferRange ranges[] = {{"x", host.buffer, 0, kBytes}, {"y", host.buffer, kBytes, kBytes}};
    if (const vkf::Status status = attention.record(host.commands, ranges, {}); !status) {
        throw vkf::Error(status.message.data());
    }
    host.barrier(VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
    host.dispatch(1, kCount / 64);  // doubles y
    host.barrier(VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
    host.submit();

    const float* y = host.mapped + kCount;
    const double difference = largest_difference(host.mapped, y, kTokens, kWidth);
    std::printf("%s: y[511] = %g, largest difference from what it must be %.2g\n", device.capabilities().name.c_str(),
                y[511], difference);
    return difference <= 1e-4 && y[0] != 0 ? 0 : 1;  // a NaN is not
} catch (const std::exception& e) {
    std::fprintf(stderr, "minimal_host: %s\n", e.what());
    return 1;
}
