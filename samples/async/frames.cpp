// SPDX-License-Identifier: Apache-2.0
#include "frames.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace {

constexpr std::uint32_t kHeads = 4, kTokens = 256, kHeadDim = 64;
// a pixel a number
constexpr std::uint32_t kWidth = 256, kHeight = kHeads * kTokens * kHeadDim / kWidth;
constexpr std::uint64_t kCount = std::uint64_t{kWidth} * kHeight, kBytes = kCount * sizeof(float);
constexpr VkPipelineStageFlags kCompute = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;
constexpr VkPipelineStageFlags kFragment = VK_PIPELINE_STAGE_FRAGMENT_SHADER_BIT;
constexpr VkPipelineStageFlags kTransfer = VK_PIPELINE_STAGE_TRANSFER_BIT;

/// Moves a buffer's ownership between the queues' families; nothing where they are one. Each move
/// is recorded twice: released on the queue that had it, acquired on the one that gets it.
void change_owner(const Gpu& gpu, VkCommandBuffer commands, const Buffer& buffer, const Queue& from, const Queue& to,
                  VkPipelineStageFlags from_stage, VkAccessFlags written, VkPipelineStageFlags to_stage,
                  VkAccessFlags read) {
    if (gpu.two_families()) {
        const VkBufferMemoryBarrier move{VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER,
                                         nullptr,
                                         written,
                                         read,
                                         from.family,
                                         to.family,
                                         buffer.handle,
                                         0,
                                         buffer.bytes};
        vkCmdPipelineBarrier(commands, from_stage, to_stage, 0, 0, nullptr, 1, &move, 0, nullptr);
    }
}

/// A NaN is the worst, and stays.
void keep_worst(double& worst, double found) {
    if (!std::isnan(worst) && !(found <= worst)) {
        worst = found;
    }
}

std::vector<double> attention_row(const float* x, std::uint32_t row) {
    const float* head = x + std::uint64_t{row / kTokens} * kTokens * kHeadDim;
    const float* query = x + std::uint64_t{row} * kHeadDim;
    std::vector<double> y(kHeadDim, 0.0);
    double sum = 0;
    for (std::uint32_t key = 0; key <= row % kTokens; ++key) {
        const float* k = head + std::uint64_t{key} * kHeadDim;
        double score = 0;
        for (std::uint32_t i = 0; i < kHeadDim; ++i) {
            score += static_cast<double>(query[i]) * k[i];
        }
        const double weight = std::exp(score / std::sqrt(static_cast<double>(kHeadDim)));
        sum += weight;
        for (std::uint32_t i = 0; i < kHeadDim; ++i) {
            y[i] += weight * k[i];
        }
    }
    for (double& v : y) {
        v /= sum;
    }
    return y;
}

}  // namespace

Frames::Frames(Gpu& gpu, std::uint32_t work)
    : gpu_(gpu),
      work_(work),
      painter_(gpu, kWidth, kHeight),
      uploaded_(gpu.make_timeline()),
      attended_(gpu.make_timeline()),
      drawn_(gpu.make_timeline()),
      device_(vkf::Device::borrow(
          {.instance = gpu.instance,
           .physical = gpu.physical,
           .device = gpu.device,
           .queue_family = gpu.compute.family,
           .queue = gpu.compute.handle,
           .get_instance_proc_addr = reinterpret_cast<vkf::GetInstanceProcAddr>(vkGetInstanceProcAddr)})) {
    vkf::Graph g;
    const vkf::Value x = g.input("x", {1, kHeads, kTokens, kHeadDim});
    g.output("y",
             vkf::contiguous(vkf::scaled_dot_product_attention(x, x, x, {.mask = {.causal = vkf::Causal::top_left}})));
    program_ = std::make_unique<vkf::Program>(device_.compile(g, {}, {.name = "attention", .slots = kSlots}));
    program_->allocate();
    for (Slot& s : slots_) {
        s.staging = gpu.make_buffer(kBytes, VK_BUFFER_USAGE_TRANSFER_SRC_BIT);
        s.x = gpu.make_buffer(kBytes, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT);
        s.y = gpu.make_buffer(kBytes, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT);
        s.picture = painter_.add_slot(s.y);
        s.upload = gpu.make_commands(gpu.graphics);
        s.attend = gpu.make_commands(gpu.compute);
        s.draw = gpu.make_commands(gpu.graphics);
    }
}

