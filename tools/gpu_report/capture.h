// SPDX-License-Identifier: Apache-2.0
// What a driver's compiler tells of its pipelines (VK_KHR_pipeline_executable_properties), and
// which of them are dispatched. Stands between the library and the Vulkan loader.
#pragma once

#include <vkformer/vkformer.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

/// A number that a compiler tells, under the name that it gives it.
using Statistics = std::map<std::string, double>;

/// One dispatch of a pipeline.
struct Dispatch {
    std::string kernel;  ///< the shader's name
    std::uint64_t groups = 0;
    Statistics statistics;
};

/// One lives at a time, and longer than the devices made through it.
class Capture {
public:
    Capture();
    ~Capture();
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;

    /// For DeviceOptions::get_instance_proc_addr. Devices made through it tell of their pipelines
    /// where the driver can.
    static vkf::GetInstanceProcAddr entry();
    /// The dispatches recorded since the last call.
    static std::vector<Dispatch> take();
    /// True when the device made last can tell.
    static bool tells();
};
