// SPDX-License-Identifier: Apache-2.0
// Collectives as ops of a graph, and the layers that Megatron-LM has of them.
#include "ops/collectives.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "layers/attention.h"
#include "layers/parallel.h"
#include "layers/torch.h"
#include "ops/gradients.h"
#include "runtime/graph/shard.h"
#include "tests/device.h"
#include "tests/faulty_transport.h"
#include "tests/op_check.h"
#include "tests/ranks.h"
#include "tests/reference.h"

using namespace vkf;
using namespace vkf::test;

namespace {

/// The part of a tensor of fp32 that a shard is.
Tensor part_of(const Tensor& whole, const Shard& shard) {
    const std::vector<float> floats = whole.floats();
    std::vector<float> owned;
    const HostTensor cut_out = cut({"w", DType::f32, whole.shape, std::as_bytes(std::span(floats))}, shard, owned);
    std::vector<double> numbers;
    for (std::size_t i = 0; i < cut_out.data.size() / sizeof(float); ++i) {
        numbers.push_back(reinterpret_cast<const float*>(cut_out.data.data())[i]);
    }
    return Tensor(cut_out.shape, std::move(numbers));
}

/// Loads what a graph of a rank asks for, cut out of whole tensors, and masks as they are.
Weights load_shards(const Graph& graph, const std::map<std::string, Tensor>& whole,
                    const std::map<std::string, std::vector<std::int32_t>>& masks = {}) {
    std::vector<std::vector<float>> kept;
    std::vector<HostTensor> tensors;
    for (const StorageInfo& s : graph.storages()) {
        if (s.kind == StorageKind::weight && s.dtype == DType::f32) {
            const Tensor part = s.shard ? part_of(whole.at(s.name), *s.shard) : whole.at(s.name);
            kept.push_back(part.floats());
            tensors.push_back({s.name, DType::f32, part.shape, {}});
        }
    }
    for (std::size_t i = 0; i < kept.size(); ++i) {
        tensors[i].data = std::as_bytes(std::span(kept[i]));
    }
    for (const auto& [name, numbers] : masks) {
        tensors.push_back({name, DType::i32, {}, std::as_bytes(std::span(numbers))});
        for (const StorageInfo& s : graph.storages()) {
            for (std::size_t d = 0; s.name == name && d < s.shape.size(); ++d) {
                tensors.back().shape.push_back(s.shape[d].constant());
            }
        }
    }
    return device().load(tensors);
}

}  // namespace

TEST_SUITE_BEGIN("collectives");

TEST_CASE("collectives: a sum over ranks in the middle of a graph, of views and of graphs' inputs and outputs") {
    const Tensor x = random_tensor({3, 4, 5}, 1);
    const auto errors = on_ranks(3, [&](const std::shared_ptr<Communicator>& c) {
        c->limit(60);
        Graph g;
        const Value in = g.input("x", {3, g.symbol("n", 4), 5});
        g.output("inputs", all_reduce(in));
        g.output("twice", scale(all_reduce(scale(in, 2.0f)), 0.5f));
        g.output("view", all_reduce(transpose(in, 0, 1)));
        g.output("again", all_reduce(all_reduce(scale(in, 1.0f))));
        CompileOptions options;
        options.communicator = c;
        Program program = device().compile(g, {}, options);
        CHECK(program.explain().find("all_reduce of rank " + std::to_string(c->rank()) + " of 3, on the host") !=
              std::string::npos);
        CHECK(program.memory().exchanged > 0);
        for (const std::int64_t n : {4, 1, 0}) {
            program.set("n", n);
            Tensor part({3, n, 5});
            for (std::int64_t i = 0; i < 3; ++i) {
                for (std::int64_t j = 0; j < n; ++j) {
                    for (std::int64_t k = 0; k < 5; ++k) {
                        part.at({i, j, k}) = x.at({i, j, k});
                    }
                }
            }
            upload(program, "x", part);
            program.run();
            Tensor sum = part, all = part;
            for (std::size_t i = 0; i < sum.data.size(); ++i) {
                sum.data[i] *= 3;
                all.data[i] *= 9;
            }
            CHECK(difference(download(program, "inputs"), sum) == "");
            CHECK(difference(download(program, "twice"), sum) == "");
            CHECK(difference(download(program, "again"), all) == "");
            CHECK(download(program, "view").shape == std::vector<std::int64_t>{n, 3, 5});
        }
    });
    CHECK(joined(errors) == "");
}

