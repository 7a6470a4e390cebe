// SPDX-License-Identifier: Apache-2.0
#include "lessons.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace {

constexpr std::uint32_t kMoments = 256;  // that are kept, the latest
constexpr std::uint32_t kEvery = 4;      // frames from one to the next
constexpr std::size_t kMean = 32;        // lessons in a mean

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t to) { return (bytes + to - 1) / to * to; }

void require(const vkf::Status& status) {
    if (!status) {
        throw std::runtime_error(status.message.data());
    }
}

/// What came before in this queue, and shares scratch or moments with what follows.
void in_order(VkCommandBuffer commands) {
    constexpr VkPipelineStageFlags kCompute = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;
    barrier(commands, kCompute, VK_ACCESS_SHADER_WRITE_BIT, kCompute,
            VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
}

}  // namespace

Lessons::Lessons(Gpu& gpu, const vkf::Device& device, const Flock& flock, const vkf::State& student,
                 std::uint32_t frames, bool checked, const LessonOptions& options)
    : options_(options),
      rules_(compile_teacher(device, flock, {.name = "rules", .slots = frames, .checked = checked})),
      lesson_(compile_lesson(device, flock,
                             {.name = "lesson", .state = student, .slots = frames * kMost, .checked = checked})),
      watch_(gpu, frames),
      taken_(frames) {
    constexpr VkBufferUsageFlags kStorage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT;
    // One after the other in one queue, so that one piece of memory does.
    const std::uint64_t bytes = std::max(rules_.memory().scratch, lesson_.memory().scratch);
    const Buffer scratch = gpu.make_buffer(bytes, kStorage, Gpu::Seen::by_device);
    for (vkf::Program* program : {&rules_, &lesson_}) {
        program->allocate({"scratch", scratch.handle, 0, program->memory().scratch});
    }
    const std::uint64_t alignment = device.capabilities().storage_alignment;
    moment_bytes_ = round_up(flock.boids * kWidth * sizeof(float), alignment);
    error_bytes_ = round_up(2 * sizeof(float), alignment);
    moments_ = gpu.make_buffer(kMoments * moment_bytes_, kStorage, Gpu::Seen::by_device);
    errors_ = gpu.make_buffer(std::uint64_t{frames} * kMost * error_bytes_, kStorage);
}

void Lessons::record(VkCommandBuffer commands, std::uint32_t slot, const Buffer& x) {
    watch_.start(commands, slot);
    in_order(commands);
    if (frames_++ % kEvery == 0) {
        teach(commands, slot, x);
        in_order(commands);
    }
    taken_[slot] = 0;
    for (const std::uint32_t count = affordable(); taken_[slot] < count; ++taken_[slot]) {
        lesson(commands, slot);
    }
    watch_.stop(commands, slot);
}

/// How many lessons the budget allows this frame. What a frame leaves of it is saved, up to the
/// time of one lesson.
std::uint32_t Lessons::affordable() {
    if (options_.steps != 0) {
        return std::min(options_.steps, kMost);
    }
    if (ms_ == 0) {
        return 1;  // not measured yet, or it cannot be
    }
    saved_ms_ = std::min(saved_ms_, ms_) + options_.budget_ms;
    const auto count = static_cast<std::uint32_t>(std::min(saved_ms_ / ms_, static_cast<double>(kMost)));
    saved_ms_ -= count * ms_;
    return count;
}

/// The layer of rules says how to steer here.
void Lessons::teach(VkCommandBuffer commands, std::uint32_t slot, const Buffer& x) {
    const vkf::BufferRange ranges[] = {range("x", x), range("y", moments_, kept_ % kMoments * moment_bytes_, x.bytes)};
    require(rules_.record(commands, {.buffers = ranges, .slot = slot}));
    ++kept_;
}

/// On a moment that is chosen at random.
void Lessons::lesson(VkCommandBuffer commands, std::uint32_t slot) {
    const std::uint64_t place = random_() % std::min<std::uint64_t>(kept_, kMoments);
    const std::uint32_t turn = slot * kMost + taken_[slot];
    const vkf::BufferRange ranges[] = {range("moment", moments_, place * moment_bytes_, moment_bytes_),
                                       range("errors", errors_, turn * error_bytes_, 2 * sizeof(float))};
    const vkf::SizeSetting step{"step", static_cast<std::int64_t>(step_++)};
    require(lesson_.record(commands, {.buffers = ranges, .sizes = {&step, 1}, .slot = turn}));
}

void Lessons::finished(std::uint32_t slot) {
    rules_.finished(slot);
    for (std::uint32_t i = 0; i < taken_[slot]; ++i) {
        const std::uint32_t turn = slot * kMost + i;
        lesson_.finished(turn);
        float errors[2];
        std::memcpy(errors, errors_.mapped + turn * error_bytes_, sizeof(errors));
        late_.push_back({errors[0], errors[1]});
        if (early_.size() < kMean / 4) {
            early_.push_back(late_.back());
        }
        if (late_.size() > kMean) {
            late_.pop_front();
        }
        ++count_;
    }
    const std::optional<double> ms = watch_.ms(slot);
    if (ms && taken_[slot] != 0) {
        const double each = *ms / taken_[slot];
        ms_ = ms_ == 0 ? each : 0.8 * ms_ + 0.2 * each;
    }
}

double Lessons::mean(const std::deque<Errors>& errors) {
    Errors sum{};
    for (const Errors& e : errors) {
        sum.loss += e.loss;
        sum.square += e.square;
    }
    return sum.loss / sum.square;  // NaN where there are none
}

std::string Lessons::text() const {
    char out[128];
    std::snprintf(out, sizeof(out), "%u lessons of %.2f ms, loss %.3f", static_cast<unsigned>(count_), ms_, last());
    return out;
}
