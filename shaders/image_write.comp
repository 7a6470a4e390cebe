#version 450
// SPDX-License-Identifier: Apache-2.0
// One invocation a texel. Channels the tensor lacks are 0, alpha 1. Texels outside the image are
// not written.
//! variant image_write -DANY
//! variant image_write_rgba8 -DFORMAT=rgba8
//! variant image_write_rgba16f -DFORMAT=rgba16f
//! variant image_write_r32f -DFORMAT=r32f
//! variant image_write_rgba32f -DFORMAT=rgba32f
#extension GL_GOOGLE_include_directive : require
#include "image.h"

layout(local_size_x_id = 0) in;

layout(push_constant) uniform Push { ImagePush p; };
#ifdef ANY
layout(set = 0, binding = kImageBindingImage) uniform writeonly image2D image;
#else
layout(set = 0, binding = kImageBindingImage, FORMAT) uniform writeonly image2D image;
#endif
layout(set = 0, binding = kImageBindingTensor) readonly buffer Tensor { float tensor[]; };

#include "common/dispatch.glsl"

void main() {
    uint group = group_index();
    uint texel = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (group >= p.group_count || texel >= p.height * p.width) {
        return;
    }
    uint row = texel / p.width;
    uint column = texel - row * p.width;
    uint at = p.offset + row * p.stride[0] + column * p.stride[1];
    vec4 color = vec4(tensor[at], 0.0, 0.0, 1.0);
    if (p.channels > 1u) {
        color.y = tensor[at + p.stride[2]];
    }
    if (p.channels > 2u) {
        color.z = tensor[at + 2u * p.stride[2]];
    }
    if (p.channels > 3u) {
        color.w = tensor[at + 3u * p.stride[2]];
    }
    if (all(lessThan(ivec2(column, row), imageSize(image)))) {
        imageStore(image, ivec2(column, row), color);
    }
}