TEST_CASE("collectives: every rank gets one rank's numbers, views, inputs and integers alike, and no more is sent") {
    for (const int ranks : {2, 3, 4}) {
        CAPTURE(ranks);
        const auto errors = on_ranks(ranks, [&](const std::shared_ptr<Communicator>& c) {
            c->limit(60);
            const int last = c->ranks() - 1;
            Graph g;
            const Value x = g.input("x", {g.symbol("n", 4), 3});
            g.output("input", broadcast(x));
            g.output("view", scale(broadcast(transpose(scale(x, 2.0f), 0, 1), last), 0.5f));
            g.output("told", broadcast(g.input("ids", {5}, DType::i32), 1));
            Program program = device().compile(g, {}, {.communicator = c});
            CHECK(program.explain().find("broadcast of rank " + std::to_string(c->rank()) + " of " +
                                         std::to_string(c->ranks()) + ", on the host, of what rank 1 has") !=
                  std::string::npos);
            const auto numbers_of = [](int rank, std::int64_t n) {
                return random_tensor({n, 3}, static_cast<unsigned>(rank));
            };
            for (const std::int64_t n : {4, 1, 0}) {
                program.set("n", n);
                upload(program, "x", numbers_of(c->rank(), n));
                upload(program, "ids", Tensor({5}, static_cast<double>(c->rank())), DType::i32);
                const Traffic before = c->traffic();
                program.run();
                CHECK(difference(download(program, "input"), numbers_of(0, n)) == "");
                const Tensor view = download(program, "view"), whole = numbers_of(last, n);
                for (std::int64_t i = 0; i < 3 * n; ++i) {
                    CHECK(view.at({i / n, i % n}) == static_cast<float>(whole.at({i % n, i / n})));
                }
                CHECK(program.download_i32("told") == std::vector<std::int32_t>(5, 1));
                const Traffic after = c->traffic();
                CHECK(after.broadcasts - before.broadcasts == 3);
                CHECK(after.all_reduces + after.all_gathers + after.sends == 0);
                const std::int64_t sent =
                    (c->rank() == 0 ? 12 * n : 0) + (c->rank() == last ? 12 * n : 0) + (c->rank() == 1 ? 20 : 0);
                CHECK(after.bytes - before.bytes == static_cast<std::uint64_t>(sent * (c->ranks() - 1)));
            }
        });
        CHECK(joined(errors) == "");
    }
}

TEST_CASE("collectives: column-parallel, row-parallel and vocabulary-parallel layers give what whole ones give") {
    const std::int64_t in = 12, inner = 20, rows = 11;
    const std::map<std::string, Tensor> whole{{"up.weight", random_tensor({inner, in}, 1)},
                                              {"up.bias", random_tensor({inner}, 2)},
                                              {"down.weight", random_tensor({in, inner}, 3)},
                                              {"down.bias", random_tensor({in}, 4)},
                                              {"words", random_tensor({rows, in}, 5)}};
    const Tensor ids({2, 3}, {0, 10, 5, 4, 7, 3});
    const auto describe = [&](Graph& g) {
        const Value h = vocab_parallel_embedding(g.input("ids", {2, 3}, DType::i32), "words", rows, in, 2.0f);
        g.output("found", h);
        const Value up = column_parallel_linear(h, "up", inner, {.bias = true, .activation = Activation::relu});
        g.output("y", row_parallel_linear(up, "down", inner, in, {.bias = true, .input_is_parallel = true}));
        const Value all = column_parallel_linear(h, "up", inner, {.bias = true, .gather_output = true});
        g.output("all", all);
        g.output("whole", row_parallel_linear(all, "down", inner, in, {.bias = true}));
    };
    Graph alone;
    describe(alone);
    Program one = device().compile(alone, load_shards(alone, whole));
    upload(one, "ids", ids, DType::i32);
    one.run();
    for (const int ranks : {2, 3, 4}) {
        CAPTURE(ranks);
        const auto errors = on_ranks(ranks, [&](const std::shared_ptr<Communicator>& c) {
            c->limit(60);
            Graph g;
            g.set_rank({c->rank(), c->ranks()});
            describe(g);
            CompileOptions options;
            options.communicator = c;
            Program program = device().compile(g, load_shards(g, whole), options);
            upload(program, "ids", ids, DType::i32);
            program.run();
            for (const char* name : {"found", "y", "all", "whole"}) {
                const std::string wrong = difference(download(program, name), download(one, name), {.absolute = 1e-5});
                CHECK_MESSAGE(wrong == "", name << ": " << wrong);
            }
        });
        CHECK(joined(errors) == "");
    }
}

