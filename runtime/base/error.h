// SPDX-License-Identifier: Apache-2.0
// The one exception type of the library.
#pragma once

#include <stdexcept>
#include <string>

#include "export.h"

namespace vkf {

/// An error says what went wrong, and where: `where()` names the op, tensor or file where one is
/// known, and is empty elsewhere; `result()` is the VkResult, 0 when Vulkan was not asked.
class VKF_API Error : public std::runtime_error {
public:
    explicit Error(const std::string& what, std::string where = {}, int result = 0);
    /// Of texts that are there already, as most are: whoever throws builds none. A null `where` is
    /// an empty one.
    explicit Error(const char* what, const char* where = "", int result = 0);
    Error(const std::string& what, const char* where, int result = 0);
    ~Error() override;  // out of line: one home for the type's identity across shared libraries

    const std::string& where() const noexcept { return where_; }
    int result() const noexcept { return result_; }

private:
    std::string where_;
    int result_ = 0;
};

}  // namespace vkf