double Frames::run(std::uint64_t first, std::uint64_t count, bool overlap) {
    const auto start = std::chrono::steady_clock::now();
    for (std::uint64_t n = first; n < first + count; ++n) {
        upload(n);
        attend(n);
        if (!overlap) {
            gpu_.wait(attended_, n + 1);
            draw(n);
            gpu_.wait(drawn_, n + 1);
        } else if (n > first) {
            draw(n - 1);
        }
    }
    if (overlap) {
        draw(first + count - 1);
    }
    gpu_.wait(drawn_, first + count);
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count() /
           static_cast<double>(count);
}

double Frames::difference(std::uint64_t n, double& pixel_steps) const {
    const Slot& s = slots_[n % kSlots];
    double worst = 0;
    pixel_steps = 0;
    for (std::uint32_t row = 0; row < kHeads * kTokens; row += 37) {
        const std::vector<double> want = attention_row(s.staging.mapped, row);
        for (std::uint32_t i = 0; i < kHeadDim; ++i) {
            const std::uint64_t at = std::uint64_t{row} * kHeadDim + i;
            const double red = 255 * std::clamp(0.5 + 0.5 * want[i], 0.0, 1.0);
            keep_worst(worst, std::abs(s.y.mapped[at] - want[i]));
            keep_worst(pixel_steps, std::abs(painter_.pixels(s.picture)[4 * at] - red));
        }
    }
    return worst;
}

void Frames::upload(std::uint64_t n) {
    Slot& s = slots_[n % kSlots];
    if (n >= kSlots) {
        // the slot's command buffers and staging memory are free again
        gpu_.wait(drawn_, n - kSlots + 1);
    }
    for (std::uint64_t i = 0; i < kCount; ++i) {
        s.staging.mapped[i] = std::sin(0.37f * static_cast<float>(i % 8191) + 0.1f * static_cast<float>(n));
    }
    gpu_.begin(s.upload);
    const VkBufferCopy all{0, 0, kBytes};
    vkCmdCopyBuffer(s.upload, s.staging.handle, s.x.handle, 1, &all);
    change_owner(gpu_, s.upload, s.x, gpu_.graphics, gpu_.compute, kTransfer, VK_ACCESS_TRANSFER_WRITE_BIT,
                 VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, 0);
    std::vector<Wait> waits;
    if (n >= kSlots) {
        waits.push_back({&attended_, n - kSlots + 1, kTransfer});  // x is overwritten
    }
    gpu_.submit(gpu_.graphics, s.upload, waits, uploaded_, n + 1);
}

void Frames::attend(std::uint64_t n) {
    Slot& s = slots_[n % kSlots];
    gpu_.begin(s.attend);
    // the device's own where there is one family: no change then
    const std::uint32_t other = gpu_.graphics.family;
    const vkf::BufferRange ranges[] = {{.name = "x", .buffer = s.x.handle, .bytes = kBytes, .acquire_from = other},
                                       {.name = "y", .buffer = s.y.handle, .bytes = kBytes, .release_to = other}};
    const vkf::Status status =
        program_->record(s.attend, {.buffers = ranges, .slot = static_cast<std::uint32_t>(n % kSlots)});
    if (!status) {
        throw vkf::Error(status.message.data());
    }
    std::vector<Wait> waits{{&uploaded_, n + 1, kCompute}};
    if (n >= kSlots) {
        waits.push_back({&drawn_, n - kSlots + 1, kCompute});  // y is overwritten
    }
    gpu_.submit(gpu_.compute, s.attend, waits, attended_, n + 1);
}

void Frames::draw(std::uint64_t n) {
    Slot& s = slots_[n % kSlots];
    gpu_.begin(s.draw);
    change_owner(gpu_, s.draw, s.y, gpu_.compute, gpu_.graphics, kFragment, 0, kFragment, VK_ACCESS_SHADER_READ_BIT);
    painter_.record(s.draw, s.picture, work_);
    gpu_.submit(gpu_.graphics, s.draw, {{&attended_, n + 1, kFragment}}, drawn_, n + 1);
}
