// SPDX-License-Identifier: Apache-2.0
// Which device is taken, what is said when there is none, and what the minimum profile believes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "ops/ops.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "tests/device.h"
#include "tests/fake_vulkan.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

#if defined(__unix__)
#include <unistd.h>
#endif

namespace vkf::test {

namespace {

/// Devices that are all the first real one, under other names and types.
struct FakeDevices {
    fake::Vulkan vulkan;
    VkPhysicalDevice real = VK_NULL_HANDLE;
    // a loader's handles lead to its tables, so a device is told from the others by the order of
    // asking
    struct Claim {
        const char* name;
        VkPhysicalDeviceType type;
        std::uint32_t api_version;
    };
    std::vector<Claim> claims;
    std::size_t next = 0;

    explicit FakeDevices(std::vector<Claim> devices) : claims(std::move(devices)) {
        vulkan.vkEnumeratePhysicalDevices.instead = [this](VkInstance instance, std::uint32_t* count,
                                                           VkPhysicalDevice* out) {
            next = 0;
            std::uint32_t one = 1;
            vulkan.vkEnumeratePhysicalDevices.real(instance, &one, &real);
            *count = static_cast<std::uint32_t>(claims.size());
            std::fill_n(out, out ? claims.size() : 0, real);
            return VK_SUCCESS;
        };
        vulkan.vkGetPhysicalDeviceProperties2.instead = [this](VkPhysicalDevice device,
                                                               VkPhysicalDeviceProperties2* out) {
            vulkan.vkGetPhysicalDeviceProperties2.real(device, out);
            next += out->pNext ? 0 : 1;  // a device's first question is the one that chains nothing
            const Claim& claim = claims[(next + claims.size() - 1) % claims.size()];
            std::strncpy(out->properties.deviceName, claim.name, sizeof(out->properties.deviceName) - 1);
            out->properties.deviceType = claim.type;
            out->properties.apiVersion = claim.api_version;
        };
    }

