// SPDX-License-Identifier: Apache-2.0
// Several products of one x: in one launch where their weights lie behind each other, in as many as
// there are weights where not.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <iterator>
#include <string_view>

#include "layers/attention.h"
#include "models/decoder.h"
#include "runtime/compile/plan.h"
#include "runtime/compile/weight_order.h"
#include "runtime/device/device.h"
#include "runtime/device/program.h"
#include "tests/believed.h"
#include "tests/device.h"
#include "tests/fake_vulkan.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

/// Random tensors of so many names, in memory for as long as it lives.
class ProjectionsFile {
public:
    void add(const std::string& name, const Sizes& shape) {
        floats_.push_back(random_tensor(shape, static_cast<std::uint32_t>(floats_.size() + 7)).floats());
        tensors.push_back({name, DType::f32, shape, std::as_bytes(std::span(floats_.back()))});
    }

    std::vector<HostTensor> tensors;

private:
    std::deque<std::vector<float>> floats_;
};

struct ProjectionsCase {
    std::int64_t rows, width;
    std::vector<std::int64_t> columns;
    bool bias = false;
};

/// Weights w0, w1, ... and biases b0, b1, ..., in the order in which a checkpoint sorts them: the
/// biases first, the last one foremost.
ProjectionsFile file_of(const ProjectionsCase& c) {
    ProjectionsFile file;
    for (const char* what : {"b", "w"}) {
        for (std::size_t i = c.columns.size(); i-- > 0;) {
            const Sizes shape = *what == 'w' ? Sizes{c.columns[i], c.width} : Sizes{c.columns[i]};
            file.add(what + std::to_string(i), shape);
        }
    }
    return file;
}

/// y0, y1, ..., a linear() each.
void describe(Graph& g, const ProjectionsCase& c) {
    const Value x = g.input("x", {c.rows, c.width});
    for (std::size_t i = 0; i < c.columns.size(); ++i) {
        const std::string n = std::to_string(i);
        const Value w = g.weight("w" + n, {c.columns[i], c.width});
        g.output("y" + n, contiguous(linear(x, w, c.bias ? g.weight("b" + n, {c.columns[i]}) : Value())));
    }
}

struct Run {
    std::string explained;
    std::vector<Tensor> parts;
    std::size_t products = 0;
};

/// Not what puts a product's parts together.
bool is_product(const PlannedDispatch& d) {
    const std::string_view name = d.dispatch.kernels.front().shader->name;
    return name.starts_with("mat") && name != "matmul_merge";
}

Run run(const Device& on, const ProjectionsCase& c, bool rewrite, const Weights& weights) {
    Graph g;
    describe(g, c);
    Program program = on.compile(g, weights, {.rewrite = rewrite});
    upload(program, "x", random_tensor({c.rows, c.width}, 1));
    program.run();
    Run r{program.explain(), {}, 0};
    for (std::size_t i = 0; i < c.columns.size(); ++i) {
        r.parts.push_back(download(program, "y" + std::to_string(i)));
    }
    const auto& all = plan_of(program).dispatches;
    r.products = static_cast<std::size_t>(std::count_if(all.begin(), all.end(), is_product));
    return r;
}

bool same_parts(const Run& a, const Run& b) {
    return a.parts.size() == b.parts.size() &&
           std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(),
                      [](const Tensor& x, const Tensor& y) { return x.shape == y.shape && same_bits(x, y); });
}

Weights load_in_order(const Device& on, const ProjectionsCase& c, std::optional<WeightType> type = {}) {
    Graph g;
    describe(g, c);
    return on.load(g, file_of(c).tensors, {.matrices = type});
}

/// Sizes of which every tensor's bytes are a multiple of any alignment that Vulkan has.
const ProjectionsCase kAligned{5, 64, {192, 64, 128}, true};

