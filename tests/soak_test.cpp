// SPDX-License-Identifier: Apache-2.0
// Frames without end: random sizes, slots, dropped command buffers and segments, uploads, devices
// that are lost and made again, and a decoder beside it all. Ten seconds of them; VKFORMER_SOAK is
// a number of minutes instead (tools/test --soak).
#include <doctest/doctest.h>
#if defined(__linux__)
#include <malloc.h>
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>

#include "models/decoder.h"
#include "tests/allocations.h"
#include "tests/bound_recording.h"
#include "tests/device.h"
#include "tests/fake_vulkan.h"
#include "tests/fixtures.h"

namespace vkf::test {

#if defined(__linux__)

namespace {

std::chrono::duration<double> soak_time() {
    const char* minutes = std::getenv("VKFORMER_SOAK");
    return std::chrono::duration<double>(minutes != nullptr ? 60 * std::max(0.01, std::strtod(minutes, nullptr)) : 10);
}

/// Bytes that are allocated and not freed. What the process holds besides is torn by allocations
/// that come and go, and grows for a while.
std::uint64_t allocated_bytes() {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    if (allocations::can_fail()) {  // else AddressSanitizer allocates
        const struct mallinfo2 info = mallinfo2();
        return info.uordblks + info.hblkhd;
    }
#endif
    return allocations::bytes_in_use();
}

/// A host with a program of two slots, whose frames are recorded, dropped or cut into segments.
class SoakHost {
public:
    explicit SoakHost(const fake::Vulkan& vulkan)
        : device_(Device::borrow(through(host_, vulkan))), program_(compile_small(device_, {.slots = 2})) {
        program_.allocate();
        for (std::int64_t tokens = 1; tokens <= kSizes; ++tokens) {
            bound_.emplace_back(host_, 1 + (tokens * 7) % kMax);
        }
        commands_ = {host_.begin(), host_.begin()};
        for (VkCommandBuffer commands : commands_) {
            host_.submit(commands);
        }
        host_.wait_idle();
    }

    /// A frame of any size and in either slot; what becomes of it is drawn too.
    std::string frame(std::mt19937& random) {
        const Bound& bound = bound_[random() % bound_.size()];
        const auto slot = static_cast<std::uint32_t>(random() % 2);
        switch (random() % 4) {
            case 0: return segments(bound, slot, random() % 3 == 0);
            case 1: {  // recorded, and the command buffer is never submitted
                const Status status = program_.record(host_.begin_again(commands_[slot]), bound.recording(slot));
                host_.api().vkEndCommandBuffer(commands_[slot]);
                return status ? "" : text(status);
            }
            default: return whole_frame(bound, slot);
        }
    }

    std::vector<float> bits() {
        const std::string wrong = whole_frame(bound_.front(), 0);
        return wrong.empty() ? bound_.front().result() : std::vector<float>();
    }

    std::string upload() {
        Graph g;
        SmallModel::describe(g, 8);
        Program once = device_.compile(g, SmallModel::load(device_));
        return SmallModel::check(once, 8);
    }

private:
    static constexpr std::int64_t kSizes = 12;

    std::string whole_frame(const Bound& bound, std::uint32_t slot) {
        const Status status = program_.record(host_.begin_again(commands_[slot]), bound.recording(slot));
        host_.submit(commands_[slot]);
        host_.wait_idle();
        return status ? bound.wrong() : text(status);
    }

    /// In parts; `cancelled`: the last ones never come.
    std::string segments(const Bound& bound, std::uint32_t slot, bool cancelled) {
        if (const Status begun = program_.begin(bound.recording(slot)); !begun) {
            return text(begun);
        }
        for (Segment part; !part.last;) {
            const Status status = program_.record_segment(host_.begin_again(commands_[slot]),
                                                          program_.cost(bound.sizes).total() / 3, part, slot);
            host_.submit(commands_[slot]);
            host_.wait_idle();
            if (!status || cancelled) {
                return status ? "" : text(status);
            }
        }
        return bound.wrong();
    }

    Host host_;
    Device device_;
    Program program_;
    std::vector<Bound> bound_;
    std::array<VkCommandBuffer, 2> commands_{};
};

/// Greedy answers of the smallest decoder, again and again from the same prompt.
class SoakDecoder {
public:
    explicit SoakDecoder(const fake::Vulkan& vulkan)
        : device_(Device::create({.get_instance_proc_addr = vulkan.entry()})),
          checkpoint_(VKFORMER_SOURCE_DIR "/tests/decoders/gpt2_bare") {
        const DecoderModel model = read_decoder(checkpoint_);
        decoder_.emplace(device_, load_decoder(device_, checkpoint_, model), model, DecoderOptions{.max_tokens = 16});
    }