    std::string chosen(const std::string& select) {
        return Device::create({.select = select, .get_instance_proc_addr = vulkan.entry()}).capabilities().name;
    }
};

std::string upper(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return text;
}

}  // namespace

TEST_SUITE("device") {
    TEST_CASE("device: a number that is no index may be a part of the name") {
        FakeDevices fakes({{"Graphics 3060", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU, VK_API_VERSION_1_3},
                           {"Graphics 4090", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU, VK_API_VERSION_1_3}});
        CHECK(fakes.chosen("4090") == "Graphics 4090");
        CHECK(fakes.chosen("1") == "Graphics 4090");
        for (const char* part : {"2", "3", "40", "90", "409"}) {
            CHECK(contains(error_of([&] { fakes.chosen(part); }), "no device \"" + std::string(part) + "\""));
        }
    }

    TEST_CASE("device: what is not to be printed in a driver's texts is replaced") {
        FakeDevices fakes({{"bad\xff \n name", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU, VK_API_VERSION_1_3}});
        CHECK(fakes.chosen("0") == "bad? ? name");
    }

    TEST_CASE("device: a whole name goes before a name that it is part of") {
        FakeDevices fakes({{"Graphics 3060 Ti", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU, VK_API_VERSION_1_3},
                           {"Graphics 3060", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU, VK_API_VERSION_1_3}});
        CHECK(fakes.chosen("graphics 3060") == "Graphics 3060");
        CHECK(fakes.chosen("3060") == "Graphics 3060 Ti");
    }

    TEST_CASE("device: chosen by index, by part of the name, by the environment, or by kind") {
        const Environment none("VKFORMER_DEVICE", std::nullopt);
        FakeDevices fakes({{"Slow Processor", VK_PHYSICAL_DEVICE_TYPE_CPU, VK_API_VERSION_1_2},
                           {"Small Graphics", VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU, VK_API_VERSION_1_1},
                           {"Large Graphics", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU, VK_API_VERSION_1_3},
                           {"Guest Graphics", VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU, VK_API_VERSION_1_1}});
        CHECK(fakes.chosen("") == "Large Graphics");
        CHECK(fakes.chosen("0") == "Slow Processor");
        CHECK(fakes.chosen("1") == "Small Graphics");
        CHECK(fakes.chosen("slow") == "Slow Processor");
        CHECK(fakes.chosen("GRAPHICS") == "Small Graphics");  // the first that fits
        const char* known = "there are: 0 Slow Processor, 1 Small Graphics, 2 Large Graphics, 3 Guest Graphics";
        CHECK(contains(error_of([&] { fakes.chosen("teapot"); }), "no device \"teapot\""));
        CHECK(contains(error_of([&] { fakes.chosen("teapot"); }), known));
        CHECK(contains(error_of([&] { fakes.chosen("4"); }), known));
        CHECK(contains(error_of([&] { fakes.chosen("99999999999999999999"); }), known));
        const Environment small("VKFORMER_DEVICE", "small");
        CHECK(fakes.chosen("") == "Small Graphics");
        CHECK(fakes.chosen("2") == "Large Graphics");  // what is said in the program goes first
        fakes.claims.erase(fakes.claims.begin() + 1, fakes.claims.begin() + 3);
        const Environment gone("VKFORMER_DEVICE", "");
        CHECK(fakes.chosen("") == "Guest Graphics");
    }

    TEST_CASE("device: one of Vulkan 1.0 is not offered") {
        const Environment none("VKFORMER_DEVICE", std::nullopt);
        FakeDevices fakes({{"Old Graphics", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU, VK_API_VERSION_1_0},
                           {"Slow Processor", VK_PHYSICAL_DEVICE_TYPE_CPU, VK_API_VERSION_1_1}});
        CHECK(Device::list(fakes.vulkan.entry()).size() == 1);
        CHECK(fakes.chosen("") == "Slow Processor");
        CHECK(contains(error_of([&] { fakes.chosen("old"); }), "there are: 0 Slow Processor"));
        fakes.claims.pop_back();
        CHECK(contains(error_of([&] { fakes.chosen(""); }), "no usable Vulkan device"));
    }

    TEST_CASE("device: one whose driver cannot be asked does not hide the others") {
        const Environment none("VKFORMER_DEVICE", std::nullopt);
        FakeDevices fakes({{"Broken Graphics", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU, VK_API_VERSION_1_3},
                           {"Slow Processor", VK_PHYSICAL_DEVICE_TYPE_CPU, VK_API_VERSION_1_1}});
        const auto breaks = [&](std::uint64_t times) {
            fakes.vulkan.vkEnumerateDeviceExtensionProperties.fail(VK_ERROR_INITIALIZATION_FAILED, 1, times);
        };
        breaks(1);
        std::vector<std::string> broken{"of an earlier call"};
        CHECK(Device::list(fakes.vulkan.entry(), &broken).size() == 1);
        REQUIRE(broken.size() == 1);
        CHECK(contains(broken[0], "VK_ERROR_INITIALIZATION_FAILED"));
        CHECK(Device::list(fakes.vulkan.entry(), &broken).size() == 2);
        CHECK(broken.empty());
        breaks(1);
        CHECK(fakes.chosen("") == "Slow Processor");
        breaks(1);
        const std::string said = error_of([&] { fakes.chosen("broken"); });
        CHECK(contains(said, "there are: 0 Slow Processor; one cannot be asked: "));
        CHECK(contains(said, "VK_ERROR_INITIALIZATION_FAILED"));
        breaks(1000);
        CHECK(contains(error_of([&] { Device::list(fakes.vulkan.entry()); }), "VK_ERROR_INITIALIZATION_FAILED"));
        breaks(0);
        CHECK(fakes.vulkan.live_objects() == 0);
    }

    TEST_CASE("device: the real ones are listed and found by name") {
        const std::vector<Capabilities> all = Device::list();
        REQUIRE(!all.empty());
        for (std::size_t i = 0; i < all.size(); ++i) {
            CHECK(all[i].api_version >= VK_API_VERSION_1_1);
            CHECK(!all[i].name.empty());
            CHECK(!all[i].driver.empty());
            CHECK(Device::create({.select = std::to_string(i)}).capabilities().name == all[i].name);
        }
        CHECK(Device::create({.select = upper(all[0].name)}).capabilities().name == all[0].name);
    }

    TEST_CASE("device: no Vulkan, an old one, none that works") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        const auto nothing = [](VkInstance, const char*) -> void (*)(void) { return nullptr; };
        CHECK(contains(error_of([&] { Device::create({.get_instance_proc_addr = nothing}); }), "Vulkan"));
        CHECK(contains(error_of([&] { Device::list(nothing); }), "Vulkan"));
        {
            fake::Vulkan vulkan;
            vulkan.vkEnumerateInstanceVersion.instead = [](std::uint32_t* version) {
                *version = VK_API_VERSION_1_0;
                return VK_SUCCESS;
            };
            CHECK(contains(error_of([&] { Device::list(vulkan.entry()); }), "older than 1.1"));
        }
        fake::Vulkan vulkan;
        const auto create = [&] { Device::create({.get_instance_proc_addr = vulkan.entry()}); };
        vulkan.vkCreateInstance.fail(VK_ERROR_INCOMPATIBLE_DRIVER);
        CHECK(contains(error_of(create), "no Vulkan driver"));
        vulkan.vkCreateDevice.fail(VK_ERROR_INITIALIZATION_FAILED);
        CHECK(contains(error_of(create), "vkCreateDevice gave VK_ERROR_INITIALIZATION_FAILED"));
        CHECK(error_of(create) == "");  // and then it works
        vulkan.vkGetPhysicalDeviceQueueFamilyProperties.instead = [](VkPhysicalDevice, std::uint32_t* count,
                                                                     VkQueueFamilyProperties* out) {
            *count = 1;
            if (out) {
                *out = {VK_QUEUE_TRANSFER_BIT, 1, 64, {1, 1, 1}};
            }
        };
        CHECK(contains(error_of(create), "none offers Vulkan 1.1 and a compute queue"));
        vulkan.vkEnumeratePhysicalDevices.instead = [](VkInstance, std::uint32_t* count, VkPhysicalDevice*) {
            *count = 0;
            return VK_SUCCESS;
        };
        CHECK(contains(error_of(create), "no usable Vulkan device"));
        CHECK(Device::list(vulkan.entry()).empty());
        CHECK(vulkan.live_objects() == 0);
    }

