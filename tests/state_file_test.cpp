// SPDX-License-Identifier: Apache-2.0
// States that are read, written, saved and restored, bit for bit.
#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "layers/attention.h"
#include "models/files/safetensors.h"
#include "models/state_file.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "tests/believed.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/host.h"
#include "tests/op_check.h"

namespace vkf::test {

namespace {

namespace fs = std::filesystem;

/// A file that goes with the test.
class Scratch {
public:
    explicit Scratch(const std::string& name)
        : path_(fs::temp_directory_path() / (name + "-" + std::to_string(reinterpret_cast<std::uintptr_t>(this)))) {}
    ~Scratch() {
        std::error_code ignored;
        fs::remove(path_, ignored);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    const fs::path& path() const { return path_; }

private:
    fs::path path_;
};

std::vector<float> floats(const std::vector<std::byte>& bytes) {
    std::vector<float> out(bytes.size() / sizeof(float));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
}

std::vector<std::byte> bytes_of_floats(const std::vector<float>& numbers) {
    const auto bytes = std::as_bytes(std::span(numbers));
    return {bytes.begin(), bytes.end()};
}

/// A state "kept" (2, 4, 3) that is what was uploaded to "x" in a run.
struct Kept {
    Graph g;
    State state;
    std::vector<float> numbers;

    Kept() {
        const Value kept = g.state("kept", {2, 4, 3});
        copy_into(kept, g.input("x", {2, 4, 3}));
        g.output("y", contiguous(kept));
        for (int i = 0; i < 24; ++i) {
            numbers.push_back(static_cast<float>(i) + 0.25f);
        }
        state = device().make_state({&g});
    }
    void run() {
        Program program = device().compile(g, {}, {.state = state});
        program.upload("x", numbers);
        program.run();
    }
};

}  // namespace

TEST_SUITE("state") {
    TEST_CASE("state: what a run left is read, whole and in part, and what is written is what runs see") {
        for (const std::uint64_t staging : {std::uint64_t{16} << 20, std::uint64_t{20}}) {
            CAPTURE(staging);
            Kept kept;
            kept.run();
            const std::uint64_t before = std::exchange(Insides::core(device()).options.staging_bytes, staging);
            CHECK(floats(kept.state.read("kept")) == kept.numbers);
            const std::vector<float> part = floats(kept.state.read("kept", {1, 2}));
            CHECK(part == std::vector<float>{0.25f, 1.25f, 2.25f, 3.25f, 4.25f, 5.25f, 12.25f, 13.25f, 14.25f, 15.25f,
                                             16.25f, 17.25f});
            CHECK(floats(kept.state.read("kept", {0, 1})).size() == 12);
            CHECK(kept.state.read("kept", {2, 0}).empty());
            // row 0 of both
            kept.state.write("kept", bytes_of_floats({-1, -2, -3, -4, -5, -6}), {1, 1});
            std::vector<float> changed = kept.numbers;
            for (std::size_t i = 0; i < 3; ++i) {
                changed[i] = -1.0f - static_cast<float>(i);
                changed[12 + i] = -4.0f - static_cast<float>(i);
            }
            CHECK(floats(kept.state.read("kept")) == changed);
            Graph reading;
            reading.output("y", contiguous(reading.state("kept", {2, 4, 3})));
            Program program = device().compile(reading, {}, {.state = kept.state});
            program.run();
            CHECK(program.download("y") == changed);
            Insides::core(device()).options.staging_bytes = before;
        }
    }

    TEST_CASE("state: names, parts and bytes that do not fit are refused") {
        Kept kept;
        CHECK(contains(error_of([&] { kept.state.read("other"); }), "there are: kept"));
        CHECK(contains(error_of([&] { kept.state.read("kept", {3, 1}); }), "dimension 3"));
        CHECK(contains(error_of([&] { kept.state.read("kept", {1, 5}); }), "no 5 elements of dimension 1"));
        CHECK(contains(error_of([&] { kept.state.read("kept", {1, -2}); }), "no -2 elements of dimension 1"));
        CHECK(contains(error_of([&] {
                           kept.state.write("kept", bytes_of_floats(std::vector<float>(24)), {0, -7});
                       }),
                       "no -7 elements of dimension 0"));
        CHECK(contains(error_of([&] {
                           kept.state.write("kept", bytes_of_floats({1, 2}));
                       }),
                       "96 bytes are written; 8 were given"));
        CHECK(contains(error_of([&] { State().read("kept"); }), "there are: none"));
    }

    TEST_CASE("state: saved and restored bit for bit, the file as large as what is in use") {
        Kept kept;
        kept.numbers[1] = std::numeric_limits<float>::quiet_NaN();
        kept.numbers[2] = -0.0f;
        kept.run();
        const std::vector<std::byte> all = kept.state.read("kept");
        const Scratch whole("vkformer-state"), used("vkformer-state-used");
        save_state(whole.path(), kept.state);
        save_state(used.path(), kept.state, {{"kept", {1, 2}}});
        CHECK(Safetensors(whole.path()).at("kept").shape == std::vector<std::int64_t>{2, 4, 3});
        CHECK(Safetensors(used.path()).at("kept").shape == std::vector<std::int64_t>{2, 2, 3});
        CHECK(fs::file_size(used.path()) < fs::file_size(whole.path()));

        Kept other;
        restore_state(whole.path(), other.state);
        CHECK(other.state.read("kept") == all);
        Kept fresh;
        restore_state(used.path(), fresh.state);
        CHECK(fresh.state.read("kept", {1, 2}) == kept.state.read("kept", {1, 2}));
        CHECK(floats(fresh.state.read("kept"))[6] == 0.0f);  // beyond the part: as it was
    }

    TEST_CASE("state: a cache of a prompt goes on in another process's state as if it had been read there") {
        const auto describe = [](Graph& g, WeightType type) {
            const Dim start = g.symbol("start", 12);
            GroupedQueryAttentionOptions o{
                .name = "attn", .heads = 4, .kv_heads = 2, .rope = Rope{.layout = RopeLayout::interleaved}};
            o.cache = kv_cache(g, "cache", 1, 12, 2, 8, start, type);
            g.output("y", grouped_query_attention(g.input("x", {1, g.symbol("tokens", 12), 32}), o).y);
        };
        for (const WeightType type : {WeightType::f32, WeightType::f16, WeightType::int8}) {
            CAPTURE(name_of(type));
            Graph g;
            describe(g, type);
            std::vector<std::vector<float>> numbers;
            std::vector<HostTensor> tensors;
            for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
                const std::int64_t rows = name[0] == 'q' || name[0] == 'o' ? 32 : 16;
                const Tensor w = random_tensor({rows, 32}, static_cast<std::uint32_t>(name[0]));
                numbers.emplace_back(w.data.begin(), w.data.end());
                tensors.push_back({std::string("attn.") + name + ".weight", DType::f32, {rows, 32}, {}});
            }
            for (std::size_t i = 0; i < tensors.size(); ++i) {
                tensors[i].data = std::as_bytes(std::span(numbers[i]));
            }
            const Weights weights = device().load(tensors);
            const Tensor prompt = random_tensor({1, 7, 32}, 1), next = random_tensor({1, 2, 32}, 2);
            const auto step = [&](const State& state, const Tensor& x, std::int64_t start) {
                Program program = device().compile(g, weights, {.state = state});
                program.set("start", start);
                program.set("tokens", x.size(1));
                upload(program, "x", x);
                program.run();
                return download(program, "y");
            };
            const State first = device().make_state({&g});
            step(first, prompt, 0);
            const Scratch file("vkformer-prompt");
            const StatePart seven{1, 7};
            save_state(file.path(), first, {{"cache.key", seven}, {"cache.value", seven}});
            State second = device().make_state({&g});
            restore_state(file.path(), second);
            CHECK(same_bits(step(second, next, 7), step(first, next, 7)));
        }
    }

