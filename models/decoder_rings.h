// SPDX-License-Identifier: Apache-2.0
// Caches of layers with a window in ring form: what the description and whoever runs it agree on.
#pragma once

#include <string>

#include "models/decoder.h"

namespace vkf {

/// Rows of a layer's cache; below max_tokens it is a ring: the window, and what a chunk adds.
std::int64_t cache_rows(const DecoderConfig& config, const DecoderOptions& options, std::int64_t layer);

/// The sizes of a run, the same for all rings of a window. Token i lies in row i mod rows.
///   kept     older tokens that are seen
///   at       row of the first new token
///   written  new tokens before the ring's end; the others follow from row 0 on (not of a step)
///   first    row of the oldest token that is seen
///   seen     tokens that are seen before the ring's end
std::string ring_symbol(std::int64_t window, const char* what);

}  // namespace vkf
