// SPDX-License-Identifier: Apache-2.0
#include "tests/golden_ranks.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <set>

#include "tests/golden_case.h"
#include "tests/golden_systems.h"
#include "tests/ranks.h"

namespace vkf::test {

namespace {

/// A system whose layers are shared out.
struct SharedSystem {
    /// How many ranks at most have something of a case.
    std::int64_t (*most)(GoldenCase& c);
    /// The sums over ranks of a run; 0: at least one exchange, as many as there are runs.
    std::uint64_t all_reduces = 0;
    /// The layer by another way, after the first.
    const char* also = "";
};

std::int64_t heads_of(GoldenCase& c) {
    for (const char* key : {"heads", "nhead", "num_heads", "num_attention_heads"}) {
        if (!c.config(key).is_null()) {
            return c.integer(key);
        }
    }
    return 1;
}

std::int64_t rows_of(GoldenCase& c) { return c.shape("param.weight")[0].constant(); }

std::int64_t inner_width_of(GoldenCase& c) {
    const char* name = c.has_param("linear1.weight") ? "param.linear1.weight" : "param.gate_proj.weight";
    return c.shape(name)[0].constant();
}

std::int64_t rows_or_columns_of(GoldenCase& c) { return std::min(rows_of(c), c.shape("param.weight")[1].constant()); }

const std::map<std::string, SharedSystem>& shared_systems() {
    static const std::map<std::string, SharedSystem> kSystems{
        {"linear", {.most = rows_or_columns_of, .also = "row_parallel_linear"}},
        {"embedding", {.most = rows_of, .all_reduces = 1}},
        {"feed_forward", {.most = inner_width_of, .all_reduces = 1}},
        {"self_attention", {.most = heads_of}},
        {"multi_head_attention", {.most = heads_of, .all_reduces = 1}},
        {"grouped_query_attention", {.most = heads_of, .all_reduces = 1}},
        {"incremental_attention", {.most = heads_of, .all_reduces = 1}},
        {"cached_attention", {.most = heads_of}},
        {"torch.nn.MultiheadAttention", {.most = heads_of}},
        {"torch.nn.TransformerEncoderLayer", {.most = heads_of, .all_reduces = 2}},
        {"torch.nn.TransformerDecoderLayer", {.most = heads_of, .all_reduces = 3}},
        // two encoder and two decoder layers, and two embeddings
        {"transformer", {.most = heads_of, .all_reduces = 2 * 2 + 2 * 3 + 2}},
        {"transformers.LlamaAttention", {.most = heads_of}},
        {"transformers.MistralAttention", {.most = heads_of}},
        {"transformers.Qwen2Attention", {.most = heads_of}},
        {"transformers.Gemma2Attention", {.most = heads_of}},
        {"transformers.GptOssAttention", {.most = heads_of}},
        {"transformers.PhiAttention", {.most = heads_of}},
    };
    return kSystems;
}

/// Every other system: without weights, or with those of a norm, which every rank has whole; or of
/// training, where ranks share batches out.
const std::set<std::string>& whole_systems() {
    static const std::set<std::string> kSystems{"add",
                                                "attention_score",
                                                "batch_norm",
                                                "batch_norm_train",
                                                "clip_grad_norm",
                                                "cross_entropy",
                                                "flex_attention",
                                                "gated",
                                                "layer_norm",
                                                "layer_norm_backward",
                                                "matmul",
                                                "mul",
                                                "optimizer",
                                                "packed_attention",
                                                "paged_attention",
                                                "repeat_kv",
                                                "rms_norm",
                                                "rope",
                                                "scaled_dot_product_attention",
                                                "scaled_dot_product_attention_backward",
                                                "sinusoidal_position",
                                                "softmax",
                                                "train",
                                                "transformers.LlamaRotaryEmbedding"};
    return kSystems;
}

/// What came of one case on so many ranks.
struct Outcome {
    bool good = true, refused = false;
    double worst = 0;
    std::string detail;