/// Whether two products of so many columns are one launch, after a check that what is made of them
/// has the same bits as without.
bool in_one_launch(const Sizes& x_shape, std::int64_t columns, const std::function<Value(Value a, Value b)>& rest) {
    ProjectionsFile file;
    file.add("w0", {columns, 64});
    file.add("w1", {columns, 64});
    std::vector<Tensor> answers;
    std::string explained;
    for (const bool rewrite : {false, true}) {
        Graph g;
        const Dim tokens = x_shape.size() == 3 ? g.symbol("tokens", x_shape[1]) : Dim(64);
        const Value x = g.input("x", x_shape.size() == 3 ? Shape{x_shape[0], tokens, 64} : Shape{x_shape[0], 64});
        const Value a = linear(x, g.weight("w0", {columns, 64})), b = linear(x, g.weight("w1", {columns, 64}));
        g.output("y", contiguous(rest(a, b)));
        g.output("z", scale(a, 2.0f) + b);
        Program program = device().compile(g, device().load(g, file.tensors), {.rewrite = rewrite});
        if (x_shape.size() == 3) {
            program.set("tokens", x_shape[1]);
        }
        upload(program, "x", random_tensor(x_shape, 1));
        program.run();
        answers.push_back(download(program, "y"));
        explained = program.explain();
    }
    CHECK(same_bits(answers[0], answers[1]));
    return contains(explained, "2 weights, one launch");
}

}  // namespace

TEST_SUITE_BEGIN("projections");

TEST_CASE("projections: one launch gives linear()'s bits, for every type, number of rows and bias") {
    using enum WeightType;
    for (const WeightType type : {f32, f16, bf16, int8, int4}) {
        for (const std::int64_t rows : {1, 3, 5, 33, 130}) {
            for (const bool bias : {false, true}) {
                CAPTURE(name_of(type));
                CAPTURE(rows);
                CAPTURE(bias);
                const ProjectionsCase c{rows, 192, {192, 64, 64}, bias};
                const Weights weights = load_in_order(device(), c, type);
                const auto check = [&] {
                    const Run one = run(device(), c, true, weights);
                    CHECK(contains(one.explained, "3 weights, one launch"));
                    CHECK(one.products == 1);
                    CHECK(same_parts(one, run(device(), c, false, weights)));
                };
                check();
                const AsSmallGpu small_gpu;
                check();
            }
        }
    }
}

TEST_CASE("projections: large matrices, and such as are large together alone, which have kernels of their own") {
    for (const std::int64_t rows : {1, 4, 40}) {
        for (const ProjectionsCase& c :
             {ProjectionsCase{rows, 512, {1024, 512, 512}, true}, ProjectionsCase{rows, 512, {256, 256, 256}, true}}) {
            const Weights weights = load_in_order(device(), c, WeightType::f16);
            const Run one = run(device(), c, true, weights);
            CHECK(one.products == 1);
            CHECK(same_parts(one, run(device(), c, false, weights)));
        }
    }
}

TEST_CASE("projections: weights that lie apart take a launch each, and explain() says why") {
    const ProjectionsCase& c = kAligned;
    ProjectionsFile file = file_of(c);
    const auto check = [&](const Weights& weights, const std::string& why, std::size_t products) {
        const Run separate = run(device(), c, true, weights);
        CHECK(contains(separate.explained, "not one launch with " + why));
        CHECK(separate.products == products);
        CHECK(same_parts(separate, run(device(), c, false, weights)));
    };
    check(device().load(file.tensors), "matmul: w1 does not lie behind w0", 3);
    Graph g;
    describe(g, c);
    LoadOptions mixed;
    mixed.choose = [](const HostTensor& t) {
        return std::optional(t.name == "w2" ? WeightType::int8 : WeightType::f16);
    };
    check(device().load(g, file.tensors, mixed), "matmul: w2 is kept as int8, w1 as f16", 2);
    std::stable_sort(file.tensors.begin(), file.tensors.end(), [](const HostTensor& a, const HostTensor& b) {
        return (a.name[0] == 'w') > (b.name[0] == 'w') || (a.name[0] == 'w' && b.name[0] == 'w' && a.name < b.name);
    });
    check(device().load(file.tensors), "matmul: b1 does not lie behind b0", 3);  // the weights do
}

