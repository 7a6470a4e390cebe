// SPDX-License-Identifier: Apache-2.0
#version 450
layout(location = 0) in vec2 point;
layout(location = 1) flat in vec4 ends;
layout(location = 2) flat in vec4 shape;
layout(location = 3) flat in vec4 colour;
layout(location = 0) out vec4 result;

void main() {
    vec2 from = point - ends.xy;
    vec2 along = ends.zw - ends.xy;
    float at = clamp(dot(from, along) / max(dot(along, along), 1e-12), 0.0, 1.0);
    float distance = length(from - at * along) - mix(shape.x, shape.y, at);
    float inside = clamp(0.5 - distance / shape.w, 0.0, 1.0);
    float glow = shape.z * exp(-90.0 * max(distance, 0.0)) * at;
    result = vec4(colour.rgb, colour.a * max(inside, 0.5 * glow));
}
