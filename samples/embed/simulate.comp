// SPDX-License-Identifier: Apache-2.0
// Moves every boid by what the Transformer layer said in the frame before, and writes the tokens
// that it reads in this one.
#version 450
layout(local_size_x = 64) in;

struct Boid {
    vec2 position, velocity;
};
layout(set = 0, binding = 0) readonly buffer Before { Boid before[]; };
// 16 numbers a boid, of which 14 and 15 are an acceleration
layout(set = 0, binding = 1) readonly buffer Said { float said[]; };
layout(set = 0, binding = 2) writeonly buffer After { Boid after[]; };
// 16 numbers a boid, the first 5 as below, the rest 0
layout(set = 0, binding = 3) writeonly buffer Tokens { float tokens[]; };
layout(push_constant) uniform Push {
    vec2 half_size;  // of the world
    float seconds;
    uint boids, hunters;  // the last ones hunt
};

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i >= boids) {
        return;
    }
    Boid b = before[i];
    vec2 wall = 60.0 * (max(vec2(0.0), -b.position - 0.85 * half_size) - max(vec2(0.0), b.position - 0.85 * half_size));
    b.velocity += seconds * (vec2(said[16u * i + 14u], said[16u * i + 15u]) + wall);
    float speed = max(length(b.velocity), 1e-6);
    bool hunts = i >= boids - hunters;
    b.velocity *= clamp(speed, hunts ? 0.3 : 0.25, hunts ? 0.42 : 0.6) / speed;
    b.position += seconds * b.velocity;
    after[i] = b;

    tokens[16u * i] = b.position.x;
    tokens[16u * i + 1u] = b.position.y;
    tokens[16u * i + 2u] = b.velocity.x;
    tokens[16u * i + 3u] = b.velocity.y;
    tokens[16u * i + 4u] = 0.5 * dot(b.position, b.position);
    for (uint k = 5u; k < 16u; ++k) {
        tokens[16u * i + k] = 0.0;
    }
}
