// SPDX-License-Identifier: Apache-2.0
// What a checked program refuses.
#include <doctest/doctest.h>

#include "tests/bound_recording.h"

namespace vkf::test {

TEST_SUITE("checked") {
    TEST_CASE("checked: a checked program refuses what its arguments give away") {
        Host host;
        {
            const Device device = Device::borrow(host.handles());
            Graph g;
            SmallModel::describe(g, kMax);
            const Weights weights = SmallModel::load(device);
            Program program = device.compile(g, weights, {.name = "layer", .slots = 2, .checked = true});
            program.allocate();
            const Bound bound(host, 6);
            VkCommandBuffer commands = host.begin();
            const auto said = [&](auto change) {
                std::vector<BufferRange> ranges = bound.ranges;
                change(ranges);
                const Status status = program.record(commands, ranges, bound.sizes);
                program.finished(0);
                return text(status);
            };
            CHECK(said([&](auto& r) { r[1].buffer_bytes = kBytes - 1; }) ==
                  "layer: y takes 3840 bytes at 0 of a buffer of 3839");
            CHECK(contains(said([&](auto& r) { r[0].buffer_usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT; }),
                           "layer: x is in a buffer without VK_BUFFER_USAGE_STORAGE_BUFFER_BIT"));
            CHECK(said([&](auto& r) { r[0].buffer_device = reinterpret_cast<VkDevice>(&program); }) ==
                  "layer: x is in a buffer of another device");
            CHECK(said([&](auto& r) { r[1].buffer = r[0].buffer; }) == "layer: output y overlaps, in one buffer, x");
            CHECK(said([&](auto& r) {
                      r[0].buffer_bytes = kBytes;
                      r[0].buffer_usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT;
                      r[0].buffer_device = host.device();
                  }) == "");
            CHECK(said([&](auto& r) { r.push_back(r[0]); }) == "layer: x is bound twice");
            CHECK(said([&](auto& r) {
                      r.push_back({"z", r[0].buffer, 0, kBytes});
                  }) == "layer: z is no input or output of it");
            CHECK(contains(said([&](auto& r) {
                               r[0] = {"x", r[1].buffer, 0, ~std::uint64_t{0}};
                               r[1].offset = 3840;
                           }),
                           "output y overlaps"));
            {
                const SizeSetting twice[] = {{"tokens", 6}, {"tokens", 7}};
                CHECK(text(program.record(host.begin(), {.buffers = bound.ranges, .sizes = twice})) ==
                      "layer: size tokens is given twice");
                program.finished(0);
            }
            {
                Program elsewhere = device.compile(g, weights, {.name = "layer", .checked = true});
                const Host::Buffer both = host.make_buffer(kBytes + elsewhere.memory().scratch);
                elsewhere.allocate({.name = "", .buffer = both.buffer, .bytes = kBytes + elsewhere.memory().scratch});
                std::vector<BufferRange> ranges = bound.ranges;
                ranges[1].buffer = both.buffer;
                CHECK(text(elsewhere.record(host.begin(), {.buffers = ranges, .sizes = bound.sizes})) ==
                      "layer: y overlaps the scratch that allocate() was given");
            }
            {
                std::string name = "n";
                while (name.size() < 900) {
                    name += "\xC3\xA4";  // a character of two bytes
                }
                for (const std::string& one : {name, name + "n"}) {
                    Program long_name = device.compile(g, weights, {.name = one, .checked = true});
                    long_name.allocate();
                    const std::string said_of_it = text(long_name.record(host.begin(), Recording{}));
                    const std::size_t cut = said_of_it.find("\xC3\xA4...\xC3\xA4");
                    CHECK(cut != std::string::npos);
                    CHECK(said_of_it.starts_with("n\xC3\xA4"));
                    CHECK(said_of_it.ends_with("is not bound"));
                }
            }
            {  // an error leaves the slot free
                const SizeSetting bad_size{"tokens", kMax + 1};
                CHECK(contains(text(program.record(host.begin(), {.buffers = bound.ranges, .sizes = {&bad_size, 1}})),
                               "tokens = 41"));
                CHECK(text(program.record(host.begin(), bound.recording())) == "");
                program.finished(0);
            }
            {
                Segment segment;
                CHECK(text(program.begin(bound.recording(0))) == "");
                CHECK(text(program.record_segment(host.begin(), 1, segment, 0)) == "");
                CHECK(text(program.record(host.begin(), bound.recording(1))) ==
                      "layer: slot 1 while segments of slot 0 are left to record");
                while (!segment.last) {
                    CHECK(text(program.record_segment(host.begin(), 1e9, segment, 0)) == "");
                }
                program.finished(0);
            }
            {  // a begin() of which nothing was recorded leaves the slot free
                Segment segment;
                CHECK(text(program.begin(bound.recording(0))) == "");
                CHECK(text(program.begin(bound.recording(0))) == "");
                CHECK(text(program.record_segment(host.begin(), 1, segment, 0)) == "");
                CHECK(text(program.begin(bound.recording(0))) ==
                      "layer: slot 0 was recorded before, and finished(0) has not come since");
                program.finished(0);
                CHECK(text(program.begin(bound.recording(0))) == "");
                program.finished(0);
            }
            {
                Program with_scratch = device.compile(g, weights, {.name = "layer"});
                const BufferRange scratch{
                    .name = "", .buffer = bound.x.buffer, .bytes = 1u << 30, .buffer_bytes = kBytes};
                CHECK(contains(error_of([&] { with_scratch.allocate(scratch); }), "layer: scratch takes"));
            }
            VkCommandBuffer again = host.begin();
            CHECK(text(program.record(again, bound.recording(1))) == "");
            CHECK(text(program.record(again, bound.recording(1))) ==
                  "layer: slot 1 was recorded before, and finished(1) has not come since");
            CHECK(contains(text(program.begin(bound.recording(1))), "finished(1)"));
            program.finished(1);
            again = host.begin();  // recording a slot anew makes the command buffer before invalid
            CHECK(text(program.record(again, bound.recording(1))) == "");
            host.submit(again);
            host.wait_idle();
            CHECK(bound.wrong() == "");
            program.finished(7);  // there is none: nothing happens

            const Environment checked("VKFORMER_CHECKED", "1");
            const Device by_environment = Device::borrow(host.handles());
            Program other = by_environment.compile(g, SmallModel::load(by_environment));
            other.allocate();
            std::vector<BufferRange> ranges = bound.ranges;
            ranges[0].buffer_bytes = 1;
            CHECK(contains(text(other.record(host.begin(), ranges, bound.sizes)), "of a buffer of 1"));
            Program unchecked = device.compile(g, weights);
            unchecked.allocate();
            CHECK(text(unchecked.record(host.begin(), ranges, bound.sizes)) == "");
        }
        CHECK(host.messages().empty());
    }
}

}  // namespace vkf::test
