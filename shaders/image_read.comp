#version 450
// SPDX-License-Identifier: Apache-2.0
// One invocation a texel. Texels outside the image read as zeros, whatever the sizes say.
//! variant image_fetch -DSAMPLED
//! variant image_read_rgba8 -DFORMAT=rgba8
//! variant image_read_rgba16f -DFORMAT=rgba16f
//! variant image_read_r32f -DFORMAT=r32f
//! variant image_read_rgba32f -DFORMAT=rgba32f
#extension GL_GOOGLE_include_directive : require
#ifdef SAMPLED
#extension GL_EXT_samplerless_texture_functions : require
#endif
#include "image.h"

layout(local_size_x_id = 0) in;

layout(push_constant) uniform Push { ImagePush p; };
#ifdef SAMPLED
layout(set = 0, binding = kImageBindingImage) uniform texture2D image;
#else
layout(set = 0, binding = kImageBindingImage, FORMAT) uniform readonly image2D image;
#endif
layout(set = 0, binding = kImageBindingTensor) writeonly buffer Tensor { float tensor[]; };

#include "common/dispatch.glsl"

void main() {
    uint group = group_index();
    uint texel = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (group >= p.group_count || texel >= p.height * p.width) {
        return;
    }
    uint row = texel / p.width;
    uint column = texel - row * p.width;
    ivec2 at = ivec2(column, row);
    vec4 color = vec4(0.0);
#ifdef SAMPLED
    if (all(lessThan(at, textureSize(image, 0)))) {
        color = texelFetch(image, at, 0);
    }
#else
    if (all(lessThan(at, imageSize(image)))) {
        color = imageLoad(image, at);
    }
#endif
    for (uint channel = 0u; channel < p.channels; ++channel) {
        tensor[p.offset + row * p.stride[0] + column * p.stride[1] + channel * p.stride[2]] = color[channel];
    }
}
