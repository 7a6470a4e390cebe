// SPDX-License-Identifier: Apache-2.0
// Races in shared memory, as newer validation layers see them where they check what shaders do
// (tools/test --races): kernels have none, and those with barriers would have some without.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/cases.h"
#include "doctor/check_case.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "tests/believed.h"
#include "tests/device.h"
#include "tests/fake_vulkan.h"
#include "tests/fixtures.h"

namespace vkf::test {

namespace {

namespace fs = std::filesystem;

/// Words of a module.
class Module {
public:
    explicit Module(const VkShaderModuleCreateInfo& info) : code_(info.pCode, info.pCode + info.codeSize / 4) {}

    const std::vector<std::uint32_t>& code() const { return code_; }

    void remove_barriers() {
        constexpr std::uint32_t kNop = 1u << 16;
        each([&](std::uint32_t op, std::uint32_t* words, std::uint32_t count) {
            if (op == kControlBarrier) {
                std::fill_n(words, count, kNop);
            }
        });
    }

    /// The layers know no barrier of a subgroup: it becomes one of the whole group.
    void widen_barriers() {
        constexpr std::uint32_t kTypeInt = 21, kConstant = 43, kGroup = 2, kSubgroup = 3;
        std::set<std::uint32_t> types, subgroup;
        std::uint32_t group = 0;
        each([&](std::uint32_t op, const std::uint32_t* words, std::uint32_t) {
            if (op == kTypeInt && words[2] == 32) {
                types.insert(words[1]);
            } else if (op == kConstant && types.contains(words[1])) {
                group = words[3] == kGroup ? words[2] : group;
                if (words[3] == kSubgroup) {
                    subgroup.insert(words[2]);
                }
            }
        });
        each([&](std::uint32_t op, std::uint32_t* words, std::uint32_t) {
            if (op == kControlBarrier && subgroup.contains(words[1])) {
                REQUIRE(group != 0);
                words[1] = words[2] = group;
            }
        });
    }

private:
    static constexpr std::uint32_t kControlBarrier = 224;

    void each(const std::function<void(std::uint32_t op, std::uint32_t* words, std::uint32_t count)>& f) {
        constexpr std::size_t kHeader = 5;
        for (std::size_t at = kHeader; at < code_.size();) {
            const std::uint32_t count = code_[at] >> 16;
            f(code_[at] & 0xffff, &code_[at], count);
            at += count;
        }
    }

