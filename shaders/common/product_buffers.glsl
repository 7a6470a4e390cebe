// SPDX-License-Identifier: Apache-2.0
// The buffers of a matrix product, B as numbers or packed, and what is pushed.
#ifndef VKF_SHADERS_COMMON_PRODUCT_BUFFERS_GLSL
#define VKF_SHADERS_COMMON_PRODUCT_BUFFERS_GLSL

#include "matmul.h"

layout(set = 0, binding = kMatmulBindingA) readonly buffer A { float a[]; };
layout(set = 0, binding = kMatmulBindingA) readonly buffer AVec { vec4 a_vec[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer B { float b[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer BVec { vec4 b_vec[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer BWords { uint b_words[]; };
layout(set = 0, binding = kMatmulBindingB) readonly buffer BPairs { uvec2 b_pairs[]; };
layout(set = 0, binding = kMatmulBindingBias) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = kMatmulBindingBias) readonly buffer BiasVec { vec4 bias_vec[]; };
layout(set = 0, binding = kMatmulBindingC) writeonly buffer C { float c[]; };
layout(set = 0, binding = kMatmulBindingC) writeonly buffer CVec { vec4 c_vec[]; };

layout(push_constant) uniform Push { MatmulPush p; };

#endif
