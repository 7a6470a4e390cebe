// SPDX-License-Identifier: Apache-2.0
// What the tests that call C's functions share.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "c/device.h"
#include "tests/device.h"

namespace vkf::test {

#define OK(call)                                                          \
    do {                                                                  \
        const vkf_result result = (call);                                 \
        REQUIRE_MESSAGE(result == VKF_OK, std::string(vkf_last_error())); \
    } while (false)

template <class T>
T sized() {
    T out{};
    out.struct_size = sizeof(T);
    return out;
}

/// The device of all tests as C sees it: C and C++ then run the same pipelines, which are made
/// once. tests/c makes devices through C.
struct DeviceOfC {
    DeviceOfC() = default;
    ~DeviceOfC() { vkf_device_destroy(device); }
    DeviceOfC(const DeviceOfC&) = delete;
    DeviceOfC& operator=(const DeviceOfC&) = delete;
    vkf_device* device = new vkf_device{test::device()};
};

inline std::string source(const char* path) { return std::string(VKFORMER_SOURCE_DIR) + "/" + path; }

}  // namespace vkf::test