    std::vector<std::uint32_t> code_;
};

std::string source_of(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

/// The shaders, by the names of their files, and whether they have barriers.
std::map<std::string, bool> shaders() {
    const fs::path folder = fs::path(VKFORMER_SOURCE_DIR) / "shaders";
    const auto waits = [](const std::string& text) { return text.find("barrier()") != std::string::npos; };
    std::set<std::string> common;  // included files that do
    for (const auto& entry : fs::directory_iterator(folder / "common")) {
        if (waits(source_of(entry.path()))) {
            common.insert("\"common/" + entry.path().filename().string() + "\"");
        }
    }
    std::map<std::string, bool> all;
    for (const auto& entry : fs::directory_iterator(folder)) {
        if (entry.path().extension() == ".comp") {
            const std::string text = source_of(entry.path());
            all[entry.path().stem().string()] =
                waits(text) || std::any_of(common.begin(), common.end(), [&](const std::string& name) {
                    return text.find(name) != std::string::npos;
                });
        }
    }
    return all;
}

/// What a device passes for.
struct Guise {
    bool gpu = false;
    bool elements = true;  ///< Capabilities::matrix_elements, if it has that

    void put_on(Capabilities& c) const {
        if (gpu) {
            as_gpu(c);
        }
        c.matrix_elements = c.matrix_elements && elements;
    }
};

constexpr Guise kGuises[] = {{.gpu = true}, {.gpu = true, .elements = false}, {}};

/// The shader of a kernel, which has its name or a longer one.
std::string shader_of(const std::string& kernel, const std::map<std::string, bool>& all) {
    std::string longest;
    for (const auto& [name, waits] : all) {
        longest = kernel.starts_with(name) && name.size() > longest.size() ? name : longest;
    }
    return longest;
}

/// A device whose kernels keep their barriers or lose them, and what layers say of each kernel.
class Watched {
public:
    explicit Watched(bool barriers) {
        vulkan_.vkCreateShaderModule.instead = [=, this](VkDevice device, const VkShaderModuleCreateInfo* info,
                                                         const VkAllocationCallbacks* callbacks,
                                                         VkShaderModule* module) {
            Module changed(*info);
            if (barriers) {
                changed.widen_barriers();
            } else {
                changed.remove_barriers();
            }
            VkShaderModuleCreateInfo with = *info;
            with.pCode = changed.code().data();
            return vulkan_.vkCreateShaderModule.real(device, &with, callbacks, module);
        };
        vulkan_.vkCreateComputePipelines.instead = [this](VkDevice device, VkPipelineCache cache, std::uint32_t count,
                                                          const VkComputePipelineCreateInfo* infos,
                                                          const VkAllocationCallbacks* callbacks,
                                                          VkPipeline* pipelines) {
            const VkResult result =
                vulkan_.vkCreateComputePipelines.real(device, cache, count, infos, callbacks, pipelines);
            const std::scoped_lock lock(mutex_);
            modules_[number(*pipelines)] = number(infos->stage.module);
            return result;
        };
        vulkan_.vkSetDebugUtilsObjectNameEXT.instead = [this](VkDevice device,
                                                              const VkDebugUtilsObjectNameInfoEXT* info) {
            if (info->objectType == VK_OBJECT_TYPE_PIPELINE) {
                const std::scoped_lock lock(mutex_);
                const std::string name = info->pObjectName;
                kernels_[modules_[info->objectHandle]] = name.substr(0, name.find('<'));
            }
            return vulkan_.vkSetDebugUtilsObjectNameEXT.real(device, info);
        };
        device_ = Device::create({.get_instance_proc_addr = vulkan_.entry()});
        device_->messages();
    }

    const Device& device() const { return *device_; }

    std::set<std::string> kernels() const {
        std::set<std::string> all;
        for (const auto& [module, name] : kernels_) {
            all.insert(name);
        }
        return all;
    }

    /// The kernels of which something was said since the last call, and what.
    void listen(std::map<std::string, std::string>& said) const {
        static constexpr std::string_view kModule = "Shader Module (0x";
        for (const std::string& message : device_->messages()) {
            const std::size_t at = message.find(kModule);
            const std::uint64_t module =
                at == std::string::npos ? 0 : std::strtoull(message.c_str() + at + kModule.size(), nullptr, 16);
            const auto kernel = kernels_.find(module);
            const std::string name = kernel == kernels_.end() ? "no kernel" : kernel->second;
            if (message.find("SharedMemoryDataRace") != std::string::npos) {
                said.try_emplace(name, message);
            }
        }
    }

private:
    template <class Handle>
    static std::uint64_t number(Handle handle) {
        return reinterpret_cast<std::uint64_t>(handle);
    }

    fake::Vulkan vulkan_;
    std::mutex mutex_;
    std::map<std::uint64_t, std::uint64_t> modules_;  ///< by pipeline
    std::map<std::uint64_t, std::string> kernels_;    ///< by module
    std::optional<Device> device_;
};

/// Capabilities with which a case takes other kernels.
Capabilities believed(const Device& device, const Guise& guise, const char* variant) {
    Capabilities c = device.capabilities();
    guise.put_on(c);
    c.variants = variant;
    return c;
}

/// Runs the cases of Device::self_test() that have kernels of these shaders until each was reported
/// without its barriers; gives the shaders of which none was.
std::set<std::string> unreported(std::set<std::string> wanted, const std::map<std::string, bool>& all) {
    static constexpr const char* kVariants[] = {
        "",           "attention_composed", "attention_shared",    "attention_coopmat", "matmul_half",
        "matmul_dot", "matmul_coopmat",     "matmul_coopmat_int8", "rows_looped",       "rows_held"};
    for (const Guise& guise : kGuises) {
        for (const char* variant : kVariants) {
            for (const auto& cases :
                 {doctor::product_cases(), doctor::row_cases(), doctor::attention_cases(), doctor::gradient_cases()}) {
                for (const doctor::CaseMaker& maker : cases) {
                    const doctor::LoadedCase here(device(), maker.make());
                    const Capabilities c = believed(device(), guise, variant);
                    const std::optional<Plan> plan = here.plan(c);
                    const std::vector<std::string> kernels =
                        plan ? doctor::kernels_of(*plan) : std::vector<std::string>();
                    if (std::none_of(kernels.begin(), kernels.end(), [&](const std::string& kernel) {
                            return wanted.contains(shader_of(kernel, all));
                        })) {
                        continue;
                    }
                    const Watched watched(false);
                    const doctor::LoadedCase loaded(watched.device(), maker.make());
                    std::map<std::string, std::string> said;
                    try {
                        check_case(watched.device(), loaded, *loaded.plan(believed(watched.device(), guise, variant)),
                                   1);
                    } catch (const Error&) {  // what such kernels do to a device is no matter here
                    }
                    watched.listen(said);
                    for (const auto& [kernel, message] : said) {
                        wanted.erase(shader_of(kernel, all));
                    }
                }
            }
        }
    }
    return wanted;
}

}  // namespace

TEST_SUITE("races") {
    TEST_CASE("races: no kernel has any in shared memory, and each shader with barriers would have without them") {
        if (std::getenv("VKFORMER_RACES") == nullptr) {
            cannot_run("the search for races in shared memory (tools/test --races)");
            return;
        }
        const std::map<std::string, bool> all = shaders();
        std::set<std::string> met, with_barriers;
        for (const auto& one : all) {
            if (one.second) {
                with_barriers.insert(one.first);
            }
        }
        if (!device().capabilities().matrix_elements && with_barriers.erase("attention_coopmat_elements") != 0) {
            cannot_run("operations on the elements of matrices");
        }
        for (const Guise& guise : kGuises) {
            CAPTURE(guise.gpu);
            CAPTURE(guise.elements);
            const Watched watched(true);
            guise.put_on(Insides::core(watched.device()).capabilities);
            std::map<std::string, std::string> races;
            const auto listen = [&](const SelfCheck&) { watched.listen(races); };
            CHECK(watched.device().self_test({.thorough = true, .repeats = 1, .progress = listen}).verdict ==
                  Verdict::healthy);
            for (const auto& race : races) {
                FAIL_CHECK(race.first << ": " << race.second);
            }
            for (const std::string& kernel : watched.kernels()) {
                met.insert(shader_of(kernel, all));
            }
        }
        for (const std::string& shader : with_barriers) {
            CAPTURE(shader);
            CHECK(met.contains(shader));
        }
        for (const std::string& shader : unreported(with_barriers, all)) {
            FAIL_CHECK(shader << ": nothing is reported without its barriers");
        }
    }
}

}  // namespace vkf::test
