// SPDX-License-Identifier: Apache-2.0
// Runs every test on one device. Under validation (VKFORMER_VALIDATION=1) any message of warning or
// worse is a failure, and the layer first has to prove that it sees. With
// VKFORMER_COMPUTES_NOTHING=1 the device is known to compute nothing, as a GPU's compiler without
// the GPU: only messages and kernels that it refuses count then, and what was thrown is listed.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "tests/device.h"

namespace {

int messages_seen = 0;
int kernels_refused = 0;

bool computes_nothing() {
    const char* const text = std::getenv("VKFORMER_COMPUTES_NOTHING");
    return text && std::string_view(text) == "1";
}

void report(const std::vector<std::string>& messages, const char* when) {
    for (const std::string& message : messages) {
        std::fprintf(stderr, "validation, %s: %s\n", when, message.c_str());
        ++messages_seen;
    }
}

/// Tells after each test case what validation had to say of it.
struct MessageListener : doctest::IReporter {
    explicit MessageListener(const doctest::ContextOptions&) {}

    void test_case_start(const doctest::TestCaseData& test) override { name_ = test.m_name; }
    void test_case_reenter(const doctest::TestCaseData&) override {}
    void test_case_end(const doctest::CurrentTestCaseStats&) override { report(vkf::test::device().messages(), name_); }
    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_run_end(const doctest::TestRunStats&) override {}
    void test_case_exception(const doctest::TestCaseException& e) override {
        if (computes_nothing()) {
            std::printf("thrown in \"%s\": %s\n", name_, e.error_string.c_str());
            const std::string_view said = e.error_string.c_str();
            kernels_refused += said.find("vkCreateComputePipelines gave ") != said.npos ||
                               said.find("vkCreateShaderModule gave ") != said.npos;
        }
    }
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}
    void log_assert(const doctest::AssertData&) override {}
    void log_message(const doctest::MessageData&) override {}
    void test_case_skipped(const doctest::TestCaseData&) override {}

private:
    const char* name_ = "";
};

DOCTEST_REGISTER_LISTENER("messages", 1, MessageListener);

}  // namespace

int main(int argc, char** argv) {
    doctest::Context context(argc, argv);
    try {
        std::printf("device: %s\n", vkf::test::device_line().c_str());
        if (vkf::test::validated()) {
            vkf::test::prove_validation_sees();
            std::printf("validation: planted hazards are reported\n");
        }
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        vkf::test::close_device();
        return 1;
    }
    std::fflush(stdout);
    if (computes_nothing()) {
        context.setOption("quiet", true);
        context.setOption("no-exitcode", true);  // 0, whatever was compared
    }
    const int failed = context.run();
    if (computes_nothing()) {
        for (const vkf::LeftOut& kernel : vkf::test::device().left_out()) {
            std::fprintf(stderr, "left out: %s: %s\n", kernel.kernel.c_str(), kernel.why.c_str());
        }
        kernels_refused += static_cast<int>(vkf::Insides::core(vkf::test::device()).pipelines->refusals());
    }
    report(vkf::test::close_device(), "at the end");
    const std::string not_run = vkf::test::not_run();
    if (computes_nothing()) {
        std::printf("results were not compared: this device computes nothing\n");
    }
    std::printf("not run on this device: %s\n", not_run.empty() ? "nothing" : not_run.c_str());
    if (messages_seen != 0) {
        std::fprintf(stderr, "%d validation messages\n", messages_seen);
    }
    if (kernels_refused != 0) {
        std::fprintf(stderr, "%d times a kernel was refused\n", kernels_refused);
    }
    return failed != 0 || messages_seen != 0 || kernels_refused != 0 ? 1 : 0;
}
