// SPDX-License-Identifier: Apache-2.0
// A function of GLSL from uint to uint, run on the test device, to test what becomes of modules.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/compile/kernel.h"

namespace vkf::test {

class UintKernel {
public:
    /// `text` holds the function; it may name `constants`, which are uint. The entry point's name
    /// has four letters.
    UintKernel(const std::string& text, const std::string& function, const std::vector<std::string>& constants,
               const std::string& entry_point = "main");

    /// How the function's results for 0 to count - 1 differ from those wanted; empty: they do not.
    std::string difference(const std::vector<std::uint32_t>& constants, std::int64_t count,
                           const std::function<std::uint32_t(std::uint32_t)>& want) const;

private:
    std::shared_ptr<const Shader> shader_;
};

}  // namespace vkf::test
