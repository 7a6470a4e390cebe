// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vkf {

/// The name that stands in the errors of a decoder and its plan.
inline constexpr const char* kDecoder = "Decoder";

}  // namespace vkf