TEST_CASE("projections: what has an epilogue, a name, a reader of dense rows or another x is left as it is") {
    const auto products = [](const std::function<void(Graph&, Value x, const std::vector<Value>& w)>& f) {
        Graph g;
        f(g, g.input("x", {4, 8}), {g.weight("w0", {16, 8}), g.weight("w1", {16, 8}), g.weight("w2", {16, 8})});
        const Plan plan = make_plan(g, Capabilities());
        std::string notes;
        for (const std::string& note : plan.notes) {
            notes += note + "\n";
        }
        return std::pair(std::count_if(plan.dispatches.begin(), plan.dispatches.end(), is_product), notes);
    };
    const auto all = products([](Graph& g, Value x, const std::vector<Value>& w) {
        g.output("y", linear(x, w[0]) * relu(linear(x, w[1]) + relu(linear(x, w[2]) * linear(x, w[0]))));
    });
    CHECK(all.first == 4);  // each takes another in
    const auto named = products([](Graph& g, Value x, const std::vector<Value>& w) {
        const Value a = linear(x, w[0]), b = linear(x, w[1]), c = linear(x, w[2]);
        g.output("a", a);
        g.output("y", matmul(b, c, {.transpose_b = true}));
    });
    CHECK(named.first == 3);
    CHECK(contains(named.second, "matmul: not one launch with matmul: matmul is the output a"));
    const auto dense = products([](Graph& g, Value x, const std::vector<Value>& w) {
        g.output("y", softmax(linear(x, w[0])) * gelu(scale(linear(x, w[1]), 2.0f)));
    });
    CHECK(contains(dense.second, "softmax reads matmul densely"));
    const auto flat = products([](Graph& g, Value x, const std::vector<Value>& w) {
        g.output("y", contiguous(reshape(linear(x, w[0]), {64})) + contiguous(reshape(linear(x, w[1]), {64})));
    });
    CHECK(flat.first == 2);
    CHECK(contains(flat.second, "contiguous reads matmul densely"));
    const auto other = products([](Graph& g, Value x, const std::vector<Value>& w) {
        g.output("y", matmul(linear(x, w[0]), linear(relu(x), w[1]), {.transpose_b = true}));
    });
    CHECK(other.first == 3);
    CHECK(other.second.empty());
    const auto later = products([](Graph& g, Value x, const std::vector<Value>& w) {
        const Value y = matmul(linear(x, w[0]), linear(x, w[1]), {.transpose_b = true});
        g.output("y", matmul(y, contiguous(linear(x, w[2]))));  // beyond where the first two meet
    });
    CHECK(later.first == 4);
    CHECK(contains(later.second, "one launch with matmul\n"));
}

TEST_CASE("projections: where columns of wider rows would be summed up in another order, products stay apart") {
    // down columns 512 apart, and 1024: those are divided
    const auto down = [](Value a, Value b) { return matmul(transpose(a, 0, 1), b); };
    CHECK_FALSE(in_one_launch({600, 64}, 512, down));
    CHECK(in_one_launch({600, 64}, 64, down));
    CHECK(in_one_launch({500, 64}, 512, down));
    CHECK_FALSE(in_one_launch({600, 10, 64}, 64, [](Value a, Value b) {
        return matmul(permute(a, {1, 2, 0}), permute(b, {1, 0, 2}));
    }));
    // rows of 66 are read number by number, of 132 by fours; a single row by fours where it begins
    // at one
    for (const std::int64_t rows : {1, 7}) {
        const auto norm = [](Value, Value b) { return layer_norm(slice(b, 1, 0, 64), {}, {}); };
        const auto weights = [](Value, Value b) { return softmax(slice(b, 1, 0, 64)); };
        CHECK_FALSE(in_one_launch({rows, 64}, 66, norm));
        CHECK_FALSE(in_one_launch({rows, 64}, 66, weights));
        CHECK(in_one_launch({rows, 64}, 68, norm));
        CHECK_FALSE(in_one_launch({rows, 64}, 66, [&](Value, Value b) {
            const Value heads = reshape(slice(b, 1, 0, 64), {1, rows, 4, 16});
            const Value q = transpose(heads, 1, 2), k = contiguous(q);
            return scaled_dot_product_attention(q, k, k).y;
        }));
    }
}

