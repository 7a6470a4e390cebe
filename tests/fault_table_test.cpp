// SPDX-License-Identifier: Apache-2.0
// Every Vulkan function that gives a VkResult fails at its first, second, ..., last call, with each
// code that the specification allows it, in every life of fault_lives.h. A short run takes some of
// the calls, and still every function with each of its codes; VKFORMER_FAULTS=all takes them all.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>

#include "runtime/base/error.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "tests/device.h"
#include "tests/fault_lives.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"
#include "tests/tensor.h"

namespace vkf::test {

namespace {

using Codes = std::vector<VkResult>;

constexpr VkResult kNoHost = VK_ERROR_OUT_OF_HOST_MEMORY, kNoDevice = VK_ERROR_OUT_OF_DEVICE_MEMORY,
                   kLost = VK_ERROR_DEVICE_LOST, kRefused = VK_ERROR_UNKNOWN;

/// The errors that Vulkan 1.3 allows each function.
const std::map<std::string_view, Codes>& fault_codes() {
    static const Codes memory{kNoHost, kNoDevice}, lost{kNoHost, kNoDevice, kLost};
    static const std::map<std::string_view, Codes> codes{
        {"vkCreateInstance",
         {kNoHost, kNoDevice, VK_ERROR_INITIALIZATION_FAILED, VK_ERROR_LAYER_NOT_PRESENT,
          VK_ERROR_EXTENSION_NOT_PRESENT, VK_ERROR_INCOMPATIBLE_DRIVER}},
        {"vkEnumerateInstanceExtensionProperties", {kNoHost, kNoDevice, VK_ERROR_LAYER_NOT_PRESENT}},
        {"vkEnumerateInstanceLayerProperties", memory},
        {"vkEnumerateInstanceVersion", {kNoHost}},
        {"vkEnumeratePhysicalDevices", {kNoHost, kNoDevice, VK_ERROR_INITIALIZATION_FAILED}},
        {"vkEnumerateDeviceExtensionProperties", {kNoHost, kNoDevice, VK_ERROR_LAYER_NOT_PRESENT}},
        {"vkCreateDevice",
         {kNoHost, kNoDevice, VK_ERROR_INITIALIZATION_FAILED, VK_ERROR_EXTENSION_NOT_PRESENT,
          VK_ERROR_FEATURE_NOT_PRESENT, VK_ERROR_TOO_MANY_OBJECTS, kLost}},
#ifdef VK_KHR_cooperative_matrix
        {"vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR", memory},
#endif
        {"vkCreateDebugUtilsMessengerEXT", {kNoHost}},
        {"vkSetDebugUtilsObjectNameEXT", memory},
        {"vkQueueSubmit", lost},
        {"vkQueueWaitIdle", lost},
        {"vkAllocateMemory", {kNoHost, kNoDevice, VK_ERROR_TOO_MANY_OBJECTS, VK_ERROR_INVALID_EXTERNAL_HANDLE}},
        {"vkMapMemory", {kNoHost, kNoDevice, VK_ERROR_MEMORY_MAP_FAILED}},
        {"vkCreateBuffer", memory},
        {"vkCreateBufferView", memory},
        {"vkBindBufferMemory", memory},
        {"vkCreateShaderModule", {kNoHost, kNoDevice, kRefused}},
        {"vkCreatePipelineCache", memory},
        {"vkGetPipelineCacheData", memory},
        {"vkMergePipelineCaches", memory},  // pipeline_cache_test.cpp fails it
        // lost is no code of its own; drivers give it
        {"vkCreateComputePipelines", {kNoHost, kNoDevice, kLost, kRefused}},
        {"vkCreatePipelineLayout", memory},
        {"vkCreateDescriptorSetLayout", memory},
        {"vkCreateDescriptorPool", {kNoHost, kNoDevice, VK_ERROR_FRAGMENTATION}},
        {"vkAllocateDescriptorSets", {kNoHost, kNoDevice, VK_ERROR_FRAGMENTED_POOL, VK_ERROR_OUT_OF_POOL_MEMORY}},
        {"vkCreateCommandPool", memory},
        {"vkAllocateCommandBuffers", memory},
        {"vkBeginCommandBuffer", memory},
        {"vkEndCommandBuffer", memory},
        {"vkCreateQueryPool", memory},
        {"vkGetQueryPoolResults", lost},
        {"vkCreateSemaphore", memory},
        {"vkCreateFence", memory},
        {"vkResetFences", {kNoDevice}},
        {"vkWaitForFences", lost},
        {"vkGetMemoryFdKHR", {VK_ERROR_TOO_MANY_OBJECTS, kNoHost}},
        {"vkWaitSemaphoresKHR", lost},
        {"vkGetMemoryHostPointerPropertiesEXT", {kNoHost, VK_ERROR_INVALID_EXTERNAL_HANDLE}},
    };
    return codes;
}

/// Without them all goes on: pipelines are built without a cache, objects have no names, and a
/// queue is waited for again, as it is where a semaphore cannot be.
const std::set<std::string_view> kSurvived{"vkCreatePipelineCache", "vkGetPipelineCacheData",
                                           "vkMergePipelineCaches", "vkSetDebugUtilsObjectNameEXT",
                                           "vkQueueWaitIdle",       "vkWaitSemaphoresKHR"};

/// Is called only where a semaphore cannot be waited for.
constexpr std::string_view kWaitsForQueue = "vkQueueWaitIdle";

struct FailingFunction {
    std::string_view name;
    void (*fail)(fake::Vulkan&, VkResult, std::uint64_t nth);
    std::uint64_t (*calls)(const fake::Vulkan&);
};

template <auto Member>
void add_failing(std::vector<FailingFunction>& all, std::string_view name) {
    using Hooked = std::remove_reference_t<decltype(std::declval<fake::Vulkan&>().*Member)>;
    if constexpr (Hooked::kGivesResult) {
        all.push_back({name, [](fake::Vulkan& v, VkResult result, std::uint64_t nth) { (v.*Member).fail(result, nth); },
                       [](const fake::Vulkan& v) { return (v.*Member).calls.load(); }});
    }
}

/// All that give a VkResult.
std::vector<FailingFunction> failing_functions() {
    std::vector<FailingFunction> all;
#define FAULT_FUNCTION(function) add_failing<&fake::Vulkan::function>(all, #function);
    FAKE_FUNCTIONS(FAULT_FUNCTION)
#undef FAULT_FUNCTION
    return all;
}

bool all_faults() {
    const char* asked = std::getenv("VKFORMER_FAULTS");
    return asked != nullptr && std::string_view(asked) == "all";
}

/// What a life with one failing call did, beyond what is checked here.
struct FaultCount {
    std::uint64_t failed_calls = 0, lost_devices = 0, lives = 0;
    std::uint64_t replaced = 0;  ///< kernels that others stood in for
    std::set<std::pair<std::string_view, VkResult>> pairs;
};

/// `beside` is a program of another device.
void live_with_fault(const Life& life, const FailingFunction& function, VkResult code, std::uint64_t nth,
                     Program& beside, FaultCount& count) {
    const std::string name = life.name;
    CAPTURE(name);
    CAPTURE(function.name);
    CAPTURE(result_name(code));
    CAPTURE(nth);
    fake::Vulkan vulkan;
    const bool ends = code == kLost;
    Attempts attempt(ends);
    function.fail(vulkan, code, nth);
    if (function.name == kWaitsForQueue) {
        vulkan.vkWaitSemaphoresKHR.fail(kNoHost, 1, 1000);
    }
    std::string thrown;
    try {
        life.live(vulkan, attempt);
    } catch (const std::exception& e) {
        thrown = e.what();
    }
    ++count.lives;
    ++count.failed_calls;
    count.pairs.emplace(function.name, code);
    CAPTURE(thrown);
    CHECK(attempt.take_messages() == "");
    CHECK(function.calls(vulkan) >= nth);
    CHECK(SmallModel::check(beside, 2) == "");
    CHECK(vulkan.live_objects() == 0);
    CHECK(vulkan.allocated_bytes() == 0);
    if (kSurvived.count(function.name) != 0) {
        CHECK(attempt.errors().size() <= 1);
        CHECK((thrown.empty() || ends));
        return;
    }
    // where another kernel is left, or memory of another type, it stands in, and all goes on
    const std::string_view called = function.name;
    const bool kernel = called == "vkCreateShaderModule" || called == "vkCreateComputePipelines";
    const bool memory = called == "vkAllocateMemory" && Insides::core(device()).memory.memoryTypeCount > 1;
    const bool elsewhere = (kernel && code != kLost) || (memory && (code == kNoHost || code == kNoDevice));
    CHECK((attempt.errors().size() == 1 || (elsewhere && attempt.errors().empty())));
    if (attempt.errors().empty()) {
        count.replaced += 1;
        CHECK(thrown.empty());
        return;
    }
    CAPTURE(attempt.errors()[0]);
    CHECK((contains(attempt.errors()[0], result_name(code)) || code == VK_ERROR_INCOMPATIBLE_DRIVER));
    CHECK(thrown.empty() != ends);
    if (ends) {  // a new device lives where this one was lost
        ++count.lost_devices;
        Attempts again(true);
        life.live(vulkan, again);
        CHECK(again.errors().empty());
        CHECK(again.take_messages() == "");
        CHECK(vulkan.live_objects() == 0);
    }
}

}  // namespace

TEST_SUITE("faults") {
    TEST_CASE("faults: the table names every function that can fail") {
        for (const FailingFunction& f : failing_functions()) {
            CAPTURE(f.name);
            CHECK(fault_codes().count(f.name) == 1);
        }
        CHECK(fault_codes().size() == failing_functions().size());
    }

    TEST_CASE("faults: every function fails at every call with every code, in every life") {
        FaultCount count;
        std::size_t turn = 0;
        Graph g;
        SmallModel::describe(g, 2);
        Program beside = device().compile(g, SmallModel::load(device()));
        for (const Life& life : fault_lives()) {
            fake::Vulkan whole;
            Attempts attempt(true);
            life.live(whole, attempt);
            REQUIRE(attempt.errors().empty());
            REQUIRE(attempt.take_messages() == "");
            REQUIRE(whole.live_objects() == 0);
            for (const FailingFunction& f : failing_functions()) {
                const std::uint64_t calls =
                    f.name == kWaitsForQueue ? whole.vkWaitSemaphoresKHR.calls.load() : f.calls(whole);
                const Codes& codes = fault_codes().at(f.name);
                for (std::uint64_t nth = 1; nth <= calls; ++nth) {
                    const bool chosen = nth == 1 || nth == calls;
                    for (std::size_t c = 0; c < codes.size(); ++c) {
                        const bool turn_of_it = (turn + nth) % codes.size() == c;
                        const bool new_pair = count.pairs.count({f.name, codes[c]}) == 0;
                        if (all_faults() || (chosen && turn_of_it) || new_pair) {
                            live_with_fault(life, f, codes[c], nth, beside, count);
                        }
                    }
                }
                ++turn;
            }
        }
        std::size_t pairs = 0;
        for (const auto& [name, codes] : fault_codes()) {
            pairs += codes.size();
        }
        std::printf(
            "faults: %llu calls failed in %llu lives of %zu kinds, %zu of %zu pairs of function and code, "
            "%llu devices lost, %llu kernels replaced\n",
            static_cast<unsigned long long>(count.failed_calls), static_cast<unsigned long long>(count.lives),
            fault_lives().size(), count.pairs.size(), pairs, static_cast<unsigned long long>(count.lost_devices),
            static_cast<unsigned long long>(count.replaced));
    }
}

}  // namespace vkf::test
