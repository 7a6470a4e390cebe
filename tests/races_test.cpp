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
#include <set>
#include <string>
#include <vector>

#include "runtime/device/device.h"
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

/// Kernels of the shaders that have barriers, by the names of their files.
std::set<std::string> kernels_with_barriers() {
    const fs::path folder = fs::path(VKFORMER_SOURCE_DIR) / "shaders";
    std::set<std::string> with, found;
    for (const auto& entry : fs::directory_iterator(folder / "common")) {
        if (source_of(entry.path()).find("barrier()") != std::string::npos) {
            with.insert("\"common/" + entry.path().filename().string() + "\"");
        }
    }
    for (const auto& entry : fs::directory_iterator(folder)) {
        if (entry.path().extension() != ".comp") {
            continue;
        }
        const std::string text = source_of(entry.path());
        if (text.find("barrier()") != std::string::npos ||
            std::any_of(with.begin(), with.end(),
                        [&](const std::string& name) { return text.find(name) != std::string::npos; })) {
            found.insert(entry.path().stem().string());
        }
    }
    return found;
}

/// What the layers said of shared memory while a check ran, by its kernels.
using Said = std::map<std::string, std::string>;

/// Runs what Device::self_test() runs. `also`: the environment's VKFORMER_VARIANT.
void run(const char* variant, bool barriers, Said& said, std::set<std::string>& met) {
    CAPTURE(variant);
    CAPTURE(barriers);
    const Environment forced("VKFORMER_VARIANT", variant);
    fake::Vulkan vulkan;
    vulkan.vkCreateShaderModule.instead = [&](VkDevice device, const VkShaderModuleCreateInfo* info,
                                              const VkAllocationCallbacks* callbacks, VkShaderModule* module) {
        Module changed(*info);
        if (barriers) {
            changed.widen_barriers();
        } else {
            changed.remove_barriers();
        }
        VkShaderModuleCreateInfo with = *info;
        with.pCode = changed.code().data();
        return vulkan.vkCreateShaderModule.real(device, &with, callbacks, module);
    };
    const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
    device.messages();
    const auto listen = [&](const SelfCheck& check) {
        met.insert(check.kernel);
        for (const std::string& message : device.messages()) {
            if (message.find("SharedMemoryDataRace") != std::string::npos || barriers) {
                said.try_emplace(check.kernel, check.what + ": " + message);
            }
        }
    };
    const SelfTest test = device.self_test({.thorough = *variant == '\0', .repeats = 1, .progress = listen});
    if (barriers) {
        CHECK(test.verdict == Verdict::healthy);
    }
}

bool names(const std::string& kernels, const std::string& kernel) {
    return (" + " + kernels).find(" + " + kernel) != std::string::npos;
}

}  // namespace

TEST_SUITE("races") {
    TEST_CASE("races: no kernel has any in shared memory, and each with barriers would have without them") {
        if (std::getenv("VKFORMER_RACES") == nullptr) {
            return;
        }
        Said races, seen;
        std::set<std::string> met;
        for (const char* variant : {"", "matvec_columns", "rows_looped", "rows_held", "rows_subgroups",
                                    "attention_shared", "attention_rows"}) {
            run(variant, true, races, met);
            run(variant, false, seen, met);
        }
        for (const auto& [kernels, message] : races) {
            FAIL_CHECK(kernels << ": " << message);
        }
        for (const std::string& kernel : kernels_with_barriers()) {
            CAPTURE(kernel);
            const auto is = [&](const auto& one) { return names(one, kernel); };
            CHECK(std::any_of(met.begin(), met.end(), is));
            CHECK(std::any_of(seen.begin(), seen.end(), [&](const auto& one) { return is(one.first); }));
        }
    }
}

}  // namespace vkf::test
