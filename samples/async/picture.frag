// SPDX-License-Identifier: Apache-2.0
// A pixel for each number that attention gave; and as much other work as a busy renderer has.
#version 450
layout(set = 0, binding = 0) readonly buffer Numbers { float numbers[]; };
layout(push_constant) uniform Push { uint width, work; };
layout(location = 0) out vec4 color;

void main() {
    uvec2 at = uvec2(gl_FragCoord.xy);
    float value = numbers[at.y * width + at.x];
    float other = value;
    for (uint i = 0u; i < work; ++i) {
        other = fract(other * 1.618034 + 0.31831);
    }
    color = vec4(0.5 + 0.5 * value, other, 0.5 - 0.5 * value, 1.0);
}
