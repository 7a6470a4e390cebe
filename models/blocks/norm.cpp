// SPDX-License-Identifier: Apache-2.0
#include "models/blocks/norm.h"

namespace vkf {

Value softcap(Value x, float c) { return c == 0.0f ? x : scale(activate(scale(x, 1.0f / c), Activation::tanh), c); }

}  // namespace vkf
