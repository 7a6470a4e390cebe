// SPDX-License-Identifier: Apache-2.0
// The C interface from plain C: a layer of attention on a device of the host's, recorded into its
// command buffers, and whatever a C program can do wrong.
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

enum { kMax = 40, kWidth = 8, kHeads = 2, kHead = kWidth / kHeads };

typedef struct model {
    float q[kWidth * kWidth], k[kHead * kWidth], v[kHead * kWidth], o[kWidth * kWidth];
    float x[kMax * kWidth];
} model;

/// Numbers in -1..1 that are the same everywhere.
static void numbers(float* to, size_t count, uint32_t seed) {
    for (size_t i = 0; i < count; ++i) {
        seed = seed * 1664525u + 1013904223u;
        to[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

static model make_model(void) {
    model m;
    numbers(m.q, sizeof(m.q) / sizeof(float), 1);
    numbers(m.k, sizeof(m.k) / sizeof(float), 2);
    numbers(m.v, sizeof(m.v) / sizeof(float), 3);
    numbers(m.o, sizeof(m.o) / sizeof(float), 4);
    numbers(m.x, sizeof(m.x) / sizeof(float), 5);
    return m;
}

/// row `out` of w (rows, kWidth) times x
static double projected(const float* w, int out, const float* x) {
    double sum = 0;
    for (int i = 0; i < kWidth; ++i) {
        sum += (double)w[out * kWidth + i] * x[i];
    }
    return sum;
}

/// Computes what the layer must give for token t, in double precision: x + o_proj(attention), two
/// query heads on one kv head, causal.
static void want(const model* m, int t, double y[kWidth]) {
    double heads[kWidth];
    for (int h = 0; h < kHeads; ++h) {
        double total = 0, sum[kHead] = {0};
        for (int s = 0; s <= t; ++s) {
            double score = 0;
            for (int d = 0; d < kHead; ++d) {
                score += projected(m->q, h * kHead + d, m->x + t * kWidth) * projected(m->k, d, m->x + s * kWidth);
            }
            const double weight = exp(score / sqrt(kHead));
            total += weight;
            for (int d = 0; d < kHead; ++d) {
                sum[d] += weight * projected(m->v, d, m->x + s * kWidth);
            }
        }
        for (int d = 0; d < kHead; ++d) {
            heads[h * kHead + d] = sum[d] / total;
        }
    }
    for (int i = 0; i < kWidth; ++i) {
        y[i] = m->x[t * kWidth + i];
        for (int j = 0; j < kWidth; ++j) {
            y[i] += (double)m->o[i * kWidth + j] * heads[j];
        }
    }
}

static bool right(const model* m, const float* y, int tokens) {
    for (int t = 0; t < tokens; ++t) {
        double w[kWidth];
        want(m, t, w);
        for (int i = 0; i < kWidth; ++i) {
            if (!(fabs(y[t * kWidth + i] - w[i]) <= 1e-5 + 1e-4 * fabs(w[i]))) {
                fprintf(stderr, "token %d, %d: %g instead of %g\n", t, i, (double)y[t * kWidth + i], w[i]);
                return false;
            }
        }
    }
    return true;
}

static vkf_graph* describe(void) {
    vkf_graph* g = NULL;
    vkf_dim tokens;
    vkf_value x, y;
    OK(vkf_graph_create(&g));
    OK(vkf_graph_symbol(g, "tokens", kMax, &tokens));
    const vkf_dim shape[] = {vkf_size(1), tokens, vkf_size(kWidth)};
    OK(vkf_graph_input(g, "x", VKF_F32, 3, shape, &x));
    const vkf_grouped_query_attention_options options = {
        .struct_size = sizeof(options), .name = "attn", .heads = kHeads, .kv_heads = 1};
    vkf_attention attention = {.struct_size = sizeof(attention)};
    OK(vkf_grouped_query_attention(x, &options, &attention));
    OK(vkf_add(x, attention.y, &y));
    OK(vkf_graph_output("y", y));
    return g;
}

static vkf_weights* load(vkf_device* device, const model* m) {
    static const int64_t square[] = {kWidth, kWidth}, flat[] = {kHead, kWidth};
    const vkf_tensor tensors[] = {
        {.name = "attn.q_proj.weight", .data = m->q, .bytes = sizeof(m->q), .shape = square, .rank = 2},
        {.name = "attn.k_proj.weight", .data = m->k, .bytes = sizeof(m->k), .shape = flat, .rank = 2},
        {.name = "attn.v_proj.weight", .data = m->v, .bytes = sizeof(m->v), .shape = flat, .rank = 2},
        {.name = "attn.o_proj.weight", .data = m->o, .bytes = sizeof(m->o), .shape = square, .rank = 2},
    };
    vkf_weights* weights = NULL;
    OK(vkf_weights_load(device, 4, tensors, NULL, &weights));
    uint64_t bytes = 0;
    OK(vkf_weights_bytes(weights, &bytes));
    REQUIRE(bytes >= sizeof(m->q) + sizeof(m->k) + sizeof(m->v) + sizeof(m->o));
    return weights;
}

/// x and y in buffers of the host, and the recording that names them.
typedef struct bound {
    host_buffer x, y;
    vkf_buffer_range ranges[2];
    vkf_size_setting size;
    vkf_recording recording;
} bound;

static void bind(host* h, const model* m, int tokens, uint32_t slot, bound* b) {
    b->x = host_make_buffer(h, sizeof(m->x), VK_BUFFER_USAGE_STORAGE_BUFFER_BIT);
    b->y = host_make_buffer(h, sizeof(m->x), VK_BUFFER_USAGE_STORAGE_BUFFER_BIT);
    memcpy(b->x.mapped, m->x, sizeof(m->x));
    const vkf_buffer_range x = {.struct_size = sizeof(x),
                                .name = "x",
                                .buffer = b->x.buffer,
                                .bytes = sizeof(m->x),
                                .buffer_bytes = sizeof(m->x),
                                .buffer_usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
                                .buffer_device = h->device};
    b->ranges[0] = b->ranges[1] = x;
    b->ranges[1].name = "y";
    b->ranges[1].buffer = b->y.buffer;
    b->size.name = "tokens";
    b->size.value = tokens;
    memset(&b->recording, 0, sizeof(b->recording));
    b->recording.struct_size = sizeof(b->recording);
    b->recording.slot = slot;
    b->recording.buffers = b->ranges;
    b->recording.buffer_count = 2;
    b->recording.sizes = &b->size;
    b->recording.size_count = 1;
}

static void unbind(host* h, bound* b) {
    host_destroy_buffer(h, &b->x);
    host_destroy_buffer(h, &b->y);
}

static vkf_device* borrow(host* h) {
    const vkf_borrowed_device lent = host_handles(h);
    vkf_device* device = NULL;
    OK(vkf_device_borrow(&lent, NULL, &device));
    return device;
}

static vkf_program* compile(vkf_device* device, const model* m, const vkf_compile_options* options) {
    vkf_graph* g = describe();
    vkf_weights* weights = load(device, m);
    vkf_program* program = NULL;
    OK(vkf_compile(device, g, weights, options, &program));
    vkf_graph_destroy(g);  // the program has what it needs
    vkf_weights_destroy(weights);
    return program;
}

/// Records two slots at different lengths in one command buffer, then in segments, with memory,
/// lock and scratch of the host's.
static void records(host* h, const model* m) {
    vkf_device* device = borrow(h);
    const vkf_compile_options options = {.struct_size = sizeof(options),
                                         .slots = 2,
                                         .name = "layer",
                                         // its weights are fp32
                                         .arithmetic = VKF_ARITHMETIC_INT8};
    vkf_program* program = compile(device, m, &options);
    REQUIRE(h->pieces > 0);

    vkf_memory_sizes sizes = {.struct_size = sizeof(sizes)};
    OK(vkf_program_memory(program, &sizes));
    REQUIRE(sizes.scratch > 0 && sizes.inputs >= sizeof(m->x));
    host_buffer scratch = host_make_buffer(h, sizes.scratch, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT);
    vkf_buffer_range range = {.struct_size = sizeof(range), .buffer = scratch.buffer, .bytes = sizes.scratch - 1};
    FAILS(vkf_program_allocate(program, &range), "scratch needs");
    range.bytes = sizes.scratch;
    OK(vkf_program_allocate(program, &range));

    bound a, b;
    bind(h, m, 7, 0, &a);
    bind(h, m, 33, 1, &b);
    VkCommandBuffer commands = host_begin(h);
    OK(vkf_program_record(program, commands, &a.recording));
    OK(vkf_program_record(program, commands, &b.recording));
    host_finish(h, commands);
    REQUIRE(right(m, a.y.mapped, 7));
    REQUIRE(right(m, b.y.mapped, 33));

    float whole[33 * kWidth];
    memcpy(whole, b.y.mapped, sizeof(whole));
    memset(b.y.mapped, 0, sizeof(whole));
    double flops = 0, bytes = 0;
    OK(vkf_program_cost(program, 1, &b.size, &flops, &bytes));
    REQUIRE(flops > 0 && bytes > 0);
    OK(vkf_program_begin(program, &b.recording));
    vkf_segment segment = {.struct_size = sizeof(segment)};
    int frames = 0;
    double flops_of_segments = 0;
    while (!segment.last) {
        commands = host_begin(h);
        OK(vkf_program_record_segment(program, commands, (flops + bytes) / 4, 1, &segment));
        host_finish(h, commands);
        flops_of_segments += segment.flops;
        ++frames;
    }
    REQUIRE(frames >= 3 && segment.done == 1.0);
    REQUIRE(fabs(flops_of_segments - flops) <= 1e-6 * flops);
    REQUIRE(memcmp(whole, b.y.mapped, sizeof(whole)) == 0);
    commands = host_begin(h);
    FAILS(vkf_program_record_segment(program, commands, 1e9, 1, &segment), "begin() must come first");
    host_finish(h, commands);

    float y[7 * kWidth];
    OK(vkf_program_set(program, "tokens", 7));
    OK(vkf_program_upload(program, "x", m->x, 7 * kWidth));
    OK(vkf_program_run(program));
    OK(vkf_program_download(program, "y", y, 7 * kWidth, NULL));
    REQUIRE(right(m, y, 7) && h->locks > 0);

    vkf_device_destroy(device);  // the program goes on
    commands = host_begin(h);
    memset(b.y.mapped, 0, sizeof(whole));
    OK(vkf_program_record(program, commands, &b.recording));
    host_finish(h, commands);
    REQUIRE(memcmp(whole, b.y.mapped, sizeof(whole)) == 0);
    vkf_program_destroy(program);
    REQUIRE(h->pieces == 0 && h->locked == 0);
    unbind(h, &a);
    unbind(h, &b);
    host_destroy_buffer(h, &scratch);
}

/// The layer token by token, keys and values kept by the device between recordings.
static void caches(host* h, const model* m) {
    vkf_device* device = borrow(h);
    vkf_weights* weights = load(device, m);
    vkf_graph* g = NULL;
    vkf_dim start;
    vkf_value x, y;
    vkf_kv_cache cache = {.struct_size = sizeof(cache)};
    OK(vkf_graph_create(&g));
    OK(vkf_graph_symbol(g, "start", kMax - 1, &start));
    const vkf_dim shape[] = {vkf_size(1), vkf_size(1), vkf_size(kWidth)};
    OK(vkf_graph_input(g, "x", VKF_F32, 3, shape, &x));
    FAILS(vkf_graph_kv_cache(g, "cache", 1, kMax, 1, kHead, start, 99, &cache), "weight type");
    OK(vkf_graph_kv_cache(g, "cache", 1, kMax, 1, kHead, start, VKF_WEIGHT_F32, &cache));
    const vkf_grouped_query_attention_options options = {
        .struct_size = sizeof(options), .name = "attn", .heads = kHeads, .kv_heads = 1, .cache = &cache};
    vkf_attention attention = {.struct_size = sizeof(attention)};
    OK(vkf_grouped_query_attention(x, &options, &attention));
    OK(vkf_add(x, attention.y, &y));
    OK(vkf_graph_output("y", y));
    vkf_state* state = NULL;
    OK(vkf_state_create(device, 1, (const vkf_graph* const[]){g}, &state));
    vkf_program* program = NULL;
    const vkf_compile_options compile_options = {.struct_size = sizeof(compile_options), .state = state};
    OK(vkf_compile(device, g, weights, &compile_options, &program));
    OK(vkf_program_allocate(program, NULL));

    float result[6 * kWidth];
    bound b;
    bind(h, m, 0, 0, &b);
    b.size.name = "start";
    for (int t = 0; t < 6; ++t) {
        b.size.value = t;
        memcpy(b.x.mapped, m->x + t * kWidth, kWidth * sizeof(float));
        VkCommandBuffer commands = host_begin(h);
        OK(vkf_program_record(program, commands, &b.recording));
        host_finish(h, commands);
        memcpy(result + t * kWidth, b.y.mapped, kWidth * sizeof(float));
    }
    REQUIRE(right(m, result, 6));
    unbind(h, &b);
    vkf_program_destroy(program);
    vkf_state_destroy(state);
    vkf_weights_destroy(weights);
    vkf_graph_destroy(g);
    vkf_device_destroy(device);
}

/// Uploads weights by the host's command buffers, with no queue of ours.
static void uploads(host* h, const model* m) {
    vkf_borrowed_device lent = host_handles(h);
    lent.host_submits = true;
    lent.keep_uploads = true;
    lent.queue = NULL;
    vkf_device* device = NULL;
    OK(vkf_device_borrow(&lent, NULL, &device));
    const int locks = h->locks;
    vkf_program* program = compile(device, m, NULL);
    OK(vkf_program_allocate(program, NULL));
    bound b;
    bind(h, m, 9, 0, &b);
    VkCommandBuffer commands = host_begin(h);
    vkf_capabilities capabilities = {.struct_size = sizeof(capabilities)};
    OK(vkf_device_capabilities(device, &capabilities));
    uint64_t waiting = 0;
    OK(vkf_device_pending_uploads(device, &waiting));
    // else the host writes where weights lie
    REQUIRE((waiting == 0) == capabilities.unified_memory);
    if (waiting > 0) {
        FAILS(vkf_program_record(program, commands, &b.recording), "record_upload");
    }
    host_buffer memory = host_make_buffer(h, 256, VK_BUFFER_USAGE_TRANSFER_SRC_BIT);
    const vkf_staging_range staging = {
        .struct_size = sizeof(staging), .buffer = memory.buffer, .bytes = 256, .mapped = memory.mapped};
    FAILS(vkf_device_record_upload(device, commands, NULL), "is null");
    uint64_t recorded = 0;
    int parts = 0;
    for (; waiting > 0; ++parts) {
        OK(vkf_device_record_upload(device, commands, &staging));
        if (parts == 0) {  // as if the command buffer had been dropped
            OK(vkf_device_uploads_dropped(device));
            OK(vkf_device_recorded_uploads(device, &recorded));
            REQUIRE(recorded > 0);
            OK(vkf_device_uploads_finished(device, recorded));  // of what was dropped: says nothing
            OK(vkf_device_record_upload(device, commands, &staging));
        }
        host_finish(h, commands);
        OK(vkf_device_recorded_uploads(device, &recorded));
        REQUIRE(recorded > 0);
        OK(vkf_device_uploads_finished(device, recorded));
        commands = host_begin(h);
        OK(vkf_device_pending_uploads(device, &waiting));
    }
    REQUIRE(capabilities.unified_memory ? parts == 0 : parts > 1);
    OK(vkf_program_record(program, commands, &b.recording));
    host_finish(h, commands);
    REQUIRE(right(m, b.y.mapped, 9));
    REQUIRE(h->locks == locks);
    FAILS(vkf_program_run(program), "host submits");
    vkf_program_destroy(program);
    vkf_device_destroy(device);
    unbind(h, &b);
    host_destroy_buffer(h, &memory);
}

/// A tensor goes into an image and comes out of it.
static void images(host* h) {
    enum { kImageWidth = 5, kImageHeight = 3, kBytes = kImageWidth * kImageHeight * 4 };
    vkf_device* device = borrow(h);
    vkf_graph *to, *from;
    vkf_value x, texels, doubled;
    const vkf_dim shape[] = {vkf_size(kImageHeight), vkf_size(kImageWidth), vkf_size(1)};
    OK(vkf_graph_create(&to));
    OK(vkf_graph_input(to, "x", VKF_F32, 3, shape, &x));
    OK(vkf_image_output("picture", x, VKF_FORMAT_R32F));
    OK(vkf_graph_create(&from));
    OK(vkf_image_input(from, "picture", shape[0], shape[1], 1, VKF_IMAGE_SAMPLED, VKF_FORMAT_ANY, &texels));
    OK(vkf_scale(texels, 2.0f, &doubled));
    OK(vkf_graph_output("y", doubled));
    vkf_program *write, *read;
    OK(vkf_compile(device, to, NULL, NULL, &write));
    OK(vkf_compile(device, from, NULL, NULL, &read));
    OK(vkf_program_allocate(write, NULL));
    OK(vkf_program_allocate(read, NULL));

    host_buffer in = host_make_buffer(h, kBytes, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT);
    host_buffer out = host_make_buffer(h, kBytes, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT);
    numbers(in.mapped, kImageWidth * kImageHeight, 6);
    host_image picture = host_make_image(h, kImageWidth, kImageHeight);
    vkf_image_view view = {.struct_size = sizeof(view),
                           .name = "picture",
                           .view = picture.view,
                           .width = kImageWidth,
                           .height = kImageHeight};
    vkf_buffer_range range = {.struct_size = sizeof(range), .name = "x", .buffer = in.buffer, .bytes = kBytes};
    const vkf_recording recording = {
        .struct_size = sizeof(recording), .buffer_count = 1, .image_count = 1, .buffers = &range, .images = &view};
    VkCommandBuffer commands = host_begin(h);
    host_prepare_image(&picture, commands);
    view.height = kImageHeight - 1;
    FAILS(vkf_program_record(write, commands, &recording), "texels");
    view.height = kImageHeight;
    OK(vkf_program_record(write, commands, &recording));
    const VkMemoryBarrier written = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                     .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
                                     .dstAccessMask = VK_ACCESS_SHADER_READ_BIT};
    vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1,
                         &written, 0, NULL, 0, NULL);
    range.name = "y";
    range.buffer = out.buffer;
    OK(vkf_program_record(read, commands, &recording));
    host_finish(h, commands);
    for (int i = 0; i < kImageWidth * kImageHeight; ++i) {
        REQUIRE(((float*)out.mapped)[i] == 2.0f * ((float*)in.mapped)[i]);
    }
    vkf_program_destroy(write);
    vkf_program_destroy(read);
    vkf_graph_destroy(to);
    vkf_graph_destroy(from);
    vkf_device_destroy(device);
    host_destroy_image(h, &picture);
    host_destroy_buffer(h, &in);
    host_destroy_buffer(h, &out);
}

/// Takes memory of the host as the output's buffer, where the device can.
static void shares(host* h, const model* m) {
    vkf_device* device = borrow(h);
    vkf_capabilities capabilities = {.struct_size = sizeof(capabilities)};
    OK(vkf_device_capabilities(device, &capabilities));
    REQUIRE(capabilities.name[0] != 0 && capabilities.storage_alignment > 0);
    vkf_shared_buffer* shared = NULL;
    if (!capabilities.external_memory_host) {
        FAILS(vkf_shared_buffer_import_host(device, h, 4096, &shared), "VK_EXT_external_memory_host");
        REQUIRE(shared == NULL);
    } else {
        uint64_t alignment = 0;
        OK(vkf_shared_host_alignment(device, &alignment));
        const uint64_t bytes = (sizeof(m->x) + alignment - 1) / alignment * alignment;
        char* allocation = malloc(bytes + alignment);
        REQUIRE(allocation != NULL);
        float* memory = (float*)(allocation + (alignment - (uintptr_t)allocation % alignment) % alignment);
        memset(memory, 0, bytes);
        FAILS(vkf_shared_buffer_import_host(device, memory, bytes - 1, &shared), "multiple");
        OK(vkf_shared_buffer_import_host(device, memory, bytes, &shared));
        vkf_program* program = compile(device, m, NULL);
        OK(vkf_program_allocate(program, NULL));
        bound b;
        bind(h, m, kMax, 0, &b);
        uint64_t shared_bytes = 0;
        b.ranges[1].buffer_bytes = 0;
        OK(vkf_shared_buffer_get(shared, &b.ranges[1].buffer, &shared_bytes));
        REQUIRE(shared_bytes == bytes);
        VkCommandBuffer commands = host_begin(h);
        OK(vkf_program_record(program, commands, &b.recording));
        host_finish(h, commands);
        REQUIRE(right(m, memory, kMax));
        vkf_program_destroy(program);
        vkf_shared_buffer_destroy(shared);
        unbind(h, &b);
        free(allocation);
    }
    if (capabilities.external_memory_fd) {
        vkf_shared_buffer* again = NULL;
        int descriptor = -1;
        OK(vkf_shared_buffer_create(device, 4096, &shared));
        OK(vkf_shared_buffer_export_fd(shared, &descriptor));
        REQUIRE(descriptor >= 0);
        OK(vkf_shared_buffer_import_fd(device, descriptor, 4096, &again));  // which takes it over
        vkf_shared_buffer_destroy(again);
        vkf_shared_buffer_destroy(shared);
    }
    vkf_device_destroy(device);
}

/// Everything that a C program gives wrongly comes back with a text, and nothing else happens.
static void refuses(host* h, const model* m) {
    FAILS(vkf_graph_create(NULL), "vkf_graph_create: the output is null");
    FAILS(vkf_device_create(NULL, NULL), "the output is null");
    vkf_graph* g = describe();
    vkf_value x = {g, 0}, y = {g, 1u << 30}, z = {g, 0};
    FAILS(vkf_add(x, vkf_no_value(), &z), "vkf_add: b is null");
    REQUIRE(z.graph == g && z.id == 0); /* an output is only written when all went well */
    FAILS(vkf_add(x, x, NULL), "vkf_add: the output is null");
    FAILS(vkf_add(x, y, &z), "tensor 1073741824 of a graph that has");
    FAILS(vkf_activate(x, 99, &z), "activation 99 is unknown");
    FAILS(vkf_graph_input(g, NULL, VKF_F32, 0, NULL, &z), "name is null");
    FAILS(vkf_graph_input(g, "n", VKF_F32, 1, NULL, &z), "shape is null");
    FAILS(vkf_graph_input(g, "n", 77, 0, NULL, &z), "dtype 77");
    const vkf_dim foreign = {0, 1, 12};
    FAILS(vkf_graph_input(g, "n", VKF_F32, 1, &foreign, &z), "symbol 12 is not of this graph");
    FAILS(vkf_reshape(x, 9, &foreign, &z), "rank 9");
    FAILS(vkf_transpose(x, 0, 7, &z), "transpose");
    FAILS(vkf_graph_pop_scope(g), "no scope is open");
    FAILS(vkf_graph_output("y", x), "already has an output");
    vkf_graph* other = describe();
    const vkf_value stranger = {other, 0};
    FAILS(vkf_add(x, stranger, &z), "graph");
    vkf_graph_destroy(other);
    vkf_softmax_options softmax = {0};
    FAILS(vkf_softmax(x, &softmax, &z), "options: struct_size is not set");
    softmax.struct_size = 0x7fffffff;
    FAILS(vkf_softmax(x, &softmax, &z), "struct_size is not the size of a struct");
    softmax.struct_size = sizeof(softmax) + 1;
    FAILS(vkf_softmax(x, &softmax, &z), "options: struct_size is not the size of a struct");
    const vkf_mask unset = {0};
    softmax.struct_size = sizeof(softmax);
    softmax.mask = &unset;
    FAILS(vkf_softmax(x, &softmax, &z), "mask: struct_size is not set");
    /* an output may be an input */
    vkf_graph* in_place = NULL;
    OK(vkf_graph_create(&in_place));
    const vkf_dim row[] = {vkf_size(1), vkf_size(2), vkf_size(1), vkf_size(4)};
    vkf_value parts[2];
    OK(vkf_graph_input(in_place, "k", VKF_F32, 4, row, &parts[0]));
    parts[1] = parts[0];
    vkf_kv_cache cache = {.struct_size = sizeof(cache)};
    OK(vkf_graph_kv_cache(in_place, "cache", 1, 2, 1, 4, vkf_size(0), VKF_WEIGHT_F32, &cache));
    vkf_cached_kv all = {.struct_size = sizeof(all)};
    OK(vkf_append(&cache, parts[0], parts[0], &all));
    REQUIRE(all.key.graph == in_place);
    vkf_paged_kv_cache pages = {.struct_size = sizeof(pages), .key = cache.key, .value = cache.value};
    const vkf_dim pages_of_one[] = {vkf_size(1), vkf_size(1)};
    OK(vkf_graph_input(in_place, "table", VKF_I32, 2, pages_of_one, &pages.table));
    OK(vkf_graph_input(in_place, "lengths", VKF_I32, 1, pages_of_one, &pages.lengths));
    OK(vkf_append_pages(&pages, parts[0], parts[0], &pages));
    REQUIRE(pages.key.id != cache.key.id && pages.table.graph == in_place);
    OK(vkf_concat(2, parts, 1, &parts[0]));
    REQUIRE(parts[0].id != parts[1].id);
    /* what only a newer caller knows of an output is 0 */
    struct {
        vkf_kv_cache known;
        uint64_t unknown;
    } wider;
    memset(&wider, 0xaa, sizeof(wider));
    wider.known.struct_size = sizeof(wider);
    OK(vkf_graph_kv_cache(in_place, "more", 1, 2, 1, 4, vkf_size(0), VKF_WEIGHT_F32, &wider.known));
    REQUIRE(wider.unknown == 0);
    vkf_graph_destroy(in_place);
    struct {
        vkf_softmax_options known;
        uint64_t unknown;
    } newer = {{.struct_size = sizeof(newer)}, 0};
    OK(vkf_softmax(x, &newer.known, &z));
    newer.unknown = 1;
    FAILS(vkf_softmax(x, &newer.known, &z), "options: asks for what is newer than this library");
    vkf_attention result = {0};
    FAILS(vkf_scaled_dot_product_attention(x, x, x, NULL, &result), "of the output, struct_size is not set");
    result.struct_size = sizeof(result);
    FAILS(vkf_scaled_dot_product_attention(x, x, x, NULL, &result), "ranks (all must be 4)");

    char text[256];
    size_t needed = 0;
    OK(vkf_value_text(x, text, sizeof(text), &needed));
    REQUIRE(needed == strlen(text) && strcmp(text, "x (1, tokens, 8) F32") == 0);
    OK(vkf_value_text(x, text, 6, &needed));
    REQUIRE(strcmp(text, "x (1,") == 0 && needed == 20);
    OK(vkf_value_text(x, NULL, 0, &needed));
    FAILS(vkf_value_text(x, NULL, 1, NULL), "text is null");
    vkf_dim shape[VKF_MAX_RANK];
    uint32_t rank = 0;
    OK(vkf_value_shape(x, shape, &rank));
    REQUIRE(rank == 3 && shape[0].constant == 1 && shape[1].coefficient == 1 && shape[2].constant == kWidth);

    vkf_device* device = borrow(h);
    vkf_program* program = NULL;
    FAILS(vkf_compile(NULL, g, NULL, NULL, &program), "device is null");
    FAILS(vkf_compile(device, g, NULL, NULL, &program), "attn.");
    REQUIRE(program == NULL);
    vkf_weights* weights = NULL;
    FAILS(vkf_weights_load_file(device, "/nowhere/at all.safetensors", NULL, &weights), "/nowhere/at all.safetensors");
    const int64_t four = 4;
    const vkf_tensor tensor = {.name = "w", .data = m->q, .bytes = 12, .shape = &four, .rank = 1};
    FAILS(vkf_weights_load(device, 1, &tensor, NULL, &weights), "w");
    const vkf_load_options load_options = {.struct_size = sizeof(load_options), .matrices = 17};
    FAILS(vkf_weights_load(device, 0, NULL, &load_options, &weights), "weight type");
    REQUIRE(weights == NULL);
    const vkf_borrowed_device nothing = {.struct_size = sizeof(nothing)};
    vkf_device* none = device;
    FAILS(vkf_device_borrow(&nothing, NULL, &none), "instance");
    REQUIRE(none == NULL);
    const vkf_borrowed_device lent = host_handles(h);
    const vkf_device_options selects = {.struct_size = sizeof(selects), .select = "0"};
    FAILS(vkf_device_borrow(&lent, &selects, &none), "DeviceOptions::select is for Device::create() alone");

    const vkf_compile_options options = {.struct_size = sizeof(options), .name = "layer", .checked = true};
    program = compile(device, m, &options);
    bound b;
    bind(h, m, 5, 0, &b);
    VkCommandBuffer commands = host_begin(h);
    FAILS(vkf_program_record(program, commands, &b.recording), "allocate() must come before");
    OK(vkf_program_allocate(program, NULL));
    FAILS(vkf_program_record(NULL, commands, &b.recording), "program is null");
    FAILS(vkf_program_record(program, NULL, &b.recording), "commands is null");
    FAILS(vkf_program_record(program, commands, NULL), "recording is null");
    b.recording.slot = 3;
    FAILS(vkf_program_record(program, commands, &b.recording), "slot 3");
    b.recording.slot = 0;
    b.recording.buffer_count = 1;
    FAILS(vkf_program_record(program, commands, &b.recording), "y is not bound");
    b.recording.buffers = NULL;
    FAILS(vkf_program_record(program, commands, &b.recording), "layer: buffers is null");
    b.recording.buffers = b.ranges;
    b.recording.buffer_count = 2;
    b.size.name = "tonkens";
    FAILS(vkf_program_record(program, commands, &b.recording), "tonkens");
    b.size.name = "tokens";
    b.size.value = kMax + 1;
    FAILS(vkf_program_record(program, commands, &b.recording), "tokens = 41");
    b.size.value = 5;
    b.recording.size_count = VKF_MORE_THAN_NEEDED + 2;
    FAILS(vkf_program_record(program, commands, &b.recording), "layer: sizes has 34 elements; recording has room for");
    b.recording.size_count = 1;
    b.ranges[0].name = NULL;
    FAILS(vkf_program_record(program, commands, &b.recording), "layer: ");
    b.ranges[0].name = "x";
    const vkf_buffer_range more[] = {b.ranges[0], b.ranges[1], {.struct_size = sizeof(vkf_buffer_range), .name = "z"}};
    b.recording.buffers = more;
    b.recording.buffer_count = 3;
    FAILS(vkf_program_record(program, commands, &b.recording), "z");
    b.recording.buffers = b.ranges;
    b.recording.buffer_count = 2;
    b.ranges[0].bytes = 8;
    FAILS(vkf_program_record(program, commands, &b.recording), "x needs");
    b.ranges[0].bytes = sizeof(m->x);
    b.ranges[0].buffer_bytes = sizeof(m->x) - 4;
    FAILS(vkf_program_record(program, commands, &b.recording), "of a buffer of");
    b.ranges[0].buffer_bytes = sizeof(m->x);
    b.ranges[0].buffer_usage = VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT;
    FAILS(vkf_program_record(program, commands, &b.recording), "STORAGE_BUFFER");
    b.ranges[0].buffer_usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT;
    b.ranges[0].struct_size = 0;
    FAILS(vkf_program_record(program, commands, &b.recording), "layer: buffers[0]: struct_size is not set");
    b.ranges[0].struct_size = sizeof(b.ranges[0]);
    b.ranges[1].struct_size = 0;
    FAILS(vkf_program_record(program, commands, &b.recording), "layer: buffers[1]: struct_size is not set");
    b.ranges[1].struct_size = sizeof(b.ranges[1]);
    vkf_image_view images[2] = {{.struct_size = sizeof(images[0])}, {.struct_size = 3}};
    b.recording.images = images;
    b.recording.image_count = 2;
    FAILS(vkf_program_record(program, commands, &b.recording), "layer: images[1]: struct_size is not set");
    b.recording.image_count = 0;
    OK(vkf_program_record(program, commands, &b.recording));
    FAILS(vkf_program_record(program, commands, &b.recording), "finished(0) has not come");
    host_finish(h, commands);
    OK(vkf_program_finished(program, 0));
    FAILS(vkf_program_finished(program, 99), "slot 99 of");
    vkf_segment segment = {.struct_size = sizeof(segment)};
    FAILS(vkf_program_record_segment(program, commands, 1e9, 77, &segment), "layer: slot 77 of 1");
    const vkf_size_setting nope = {"nope", 1};
    double cost = 0;
    REQUIRE(vkf_program_cost(program, 1, &nope, &cost, &cost) == VKF_ERROR); /* wrong use, and not Vulkan's -1 */
    REQUIRE(strstr(vkf_last_error(), "VkResult") == NULL);
    REQUIRE(right(m, b.y.mapped, 5));

    // after its end
    vkf_program_destroy(program);
    commands = host_begin(h);
    FAILS(vkf_program_record(program, commands, &b.recording), "layer: the program was destroyed before");
    FAILS(vkf_program_run(program), "layer: the program was destroyed before");
    FAILS(vkf_program_explain(program, NULL, 0, &needed), "destroyed before");
    FAILS(vkf_program_finished(program, 0), "destroyed before");
    vkf_program_destroy(program);
    REQUIRE(strstr(vkf_last_error(), "vkf_program_destroy: layer: the program was destroyed before"));
    host_finish(h, commands);
    vkf_device_destroy(device);
    unbind(h, &b);
    vkf_graph_destroy(g);

    vkf_graph_destroy(NULL);
    vkf_weights_destroy(NULL);
    vkf_state_destroy(NULL);
    vkf_program_destroy(NULL);
    vkf_shared_buffer_destroy(NULL);
    vkf_requirements_destroy(NULL);
    vkf_device_destroy(NULL);
}

static vkf_weight_type choose_f16(void* user, const vkf_tensor* matrix) {
    ++*(int*)user;
    REQUIRE(matrix->rank == 2 && matrix->dtype == VKF_F32 && matrix->bytes == 64);
    return VKF_WEIGHT_F16;
}

static void count_progress(void* user, uint64_t done, uint64_t all) {
    REQUIRE(done <= all);
    *(int*)user += done == all ? 100 : 0;
}

/// Runs on a device of its own: state over runs, weights in another type, texts.
static void runs(const model* m) {
    uint32_t count = 0;
    OK(vkf_device_list(NULL, NULL, &count));
    REQUIRE(count > 0);
    vkf_capabilities first = {.struct_size = sizeof(first)};
    count = 1;
    OK(vkf_device_list(NULL, &first, &count));
    vkf_device* device = NULL;
    vkf_device_options device_options = {.struct_size = sizeof(device_options), .select = first.name, .tuning = "1"};
    if (!getenv("VKFORMER_TUNING")) {  // which is stronger
        FAILS(vkf_device_create(&device_options, &device), "is not name=number");
    }
    device_options.tuning = "0";
    OK(vkf_device_create(&device_options, &device));
    printf("%s, %s\n", first.name, first.driver);

    // tokens are appended to what the state holds; the output is the projected mean of all of them
    vkf_graph* g = NULL;
    vkf_dim start, all;
    vkf_value token, memory, window, cached, shares_of_all, mean, weight, y, index;
    const vkf_dim row[] = {vkf_size(1), vkf_size(4)}, table[] = {vkf_size(6), vkf_size(4)},
                  square[] = {vkf_size(4), vkf_size(4)};
    OK(vkf_graph_create(&g));
    OK(vkf_graph_symbol(g, "start", 5, &start));
    OK(vkf_graph_symbol(g, "start", 5, &all));
    REQUIRE(all.symbol == start.symbol);
    all.constant = 1;
    OK(vkf_graph_input(g, "token", VKF_F32, 2, row, &token));
    OK(vkf_graph_state(g, "memory", VKF_F32, 2, table, &memory));
    OK(vkf_slice(memory, 0, start, vkf_size(1), &window));
    OK(vkf_copy_into(window, token, &window));
    OK(vkf_slice(memory, 0, vkf_size(0), all, &cached));
    const vkf_dim scores[] = {vkf_size(1), all};
    const float zero = 0;
    const int64_t one[] = {1, 1};
    OK(vkf_graph_constant(g, "zero", VKF_F32, 2, one, &zero, &shares_of_all));
    OK(vkf_broadcast_to(shares_of_all, 2, scores, &shares_of_all));
    OK(vkf_softmax(shares_of_all, NULL, &shares_of_all));
    OK(vkf_matmul(shares_of_all, cached, NULL, &mean));
    OK(vkf_graph_push_scope(g, "out"));
    OK(vkf_graph_weight(g, "weight", VKF_F32, 2, square, &weight));
    OK(vkf_graph_pop_scope(g));
    OK(vkf_linear(mean, weight, vkf_no_value(), VKF_ACTIVATION_NONE, &y));
    OK(vkf_argmax(y, &index));
    OK(vkf_graph_output("y", y));
    OK(vkf_graph_output("index", index));

    // exact in f16
    static const float twice[16] = {2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2};
    static const int64_t shape4[] = {4, 4};
    const vkf_tensor tensor = {.name = "out.weight", .data = twice, .bytes = sizeof(twice), .shape = shape4, .rank = 2};
    int chosen = 0;
    const vkf_load_options load_options = {
        .struct_size = sizeof(load_options), .choose = choose_f16, .progress = count_progress, .user = &chosen};
    vkf_weights* weights = NULL;
    OK(vkf_weights_load(device, 1, &tensor, &load_options, &weights));
    REQUIRE(chosen % 100 == 1 && chosen > 100);
    vkf_state* state = NULL;
    const vkf_graph* graphs[] = {g};
    OK(vkf_state_create(device, 1, graphs, &state));
    vkf_program* program = NULL;
    const vkf_compile_options options = {
        .struct_size = sizeof(options), .name = "mean", .state = state, .profile = true};
    OK(vkf_compile(device, g, weights, &options, &program));

    double sum[4] = {0};
    for (int t = 0; t < 6; ++t) {
        const float* x = m->x + 4 * t;
        float result[4];
        int32_t largest = -1;
        uint64_t numbers_given = 0;
        OK(vkf_program_set(program, "start", t));
        OK(vkf_program_upload(program, "token", x, 4));
        OK(vkf_program_run(program));
        FAILS(vkf_program_download(program, "y", result, 3, &numbers_given), "there is room for 3");
        REQUIRE(numbers_given == 4);
        OK(vkf_program_download(program, "y", result, 4, NULL));
        OK(vkf_program_download_i32(program, "index", &largest, 1, &numbers_given));
        REQUIRE(numbers_given == 1);
        int want_largest = 0;
        for (int i = 0; i < 4; ++i) {
            sum[i] += x[i];
            REQUIRE(fabs(result[i] - 2 * sum[i] / (t + 1)) <= 1e-5);
            want_largest = result[i] > result[want_largest] ? i : want_largest;
        }
        REQUIRE(largest == want_largest);
    }
    FAILS(vkf_program_upload(program, "token", m->x, 5), "token");
    FAILS(vkf_program_upload(program, "tokn", m->x, 4), "tokn");
    FAILS(vkf_program_upload(program, "token", NULL, 4), "data is null");
    FAILS(vkf_program_set(program, "start", 6), "start");
    float result[4];
    FAILS(vkf_program_download(program, "z", result, 4, NULL), "z");
    int64_t sizes[VKF_MAX_RANK];
    uint32_t rank = 0;
    OK(vkf_program_shape(program, "y", sizes, &rank));
    REQUIRE(rank == 2 && sizes[0] == 1 && sizes[1] == 4);
    OK(vkf_state_clear(state));

    size_t needed = 0;
    OK(vkf_program_explain(program, NULL, 0, &needed));
    char* text = malloc(needed + 1);
    REQUIRE(text != NULL);
    OK(vkf_program_explain(program, text, needed + 1, NULL));
    REQUIRE(strlen(text) == needed && strstr(text, "softmax"));
    OK(vkf_program_time_table(program, text, needed + 1, NULL));
    REQUIRE(strstr(text, "softmax"));
    free(text);
    char messages[4096];
    OK(vkf_device_take_messages(device, messages, sizeof(messages), &needed));
    if (needed != 0) {
        printf("validation: %s\n", messages);
    }
    REQUIRE(needed == 0);
    vkf_state_destroy(state);  // the program keeps them
    vkf_weights_destroy(weights);
    vkf_graph_destroy(g);
    vkf_program_destroy(program);
    vkf_device_destroy(device);
}

/// Texts are cut between characters, here of three bytes each, and errors in their middle.
static void cuts(void) {
    enum { kBytes = 3, kCharacters = 400 };
    char name[kBytes * kCharacters + 1];
    for (int i = 0; i < kCharacters; ++i) {
        memcpy(name + (ptrdiff_t)kBytes * i, "\xe2\x82\xac", kBytes);
    }
    name[sizeof(name) - 1] = 0;
    const vkf_dim shape = vkf_size(2);
    vkf_graph* graph = NULL;
    vkf_value x;
    OK(vkf_graph_create(&graph));
    OK(vkf_graph_input(graph, name, VKF_F32, 1, &shape, &x));
    char text[16];
    size_t needed = 0;
    for (size_t capacity = 1; capacity <= sizeof(text); ++capacity) {
        OK(vkf_value_text(x, text, capacity, &needed));
        REQUIRE(needed > sizeof(name) - 1 && strlen(text) == (capacity - 1) / kBytes * kBytes);
        REQUIRE(strncmp(text, name, strlen(text)) == 0);
    }
    FAILS(vkf_graph_input(graph, name, VKF_F32, 1, &shape, &x), "\xe2\x82\xac");
    const char* error = vkf_last_error();
    const size_t length = strlen(error);
    REQUIRE(length > 1023 - 2 * kBytes && length <= 1023 && strstr(error, "\xe2\x82\xac...\xe2\x82\xac"));
    REQUIRE(strstr(error, "the graph already has an input of that name"));
    vkf_graph_destroy(graph);
}

int main(void) {
    REQUIRE(vkf_c_api_version() == VKF_C_API_VERSION);
    REQUIRE(strcmp(vkf_version(), VKFORMER_VERSION) == 0);
    cuts();
    const model m = make_model();
    host h;
    host_create(&h);
    uint32_t count = 0;
    OK(vkf_requirements_count(h.requirements, &count));
    for (uint32_t i = 0; i < count; ++i) {
        vkf_requirement r = {.struct_size = sizeof(r)};
        OK(vkf_requirements_get(h.requirements, i, &r));
        REQUIRE(r.name[0] != 0 && r.buys[0] != 0 && r.extension == (strncmp(r.name, "VK_", 3) == 0));
    }
    vkf_requirement r = {.struct_size = sizeof(r)};
    FAILS(vkf_requirements_get(h.requirements, count, &r), "requirement");
    records(&h, &m);
    caches(&h, &m);
    uploads(&h, &m);
    images(&h);
    shares(&h, &m);
    refuses(&h, &m);
    runs(&m);
    REQUIRE(h.pieces == 0 && h.locked == 0);
    host_destroy(&h);
    puts("embedding from C: all as it must be");
    return 0;
}
