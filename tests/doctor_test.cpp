// SPDX-License-Identifier: Apache-2.0
// tools/doctor: on devices that are right, and on drivers that lie.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "ops/lanes.h"
#include "ops/ops.h"
#include "tests/allocations.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/lying_device.h"
#include "tests/op_check.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/measure.h"
#include "tools/doctor/report.h"

namespace vkf::test {

namespace {

std::string read_all(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

/// What the doctor says, and its exit code.
struct Visit {
    int code = 0;
    std::string said;
};

Visit visit(DoctorOptions options, bool quick = true) {
    options.quick = quick;
    options.measure = false;
    options.out = std::tmpfile();
    Visit out;
    out.code = run_doctor(options);
    std::rewind(options.out);
    char part[4096];
    while (const std::size_t count = std::fread(part, 1, sizeof(part), options.out)) {
        out.said.append(part, count);
    }
    std::fclose(options.out);
    return out;
}

/// Compiles a product whose kernel is the device's first choice.
std::string explained_product(const DeviceOptions& options) {
    Graph g;
    g.output("y", linear(g.input("x", {150, 64}), g.input("w", {72, 64})));
    return Device::create(options).compile(g, {}).explain();
}

}  // namespace

TEST_SUITE("doctor") {
    TEST_CASE("doctor: a device that is right, and a report that tells nobody whose it is") {
        const LeftOutByFile by_file;
        const TemporaryFolder cache, reports;
        const Visit v = visit({.folder = reports.path(), .cache_folder = cache.path()});
        CHECK(v.code == 0);
        CHECK(contains(v.said, "healthy, after "));
        CHECK(contains(v.said, device().capabilities().name));
        const std::string text = read_all(reports.path() / "report.json"),
                          page = read_all(reports.path() / "report.html");
        const nlohmann::json report = nlohmann::json::parse(text);
        CHECK(report.at("verdict") == "healthy");
        CHECK(report.at("examined").at("name") == device().capabilities().name);
        CHECK(report.at("checks").size() >= 14);
        CHECK(report.at("left_out").empty());
        CHECK(report.at("fp32_keeps").at("nan") == true);
        CHECK(report.at("f16_keeps").at("denormals").is_boolean());
        CHECK(contains(page, "<svg "));
        CHECK(contains(page, "(examined)"));
        CHECK_FALSE(contains(page, "http"));  // nothing is fetched
        for (const std::string& written : {text, page}) {
            CHECK_FALSE(contains(written, reports.path().string()));
            CHECK_FALSE(contains(written, cache.path().string()));
            for (const char* name : {"HOME", "USER", "HOSTNAME"}) {
                const char* value = std::getenv(name);
                CHECK_FALSE((value && std::string_view(value).size() > 4 && contains(written, value)));
            }
        }
        CHECK(Device::create({.cache_folder = cache.path()}).left_out().empty());
    }

    TEST_CASE("doctor: names that are no UTF-8 cost no report") {
        Report report;
        report.device.name = "GPU \xff\xc3";
        report.devices = {report.device};
        const nlohmann::json read = nlohmann::json::parse(json_of(report));
        CHECK(read.at("examined").at("name") == "GPU \xef\xbf\xbd\xef\xbf\xbd");
        CHECK(contains(html_of(report), "GPU "));
    }

    TEST_CASE("doctor: of several devices of one name the examined one is marked") {
        Report report;
        report.device.name = "Graphics";
        report.devices = {report.device, report.device, report.device};
        report.examined = 1;
        const std::string page = html_of(report);
        const std::size_t at = page.find("Graphics (examined)");
        CHECK(at != std::string::npos);
        CHECK(page.find("(examined)", at + 20) == std::string::npos);
        CHECK(page.find("<td>Graphics<") < at);
    }

    TEST_CASE("doctor: a report that cannot be written says so, and is no verdict") {
        const LeftOutByFile by_file;
        const TemporaryFolder cache, reports;
        const std::filesystem::path file = reports.path() / "file";
        std::ofstream(file) << "no folder";
        fake::Vulkan vulkan;
        const Visit early =
            visit({.folder = file, .cache_folder = cache.path(), .get_instance_proc_addr = vulkan.entry()});
        CHECK(early.code == kNoReport);
        CHECK(contains(early.said, "the report cannot be written: "));
        CHECK(vulkan.vkCreateDevice.calls == 0);  // found before the examination
        std::filesystem::create_directories(reports.path() / "report.json");
        const Visit late = visit({.folder = reports.path(), .cache_folder = cache.path()});
        CHECK(late.code == kNoReport);
        CHECK(contains(late.said, "report.json: "));
        CHECK(contains(late.said, "healthy, after "));
        CHECK(contains(read_all(reports.path() / "report.html"), "healthy"));
    }

    TEST_CASE("doctor: a kernel that hangs and has none in its place is not left out") {
        const LeftOutByFile by_file;
        const TemporaryFolder cache, reports;
        fake::Vulkan vulkan;
        std::uint64_t waits = 0;
        vulkan.vkCreateDevice.instead = [&](VkPhysicalDevice physical, const VkDeviceCreateInfo* info,
                                            const VkAllocationCallbacks* callbacks, VkDevice* device) {
            waits = 0;
            return vulkan.vkCreateDevice.real(physical, info, callbacks, device);
        };
        vulkan.vkWaitForFences.instead = [&](VkDevice device, std::uint32_t count, const VkFence* fences, VkBool32 all,
                                             std::uint64_t limit) {
            const VkResult result = vulkan.vkWaitForFences.real(device, count, fences, all, limit);
            return ++waits > 8 ? VK_TIMEOUT : result;  // behind the first check's
        };
        const Visit v =
            visit({.folder = reports.path(), .cache_folder = cache.path(), .get_instance_proc_addr = vulkan.entry()});
        CHECK(v.code == 2);
        CHECK(vulkan.vkCreateDevice.calls < 7);
        const nlohmann::json report = nlohmann::json::parse(read_all(reports.path() / "report.json"));
        const std::string last = report.at("checks").back().at("kernel");
        CHECK_FALSE(contains(v.said, "programs do without " + last + " "));
        std::vector<std::string> kept;
        for (const LeftOut& k : Device::create({.cache_folder = cache.path()}).left_out()) {
            CHECK(k.kernel != last);
            CHECK(std::find(kept.begin(), kept.end(), k.kernel) == kept.end());
            kept.push_back(k.kernel);
        }
        CHECK(report.at("left_out").size() == kept.size());
        // what was not looked at
        CHECK(report.contains("fp32_keeps"));
        CHECK_FALSE(report.contains("f16_keeps"));
        CHECK_FALSE(contains(v.said, "f16 keeps"));
    }

    TEST_CASE("doctor: a kernel that is wrong is kept from later programs, until it is forgotten") {
        const LeftOutByFile by_file;
        if (!hands_round(device().capabilities())) {
            cannot_run("kernels that shuffle");
            return;
        }
        const TemporaryFolder cache, reports;
        fake::Vulkan vulkan;
        LyingDevice liar(vulkan, LyingDevice::kShuffles);
        liar.corrupt();
        DoctorOptions options{
            .folder = reports.path(), .cache_folder = cache.path(), .get_instance_proc_addr = vulkan.entry()};
        options.keep = false;
        CHECK(visit(options).code == 1);
        CHECK(contains(explained_product({.cache_folder = cache.path()}), "matmul_lanes"));
        options.keep = true;
        const Visit v = visit(options);
        CHECK(v.code == 1);
        CHECK(contains(v.said, "programs do without matmul_lanes"));
        CHECK(contains(v.said, "degraded, after "));
        CHECK(nlohmann::json::parse(read_all(reports.path() / "report.json")).at("verdict") == "degraded");
        CHECK(contains(read_all(reports.path() / "report.html"), "class=\"bad\""));
        const std::string how = explained_product({.cache_folder = cache.path()});
        CHECK(contains(how, "matmul<"));
        CHECK(contains(how, " is left out: the doctor found it wrong on 2"));
        // who is on the list is examined all the same
        CHECK(visit(options).code == 1);
        options.forget = true;
        CHECK(visit(options).code == 0);
        CHECK(contains(explained_product({.cache_folder = cache.path()}), "matmul_lanes"));
        CHECK(vulkan.live_objects() == 0);
    }

    TEST_CASE("doctor: what one examination found stays where the next has not looked at everything") {
        const LeftOutByFile by_file;
        const TemporaryFolder cache;
        const Device device = Device::create({.cache_folder = cache.path()});
        const LeftOut rare{"attention_merge", "the doctor found it wrong on 2026-01-01: so"};
        save_left_out(device, {{rare}});
        const Visit quick = visit({.cache_folder = cache.path()});
        CHECK(quick.code == 0);
        CHECK(contains(quick.said, "programs go on without attention_merge"));
        CHECK(Device::create({.cache_folder = cache.path()}).left_out() == std::vector<LeftOut>{rare});
        if (hands_round(device.capabilities())) {  // what is found comes beside it
            fake::Vulkan vulkan;
            LyingDevice liar(vulkan, LyingDevice::kShuffles);
            liar.corrupt();
            CHECK(visit({.cache_folder = cache.path(), .get_instance_proc_addr = vulkan.entry()}).code == 1);
            const std::vector<LeftOut> both = Device::create({.cache_folder = cache.path()}).left_out();
            CHECK(both.size() > 1);
            CHECK(std::find(both.begin(), both.end(), rare) != both.end());
        }
        {  // a whole one that saw nothing of the kernels
            fake::Vulkan vulkan;
            LyingDevice liar(vulkan, LyingDevice::kEveryKernel);
            liar.drop();
            const Visit whole = visit({.cache_folder = cache.path(), .get_instance_proc_addr = vulkan.entry()}, false);
            CHECK(whole.code == 2);
            CHECK(contains(whole.said, "programs go on without attention_merge"));
        }
        DoctorOptions dry{.cache_folder = cache.path()};
        dry.keep = false;
        CHECK_FALSE(contains(visit(dry).said, "programs go on"));
    }

    TEST_CASE("doctor: a whole examination takes back a kernel that it ran and found right") {
        Report report;
        report.day = "2026-11-28";
        report.test.checks = {{.kernel = "right + another", .what = "one"},
                              {.kernel = "wrong", .what = "two", .problem = "so"},
                              {.kernel = "unlike", .what = "three", .problem = "so"}};
        report.test.left_out = {{"wrong", "so"}};
        report.test.verdict = Verdict::degraded;
        const LeftOut image{"image_rows", "of old"}, unlike{"unlike", "of old"};
        const KeptBefore before{{{"right", "of old"}, {"wrong", "of old"}, image, unlike}};
        const LeftOut wrong{"wrong", "the doctor found it wrong on 2026-11-28: so"};
        const Kept kept = kept_of(report, before);
        CHECK(kept.list == std::vector<LeftOut>{wrong, image, unlike});
        CHECK(contains(kept.said, "programs take right again: it was right\n"));
        CHECK(contains(kept.said, "programs do without wrong from now on"));
        CHECK(contains(kept.said, "programs go on without image_rows: no check ran it\n"));
        CHECK(contains(kept.said, "programs go on without unlike: it was wrong again\n"));
        report.test.complete = false;
        CHECK(kept_of(report, before).list.size() == 4);
    }

    TEST_CASE("doctor: a list that is damaged stays as it is until a whole examination replaces it") {
        const LeftOutByFile by_file;
        const TemporaryFolder cache;
        const std::filesystem::path list = left_out_file(Device::create({.cache_folder = cache.path()}));
        for (const char* text :
             {"vkformer left out 9\nattention_merge so\n", "vkformer left out 1\nattention_merge so\nattention_ma"}) {
            CAPTURE(text);
            std::ofstream(list, std::ios::binary) << text;
            const std::string damage = Device::create({.cache_folder = cache.path()}).capabilities().left_out_damage;
            REQUIRE(damage != "");
            const Visit quick = visit({.cache_folder = cache.path()});
            CHECK(quick.code == 0);
            CHECK(contains(quick.said, damage + "; only a whole examination replaces it\n"));
            CHECK(read_all(list) == text);
            if (hands_round(device().capabilities())) {
                fake::Vulkan vulkan;
                LyingDevice liar(vulkan, LyingDevice::kShuffles);
                liar.corrupt();
                const Visit found = visit({.cache_folder = cache.path(), .get_instance_proc_addr = vulkan.entry()});
                CHECK(found.code == 1);
                CHECK(contains(found.said, "what programs do without could not be kept: " + damage));
                CHECK_FALSE(contains(found.said, "from now on"));
                CHECK(read_all(list) == text);
            }
        }
        Report report;
        const Kept whole = kept_of(report, {{{"attention_merge", "so"}}, "the list was damaged"});
        CHECK_FALSE(whole.leave_file);
        CHECK(whole.said.starts_with("the list was damaged; it is replaced\n"));
        CHECK(whole.list.size() == 1);
        report.test.complete = false;
        CHECK(kept_of(report, {{}, "the list was damaged"}).leave_file);
    }

    TEST_CASE("doctor: of kernels that lose the device together the one is left out that no check has passed with") {
        const LeftOutByFile by_file;
        for (const char* name : {"attention_merge", "attention_mask"}) {
            const std::string kernel = name;
            CAPTURE(kernel);
            const TemporaryFolder cache;
            fake::Vulkan vulkan;
            LyingDevice liar(vulkan, name);
            liar.lose();
            const Visit v = visit({.cache_folder = cache.path(), .get_instance_proc_addr = vulkan.entry()});
            const std::vector<LeftOut> kept = Device::create({.cache_folder = cache.path()}).left_out();
            if (!liar.met()) {
                CHECK(v.code == 0);
                CHECK(kept.empty());
                cannot_run(std::string(name) + ", which the short form does not take");
                continue;
            }
            CAPTURE(v.said);
            CHECK(v.code == 1);
            REQUIRE(kept.size() == 1);
            CHECK(kept[0].kernel == name);
        }
        // nothing stands in for this one: no other kernel is blamed for it
        const TemporaryFolder cache;
        fake::Vulkan vulkan;
        LyingDevice liar(vulkan, "attention_sequences");
        liar.lose();
        const Visit v = visit({.cache_folder = cache.path(), .get_instance_proc_addr = vulkan.entry()});
        CHECK(v.code == (liar.met() ? 2 : 0));
        CHECK(Device::create({.cache_folder = cache.path()}).left_out().empty());
    }

    TEST_CASE("doctor: a check that fails on a later device is told, though an earlier one passed it") {
        SelfTest all, later;
        all.checks = {{.kernel = "a", .what = "one"}, {.kernel = "b", .what = "two", .problem = "so"}};
        later.checks = {{.kernel = "a", .what = "one", .problem = "wrong"},
                        {.kernel = "b", .what = "two"},
                        {.kernel = "c", .what = "two"}};
        later.left_out = {{"a", "wrong"}};
        put_behind(all, later);
        REQUIRE(all.checks.size() == 3);
        CHECK(all.checks[0].problem == "wrong");
        CHECK(all.checks[1].problem == "so");
        CHECK(all.checks[2].kernel == "c");
        CHECK(all.verdict == Verdict::degraded);
    }

    TEST_CASE("doctor: what another program keeps meanwhile stays") {
        const LeftOutByFile by_file;
        const TemporaryFolder cache;
        const LeftOut other{"attention_merge", "the doctor found it wrong on 2026-01-01: so"};
        const Device device = Device::create({.cache_folder = cache.path()});
        fake::Vulkan vulkan;
        vulkan.vkQueueSubmit.instead = [&](VkQueue queue, std::uint32_t count, const VkSubmitInfo* infos,
                                           VkFence fence) {
            if (vulkan.vkQueueSubmit.calls == 20) {
                save_left_out(device, {{other}});
            }
            return vulkan.vkQueueSubmit.real(queue, count, infos, fence);
        };
        const Visit v = visit({.cache_folder = cache.path(), .get_instance_proc_addr = vulkan.entry()});
        CHECK(v.code == 0);
        CHECK(vulkan.vkQueueSubmit.calls > 20);
        CHECK(contains(v.said, "programs go on without attention_merge"));
        CHECK(Device::create({.cache_folder = cache.path()}).left_out() == std::vector<LeftOut>{other});
    }

    TEST_CASE("doctor: a list that has no folder to be kept in is told") {
        const LeftOutByFile by_file;
        if (!hands_round(device().capabilities())) {
            cannot_run("kernels that shuffle");
            return;
        }
        const Environment home("HOME", {}), cache("XDG_CACHE_HOME", {}), folder("VKFORMER_CACHE_DIR", {}),
            local("LOCALAPPDATA", {});
        CHECK_FALSE(contains(visit({}).said, "could not be kept"));
        fake::Vulkan vulkan;
        LyingDevice liar(vulkan, LyingDevice::kShuffles);
        liar.corrupt();
        const Visit v = visit({.get_instance_proc_addr = vulkan.entry()});
        CHECK(v.code == 1);
        CHECK(contains(v.said, "what programs do without could not be kept: save_left_out: there is no cache folder"));
    }

    TEST_CASE("doctor: ceilings are told where no op could be measured") {
        Report report;
        report.ceilings = {{"multiply-adds in fp32", "rate", 1, 1234}};
        CHECK(contains(html_of(report), "multiply-adds in fp32"));
        CHECK(contains(html_of(report), "1234.0"));
    }

    TEST_CASE("doctor: memory of the host's that is short leaves out a measurement, and not the verdict") {
        if (!allocations::can_fail()) {
            cannot_run("allocations that fail");
            return;
        }
        const LeftOutByFile by_file;
        const TemporaryFolder cache;
        const Device device = Device::create({.cache_folder = cache.path()});
        bool told = false;
        for (std::uint64_t nth = 50; nth < 3000; nth *= 7) {
            CAPTURE(nth);
            Report report;
            {
                const allocations::Failing failing(nth, false);
                measure(device, 0, report);
            }
            CHECK(report.test.verdict == Verdict::healthy);
            told = told || contains(report.not_measured, "std::bad_alloc");
        }
        CHECK(told);
    }

    TEST_CASE("doctor: where no device can be made behind a hang, the list and the report are kept") {
        const LeftOutByFile by_file;
        if (!hands_round(device().capabilities())) {
            cannot_run("kernels that shuffle");
            return;
        }
        const TemporaryFolder cache, reports;
        fake::Vulkan vulkan;
        LyingDevice liar(vulkan, LyingDevice::kShuffles);
        liar.hang();
        // of the list that was kept, and of the examination
        vulkan.vkCreateDevice.fail(VK_ERROR_INITIALIZATION_FAILED, 3, 1000);
        const Visit v =
            visit({.folder = reports.path(), .cache_folder = cache.path(), .get_instance_proc_addr = vulkan.entry()});
        CHECK(v.code == 2);
        CHECK(contains(v.said, "another after one was lost"));
        CHECK(contains(v.said, "programs do without "));
        CHECK(nlohmann::json::parse(read_all(reports.path() / "report.json")).at("verdict") == "unusable");
        CHECK(Device::create({.cache_folder = cache.path()}).left_out().size() == 1);
    }

    TEST_CASE("doctor: a list that cannot be kept costs no report") {
        const LeftOutByFile by_file;
        if (!hands_round(device().capabilities())) {
            cannot_run("kernels that shuffle");
            return;
        }
        const TemporaryFolder cache, reports;
        const std::filesystem::path file = cache.path() / "file";
        std::ofstream(file) << "no folder";
        fake::Vulkan vulkan;
        LyingDevice liar(vulkan, LyingDevice::kShuffles);
        liar.corrupt();
        const Visit v =
            visit({.folder = reports.path(), .cache_folder = file, .get_instance_proc_addr = vulkan.entry()});
        CHECK(v.code == 1);
        CHECK(contains(v.said, "what programs do without could not be kept: "));
        CHECK_FALSE(contains(v.said, "from now on"));
        CHECK(nlohmann::json::parse(read_all(reports.path() / "report.json")).at("verdict") == "degraded");
    }

    TEST_CASE("doctor: memory that is short keeps no kernel from programs") {
        const LeftOutByFile by_file;
        const TemporaryFolder cache;
        fake::Vulkan vulkan;
        vulkan.vkCreateBuffer.fail(VK_ERROR_OUT_OF_DEVICE_MEMORY, 20);
        const Visit v = visit({.cache_folder = cache.path(), .get_instance_proc_addr = vulkan.entry()});
        CHECK(v.code == 0);
        CHECK(contains(v.said, "not everything was tested"));
        CHECK(Device::create({.cache_folder = cache.path()}).left_out().empty());
    }

    TEST_CASE("doctor: between the runs that are timed as much is copied") {
        const LeftOutByFile by_file;
        const TemporaryFolder cache;
        fake::Vulkan vulkan;
        const Device device = Device::create({.cache_folder = cache.path(), .get_instance_proc_addr = vulkan.entry()});
        Report report;
        measure(device, 0, report);  // the fewest runs of each
        constexpr std::uint64_t kRuns = 4;
        CHECK(vulkan.vkQueueSubmit.calls >= report.ops.size() * (2 * kRuns - 1));
        const auto shares =
            std::count_if(report.ops.begin(), report.ops.end(), [](const Measured& m) { return m.share > 0; });
        CHECK(shares > 3);
    }

    TEST_CASE("doctor: a share is told of a ceiling that was measured") {
        const Ceilings all{.gflops = 100, .matrix_gflops = 800, .gbps = 50};
        const Measured lanes{"op", "matmul_lanes", 1, 20, 5}, rows{"op", "softmax", 1, 20, 40},
            matrices{"op", "matmul_coopmat", 1, 200, 5}, int8{"op", "matmul_coopmat_int8", 1, 400, 5};
        CHECK(share_of_ceiling(lanes, Arithmetic::f32, all) == 0.2);
        CHECK(share_of_ceiling(rows, Arithmetic::f32, all) == 0.8);
        CHECK(share_of_ceiling(matrices, Arithmetic::f16, all) == 0.25);
        CHECK(share_of_ceiling(lanes, Arithmetic::f16, all) == 0);
        for (const Measured& op : {lanes, int8}) {
            CHECK(share_of_ceiling(op, Arithmetic::int8, all) == 0);
        }
        CHECK(share_of_ceiling(lanes, Arithmetic::f32, {.gflops = 100}) == 0);
    }

    TEST_CASE("doctor: what cannot be measured is told, and leaves the verdict") {
        const LeftOutByFile by_file;
        const TemporaryFolder cache;
        fake::Vulkan vulkan;
        const Device device = Device::create({.cache_folder = cache.path(), .get_instance_proc_addr = vulkan.entry()});
        Report report;
        report.test.verdict = Verdict::degraded;
        std::uint64_t large = 0;
        vulkan.vkAllocateMemory.instead = [&](VkDevice on, const VkMemoryAllocateInfo* info,
                                              const VkAllocationCallbacks* callbacks, VkDeviceMemory* memory) {
            if (info->allocationSize >= 64 << 20) {
                ++large;
                return VK_ERROR_OUT_OF_DEVICE_MEMORY;
            }
            return vulkan.vkAllocateMemory.real(on, info, callbacks, memory);
        };
        measure(device, 1e-3, report);
        CHECK(large > 0);
        CHECK(std::all_of(report.ops.begin(), report.ops.end(), [](const Measured& m) { return m.share == 0; }));
        CHECK(contains(report.not_measured, "copy of 64 MiB: "));
        CHECK(report.ceilings.size() == 1);
        CHECK(report.ops.size() > 3);
        CHECK(report.test.verdict == Verdict::degraded);
    }

    TEST_CASE("doctor: a driver that refuses kernels is degraded, one that is wrong with all is unusable") {
        const LeftOutByFile by_file;
        const TemporaryFolder cache;
        if (hands_round(device().capabilities())) {
            fake::Vulkan vulkan;
            LyingDevice liar(vulkan, LyingDevice::kShuffles);
            liar.refuse();
            const Visit v = visit({.cache_folder = cache.path(), .get_instance_proc_addr = vulkan.entry()});
            CHECK(v.code == 1);
            CHECK(contains(v.said, "its pipeline failed with VK_ERROR_UNKNOWN"));
        }
        for (const bool drops : {false, true}) {
            CAPTURE(drops);
            fake::Vulkan vulkan;
            LyingDevice liar(vulkan, LyingDevice::kEveryKernel);
            if (drops) {
                liar.drop();
            } else {
                liar.corrupt();
            }
            const Visit v = visit({.cache_folder = cache.path(), .get_instance_proc_addr = vulkan.entry()});
            CHECK(v.code == 2);
            CHECK(contains(v.said, "unusable, after "));
        }
    }

    TEST_CASE("doctor: goes on, on a new device, behind a kernel that hangs") {
        const LeftOutByFile by_file;
        if (!hands_round(device().capabilities())) {
            cannot_run("kernels that shuffle");
            return;
        }
        const TemporaryFolder cache;
        fake::Vulkan vulkan;
        LyingDevice liar(vulkan, LyingDevice::kShuffles);
        liar.hang();
        const Visit v = visit({.cache_folder = cache.path(), .get_instance_proc_addr = vulkan.entry()});
        CHECK(v.code == 1);
        CHECK(contains(v.said, "did not finish within"));
        CHECK(contains(explained_product({.cache_folder = cache.path()}), "matmul<"));
    }

    TEST_CASE("doctor: variables that decide already are an error") {
        const Environment variable("VKFORMER_LEAVE_OUT", "matmul");
        CHECK(contains(error_of([] { visit({}); }), "decides already; unset it"));
        const LeftOutByFile by_file;
        const Environment tuning("VKFORMER_TUNING", "matmul_rows=7");
        CHECK(contains(error_of([] { visit({}); }), "VKFORMER_TUNING=matmul_rows=7: decides already"));
    }
}

}  // namespace vkf::test
