// SPDX-License-Identifier: Apache-2.0
// An outside program in C: layer_norm(x) + x over rows of four.
#include <math.h>
#include <stdio.h>
#include <vkformer/vkformer.h>

static int good(vkf_result result) {
    if (result != VKF_OK) {
        fprintf(stderr, "plain: %s\n", vkf_last_error());
    }
    return result == VKF_OK;
}

int main(void) {
    const float x[4] = {1, 3, 1, 3}, want[4] = {0, 4, 0, 4};
    float y[4] = {0};
    vkf_graph* g = NULL;
    vkf_device* device = NULL;
    vkf_program* program = NULL;
    vkf_dim rows;
    vkf_value in, norm, sum;
    if (!good(vkf_graph_create(&g)) || !good(vkf_graph_symbol(g, "rows", 8, &rows))) {
        return 1;
    }
    const vkf_dim shape[] = {rows, vkf_size(4)};
    if (!good(vkf_graph_input(g, "x", VKF_F32, 2, shape, &in)) ||
        !good(vkf_layer_norm(in, vkf_no_value(), vkf_no_value(), 1e-5f, &norm)) || !good(vkf_add(norm, in, &sum)) ||
        !good(vkf_graph_output("y", sum)) || !good(vkf_device_create(NULL, &device)) ||
        !good(vkf_compile(device, g, NULL, NULL, &program)) || !good(vkf_program_set(program, "rows", 1)) ||
        !good(vkf_program_upload(program, "x", x, 4)) || !good(vkf_program_run(program)) ||
        !good(vkf_program_download(program, "y", y, 4, NULL))) {
        return 1;
    }
    for (int i = 0; i < 4; ++i) {
        if (!(fabsf(y[i] - want[i]) <= 1e-4f)) {
            fprintf(stderr, "plain: %g instead of %g\n", (double)y[i], (double)want[i]);
            return 1;
        }
    }
    vkf_program_destroy(program);
    vkf_device_destroy(device);
    vkf_graph_destroy(g);
    printf("ran from C, vkformer %s\n", vkf_version());
    return 0;
}
