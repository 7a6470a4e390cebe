// SPDX-License-Identifier: Apache-2.0
// What a host does with the library, in steps that may fail: for tests that make them fail.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device/instance.h"
#include "tests/fake_vulkan.h"

namespace vkf::test {

/// Runs the steps of a life. One that throws is tried again, unless nothing helps any more.
class Attempts {
public:
    using Step = std::function<void()>;

    /// `around` calls the step that it is given, as it likes; `last` ends the life at the first
    /// error.
    explicit Attempts(bool last, std::function<void(const Step&)> around = {})
        : last_(last), around_(std::move(around)) {}

    /// Throws what the step threw where that is to end the life, or the step throws again.
    void operator()(const char* what, const Step& step);

    /// Keeps the device's instance, and so what validation says, until the life is over.
    void watch(const Device& device);
    /// What validation has said of the devices since; lets go of their instances.
    std::string take_messages();

    /// What the steps that threw said, each with the step's name.
    const std::vector<std::string>& errors() const { return errors_; }

private:
    bool last_;
    std::function<void(const Step&)> around_;
    std::vector<std::string> errors_;
    std::vector<std::shared_ptr<InstanceCore>> instances_;
};

struct Life {
    const char* name;
    /// Lives, and throws where an answer is wrong. Nothing that it made is left.
    void (*live)(const fake::Vulkan& vulkan, Attempts& attempt);
};

/// Own devices, borrowed ones, hosts that submit themselves, long runs, packing, shared memory,
/// decoders, training.
std::span<const Life> fault_lives();

}  // namespace vkf::test
