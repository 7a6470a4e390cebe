// SPDX-License-Identifier: Apache-2.0
// Blocks that are computed again: the gradients are those of blocks that are kept, bit for bit, and
// need less memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string_view>

#include "layers/torch.h"
#include "ops/gradients.h"
#include "ops/optimizer.h"
#include "ops/recompute.h"
#include "runtime/compile/plan.h"
#include "runtime/graph/node.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

namespace {

/// A block that is computed again, or just a block of the source.
struct BlockIf {
    BlockIf(Graph& g, bool again) {
        if (again) {
            block.emplace(g);
        }
    }
    std::optional<Recompute> block = {};
};

/// What is differentiated, and at what beside the input and the weights.
struct DescribedBlock {
    Value loss;
    std::vector<Value> inside = {};
};

using DescribeBlock = std::function<DescribedBlock(Value x, bool again)>;

struct BlockRun {
    std::vector<Tensor> results;  ///< the loss, and the gradients
    std::string explained;
};

BlockRun run_blocks(const DescribeBlock& describe, const Tensor& x, bool again) {
    Graph g;
    const Value input = g.input("x", Shape(x.shape.begin(), x.shape.end()));
    const DescribedBlock described = describe(input, again);
    std::vector<Value> of{input};
    std::vector<HostTensor> tensors;
    std::vector<std::vector<float>> numbers;
    numbers.reserve(g.storages().size());
    for (std::size_t s = 0; s < g.storages().size(); ++s) {
        const StorageInfo storage = g.storages()[s];
        if (storage.kind == StorageKind::weight) {
            of.push_back(g.weight(storage.name, storage.shape));
            std::vector<std::int64_t> shape;
            for (const Dim& d : storage.shape) {
                shape.push_back(d.constant());
            }
            numbers.push_back(random_tensor(shape, static_cast<std::uint32_t>(s + 3), 0.5).floats());
            tensors.push_back(host_tensor(storage.name, shape, numbers.back()));
        }
    }
    of.insert(of.end(), described.inside.begin(), described.inside.end());
    std::vector<Value> results = gradients(described.loss, of);
    results.push_back(described.loss);
    for (std::size_t i = 0; i < results.size(); ++i) {
        g.output("result " + std::to_string(i), contiguous(results[i]));
    }
    Program program = device().compile(g, device().load(tensors));
    upload(program, "x", x);
    program.run();
    BlockRun out{{}, program.explain()};
    for (std::size_t i = 0; i < results.size(); ++i) {
        out.results.push_back(download(program, "result " + std::to_string(i)));
    }
    return out;
}

/// Empty where both ways give the same bits, and the second computes something again.
std::string differs(const DescribeBlock& describe, const Tensor& x) {
    std::string out;
    const auto compare = [&](const char* where) {
        const BlockRun kept = run_blocks(describe, x, false), again = run_blocks(describe, x, true);
        for (std::size_t i = 0; i < kept.results.size(); ++i) {
            out += same_bits(kept.results[i], again.results[i]) ? "" : "result " + std::to_string(i) + where;
        }
        out += contains(kept.explained, "recomputed.") ? "all is kept, and computed again; " : "";
        out += contains(again.explained, "recomputed.") ? "" : "nothing is computed again; ";
    };
    compare("; ");
    const AsSmallGpu small_gpu;
    compare(" as on a small GPU; ");
    return out;
}

Value encoder_layer(Value x, int i, bool norm_first, Activation activation, std::int64_t wide = 24) {
    return torch::transformer_encoder_layer(x, {.name = "layers." + std::to_string(i),
                                                .nhead = 2,
                                                .dim_feedforward = wide,
                                                .activation = activation,
                                                .norm_first = norm_first});
}

/// Eight layers, each a block, with their update.
void describe_training(Graph& g, bool again) {
    Value x = g.input("x", {4, 192, 64});
    for (int i = 0; i < 8; ++i) {
        const BlockIf block(g, again);
        x = encoder_layer(x, i, true, Activation::gelu, 256);
    }
    const std::vector<Value> parameters = trainable(g);
    update(parameters, gradients(sum(x * x), parameters), Sgd{});
}

}  // namespace

