// SPDX-License-Identifier: Apache-2.0
// A C++11 program without exceptions and RTTI, which the C++ interface is not for; errors that are
// thrown inside come out as results.
#include <cstdio>
#include <cstring>

#include <vkformer/vkformer_c.h>

static bool good(vkf_result result) {
    if (result != VKF_OK) {
        std::fprintf(stderr, "no_exceptions: %s\n", vkf_last_error());
    }
    return result == VKF_OK;
}

int main() {
    vkf_device_options options = {};
    options.struct_size = sizeof(options);
    options.select = "no device has this name";
    vkf_device* device = nullptr;
    if (vkf_device_create(&options, &device) == VKF_OK || device || !std::strstr(vkf_last_error(), options.select)) {
        std::fputs("no_exceptions: a device of no name was found\n", stderr);
        return 1;
    }
    std::printf("as it should be: %s\n", vkf_last_error());

    vkf_graph* g = nullptr;
    vkf_value x, y;
    const vkf_dim shape[] = {vkf_size(1), vkf_size(4)};
    vkf_program* program = nullptr;
    const float numbers[4] = {1, 3, 1, 3};
    float result[4] = {};
    const bool ran = good(vkf_graph_create(&g)) && good(vkf_graph_input(g, "x", VKF_F32, 2, shape, &x)) &&
                     good(vkf_layer_norm(x, vkf_no_value(), vkf_no_value(), 1e-5f, &y)) && good(vkf_add(x, y, &y)) &&
                     good(vkf_graph_output("y", y)) && good(vkf_device_create(nullptr, &device)) &&
                     good(vkf_compile(device, g, nullptr, nullptr, &program)) &&
                     good(vkf_program_upload(program, "x", numbers, 4)) && good(vkf_program_run(program)) &&
                     good(vkf_program_download(program, "y", result, 4, nullptr));
    vkf_program_destroy(program);
    vkf_device_destroy(device);
    vkf_graph_destroy(g);
    for (int i = 0; i < 4; ++i) {
        const float want = i % 2 == 0 ? 0.0f : 4.0f, difference = result[i] - want;
        if (!ran || !(difference < 1e-4f && difference > -1e-4f)) {
            std::fprintf(stderr, "no_exceptions: %g instead of %g\n", static_cast<double>(result[i]),
                         static_cast<double>(want));
            return 1;
        }
    }
    std::puts("ran without exceptions and RTTI");
    return 0;
}
