// SPDX-License-Identifier: Apache-2.0
// A plan's copies: between inputs and outputs, and their mirrors where the host does not see the
// device's memory.
#include <doctest/doctest.h>

#include <atomic>

#include "ops/collectives.h"
#include "ops/ops.h"
#include "runtime/compile/plan.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "tests/bound_recording.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/ranks.h"
#include "tests/reference.h"
#include "tests/tensor.h"

namespace vkf::test {

namespace {

/// y = a + softmax(b), z = 2 a, of up to 9 rows.
void describe_mirrored(Graph& g) {
    const Dim rows = g.symbol("rows", 9);
    const Value a = g.input("a", {rows, 4}), b = g.input("b", {rows, 4});
    g.output("y", a + softmax(b));
    g.output("z", scale(a, 2));
}

Capabilities with_memory(bool unified) {
    Capabilities c;
    c.unified_memory = unified;
    return c;
}

std::vector<std::string> names(const Plan& plan, CopyDirection direction) {
    std::vector<std::string> out;
    for (const PlannedCopy& copy : plan.copies) {
        if (copy.direction == direction) {
            out.push_back(plan.storages[copy.storage].name);
        }
    }
    return out;
}

std::uint32_t step_of(const Plan& plan, const PlannedWork& entry) {
    return entry.kind == WorkKind::copy ? plan.copies[entry.index].step : plan.dispatches[entry.index].step;
}

}  // namespace

TEST_SUITE("mirrors") {
    TEST_CASE("mirrors: inputs are copied in a step before all others, outputs in one after") {
        Graph g;
        describe_mirrored(g);
        const Plan unified = make_plan(g, with_memory(true));
        const Plan mirrored = make_plan(g, with_memory(false));
        CHECK(unified.copies.empty());
        CHECK(unified.work.size() == unified.dispatches.size());
        CHECK(names(mirrored, CopyDirection::to_device) == std::vector<std::string>{"a", "b"});
        CHECK(names(mirrored, CopyDirection::to_host) == std::vector<std::string>{"y", "z"});
        CHECK(mirrored.steps == unified.steps + 2);
        REQUIRE(mirrored.dispatches.size() == unified.dispatches.size());
        for (std::size_t d = 0; d < mirrored.dispatches.size(); ++d) {
            CHECK(mirrored.dispatches[d].step == unified.dispatches[d].step + 1);
        }
        REQUIRE(mirrored.work.size() == mirrored.dispatches.size() + mirrored.copies.size());
        for (std::size_t i = 1; i < mirrored.work.size(); ++i) {
            const std::uint32_t before = step_of(mirrored, mirrored.work[i - 1]);
            const std::uint32_t step = step_of(mirrored, mirrored.work[i]);
            CHECK(step >= before);
            // one kind a step
            CHECK((step > before || mirrored.work[i].kind == mirrored.work[i - 1].kind));
        }
        CHECK(step_of(mirrored, mirrored.work.front()) == 0);
        CHECK(step_of(mirrored, mirrored.work.back()) == mirrored.steps - 1);
    }

    TEST_CASE("mirrors: a graph of no input has no step of copies to the device, an image no copy") {
        Graph g;
        g.output("y", scale(g.constant("c", {4}, std::vector<float>{1, 2, 3, 4}), 3));
        const Plan plan = make_plan(g, with_memory(false));
        CHECK(plan.dispatches.front().step == 0);
        CHECK(plan.copies.size() == 1);
        CHECK(plan.steps == 2);

        Graph images;
        images.output("y", scale(image_input(images, "x", 8, 8, 4), 2));
        CHECK(names(make_plan(images, with_memory(false)), CopyDirection::to_device).empty());
    }

    TEST_CASE("mirrors: run() copies what was uploaded, and record() nothing") {
        Host host;
        fake::Vulkan vulkan;
        {
            const Device device = Device::borrow(through(host, vulkan));
            Insides::core(device).capabilities.unified_memory = false;
            Graph g;
            describe_mirrored(g);
            Program program = device.compile(g, {}, {.name = "sum"});
            Tensor a = random_tensor({7, 4}, 1);
            const Tensor b = random_tensor({7, 4}, 2);
            program.set("rows", 7);
            const auto wrong = [&] {
                program.run();
                const std::string y = difference(download(program, "y"), reference::add(a, reference::softmax(b)));
                return y.empty() ? difference(download(program, "z"), reference::scale(a, 2), exactly()) : y;
            };
            upload(program, "a", a);
            upload(program, "b", b);
            CHECK(wrong() == "");
            CHECK(vulkan.vkCmdCopyBuffer.calls == 4);
            CHECK(wrong() == "");
            CHECK(vulkan.vkCmdCopyBuffer.calls == 6);  // the outputs alone
            a = random_tensor({7, 4}, 3);
            upload(program, "a", a);
            CHECK(wrong() == "");
            CHECK(vulkan.vkCmdCopyBuffer.calls == 9);
            const std::string said = program.explain();
            CHECK(contains(said, "copy a to the device"));
            CHECK(contains(said, "copy z to the host"));
            CHECK(contains(program.dot(), "c3 [label=\"copy"));

            Program small = compile_small(device);
            small.allocate();
            const Bound bound(host, 9);
            const std::uint64_t before = vulkan.vkCmdCopyBuffer.calls;
            whole(host, small, bound);
            CHECK(bound.wrong() == "");
            CHECK(vulkan.vkCmdCopyBuffer.calls == before);
        }
        CHECK(host.messages().empty());
    }

    TEST_CASE("mirrors: an output is waited for, whatever launches nothing behind its last write") {
        const Environment unchecked("VKFORMER_CHECKED", {});  // a canary waits for transfers, too
        Host host;
        fake::Vulkan vulkan;
        {
            const Device device = Device::borrow(through(host, vulkan));
            Insides::core(device).capabilities.unified_memory = false;
            Graph g;
            const Dim few = g.symbol("few", 4);
            const Value y = softmax(g.input("x", {4, 8}));
            g.output("y", y);
            g.output("z", softmax(slice(y, 0, 0, few)));
            Program program = device.compile(g, {}, {.name = "few"});
            REQUIRE(plan_of(program).dispatches.size() == 2);
            REQUIRE(plan_of(program).dispatches[0].step < plan_of(program).dispatches[1].step);
            // the last barrier that copies wait at, and the dispatches before it
            VkPipelineStageFlags from = 0;
            std::uint64_t dispatches = 0;
            vulkan.vkCmdPipelineBarrier.instead =
                [&](VkCommandBuffer c, VkPipelineStageFlags source, VkPipelineStageFlags target, VkDependencyFlags f,
                    std::uint32_t m, const VkMemoryBarrier* mb, std::uint32_t, const VkBufferMemoryBarrier*,
                    std::uint32_t i, const VkImageMemoryBarrier* ib) {
                    if (target == VK_PIPELINE_STAGE_TRANSFER_BIT) {
                        from = source;
                        dispatches = vulkan.vkCmdDispatch.calls;
                    }
                    vulkan.vkCmdPipelineBarrier.real(c, source, target, f, m, mb, 0, nullptr, i, ib);
                };
            const Tensor x = random_tensor({4, 8}, 1);
            for (const std::int64_t rows : {4, 0, 2}) {
                CAPTURE(rows);
                from = 0;
                program.set("few", rows);
                upload(program, "x", x);
                program.run();
                CHECK(from == VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT);
                CHECK(dispatches == vulkan.vkCmdDispatch.calls);
                CHECK(difference(download(program, "y"), reference::softmax(x)) == "");
            }
        }
        CHECK(host.messages().empty());
    }

    TEST_CASE("mirrors: an output is waited for behind a collective that has nothing to exchange") {
        const Environment unchecked("VKFORMER_CHECKED", {});
        fake::Vulkan vulkan;
        const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
        Insides::core(device).capabilities.unified_memory = false;
        // whether a rank's thread has dispatched what no copy has waited for yet
        thread_local bool unwaited = false;
        std::atomic<int> copies = 0, too_early = 0;
        vulkan.vkCmdDispatch.instead = [&](auto... a) {
            unwaited = true;
            vulkan.vkCmdDispatch.real(a...);
        };
        vulkan.vkCmdCopyBuffer.instead = [&](auto... a) {
            ++copies;
            too_early += unwaited ? 1 : 0;
            vulkan.vkCmdCopyBuffer.real(a...);
        };
        vulkan.vkCmdPipelineBarrier.instead = [&](VkCommandBuffer c, VkPipelineStageFlags from, VkPipelineStageFlags to,
                                                  auto... a) {
            const bool waits = (from & VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT) && (to & VK_PIPELINE_STAGE_TRANSFER_BIT);
            unwaited = unwaited && !waits;
            vulkan.vkCmdPipelineBarrier.real(c, from, to, a...);
        };
        const Tensor x = random_tensor({4, 8}, 1);
        const auto errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& c) {
            c->limit(60);
            Graph g;
            const Value in = g.input("x", {4, 8});
            const Value y = softmax(in);
            g.output("y", y);
            g.output("z", all_reduce(scale(slice(y, 0, 0, g.symbol("few", 4)), 2.0f)));
            Program program = device.compile(g, {}, {.communicator = c});
            for (const std::int64_t few : {4, 0}) {
                program.set("few", few);
                upload(program, "x", x);
                program.run();
                CHECK(difference(download(program, "y"), reference::softmax(x)) == "");
            }
        });
        CHECK(joined(errors) == "");
        CHECK(copies > 0);
        CHECK(too_early == 0);
    }

    TEST_CASE("mirrors: inputs are waited for behind a collective before which nothing is launched") {
        const Environment unchecked("VKFORMER_CHECKED", {});
        fake::Vulkan vulkan;
        const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
        Insides::core(device).capabilities.unified_memory = false;
        // whether a rank's thread has copied what no dispatch has waited for yet
        thread_local bool unwaited = false;
        std::atomic<int> dispatches = 0, copies = 0, too_early = 0;
        vulkan.vkCmdDispatch.instead = [&](auto... a) {
            ++dispatches;
            too_early += unwaited ? 1 : 0;
            vulkan.vkCmdDispatch.real(a...);
        };
        vulkan.vkCmdCopyBuffer.instead = [&](auto... a) {
            ++copies;
            unwaited = true;
            vulkan.vkCmdCopyBuffer.real(a...);
        };
        vulkan.vkCmdPipelineBarrier.instead = [&](VkCommandBuffer c, VkPipelineStageFlags from, VkPipelineStageFlags to,
                                                  VkDependencyFlags flags, std::uint32_t count,
                                                  const VkMemoryBarrier* memory, auto... a) {
            const bool waits = (from & VK_PIPELINE_STAGE_TRANSFER_BIT) && (to & VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT) &&
                               count == 1 && (memory->srcAccessMask & VK_ACCESS_TRANSFER_WRITE_BIT) &&
                               (memory->dstAccessMask & VK_ACCESS_SHADER_READ_BIT);
            unwaited = unwaited && !waits;
            vulkan.vkCmdPipelineBarrier.real(c, from, to, flags, count, memory, a...);
        };
        const Tensor x = random_tensor({4, 8}, 1), v = random_tensor({4, 8}, 2);
        const auto errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& c) {
            c->limit(60);
            Graph g;
            const Value few = slice(g.input("x", {4, 8}), 0, 0, g.symbol("few", 4));
            g.output("y", g.input("v", {4, 8}) + sum(all_reduce(scale(few, 2.0f))));
            Program program = device.compile(g, {}, {.communicator = c});
            for (const std::int64_t rows : {4, 0}) {
                program.set("few", rows);
                upload(program, "x", x);
                upload(program, "v", v);
                program.run();
            }
            CHECK(difference(download(program, "y"), v) == "");
        });
        CHECK(joined(errors) == "");
        CHECK(copies > 0);
        CHECK(dispatches > 0);
        CHECK(too_early == 0);
    }

    TEST_CASE("mirrors: a plan without them is refused where the device's memory needs them") {
        const Device device = Device::create();
        Insides::core(device).capabilities.unified_memory = false;
        Graph g;
        describe_mirrored(g);
        CHECK(
            contains(error_of([&] { device.compile(make_plan(g, with_memory(true)), CompileOptions{.name = "sum"}); }),
                     "sum: was planned for a device whose memory the host sees, unlike this one's"));
    }
}

}  // namespace vkf::test
