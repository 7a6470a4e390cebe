// SPDX-License-Identifier: Apache-2.0
// Runs golden cases: golden [--ranks [--mixed] [--every]] FILE... One line a case, then "N passed,
// N failed". --ranks: layers that ranks share, on several ranks; --mixed: on all devices that there
// are; --every: each such layer must have a case.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "tests/device.h"
#include "tests/golden_case.h"
#include "tests/golden_ranks.h"

namespace {

/// Cases on several ranks; gives how many failed.
int ranks_cases(const std::vector<std::string>& files, bool mixed, bool every) {
    std::vector<vkf::Device> more;
    vkf::test::RanksOptions options{.devices = {&vkf::test::device()}, .every = every};
    if (mixed) {
        options.devices.clear();
        const std::size_t count = vkf::Device::list().size();
        if (count < 2) {
            std::printf("FAILED: there is one device, and --mixed wants several\n");
            return 1;
        }
        for (std::size_t i = 0; i < count; ++i) {
            vkf::DeviceOptions choice;
            choice.select = std::to_string(i);
            more.push_back(vkf::Device::create(choice));
        }
        for (const vkf::Device& d : more) {
            std::printf("also: %s, %s\n", d.capabilities().name.c_str(), d.capabilities().driver.c_str());
            options.devices.push_back(&d);
        }
    }
    int failed = vkf::test::run_on_ranks(files, options);
    for (const vkf::Device& d : more) {
        for (const std::string& message : d.messages()) {
            std::printf("FAILED validation: %s\n", message.c_str());
            ++failed;
        }
    }
    return failed;
}

/// What a case comes to.
struct Counts {
    int passed = 0, failed = 0, not_yet = 0;
};

void run_case(const std::string& file, Counts& counts) {
    try {
        vkf::test::GoldenCase c(file);
        vkf::test::run_golden_case(vkf::test::device(), c);
        const auto verdict = c.compare();
        std::string later;
        for (const std::string& name : verdict.not_yet) {
            later += (later.empty() ? ", not yet: " : ", ") + name;
            ++counts.not_yet;
        }
        std::printf("%s %s: worst error %.3g of the tolerance%s%s%s\n", verdict.good ? "passed" : "FAILED",
                    c.name().c_str(), verdict.worst, verdict.detail.empty() ? "" : ": ", verdict.detail.c_str(),
                    later.c_str());
        ++(verdict.good ? counts.passed : counts.failed);
    } catch (const vkf::test::NotYet& n) {
        std::printf("not yet %s: %s\n", file.c_str(), n.what.c_str());
        ++counts.not_yet;
    } catch (const std::exception& e) {
        std::printf("FAILED %s: %s\n", file.c_str(), e.what());
        ++counts.failed;
    }
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<std::string> files(argv + 1, argv + argc);
    const auto option = [&](const char* name) { return std::erase(files, name) != 0; };
    const bool ranks = option("--ranks"), mixed = option("--mixed"), every = option("--every");
    if (files.empty()) {
        std::fprintf(stderr, "usage: golden [--ranks [--mixed] [--every]] FILE.safetensors...\n");
        return 2;
    }
    if ((mixed || every) && !ranks) {
        std::fprintf(stderr, "golden: --mixed and --every are of --ranks\n");
        return 2;
    }
    Counts counts;
    try {
        std::printf("device: %s\n", vkf::test::device_line().c_str());
        if (vkf::test::validated()) {
            vkf::test::prove_validation_sees();
        }
    } catch (const std::exception& e) {
        std::fprintf(stderr, "golden: %s\n", e.what());
        vkf::test::close_device();
        return 1;
    }
    if (ranks) {
        try {
            counts.failed = ranks_cases(files, mixed, every);
        } catch (const std::exception& e) {
            std::printf("FAILED: %s\n", e.what());
            counts.failed = 1;
        }
    } else {
        for (const std::string& file : files) {
            run_case(file, counts);
        }
    }
    for (const std::string& message : vkf::test::close_device()) {
        std::printf("FAILED validation: %s\n", message.c_str());
        ++counts.failed;
    }
    if (counts.not_yet != 0) {
        std::printf("%d not yet computed (gradients), counted apart\n", counts.not_yet);
    }
    if (!ranks) {
        std::printf("%d passed, %d failed\n", counts.passed, counts.failed);
    }
    return counts.failed == 0 ? 0 : 1;
}
