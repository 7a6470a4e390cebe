// SPDX-License-Identifier: Apache-2.0
// Choices that were measured: what ops make of them, where they come from, and how tools/tune finds
// them.
#include "runtime/device/tuning.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <thread>

#include "layers/attention.h"
#include "ops/lanes.h"
#include "ops/tuning.h"
#include "runtime/base/map_file.h"
#include "runtime/compile/plan.h"
#include "tests/believed.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"
#include "tests/reference.h"
#include "tests/reference_attention.h"
#include "tests/reference_packed.h"
#include "tools/tune/search.h"

namespace vkf::test {

namespace {

const Tunable& tunable(std::string_view name) { return *std::ranges::find(tunables(), name, &Tunable::name); }

/// True where tiles may have 128 columns on a device.
bool may_be_wide(const Capabilities& c) { return !tunable("matmul_columns").values(c).empty(); }

/// No variable decides.
struct ByFile : Environment {
    ByFile() : Environment("VKFORMER_TUNING", std::nullopt) {}
};

std::string choice(std::string_view name, std::uint32_t value) {
    return std::string(name) + "=" + std::to_string(value);
}

/// The device believed to be one of a kind, with a choice.
auto believing(bool gpu, const std::string& tuning) {
    return [gpu, tuning](Capabilities& c) {
        c.type = gpu ? DeviceType::discrete : c.type;
        c.int64 = c.int64 && !gpu;
        c.variants.clear();
        c.tuning = tuning;
        c.tuning_from = "a test";
        c.tuning_is_asked = true;
    };
}

/// A product with its twin, which every choice is held to.
struct TunedProduct {
    TunedProduct(std::int64_t m, std::int64_t n, std::int64_t k)
        : x(random_tensor({m, k}, 1)),
          w(random_tensor({n, k}, 2)),
          wanted(reference::matmul(x, w, {.transpose_b = true})),
          rounding(reference::matmul_rounding(x, w, {.transpose_b = true})) {}

    std::string mismatch() const {
        OpCheck check;
        return difference(check.run(linear(check.input("x", x), check.input("w", w))), wanted, {.rounding = rounding});
    }

    Tensor x, w, wanted, rounding;
};

constexpr WeightType kWeightTypes[] = {WeightType::f32, WeightType::f16, WeightType::bf16, WeightType::int8,
                                       WeightType::int4};

/// linear() with bias and gelu by a weight that is kept so, and how it was computed.
struct PackedProduct {
    std::int64_t rows, columns, k;
    WeightType type;

    std::pair<Tensor, std::string> run() const {
        Graph g;
        const Value y = linear(g.input("x", {rows, k}), g.weight("w", {columns, k}), g.input("bias", {columns}));
        g.output("y", gelu(y));
        Program program = device().compile(g, load(random_tensor({columns, k}, 2), type));
        upload(program, "x", random_tensor({rows, k}, 1));
        upload(program, "bias", random_tensor({columns}, 3));
        program.run();
        return {download(program, "y"), program.explain()};
    }

