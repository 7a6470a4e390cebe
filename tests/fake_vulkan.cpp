// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_vulkan.h"

#include <numeric>
#include <string_view>
#include <tuple>

#include "runtime/base/library.h"

namespace fake {

namespace {

Vulkan* current = nullptr;

constexpr bool starts_with(std::string_view text, std::string_view start) {
    return text.substr(0, start.size()) == start;
}

constexpr bool creates(std::string_view name) { return starts_with(name, "vkCreate") || name == "vkAllocateMemory"; }

constexpr bool destroys(std::string_view name) { return starts_with(name, "vkDestroy") || name == "vkFreeMemory"; }

/// The function that is put in the tables: it leads to the member of the Vulkan that lives, and
/// keeps books.
template <auto Member, const char* const& Name, class Function>
struct Entry;

template <auto Member, const char* const& Name, class R, class... A>
struct Entry<Member, Name, R(VKAPI_PTR*)(A...)> {
    static VKAPI_ATTR R VKAPI_CALL call(A... arguments) {
        Vulkan& vulkan = *current;
        const std::string_view name = Name;
        const auto all = std::tie(arguments...);
        if (destroys(name)) {
            if constexpr (sizeof...(A) == 3) {
                vulkan.count_object(std::get<1>(all) ? -1 : 0);
            } else if constexpr (sizeof...(A) == 2) {
                vulkan.count_object(std::get<0>(all) ? -1 : 0);
            }
        }
        if constexpr (std::is_same_v<decltype(Member), decltype(&Vulkan::vkDestroyBuffer)>) {
            if (name == "vkDestroyBuffer") {
                vulkan.note_buffer(std::get<1>(all), 0);
            }
        } else if constexpr (std::is_same_v<decltype(Member), decltype(&Vulkan::vkFreeMemory)>) {
            vulkan.note_memory(std::get<1>(all), 0);
        }
        if constexpr (std::is_void_v<R>) {
            (vulkan.*Member)(arguments...);
        } else {
            const R result = (vulkan.*Member)(arguments...);
            if constexpr (std::is_same_v<R, VkResult>) {
                if (result == VK_SUCCESS && creates(name)) {
                    vulkan.count_object(1);
                    const allocations::Pause pause;
                    if constexpr (std::is_same_v<decltype(Member), decltype(&Vulkan::vkCreateBuffer)>) {
                        vulkan.note_buffer(*std::get<3>(all), std::get<1>(all)->size);
                    } else if constexpr (std::is_same_v<decltype(Member), decltype(&Vulkan::vkAllocateMemory)>) {
                        vulkan.note_memory(*std::get<3>(all), std::get<1>(all)->allocationSize);
                    }
                }
            }
            return result;
        }
    }
};

#define FAKE_NAME(name) constexpr const char* kName_##name = #name;
FAKE_FUNCTIONS(FAKE_NAME)
#undef FAKE_NAME

/// The layer's function of that name; null for those it lets through.
PFN_vkVoidFunction find(std::string_view name) {
#define FAKE_FIND(function)                                                     \
    if (name == #function) {                                                    \
        return reinterpret_cast<PFN_vkVoidFunction>(                            \
            &Entry<&Vulkan::function, kName_##function, PFN_##function>::call); \
    }
    FAKE_FUNCTIONS(FAKE_FIND)
#undef FAKE_FIND
    return nullptr;
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance_proc_addr(VkInstance instance, const char* name) {
    const PFN_vkVoidFunction real = loader()(instance, name);
    const PFN_vkVoidFunction ours = real ? find(name) : nullptr;
    if (!ours) {
        return real;
    }
#define FAKE_REAL(function)                                               \
    if (std::string_view(name) == #function && !current->function.real) { \
        current->function.real = reinterpret_cast<PFN_##function>(real);  \
    }
    // extensions' functions, which the loader's library does not export
    VKF_INSTANCE_FUNCTIONS_OPTIONAL(FAKE_REAL)
#undef FAKE_REAL
    return ours;
}

}  // namespace

PFN_vkGetInstanceProcAddr loader() {
    static const vkf::SharedLibrary library{"libvulkan.so.1", "libvulkan.so", "vulkan-1.dll"};
    static void* const symbol = library ? library.symbol("vkGetInstanceProcAddr") : nullptr;
    return reinterpret_cast<PFN_vkGetInstanceProcAddr>(symbol);
}

Vulkan::Vulkan() {
    static const vkf::SharedLibrary library{"libvulkan.so.1", "libvulkan.so", "vulkan-1.dll"};
#define FAKE_REAL(name) name.real = reinterpret_cast<PFN_##name>(library.symbol(#name));
    FAKE_FUNCTIONS(FAKE_REAL)
#undef FAKE_REAL
    vkEndCommandBuffer.fails_after = true;
    vkQueueWaitIdle.fails_after = true;
    vkGetDeviceProcAddr.instead = [this](VkDevice device, const char* name) {
        const PFN_vkVoidFunction theirs = vkGetDeviceProcAddr.real(device, name);
        const PFN_vkVoidFunction ours = theirs ? find(name) : nullptr;
#define FAKE_REAL(function)                                       \
    if (ours && std::string_view(name) == #function) {            \
        function.real = reinterpret_cast<PFN_##function>(theirs); \
    }
        VKF_DEVICE_FUNCTIONS_OPTIONAL(FAKE_REAL)
#undef FAKE_REAL
        return ours ? ours : theirs;
    };
    current = this;
}

Vulkan::~Vulkan() { current = nullptr; }

vkf::GetInstanceProcAddr Vulkan::entry() const {
    return reinterpret_cast<vkf::GetInstanceProcAddr>(get_instance_proc_addr);
}

void Vulkan::change_limits(std::function<void(VkPhysicalDeviceLimits&)> change) {
    vkGetPhysicalDeviceProperties2.instead = [this, change](VkPhysicalDevice device,
                                                            VkPhysicalDeviceProperties2* properties) {
        vkGetPhysicalDeviceProperties2.real(device, properties);
        change(properties->properties.limits);
    };
}

std::uint64_t Vulkan::buffer_bytes() const {
    const std::scoped_lock lock(mutex_);
    return std::accumulate(buffers_.begin(), buffers_.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const auto& b) { return sum + b.second; });
}

std::uint64_t Vulkan::allocated_bytes() const {
    const std::scoped_lock lock(mutex_);
    return std::accumulate(memory_.begin(), memory_.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const auto& m) { return sum + m.second; });
}

void Vulkan::note_buffer(VkBuffer buffer, std::uint64_t bytes) {
    const std::scoped_lock lock(mutex_);
    if (bytes != 0) {
        buffers_[buffer] = bytes;
    } else {
        buffers_.erase(buffer);
    }
}

void Vulkan::note_memory(VkDeviceMemory memory, std::uint64_t bytes) {
    const std::scoped_lock lock(mutex_);
    if (bytes != 0) {
        memory_[memory] = bytes;
    } else {
        memory_.erase(memory);
    }
}

}  // namespace fake
