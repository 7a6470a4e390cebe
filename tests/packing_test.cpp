// SPDX-License-Identifier: Apache-2.0
// Weights packed by the device: the words are those that the host packs, bit for bit, and so is
// what is refused.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "runtime/device/memory.h"
#include "runtime/device/tensor_store.h"
#include "runtime/graph/packed.h"
#include "shaders/common/quantize.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

constexpr WeightType kPackedTypes[] = {WeightType::f16, WeightType::bf16, WeightType::int8, WeightType::int4};

/// Other memory, or smaller staging, than the device has, for a while.
class ChangedDevice {
public:
    ChangedDevice() : capabilities_(Insides::core(device()).capabilities), options_(Insides::core(device()).options) {}
    ~ChangedDevice() {
        Insides::core(device()).capabilities = capabilities_;
        Insides::core(device()).options = options_;
    }
    ChangedDevice(const ChangedDevice&) = delete;
    ChangedDevice& operator=(const ChangedDevice&) = delete;
    static void staging(std::uint64_t bytes) { Insides::core(device()).options.staging_bytes = bytes; }
    static void checked() { Insides::core(device()).options.checked = true; }
    static void not_unified() { Insides::core(device()).capabilities.unified_memory = false; }

private:
    Capabilities capabilities_;
    DeviceOptions options_;
};

std::vector<std::uint32_t> words_of(const Weights& weights, const std::string& name) {
    const StoredTensor& t = *weights.find(name);
    const auto& core = Insides::store(weights)->core;
    const Block back(core, t.bytes, MemoryUse::readback, "words");
    Uploader commands(core, 0);
    const VkBufferCopy region{t.offset, 0, t.bytes};
    core->api.vkCmdCopyBuffer(commands.commands(), Insides::store(weights)->blocks[t.block].buffer(), back.buffer(), 1,
                              &region);
    commands.finish();
    std::vector<std::uint32_t> words(t.bytes / 4);
    std::memcpy(words.data(), back.mapped(), t.bytes);
    return words;
}

std::vector<std::uint32_t> host_words(const HostTensor& t, WeightType type) {
    const auto pitch = packed_row_words(type, static_cast<std::uint64_t>(t.shape[1]));
    std::vector<std::uint32_t> words(static_cast<std::size_t>(t.shape[0]) * pitch);
    pack_rows(t, type, 0, words);
    return words;
}

/// Says the first word in which the device and the host differ; empty: none.
std::string mismatch(const HostTensor& t, WeightType type) {
    const Weights weights = device().load({&t, 1}, {.matrices = type, .pack_on = PackOn::device});
    const std::uint64_t packed = weights.bytes_packed_on_device();
    const std::vector<std::uint32_t> got = words_of(weights, t.name);
    const std::vector<std::uint32_t> want = host_words(t, type);
    REQUIRE(got.size() == want.size());
    CHECK(packed == (same_format(t.dtype, type) ? 0 : 4 * want.size()));
    for (std::size_t i = 0; i < got.size(); ++i) {
        if (got[i] != want[i]) {
            return std::string(name_of(t.dtype)) + " as " + std::string(name_of(type)) + ", " +
                   std::to_string(t.shape[1]) + " columns: word " + std::to_string(i) + " is " +
                   std::to_string(got[i]) + ", the host's " + std::to_string(want[i]);
        }
    }
    return {};
}

/// Compares on the device as it is, and as a GPU with memory of its own and little staging,
/// checked.
std::string mismatches(const HostTensor& t, WeightType type) {
    std::string found = mismatch(t, type);
    if (found.empty()) {
        const AsSmallGpu gpu;
        const ChangedDevice changed;
        ChangedDevice::not_unified();
        found = mismatch(t, type);
        ChangedDevice::staging(600);
        ChangedDevice::checked();
        found += found.empty() ? mismatch(t, type) : "";
    }
    return found;
}

/// Rows in which rounding, ties, signs, ranges and numbers below 2^-126 are what they are at their
/// worst.
std::vector<float> hard_rows(std::int64_t rows, std::int64_t columns) {
    std::mt19937 random(static_cast<std::uint32_t>(columns));
    // exponents, as they are biased
    const auto any = [&](std::uint32_t least, std::uint32_t most) {
        const std::uint32_t exponent = least + random() % (most - least + 1);
        return std::bit_cast<float>(static_cast<std::uint32_t>(random() & 0x807fffffu) | exponent << 23);
    };
    std::vector<float> out;
    for (std::int64_t row = 0; row < rows; ++row) {
        const auto scale = static_cast<float>(1u << random() % 8);
        for (std::int64_t k = 0; k < columns; ++k) {
            float x = 0;
            switch (row % 12) {
                case 0: x = any(110, 127); break;
                case 1: x = k % 2 == 0 ? 0.0f : -0.0f; break;
                case 2: x = 1.0f + std::abs(any(100, 124)); break;
                case 3: x = k == 0 ? 127.0f : static_cast<float>(static_cast<int>(random() % 253) - 126) + 0.5f; break;
                case 4: x = k % 32 == 0 ? 15.0f : k % 32 == 1 ? 0.0f : 0.5f + static_cast<float>(random() % 15); break;
                case 5: x = (1.0f + static_cast<float>(random() % 4096) * 0x1p-12f) * scale; break;
                case 6: x = any(0, 3); break;  // some below 2^-126
                case 7: x = any(0, 9); break;  // scales around it
                case 8: x = k % 5 == 0 ? any(253, 253) : any(0, 253); break;
                case 9: x = k % 32 == 0 ? 1.0f : -std::abs(any(60, 120)); break;
                case 10: x = any(97, 115); break;  // halves below 2^-14
                default: x = any(1, 253); break;
            }
            out.push_back(x);
        }
    }
    return out;
}