    Tensor wanted(Tensor& rounding) const {
        const Tensor x = random_tensor({rows, k}, 1), w = reference::packed(random_tensor({columns, k}, 2), type);
        const reference::MatmulOptions o{
            .bias = random_tensor({columns}, 3), .activation = Activation::gelu, .transpose_b = true};
        rounding = reference::matmul_rounding(x, w, o);
        return reference::matmul(x, w, o);
    }
};

std::string decoding_mismatch(std::int64_t keys) {
    OpCheck check;
    const Tensor q = random_tensor({1, 4, 1, 16}, 1), k = random_tensor({1, 2, keys, 16}, 2),
                 v = random_tensor({1, 2, keys, 16}, 3);
    const Value y = scaled_dot_product_attention(check.input("q", q), check.input("k", k), check.input("v", v)).y;
    return difference(check.run(y), reference::attention(q, k, v).y, {1e-5, 1e-4, {}});
}

/// The bits of what row kernels give.
std::vector<Tensor> rows() {
    const Tensor x = random_tensor({19, 64}, 1), w = random_tensor({64}, 2), b = random_tensor({64}, 3);
    OpCheck norm, sum, weights, turned;
    return {norm.run(layer_norm(norm.input("x", x), norm.input("w", w), norm.input("b", b))),
            sum.run(sum.input("x", x) + sum.input("y", x)), weights.run(softmax(weights.input("x", x))),
            turned.run(rope(turned.input("x", x), {.layout = RopeLayout::half, .max_positions = 19}, 0))};
}

std::string explained(const Device& device) {
    Graph g;
    g.output("y", linear(g.input("x", {600, 64}), g.input("w", {600, 64})));
    return device.compile(g, {}).explain();
}

}  // namespace

TEST_SUITE("tuning") {
    TEST_CASE("tuning: whatever is chosen, results are right") {
        const TunedProduct products[] = {{150, 70, 40}, {2, 33, 260}, {530, 516, 516}};
        for (const bool gpu : {false, true}) {
            CAPTURE(gpu);
            const Believed kind(believing(gpu, ""));
            const std::vector<Tensor> usual_rows = rows();
            for (const Tunable& tunable : tunables()) {
                for (const std::uint32_t value : tunable.values(device().capabilities())) {
                    CAPTURE(choice(tunable.name, value));
                    const Believed chosen(believing(gpu, choice(tunable.name, value)));
                    if (tunable.name == "attention_split") {
                        for (const std::int64_t keys : {130, 1100, 4200}) {
                            CHECK(decoding_mismatch(keys) == "");
                        }
                        continue;
                    }
                    if (tunable.name == "row_load" || tunable.name == "texel_loads") {
                        const std::vector<Tensor> all = rows();
                        for (std::size_t i = 0; i < all.size(); ++i) {
                            CHECK(same_bits(all[i], usual_rows[i]));
                        }
                        continue;
                    }
                    for (const TunedProduct& product : products) {
                        CHECK(product.mismatch() == "");
                    }
                }
            }
        }
    }

    TEST_CASE("tuning: tiles twice as wide give the same bits, whatever weights are kept as") {
        const Believed gpu(believing(true, ""));
        if (!may_be_wide(device().capabilities())) {
            cannot_run("tiles of 128 by 128");
            return;
        }
        for (const WeightType type : kWeightTypes) {
            CAPTURE(name_of(type));
            const PackedProduct product{300, 516, 96, type};
            const auto [usual, how_usual] = product.run();
            const Believed chosen(believing(true, "matmul_columns=128"));
            const auto [found, how] = product.run();
            CHECK_FALSE(contains(how_usual, "8x8 an invocation"));
            CHECK(contains(how, "128x128x16 in shared memory, 8x8 an invocation, tuned"));
            CHECK(contains(how, "tiles of 64x64x16 in shared memory, 4x4 an invocation;"));
            CHECK(same_bits(found, usual));
        }
    }

    TEST_CASE("tuning: divided sums are right in every tile, whatever weights are kept as") {
        for (const WeightType type : kWeightTypes) {
            CAPTURE(name_of(type));
            // few columns: groups of small tiles fill a device sooner, and divide no sums then
            for (const auto& size : {std::pair(32, 520), std::pair(300, 520), std::pair(300, 130)}) {
                const std::int64_t rows = size.first, columns = size.second;
                CAPTURE(rows);
                CAPTURE(columns);
                const PackedProduct product{rows, columns, 1024, type};
                const Believed gpu(believing(true, ""));
                Tensor rounding;
                const Tensor wanted = product.wanted(rounding);
                const auto [usual, how_usual] = product.run();
                CHECK(difference(usual, wanted, {.rounding = rounding}) == "");
                if (may_be_wide(device().capabilities()) || rows * columns < 64000) {
                    CHECK(contains(how_usual, "parts of the sums: "));
                }
                for (const char* tuning : {"matmul_columns=128", "matmul_staged=0", "matmul_depth=8"}) {
                    CAPTURE(tuning);
                    if (!may_be_wide(device().capabilities()) && tuning == std::string("matmul_columns=128")) {
                        continue;
                    }
                    const Believed chosen(believing(true, tuning));
                    const auto [found, how] = product.run();
                    CHECK(difference(found, wanted, {.rounding = rounding}) == "");
                    // the scales of int8 and int4 are found by tiles in shared memory alone
                    if (columns == 130 && (tuning != std::string("matmul_staged=0") || type < WeightType::int8)) {
                        CHECK(contains(how, "parts of the sums: "));
                    }
                }
            }
        }
    }

    TEST_CASE("tuning: tiles twice as wide leave out what is masked, though it is not finite") {
        const auto composed = [](Capabilities& c) {
            believing(true, "")(c);
            c.variants = "attention_composed";
        };
        const Believed gpu(composed);
        if (!may_be_wide(device().capabilities())) {
            cannot_run("tiles of 128 by 128");
            return;
        }
        const Believed wide([](Capabilities& c) { c.tuning = "matmul_columns=128"; });
        constexpr std::int64_t kRows = 300, kWidth = 516;
        Tensor v = random_tensor({1, 1, kRows, kWidth}, 3);
        const auto attended = [&] {
            Graph g;
            const Value q = g.input("q", {1, 1, kRows, 8}), k = g.input("k", {1, 1, kRows, 8});
            AttentionOptions causal;
            causal.mask.causal = Causal::top_left;
            const Value y = scaled_dot_product_attention(q, k, g.input("v", {1, 1, kRows, kWidth}), causal).y;
            g.output("y", contiguous(y));
            Program program = device().compile(g, {});
            upload(program, "q", random_tensor({1, 1, kRows, 8}, 1));
            upload(program, "k", random_tensor({1, 1, kRows, 8}, 2));
            upload(program, "v", v);
            program.run();
            CHECK(contains(program.explain(), "8x8 an invocation, tuned"));
            return download(program, "y");
        };
        Tensor wanted = attended();
        for (std::int64_t c = 0; c < kWidth; ++c) {  // the last key, which all queries but one mask
            v.at({0, 0, kRows - 1, c}) = c % 2 == 0 ? NAN : INFINITY;
        }
        Tensor found = attended();
        for (std::int64_t c = 0; c < kWidth; ++c) {
            const double last = found.at({0, 0, kRows - 1, c});
            CHECK((c % 2 == 0 ? std::isnan(last) : std::isinf(last)));
            found.at({0, 0, kRows - 1, c}) = wanted.at({0, 0, kRows - 1, c}) = 0;
        }
        CHECK(same_bits(found, wanted));
    }

    TEST_CASE("tuning: what does not fit together, or is not of this device, is said") {
        const auto said = [](const std::string& tuning, std::uint32_t shared, bool asked = false) {
            const Believed chosen([&](Capabilities& c) {
                believing(true, tuning)(c);
                c.tuning_is_asked = asked;
                c.max_invocations = std::max(c.max_invocations, 256u);
                c.max_group_size[0] = std::max(c.max_group_size[0], 256u);
                c.shared_memory = shared;
            });
            Graph g;
            g.output("y", linear(g.input("x", {600, 64}), g.input("w", {600, 64})));
            std::string out;
            for (const PlannedDispatch& d : make_plan(g, device().capabilities()).dispatches) {
                for (const Kernel& kernel : d.dispatch.kernels) {
                    out += kernel.why;
                }
            }
            return out;
        };
        CHECK(contains(said("matmul_depth=32,matmul_columns=128", 1 << 15),
                       "not tuned: 128 columns by 32 need 33792 bytes of shared memory, this device has 32768"));
        CHECK(contains(said("matmul_rows=64,matmul_columns=128", 1 << 15),
                       "tuned, not tuned: 128 columns are of tiles of 128 rows"));
        CHECK(contains(said("matmul_depth=32,matmul_columns=128", 1 << 15, true), "not tuned: 128 columns by 32"));
        CHECK(contains(said("matmul_columns=7", 1 << 15), "not tuned: matmul_columns=7 does not fit this device"));
        CHECK(contains(said("matmul_staged=7", 1 << 15), "not tuned: matmul_staged=7 does not fit this device"));
    }

    TEST_CASE("tuning: products of a GPU whose tiles are not staged are computed in registers") {
        const Believed chosen(believing(true, "matmul_staged=0"));
        CHECK(contains(explained(device()), "matmul<"));
        CHECK(contains(explained(device()), "tiles of 8x256 in registers, tuned"));
    }

    TEST_CASE("tuning: explain() says what was chosen, and by whom") {
        const Believed none(believing(false, ""));
        const auto values = tunable("matmul_rows").values(device().capabilities());
        REQUIRE(values.size() > 1);
        CHECK_FALSE(contains(explained(device()), ", tuned"));
        const std::string asked = choice("matmul_rows", values.front());
        const Believed chosen(believing(false, asked));
        CHECK(contains(explained(device()), ", tuned"));
        CHECK(contains(explained(device()), "tuning " + asked + " of a test"));
    }

    TEST_CASE("tuning: row kernels load as many bytes at a time as was chosen") {
        const auto kernels = [](const std::string& tuning) {
            const Believed chosen(believing(false, tuning));
            Graph g;
            const Value x = g.input("x", {8, 64});
            g.output("norm", layer_norm(x, {}, {}));
            g.output("weighted", rms_norm(x, g.input("w", {64})));
            g.output("sum", x + g.input("y", {8, 64}));
            g.output("weights", softmax(x));
            g.output("turned", rope(x, {.layout = RopeLayout::half, .max_positions = 8}, 0));
            return device().compile(g, {}).explain();
        };
        if (!device().capabilities().int64) {
            const Believed chosen(believing(false, "row_load=8"));
            CHECK(contains(error_of([] { explained(device()); }), "has no kernel that asks for it"));
            cannot_run("loads of 8 bytes");
            return;
        }
        const std::string narrow = kernels("row_load=4"), wide = kernels("row_load=8");
        std::vector<std::string> expected{"layer_norm", "elementwise", "softmax", "rope"};
        const Capabilities& c = device().capabilities();
        if (hands_round(c)) {
            expected.push_back("layer_norm_lanes");
        }
        for (const std::string& kernel : expected) {
            CAPTURE(kernel);
            CHECK(contains(narrow, kernel + "<"));
            CHECK(contains(wide, kernel + "_wide<"));
        }
        CHECK(contains(narrow, "4 bytes a load, tuned"));
        CHECK(contains(wide, "8 bytes a load, tuned"));
    }

    TEST_CASE("tuning: what cannot be is an error that says what can") {
        const auto said = [&](const std::string& tuning) {
            const Believed chosen(believing(false, tuning));
            return error_of([] { explained(device()); });
        };
        CHECK(contains(said("matmul_rows=7"), "matmul_rows=7 does not fit this device, which takes "));
        CHECK(
            // though nothing asked for it yet
            contains(said("attention_split=7"), "attention_split=7 does not fit"));
        if (device().capabilities().cpu()) {
            CHECK(contains(said("matvec_split=8"), "which has no kernel that asks for it"));
        }
        CHECK(contains(said("matmul_rows=7"), "a test"));
        const std::string fits = choice("matmul_rows", tunable("matmul_rows").values(device().capabilities()).front());
        CHECK(
            contains(said(fits + ",rows=8"), "\"rows\" is not to be chosen; there are matmul_columns, matmul_rows, "));
        for (const char* wrong : {"matmul_rows", "matmul_rows=", "=8", "matmul_rows=8,,", "matmul_rows=8x",
                                  "matmul_rows=-8", "matmul_rows=99999999999"}) {
            CAPTURE(wrong);
            const Environment variable("VKFORMER_TUNING", wrong);
            CHECK(contains(error_of([] { Device::create(); }), "is not name=number"));
            CHECK(contains(error_of([] { Device::create(); }), "VKFORMER_TUNING"));
        }
    }

    TEST_CASE("tuning: what cannot be is an error when a device is made, though no op asks") {
        const ByFile by_file;
        const std::vector<std::uint32_t> rows = tunable("matmul_rows").values(device().capabilities());
        const std::string fits = choice("matmul_rows", rows.front());
        const std::pair<std::string, std::string> all[] = {
            {"bogus=1", "\"bogus\" is not to be chosen; there are matmul_columns, "},
            {fits + ",bogus=1", "\"bogus\" is not to be chosen"},
            {"matmul_rows=17", "matmul_rows=17 does not fit this device, which takes "},
            {fits + "," + fits, "matmul_rows is given twice"},
            {fits + "," + choice("matmul_rows", rows.back()), "matmul_rows is given twice"},
        };
        for (const auto& each : all) {
            const std::string &wrong = each.first, &told = each.second;
            CAPTURE(wrong);
            const DeviceOptions asking{.tuning = wrong};
            CHECK(contains(error_of([&] { Device::create(asking); }), "DeviceOptions::tuning: " + told));
            const Environment variable("VKFORMER_TUNING", wrong);
            CHECK(contains(error_of([] { Device::create(); }), "VKFORMER_TUNING: " + told));
        }
        CHECK(error_of([&] { Device::create({.tuning = fits}); }) == "");
    }

    TEST_CASE("tuning: what a device would refuse is not kept") {
        const ByFile by_file;
        const TemporaryFolder folder;
        const Device device = Device::create({.cache_folder = folder.path()});
        const std::vector<std::uint32_t> rows = tunable("matmul_rows").values(device.capabilities());
        const std::string fits = choice("matmul_rows", rows.front());
        for (const std::string& wrong : {std::string("bogus=1"), fits + ",bogus=1", std::string("matmul_rows=17"),
                                         fits + "," + choice("matmul_rows", rows.back())}) {
            CAPTURE(wrong);
            const std::string told = error_of([&] { Device::create({.tuning = wrong}); });
            CHECK(told.starts_with("DeviceOptions::tuning: "));
            CHECK(error_of([&] { save_tuning(device, wrong); }) == "save_tuning" + told.substr(told.find(": ")));
        }
        CHECK(folder.files().empty());
    }

    TEST_CASE("tuning: kept in the cache folder, found by later devices, forgotten") {
        const ByFile by_file;
        const TemporaryFolder folder;
        const DeviceOptions options{.cache_folder = folder.path()};
        const Device before = Device::create(options);
        CHECK(before.capabilities().tuning == "");
        CHECK(before.capabilities().tuning_from == "");
        const auto rows = tunable("matmul_rows").values(before.capabilities()).front();
        const std::string asked = choice("matmul_rows", rows);
        const std::filesystem::path file = save_tuning(before, asked);
        CHECK(file == tuning_file(before));
        CHECK(folder.files().size() == 1);
        const Device after = Device::create(options);
        CHECK(after.capabilities().tuning == asked);
        CHECK(contains(explained(after), asked + " of " + utf8_name(file)));
        DeviceOptions own = options;
        own.tuning = "0";
        CHECK(Device::create(own).capabilities().tuning == "");
        const std::string unused = utf8_name(file) + ", which is not used, for ";
        CHECK(Device::create(own).capabilities().tuning_from == unused + "DeviceOptions::tuning is 0");
        own.tuning = choice("matmul_rows", tunable("matmul_rows").values(before.capabilities()).back());
        CHECK(Device::create(own).capabilities().tuning == own.tuning);
        {
            const Environment variable("VKFORMER_TUNING", asked);
            CHECK(Device::create(own).capabilities().tuning == asked);
        }
        {
            const Environment variable("VKFORMER_TUNING", "0");
            CHECK(Device::create(own).capabilities().tuning == "");
            CHECK(Device::create(own).capabilities().tuning_from == unused + "VKFORMER_TUNING is 0");
        }
        if (!after.capabilities().minimum_profile) {
            own = options;
            own.minimum_profile = true;  // which is another device
            CHECK(Device::create(own).capabilities().tuning == "");
        }
        CHECK(save_tuning(after, "") == file);
        CHECK(folder.files().empty());
        CHECK(Device::create(options).capabilities().tuning == "");
        own = options;
        own.tuning = "0";
        CHECK(Device::create(own).capabilities().tuning_from == "");  // there is no file
        CHECK(save_tuning(after, "") == file);
    }

    TEST_CASE("tuning: what a file holds that does not fit the device is not used, which explain() says") {
        const ByFile by_file;
        const TemporaryFolder folder;
        const DeviceOptions options{.cache_folder = folder.path()};
        for (const char* text : {"matmul_rows=7,later=3", "later=3,matmul_rows=7"}) {
            std::ofstream(tuning_file(Device::create(options)), std::ios::binary) << "vkformer tuning 1\n"
                                                                                  << text << "\n";
            const Device device = Device::create(options);
            CHECK(device.capabilities().tuning == text);
            CHECK(contains(explained(device), ", not tuned: matmul_rows=7 does not fit this device, which takes "));
        }
    }

    TEST_CASE("tuning: threads that save at once leave a file of one of them") {
        const ByFile by_file;
        const TemporaryFolder folder;
        const DeviceOptions options{.cache_folder = folder.path()};
        const Device device = Device::create(options);
        const std::vector<std::uint32_t> rows = tunable("matmul_rows").values(device.capabilities());
        std::atomic<int> failures = 0;
        std::vector<std::thread> threads;
        for (std::size_t t = 0; t < 4; ++t) {
            threads.emplace_back([&, t] {
                for (int i = 0; i < 50; ++i) {
                    failures +=
                        error_of([&] { save_tuning(device, choice("matmul_rows", rows[t % rows.size()])); }) == "" ? 0
                                                                                                                   : 1;
                }
            });
        }
        for (std::thread& t : threads) {
            t.join();
        }
        CHECK(failures == 0);
        CHECK(Device::create(options).capabilities().tuning.starts_with("matmul_rows="));
    }

    TEST_CASE("tuning: a file that is damaged, or of another version, is not used, which explain() says") {
        const ByFile by_file;
        const TemporaryFolder folder;
        const DeviceOptions options{.cache_folder = folder.path()};
        const std::filesystem::path file = tuning_file(Device::create(options));
        for (const char* text : {"", "vkformer tuning 2\nmatmul_rows=8\n", "vkformer tuning 1\nmatmul_rows=8",
                                 "vkformer tuning 1\nmatmul_rows\n", "vkformer tuning 1\n\xff\xfe\n", "\n\n\n"}) {
            CAPTURE(text);
            std::ofstream(file, std::ios::binary) << text;
            const Device device = Device::create(options);
            CHECK(device.capabilities().tuning == "");
            CHECK(contains(explained(device), "tuning none of " + utf8_name(file) + ", which is "));
        }
        std::filesystem::remove(file);
        std::filesystem::create_symlink("nowhere", file);
        CHECK(contains(explained(Device::create(options)), "tuning none of " + utf8_name(file) + ", which is "));
        std::filesystem::remove(file);
        std::filesystem::create_directory(file);
        CHECK(Device::create(options).capabilities().tuning == "");
        const std::uint32_t rows = tunable("matmul_rows").values(device().capabilities()).front();
        const std::string fits = choice("matmul_rows", rows);
        CHECK(contains(error_of([&] { save_tuning(Device::create(options), fits); }),
                       "cannot be written: Is a directory"));
        for (const std::string& name : folder.files()) {  // nothing half written is left
            CHECK((name.ends_with(".tuning") || name.ends_with(".pipelines")));
        }
        CHECK(contains(error_of([&] { save_tuning(Device::create(options), "rows"); }), "is not name=number"));
    }

    TEST_CASE("tuning: a search takes what is faster most of the time, and else what is usual") {
        const Rounds usual{10, 11, 10, 12, 10, 11, 10, 30};
        CHECK(best_of({usual}, 0) == 0);
        CHECK(best_of({usual, {9, 9, 9, 9, 9, 9, 9, 9}}, 0) == 1);
        CHECK(best_of({usual, {9, 9, 9, 9, 9, 9, 9, 9}, {8, 8, 8, 8, 8, 8, 8, 8}}, 0) == 2);
        CHECK(best_of({{8, 8, 8}, {9, 9, 9}}, 0) == 0);
        CHECK(best_of({{10, 10, 10, 10}, {9.9, 9.9, 9.9, 9.9}}, 0) == 0);          // by 1 %
        CHECK(best_of({{10, 10, 10, 10, 10, 10}, {5, 11, 5, 11, 5, 5}}, 0) == 0);  // four of six
        CHECK(best_of({{9, 9, 9}, {10, 10, 10}}, 1) == 0);
        CHECK(median({3, 1, 2}) == 2);
    }
}

}  // namespace vkf::test