    void fail(const std::string& what) {
        good = false;
        detail += "; " + what;
    }
};

Outcome run_once(const std::string& file, const std::string& system, const std::vector<double>& speeds, int ranks,
                 const RanksOptions& options) {
    const SharedSystem& shared = shared_systems().at(GoldenCase(file).system());
    std::vector<GoldenCase::Verdict> verdicts(static_cast<std::size_t>(ranks));
    std::vector<Traffic> traffic(verdicts.size());
    const auto errors = on_ranks(ranks, [&](const std::shared_ptr<Communicator>& communicator) {
        communicator->limit(120);
        const auto r = static_cast<std::size_t>(communicator->rank());
        GoldenCase c(file);
        c.share_out({communicator->rank(), ranks, speeds}, communicator);
        run_golden_system(*options.devices[r % options.devices.size()], c, system);
        verdicts[r] = c.compare();
        traffic[r] = communicator->traffic();
    });
    Outcome out;
    GoldenCase c(file);
    const std::int64_t most = shared.most(c);
    out.refused = most < ranks;
    if (out.refused) {
        const std::string over = " cannot be shared out over " + std::to_string(ranks) + " ranks";
        for (const std::string& e : errors) {
            if (!e.starts_with("parallel: " + std::to_string(most) + " ") || e.find(over) == std::string::npos) {
                out.fail(e.empty() ? "was not refused" : e);
            }
        }
        return out;
    }
    if (const std::string all = joined(errors); !all.empty()) {
        out.fail(all);
        return out;
    }
    for (std::size_t r = 0; r < verdicts.size(); ++r) {
        out.worst = std::max(out.worst, verdicts[r].worst);
        if (!verdicts[r].good) {
            out.fail("rank " + std::to_string(r) + ": " + verdicts[r].detail);
        }
        const std::uint64_t sums = traffic[r].all_reduces;
        if (shared.all_reduces != 0 ? sums != shared.all_reduces : sums + traffic[r].all_gathers == 0) {
            out.fail("rank " + std::to_string(r) + " took part in " + std::to_string(sums) + " sums");
        }
    }
    return out;
}

}  // namespace

int run_on_ranks(const std::vector<std::string>& files, const RanksOptions& options) {
    std::set<std::string> met;
    int whole = 0, computed = 0, refused = 0, failed = 0;
    for (const std::string& file : files) {
        const GoldenCase c(file);
        const auto shared = shared_systems().find(c.system());
        if (shared == shared_systems().end()) {
            ++whole;
            if (!whole_systems().contains(c.system())) {
                std::printf("FAILED %s: nobody says whether ranks share %s\n", c.name().c_str(), c.system().c_str());
                ++failed;
            }
            continue;
        }
        met.insert(c.system());
        for (const std::string& system : {c.system(), std::string(shared->second.also)}) {
            std::string counts, details;
            double worst = 0;
            bool good = true;
            for (const std::vector<double>& speeds : {std::vector<double>{1, 1}, {1, 1, 1}, {1, 1, 1, 1}, {3, 1}}) {
                if (system.empty()) {
                    break;
                }
                const bool alike = speeds.front() == speeds.back();
                const int ranks = static_cast<int>(speeds.size());
                const Outcome one = run_once(file, system, alike ? std::vector<double>() : speeds, ranks, options);
                ++(one.good ? (one.refused ? refused : computed) : failed);
                worst = std::max(worst, one.worst);
                good = good && one.good;
                counts += (counts.empty() ? "" : ", ") + (alike ? std::to_string(ranks) : std::string("3:1")) +
                          (one.refused ? " (refused)" : "");
                details += one.detail;
            }
            if (!system.empty()) {
                std::printf("%s %s as %s on %s ranks: worst error %.3g of the tolerance%s\n",
                            good ? "passed" : "FAILED", c.name().c_str(), system.c_str(), counts.c_str(), worst,
                            details.c_str());
            }
        }
    }
    for (const auto& [system, shared] : shared_systems()) {
        if (options.every && !met.contains(system)) {
            std::printf("FAILED: there is no case of %s\n", system.c_str());
            ++failed;
        }
    }
    std::printf("on ranks: %d computed, %d refused with the numbers, %d failed; %d cases have nothing to share\n",
                computed, refused, failed, whole);
    return failed;
}

}  // namespace vkf::test
