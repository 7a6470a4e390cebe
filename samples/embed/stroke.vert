// SPDX-License-Identifier: Apache-2.0
// A stroke from a to b, of another radius at each end, for every instance: first what the watched
// boid attends to, then the boids.
#version 450
struct Boid {
    vec2 position, velocity;
};
layout(set = 0, binding = 0) readonly buffer Boids { Boid all[]; };
// 16 numbers a boid: 6, 7 the velocity it looks at
layout(set = 0, binding = 1) readonly buffer Said { float said[]; };
layout(set = 0, binding = 2) readonly buffer Weights { float weights[]; };  // (heads, boids, boids)
layout(push_constant) uniform Push {
    vec2 half_size;
    uint boids, hunters, watched, heads;
    float pixel;  // in units of the world
};

layout(location = 0) out vec2 point;
layout(location = 1) flat out vec4 ends;   // a, b
layout(location = 2) flat out vec4 shape;  // radius at a, radius at b, glow, pixel
layout(location = 3) flat out vec4 colour;

const vec3 kHeads[4] = vec3[](vec3(0.3, 0.65, 1.0), vec3(1.0, 0.7, 0.2), vec3(0.4, 1.0, 0.45), vec3(1.0, 0.2, 0.25));

vec3 hue(float turn) { return 0.6 + 0.4 * cos(6.2832 * (turn + vec3(0.0, 0.33, 0.67))); }

/// Beside each other, as a boid is often looked at by several heads.
void attention(uint head, uint other) {
    float weight = weights[(head * boids + watched) * boids + other];
    vec2 along = all[other].position - all[watched].position;
    vec2 aside = (float(head) - 1.5) * 0.006 * vec2(-along.y, along.x) / max(length(along), 1e-6);
    ends = vec4(all[watched].position + aside, all[other].position + aside);
    shape = vec4(0.0022, 0.0022 + 0.008 * weight, 0.0, pixel);
    colour = vec4(kHeads[head], other == watched ? 0.0 : min(1.0, 3.5 * sqrt(weight)));
}

void boid(uint i) {
    vec2 velocity = all[i].velocity;
    bool hunts = i >= boids - hunters;
    float size = hunts ? 0.05 : 0.028;
    vec2 ahead = normalize(velocity) * size;
    ends = vec4(all[i].position - 1.6 * ahead, all[i].position + 0.4 * ahead);
    shape = vec4(0.0, 0.4 * size, i == watched ? 0.9 : 0.45, pixel);
    vec2 seen = vec2(said[16u * i + 6u], said[16u * i + 7u]);
    colour = vec4(hunts ? vec3(1.0, 0.25, 0.3) : hue(atan(seen.y, seen.x) / 6.2832), 1.0);
    if (i == watched) {
        colour.rgb = vec3(1.0);
    }
}

void main() {
    uint i = uint(gl_InstanceIndex);
    if (i < heads * boids) {
        attention(i / boids, i % boids);
    } else {
        boid(i - heads * boids);
    }
    vec2 along = ends.zw - ends.xy;
    along = dot(along, along) > 0.0 ? normalize(along) : vec2(1.0, 0.0);
    float margin = max(shape.x, shape.y) + 2.0 * pixel + 0.04 * sign(shape.z);
    const vec2 kCorners[6] = vec2[](vec2(0, 0), vec2(1, 0), vec2(0, 1), vec2(0, 1), vec2(1, 0), vec2(1, 1));
    vec2 corner = kCorners[gl_VertexIndex];
    point = mix(ends.xy - margin * along, ends.zw + margin * along, corner.x) +
            (2.0 * corner.y - 1.0) * margin * vec2(-along.y, along.x);
    // or out of the picture
    gl_Position = colour.a > 0.02 ? vec4(point / half_size, 0.0, 1.0) : vec4(2.0, 2.0, 0.0, 1.0);
}