    TEST_CASE("state: files that do not fit are refused by name, and change nothing") {
        Kept kept;
        kept.run();
        const std::vector<std::byte> all = kept.state.read("kept");
        const std::vector<float> numbers(24, 1.0f);
        const auto refusal = [&](const std::string& name, const std::vector<std::int64_t>& shape,
                                 DType dtype = DType::f32) {
            const Scratch file("vkformer-wrong");
            std::int64_t count = 1;
            for (const std::int64_t size : shape) {
                count *= size;
            }
            const auto bytes = std::as_bytes(std::span(numbers)).first(static_cast<std::size_t>(count) * 4);
            save_safetensors(file.path(), std::vector{HostTensor{name, dtype, shape, bytes}});
            const std::string error = error_of([&] { restore_state(file.path(), kept.state); });
            CHECK(kept.state.read("kept") == all);
            return error;
        };
        CHECK(contains(refusal("other", {2, 4, 3}), "other"));
        CHECK(contains(refusal("kept", {2, 4, 3}, DType::i32), "(2, 4, 3) F32, the file has (2, 4, 3) I32"));
        CHECK(contains(refusal("kept", {4, 3}), "the file has (4, 3)"));
        CHECK(contains(refusal("kept", {1, 2, 3}), "the file has (1, 2, 3)"));
        CHECK(contains(error_of([&] {
                           save_state("/nowhere/at/all", kept.state, {{"other", {}}});
                       }),
                       "no state other"));
    }

    TEST_CASE("state: numbers that a file has packed are refused before anything is written") {
        Graph g;
        g.output("y", contiguous(g.state("first", {2, 16})) + contiguous(g.state("second", {2, 16})));
        State state = device().make_state({&g});
        const std::vector<std::byte> before = state.read("first");
        const std::vector<float> numbers(32, 1.0f);
        const auto bytes = std::as_bytes(std::span(numbers));
        std::vector<HostTensor> tensors{{"first", DType::f32, {2, 16}, bytes},
                                        {"second", DType::f32, {2, 16}, bytes.first(64), WeightType::int8}};
        const Scratch file("vkformer-packed");
        save_safetensors(file.path(), tensors);
        const std::string error = error_of([&] { restore_state(file.path(), state); });
        CHECK(contains(error, "state second is (2, 16) F32, the file has (2, 16) int8"));
        CHECK(state.read("first") == before);
    }

    TEST_CASE("state: a device without a queue notes what is written, and cannot be read") {
        Graph g;
        g.output("y", contiguous(g.state("kept", {4})));
        Host host;
        BorrowedDevice lent = host.handles();
        lent.host_submits = true;
        const Device mine = Device::borrow(lent);
        State state = mine.make_state({&g});
        const std::uint64_t before = mine.pending_uploads();
        state.write("kept", bytes_of_floats({1, 2, 3, 4}));
        CHECK(mine.pending_uploads() > before);
        CHECK(error_of([&] { state.read("kept"); }) ==
              "state kept: cannot be read on a device for which the host submits (BorrowedDevice::host_submits): "
              "record() a program that copies it into an output");
    }
}

}  // namespace vkf::test
