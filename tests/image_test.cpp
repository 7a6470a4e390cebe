// SPDX-License-Identifier: Apache-2.0
// A host's images as inputs and outputs.
#include <doctest/doctest.h>

#include <cstring>

#include "ops/ops.h"
#include "runtime/compile/plan.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "tests/fixtures.h"
#include "tests/host.h"
#include "tests/op_check.h"

namespace vkf::test {

namespace {

constexpr std::uint32_t kGeneral = VK_IMAGE_LAYOUT_GENERAL;
constexpr std::uint32_t kImageWidth = 9, kImageHeight = 5;

struct PixelFormat {
    VkFormat vulkan;
    ImageFormat format;
    std::size_t channels, bytes;
};

constexpr PixelFormat kFormats[] = {{VK_FORMAT_R8G8B8A8_UNORM, ImageFormat::rgba8, 4, 4},
                                    {VK_FORMAT_R16G16B16A16_SFLOAT, ImageFormat::rgba16f, 4, 8},
                                    {VK_FORMAT_R32_SFLOAT, ImageFormat::r32f, 1, 4},
                                    {VK_FORMAT_R32G32B32A32_SFLOAT, ImageFormat::rgba32f, 4, 16}};

/// Numbers that each of the formats holds exactly: bytes of 0 or 255 as 0 and 1.
std::vector<std::byte> texels(const PixelFormat& f, std::size_t seed) {
    std::vector<std::byte> out(kImageWidth * kImageHeight * f.bytes);
    for (std::size_t i = 0; i < kImageWidth * kImageHeight * f.channels; ++i) {
        const bool one = (i * 2654435761u + seed * 40503u) >> 7 & 1;
        if (f.bytes == 4 && f.channels == 4) {
            out[i] = one ? std::byte{255} : std::byte{0};
        } else if (f.bytes == 8) {
            const std::uint16_t half = one ? 0x3c00 : 0;
            std::memcpy(&out[2 * i], &half, 2);
        } else {
            const float v = one ? 1.0f : 0.0f;
            std::memcpy(&out[4 * i], &v, 4);
        }
    }
    return out;
}

}  // namespace

TEST_SUITE("image") {
    TEST_CASE("image: in as it was, out as it went in, in every format, sampled and as storage") {
        Host host(true);
        {
            const Device device = Device::borrow(host.handles());
            for (const PixelFormat& f : kFormats) {
                for (const ImageAccess access : {ImageAccess::sampled, ImageAccess::storage}) {
                    for (const bool any : {false, true}) {
                        if (any && !device.capabilities().storage_image_any_format) {
                            continue;
                        }
                        CAPTURE(int(f.vulkan));
                        CAPTURE(int(access));
                        CAPTURE(any);
                        Graph g;
                        const auto channels = static_cast<std::int64_t>(f.channels);
                        const Value x = image_input(g, "in", kImageHeight, kImageWidth, channels,
                                                    {.access = access, .format = f.format});
                        const Value one = g.constant("one", {1}, std::vector<float>{1.0f});
                        const Value minus_one = g.constant("minus one", {1}, std::vector<float>{-1.0f});
                        image_output("out", one + x * minus_one, {.format = any ? ImageFormat::any : f.format});
                        Program program = device.compile(g);
                        program.allocate();
                        CHECK(contains(error_of([&] { program.run(); }), "only a host has"));
                        const Host::Image in = host.make_image(f.vulkan, kImageWidth, kImageHeight);
                        const Host::Image out = host.make_image(f.vulkan, kImageWidth, kImageHeight);
                        const std::vector<std::byte> data = texels(f, f.bytes);
                        host.write_image(in, data);
                        const ImageView images[] = {{"in", in.view, kGeneral, kImageWidth, kImageHeight},
                                                    {"out", out.view, kGeneral, kImageWidth, kImageHeight}};
                        VkCommandBuffer commands = host.begin();
                        CHECK(text_of(program.record(commands, {.images = images})) == "");
                        host.submit(commands);
                        host.wait_idle();
                        const std::vector<std::byte> got = host.read_image(out, data.size());
                        std::vector<std::byte> want = data;
                        for (std::size_t i = 0; i < kImageWidth * kImageHeight * f.channels; ++i) {
                            if (f.bytes == 4 && f.channels == 4) {
                                want[i] = data[i] ^ std::byte{255};
                            } else if (f.bytes == 8) {
                                const bool zero = data[2 * i + 1] == std::byte{0};
                                want[2 * i + 1] = zero ? std::byte{0x3c} : std::byte{0};
                            } else {
                                const bool zero = data[4 * i + 3] == std::byte{0};
                                const float v = zero ? 1.0f : 0.0f;
                                std::memcpy(&want[4 * i], &v, 4);
                            }
                        }
                        CHECK(got == want);
                    }
                }
            }
        }
        CHECK(host.messages().empty());
    }

    TEST_CASE(
        "image: channels a tensor lacks are 0 and alpha 1; texels beyond an image are 0; a view's strides are "
        "honoured") {
        Host host;
        {
            const Device device = Device::borrow(host.handles());
            Graph g;
            const Dim rows = g.symbol("rows", 8);
            const Value x = image_input(g, "in", rows, 12, 4);
            const Value red = slice(x, 2, 0, 1);
            g.output("tensor", contiguous(transpose(x, 0, 1)));
            image_output("red", red, {.format = ImageFormat::rgba32f});
            Program program = device.compile(g, Weights(), {.name = "layer"});
            program.allocate();
            const Host::Image in = host.make_image(VK_FORMAT_R32G32B32A32_SFLOAT, 12, 8);
            const Host::Image out = host.make_image(VK_FORMAT_R32G32B32A32_SFLOAT, 12, 8);
            std::vector<float> data(12 * 8 * 4);
            for (std::size_t i = 0; i < data.size(); ++i) {
                data[i] = static_cast<float>(i) * 0.25f - 7.0f;
            }
            host.write_image(in, std::as_bytes(std::span(data)));
            const Host::Buffer tensor = host.make_buffer(data.size() * sizeof(float));
            const BufferRange buffers[] = {{"tensor", tensor.buffer, 0, data.size() * sizeof(float)}};
            std::vector<ImageView> images = {{"in", in.view, kGeneral, 12, 8}, {"red", out.view, kGeneral, 12, 8}};
            const auto record = [&](std::int64_t rows_now) {
                const SizeSetting sizes[] = {{"rows", rows_now}};
                VkCommandBuffer commands = host.begin();
                const Status status = program.record(commands, {.buffers = buffers, .images = images, .sizes = sizes});
                if (status) {
                    host.submit(commands);
                    host.wait_idle();
                }
                return text_of(status);
            };
            CHECK(record(5) == "");
            std::vector<float> got(5 * 12 * 4);
            std::memcpy(got.data(), tensor.mapped, got.size() * sizeof(float));
            for (std::size_t row = 0; row < 5; ++row) {
                for (std::size_t column = 0; column < 12; ++column) {
                    for (std::size_t c = 0; c < 4; ++c) {
                        CHECK(got[(column * 5 + row) * 4 + c] == data[(row * 12 + column) * 4 + c]);
                    }
                }
            }
            std::vector<float> red_texels(data.size());
            const std::vector<std::byte> bytes = host.read_image(out, data.size() * sizeof(float));
            std::memcpy(red_texels.data(), bytes.data(), bytes.size());
            for (std::size_t texel = 0; texel < 5 * 12; ++texel) {
                CHECK(red_texels[4 * texel] == data[4 * texel]);
                CHECK(red_texels[4 * texel + 1] == 0.0f);
                CHECK(red_texels[4 * texel + 2] == 0.0f);
                CHECK(red_texels[4 * texel + 3] == 1.0f);
            }
            const Host::Image small = host.make_image(VK_FORMAT_R32G32B32A32_SFLOAT, 12, 2);
            host.write_image(small, std::as_bytes(std::span(data).first(12 * 2 * 4)));
            images[0] = {"in", small.view, kGeneral, 12, 8};  // a lie the device sees through
            CHECK(record(3) == "");
            got.resize(3 * 12 * 4);
            std::memcpy(got.data(), tensor.mapped, got.size() * sizeof(float));
            for (std::size_t column = 0; column < 12; ++column) {
                CHECK(got[(column * 3 + 1) * 4] == data[(12 + column) * 4]);
                CHECK(got[(column * 3 + 2) * 4] == 0.0f);
            }

            images[0] = {"in", small.view, kGeneral, 12, 2};
            CHECK(record(3) == "layer: image in needs 12 x 3 texels; 12 x 2 were given");
            images[0] = {"in", in.view, VK_IMAGE_LAYOUT_UNDEFINED, 12, 8};
            CHECK(record(3) == "layer: image in is in layout 0, which a sampled image cannot be");
            images[0] = {"in", in.view, kGeneral, 12, 8};
            images[1].layout = VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL;
            CHECK(record(3) == "layer: image red is in layout 5, which a storage image cannot be");
            images[1] = {"red", in.view, kGeneral, 12, 8};
            CHECK(contains(error_of([&] { program.upload("in", std::vector<float>(8 * 12 * 4)); }), "only a host has"));
            Program checked = device.compile(g, Weights(), {.name = "layer", .checked = true});
            checked.allocate();
            CHECK(text_of(checked.record(host.begin(), {.buffers = buffers, .images = images})) ==
                  "layer: output red is the same image view as in");
            images.pop_back();
            CHECK(record(3) == "layer: image red is not bound");
        }
        CHECK(host.messages().empty());
    }

    TEST_CASE("image: wrong use is told when it is described") {
        Graph g;
        CHECK(contains(error_of([&] { image_input(g, "a", 2, 2, 5); }), "a: an image has 1 to 4 channels, not 5"));
        CHECK(contains(error_of([&] { image_input(g, "a", 2, 2, 4, {.access = ImageAccess::storage}); }),
                       "a: a storage image that is read needs its format"));
        CHECK(contains(error_of([&] { image_input(g, "a", 2, 2, 4, {.access = ImageAccess::none}); }),
                       "sampled or a storage image"));
        CHECK(contains(error_of([&] { image_input(g, "a", 2, 2, 4, {.format = ImageFormat(99)}); }), "unknown format"));
        const Value x = g.input("x", {4, 4, 7});
        CHECK(contains(error_of([&] { image_output("b", x, {}); }), "is not (height, width, channels)"));
        image_output("c", slice(x, 2, 0, 4), {});
        Capabilities plain;
        plain.storage_image_any_format = false;
        CHECK(contains(error_of([&] { make_plan(g, plain); }), "name rgba8, rgba16f, r32f or rgba32f"));
    }
}

}  // namespace vkf::test
