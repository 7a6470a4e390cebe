// SPDX-License-Identifier: Apache-2.0
// Norms, and a soft cap.
#pragma once

#include "layers/norm.h"

namespace vkf {

/// c tanh(x / c); c = 0: x.
Value softcap(Value x, float c);

}  // namespace vkf
