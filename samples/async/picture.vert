// SPDX-License-Identifier: Apache-2.0
// One triangle over the whole picture.
#version 450

void main() {
    gl_Position = vec4(vec2(gl_VertexIndex & 1, gl_VertexIndex >> 1) * 4.0 - 1.0, 0.0, 1.0);
}
