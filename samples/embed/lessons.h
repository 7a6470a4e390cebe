// SPDX-License-Identifier: Apache-2.0
// Training within frames: what the rules would do where the student has flown is kept, and lessons
// on what was kept follow in the same commands, as many a frame as a budget allows (Ross, Gordon
// and Bagnell 2011).
#pragma once

#include <deque>
#include <random>

#include "gpu.h"
#include "stopwatch.h"
#include "student.h"

struct LessonOptions {
    /// Milliseconds of the device's time that lessons may take of a frame, on average.
    double budget_ms = 8;
    /// Exactly so many a frame, whatever they take: runs repeat bit for bit. 0: by the budget.
    std::uint32_t steps = 0;
};

class Lessons {
public:
    static constexpr std::uint32_t kMost = 16;  // a frame

    /// For a student that make_student() made, and this many frames in flight.
    Lessons(Gpu& gpu, const vkf::Device& device, const Flock& flock, const vkf::State& student, std::uint32_t frames,
            bool checked, const LessonOptions& options);

    /// Records a frame's lessons. `x` holds its tokens, visible to compute shaders. The errors are
    /// made visible to the host by the frame.
    void record(VkCommandBuffer commands, std::uint32_t slot, const Buffer& x);
    /// Takes in what came of a frame that is done.
    void finished(std::uint32_t slot);

    /// Lessons that are done.
    std::uint64_t count() const { return count_; }
    /// The loss as a share of the mean square of the rules' steering: 1 is no better than to steer
    /// not at all. Means over the first and the last lessons.
    double first() const { return mean(early_); }
    double last() const { return mean(late_); }
    /// The numbers to show.
    std::string text() const;

private:
    struct Errors {
        double loss, square;
    };
    static double mean(const std::deque<Errors>& errors);

    std::uint32_t affordable();
    void teach(VkCommandBuffer commands, std::uint32_t slot, const Buffer& x);
    void lesson(VkCommandBuffer commands, std::uint32_t slot);

    LessonOptions options_;
    vkf::Program rules_, lesson_;
    Stopwatch watch_;
    Buffer moments_, errors_;
    std::uint64_t moment_bytes_ = 0, error_bytes_ = 0;  // from one to the next
    std::vector<std::uint32_t> taken_;                  // lessons in each slot's frame
    std::uint64_t frames_ = 0, kept_ = 0, step_ = 0, count_ = 0;
    double ms_ = 0, saved_ms_ = 0;  // of a lesson; of the budget
    std::mt19937 random_{5};
    std::deque<Errors> early_, late_;
};
