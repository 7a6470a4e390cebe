// SPDX-License-Identifier: Apache-2.0
// The device that tests run on: one for the whole program, named by the environment
// (VKFORMER_DEVICE, VKFORMER_PROFILE, VKFORMER_VALIDATION).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/device/device.h"

namespace vkf {

class Program;
struct Plan;

}  // namespace vkf

namespace vkf::test {

/// The device of all tests, made at the first call.
const Device& device();
/// True when the device runs under the validation layer.
bool validated();
/// Gives device, driver and profile, for a heading.
std::string device_line();

/// A run under validation means something only where the layer sees: records commands that race, a
/// pair of transfers and a pair of dispatches, and expects a message about each. Forgets them.
/// Throws when one is missing.
void prove_validation_sees();

/// Destroys the device and returns what validation has said since it was last asked, of that too.
/// Nothing may be left of what was made from the device.
std::vector<std::string> close_device();

/// The plan of a program; it lives as long as the program.
const Plan& plan_of(const Program& program);
/// The labels of a plan's dispatches, in order.
std::vector<std::string> labels_of(const Plan& plan);
/// The number of submissions that the program's last run was split into.
std::size_t submissions_of(const Program& program);
/// The number of pipelines that the device made so far.
std::size_t pipelines_of(const Device& device);

/// Counts a check that the device cannot run for want of `what`.
void cannot_run(const std::string& what);
/// False, which is counted, where the device has no cooperative matrices.
bool has_matrices();
/// Lists what was not run, "16-bit storage (3 checks), ..."; empty when everything ran.
std::string not_run();

/// While it lives, the device (which lives longer) is believed to be a GPU that takes few groups a
/// dimension: on a processor a second set of kernel variants, and everywhere a dispatch of more
/// than 6 groups folds over three dimensions.
class AsSmallGpu {
public:
    explicit AsSmallGpu(const Device& device = test::device());
    ~AsSmallGpu();
    AsSmallGpu(const AsSmallGpu&) = delete;
    AsSmallGpu& operator=(const AsSmallGpu&) = delete;

private:
    const Device& device_;
    Capabilities capabilities_;
};

}  // namespace vkf::test