/// Limits x to what the type can hold.
float held(float x, WeightType type) { return type == WeightType::f16 && std::abs(x) >= 65520 ? 65519.0f : x; }

}  // namespace

TEST_SUITE_BEGIN("packed weights");

TEST_CASE("packed weights: the device packs fp32 into the host's words") {
    for (const std::int64_t columns : {1, 2, 3, 7, 8, 16, 31, 32, 33, 65, 130, 513, 2100}) {
        for (const WeightType type : kPackedTypes) {
            std::vector<float> numbers = hard_rows(columns > 1000 ? 25 : 70, columns);
            for (float& x : numbers) {
                x = held(x, type);
            }
            if (type == WeightType::f16 || type == WeightType::bf16) {
                numbers[0] = std::numeric_limits<float>::infinity();
                numbers[numbers.size() / 2] = std::bit_cast<float>(0xff812345u);  // a NaN
            }
            const HostTensor t{"w",
                               DType::f32,
                               {static_cast<std::int64_t>(numbers.size()) / columns, columns},
                               std::as_bytes(std::span(numbers))};
            CHECK(mismatches(t, type) == "");
        }
    }
}

TEST_CASE("packed weights: the device packs rows longer than one invocation's loops may be") {
    for (const WeightType type : {WeightType::int8, WeightType::int4}) {
        const std::vector<float> numbers = hard_rows(13, 70001);
        const HostTensor t{"w", DType::f32, {13, 70001}, std::as_bytes(std::span(numbers))};
        CHECK(mismatch(t, type) == "");
    }
}

TEST_CASE("packed weights: the device packs fp16 and bf16 into the host's words") {
    for (const DType from : {DType::f16, DType::bf16}) {
        for (const WeightType type : kPackedTypes) {
            for (const std::int64_t columns : {1, 33, 64, 257}) {
                // every number there is, in disorder and as ranges of a few powers of two
                std::vector<std::uint16_t> bits;
                for (std::uint32_t i = 0; i < 65536; ++i) {
                    const auto number = static_cast<std::uint16_t>(i * 40503u);
                    const std::uint16_t narrow = static_cast<std::uint16_t>((number & 0x83ffu) | 0x3400u);
                    bits.push_back(i % 257 < 128 ? number : narrow);
                    const HostTensor one{"w", from, {1, 1}, std::as_bytes(std::span(bits).last(1))};
                    float x = 0;
                    widen(one, 0, {&x, 1});
                    const bool small = std::abs(x) < 0x1p127f;
                    const bool sixteen = type == WeightType::f16 || type == WeightType::bf16;
                    if (!(sixteen ? !std::isfinite(x) || held(x, type) == x : small)) {
                        bits.back() = narrow;
                    }
                }
                bits.resize(bits.size() / static_cast<std::size_t>(columns) * static_cast<std::size_t>(columns));
                const HostTensor t{"w",
                                   from,
                                   {static_cast<std::int64_t>(bits.size()) / columns, columns},
                                   std::as_bytes(std::span(bits))};
                CHECK(mismatch(t, type) == "");
                if (columns == 257) {
                    CHECK(mismatches(t, type) == "");
                }
            }
        }
    }
}

