// SPDX-License-Identifier: Apache-2.0
// Pipelines: made on demand, shared, and kept on disk. The software drivers' caches are empty
// headers, so the data comes from a fake vkGetPipelineCacheData.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#if defined(__GLIBC__)
#include <pthread.h>
#endif
#ifndef _WIN32
#include <sys/stat.h>
#endif

#include "ops/ops.h"
#include "runtime/device/cache_frame.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "runtime/device/tuning.h"
#include "tests/child.h"
#include "tests/device.h"
#include "tests/fake_vulkan.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

namespace vkf::test {

namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
    const auto* first = reinterpret_cast<const std::byte*>(text.data());
    return {first, first + text.size()};
}

/// The driver's cache holds `data`, and what the driver is given at its creation is kept.
struct FakeCache {
    fake::Vulkan& vulkan;
    std::vector<std::byte> data;
    std::vector<std::vector<std::byte>> given = {};

    void install() {
        vulkan.vkGetPipelineCacheData.instead = [this](VkDevice, VkPipelineCache, std::size_t* size, void* out) {
            if (out) {
                std::memcpy(out, data.data(), data.size());
            }
            *size = data.size();
            return VK_SUCCESS;
        };
        vulkan.vkCreatePipelineCache.instead = [this](VkDevice device, const VkPipelineCacheCreateInfo* info,
                                                      const VkAllocationCallbacks* callbacks, VkPipelineCache* cache) {
            const auto* first = static_cast<const std::byte*>(info->pInitialData);
            given.emplace_back(first, first + info->initialDataSize);
            VkPipelineCacheCreateInfo empty = *info;
            empty.initialDataSize = 0;
            empty.pInitialData = nullptr;
            return vulkan.vkCreatePipelineCache.real(device, &empty, callbacks, cache);
        };
    }
};

/// A driver whose caches hold letters behind a header, and which adds one where it compiles.
struct LetterCaches {
    static constexpr std::size_t kHeader = 64;
    fake::Vulkan& vulkan;
    std::string letter;
    std::map<VkPipelineCache, std::string> held = {};

    void install() {
        vulkan.vkCreatePipelineCache.instead = [this](VkDevice device, const VkPipelineCacheCreateInfo* info,
                                                      const VkAllocationCallbacks* callbacks, VkPipelineCache* cache) {
            VkPipelineCacheCreateInfo empty = *info;
            empty.initialDataSize = 0;
            empty.pInitialData = nullptr;
            const VkResult result = vulkan.vkCreatePipelineCache.real(device, &empty, callbacks, cache);
            const std::string_view data(static_cast<const char*>(info->pInitialData), info->initialDataSize);
            held[*cache] = data.substr(std::min(kHeader, data.size()));
            return result;
        };
        vulkan.vkCreateComputePipelines.instead = [this](VkDevice device, VkPipelineCache cache, auto... a) {
            add(held.at(cache), letter);
            return vulkan.vkCreateComputePipelines.real(device, cache, a...);
        };
        vulkan.vkMergePipelineCaches.instead = [this](VkDevice, VkPipelineCache to, std::uint32_t count,
                                                      const VkPipelineCache* from) {
            for (const VkPipelineCache cache : std::span(from, count)) {
                add(held.at(to), held.at(cache));
            }
            return VK_SUCCESS;
        };
        vulkan.vkGetPipelineCacheData.instead = [this](VkDevice, VkPipelineCache cache, std::size_t* size, void* out) {
            const std::string data = std::string(kHeader, '-') + held.at(cache);
            if (out) {
                std::memcpy(out, data.data(), data.size());
            }
            *size = data.size();
            return VK_SUCCESS;
        };
    }

private:
    static void add(std::string& to, const std::string& letters) {
        for (const char letter : letters) {
            to += contains(to, std::string(1, letter)) ? "" : std::string(1, letter);
        }
    }
};

/// A cache of a driver, kept in a folder of its own.
struct KeptPipelines {
    const Environment on{"VKFORMER_PIPELINE_CACHE", std::nullopt};
    const TemporaryFolder folder;
    fake::Vulkan vulkan;
    FakeCache cache{vulkan, bytes_of("compiled pipelines")};
    const DeviceOptions options{.cache_folder = folder.path(), .get_instance_proc_addr = vulkan.entry()};

    KeptPipelines() { cache.install(); }
};