    TEST_CASE("device: validation that is not installed is an error") {
        fake::Vulkan vulkan;
        vulkan.vkEnumerateInstanceLayerProperties.instead = [](std::uint32_t* count, VkLayerProperties*) {
            *count = 0;
            return VK_SUCCESS;
        };
        CHECK(
            contains(error_of([&] { Device::create({.validation = true, .get_instance_proc_addr = vulkan.entry()}); }),
                     "VK_LAYER_KHRONOS_validation is not installed"));
        CHECK(vulkan.live_objects() == 0);
    }

    TEST_CASE("device: a validation message for which there is no memory is lost, and throws nothing") {
        const char* validation = std::getenv("VKFORMER_VALIDATION");
        if (!validation || std::string(validation) != "1" || !allocations::can_fail()) {
            cannot_run("validation, or memory that fails");
            return;
        }
        fake::Vulkan vulkan;
        VkDebugUtilsMessengerCreateInfoEXT messenger{};
        vulkan.vkCreateDebugUtilsMessengerEXT.instead = [&](VkInstance instance,
                                                            const VkDebugUtilsMessengerCreateInfoEXT* info, auto... a) {
            messenger = *info;
            return vulkan.vkCreateDebugUtilsMessengerEXT.real(instance, info, a...);
        };
        const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
        REQUIRE(static_cast<bool>(messenger.pfnUserCallback));
        VkDebugUtilsMessengerCallbackDataEXT data{};
        data.pMessage = "a text that is longer than what a string holds without memory";
        const auto tell = [&] {
            return messenger.pfnUserCallback(VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
                                             VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT, &data,
                                             messenger.pUserData);
        };
        for (std::uint64_t nth = 1; nth <= 2; ++nth) {
            const allocations::Failing failing(nth, true);
            CHECK_NOTHROW(tell());
        }
        CHECK(device.messages().empty());
        CHECK(tell() == VK_FALSE);
        CHECK(device.messages() == std::vector<std::string>{std::string("error: ") + data.pMessage});
    }

