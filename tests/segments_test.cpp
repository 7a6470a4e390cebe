// SPDX-License-Identifier: Apache-2.0
// Recordings in pieces, spread over frames.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "runtime/compile/plan.h"
#include "tests/bound_recording.h"
#include "tests/device.h"
#include "tests/fake_vulkan.h"

namespace vkf::test {

namespace {

/// Hands over a program of two slots on a host's device, once as usual and once checked.
void usual_and_checked(const std::function<void(Host&, Program&)>& use) {
    Host host;
    {
        const Device device = Device::borrow(host.handles());
        for (const bool checked : {false, true}) {
            CAPTURE(checked);
            Program program = compile_small(device, {.name = "layer", .slots = 2, .checked = checked});
            program.allocate();
            use(host, program);
        }
    }
    CHECK(host.messages().empty());
}

}  // namespace

TEST_SUITE("segments") {
    TEST_CASE("segments: recorded in segments, frame by frame, it gives the bits of the whole") {
        Host host;
        fake::Vulkan vulkan;
        {
            const Device device = Device::borrow(through(host, vulkan));
            Program program = compile_small(device, {.name = "layer", .slots = 2});
            program.allocate();
            const Bound bound(host, 33);
            const std::vector<float> want = whole(host, program, bound);
            CHECK(bound.wrong() == "");
            const Cost cost = program.cost(bound.sizes);
            CHECK(cost.flops > 0);
            CHECK(cost.bytes > 0);
            CHECK(program.cost(std::vector<SizeSetting>{{"tokens", 1}}).total() < cost.total());
            std::size_t most = 0;
            for (const double budget : {1.0, cost.total() / 7, cost.total() / 2, 2 * cost.total()}) {
                CAPTURE(budget);
                std::memset(bound.y.mapped, 0, kBytes);
                Segment segment;
                CHECK(text(program.begin(bound.recording(1))) == "");
                std::size_t count = 0;
                Cost sum;
                for (double done = 0; !segment.last; ++count) {
                    VkCommandBuffer commands = host.begin();
                    {
                        const allocations::Counter counter;
                        REQUIRE(text(program.record_segment(commands, budget, segment, 1)) == "");
                        CHECK(counter.count() == 0);
                    }
                    host.submit(commands);
                    CHECK(segment.done > done);
                    done = segment.done;
                    sum.flops += segment.cost.flops;
                    sum.bytes += segment.cost.bytes;
                }
                CHECK(segment.done == 1.0);
                CHECK(sum.total() == doctest::Approx(cost.total()));
                host.wait_idle();
                CHECK(bound.result() == want);
                CHECK((budget > cost.total()) == (count == 1));
                most = std::max(most, count);
                Segment none;
                CHECK(contains(text(program.record_segment(host.begin(), budget, none, 1)), "nothing left to record"));
            }
            CHECK(most > plan_of(program).dispatches.size());  // also within a dispatch

            Segment segment;
            CHECK(contains(text(program.record_segment(host.begin(), 1, segment, 0)), "begin() must come first"));
            CHECK(text(program.record_segment(host.begin(), 1, segment, 2)) == "layer: slot 2 of 2");
            CHECK(text(program.begin(bound.recording(0))) == "");
            CHECK(contains(text(program.record_segment(host.begin(), 0, segment, 0)), "budget of 0"));
            CHECK(contains(text(program.record_segment(host.begin(), -1, segment, 0)), "budget of -1"));
            program.set("tokens", 33);
            program.upload("x", SmallModel::input(33).floats());
            CHECK(text(program.begin(bound.recording(0))) == "");
            CHECK(text(program.record_segment(host.begin(), 1, segment, 0)) == "");
            CHECK(contains(error_of([&] { program.run(); }), "slot 0, of which segments are left"));
            Recording bad = bound.recording(0);
            bad.buffers = bad.buffers.first(1);
            // and what was left is given up
            CHECK(text(program.begin(bad)) == "layer: y is not bound");
            CHECK(contains(text(program.record_segment(host.begin(), 1, segment, 0)), "nothing left to record"));
            program.run();
            CHECK(contains(error_of([&] { program.cost(std::vector<SizeSetting>{{"tokens", 41}}); }), "tokens = 41"));
        }
        CHECK(host.messages().empty());
    }

    TEST_CASE("segments: while some are left, no run of the program comes between") {
        usual_and_checked([](Host& host, Program& program) {
            const Bound bound(host, 33);
            const std::vector<float> want = whole(host, program, bound);
            program.finished(0);
            program.set("tokens", 33);
            program.upload("x", std::vector<float>(33 * SmallModel::kWidth, 0.5f));
            std::memset(bound.y.mapped, 0, kBytes);
            const double budget = program.cost(bound.sizes).total() / 7;
            Segment segment;
            REQUIRE(text(program.begin(bound.recording(1))) == "");
            while (!segment.last) {
                VkCommandBuffer commands = host.begin();
                REQUIRE(text(program.record_segment(commands, budget, segment, 1)) == "");
                host.submit(commands);
                host.wait_idle();
                if (!segment.last) {
                    CHECK(contains(error_of([&] { program.run(); }), "slot 1, of which segments are left"));
                    CHECK(contains(error_of([&] { program.submit(); }), "slot 1, of which segments are left"));
                }
            }
            CHECK(bound.result() == want);
            program.finished(1);
            program.run();
        });
    }

    TEST_CASE("segments: finished() gives up those that are left") {
        usual_and_checked([](Host& host, Program& program) {
            const Bound bound(host, 5);
            program.set("tokens", 5);
            program.upload("x", SmallModel::input(5).floats());
            for (const std::uint32_t slot : {0u, 1u}) {
                CAPTURE(slot);
                Segment segment;
                REQUIRE(text(program.begin(bound.recording(slot))) == "");
                // into a command buffer that is dropped
                REQUIRE(text(program.record_segment(host.begin(), 1, segment, slot)) == "");
                REQUIRE_FALSE(segment.last);
                program.finished(1 - slot);  // which is another
                CHECK(contains(error_of([&] { program.run(); }), "of which segments are left"));
                program.finished(slot);
                CHECK(contains(text(program.record_segment(host.begin(), 1, segment, slot)), "nothing left to record"));
                whole(host, program, bound);
                CHECK(bound.wrong() == "");
                program.finished(0);
                CHECK(text(program.record(host.begin(), bound.recording(1 - slot))) == "");
                program.finished(1 - slot);
                program.run();
            }
        });
    }
}

}  // namespace vkf::test
