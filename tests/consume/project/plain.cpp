// SPDX-License-Identifier: Apache-2.0
// An outside project that knows nothing of Vulkan. An error thrown by the library is caught as what
// it is.
#include <cstdio>

#include "tiny_layer.h"

int main() {
    try {
        vkf::Device::create({.select = "no device has this name"});
        std::puts("a device of no name was found");
        return 1;
    } catch (const vkf::Error& error) {
        std::printf("as it should be: %s\n", error.what());
    }
    return tiny_layer_runs(vkf::Device::create()) ? 0 : 1;
}
