// SPDX-License-Identifier: Apache-2.0
// Kernels that a device does without: those that its driver refuses, and those on its list.
#include "runtime/device/left_out.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <thread>

#include "ops/lanes.h"
#include "ops/ops.h"
#include "runtime/base/map_file.h"
#include "runtime/compile/plan.h"
#include "runtime/device/tuning.h"
#include "tests/believed.h"
#include "tests/fake_vulkan.h"
#include "tests/fixtures.h"
#include "tests/glsl.h"
#include "tests/op_check.h"
#include "tests/reference.h"
#include "tests/reference_attention.h"

namespace vkf::test {

namespace {

constexpr std::int64_t kRows = 150, kColumns = 72, kSums = 64;

void describe_product(Graph& g) {
    g.output("y", linear(g.input("x", {kRows, kSums}), g.input("w", {kColumns, kSums})));
}

/// Says what is wrong with the results of such a program.
std::string product_mismatch(Program& program) {
    const Tensor x = random_tensor({kRows, kSums}, 1), w = random_tensor({kColumns, kSums}, 2);
    program.upload("x", x.floats());
    program.upload("w", w.floats());
    program.run();
    const std::vector<float> got = program.download("y");
    return difference({{kRows, kColumns}, {got.begin(), got.end()}}, reference::matmul(x, w, {.transpose_b = true}),
                      {.rounding = reference::matmul_rounding(x, w, {.transpose_b = true})});
}

Program compile_product(const Device& device, const CompileOptions& options = {}) {
    Graph g;
    describe_product(g);
    return device.compile(g, {}, options);
}

/// The kernel of a program of one.
std::string kernel_of(const Program& program) {
    return plan_of(program).dispatches.at(0).dispatch.kernels.back().shader->name;
}

DeviceOptions through(const fake::Vulkan& vulkan) { return {.get_instance_proc_addr = vulkan.entry()}; }

}  // namespace

TEST_SUITE("left out") {
    TEST_CASE("left out: a kernel that the driver refuses leads to the next, and the last is an error") {
        const LeftOutByFile by_file;
        std::vector<std::string> kernels;
        for (std::uint64_t refused = 0;; ++refused) {
            CAPTURE(refused);
            fake::Vulkan vulkan;
            Device device = Device::create(through(vulkan));
            vulkan.vkCreateComputePipelines.fail(VK_ERROR_UNKNOWN, 1, refused);
            std::optional<Program> program;
            const std::string error = error_of([&] { program = compile_product(device); });
            if (!program) {
                CHECK(contains(error, "vkCreateComputePipelines gave VK_ERROR_UNKNOWN"));
                REQUIRE(refused == kernels.size());
                // what nothing stands in for is not left out
                CHECK(device.left_out().size() == refused - 1);
                CHECK(last_words(std::move(device)) == "");
                break;
            }
            const std::string kernel = kernel_of(*program);
            CHECK(std::find(kernels.begin(), kernels.end(), kernel) == kernels.end());
            CHECK(product_mismatch(*program) == "");
            CHECK(device.left_out().size() == refused);
            for (const std::string& before : kernels) {
                CHECK(
                    contains(program->explain(), before + " is left out: its pipeline failed with VK_ERROR_UNKNOWN\n"));
            }
            kernels.push_back(kernel);
            // later programs do without from the start, those that were planned before too
            vulkan.vkCreateComputePipelines.fail(VK_ERROR_UNKNOWN, 1, 0);
            const std::uint64_t made = vulkan.vkCreateComputePipelines.calls;
            CHECK(kernel_of(compile_product(device)) == kernel);
            Graph g;
            describe_product(g);
            CHECK(kernel_of(device.compile(make_plan(g, device.capabilities()), CompileOptions{})) == kernel);
            CHECK(vulkan.vkCreateComputePipelines.calls == made);
            program.reset();
            CHECK(last_words(std::move(device)) == "");
        }
        CHECK(kernels.back() == "matmul");
        if (!device().capabilities().minimum_profile) {
            CHECK(kernels.size() > 1);
        }
    }

    TEST_CASE("left out: a shader module that the driver refuses is told as well") {
        const LeftOutByFile by_file;
        fake::Vulkan vulkan;
        Device device = Device::create(through(vulkan));
        Insides::core(device).capabilities.type = DeviceType::discrete;
        vulkan.vkCreateShaderModule.fail(VK_ERROR_UNKNOWN);
        Program program = compile_product(device);
        CHECK(kernel_of(program) == "matmul");
        CHECK(contains(program.explain(), "matmul_shared is left out: its pipeline failed with VK_ERROR_UNKNOWN\n"));
        CHECK(product_mismatch(program) == "");
    }

    TEST_CASE("left out: of kernels that are built at once, those that are refused") {
        const LeftOutByFile by_file;
        for (const std::uint64_t nth : {1, 2, 3, 4}) {
            CAPTURE(nth);
            fake::Vulkan vulkan;
            Device device = Device::create(through(vulkan));
            Insides::core(device).capabilities.type = DeviceType::discrete;
            Insides::core(device).capabilities.int64 = false;
            vulkan.vkCreateComputePipelines.fail(VK_ERROR_UNKNOWN, nth);
            Graph g;
            const Tensor q = random_tensor({1, 4, 9, 16}, 1), k = random_tensor({1, 2, 40, 16}, 2),
                         v = random_tensor({1, 2, 40, 16}, 3), x = random_tensor({3, 64}, 4),
                         w = random_tensor({70, 64}, 5);
            const auto input = [&](const char* name, const Tensor& t) {
                return g.input(name, Shape(t.shape.begin(), t.shape.end()));
            };
            const Value y = scaled_dot_product_attention(input("q", q), input("k", k), input("v", v)).y;
            g.output("y", contiguous(y));
            g.output("z", linear(input("x", x), input("w", w)));
            std::optional<Program> program;
            const std::string error = error_of([&] { program = device.compile(g, {}, {}); });
            if (!program) {  // elementwise, of which there is one
                CHECK(contains(error, "vkCreateComputePipelines gave VK_ERROR_UNKNOWN"));
                CHECK(device.left_out().empty());
                continue;
            }
            CHECK(device.left_out().size() <= 1);
            upload(*program, "q", q);
            upload(*program, "k", k);
            upload(*program, "v", v);
            upload(*program, "x", x);
            upload(*program, "w", w);
            program->run();
            CHECK(difference(download(*program, "y"), reference::attention(q, k, v).y) == "");
        }
    }

    TEST_CASE("left out: what VKFORMER_VARIANT asks for is an error that names it") {
        const LeftOutByFile by_file;
        const CompileOptions f16{.arithmetic = Arithmetic::f16};
        const auto of = [&](const std::function<void(fake::Vulkan&)>& change, const char* leave_out) {
            const Environment variant("VKFORMER_VARIANT", "matmul_half");
            fake::Vulkan vulkan;
            DeviceOptions options = through(vulkan);
            options.leave_out = leave_out;
            const Device device = Device::create(options);
            change(vulkan);
            const std::string error = error_of([&] { compile_product(device, f16); });
            CHECK(device.left_out().size() == device.capabilities().left_out.size());
            return error;
        };
        if (!device().capabilities().float16) {
            cannot_run("arithmetic in f16");
            return;
        }
        CHECK(contains(of([](fake::Vulkan& v) { v.vkCreateComputePipelines.fail(VK_ERROR_UNKNOWN); }, ""),
                       "VKFORMER_VARIANT asks for matmul_half; matmul_half is left out: its pipeline failed with "
                       "VK_ERROR_UNKNOWN"));
        CHECK(contains(of([](fake::Vulkan&) {}, "softmax,matmul_half"),
                       "VKFORMER_VARIANT asks for matmul_half; matmul_half is left out: DeviceOptions::leave_out says "
                       "so"));
        CHECK(of([](fake::Vulkan&) {}, "") == "");
    }

    TEST_CASE("left out: for want of memory one program takes the next kernel, and later ones do not") {
        const LeftOutByFile by_file;
        for (const VkResult result : {VK_ERROR_OUT_OF_HOST_MEMORY, VK_ERROR_OUT_OF_DEVICE_MEMORY}) {
            CAPTURE(result_name(result));
            fake::Vulkan vulkan;
            const Device device = Device::create(through(vulkan));
            Insides::core(device).capabilities.type = DeviceType::discrete;
            vulkan.vkCreateComputePipelines.fail(result);
            Program program = compile_product(device);
            CHECK(kernel_of(program) == "matmul");
            CHECK(contains(program.explain(),
                           "matmul_shared is left out: its pipeline failed with " + result_name(result) + "\n"));
            CHECK(product_mismatch(program) == "");
            CHECK(device.left_out().empty());
            CHECK(kernel_of(compile_product(device)) == "matmul_shared");
        }
        for (const VkResult result : {VK_ERROR_OUT_OF_HOST_MEMORY, VK_ERROR_OUT_OF_DEVICE_MEMORY}) {
            CAPTURE(result_name(result));
            fake::Vulkan vulkan;
            const Device device = Device::create(through(vulkan));
            vulkan.vkCreateComputePipelines.fail(result, 1, 1000);  // whatever is tried
            CHECK(contains(error_of([&] { compile_product(device); }), result_name(result)));
            CHECK(device.left_out().empty());
        }
    }

    TEST_CASE("left out: a lost device is an error, and leaves nothing out") {
        const LeftOutByFile by_file;
        fake::Vulkan vulkan;
        const Device device = Device::create(through(vulkan));
        vulkan.vkCreateComputePipelines.fail(VK_ERROR_DEVICE_LOST);
        CHECK(contains(error_of([&] { compile_product(device); }), "VK_ERROR_DEVICE_LOST"));
        CHECK(device.left_out().empty());
    }

    TEST_CASE("left out: a kernel that the driver refuses with a score mod leads to the next with it") {
        const LeftOutByFile by_file;
        if (!can_compile_glsl()) {
            cannot_run("score mods");
            return;
        }
        const Tensor q = random_tensor({1, 4, 9, 16}, 1), k = random_tensor({1, 2, 40, 16}, 2),
                     v = random_tensor({1, 2, 40, 16}, 3);
        bool refused = false;
        for (std::uint64_t nth = 1;; ++nth) {
            CAPTURE(nth);
            fake::Vulkan vulkan;
            const Device device = Device::create(through(vulkan));
            as_gpu(Insides::core(device).capabilities);  // which fuses this
            vulkan.vkCreateComputePipelines.fail(VK_ERROR_UNKNOWN, nth);
            Graph g;
            const auto input = [&](const char* name, const Tensor& t) {
                return g.input(name, Shape(t.shape.begin(), t.shape.end()));
            };
            AttentionOptions options;
            options.score_mod = ScoreMod::glsl(
                "float score_mod(float score, uint batch, uint head, uint query, uint key) { return 0.5 * score; }");
            g.output("y",
                     contiguous(scaled_dot_product_attention(input("q", q), input("k", k), input("v", v), options).y));
            std::optional<Program> program;
            const std::string error = error_of([&] { program = device.compile(g, {}, {}); });
            if (vulkan.vkCreateComputePipelines.calls < nth) {
                break;
            }
            if (!program) {  // elementwise, of which there is one
                CHECK(contains(error, "vkCreateComputePipelines gave VK_ERROR_UNKNOWN"));
                CHECK_MESSAGE(!contains(error, "attention"), error);
                continue;
            }
            const bool by_device = !device.left_out().empty();
            CHECK(contains(program->explain(), " is left out: its pipeline failed with VK_ERROR_UNKNOWN\n"));
            refused = refused || !by_device;
            upload(*program, "q", q);
            upload(*program, "k", k);
            upload(*program, "v", v);
            program->run();
            reference::AttentionOptions same;
            same.scores.scale = 0.5 / std::sqrt(16.0);
            CHECK(difference(download(*program, "y"), reference::attention(q, k, v, same).y) == "");
        }
        CHECK(refused);
    }

    TEST_CASE("left out: each kernel that stands in for another gives right results") {
        const LeftOutByFile by_file;
        for (const bool gpu : {false, true}) {
            CAPTURE(gpu);
            const Believed kind([&](Capabilities& c) {
                if (gpu) {
                    as_gpu(c);
                }
                c.variants.clear();
            });
            std::vector<LeftOut> without;
            std::string before;
            for (std::string kernel;; before = kernel) {
                const Believed fewer([&](Capabilities& c) { c.left_out = without; });
                Program program = compile_product(device());
                kernel = kernel_of(program);
                CAPTURE(kernel);
                CHECK(product_mismatch(program) == "");
                if (kernel == before) {
                    break;
                }
                without.push_back({kernel, "a test says so"});
            }
            CHECK(before == "matmul");
        }
    }

    TEST_CASE("left out: of a processor's norms each leads to the next") {
        const LeftOutByFile by_file;
        if (!device().capabilities().cpu()) {
            cannot_run("a processor");
            return;
        }
        const Tensor x = random_tensor({19, 36}, 1), w = random_tensor({36}, 2);
        std::vector<LeftOut> without;
        std::optional<Tensor> want;
        for (std::string kernel; kernel != "layer_norm"; without.push_back({kernel, "a test says so"})) {
            const Believed believed([&](Capabilities& c) {
                c.variants.clear();
                c.left_out = without;
            });
            OpCheck check;
            const Tensor y = check.run(rms_norm(check.input("x", x), check.input("w", w)));
            const Program program = device().compile(check.graph);
            kernel = plan_of(program).dispatches.front().dispatch.kernels.front().shader->name;
            CAPTURE(kernel);
            for (const LeftOut& left : without) {
                REQUIRE(left.kernel != kernel);
            }
            want = want ? want : y;
            CHECK(same_bits(y, *want));
        }
        const Capabilities& c = device().capabilities();
        const bool shares = hands_round(c);
        CHECK(without.size() == std::size_t{shares ? 2u : 1u} * (c.int64 ? 2 : 1));
    }

    TEST_CASE("left out: kernels for few rows, and those by subgroups, lead to the ones before them") {
        const LeftOutByFile by_file;
        const Tensor x = random_tensor({3, 640}, 1), w = random_tensor({8, 640}, 2),
                     kv = random_tensor({1, 2, 70, 64}, 3);
        const Tensor q = random_tensor({1, 8, 1, 64}, 4);
        const std::function<Value(OpCheck&)> describe[] = {
            [&](OpCheck& c) { return softmax(c.input("x", x)); },
            [&](OpCheck& c) { return layer_norm(c.input("x", x), {}, {}); },
            [&](OpCheck& c) { return top_k(c.input("x", x), 5).values; },
            [&](OpCheck& c) { return linear(c.input("x", x), c.input("w", w)); },
            [&](OpCheck& c) {
                const Value k = c.input("k", kv);
                return scaled_dot_product_attention(c.input("q", q), k, k).y;
            },
        };
        for (const auto& op : describe) {
            const auto run = [&](std::vector<std::string>& kernels) {
                OpCheck check;
                const Tensor y = check.run(op(check));
                const Program program = device().compile(check.graph);
                kernels.clear();
                for (const PlannedDispatch& d : plan_of(program).dispatches) {
                    kernels.emplace_back(d.dispatch.kernels.front().shader->name);
                }
                return y;
            };
            std::vector<std::string> kernels;
            const Tensor want = run(kernels);
            std::vector<LeftOut> without;
            std::size_t forms = 0;
            for (bool again = true; again; ++forms) {
                const Believed gpu([&](Capabilities& c) {
                    as_gpu(c);
                    c.left_out = without;
                });
                const Tensor got = run(kernels);
                CAPTURE(kernels.front());
                CHECK(difference(got, want, {1e-5, 1e-5}) == "");
                const std::string& kernel = kernels.front();
                again = contains(kernel, "subgroups") || contains(kernel, "_rows") || contains(kernel, "_columns") ||
                        contains(kernel, "_parts");
                without.push_back({kernel, "a test says so"});
            }
            CHECK(forms > (device().capabilities().minimum_profile ? 0 : 1));
        }
    }

    TEST_CASE("left out: kept in the cache folder, found by later devices, forgotten") {
        const LeftOutByFile by_file;
        const TemporaryFolder folder;
        const DeviceOptions options{.cache_folder = folder.path()};
        const Device before = Device::create(options);
        CHECK(before.left_out().empty());
        const std::string kernel = kernel_of(compile_product(before));
        const std::vector<LeftOut> list{{kernel, "the doctor found it wrong, a day in June"}, {"of_later", "so"}};
        const std::filesystem::path file = save_left_out(before, list);
        CHECK(file == left_out_file(before));
        CHECK(before.left_out().empty());
        const Device after = Device::create(options);
        CHECK(after.left_out() == list);
        CHECK(after.capabilities().left_out == list);
        if (kernel != "matmul") {
            const Program program = compile_product(after);
            CHECK(kernel_of(program) != kernel);
            CHECK(contains(program.explain(), kernel + " is left out: the doctor found it wrong, a day in June\n"));
        }
        DeviceOptions own = options;
        own.leave_out = "0";
        CHECK(Device::create(own).left_out().empty());
        const auto unused = [&](const char* by) {
            return "kernels that are left out: " + utf8_name(file) + " is not used, for " + by + " is 0\n";
        };
        CHECK(contains(compile_product(Device::create(own)).explain(), unused("DeviceOptions::leave_out")));
        {
            const Environment variable("VKFORMER_LEAVE_OUT", "0");
            CHECK(contains(compile_product(Device::create(options)).explain(), unused("VKFORMER_LEAVE_OUT")));
        }
        own.leave_out = "a,b";
        CHECK(Device::create(own).left_out() == std::vector<LeftOut>{{"a", "DeviceOptions::leave_out says so"},
                                                                     {"b", "DeviceOptions::leave_out says so"}});
        own.leave_out = "a,,b";
        CHECK(contains(error_of([&] { Device::create(own); }), "has a kernel without a name"));
        own.leave_out = "a, b";
        CHECK(contains(error_of([&] { Device::create(own); }), "has \" b\", and no kernel's name has spaces"));
        {
            const Environment variable("VKFORMER_LEAVE_OUT", "c");
            CHECK(Device::create(own).left_out() == std::vector<LeftOut>{{"c", "VKFORMER_LEAVE_OUT says so"}});
        }
        if (!after.capabilities().minimum_profile) {
            own = options;
            own.minimum_profile = true;  // which is another device
            CHECK(Device::create(own).left_out().empty());
        }
        CHECK(contains(error_of([&] { save_left_out(after, {{{"two words", "why"}}}); }), "cannot stand in a list"));
        CHECK(contains(error_of([&] {
                           save_left_out(after, {{{"kernel", "two\nlines"}}});
                       }),
                       "cannot stand in a list"));
        CHECK(save_left_out(after, {}) == file);
        CHECK_FALSE(std::filesystem::exists(file));
        CHECK(Device::create(options).left_out().empty());
        own = options;
        own.leave_out = "0";
        CHECK(Device::create(own).capabilities().left_out_damage == "");
        CHECK(save_left_out(after, {}) == file);
    }

    TEST_CASE("left out: explain() says so where nothing stands in for a kernel") {
        const LeftOutByFile by_file;
        const Device asked = Device::create({.leave_out = "elementwise,elementwise_wide"});
        Graph g;
        const Value x = g.input("x", {4, 8});
        g.output("y", add(x, x));
        const Program program = asked.compile(g);
        const std::string taken = kernel_of(program);
        const std::string said = program.explain();
        CHECK(
            contains(said, taken + " is not left out, for nothing stands in for it: DeviceOptions::leave_out says so"));
        CHECK_FALSE(contains(said, taken + " is left out"));
    }

    TEST_CASE("left out: of two devices of one model each has its own list, and the cache is for both") {
        const LeftOutByFile by_file;
        const Environment none("VKFORMER_PIPELINE_CACHE", std::nullopt);
        const TemporaryFolder folder;
        fake::Vulkan vulkan;
        std::uint8_t number = 1;
        vulkan.vkGetPhysicalDeviceProperties2.instead = [&](VkPhysicalDevice device, VkPhysicalDeviceProperties2* out) {
            vulkan.vkGetPhysicalDeviceProperties2.real(device, out);
            auto* ids = static_cast<VkPhysicalDeviceIDProperties*>(out->pNext);
            if (ids && ids->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES) {
                ids->deviceUUID[15] = number;
            }
        };
        const DeviceOptions options{.cache_folder = folder.path(), .get_instance_proc_addr = vulkan.entry()};
        const Device first = Device::create(options);
        const std::vector<LeftOut> list{{"matmul", "why not"}};
        save_left_out(first, list);
        number = 2;
        const Device second = Device::create(options);
        CHECK(second.left_out().empty());
        CHECK(left_out_file(second) != left_out_file(first));
        CHECK(tuning_file(second) == tuning_file(first));
        number = 1;
        CHECK(Device::create(options).left_out() == list);
    }

    TEST_CASE("left out: a list that would not be read again is refused") {
        const LeftOutByFile by_file;
        const TemporaryFolder folder;
        const DeviceOptions options{.cache_folder = folder.path()};
        const Device device = Device::create(options);
        const std::size_t others = std::string_view("vkformer left out 1\nmatmul \n").size();
        std::vector<LeftOut> list{{"matmul", std::string((1 << 16) - others, 'x')}};
        save_left_out(device, list);
        CHECK(Device::create(options).left_out() == list);
        list[0].why += 'x';
        CHECK(contains(error_of([&] { save_left_out(device, list); }), "at most 65536 bytes, not 65537"));
        CHECK(Device::create(options).left_out().size() == 1);  // the one before
    }

    TEST_CASE("left out: of a file that is damaged every line is used that can be, and explain() tells of the rest") {
        const LeftOutByFile by_file;
        const TemporaryFolder folder;
        const DeviceOptions options{.cache_folder = folder.path()};
        const std::filesystem::path file = left_out_file(Device::create(options));
        std::filesystem::create_directories(file.parent_path());
        const struct {
            const char* text;
            std::size_t kernels;
            const char* told;
        } files[] = {{"", 0, "could not be read as a list of this version"},
                     {"vkformer left out 2\nmatmul why\n", 0, "could not be read as a list of this version"},
                     {"\n\n", 0, "could not be read as a list of this version"},
                     {"vkformer left out 1\nmatmul\n", 0,
                      "was damaged when the device was made: lines that name no kernel: 1\n"},
                     {"vkformer left out 1\n\xff\nmatmul why\n\n", 1,
                      "was damaged when the device was made: lines that name no kernel: 2\n"},
                     {"vkformer left out 1\nmatmul why", 1, nullptr}};
        for (const auto& f : files) {
            CAPTURE(f.text);
            std::ofstream(file, std::ios::binary) << f.text;
            const Device device = Device::create(options);
            CHECK(device.left_out().size() == f.kernels);
            const std::string explained = compile_product(device).explain();
            CHECK(contains(explained, "kernels that are left out: " + file.string() + " ") == (f.told != nullptr));
            CHECK((f.told == nullptr || contains(explained, f.told)));
        }
        std::filesystem::remove(file);
        std::filesystem::create_symlink("nowhere", file);
        CHECK(contains(Device::create(options).capabilities().left_out_damage, "could not be read as a list"));
        std::ofstream(file, std::ios::binary) << "vkformer left out 1\nmatmul why not\n";
        CHECK(Device::create(options).left_out() == std::vector<LeftOut>{{"matmul", "why not"}});
    }

    TEST_CASE("left out: weights are packed by the host where the driver refuses to") {
        const LeftOutByFile by_file;
        const Tensor w = random_tensor({6, 40}, 1);
        const std::vector<float> numbers = w.floats();
        const auto load = [&](PackOn on, VkResult result, std::uint64_t times) {
            fake::Vulkan vulkan;
            const Device device = Device::create(through(vulkan));
            Insides::core(device).capabilities.type = DeviceType::discrete;
            vulkan.vkCreateComputePipelines.fail(result, 1, times);
            LoadOptions options;
            options.matrices = WeightType::int8;
            options.pack_on = on;
            const HostTensor tensor = host_tensor("w", {6, 40}, numbers);
            const std::string error = error_of([&] { device.load({&tensor, 1}, options); });
            return std::pair{error, vulkan.vkCreateComputePipelines.calls.load()};
        };
        CHECK(load(PackOn::by_device, VK_SUCCESS, 0) == std::pair{std::string(), std::uint64_t{1}});
        CHECK(load(PackOn::by_device, VK_ERROR_UNKNOWN, 1) == std::pair{std::string(), std::uint64_t{1}});
        CHECK(load(PackOn::by_device, VK_ERROR_OUT_OF_HOST_MEMORY, 1) == std::pair{std::string(), std::uint64_t{1}});
        CHECK(contains(load(PackOn::by_device, VK_ERROR_DEVICE_LOST, 1).first, "VK_ERROR_DEVICE_LOST"));
        CHECK(contains(load(PackOn::device, VK_ERROR_UNKNOWN, 1).first, "gave VK_ERROR_UNKNOWN"));
    }

    TEST_CASE("left out: threads that compile at once go on with what the first of them found") {
        const LeftOutByFile by_file;
        fake::Vulkan vulkan;
        Device device = Device::create(through(vulkan));
        Insides::core(device).capabilities.type = DeviceType::discrete;
        vulkan.vkCreateComputePipelines.fail(VK_ERROR_UNKNOWN);
        std::vector<std::string> kernels(4);
        std::vector<std::thread> threads;
        for (std::string& kernel : kernels) {
            threads.emplace_back([&] { kernel = kernel_of(compile_product(device)); });
        }
        for (std::thread& t : threads) {
            t.join();
        }
        CHECK(std::count(kernels.begin(), kernels.end(), "matmul") >= 1);
        CHECK(device.left_out().size() == 1);
        CHECK(kernel_of(compile_product(device)) == "matmul");
    }
}

}  // namespace vkf::test