    TEST_CASE("device: of many validation messages the first are kept, and the others counted") {
        MessageLog log;
        for (std::size_t i = 0; i < MessageLog::kMost + 3; ++i) {
            log.add("error: " + std::to_string(i));
        }
        const std::vector<std::string> messages = log.take();
        REQUIRE(messages.size() == MessageLog::kMost + 1);
        CHECK(messages[MessageLog::kMost - 1] == "error: " + std::to_string(MessageLog::kMost - 1));
        CHECK(messages.back() == "warning: 3 further messages were not kept");
        log.add("error: another");
        CHECK(log.take() == std::vector<std::string>{"error: another"});
    }

#if defined(__unix__)
    TEST_CASE("device: validation messages that nobody takes are printed where the variable asked for them") {
        if (!validated()) {
            cannot_run("validation");
            return;
        }
        const auto printed = [](const DeviceOptions& options, bool take, bool give_up) {
            std::FILE* file = std::tmpfile();
            std::fflush(stderr);
            const int before = dup(2);
            dup2(fileno(file), 2);
            {
                const Device device = Device::create(options);
                Insides::core(device).instance->log.add("error: planted");
                if (take) {
                    device.messages();
                }
                Insides::core(device).given_up = give_up;
            }
            std::fflush(stderr);
            dup2(before, 2);
            close(before);
            std::rewind(file);
            char text[4096];
            const std::string said(text, std::fread(text, 1, sizeof(text), file));
            std::fclose(file);
            return said;
        };
        const std::string line = "vkformer: validation error: planted\n";
        {
            const Environment on("VKFORMER_VALIDATION", "1");
            CHECK(printed({}, false, false) == line);
            CHECK(printed({}, false, true) == line);
            CHECK(printed({}, true, false) == "");
        }
        const Environment off("VKFORMER_VALIDATION", std::nullopt);
        CHECK(printed({.validation = true}, false, false) == "");
    }
#endif

    TEST_CASE("device: the minimum profile believes what Vulkan 1.1 guarantees") {
        const Environment full("VKFORMER_PROFILE", std::nullopt);
        const Capabilities want;  // its defaults are the guarantees
        const auto check = [&](const Capabilities& got) {
            CHECK(got.minimum_profile);
            CHECK(got.max_invocations == want.max_invocations);
            CHECK(got.max_group_size == want.max_group_size);
            CHECK(got.max_groups == want.max_groups);
            CHECK(got.shared_memory == want.shared_memory);
            CHECK(got.push_constants == 128);
            CHECK(got.storage_buffers == 4);
            CHECK(got.storage_alignment == 256);
            CHECK(got.storage_range == 128u << 20);
            CHECK_FALSE(got.subgroup_arithmetic);
            CHECK_FALSE(got.subgroup_quad);
            CHECK_FALSE(got.texel_buffers);
            CHECK_FALSE(got.storage_16bit);
            CHECK_FALSE(got.unified_memory);
        };
        CHECK_FALSE(Device::create().capabilities().minimum_profile);
        check(Device::create({.minimum_profile = true}).capabilities());
        {
            const Environment misspelled("VKFORMER_PROFILE", "minimal");
            CHECK(contains(error_of([&] { Device::create(); }),
                           "VKFORMER_PROFILE: is \"minimal\"; there is \"minimum\" alone"));
        }
        const auto explained = [](const Device& device) {
            Graph g;
            SmallModel::describe(g, 9);
            return device.compile(g, SmallModel::load(device)).explain();
        };
        CHECK_FALSE(contains(explained(Device::create({.minimum_profile = true})), "VKFORMER_PROFILE"));
        const Environment minimum("VKFORMER_PROFILE", "minimum");
        const Device by_variable = Device::create();
        check(by_variable.capabilities());
        CHECK(contains(explained(by_variable), ", minimum profile of VKFORMER_PROFILE"));
    }

    TEST_CASE("device: f16 is kept and rounded as asked, and fp32 alike where it has to be") {
        const Environment full("VKFORMER_PROFILE", std::nullopt);
        const Capabilities real = Device::create().capabilities();
        if (!real.float_controls) {
            cannot_run("VK_KHR_shader_float_controls");
            return;
        }
        for (const auto independence :
             {VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_32_BIT_ONLY, VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_ALL,
              VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE}) {
            CAPTURE(independence);
            VkBool32 nearest_f32 = VK_TRUE;
            fake::Vulkan vulkan;
            vulkan.vkGetPhysicalDeviceProperties2.instead = [&](VkPhysicalDevice device,
                                                                VkPhysicalDeviceProperties2* out) {
                vulkan.vkGetPhysicalDeviceProperties2.real(device, out);
                auto* floats = static_cast<VkPhysicalDeviceFloatControlsProperties*>(out->pNext);
                if (floats && floats->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES) {
                    floats->shaderDenormPreserveFloat16 = VK_TRUE;
                    floats->shaderRoundingModeRTEFloat16 = VK_TRUE;
                    floats->denormBehaviorIndependence = independence;
                    floats->roundingModeIndependence = independence;
                    floats->shaderRoundingModeRTEFloat32 = nearest_f32;
                }
            };
            const auto created = [&] {
                return Device::create({.get_instance_proc_addr = vulkan.entry()}).capabilities();
            };
            const bool alone = independence != VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE;
            for (const VkBool32 nearest : {VK_TRUE, VK_FALSE}) {
                nearest_f32 = nearest;
                const Capabilities got = created();
                CHECK(got.keeps_subnormal_f16 == alone);
                CHECK((!real.float16 || got.float16 == (alone || nearest == VK_TRUE)));
                CHECK((!got.float16 || got.rounds_alike == !alone));
            }
        }
    }

