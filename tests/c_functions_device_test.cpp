// SPDX-License-Identifier: Apache-2.0
// C's functions of devices: what they can do, hold and keep in files.
#include "tests/c_functions.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>

#include "ops/tuning.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

TEST_SUITE_BEGIN("c functions");

TEST_CASE("c functions: a device tests itself, and does without kernels that are named") {
    const Environment variable("VKFORMER_LEAVE_OUT", std::nullopt);
    const TemporaryFolder folder;
    const std::string path = folder.path().string();
    vkf_device_options options = sized<vkf_device_options>();
    options.cache_folder = path.c_str();
    options.leave_out = "of_another";
    vkf_device* device = nullptr;
    OK(vkf_device_create(&options, &device));
    char text[256];
    OK(vkf_device_left_out(device, text, sizeof(text), nullptr));
    CHECK(std::string(text) == "of_another DeviceOptions::leave_out says so\n");
    struct Told {
        std::size_t checks = 0, wrong = 0;
    } told;
    vkf_self_test_options asked = sized<vkf_self_test_options>();
    asked.repeats = 1;
    asked.seconds = 0.05;  // the first few
    asked.user = &told;
    asked.progress = [](void* user, const char* kernel, const char* what, const char* problem, double error,
                        double ms) {
        Told& t = *static_cast<Told*>(user);
        ++t.checks;
        t.wrong += *problem == 0 && *kernel != 0 && *what != 0 && error <= 1 && ms > 0 ? 0 : 1;
    };
    vkf_verdict verdict = VKF_UNUSABLE;
    OK(vkf_device_self_test(device, &asked, &verdict));
    CHECK(verdict == VKF_HEALTHY);
    CHECK(told.checks > 0);
    CHECK(told.wrong == 0);
    const vkf_left_out kernels[] = {{"softmax_wide", "a test says so"}, {"rope_wide", "too"}};
    OK(vkf_device_save_left_out(device, 2, kernels, text, sizeof(text), nullptr));
    char file[256];
    OK(vkf_device_left_out_file(device, file, sizeof(file), nullptr));
    CHECK(std::string(text) == file);
    options.leave_out = nullptr;
    vkf_device* later = nullptr;
    OK(vkf_device_create(&options, &later));
    OK(vkf_device_left_out(later, text, sizeof(text), nullptr));
    CHECK(std::string(text) == "softmax_wide a test says so\nrope_wide too\n");
    OK(vkf_device_save_left_out(later, 0, nullptr, nullptr, 0, nullptr));
    CHECK_FALSE(std::filesystem::exists(file));
    CHECK(vkf_device_save_left_out(later, 1, nullptr, nullptr, 0, nullptr) != VKF_OK);
    CHECK(vkf_device_self_test(later, nullptr, nullptr) != VKF_OK);
    vkf_device_destroy(later);
    vkf_device_destroy(device);
}

TEST_CASE("c functions: a cache of pipelines that has no place is told from one that cannot be written") {
    const TemporaryFolder folder;
    const auto said = [&](const std::filesystem::path& place) {
        vkf_device device{Device::create({.cache_folder = place})};
        Graph g;
        g.output("y", relu(g.input("x", {3})));
        device.device.compile(g);
        return vkf_device_save_pipeline_cache(&device) == VKF_OK ? "" : std::string(vkf_last_error());
    };
    {
        const Environment off("VKFORMER_PIPELINE_CACHE", "0");
        CHECK(contains(said(folder.path()), "there is nowhere to write it"));
    }
    const Environment on("VKFORMER_PIPELINE_CACHE", std::nullopt);
    CHECK(said(folder.path()) == "");
    REQUIRE_FALSE(folder.files().empty());
    CHECK(contains(said(folder.path() / folder.files().front() / "below a file"), ": its folder cannot be made: "));
}

TEST_CASE("c functions: what a device holds, and what a program looks like") {
    const DeviceOfC on;
    vkf_device_memory memory = sized<vkf_device_memory>();
    OK(vkf_device_memory_use(on.device, &memory));
    CHECK(memory.heap == device().memory_use().heap);
    OK(vkf_device_save_pipeline_cache(on.device));
    std::vector<char> text(10000);
    OK(vkf_device_tuning_file(on.device, text.data(), text.size(), nullptr));
    OK(vkf_glsl_compiler(text.data(), text.size(), nullptr));
    std::uint64_t bytes = 1;
    OK(vkf_device_recorded_uploads(on.device, &bytes));
    CHECK(bytes == device().recorded_uploads());
    OK(vkf_device_uploads_finished(on.device, bytes));
    CHECK((vkf_device_uploads_dropped(on.device) == VKF_OK) == static_cast<bool>(device().uploads_dropped()));
    CHECK(vkf_device_uploads_dropped(nullptr) == VKF_ERROR);

    vkf_graph* graph = nullptr;
    OK(vkf_graph_create(&graph));
    graph->output("y", relu(graph->input("x", {2, 16})));
    vkf_compile_options options = sized<vkf_compile_options>();
    options.profile = true;
    vkf_program* program = nullptr;
    OK(vkf_compile(on.device, graph, nullptr, &options, &program));
    OK(vkf_program_dot(program, text.data(), text.size(), nullptr));
    CHECK(contains(text.data(), "digraph"));
    const std::vector<float> x(32, 1.0f);
    OK(vkf_program_upload(program, "x", x.data(), x.size()));
    OK(vkf_program_run(program));
    const TemporaryFolder folder;
    OK(vkf_program_write_trace(program, (folder.path() / "trace.json").string().c_str()));
    CHECK(std::filesystem::file_size(folder.path() / "trace.json") > 0);
    vkf_program_destroy(program);
    vkf_graph_destroy(graph);
}

