// SPDX-License-Identifier: Apache-2.0
// The small model of tests/fixtures.h as a host records it: with buffers of its own.
#pragma once

#include <string>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/device/program.h"
#include "tests/fake_vulkan.h"
#include "tests/fixtures.h"
#include "tests/host.h"
#include "tests/op_check.h"

namespace vkf::test {

inline constexpr std::int64_t kMax = 40;  ///< tokens
inline constexpr std::uint64_t kBytes = kMax * SmallModel::kWidth * sizeof(float);

inline std::string text(const Status& status) { return status.message.data(); }

/// The host's handles, each call through the layer.
BorrowedDevice through(const Host& host, const fake::Vulkan& vulkan);
/// The small model of up to kMax tokens, not yet allocated.
Program compile_small(const Device& device, const CompileOptions& options = {});

/// A host's buffers for the small model, and what it records with them.
struct Bound {
    Bound(Host& host, std::int64_t tokens);

    Recording recording(std::uint32_t slot = 0) const { return {.buffers = ranges, .sizes = sizes, .slot = slot}; }
    std::vector<float> result() const;
    /// Says how the result differs from what it must be; empty: it does not.
    std::string wrong() const;

    Host::Buffer x, y;
    std::int64_t tokens;
    std::vector<BufferRange> ranges;
    std::vector<SizeSetting> sizes;
};

/// The bits of a whole recording, waited for. Throws what its status says.
std::vector<float> whole(Host& host, Program& program, const Bound& bound);

}  // namespace vkf::test
