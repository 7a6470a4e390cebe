// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/error.h"

#include <utility>

namespace vkf {

namespace {

std::string message(const std::string& what, const std::string& where, int result) {
    std::string text = where.empty() ? what : where + ": " + what;
    if (result != 0) {
        text += " (VkResult " + std::to_string(result) + ")";
    }
    return text;
}

}  // namespace

Error::Error(const std::string& what, std::string where, int result)
    : std::runtime_error(message(what, where, result)), where_(std::move(where)), result_(result) {}

Error::Error(const char* what, const char* where, int result) : Error(std::string(what), where, result) {}

Error::Error(const std::string& what, const char* where, int result)
    : Error(what, where != nullptr ? std::string(where) : std::string(), result) {}

Error::~Error() = default;

}  // namespace vkf