TEST_CASE("c functions: capabilities") {
    const DeviceOfC on;
    const Capabilities& want = device().capabilities();
    vkf_capabilities c = sized<vkf_capabilities>();
    OK(vkf_device_capabilities(on.device, &c));
    CHECK(c.name == want.name);
    CHECK(c.device_memory > 0);
    CHECK(c.device_memory == want.device_memory);
    CHECK(std::equal(want.cache_uuid.begin(), want.cache_uuid.end(), c.cache_uuid));
    CHECK(std::equal(want.max_group_size.begin(), want.max_group_size.end(), c.max_group_size));
    CHECK(std::equal(want.max_groups.begin(), want.max_groups.end(), c.max_groups));
    CHECK(c.push_constants == want.push_constants);
    CHECK(c.subgroup_size == want.subgroup_size);
    CHECK(c.exact_subgroup_size == want.exact_subgroup_size);
    CHECK(c.max_subgroups == want.max_subgroups);
    CHECK(c.matrix_subgroup_size == want.matrix_subgroup_size);
    CHECK(c.timestamp_bits == want.timestamp_bits);
    CHECK(c.timestamp_period == want.timestamp_period);
    for (const auto& [in_c, in_cpp] : {std::pair(c.timeline_semaphore, want.timeline_semaphore),
                                       std::pair(c.subgroup_shuffle, want.subgroup_shuffle),
                                       std::pair(c.subgroup_arithmetic, want.subgroup_arithmetic),
                                       std::pair(c.subgroup_quad, want.subgroup_quad),
                                       std::pair(c.int64, want.int64),
                                       std::pair(c.texel_buffers, want.texel_buffers),
                                       std::pair(c.float16, want.float16),
                                       std::pair(c.cooperative_matrix, want.cooperative_matrix),
                                       std::pair(c.matrix_elements, want.matrix_elements),
                                       std::pair(c.matrix_elements_ext, want.matrix_elements_ext),
                                       std::pair(c.cooperative_matrix_int8, want.cooperative_matrix_int8),
                                       std::pair(c.integer_dot, want.integer_dot),
                                       std::pair(c.fast_integer_dot, want.fast_integer_dot),
                                       std::pair(c.portability_subset, want.portability_subset),
                                       std::pair(c.tuning_is_asked, want.tuning_is_asked),
                                       std::pair(c.float_controls, want.float_controls),
                                       std::pair(c.keeps_special_f32, want.keeps_special_f32),
                                       std::pair(c.keeps_special_f16, want.keeps_special_f16),
                                       std::pair(c.keeps_subnormal_f16, want.keeps_subnormal_f16),
                                       std::pair(c.rounds_alike, want.rounds_alike)}) {
        CHECK(in_c == in_cpp);
    }
    // a caller that was compiled before these members were there
    c.struct_size = offsetof(vkf_capabilities, device_memory);
    c.device_memory = 3;
    OK(vkf_device_capabilities(on.device, &c));
    CHECK(c.device_memory == 3);
}

TEST_CASE("c functions: what was tuned") {
    const DeviceOfC on;
    const char* name = nullptr;
    const char* what = nullptr;
    for (std::uint32_t i = 0; i < tunables().size(); ++i) {
        OK(vkf_tunable(i, &name, &what));
        CHECK(name == tunables()[i].name);
        CHECK(what == tunables()[i].what);
        std::vector<std::uint32_t> values(64);
        std::uint64_t count = 0;
        OK(vkf_tunable_values(on.device, i, values.data(), values.size(), &count));
        values.resize(count);
        CHECK(values == tunables()[i].values(device().capabilities()));
    }
    CHECK(vkf_tunable(1000, &name, &what) == VKF_ERROR);
}

TEST_CASE("c functions: messages are forgotten line by line, as far as they were given whole") {
    vkf_device device{Device::create()};
    device.messages = "first\nsecond\nthird\n";
    char text[16] = "before";
    std::size_t needed = 0;
    OK(vkf_device_take_messages(&device, nullptr, 0, &needed));
    CHECK(needed == 19);
    OK(vkf_device_take_messages(&device, text, sizeof(text), &needed));
    CHECK(std::string(text) == "first\nsecond\nth");
    OK(vkf_device_take_messages(&device, text, sizeof(text), &needed));
    CHECK(std::string(text) == "third\n");
    CHECK(needed == 6);
    OK(vkf_device_take_messages(&device, text, sizeof(text), &needed));
    CHECK(std::string(text) == "");
}

TEST_CASE("c functions: nothing is written where there is no room for the path") {
    const Environment by_file("VKFORMER_LEAVE_OUT", std::nullopt);
    const TemporaryFolder folder;
    vkf_device device{Device::create({.cache_folder = folder.path()})};
    const vkf_left_out kernel{"softmax_wide", "a test says so"};
    CHECK(vkf_device_save_tuning(&device, "matmul_rows=8", nullptr, 10, nullptr) == VKF_ERROR);
    CHECK(vkf_device_save_left_out(&device, 1, &kernel, nullptr, 10, nullptr) == VKF_ERROR);
    CHECK(folder.files().empty());
    OK(vkf_device_save_left_out(&device, 1, &kernel, nullptr, 0, nullptr));
    CHECK(folder.files().size() == 1);
}

TEST_SUITE_END();