TEST_CASE("packed weights: who packs is chosen by the kind of device, and told") {
    const Tensor numbers = random_tensor({40, 70});
    const std::vector<float> floats = numbers.floats();
    const std::vector<std::uint16_t> halves(12, 0x3c00);
    const HostTensor tensors[] = {{"a", DType::f32, {40, 70}, std::as_bytes(std::span(floats))},
                                  {"b", DType::f16, {3, 4}, std::as_bytes(std::span(halves))},
                                  {"norm", DType::f32, {70}, std::as_bytes(std::span(floats).first(70))}};
    std::uint64_t done = 0, all = 0;
    LoadOptions options{.matrices = WeightType::f16};
    options.progress = [&](std::uint64_t now, std::uint64_t in_all) { done = now, all = in_all; };
    const auto packed = [&](PackOn on) {
        options.pack_on = on;
        const Weights weights = device().load(tensors, options);
        CHECK(done == all);
        CHECK(words_of(weights, "a") == host_words(tensors[0], WeightType::f16));
        CHECK(words_of(weights, "b") == host_words(tensors[1], WeightType::f16));
        return weights.bytes_packed_on_device();
    };
    const std::uint64_t words = 40 * 36 * 4;
    CHECK(packed(PackOn::host) == 0);
    CHECK(packed(PackOn::device) == words);
    for (const DeviceType type :
         {DeviceType::cpu, DeviceType::other, DeviceType::discrete, DeviceType::integrated, DeviceType::virtual_gpu}) {
        const ChangedDevice changed;
        Insides::core(device()).capabilities.type = type;
        CHECK(packed(PackOn::by_device) == (type == DeviceType::cpu || type == DeviceType::other ? 0 : words));
    }
}

TEST_CASE("packed weights: what a type cannot hold is refused alike, whoever packs") {
    for (const std::int64_t rows : {3, 700}) {
        for (const WeightType type : kPackedTypes) {
            for (const double bad : {65519.0, 65520.0, -65520.0, 0x1.fffffep126, 0x1p127, -0x1p127, 0x1.fefffep127,
                                     0x1.ffp127, static_cast<double>(std::numeric_limits<float>::max()),
                                     static_cast<double>(std::numeric_limits<float>::infinity()),
                                     static_cast<double>(-std::numeric_limits<float>::infinity()), std::nan("")}) {
                Tensor w = random_tensor({rows, 40});
                w.at({rows - 1, 37}) = bad;
                const std::vector<float> floats = w.floats();
                const HostTensor t{"w", DType::f32, {rows, 40}, std::as_bytes(std::span(floats))};
                const ChangedDevice changed;
                ChangedDevice::staging(5000);
                const auto said = [&](PackOn on) {
                    return error_of([&] { device().load({&t, 1}, {.matrices = type, .pack_on = on}); });
                };
                CAPTURE(bad);
                CHECK(said(PackOn::device) == said(PackOn::host));
                CHECK((bad != 0x1p127 ||
                       contains(said(PackOn::device), "weight w: holds") == (type != WeightType::bf16)));
            }
        }
    }
}

TEST_CASE("packed weights: numbers of 16 bits that a type cannot hold are the same whoever looks") {
    for (const DType from : {DType::f16, DType::bf16}) {
        for (const WeightType type : kPackedTypes) {
            std::size_t refused = 0, differ = 0;
            for (std::uint32_t i = 0; i < 65536; ++i) {
                const auto bits = static_cast<std::uint16_t>(i);
                const HostTensor t{"w", from, {1, 1}, std::as_bytes(std::span(&bits, 1))};
                const std::string packed = error_of([&] { host_words(t, type); });
                differ += error_of([&] { require_packable(t, type, 0, 1); }) != packed ? 1 : 0;
                refused += packed.empty() ? 0 : 1;
            }
            const bool whole = type == WeightType::int8 || type == WeightType::int4;
            const std::size_t expected = same_format(from, type) ? 0
                                         : from == DType::f16    ? (whole ? 2u * 1024 : 0)
                                         : whole                 ? 2u * 256
                                                                 : 2u * (0x7f80 - 0x4780);
            CHECK(refused == expected);
            CHECK(differ == 0);
        }
    }
}

TEST_CASE("packed weights: int4's scale is the least of 20 bits whose 15 steps reach") {
    std::mt19937 random(1);
    std::size_t wrong = 0;
    for (int i = 0; i < 200000; ++i) {
        const std::uint32_t exponent = 30 + random() % 190;
        const std::uint32_t high = (random() & 0x7fffffu) | exponent << 23;
        const std::uint32_t low = i % 16 == 0 ? 0 : (random() & 0x7fffffu) | (exponent - random() % 26) << 23;
        const bool turned = i % 2 == 0;
        const std::uint32_t scale = shader::group_scale_of(turned ? high : low, turned ? low : high);
        const auto number = [](std::uint32_t bits) { return static_cast<double>(std::bit_cast<float>(bits)); };
        const double range = number(high) + number(low);  // exact: 50 bits
        wrong += (scale & 15u) == 0 && 15 * number(scale) >= range && 15 * number(scale - 16) < range ? 0 : 1;
    }
    CHECK(wrong == 0);
    const std::uint32_t one = std::bit_cast<std::uint32_t>(15.0f);
    CHECK(shader::group_scale_of(0, one) == std::bit_cast<std::uint32_t>(1.0f));
    // however little more
    CHECK(shader::group_scale_of(0x00800000u, one) == std::bit_cast<std::uint32_t>(1.0f) + 16);
    CHECK(shader::group_scale_of(0, 0) == 0);
    CHECK(shader::group_scale_of(0x00800000u, 0x00800000u) == 0);  // below 2^-126
}

TEST_SUITE_END();