    TEST_CASE("device: a variable that switches something is 0 or 1") {
        for (const std::string name : {"VKFORMER_CHECKED", "VKFORMER_VALIDATION", "VKFORMER_PIPELINE_CACHE"}) {
            for (const std::string value : {"true", "yes", "2", "01"}) {
                const Environment wrong(name.c_str(), value);
                CHECK(error_of([] { Device::create(); }) == name + ": is \"" + value + "\"; there are \"0\" and \"1\"");
            }
        }
        for (const char* value : {"0", "", "1"}) {
            const Environment switched("VKFORMER_CHECKED", value);
            CHECK(Insides::core(Device::create()).options.checked == (*value == '1'));
        }
    }

    TEST_CASE("device: its limits are believed, its claims about subgroups are not needed") {
        fake::Vulkan vulkan;
        vulkan.change_limits([](VkPhysicalDeviceLimits& limits) {
            limits.maxComputeWorkGroupInvocations = 128;
            limits.maxComputeWorkGroupSize[0] = 128;
            limits.maxComputeSharedMemorySize = 16384;
            limits.maxPerStageDescriptorStorageBuffers = 4;
            limits.minStorageBufferOffsetAlignment = 256;
        });
        vulkan.vkGetPhysicalDeviceFeatures2.instead = [](VkPhysicalDevice, VkPhysicalDeviceFeatures2* out) {
            out->features = {};
        };
        Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
        CHECK(device.capabilities().max_invocations == 128);
        CHECK(device.capabilities().storage_alignment == 256);
        CHECK_FALSE(device.capabilities().storage_16bit);
        {
            Graph g;
            SmallModel::describe(g, 9);
            Program program = device.compile(g, SmallModel::load(device));
            CHECK(SmallModel::check(program, 9) == "");
        }
        CHECK(last_words(std::move(device)) == "");
    }

    TEST_CASE("device: limits that are no numbers, or below 0, are refused") {
        CHECK(contains(error_of([] { Device::create({.wait_seconds = NAN}); }), "wait_seconds is not a number"));
        CHECK(contains(error_of([] { Device::create({.wait_seconds = -1}); }), "wait_seconds = -1 is below 0"));
        CHECK(contains(error_of([] { Device::create({.submit_budget = NAN}); }), "submit_budget is not a number"));
        CHECK(contains(error_of([] { Device::create({.submit_budget = -0.5}); }), "submit_budget = -0.5 is below 0"));
        CHECK(error_of([] { Device::create({.submit_budget = 0, .wait_seconds = 0}); }) == "");
    }

    TEST_CASE("device: there is always one, also behind a move") {
        Device first = Device::create({.minimum_profile = true});
        const Device second = std::move(first);
        CHECK(first.capabilities().name == second.capabilities().name);
        Device third = second;
        first = std::move(third);
        CHECK(third.capabilities().name == second.capabilities().name);
    }

    TEST_CASE("device: it lives as long as what was made from it") {
        fake::Vulkan vulkan;
        {
            std::optional<Program> program;
            std::optional<Weights> weights;
            {
                const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
                Graph g;
                SmallModel::describe(g, 9);
                weights = SmallModel::load(device);
                program = device.compile(g, *weights);
            }
            CHECK(SmallModel::check(*program, 9) == "");
            weights.reset();
            CHECK(SmallModel::check(*program, 9) == "");
            CHECK(vulkan.vkDestroyDevice.calls == 0);
        }
        CHECK(vulkan.vkDestroyDevice.calls == 1);
        CHECK(vulkan.live_objects() == 0);
    }
}

}  // namespace vkf::test
