// SPDX-License-Identifier: Apache-2.0
// Runs golden cases: golden FILE... One line a case, then "N passed, N failed".
#include <cstdio>
#include <exception>

#include "tests/device.h"
#include "tests/golden_case.h"

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: golden FILE.safetensors...\n");
        return 2;
    }
    int passed = 0;
    int failed = 0;
    int not_yet = 0;
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
    for (int i = 1; i < argc; ++i) {
        try {
            vkf::test::GoldenCase c(argv[i]);
            vkf::test::run_golden_case(vkf::test::device(), c);
            const auto verdict = c.compare();
            std::string later;
            for (const std::string& name : verdict.not_yet) {
                later += (later.empty() ? ", not yet: " : ", ") + name;
                ++not_yet;
            }
            std::printf("%s %s: worst error %.3g of the tolerance%s%s%s\n", verdict.good ? "passed" : "FAILED",
                        c.name().c_str(), verdict.worst, verdict.detail.empty() ? "" : ": ", verdict.detail.c_str(),
                        later.c_str());
            ++(verdict.good ? passed : failed);
        } catch (const vkf::test::NotYet& n) {
            std::printf("not yet %s: %s\n", argv[i], n.what.c_str());
            ++not_yet;
        } catch (const std::exception& e) {
            std::printf("FAILED %s: %s\n", argv[i], e.what());
            ++failed;
        }
    }
    for (const std::string& message : vkf::test::close_device()) {
        std::printf("FAILED validation: %s\n", message.c_str());
        ++failed;
    }
    if (not_yet != 0) {
        std::printf("%d not yet computed (gradients), counted apart\n", not_yet);
    }
    std::printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}
