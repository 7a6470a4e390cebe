// SPDX-License-Identifier: Apache-2.0
#include "capture.h"

#include <dlfcn.h>
#include <volk.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace {

struct Kept {
    std::string kernel;
    Statistics statistics;
};

struct State {
    std::mutex mutex;
    PFN_vkGetInstanceProcAddr loader = nullptr;
    VkInstance instance = VK_NULL_HANDLE;
    PFN_vkGetDeviceProcAddr device_functions = nullptr;
    bool tells = false;
    std::map<VkPipeline, Kept> pipelines;
    std::map<VkCommandBuffer, VkPipeline> bound;
    std::vector<Dispatch> dispatches;
};

State* state = nullptr;

template <class Function>
Function of_instance(const char* name) {
    return reinterpret_cast<Function>(state->loader(state->instance, name));
}

template <class Function>
Function of_device(VkDevice device, const char* name) {
    return reinterpret_cast<Function>(state->device_functions(device, name));
}

bool offers(VkPhysicalDevice physical, std::string_view extension) {
    const auto list = of_instance<PFN_vkEnumerateDeviceExtensionProperties>("vkEnumerateDeviceExtensionProperties");
    std::uint32_t count = 0;
    list(physical, nullptr, &count, nullptr);
    std::vector<VkExtensionProperties> all(count);
    list(physical, nullptr, &count, all.data());
    return std::any_of(all.begin(), all.end(),
                       [&](const VkExtensionProperties& e) { return e.extensionName == extension; });
}

VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo* info,
                                             const VkAllocationCallbacks* allocator, VkDevice* device) {
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR feature{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR, const_cast<void*>(info->pNext),
        VK_TRUE};
    std::vector<const char*> extensions(info->ppEnabledExtensionNames,
                                        info->ppEnabledExtensionNames + info->enabledExtensionCount);
    VkDeviceCreateInfo more = *info;
    state->tells = offers(physical, VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
    if (state->tells) {
        extensions.push_back(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
        more.pNext = &feature;
        more.ppEnabledExtensionNames = extensions.data();
        more.enabledExtensionCount = static_cast<std::uint32_t>(extensions.size());
    }
    return of_instance<PFN_vkCreateDevice>("vkCreateDevice")(physical, &more, allocator, device);
}

double number(const VkPipelineExecutableStatisticKHR& s) {
    switch (s.format) {
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR: return s.value.b32;
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR: return static_cast<double>(s.value.i64);
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR: return static_cast<double>(s.value.u64);
        default: return s.value.f64;
    }
}

Statistics ask(VkDevice device, VkPipeline pipeline) {
    const auto list =
        of_device<PFN_vkGetPipelineExecutablePropertiesKHR>(device, "vkGetPipelineExecutablePropertiesKHR");
    const auto tell =
        of_device<PFN_vkGetPipelineExecutableStatisticsKHR>(device, "vkGetPipelineExecutableStatisticsKHR");
    const VkPipelineInfoKHR of_pipeline{VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, nullptr, pipeline};
    std::uint32_t executables = 0;
    list(device, &of_pipeline, &executables, nullptr);
    std::vector<VkPipelineExecutablePropertiesKHR> properties(
        executables, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR, nullptr, 0, {}, {}, 0});
    list(device, &of_pipeline, &executables, properties.data());
    Statistics out;
    for (std::uint32_t i = 0; i < executables; ++i) {
        const VkPipelineExecutableInfoKHR info{VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, nullptr, pipeline, i};
        std::uint32_t count = 0;
        tell(device, &info, &count, nullptr);
        std::vector<VkPipelineExecutableStatisticKHR> all(count, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR,
                                                                  nullptr,
                                                                  {},
                                                                  {},
                                                                  VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR,
                                                                  {}});
        tell(device, &info, &count, all.data());
        for (const VkPipelineExecutableStatisticKHR& s : all) {
            out[s.name] += number(s);
        }
        out["subgroup size"] = properties[i].subgroupSize;
    }
    return out;
}

VKAPI_ATTR VkResult VKAPI_CALL create_pipelines(VkDevice device, VkPipelineCache, std::uint32_t count,
                                                const VkComputePipelineCreateInfo* infos,
                                                const VkAllocationCallbacks* allocator, VkPipeline* out) {
    std::vector<VkComputePipelineCreateInfo> asking(infos, infos + count);
    for (VkComputePipelineCreateInfo& info : asking) {
        info.flags |= state->tells ? VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR : 0;
    }
    // without the cache: what comes from one may have no statistics
    const VkResult result = of_device<PFN_vkCreateComputePipelines>(device, "vkCreateComputePipelines")(
        device, VK_NULL_HANDLE, count, asking.data(), allocator, out);
    if (result == VK_SUCCESS) {
        for (const VkPipeline pipeline : std::span(out, count)) {
            Statistics statistics = state->tells ? ask(device, pipeline) : Statistics();
            const std::scoped_lock lock(state->mutex);
            state->pipelines[pipeline] = {{}, std::move(statistics)};
        }
    }
    return result;
}