TEST_SUITE_BEGIN("recompute");

TEST_CASE("recompute: layers of a Transformer have the same gradients") {
    for (const bool norm_first : {true, false}) {
        for (const Activation activation : {Activation::relu, Activation::gelu}) {
            CAPTURE(norm_first);
            CHECK(differs(
                      [&](Value x, bool again) {
                          for (int i = 0; i < 3; ++i) {
                              const BlockIf block(x.graph(), again);
                              x = encoder_layer(x, i, norm_first, activation);
                          }
                          return DescribedBlock{sum(x * x)};
                      },
                      random_tensor({2, 7, 16}, 1)) == "");
        }
    }
}

TEST_CASE("recompute: fused attention, and what dropout draws") {
    CHECK(differs(
              [](Value x, bool again) {
                  for (int i = 0; i < 2; ++i) {
                      const BlockIf block(x.graph(), again);
                      const Value h = torch::multihead_attention(x, x, x,
                                                                 {.name = "attention." + std::to_string(i),
                                                                  .num_heads = 2,
                                                                  .is_causal = true,
                                                                  .dropout = 0.3f,
                                                                  .dropout_seed = 5})
                                          .y;
                      x = x + dropout(h, 0.25f, 7);
                  }
                  return DescribedBlock{sum(x * x)};
              },
              random_tensor({1, 140, 16}, 1)) == "");
}

TEST_CASE("recompute: blocks in blocks") {
    CHECK(differs(
              [](Value x, bool again) {
                  Graph& g = x.graph();
                  for (int i = 0; i < 2; ++i) {
                      const BlockIf outer(g, again);
                      for (int j = 0; j < 2; ++j) {
                          const BlockIf inner(g, again);
                          x = encoder_layer(x, 2 * i + j, true, Activation::silu);
                      }
                      x = activate(x, Activation::tanh);
                  }
                  return DescribedBlock{sum(x * x)};
              },
              random_tensor({1, 5, 8}, 2)) == "");
}

TEST_CASE("recompute: a block that has ended already ends no other") {
    Graph g;
    const Value x = g.input("x", {4});
    {
        const Recompute outer(g);
        {
            const Recompute inner(g);
            relu(x);
            g.end_recompute();
            g.end_recompute();
        }
        CHECK_FALSE(g.in_recompute());
    }
    CHECK(g.recomputed().size() == 2);
    CHECK_THROWS_AS(g.end_recompute(), Error);
}

TEST_CASE("recompute: a block that reads parameters alone, and one with the loss in it") {
    CHECK(differs(
              [](Value x, bool again) {
                  Graph& g = x.graph();
                  Value w;
                  {
                      const BlockIf block(g, again);
                      w = rms_norm(silu(g.weight("w", {6, 5}) * g.weight("v", {6, 1})), {}, 1e-5f);
                  }
                  const BlockIf block(g, again);
                  const Value y = silu(linear(x, w));
                  return DescribedBlock{sum(y * y)};
              },
              random_tensor({3, 5}, 3)) == "");
}

TEST_CASE("recompute: values that are used inside and outside, and gradients at values inside") {
    CHECK(differs(
              [](Value x, bool again) {
                  Graph& g = x.graph();
                  Value y, z, inside;
                  {
                      const BlockIf block(g, again);
                      inside = silu(linear(x, g.weight("w", {8, 8})));
                      y = activate(inside, Activation::tanh);
                      z = slice(y, 1, 2, 4) * slice(inside, 1, 0, 4) + slice(y, 1, 0, 4);
                  }
                  const Value out = matmul(y, z, {.transpose_b = false}) * slice(y, 1, 4, 4);
                  return DescribedBlock{sum(out * out * slice(z, 1, 0, 4)), {inside, y, z}};
              },
              random_tensor({8, 8}, 4)) == "");
}

