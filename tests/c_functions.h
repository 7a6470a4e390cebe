// SPDX-License-Identifier: Apache-2.0
// What the tests that call C's functions share.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "c/vkformer_c.h"

namespace vkf::test {

#define OK(call)                                             \
    do {                                                     \
        const vkf_result result = (call);                    \
        REQUIRE_MESSAGE(result == VKF_OK, vkf_last_error()); \
    } while (false)

template <class T>
T sized() {
    T out{};
    out.struct_size = sizeof(T);
    return out;
}

struct DeviceOfC {
    DeviceOfC() { OK(vkf_device_create(nullptr, &device)); }
    ~DeviceOfC() { vkf_device_destroy(device); }
    DeviceOfC(const DeviceOfC&) = delete;
    DeviceOfC& operator=(const DeviceOfC&) = delete;
    vkf_device* device = nullptr;
};

inline std::string source(const char* path) { return std::string(VKFORMER_SOURCE_DIR) + "/" + path; }

}  // namespace vkf::test