VKAPI_ATTR VkResult VKAPI_CALL set_name(VkDevice device, const VkDebugUtilsObjectNameInfoEXT* info) {
    if (info->objectType == VK_OBJECT_TYPE_PIPELINE) {
        VkPipeline pipeline{};
        std::memcpy(&pipeline, &info->objectHandle, sizeof(pipeline));
        const std::scoped_lock lock(state->mutex);
        state->pipelines[pipeline].kernel = info->pObjectName;
    }
    return of_instance<PFN_vkSetDebugUtilsObjectNameEXT>("vkSetDebugUtilsObjectNameEXT")(device, info);
}

VkDevice device_of_commands = VK_NULL_HANDLE;

VKAPI_ATTR void VKAPI_CALL bind(VkCommandBuffer commands, VkPipelineBindPoint point, VkPipeline pipeline) {
    {
        const std::scoped_lock lock(state->mutex);
        state->bound[commands] = pipeline;
    }
    of_device<PFN_vkCmdBindPipeline>(device_of_commands, "vkCmdBindPipeline")(commands, point, pipeline);
}

VKAPI_ATTR void VKAPI_CALL dispatch(VkCommandBuffer commands, std::uint32_t x, std::uint32_t y, std::uint32_t z) {
    {
        const std::scoped_lock lock(state->mutex);
        const Kept& kept = state->pipelines[state->bound[commands]];
        state->dispatches.push_back({kept.kernel, std::uint64_t{x} * y * z, kept.statistics});
    }
    of_device<PFN_vkCmdDispatch>(device_of_commands, "vkCmdDispatch")(commands, x, y, z);
}

PFN_vkVoidFunction ours(std::string_view name);

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_function(VkDevice device, const char* name) {
    device_of_commands = device;
    const PFN_vkVoidFunction real = state->device_functions(device, name);
    const PFN_vkVoidFunction own = real ? ours(name) : nullptr;
    return own ? own : real;
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL instance_function(VkInstance instance, const char* name) {
    if (instance != VK_NULL_HANDLE) {
        state->instance = instance;
        state->device_functions = of_instance<PFN_vkGetDeviceProcAddr>("vkGetDeviceProcAddr");
    }
    const PFN_vkVoidFunction real = state->loader(instance, name);
    const PFN_vkVoidFunction own = real ? ours(name) : nullptr;
    return own ? own : real;
}

PFN_vkVoidFunction ours(std::string_view name) {
    const std::pair<std::string_view, PFN_vkVoidFunction> all[] = {
        {"vkGetInstanceProcAddr", reinterpret_cast<PFN_vkVoidFunction>(instance_function)},
        {"vkGetDeviceProcAddr", reinterpret_cast<PFN_vkVoidFunction>(device_function)},
        {"vkCreateDevice", reinterpret_cast<PFN_vkVoidFunction>(create_device)},
        {"vkCreateComputePipelines", reinterpret_cast<PFN_vkVoidFunction>(create_pipelines)},
        {"vkSetDebugUtilsObjectNameEXT", reinterpret_cast<PFN_vkVoidFunction>(set_name)},
        {"vkCmdBindPipeline", reinterpret_cast<PFN_vkVoidFunction>(bind)},
        {"vkCmdDispatch", reinterpret_cast<PFN_vkVoidFunction>(dispatch)},
    };
    for (const auto& [known, function] : all) {
        if (known == name) {
            return function;
        }
    }
    return nullptr;
}

}  // namespace

Capture::Capture() {
    void* const library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    void* const function = library ? dlsym(library, "vkGetInstanceProcAddr") : nullptr;
    if (!function) {
        throw std::runtime_error("there is no Vulkan loader (libvulkan.so.1)");
    }
    state = new State;
    state->loader = reinterpret_cast<PFN_vkGetInstanceProcAddr>(function);
}

Capture::~Capture() {
    delete state;
    state = nullptr;
}

vkf::GetInstanceProcAddr Capture::entry() { return reinterpret_cast<vkf::GetInstanceProcAddr>(instance_function); }

std::vector<Dispatch> Capture::take() {
    const std::scoped_lock lock(state->mutex);
    return std::exchange(state->dispatches, {});
}

bool Capture::tells() { return state->tells; }
