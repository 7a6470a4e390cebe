// SPDX-License-Identifier: Apache-2.0
// The contract of threads: a Device may be used by all, Weights are shared, a Program belongs to
// one at a time.
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <thread>

#include "ops/ops.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "tests/bound_recording.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

namespace vkf::test {

namespace {

/// Runs f(0) .. f(count-1), each on a thread of its own, and returns what they threw and what they
/// found wrong.
template <class F>
std::string in_parallel(int count, F f) {
    std::vector<std::string> said(static_cast<std::size_t>(count));
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < count; ++i) {
            threads.emplace_back([&, i] {
                std::string found;
                const std::string thrown = error_of([&] { found = f(i); });
                said[static_cast<std::size_t>(i)] = found + thrown;
            });
        }
    }
    std::string all;
    for (const std::string& s : said) {
        all += s.empty() ? "" : s + "\n";
    }
    return all;
}

std::string run_some(Program& program, int seed) {
    std::string wrong;
    for (const std::int64_t tokens : {30, 1, 17}) {
        program.set("tokens", tokens + seed);
        wrong += SmallModel::check(program, tokens + seed);
    }
    return wrong;
}

/// A command buffer of a pool of its own, so that a thread can record into it while others do.
struct CommandPool {
    void make(const Host& owner) {
        host = &owner;
        const VkCommandPoolCreateInfo info{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr,
                                           VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT, owner.family()};
        check(owner.api().vkCreateCommandPool(owner.device(), &info, nullptr, &pool), "vkCreateCommandPool");
        const VkCommandBufferAllocateInfo allocate{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, pool,
                                                   VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
        check(owner.api().vkAllocateCommandBuffers(owner.device(), &allocate, &commands), "vkAllocateCommandBuffers");
    }
    VkCommandBuffer begin() const {
        const VkCommandBufferBeginInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr,
                                            VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT, nullptr};
        check(host->api().vkBeginCommandBuffer(commands, &info), "vkBeginCommandBuffer");
        return commands;
    }
    void destroy() { host->api().vkDestroyCommandPool(host->device(), pool, nullptr); }

    const Host* host = nullptr;
    VkCommandPool pool = VK_NULL_HANDLE;
    VkCommandBuffer commands = VK_NULL_HANDLE;
};

}  // namespace