TEST_CASE("collectives: what heads have of their own goes with them to their ranks, and dropout is refused") {
    constexpr std::int64_t kWidth = 24, kHeads = 6, kTokens = 5;
    std::map<std::string, Tensor> whole;
    const auto add = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
        whole[name] = random_tensor(shape, static_cast<unsigned>(whole.size() + 1));
    };
    const auto describe = [&](Graph& g) {
        const Value x = g.input("x", {2, kTokens, kWidth});
        const Mask mask{.keys = g.weight("seen", {2, 1, 1, kTokens}, DType::i32),
                        .bias = g.weight("bias", {kHeads, 1, kTokens}),
                        .alibi_slopes = g.weight("slopes", {kHeads}),
                        .causal = Causal::bottom_right};
        const Value sinks = g.weight("sinks", {kHeads});
        const AttentionResult a =
            grouped_query_attention(x, {.name = "gqa", .heads = kHeads, .kv_heads = 3, .mask = mask, .sinks = sinks});
        g.output("gqa y", a.y);
        g.output("by heads", multi_head_attention_by_heads(x, x, x, {.name = "heads", .heads = kHeads, .mask = mask}));
    };
    Graph alone;
    describe(alone);
    for (const StorageInfo& s : alone.storages()) {
        if (s.kind == StorageKind::weight && s.name != "seen") {
            std::vector<std::int64_t> shape;
            for (const Dim& d : s.shape) {
                shape.push_back(d.constant());
            }
            add(s.name, shape);
        }
    }
    const std::vector<std::int32_t> seen{1, 1, 0, 1, 1, 1, 0, 1, 1, 1};
    const auto answer = [&](const Graph& g, const CompileOptions& options) {
        Program p = device().compile(g, load_shards(g, whole, {{"seen", seen}}), options);
        upload(p, "x", random_tensor({2, kTokens, kWidth}, 77));
        p.run();
        return std::pair(download(p, "gqa y"), download(p, "by heads"));
    };
    const auto want = answer(alone, {});
    for (const int ranks : {2, 3, 4, 5}) {
        CAPTURE(ranks);
        const auto errors = on_ranks(ranks, [&](const std::shared_ptr<Communicator>& c) {
            c->limit(60);
            Graph g;
            g.set_rank({c->rank(), c->ranks()});
            describe(g);
            const auto found = answer(g, {.communicator = c});
            CHECK(difference(found.first, want.first, {.absolute = 1e-5}) == "");
            CHECK(difference(found.second, want.second, {.absolute = 1e-5}) == "");
        });
        CHECK(joined(errors) == "");
    }
    Graph g;
    g.set_rank({0, 2});
    const Value x = g.input("x", {2, kTokens, kWidth});
    const torch::MultiheadAttentionOptions drops{.name = "d", .num_heads = kHeads, .dropout = 0.5f};
    CHECK_THROWS_WITH_AS(torch::multihead_attention(x, x, x, drops),
                         "parallel: dropout 0.500000 cannot be shared out over 2 ranks", Error);
    CHECK_THROWS_WITH_AS(self_attention(x, {.name = "s"}), "parallel: 1 head cannot be shared out over 2 ranks", Error);
    for (const std::int64_t wrong : {2, 3}) {  // 3: as many as the rank has
        CAPTURE(wrong);
        const Mask mask{.alibi_slopes = g.weight("slopes" + std::to_string(wrong), {wrong})};
        const std::string said = "attention: a mask, slopes or sinks of " + std::to_string(wrong) +
                                 " heads, where there are 6 over all ranks";
        CHECK_THROWS_WITH_AS(
            grouped_query_attention(
                x, {.name = "w" + std::to_string(wrong), .heads = kHeads, .kv_heads = 3, .mask = mask}),
            said.c_str(), Error);
    }
    const Value y = sum(column_parallel_linear(x, "up", 8));
    CHECK_THROWS_WITH_AS(
        gradients(y, {x}),
        "gradients: layers that are shared out over 2 ranks have none: give each rank a part of the batch instead",
        Error);
}