TEST_CASE("recompute: products of the block's input are no launch with those that compute it again") {
    const DescribeBlock describe = [](Value x, bool again) {
        Graph& g = x.graph();
        const BlockIf block(g, again);
        const Value q = linear(x, g.weight("q", {8, 8})), k = linear(x, g.weight("k", {8, 8}));
        return DescribedBlock{sum(silu(scale(q, 2.0f) * scale(k, 0.5f)))};
    };
    CHECK(differs(describe, random_tensor({5, 8}, 5)) == "");
    Graph g;
    const Value x = g.input("x", {5, 8});
    const Value loss = describe(x, true).loss;
    g.output("gradient", contiguous(gradients(loss, {x}).front()));
    g.output("loss", loss);
    const Plan plan = make_plan(g, Capabilities{});
    std::string notes = "\n";
    for (const std::string& note : plan.notes) {
        notes += note + "\n";
    }
    CAPTURE(notes);
    CHECK(contains(notes, "\nmatmul: one launch with matmul\n"));
    CHECK(contains(notes, "\nrecomputed.matmul: one launch with recomputed.matmul\n"));
}

TEST_CASE("recompute: memory grows by a layer's input a layer") {
    for (const bool processor : {false, true}) {
        CAPTURE(processor);
        Capabilities c;
        if (processor) {
            c.type = DeviceType::cpu;
            c.exact_subgroup_size = 8;
            c.subgroup_shuffle = true;
            c.unified_memory = true;
        }
        Graph kept, again;
        describe_training(kept, false);
        describe_training(again, true);
        const std::uint64_t all = make_plan(kept, c).memory.scratch, less = make_plan(again, c).memory.scratch;
        CHECK(static_cast<double>(less) < 0.3 * static_cast<double>(all));
    }
}

TEST_CASE("recompute: no gradient reads what a block computed, but for what others read") {
    Graph g;
    describe_training(g, true);
    const auto storage = [&](ValueId id) { return g.values()[id].storage; };
    REQUIRE(g.recomputed().size() == 8);
    for (const NodeRange& block : g.recomputed()) {
        std::set<StorageId> inside;
        for (NodeId n = block.first; n < block.last; ++n) {
            for (const ValueId out : g.nodes()[n].outputs) {
                inside.insert(storage(out));
            }
        }
        std::set<StorageId> read;
        for (NodeId n = block.last; n < g.nodes().size(); ++n) {
            for (const ValueId in : g.nodes()[n].inputs) {
                if (inside.count(storage(in)) != 0) {
                    read.insert(storage(in));
                }
            }
        }
        CHECK(read.size() == 1);  // the layer's result
        CHECK(read.count(storage(g.nodes()[block.last - 1].outputs.front())) == 1);
    }
}

TEST_CASE("recompute: attention gives its log-sum-exp wherever it is computed, so one kernel does it") {
    Graph g;
    Value x = g.input("x", {2, 6, 8});
    const Value input = x;
    {
        const Recompute outer(g);
        for (int i = 0; i < 2; ++i) {
            const Recompute inner(g);
            x = encoder_layer(x, i, false, Activation::relu);
        }
    }
    gradients(sum(x), {input});
    int attentions = 0;
    for (const NodeInfo& node : g.nodes()) {
        if (std::string_view(node.op->name) == "scaled_dot_product_attention") {
            ++attentions;
            CHECK(node.outputs.size() == 3);  // beside y and the weights
        }
    }
    CHECK(attentions == 6);  // each thrice: forward, within the outer block, within its own
}

TEST_CASE("recompute: errors name what is wrong") {
    Graph g;
    const Value x = g.input("x", {4}), s = g.state("s", {4});
    Value y;
    {
        const Recompute block(g);
        y = silu(x);
        CHECK(contains(error_of([&] { gradients(sum(y), {x}); }), "a block that is computed again has not ended"));
        copy_into(s, y);
    }
    CHECK(contains(error_of([&] { gradients(sum(y), {x}); }), "copy_into writes s (4) F32: a block that is computed"));
    CHECK(contains(error_of([&] { g.end_recompute(); }), "no block that is computed again is open"));

    Graph h;
    const Value a = h.input("a", {4}), state = h.state("state", {4});
    Value z;
    {
        const Recompute block(h);
        z = silu(a) * embedding(argmax(state), h.weight("table", {4, 4}));
    }
    const Value loss = sum(z);
    copy_into(state, a);
    CHECK(contains(error_of([&] { gradients(loss, {a}); }), "which copy_into writes later"));
}

TEST_SUITE_END();