TEST_SUITE("threads") {
    TEST_CASE("threads: a program each on two devices") {
        // two drivers' where there are two
        const std::size_t count = Device::list().size();
        std::vector<Device> devices;
        for (std::size_t i = 0; i < 2; ++i) {
            devices.push_back(Device::create({.select = std::to_string(i % count)}));
        }
        CHECK(in_parallel(2, [&](int i) {
                  const Device& device = devices[static_cast<std::size_t>(i)];
                  Graph g;
                  SmallModel::describe(g, 64);
                  Program program = device.compile(g, SmallModel::load(device));
                  return run_some(program, i);
              }) == "");
        for (Device& device : devices) {
            CHECK(last_words(std::move(device)) == "");
        }
    }

    TEST_CASE("threads: four compile, load and run on one device") {
        Device device = Device::create();
        CHECK(in_parallel(4, [&](int i) {
                  Graph g;  // a graph belongs to its thread
                  const Value x = g.input("x", {4 + i, 12});
                  g.output("y", layer_norm(softmax(relu(scale(x, static_cast<float>(i + 1)))), {}, {}));
                  Program first = device.compile(g);
                  first.upload("x", std::vector<float>(static_cast<std::size_t>(12 * (4 + i)), 1.0f));
                  first.run();
                  Graph same;
                  SmallModel::describe(same, 64);
                  Program second = device.compile(same, SmallModel::load(device));
                  std::string wrong = run_some(second, i);
                  for (const float y : first.download("y")) {
                      wrong += y == 0.0f ? "" : "a row of equals is not normalised to 0";
                  }
                  return wrong;
              }) == "");
        CHECK(last_words(std::move(device)) == "");
    }

    TEST_CASE("threads: programs share weights") {
        Device device = Device::create();
        {
            const Weights weights = SmallModel::load(device);
            CHECK(in_parallel(3, [&](int i) {
                      Graph g;
                      SmallModel::describe(g, 64);
                      Program program = device.compile(g, weights);
                      return run_some(program, i);
                  }) == "");
        }
        CHECK(last_words(std::move(device)) == "");
    }

    TEST_CASE("threads: devices come and go side by side, the last user of one destroys it") {
        CHECK(in_parallel(2, [&](int i) {
                  Graph g;
                  SmallModel::describe(g, 64);
                  std::optional<Program> program;
                  {
                      const Device device = Device::create();
                      program = device.compile(g, SmallModel::load(device));
                  }
                  return run_some(*program, i);
              }) == "");
    }

    TEST_CASE("threads: messages and pipelines may be asked for while others work") {
        Device device = Device::create();
        CHECK(in_parallel(2, [&](int i) {
                  std::string wrong;
                  if (i == 0) {
                      for (int n = 0; n < 50; ++n) {
                          for (const std::string& message : device.messages()) {
                              wrong += message;
                          }
                          device.save_pipeline_cache();
                          wrong += pipelines_of(device) > 1000 ? "more pipelines than there can be" : "";
                      }
                  } else {
                      Graph g;
                      SmallModel::describe(g, 64);
                      Program program = device.compile(g, SmallModel::load(device));
                      wrong = run_some(program, 0);
                  }
                  return wrong;
              }) == "");
        CHECK(last_words(std::move(device)) == "");
    }

    TEST_CASE("threads: slots of one program are recorded side by side, each into its own command buffer") {
        Host host;
        fake::Vulkan vulkan;
        {
            constexpr std::uint32_t kSlots = 4;
            const Device device = Device::borrow(through(host, vulkan));
            Program program = compile_small(device, {.slots = kSlots});
            program.allocate();
            std::vector<Bound> bound;
            std::vector<CommandPool> pools(kSlots);
            for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
                bound.emplace_back(host, 1 + 11 * slot);
                pools[slot].make(host);
            }
            for (int round = 0; round < 10; ++round) {
                CHECK(in_parallel(kSlots, [&](int i) {
                          const auto slot = static_cast<std::uint32_t>(i);
                          return text(program.record(pools[slot].begin(), bound[slot].recording(slot)));
                      }) == "");
                for (CommandPool& pool : pools) {
                    host.submit(pool.commands);
                }
                host.wait_idle();
                for (const Bound& b : bound) {
                    CHECK(b.wrong() == "");
                    std::memset(b.y.mapped, 0, kBytes);
                }
            }
            for (CommandPool& pool : pools) {
                pool.destroy();
            }
        }
        CHECK(host.messages().empty());
    }

    TEST_CASE("threads: what one loads another's command buffers upload, side by side") {
        Host host;
        fake::Vulkan vulkan;
        {
            BorrowedDevice handles = through(host, vulkan);
            handles.host_submits = true;
            handles.keep_uploads = true;
            const Device device = Device::borrow(handles);
            Insides::core(device).capabilities.unified_memory = false;
            const Host::Buffer staging = host.make_buffer(4096, VK_BUFFER_USAGE_TRANSFER_SRC_BIT);
            std::vector<Weights> loaded;  // which must live until they are uploaded
            std::vector<State> states;
            std::atomic<bool> all = false;
            CHECK(
                in_parallel(2, [&](int i) -> std::string {
                    if (i == 0) {
                        Graph g;
                        g.output("y", contiguous(g.state("kept", {300})));
                        for (int n = 0; n < 20; ++n) {
                            loaded.push_back(SmallModel::load(device));
                            states.push_back(device.make_state({&g}));
                            states.back().clear();
                        }
                        all = true;
                        return {};
                    }
                    VkCommandBuffer commands = host.begin();
                    for (bool last = false; !last;) {
                        last = all && device.pending_uploads() == 0;
                        const Status status = device.record_upload(commands, {staging.buffer, 0, 4096, staging.mapped});
                        const std::uint64_t recorded = device.recorded_uploads();
                        host.submit(commands);
                        host.wait_idle();
                        device.uploads_finished(recorded);
                        host.begin_again(commands);
                        if (!status) {
                            return text(status);
                        }
                    }
                    host.submit(commands);
                    host.wait_idle();
                    return {};
                }) == "");
            CHECK(device.pending_uploads() == 0);
            Graph g;
            SmallModel::describe(g, kMax);
            Program program = device.compile(g, loaded.back(), {});
            program.allocate();
            const Bound bound(host, 5);
            whole(host, program, bound);
            CHECK(bound.wrong() == "");
        }
        CHECK(host.messages().empty());
    }
}

}  // namespace vkf::test