TEST_CASE("collectives: an id outside the vocabulary gives NaN on every rank") {
    const std::map<std::string, Tensor> whole{{"words", random_tensor({6, 4}, 1)}};
    const auto errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& c) {
        c->limit(60);
        Graph g;
        g.set_rank({c->rank(), 2});
        g.output("y", vocab_parallel_embedding(g.input("ids", {3}, DType::i32), "words", 6, 4));
        CompileOptions options;
        options.communicator = c;
        Program program = device().compile(g, load_shards(g, whole), options);
        upload(program, "ids", Tensor({3}, {-1, 5, 6}), DType::i32);
        program.run();
        const Tensor y = download(program, "y");
        CHECK(std::isnan(y.at({0, 0})));
        CHECK(std::isnan(y.at({2, 3})));
        CHECK(y.at({1, 2}) == doctest::Approx(whole.at("words").at({5, 2})));
    });
    CHECK(joined(errors) == "");
}

TEST_CASE("collectives: a rank that is none and a limit that is none are refused before anything is exchanged") {
    const auto errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& c) {
        c->limit(60);
        std::vector<std::byte> bytes(4);
        const std::string self = std::to_string(c->rank());
        CHECK_THROWS_WITH_AS(c->send(bytes, -1), "send: rank -1: is not another rank of 2", Error);
        CHECK_THROWS_WITH_AS(c->receive(bytes, 2), "receive: rank 2: is not another rank of 2", Error);
        CHECK_THROWS_WITH_AS(c->send(bytes, c->rank()), ("send: rank " + self + ": is not another rank of 2").c_str(),
                             Error);
        CHECK_THROWS_WITH_AS(c->limit(NAN), "Communicator: nan s cannot be waited for", Error);
        CHECK_THROWS_AS(c->limit(-1), Error);
        CHECK_THROWS_AS(c->meet(NAN), Error);
        c->meet(60);
        std::vector<float> one(1, 1.0f);
        c->all_reduce(one);
        CHECK(one[0] == 2.0f);
    });
    CHECK(joined(errors) == "");
}

TEST_CASE("collectives: what went over a communicator is told while a rank waits") {
    std::promise<void> waiting, told;
    const auto errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& c) {
        c->limit(60);
        std::vector<float> one(1, 1.0f);
        if (c->rank() == 0) {
            std::thread other([&] {
                waiting.get_future().wait();
                while (c->traffic().all_reduces == 0) {  // until this rank is in it
                    std::this_thread::yield();
                }
                told.set_value();
            });
            waiting.set_value();
            c->all_reduce(one);
            other.join();
        } else {
            const bool soon = told.get_future().wait_for(std::chrono::seconds(30)) == std::future_status::ready;
            CHECK(soon);
            c->all_reduce(one);
        }
    });
    CHECK(joined(errors) == "");
}

TEST_CASE("collectives: the gradient of a sum over ranks is that of the sum") {
    const auto errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& c) {
        c->limit(60);
        Graph g;
        const Value x = g.input("x", {4});
        g.output("dx", gradients(scale(all_reduce(scale(x, 3.0f)), 2.0f), {x}, g.input("dy", {4})).front());
        Program program = device().compile(g, {}, {.communicator = c});
        upload(program, "x", random_tensor({4}, 1));
        upload(program, "dy", Tensor({4}, 1.0));
        program.run();
        CHECK(difference(download(program, "dx"), Tensor({4}, 6.0)) == "");
    });
    CHECK(joined(errors) == "");
}

TEST_CASE("collectives: an exchange that goes wrong while the device works ends the run, and only that") {
    const auto life = [](const std::shared_ptr<Communicator>& c) {
        c->limit(60);
        Graph g;
        const Value x = g.input("x", {4, 6});
        const Value first = all_reduce(scale(x, 2.0f)), second = all_reduce(scale(x, 3.0f));
        g.output("y", softmax(first) + softmax(second) + softmax(broadcast(scale(x, 4.0f), 1)));
        Program program = device().compile(g, {}, {.communicator = c});
        upload(program, "x", Tensor({4, 6}, 1.0));
        for (int again = 0; again < 2; ++again) {
            program.run();
        }
        CHECK(download(program, "y").at({0, 0}) == doctest::Approx(3.0 / 6));
    };
    int exchanges = 0;
    CHECK(joined(on_ranks(faulty_transports(2, 1, Fault::fails, -1, &exchanges), life)) == "");
    CHECK(exchanges == 12);  // two of each collective, in two runs
    for (const Fault fault : {Fault::fails, Fault::cut, Fault::slow}) {
        for (int at = 0; at < exchanges; ++at) {
            CAPTURE(static_cast<int>(fault));
            CAPTURE(at);
            int count = 0;
            const auto errors = on_ranks(faulty_transports(2, 1, fault, at, &count), life);
            if (fault == Fault::slow) {
                CHECK(joined(errors) == "");
                continue;
            }
            CHECK_MESSAGE(errors[0].starts_with("rank 1: "), errors[0]);
            CHECK(errors[1] != "");
        }
    }
    CHECK(joined(on_ranks(2, life)) == "");
}