TEST_CASE("projections: what an alignment parts, what is no whole weight, and a weight twice take a launch each") {
    for (const std::uint64_t wanted : {16, 64}) {
        const Believed aligned([&](Capabilities& c) { c.storage_alignment = std::max(c.storage_alignment, wanted); });
        const ProjectionsCase odd{3, 7, {4, 8}, true};  // 112 bytes and 224
        const Weights weights = load_in_order(device(), odd);
        const Run separate = run(device(), odd, true, weights);
        const bool together = 112 % device().capabilities().storage_alignment == 0;
        CHECK(contains(separate.explained, "w1 does not lie behind w0") != together);
        CHECK(same_parts(separate, run(device(), odd, false, weights)));
    }
    Graph g;
    const Value w = g.weight("w0", {192, 64});
    const Value x = g.input("x", {2, 64});
    g.output("y", matmul(linear(x, w), linear(x, w), {.transpose_b = true}));
    CHECK(contains(device().compile(g, load_in_order(device(), kAligned)).explain(), "w0 does not lie behind w0"));
    Graph parts;
    const Value rows = parts.weight("w0", {192, 64}), z = parts.input("x", {2, 64});
    parts.output("z",
                 matmul(linear(z, slice(rows, 0, 0, 96)), linear(z, slice(rows, 0, 96, 96)), {.transpose_b = true}));
    CHECK(make_plan(parts, device().capabilities()).notes.empty());
}

TEST_CASE("projections: weights that are together more than a storage buffer may be are cut") {
    fake::Vulkan vulkan;
    vulkan.change_limits([](VkPhysicalDeviceLimits& limits) { limits.maxStorageBufferRange = 1u << 18; });
    Device small = Device::create({.get_instance_proc_addr = vulkan.entry()});
    for (const WeightType type : {WeightType::f32, WeightType::int8}) {
        CAPTURE(name_of(type));
        const ProjectionsCase c{3, 512, {320, 64, 384}, true};
        const Weights weights = load_in_order(small, c, type);
        const Run cut = run(small, c, true, weights);
        CHECK(contains(cut.explained, "3 weights, one launch"));
        CHECK(cut.products > 1);
        CHECK(same_parts(cut, run(small, c, false, weights)));
    }
    CHECK(last_words(std::move(small)) == "");
}

TEST_CASE("projections: one program at every length, its parts read as views") {
    const ProjectionsCase c{40, 64, {64, 64, 64}, false};
    const Weights weights = load_in_order(device(), c);
    const auto answer = [&](bool rewrite, std::int64_t tokens) {
        Graph g;
        const Value x = g.input("x", {g.symbol("batch", 2), g.symbol("tokens", c.rows), c.width});
        std::vector<Value> w;
        for (const char* name : {"w0", "w1", "w2"}) {
            w.push_back(g.weight(name, {64, c.width}));
        }
        const Value q = linear(x, w[0]), k = linear(x, w[1]), v = linear(x, w[2]);
        g.output("y", matmul(softmax(matmul(q, k, {.scale = 0.125f, .transpose_b = true})), v));
        Program program = device().compile(g, weights, {.rewrite = rewrite});
        CHECK(contains(program.explain(), "3 weights, one launch") == rewrite);
        program.set("batch", 2);
        program.set("tokens", tokens);
        upload(program, "x", random_tensor({2, tokens, c.width}, 3));
        program.run();
        return download(program, "y");
    };
    for (const std::int64_t tokens : {1, 7, 40}) {
        CHECK(same_bits(answer(true, tokens), answer(false, tokens)));
    }
}

TEST_CASE("projections: grouped-query attention with RoPE, norms of heads and a cache answers the same") {
    const Tensor x = random_tensor({1, 13, 64}, 5);
    const auto describe_layer = [](Graph& g) {
        const Dim start = g.symbol("start", 16);
        GroupedQueryAttentionOptions o{
            .name = "attn", .heads = 4, .kv_heads = 2, .head_dim = 32, .rope = Rope{.layout = RopeLayout::interleaved}};
        o.qkv_bias = true;
        o.qk_norm_eps = 1e-6f;
        o.cache = kv_cache(g, "cache", 1, 16, 2, 32, start);
        g.output("y", grouped_query_attention(g.input("x", {1, g.symbol("tokens", 16), 64}), o).y);
    };
    ProjectionsFile file;
    Graph named;
    describe_layer(named);
    for (const StorageInfo& s : named.storages()) {
        if (s.kind == StorageKind::weight) {
            Sizes shape;
            std::transform(s.shape.begin(), s.shape.end(), std::back_inserter(shape),
                           [](const Dim& d) { return d.constant(); });
            file.add(s.name, shape);
        }
    }
    const Weights weights = device().load(named, file.tensors);
    const auto answer = [&](bool rewrite) {
        Graph g;
        describe_layer(g);
        Program program = device().compile(g, weights, {.rewrite = rewrite});
        CHECK(contains(program.explain(), "attn.q_proj.projections") == rewrite);
        CHECK(contains(program.explain(), "3 weights, one launch") == rewrite);
        return run_in_chunks(program, x, {6, 1, 1, 5});
    };
    CHECK(same_bits(answer(true), answer(false)));
}

