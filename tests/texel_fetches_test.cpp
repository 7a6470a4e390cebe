// SPDX-License-Identifier: Apache-2.0
// Texel buffers that stand for storage buffers: which there are, and that results are the same.
// Under validation the layer looks at the modules too.
#include "runtime/compile/texel_fetches.h"

#include <bit>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "ops/ops.h"
#include "runtime/compile/glsl.h"
#include "runtime/compile/plan.h"
#include "runtime/compile/prune.h"
#include "runtime/device/device.h"
#include "runtime/device/device_tensor.h"
#include "tests/believed.h"
#include "tests/device.h"
#include "tests/glsl.h"
#include "tests/op_check.h"
#include "tests/uint_kernel.h"

namespace vkf::test {

namespace {

using Bytes = std::vector<int>;

constexpr std::uint32_t kAll = 0x7fff;

/// The texels of bindings 0 to 3 of a kernel that does this; binding 3 is `float y[]`.
Bytes texels(const std::string& buffers, const std::string& body, std::uint32_t asked = kAll) {
    const std::string source = "#version 450\nlayout(local_size_x = 1) in;\n" + buffers +
                               "layout(set = 0, binding = 3) buffer Y { float y[]; };\n"
                               "layout(push_constant) uniform Push { uint first_group; uint group_count; uint n; };\n"
                               "void main() { uint i = gl_GlobalInvocationID.x;\n" +
                               body + "}\n";
    const TexelFetches out = fetch_texels(prune(compile_glsl(source, "texels")), asked);
    return {out.texel_bytes[0], out.texel_bytes[1], out.texel_bytes[2], out.texel_bytes[3]};
}

std::string buffer(int binding, const std::string& name, const std::string& type, const std::string& how = "readonly") {
    return "layout(set = 0, binding = " + std::to_string(binding) + ") " + how + " buffer Block" + name + " { " + type +
           " " + name + "[]; };\n";
}

/// Whether this device's programs have texel buffers by themselves.
bool takes_texels() {
    const Capabilities& c = device().capabilities();
    return c.texel_buffers && c.variants.empty();
}

std::vector<std::uint32_t> bits_of(std::span<const float> numbers) {
    std::vector<std::uint32_t> out;
    for (const float x : numbers) {
        out.push_back(std::bit_cast<std::uint32_t>(x));
    }
    return out;
}

/// Numbers whose bits are easily lost: NaN with a payload, infinities, -0.0 and subnormals.
std::vector<float> special(std::size_t count, std::uint32_t seed) {
    constexpr std::uint32_t kBits[] = {0x7fc12345, 0xffc00001, 0x7f800000, 0xff800000, 0x80000000,
                                       0x00000001, 0x807fffff, 0x3f800001, 0x7f7fffff, 0x4b000001};
    std::vector<float> out;
    for (std::size_t i = 0; i < count; ++i) {
        out.push_back(std::bit_cast<float>(kBits[(i * 7 + seed) % std::size(kBits)]));
    }
    return out;
}

}  // namespace

TEST_SUITE("texel fetches") {
    TEST_CASE("texel fetches: arrays of which whole elements are loaded") {
        if (!can_compile_glsl()) {
            return;
        }
        const std::string three = buffer(0, "a", "float") + buffer(1, "b", "uvec2") + buffer(2, "c", "vec4");
        const std::string sum = "y[i] = a[i] + float(b[i].x) + dot(c[i], c[i + 1]);";
        CHECK(texels(three, sum) == Bytes{4, 0, 16, 0});  // of b a part is loaded
        CHECK(texels(three, "uvec2 two = b[i]; y[i] = a[i] + float(two.x + two.y) + dot(c[i], c[i + 1]);") ==
              Bytes{4, 8, 16, 0});
        CHECK(texels(three, sum, 1) == Bytes{4, 0, 0, 0});
        CHECK(texels(three, sum, 0) == Bytes{0, 0, 0, 0});
        CHECK(texels(buffer(0, "a", "int"), "y[i] = float(a[i]);") == Bytes{4, 0, 0, 0});
    }

    TEST_CASE("texel fetches: of several arrays of a binding, texels are the largest elements") {
        if (!can_compile_glsl()) {
            return;
        }
        const std::string three = buffer(0, "a", "float") + buffer(0, "b", "uvec2") + buffer(0, "c", "vec4");
        CHECK(texels(three, "uvec2 two = b[i]; y[i] = a[i] + float(two.x + two.y);") == Bytes{8, 0, 0, 0});
        CHECK(texels(three, "y[i] = a[i] + dot(c[i], c[i + 1]);") == Bytes{16, 0, 0, 0});
        const std::string text =
            "layout(set = 0, binding = 0) readonly buffer XTwo { uvec2 x_two[]; };\n"
            "layout(set = 0, binding = 0) readonly buffer XFour { uvec4 x_four[]; };\n"
            "uint f(uint i) {\n"
            "    uint sum = x[53 - int(i)];\n"  // the last texel of 16 bytes has two
            "    if (kTwo != 0u) { uvec2 two = x_two[(i * 3u) % 27u]; sum += 100u * two.x + 10000u * two.y; }\n"
            "    if (kFour != 0u) { uvec4 four = x_four[i / 5u]; sum += 3u * four.y + 1000000u * four.w; }\n"
            "    return sum;\n"
            "}\n";
        const UintKernel kernel(text, "f", {"kTwo", "kFour"});
        for (const std::uint32_t asked : {0u, 1u, 2u, 3u}) {
            CAPTURE(asked);
            CHECK(kernel.difference({asked & 1u, asked & 2u}, 54, [&](std::uint32_t i) {
                const std::uint32_t two = i * 3 % 27 * 2, four = i / 5 * 4;
                return 53 - i + ((asked & 1u) != 0 ? 100 * two + 10000 * (two + 1) : 0) +
                       ((asked & 2u) != 0 ? 3 * (four + 1) + 1000000 * (four + 3) : 0);
            }) == "");
        }
    }

    TEST_CASE("texel fetches: whatever else is done with a buffer keeps it") {
        if (!can_compile_glsl()) {
            return;
        }
        const Bytes none{0, 0, 0, 0};
        const std::string a = buffer(0, "a", "float");
        CHECK(texels(a, "y[i] = a[i] + float(a.length());") == none);
        CHECK(texels(buffer(0, "a", "float", ""), "y[i] = a[i]; a[i + 1] = 0.0;") == none);
        CHECK(texels(buffer(0, "a", "float", "coherent readonly"), "y[i] = a[i];") == none);
        CHECK(texels(buffer(0, "a", "float", "volatile readonly"), "y[i] = a[i];") == none);
        CHECK(texels(buffer(0, "a", "vec4"), "y[i] = a[i][n];") == none);
        CHECK(texels(a + buffer(0, "b", "vec3"), "vec3 three = b[i]; y[i] = a[i] + three.x + three.y;") == none);
        CHECK(texels(a + buffer(0, "b", "vec4"), "y[i] = a[i] + b[i][n];") == none);
        // b is not touched
        CHECK(texels(a + buffer(0, "b", "vec4"), "y[i] = a[i];") == Bytes{4, 0, 0, 0});
        CHECK(texels("struct Two { float x; uint y; };\n" + buffer(0, "a", "Two"), "y[i] = a[i].x;") == none);
        CHECK(texels("layout(set = 0, binding = 0) readonly buffer A { uint count; float a[]; };\n", "y[i] = a[i];") ==
              none);
        CHECK(texels("layout(set = 0, binding = 0) readonly buffer A { float a[4]; };\n", "y[i] = a[i];") == none);
        CHECK(texels(buffer(0, "a", "vec3"), "vec3 three = a[i]; y[i] = three.x + three.y;") == none);
    }

    TEST_CASE("texel fetches: processors have them, beside forced kernels only where they are asked for") {
        Capabilities device;
        device.type = DeviceType::cpu;
        device.texel_buffers = true;
        CHECK(takes_texels(device));
        device.variants = "attention_lanes";
        CHECK_FALSE(takes_texels(device));
        device.tuning = "texel_loads=1";
        CHECK_FALSE(takes_texels(device));  // what a file says was measured without forced kernels
        device.tuning_is_asked = true;
        CHECK(takes_texels(device));
        device.variants = "";
        device.tuning = "texel_loads=0";
        CHECK_FALSE(takes_texels(device));
    }

    TEST_CASE("texel fetches: what is no module stays") {
        using Words = std::vector<std::uint32_t>;
        CHECK(fetch_texels({}, kAll).code == Words{});
        CHECK(fetch_texels({1, 2, 3}, kAll).code == Words{1, 2, 3});
    }

    TEST_CASE("texel fetches: a plan has none where a dispatch writes what it reads") {
        Capabilities caps;
        caps.type = DeviceType::cpu;
        caps.int64 = caps.texel_buffers = caps.unified_memory = true;
        caps.storage_buffers = 16;
        const auto bits = [&](const Graph& g) { return make_plan(g, caps).dispatches.front().texels; };
        Graph apart;
        apart.output("y", apart.input("x", {8}) + apart.input("z", {8}));
        CHECK(bits(apart) == 3);  // of the inputs, not of the output
        Graph same;
        const Value state = same.state("s", {8});
        same.output("y", contiguous(copy_into(state, same.input("x", {8}))));
        CHECK(bits(same) == 3);  // of x, which stands for a second operand too; not of the state
        Graph in_place;
        const Value sum = rms_norm(in_place.input("x", {8, 8}), {}) + in_place.input("z", {8, 8});
        in_place.output("y", softmax(sum));
        const Plan plan = make_plan(in_place, caps);
        int found = 0;
        for (const PlannedDispatch& d : plan.dispatches) {
            const auto place = [&](std::size_t binding) { return plan.arena_offset[d.windows[binding].storage]; };
            const std::size_t written = d.windows.size() - 1;
            for (std::size_t i = 0; i < written && place(written) != Plan::kNotInArena; ++i) {
                if (place(i) == place(written)) {
                    CHECK((d.texels >> i & 1u) == 0);
                    ++found;
                }
            }
        }
        CHECK(found == 1);
        caps.tuning = "texel_loads=0";
        CHECK(bits(apart) == 0);
        caps.tuning.clear();
        caps.variants = "rows_held";
        CHECK(bits(apart) == 0);
        caps.variants.clear();
        caps.type = DeviceType::discrete;
        CHECK(bits(apart) == 0);
    }

    TEST_CASE("texel fetches: every bit of what is read stays") {
        Graph g;
        g.output("y", contiguous(transpose(g.input("x", {12, 20}), 0, 1)));
        g.output("z", contiguous(slice(g.input("w", {7, 9}), 1, 1, 7)));
        Program program = device().compile(g, {});
        CHECK(contains(program.explain(), "texel buffers at") == takes_texels());
        const std::vector<float> x = special(240, 1), w = special(63, 2);
        program.upload("x", x);
        program.upload("w", w);
        program.run();
        std::vector<float> y(240), z(49);
        for (std::size_t i = 0; i < 12; ++i) {
            for (std::size_t j = 0; j < 20; ++j) {
                y[j * 12 + i] = x[i * 20 + j];
            }
        }
        for (std::size_t i = 0; i < 49; ++i) {
            z[i] = w[i / 7 * 9 + 1 + i % 7];
        }
        CHECK(bits_of(program.download("y")) == bits_of(y));
        CHECK(bits_of(program.download("z")) == bits_of(z));
    }

    TEST_CASE("texel fetches: a run finds the tensor that was bound last") {
        Graph g;
        const Dim rows = g.symbol("rows", 64);
        g.output("y", relu(g.input("x", {rows, 5})) + g.input("x1", {5}));
        Program program = device().compile(g, {});
        program.upload("x1", std::vector<float>{1, 2, 3, 4, 5});
        for (int round = 0; round < 6; ++round) {
            CAPTURE(round);
            const std::int64_t count = round % 3 + 1;
            program.set("rows", count);
            DeviceTensor x = device().make_tensor({count, 5});  // perhaps where the last one was
            std::vector<float> numbers;
            for (std::int64_t i = 0; i < count * 5; ++i) {
                numbers.push_back(static_cast<float>(100 * round + i));
            }
            x.write(std::as_bytes(std::span(numbers)));
            program.bind("x", x);
            program.run();
            std::vector<float> want;
            for (std::int64_t i = 0; i < count * 5; ++i) {
                want.push_back(numbers[static_cast<std::size_t>(i)] + static_cast<float>(i % 5 + 1));
            }
            CHECK(program.download("y") == want);
            program.bind("x", {});
        }
    }
}

}  // namespace vkf::test
