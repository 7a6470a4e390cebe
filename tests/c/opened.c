// SPDX-License-Identifier: Apache-2.0
// opened LIBRARY: the C interface through function pointers of a library that is opened at run
// time.
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <vkformer/vkformer.h>

static void* library;

/// The functions that are used; their types are the header's. F(name) for each.
// clang-format off
#define FUNCTIONS(F)                                                                                           \
    F(c_api_version) F(last_error) F(graph_create) F(graph_destroy) F(graph_input) F(graph_output) F(add)      \
    F(scaled_dot_product_attention) F(device_create) F(device_destroy) F(device_capabilities) F(compile)       \
    F(program_upload) F(program_run) F(program_download) F(program_destroy)
// clang-format on
#define DECLARE(name) __typeof__(vkf_##name)* name;
static struct { FUNCTIONS(DECLARE) } vkf;

static int load_symbol(const char* name, void* function, size_t bytes) {
    void* symbol = dlsym(library, name);
    memcpy(function, &symbol, bytes);
    if (!symbol) {
        fprintf(stderr, "opened: no %s\n", name);
    }
    return symbol != NULL;
}

static int good(vkf_result result) {
    if (result != VKF_OK) {
        fprintf(stderr, "opened: %s\n", vkf.last_error());
    }
    return result == VKF_OK;
}

/// y = x + attention of x with itself, x (1, 1, 2, 2).
static int attends(vkf_graph* g, vkf_device* device) {
    const vkf_dim shape[] = {vkf_size(1), vkf_size(1), vkf_size(2), vkf_size(2)};
    const float x[4] = {1, 0, 0, 1};
    float y[4] = {0};
    vkf_value in, sum;
    vkf_attention attention = {.struct_size = sizeof(attention)};
    vkf_program* program = NULL;
    if (!good(vkf.graph_input(g, "x", VKF_F32, 4, shape, &in)) ||
        !good(vkf.scaled_dot_product_attention(in, in, in, NULL, &attention)) ||
        !good(vkf.add(in, attention.y, &sum)) || !good(vkf.graph_output("y", sum)) ||
        !good(vkf.compile(device, g, NULL, NULL, &program)) || !good(vkf.program_upload(program, "x", x, 4)) ||
        !good(vkf.program_run(program)) || !good(vkf.program_download(program, "y", y, 4, NULL))) {
        return 0;
    }
    vkf.program_destroy(program);
    const double own = exp(1 / sqrt(2)), weight = own / (own + 1);
    const double want[4] = {1 + weight, 1 - weight, 1 - weight, 1 + weight};
    for (int i = 0; i < 4; ++i) {
        if (!(fabs(y[i] - want[i]) <= 1e-5)) {
            fprintf(stderr, "opened: %g instead of %g\n", (double)y[i], want[i]);
            return 0;
        }
    }
    return 1;
}

int main(int count, char** arguments) {
    if (count != 2 || !(library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL))) {
        fprintf(stderr, "opened: %s\n", count == 2 ? dlerror() : "which library?");
        return 1;
    }
#define LOAD(name) load_symbol("vkf_" #name, &vkf.name, sizeof(vkf.name))&&
    if (!(FUNCTIONS(LOAD) 1) || vkf.c_api_version() != VKF_C_API_VERSION) {
        return 1;
    }
    vkf_graph* g = NULL;
    vkf_device* device = NULL;
    vkf_capabilities capabilities = {.struct_size = sizeof(capabilities)};
    if (!good(vkf.graph_create(&g)) || !good(vkf.device_create(NULL, &device)) ||
        !good(vkf.device_capabilities(device, &capabilities)) || !attends(g, device)) {
        return 1;
    }
    vkf.graph_destroy(g);
    vkf.device_destroy(device);
    if (vkf.graph_create(NULL) == VKF_OK || !strstr(vkf.last_error(), "vkf_graph_create")) {
        fputs("opened: a null pointer was no error\n", stderr);
        return 1;
    }
    printf("opened %s: attention on %s\n", arguments[1], capabilities.name);
    return 0;
}
