// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "tests/device.h"

namespace vkf::test {

/// The test device with other capabilities, while it lives.
class Believed {
public:
    template <class F>
    explicit Believed(F change) : before_(device().capabilities()) {
        change(Insides::core(device()).capabilities);
    }
    ~Believed() { Insides::core(device()).capabilities = before_; }
    Believed(const Believed&) = delete;
    Believed& operator=(const Believed&) = delete;

private:
    Capabilities before_;
};

/// Has a device, for Believed, pass for a GPU that chooses its kernels itself.
inline void as_gpu(Capabilities& c) {
    c.type = DeviceType::discrete;
    c.int64 = false;
    c.variants.clear();
}

}  // namespace vkf::test