TEST_CASE("collectives: kernels that run during one are in its time, and count once in the time in all") {
    int count = 0;
    const auto errors =
        on_ranks(faulty_transports(2, 1, Fault::slow, 1, &count), [](const std::shared_ptr<Communicator>& c) {
            c->limit(60);
            Graph g;
            const Value x = g.input("x", {256, 256});
            const Value sum = all_reduce(scale(slice(x, 0, 0, 1), 2.0f));
            Value longer = x;
            for (int i = 0; i < 6; ++i) {
                longer = softmax(matmul(longer, x));
            }
            g.output("y", slice(longer, 0, 0, 1) + sum);
            Program program = device().compile(g, {}, {.profile = true, .communicator = c});
            upload(program, "x", Tensor({256, 256}, 1.0));
            program.run();
            double kernels = 0, exchange = 0, meanwhile = 0;
            for (const DispatchTime& t : program.times()) {
                (t.kernel == "all_reduce" ? exchange : kernels) += t.ms;
            }
            for (const DispatchTime& t : program.times()) {
                const DispatchTime& all = *std::find_if(program.times().begin(), program.times().end(),
                                                        [](const DispatchTime& o) { return o.kernel == "all_reduce"; });
                const bool inside = t.start_ms >= all.start_ms && t.start_ms + t.ms <= all.start_ms + all.ms;
                meanwhile += &t != &all && inside ? t.ms : 0;
            }
            const std::string table = program.time_table();
            const double in_all = std::stod(table.substr(table.rfind('\n', table.size() - 2) + 1));
            if (device().capabilities().timestamp_period > 0) {
                CHECK(exchange > 20);
                CHECK(meanwhile > 0);
                CHECK(in_all == doctest::Approx(kernels + exchange - meanwhile).epsilon(1e-3));
            }
        });
    CHECK(joined(errors) == "");
}

TEST_CASE("collectives: ranks whose sizes differed go on once they are the same") {
    const auto errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& c) {
        c->limit(60);
        Graph g;
        const Value x = g.input("x", {g.symbol("n", 8)});
        g.output("y", scale(all_reduce(scale(x, 2.0f)), 0.5f));
        Program program = device().compile(g, {}, {.communicator = c});
        program.set("n", 5 + c->rank());
        upload(program, "x", Tensor({5 + c->rank()}, 1.0));
        CHECK_THROWS_AS(program.run(), Error);
        for (int again = 0; again < 2; ++again) {
            program.set("n", 7);
            upload(program, "x", Tensor({7}, 1.0));
            program.run();
            CHECK(difference(download(program, "y"), Tensor({7}, 2.0)) == "");
        }
    });
    CHECK(joined(errors) == "");
}

TEST_CASE("collectives: who cannot do them says so") {
    Graph g;
    g.output("y", all_reduce(g.input("x", {4})));
    CHECK_THROWS_WITH_AS(device().compile(g),
                         "program: all_reduce: is done by several ranks, and CompileOptions::communicator names none",
                         Error);
    std::vector<std::unique_ptr<Transport>> one = local_transports(1);
    CompileOptions options;
    options.communicator = std::make_shared<Communicator>(std::move(one.front()));
    Program program = device().compile(g, {}, options);
    upload(program, "x", Tensor({4}, 2.0));
    program.run();
    CHECK(difference(download(program, "y"), Tensor({4}, 2.0)) == "");
    Graph two;
    two.set_rank({1, 2});
    const Value x = two.input("x", {3, 2});
    CHECK_THROWS_AS(all_gather(x, {2, 2, 2}), Error);
    CHECK_THROWS_AS(all_gather(x, {2, 3}), Error);
    two.output("y", concat(all_gather(x, {3, 2}), -1));
    CHECK_THROWS_WITH_AS(device().compile(two, {}, options), "program: all_gather: gathers what 2 ranks have, of 1",
                         Error);
    CHECK_THROWS_WITH_AS(broadcast(x, -1), "broadcast: there is no rank -1", Error);
    Graph third;
    third.output("y", broadcast(third.input("x", {4}), 2));
    CHECK_THROWS_WITH_AS(device().compile(third, {}, options), "program: broadcast: gives what rank 2 has, of 1",
                         Error);
    CHECK_THROWS_WITH_AS(two.set_rank({2, 2}), "parallel: rank 2 is none of 2", Error);
}