TEST_CASE("projections: some columns of the last row, whose number is a symbol, and a product of one column") {
    const ProjectionsCase c{16, 64, {64, 1, 64}, false};
    const auto answer = [&](bool rewrite, const char* output) {
        Graph g;
        const Dim tokens = g.symbol("tokens", c.rows);
        const Value x = g.input("x", {tokens, c.width});
        const Value a = linear(x, g.weight("w0", {64, 64})), one = linear(x, g.weight("w1", {1, 64}));
        const Value b = linear(x, g.weight("w2", {64, 64}));
        const auto last = [&](Value v) { return slice(slice(v, 0, tokens - 1, 1), -1, 5, 30); };
        g.output("a", contiguous(last(a)));
        g.output("b", contiguous(last(b)));
        g.output("gated", contiguous(a * one));
        const Weights weights = device().load(g, file_of(c).tensors);
        Program program = device().compile(g, weights, {.rewrite = rewrite});
        CHECK(contains(program.explain(), "weights, one launch") == rewrite);
        program.set("tokens", 7);
        upload(program, "x", random_tensor({7, c.width}, 3));
        program.run();
        return download(program, output);
    };
    for (const char* output : {"a", "b", "gated"}) {
        CAPTURE(output);
        CHECK(same_bits(answer(true, output), answer(false, output)));
    }
}

TEST_CASE("projections: what would be more than a storage buffer together stays apart") {
    Graph g;
    const Value x = g.input("x", {64, 64});
    const Value a = linear(x, g.weight("a", {512, 64}));
    const Value b = linear(x, g.weight("b", {512, 64}));
    g.output("y", matmul(a, b, {.transpose_b = true}));
    Capabilities small;
    small.storage_range = 3 * 64 * 512 * 4 / 2;
    small.tuning = "matmul_groups=1";  // no sums in parts
    const Plan plan = make_plan(g, small);
    CHECK(plan.dispatches.size() == 3);
    REQUIRE(plan.notes.size() == 1);
    CHECK(contains(plan.notes[0], "together they are more than one tensor may be"));
}

TEST_CASE("projections: weights that two readers want in different orders are all there") {
    Graph g;
    const Value x = g.input("x", {2, 64}), y = g.input("y", {2, 64});
    const Value a = g.weight("a", {64, 64}), b = g.weight("b", {64, 64}), c = g.weight("c", {64, 64});
    const auto product = [](Value v, Value first, Value second) {
        const Value l = linear(v, first), r = linear(v, second);
        return matmul(l, r, {.transpose_b = true});
    };
    g.output("first", product(x, a, b));
    g.output("second", product(y, b, a));
    g.output("third", product(relu(x), c, b));
    std::string names;
    for (const StorageId s : weight_order(g)) {
        names += g.storages()[s].name;
    }
    CHECK(names == "abc");
}

TEST_CASE("projections: a decoder's weights lie for one launch, and count once") {
    const Checkpoint checkpoint(VKFORMER_SOURCE_DIR "/samples/generate");
    const DecoderModel model = read_decoder(checkpoint);
    for (const WeightType type : {WeightType::f32, WeightType::int4}) {
        const Weights weights = load_decoder(device(), checkpoint, model, {.matrices = type});
        Decoder decoder(device(), weights, model, {.max_tokens = 32});
        for (Program* program : {&decoder.prompt_program(), &decoder.step_program()}) {
            const std::string text = program->explain();
            CHECK(!contains(text, "not one launch"));
            std::int64_t launches = 0;
            for (std::size_t at = text.find("weights, one launch"); at != std::string::npos;
                 at = text.find("weights, one launch", at + 1)) {
                ++launches;
            }
            CHECK(launches == static_cast<std::int64_t>(model.facts().layers.size()));
            CHECK(program->memory().weights == weights.bytes());
        }
    }
}

TEST_SUITE_END();