/// The same of caches of letters.
struct KeptLetters {
    const Environment on{"VKFORMER_PIPELINE_CACHE", std::nullopt};
    const TemporaryFolder folder;
    fake::Vulkan vulkan;
    LetterCaches caches{vulkan, "a"};
    const DeviceOptions options{.cache_folder = folder.path(), .get_instance_proc_addr = vulkan.entry()};

    KeptLetters() { caches.install(); }
};

void compile_something(const Device& device) {
    Graph g;
    g.output("y", scale(g.input("x", {4}), 2.0f));
    device.compile(g);
}

std::filesystem::path only_file(const TemporaryFolder& folder) {
    REQUIRE(folder.files().size() == 1);
    return folder.path() / folder.files().front();
}

}  // namespace

TEST_SUITE("pipelines") {
    TEST_CASE("pipeline cache: a frame gives its data back to the same device and driver alone") {
        const Capabilities device;
        const std::vector<std::byte> data = bytes_of("what a driver keeps");
        const std::vector<std::byte> file = frame_cache(device, data);
        const auto back = unframe_cache(device, file);
        CHECK(std::equal(back.begin(), back.end(), data.begin(), data.end()));
        CHECK(unframe_cache(device, {}).empty());
        for (std::size_t length = 0; length < file.size(); ++length) {
            CHECK(unframe_cache(device, std::span(file).first(length)).empty());
        }
        std::vector<std::byte> longer = file;
        longer.resize(file.size() + 1);
        CHECK(unframe_cache(device, longer).empty());
        for (std::size_t i = 0; i < file.size(); ++i) {
            for (const int flip : {1, 128, 255}) {
                std::vector<std::byte> damaged = file;
                damaged[i] ^= static_cast<std::byte>(flip);
                CHECK(unframe_cache(device, damaged).empty());
            }
        }
        const auto foreign = [&](auto change) {
            Capabilities other = device;
            change(other);
            return unframe_cache(other, file).empty() && cache_file_name(other) != cache_file_name(device);
        };
        CHECK(foreign([](Capabilities& c) { c.vendor_id = 1; }));
        CHECK(foreign([](Capabilities& c) { c.device_id = 1; }));
        CHECK(foreign([](Capabilities& c) { c.driver_version = 1; }));
        CHECK(foreign([](Capabilities& c) { c.api_version = 1; }));
        CHECK(foreign([](Capabilities& c) { c.cache_uuid[15] = 1; }));
    }

    TEST_CASE("pipeline cache: what one device writes, the next is given") {
        const Environment on("VKFORMER_PIPELINE_CACHE", std::nullopt);
        const TemporaryFolder folder;
        const std::filesystem::path deep = folder.path() / "made" / "on demand";
        fake::Vulkan vulkan;
        FakeCache cache{vulkan, bytes_of("compiled pipelines")};
        cache.install();
        const DeviceOptions options{.cache_folder = deep, .get_instance_proc_addr = vulkan.entry()};
        {
            const Device device = Device::create(options);
            CHECK(device.save_pipeline_cache());  // nothing new
            CHECK(folder.files().empty());
            compile_something(device);
            CHECK(device.save_pipeline_cache());
            CHECK(device.save_pipeline_cache());
        }
        const std::vector<std::string> files = folder.files();
        CHECK(files.size() == 3);  // two folders and the file, nothing temporary
        {
            const Device device = Device::create(options);
            compile_something(device);
            cache.data = bytes_of("more compiled pipelines");
        }  // written when it is destroyed
        { const Device device = Device::create(options); }
        REQUIRE(cache.given.size() == 3);
        CHECK(cache.given[0].empty());
        CHECK(cache.given[1] == bytes_of("compiled pipelines"));
        CHECK(cache.given[2] == bytes_of("more compiled pipelines"));
        CHECK(folder.files() == files);
    }

    TEST_CASE("pipeline cache: what two devices compile at one time is kept of both") {
        KeptLetters letters;
        const auto kept = [&](const Device& device) {
            std::ifstream in(only_file(letters.folder), std::ios::binary);
            const std::string file{std::istreambuf_iterator<char>(in), {}};
            const auto data = unframe_cache(device.capabilities(), std::as_bytes(std::span(file)));
            REQUIRE(data.size() > LetterCaches::kHeader);
            std::string read(reinterpret_cast<const char*>(data.data()), data.size());
            read.erase(0, LetterCaches::kHeader);
            std::sort(read.begin(), read.end());
            return read;
        };
        {
            const Device a = Device::create(letters.options), b = Device::create(letters.options);
            compile_something(a);
            letters.caches.letter = "b";
            compile_something(b);
            CHECK(b.save_pipeline_cache());
            CHECK(kept(b) == "b");
            CHECK(a.save_pipeline_cache());
            CHECK(kept(a) == "ab");
            // what is saved next still has the other's
            letters.caches.letter = "c";
            Graph g;
            g.output("y", softmax(g.input("x", {3, 5})));
            a.compile(g);
            CHECK(a.save_pipeline_cache());
            CHECK(kept(a) == "abc");
            // where it cannot be merged, this device's own
            for (const bool host : {true, false}) {
                letters.vulkan.vkMergePipelineCaches.fail(host ? VK_ERROR_OUT_OF_HOST_MEMORY
                                                               : VK_ERROR_OUT_OF_DEVICE_MEMORY);
                letters.caches.letter = host ? "c" : "d";
                const Value v = g.input(letters.caches.letter, {3, 5});
                g.output("of " + letters.caches.letter, host ? argmax(v) : rms_norm(v, {}));
                a.compile(g);
                CHECK(a.save_pipeline_cache());
                CHECK(kept(a) == (host ? "ac" : "acd"));
            }
        }
        CHECK(letters.vulkan.live_objects() == 0);
    }

    TEST_CASE("pipeline cache: a file to which nothing is new is not written again") {
        KeptLetters letters;
        { compile_something(Device::create(letters.options)); }
        const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
        std::filesystem::last_write_time(only_file(letters.folder), long_ago);
        const auto before = std::filesystem::last_write_time(only_file(letters.folder));
        const Device device = Device::create(letters.options);
        compile_something(device);
        CHECK(device.save_pipeline_cache());
        CHECK(std::filesystem::last_write_time(only_file(letters.folder)) == before);
    }

#if defined(__unix__)
    TEST_CASE("pipeline cache: the child of a fork saves nothing, and waits for no lock") {
        KeptPipelines kept;
        const Device device = Device::create(kept.options);
        compile_something(device);
        const std::scoped_lock lock(Insides::core(device).instance->log.mutex);
        int children = 0;
        const auto real = kept.vulkan.vkGetPipelineCacheData.instead;
        // called with the lock of the pipelines
        kept.vulkan.vkGetPipelineCacheData.instead = [&](auto... a) {
            if (++children == 1) {
                CHECK(ends_in_child([&] {
                    if (device.save_pipeline_cache() || !device.messages().empty() || !device.left_out().empty()) {
                        _exit(1);
                    }
                }));
            }
            return real(a...);
        };
        CHECK(device.save_pipeline_cache());
        CHECK(children > 1);
        kept.vulkan.vkGetPipelineCacheData.instead = real;
    }
#endif

    TEST_CASE("pipeline cache: a damaged file, or data the driver does not want, is as good as none") {
        KeptPipelines kept;
        { compile_something(Device::create(kept.options)); }
        {
            std::fstream file(only_file(kept.folder), std::ios::in | std::ios::out | std::ios::binary);
            file.seekp(60);
            file.put('!');
        }
        { compile_something(Device::create(kept.options)); }
        CHECK(kept.cache.given.back().empty());
        { const Device device = Device::create(kept.options); }
        CHECK(kept.cache.given.back() == kept.cache.data);  // written anew

        kept.vulkan.vkCreatePipelineCache.fail(VK_ERROR_OUT_OF_HOST_MEMORY);
        { compile_something(Device::create(kept.options)); }
        CHECK(kept.cache.given.back().empty());
        kept.vulkan.vkCreatePipelineCache.fail(VK_ERROR_OUT_OF_HOST_MEMORY, 1, 2);
        {
            const Device device = Device::create(kept.options);  // without any cache
            compile_something(device);
            CHECK_FALSE(device.save_pipeline_cache());
        }
        CHECK(kept.vulkan.live_objects() == 0);
    }

#ifndef _WIN32
    TEST_CASE("pipeline cache: a named pipe or gigabytes in its place, and in the tuning's, are not waited for") {
        KeptPipelines kept;
        const Environment no_tuning("VKFORMER_TUNING", std::nullopt);
        { compile_something(Device::create(kept.options)); }
        const std::filesystem::path file = only_file(kept.folder);
        const std::filesystem::path tuning = tuning_file(Device::create(kept.options));
        const auto starts = [&] {
            const Device device = Device::create(kept.options);
            CHECK(kept.cache.given.back().empty());
            CHECK(device.capabilities().tuning.empty());
        };
        for (const std::filesystem::path& place : {file, tuning}) {
            std::filesystem::remove(place);
            REQUIRE(mkfifo(place.c_str(), 0600) == 0);
        }
        starts();
        for (const std::filesystem::path& place : {file, tuning}) {
            std::filesystem::remove(place);
            { const std::ofstream made(place); }
            // takes no block of the disk
            std::filesystem::resize_file(place, std::uintmax_t{5} << 30);
        }
        starts();
        CHECK(kept.vulkan.live_objects() == 0);
    }
#endif

    TEST_CASE("pipeline cache: a file that cannot be written whole is not written") {
        KeptPipelines kept;
        std::string name;
        {
            const Device device = Device::create(kept.options);
            name = cache_file_name(device.capabilities());
            compile_something(device);
            // renaming onto it fails
            std::filesystem::create_directories(kept.folder.path() / name / "in the way");
            CHECK_FALSE(device.save_pipeline_cache());
            CHECK(kept.folder.files() == std::vector<std::string>{name, "in the way"});
            CHECK_NOTHROW(
                // nor read
                Device::create(kept.options));
            std::filesystem::remove_all(kept.folder.path() / name);
            kept.vulkan.vkGetPipelineCacheData.fail(VK_ERROR_OUT_OF_HOST_MEMORY);
            CHECK_FALSE(device.save_pipeline_cache());
            CHECK(kept.folder.files().empty());
            kept.vulkan.vkGetPipelineCacheData.fail(VK_INCOMPLETE, 2, 1000);
            CHECK_FALSE(device.save_pipeline_cache());
            CHECK(kept.folder.files().empty());
            kept.vulkan.vkGetPipelineCacheData.fail(VK_INCOMPLETE, 2);  // it has grown meanwhile
            CHECK(device.save_pipeline_cache());
        }
        CHECK(kept.folder.files() == std::vector<std::string>{name});

        // not a folder, and never can be
        const std::filesystem::path file = kept.folder.path() / name / "below a file";
        const Device device = Device::create({.cache_folder = file, .get_instance_proc_addr = kept.vulkan.entry()});
        compile_something(device);
        CHECK_FALSE(device.save_pipeline_cache());
    }

    TEST_CASE("pipeline cache: VKFORMER_PIPELINE_CACHE=0 turns it off, VKFORMER_CACHE_DIR moves it") {
        const TemporaryFolder folder;
        {
            const Environment off("VKFORMER_PIPELINE_CACHE", "0");
            const Device device = Device::create({.cache_folder = folder.path()});
            compile_something(device);
            CHECK_FALSE(device.save_pipeline_cache());
        }
        CHECK(folder.files().empty());
        const Environment on("VKFORMER_PIPELINE_CACHE", std::nullopt);
        const Environment place("VKFORMER_CACHE_DIR", folder.path().string());
        const Device device = Device::create();
        compile_something(device);
        CHECK(device.save_pipeline_cache());
        CHECK(folder.files() == std::vector<std::string>{cache_file_name(device.capabilities())});
    }

    TEST_CASE("pipelines: made when a program wants them, once for all programs") {
        fake::Vulkan vulkan;
        Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
        CHECK(vulkan.vkCreateComputePipelines.calls == 0);
        CHECK(pipelines_of(device) == 0);
        {
            Graph g;
            SmallModel::describe(g, 4);
            const Weights weights = SmallModel::load(device);
            CHECK(vulkan.vkCreateComputePipelines.calls == 0);
            const Program first = device.compile(g, weights);
            const std::uint64_t made = vulkan.vkCreateComputePipelines.calls;
            CHECK(made > 0);
            CHECK(pipelines_of(device) == made);
            const Program again = device.compile(g, weights);
            Graph longer;
            SmallModel::describe(longer, 4);
            const Program same_kernels = device.compile(longer, weights);
            CHECK(vulkan.vkCreateComputePipelines.calls == made);
            CHECK(vulkan.vkCreateShaderModule.calls == made);
            CHECK(vulkan.vkDestroyShaderModule.calls == made);
        }
        CHECK(last_words(std::move(device)) == "");
        CHECK(vulkan.live_objects() == 0);
    }

    TEST_CASE("pipelines: a cache in which the driver keeps nothing is given for the first alone") {
        for (const bool keeps : {false, true}) {
            CAPTURE(keeps);
            const TemporaryFolder folder;
            fake::Vulkan vulkan;
            vulkan.vkGetPipelineCacheData.instead = [&](VkDevice, VkPipelineCache, std::size_t* size, void*) {
                *size = sizeof(VkPipelineCacheHeaderVersionOne) + (keeps ? 1 : 0);
                return VK_SUCCESS;
            };
            std::vector<bool> with;
            vulkan.vkCreateComputePipelines.instead = [&](VkDevice d, VkPipelineCache cache, std::uint32_t n,
                                                          const VkComputePipelineCreateInfo* infos,
                                                          const VkAllocationCallbacks* a, VkPipeline* out) {
                with.push_back(cache != VK_NULL_HANDLE);
                return vulkan.vkCreateComputePipelines.real(d, cache, n, infos, a, out);
            };
            const Device device =
                Device::create({.cache_folder = folder.path(), .get_instance_proc_addr = vulkan.entry()});
            for (const bool fourth : {false, true}) {
                Graph g;
                const Value x = g.input("x", {fourth ? 4 : 3, 5});
                g.output("y", fourth ? softmax(x) : rms_norm(x, {}));
                device.compile(g);
            }
            CHECK(with == std::vector<bool>{true, keeps});
        }
    }

    TEST_CASE("pipelines: one that cannot be built is named; the others are kept") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");
        fake::Vulkan vulkan;
        {
            // which has one kernel for each op
            const Device device = Device::create({.minimum_profile = true, .get_instance_proc_addr = vulkan.entry()});
            Graph g;
            SmallModel::describe(g, 4);
            const Weights weights = SmallModel::load(device);
            vulkan.vkCreateComputePipelines.fail(VK_ERROR_OUT_OF_HOST_MEMORY);
            const std::string said = error_of([&] { device.compile(g, weights); });
            CAPTURE(said);
            CHECK(contains(said, "shader "));
            CHECK(contains(said, "vkCreateComputePipelines gave VK_ERROR_OUT_OF_HOST_MEMORY"));
            Program program = device.compile(g, weights);
            CHECK(SmallModel::check(program, 4) == "");
            CHECK(vulkan.vkCreateComputePipelines.calls == pipelines_of(device) + 1);
        }
        CHECK(vulkan.live_objects() == 0);
    }

    TEST_CASE("pipeline cache: saving that throws does not leave the destructor") {
        const Environment on("VKFORMER_PIPELINE_CACHE", std::nullopt);
        const TemporaryFolder folder;
        fake::Vulkan vulkan;
        {
            const Device device =
                Device::create({.cache_folder = folder.path(), .get_instance_proc_addr = vulkan.entry()});
            compile_something(device);
            vulkan.vkGetPipelineCacheData.instead = [](VkDevice, VkPipelineCache, std::size_t*, void*) -> VkResult {
                throw std::bad_alloc();
            };
            CHECK_THROWS_AS(device.save_pipeline_cache(), std::bad_alloc);
        }
        CHECK(vulkan.live_objects() == 0);
        CHECK(folder.files().empty());
    }

#if defined(__GLIBC__)
    TEST_CASE("pipelines: where no more threads are to be had, the calling one builds them") {
        fake::Vulkan vulkan;
        Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
        {
            Graph g;
            SmallModel::describe(g, 4);
            const Weights weights = SmallModel::load(device);
            pthread_attr_t usual;
            REQUIRE(pthread_getattr_default_np(&usual) == 0);
            pthread_attr_t greedy = usual;
            // all addresses there are
            REQUIRE(pthread_attr_setstacksize(&greedy, std::size_t{1} << 47) == 0);
            REQUIRE(pthread_setattr_default_np(&greedy) == 0);
            CHECK_THROWS_AS(std::thread([] {}).join(), std::system_error);
            std::optional<Program> program;
            const std::string said = error_of([&] { program = device.compile(g, weights); });
            CHECK(pthread_setattr_default_np(&usual) == 0);
            CHECK(said == "");
            CHECK(pipelines_of(device) > 2);  // fewer are not worth a thread
            CHECK(SmallModel::check(*program, 4) == "");
        }
        CHECK(last_words(std::move(device)) == "");
        CHECK(vulkan.live_objects() == 0);
    }
#endif
}

}  // namespace vkf::test
