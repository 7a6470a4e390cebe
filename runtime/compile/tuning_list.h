// SPDX-License-Identifier: Apache-2.0
// "name=number" with commas between: how choices that were measured are written down.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace vkf {

/// The number of that name; nothing where the list has none.
std::optional<std::uint32_t> tuning_number(std::string_view list, std::string_view name) noexcept;

/// The first part that is not name=number; empty: there is none.
std::string_view wrong_tuning_part(std::string_view list) noexcept;

}  // namespace vkf
