// SPDX-License-Identifier: Apache-2.0
// Device::self_test(): on devices that are right, and on drivers that lie.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "doctor/cases.h"
#include "doctor/check_case.h"
#include "ops/lanes.h"
#include "ops/variants.h"
#include "tests/allocations.h"
#include "tests/believed.h"
#include "tests/fixtures.h"
#include "tests/lying_device.h"
#include "tests/op_check.h"

namespace vkf::test {

namespace {

std::vector<std::string> problems(const SelfTest& test) {
    std::vector<std::string> out;
    for (const SelfCheck& c : test.checks) {
        if (!c.problem.empty()) {
            out.push_back(c.kernel + ", " + c.what + ": " + c.problem);
        }
    }
    return out;
}

}  // namespace

TEST_SUITE("doctor") {
    TEST_CASE("self-test: a device that is right is healthy, as a GPU too") {
        const LeftOutByFile by_file;
        for (const bool gpu : {false, true}) {
            CAPTURE(gpu);
            const Believed kind([&](Capabilities& c) {
                if (gpu) {
                    as_gpu(c);
                }
                c.variants.clear();
                c.left_out.clear();
            });
            std::size_t told = 0;
            SelfTestOptions options;
            options.progress = [&](const SelfCheck&) { ++told; };
            options.seconds = gpu ? 4 : 0;  // a processor takes long to compile a GPU's kernels
            const SelfTest test = device().self_test(options);
            CHECK(problems(test).empty());
            CHECK(test.verdict == Verdict::healthy);
            CHECK((gpu || test.complete));
            CHECK(test.left_out.empty());
            CHECK(test.checks.size() >= (gpu ? 2 : 14));
            CHECK(told == test.checks.size());
            CHECK((test.floats.nan && test.floats.infinity && test.floats.minus_zero));
            CHECK((!test.complete || !device().capabilities().keeps_subnormal_f16 || test.floats.f16_denormals));
            CHECK(std::all_of(test.checks.begin(), test.checks.end(),
                              [](const SelfCheck& c) { return c.error <= 1 && c.ms > 0 && c.chosen; }));
        }
        CHECK(device().left_out().empty());
    }

    TEST_CASE("self-test: a check that never runs is no option") {
        CHECK(contains(error_of([] { device().self_test({.repeats = 0}); }),
                       "SelfTestOptions: repeats is 0, and each check runs at least once"));
    }

    TEST_CASE("self-test: what cannot be planned is told, and not healthy") {
        const LeftOutByFile by_file;
        {
            const Device wrong = Device::create();
            Capabilities& believed = Insides::core(wrong).capabilities;
            believed.tuning = "matmul_rows=7";
            believed.tuning_is_asked = true;
            const SelfTest test = wrong.self_test({.repeats = 1});
            CHECK(test.verdict == Verdict::unusable);
            const std::vector<std::string> found = problems(test);
            REQUIRE_FALSE(found.empty());
            for (const std::string& problem : found) {
                CHECK_MESSAGE(problem.starts_with("plan, "), problem);
                CHECK_MESSAGE(contains(problem, ": cannot be planned: "), problem);
            }
        }
    }

    TEST_CASE("self-test: every case of the long form is right with what the device chooses") {
        for (const auto& cases :
             {doctor::product_cases(), doctor::row_cases(), doctor::attention_cases(), doctor::gradient_cases()}) {
            for (const doctor::CaseMaker& maker : cases) {
                if (!maker.thorough) {  // those are the short form's
                    continue;
                }
                const std::string what = maker.what;
                CAPTURE(what);
                const doctor::LoadedCase loaded(device(), maker.make());
                std::string why;
                std::optional<Plan> plan = loaded.plan(device().capabilities(), &why);
                CHECK(why == "");
                if (plan) {
                    CHECK(doctor::check_case(device(), loaded, std::move(*plan), 1).problem == "");
                }
            }
        }
    }

    TEST_CASE("self-test: ends in time") {
        const SelfTest test = device().self_test({.thorough = true, .repeats = 1, .seconds = 1e-9, .progress = {}});
        CHECK_FALSE(test.complete);
        CHECK(test.checks.size() == 1);
        CHECK(test.verdict == Verdict::healthy);
    }

    TEST_CASE("self-test: a kernel that is wrong is left out, and what stands in for it is right") {
        const LeftOutByFile by_file;
        if (!hands_round(device().capabilities())) {
            cannot_run("kernels that shuffle");
            return;
        }
        fake::Vulkan vulkan;
        LyingDevice liar(vulkan, LyingDevice::kShuffles);
        Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
        liar.corrupt();
        const SelfTest test = device.self_test();
        CHECK(test.verdict == Verdict::degraded);
        CHECK(test.complete);
        REQUIRE_FALSE(test.left_out.empty());
        for (const LeftOut& k : test.left_out) {
            CAPTURE(k.kernel);
            CHECK(contains(k.kernel, "_lanes"));
            CHECK(contains(k.why, "the self-test found it wrong: "));
            CHECK(contains(k.why, " results are wrong: "));
        }
        CHECK(device.left_out() == test.left_out);
        // every case was right in the end
        for (const SelfCheck& c : test.checks) {
            const auto same = [&](const SelfCheck& other) { return other.what == c.what && other.problem.empty(); };
            CHECK_MESSAGE(std::any_of(test.checks.begin(), test.checks.end(), same), c.what);
        }
        Graph g;
        g.output("y", linear(g.input("x", {150, 64}), g.input("w", {72, 64})));
        const std::string how = device.compile(g, {}).explain();
        CHECK(contains(how, "matmul<"));
        CHECK(contains(how, " is left out: the self-test found it wrong"));
        CHECK(device.self_test().verdict == Verdict::healthy);
        CHECK(last_words(std::move(device)) == "");
        CHECK(vulkan.live_objects() == 0);
    }

    TEST_CASE("self-test: of kernels that run together the one is blamed without which results are right") {
        const LeftOutByFile by_file;
        for (const char* name : {"attention_merge", "attention_mask"}) {
            CAPTURE(name);
            fake::Vulkan vulkan;
            LyingDevice liar(vulkan, name);
            const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
            liar.skip();
            const SelfTest test = device.self_test();
            if (!liar.met()) {
                CHECK(test.verdict == Verdict::healthy);
                cannot_run(std::string(name) + ", which the short form does not take");
                continue;
            }
            CHECK(test.verdict == Verdict::degraded);
            REQUIRE(test.left_out.size() == 1);
            CHECK(test.left_out[0].kernel == name);
        }
    }

    TEST_CASE("self-test: what stands in for a kernel that failed late is asked what that had passed") {
        const LeftOutByFile by_file;
        fake::Vulkan vulkan;
        const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
        const SelfTest right = device.self_test();
        // the kernel of the first product of several rows, in the last check that it has part in
        const std::string kernel = right.checks.at(2).kernel;
        REQUIRE_FALSE(contains(kernel, " + "));
        if (kernel == "matmul") {
            cannot_run("a product that another kernel stands in for");
            return;
        }
        std::string first, last;
        for (const SelfCheck& c : right.checks) {
            if ((c.kernel + " + ").find(kernel + " + ") != std::string::npos) {
                first = first.empty() ? c.what : first;
                last = c.what;
            }
        }
        CAPTURE(kernel);
        REQUIRE(first != last);
        std::string before;
        for (const SelfCheck& c : right.checks) {
            if (c.what == last) {
                break;
            }
            before = c.what;
        }
        LyingDevice liar(vulkan, kernel);
        const Device wrong = Device::create({.get_instance_proc_addr = vulkan.entry()});
        SelfTestOptions options;
        options.progress = [&](const SelfCheck& c) {
            if (c.what == before) {
                liar.skip();
            }
        };
        const SelfTest test = wrong.self_test(options);
        CHECK(test.verdict == Verdict::degraded);
        REQUIRE(test.left_out.size() == 1);
        CHECK(test.left_out[0].kernel == kernel);
        CHECK(std::count_if(test.checks.begin(), test.checks.end(),
                            [&](const SelfCheck& c) { return c.what == first && c.problem.empty() && c.chosen; }) == 2);
    }

    TEST_CASE("self-test: the variants of the long form are those that the documentation names") {
        std::set<std::string> told;
        for (const char* page : {"docs/environment.md", "docs/attention.md"}) {
            std::ifstream in(std::filesystem::path(VKFORMER_SOURCE_DIR) / page);
            std::string line;
            for (bool table = false; std::getline(in, line);) {
                table = line.starts_with("| VKFORMER_VARIANT |") || (table && line.starts_with("|"));
                if (!table && !line.starts_with("| `VKFORMER_VARIANT` |")) {
                    continue;
                }
                static const std::regex kName("`((attention|matmul|matvec|rows)_[a-z0-9_]+)`");
                const std::string text = table ? line.substr(0, line.find("| ", 2)) : line;
                for (std::sregex_iterator at(text.begin(), text.end(), kName), end; at != end; ++at) {
                    told.insert((*at)[1]);
                }
            }
        }
        const std::span<const char* const> asked = variants();
        CHECK(told == std::set<std::string>(asked.begin(), asked.end()));
    }

    TEST_CASE("self-test: memory of the host's that is short says nothing of a kernel") {
        if (!allocations::can_fail()) {
            cannot_run("allocations that fail");
            return;
        }
        const LeftOutByFile by_file;
        std::size_t short_of_memory = 0;
        for (const std::uint64_t nth : {300u, 3000u, 20000u, 60000u}) {
            CAPTURE(nth);
            const Device device = Device::create();
            std::optional<SelfTest> test;
            {
                const allocations::Failing failing(nth, false);
                test = device.self_test({.repeats = 1});
            }
            CHECK(test->verdict == Verdict::healthy);
            CHECK(test->left_out.empty());
            for (const std::string& problem : problems(*test)) {
                CHECK_MESSAGE(problem.starts_with("memory, "), problem);
                CHECK_FALSE(test->complete);
                ++short_of_memory;
            }
        }
        CHECK(short_of_memory > 0);
    }

    TEST_CASE("self-test: bits that change from run to run are found") {
        const LeftOutByFile by_file;
        if (!hands_round(device().capabilities())) {
            cannot_run("kernels that shuffle");
            return;
        }
        fake::Vulkan vulkan;
        LyingDevice liar(vulkan, LyingDevice::kShuffles);
        const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
        liar.corrupt(2);  // the first of two runs is right
        const SelfTest test = device.self_test();
        CHECK(test.verdict == Verdict::degraded);
        const std::vector<std::string> found = problems(test);
        CHECK(std::any_of(found.begin(), found.end(),
                          [](const std::string& p) { return contains(p, "run 2 gave other bits than the first"); }));
    }

    TEST_CASE("self-test: a driver that drops what it says it ran is unusable") {
        const LeftOutByFile by_file;
        fake::Vulkan vulkan;
        LyingDevice liar(vulkan, LyingDevice::kEveryKernel);
        const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
        liar.drop();
        const SelfTest test = device.self_test();
        CHECK(test.verdict == Verdict::unusable);
        CHECK_FALSE(test.complete);
        REQUIRE(problems(test).size() == 1);
        CHECK(contains(problems(test)[0], "submission, work that is reported as done: "));
        CHECK(contains(problems(test)[0], "was taken with VK_SUCCESS and did not run"));
        CHECK(test.left_out.empty());
    }

    TEST_CASE("self-test: a lost device is told, with what lost it") {
        const LeftOutByFile by_file;
        fake::Vulkan vulkan;
        LyingDevice liar(vulkan, LyingDevice::kEveryKernel);
        const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
        // behind the eight runs of the first check
        vulkan.vkWaitForFences.fail(VK_ERROR_DEVICE_LOST, 9);
        const SelfTest test = device.self_test();
        CHECK(test.verdict == Verdict::unusable);
        CHECK_FALSE(test.complete);
        REQUIRE(problems(test).size() == 1);
        CHECK(contains(problems(test)[0], "product of 1 row"));
        CHECK(contains(error_of([&] { device.self_test(); }), "was lost"));
    }

    TEST_CASE("self-test: whatever run loses the device, the report ends with the kernels of that run") {
        const LeftOutByFile by_file;
        if (!hands_round(device().capabilities())) {
            cannot_run("kernels that shuffle");
            return;
        }
        bool while_blaming = false;
        for (std::uint64_t nth = 9;; nth += 4) {  // the first check has eight runs
            CAPTURE(nth);
            fake::Vulkan vulkan;
            LyingDevice liar(vulkan, LyingDevice::kEveryKernel);
            const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
            liar.corrupt();
            vulkan.vkWaitForFences.fail(VK_ERROR_DEVICE_LOST, nth);
            const SelfTest test = device.self_test();
            if (vulkan.vkWaitForFences.calls < nth) {
                break;
            }
            CHECK(test.verdict == Verdict::unusable);
            CHECK_FALSE(test.complete);
            const SelfCheck& last = test.checks.back();
            CHECK(contains(last.problem, "VK_ERROR_DEVICE_LOST"));
            CHECK((last.kernel != "device" || last.what == "a weight kept in f16"));
            while_blaming = while_blaming || contains(last.problem, "; another in its place: ");
        }
        CHECK(while_blaming);
    }

    TEST_CASE("self-test: a kernel for which there was no memory is told, and not left out") {
        const LeftOutByFile by_file;
        if (!hands_round(device().capabilities())) {
            cannot_run("kernels that shuffle");
            return;
        }
        bool replaced = false;
        for (std::uint64_t nth = 2; nth < 10; ++nth) {  // behind the first check's
            CAPTURE(nth);
            fake::Vulkan vulkan;
            const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
            vulkan.vkCreateComputePipelines.fail(VK_ERROR_OUT_OF_DEVICE_MEMORY, nth);
            const SelfTest test = device.self_test();
            CHECK(test.verdict != Verdict::healthy);  // unusable where nothing stands in
            CHECK(test.complete);
            REQUIRE(problems(test).size() == 1);
            CHECK(contains(problems(test)[0], "its pipeline failed with VK_ERROR_OUT_OF_DEVICE_MEMORY"));
            CHECK(test.left_out.empty());
            CHECK(device.left_out().empty());
            CHECK(device.self_test().verdict == Verdict::healthy);
            replaced = replaced || test.verdict == Verdict::degraded;
        }
        CHECK(replaced);
    }

    TEST_CASE("self-test: a check for which memory is short says so, and blames neither kernel nor device") {
        const LeftOutByFile by_file;
        const struct {
            std::uint64_t nth;
            VkResult result;
        } faults[] = {{1, VK_ERROR_OUT_OF_DEVICE_MEMORY},
                      {5, VK_ERROR_OUT_OF_HOST_MEMORY},
                      {24, VK_ERROR_TOO_MANY_OBJECTS},
                      {31, VK_ERROR_OUT_OF_DEVICE_MEMORY}};
        for (const auto& fault : faults) {
            CAPTURE(fault.nth);
            fake::Vulkan vulkan;
            const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
            vulkan.vkCreateBuffer.fail(fault.result, fault.nth);
            const SelfTest test = device.self_test({.repeats = 1});
            CHECK(test.verdict == Verdict::healthy);
            CHECK_FALSE(test.complete);
            REQUIRE(problems(test).size() == 1);
            CHECK(problems(test)[0].starts_with("memory, "));
            CHECK(contains(problems(test)[0], "not tested, for memory was short: "));
            CHECK(test.left_out.empty());
            CHECK(device.left_out().empty());
        }
    }
}

}  // namespace vkf::test
