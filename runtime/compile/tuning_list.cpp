// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/tuning_list.h"

#include <charconv>
#include <system_error>

#include "runtime/base/text.h"

namespace vkf {

namespace {

std::optional<std::uint32_t> number(std::string_view text) noexcept {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

}  // namespace

std::optional<std::uint32_t> tuning_number(std::string_view list, std::string_view name) noexcept {
    while (!list.empty()) {
        std::string_view value = take_part(list, ',');
        if (take_part(value, '=') == name) {
            return number(value);
        }
    }
    return std::nullopt;
}

std::string_view wrong_tuning_part(std::string_view list) noexcept {
    while (!list.empty()) {
        const std::string_view part = take_part(list, ',');
        std::string_view value = part;
        if (take_part(value, '=').empty() || !number(value)) {
            return part.empty() ? "," : part;
        }
    }
    return {};
}

}  // namespace vkf