    std::vector<std::int32_t> answer() {
        decoder_->prompt({1, 5, 9, 4});
        std::vector<std::int32_t> out;
        for (int i = 0; i < 4; ++i) {
            out.push_back(decoder_->next()[0]);
            decoder_->step(std::array{out.back()});
        }
        return out;
    }

private:
    Device device_;
    Checkpoint checkpoint_;
    std::optional<Decoder> decoder_;
};

/// A device that is lost at a submission, says so, goes, and is followed by one that works.
std::string lose_a_device(fake::Vulkan& vulkan) {
    for (const bool lost : {true, false}) {
        const Device device = Device::create({.get_instance_proc_addr = vulkan.entry()});
        Graph g;
        SmallModel::describe(g, 8);
        Program program = device.compile(g, SmallModel::load(device));
        if (lost) {
            vulkan.vkQueueSubmit.fail(VK_ERROR_DEVICE_LOST);
        }
        std::string wrong;
        const std::string thrown = error_of([&] { wrong = SmallModel::check(program, 8); });
        if (!wrong.empty() || thrown.empty() == lost) {
            return "a device that was " + std::string(lost ? "lost: " : "made again: ") + wrong + thrown;
        }
    }
    return {};
}

}  // namespace

TEST_SUITE("soak") {
    TEST_CASE("soak: frames of every kind leave memory, handles and descriptors as they were, and the same bits") {
        const Environment no_validation("VKFORMER_VALIDATION", "0");  // it keeps what it has seen
        fake::Vulkan vulkan;
        std::uint64_t frames = 0, losses = 0, answers = 0, uploads = 0;
        const auto begin = std::chrono::steady_clock::now();
        const auto wanted = soak_time();
        {
            std::mt19937 random(7);
            SoakHost host(vulkan);
            SoakDecoder decoder(vulkan);
            const std::vector<float> first = host.bits();
            REQUIRE(!first.empty());
            const std::vector<std::int32_t> first_answer = decoder.answer();
            std::int64_t objects = 0;
            std::ptrdiff_t descriptors = 0;
            std::uint64_t memory = 0;
            std::string wrong;
            const auto passed = [&] { return std::chrono::steady_clock::now() - begin; };
            // A round does everything; what the first fifth of the time took is what stays.
            for (bool settled = false; wrong.empty() && passed() < wanted;) {
                for (int i = 0; i < 200 && wrong.empty(); ++i, ++frames) {
                    wrong = host.frame(random);
                }
                wrong += host.upload();
                ++uploads;
                wrong += lose_a_device(vulkan);
                ++losses;
                wrong += decoder.answer() == first_answer ? "" : "the decoder answers otherwise";
                ++answers;
                if (!settled && passed() > wanted / 5) {
                    settled = true;
                    objects = vulkan.live_objects();
                    descriptors = open_descriptors();
                    memory = allocated_bytes();
                }
                if (settled) {
                    wrong += vulkan.live_objects() == objects ? "" : "Vulkan objects were left";
                    wrong += open_descriptors() == descriptors ? "" : "descriptors were left";
                }
            }
            CHECK(wrong == "");
            CHECK(objects > 0);
            CHECK(host.bits() == first);
            CHECK(decoder.answer() == first_answer);
            const std::uint64_t now = allocated_bytes();
            const std::uint64_t growth = now - std::min(now, memory);
            CHECK(growth < (std::uint64_t{2} << 20));  // drivers keep some of it
            std::printf(
                "soak: %.1f minutes, %llu frames, %llu uploads, %llu devices lost and made again, %llu answers; "
                "memory grew by %.1f MiB in the last four fifths\n",
                std::chrono::duration<double>(passed()).count() / 60, static_cast<unsigned long long>(frames),
                static_cast<unsigned long long>(uploads), static_cast<unsigned long long>(losses),
                static_cast<unsigned long long>(answers), static_cast<double>(growth) / (1 << 20));
        }
        CHECK(vulkan.live_objects() == 0);
        CHECK(vulkan.allocated_bytes() == 0);
    }
}

#endif

}  // namespace vkf::test
