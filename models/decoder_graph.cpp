// SPDX-License-Identifier: Apache-2.0
// The decoder as a graph.
#include "models/decoder.h"

#include <algorithm>
#include <map>

#include "layers/attention.h"
#include "layers/feed_forward.h"
#include "models/decoder_rings.h"

namespace vkf {

namespace {

/// What one run's description is made from.
class Description {
public:
    Description(Graph& graph, const DecoderConfig& config, const DecoderOptions& options, DecoderRun run)
        : g_(graph),
          c_(config),
          o_(options),
          padded_(options.max_batch > 1),
          batch_(g_.symbol("batch", options.max_batch)),
          tokens_(run == DecoderRun::step ? Dim(1) : g_.symbol("tokens", options.chunk)),
          start_(g_.symbol("start", options.max_tokens)) {}

    void run(DecoderRun run) {
        Value h = embed();
        for (std::int64_t i = 0; i < c_.layers; ++i) {
            h = layer(h, i);
        }
        if (run != DecoderRun::score) {
            h = slice(h, 1, tokens_ - Dim(1), 1);
        }
        const Value scores = logits(norm(h, base() + c_.names.norm));
        if (run == DecoderRun::score) {
            g_.output("logits", scores);
            return;
        }
        const Value row = reshape(scores, {batch_, c_.vocab_size});
        g_.output("next", argmax(row));
        if (o_.candidates > 0) {
            const TopK best = top_k(row, o_.candidates);
            g_.output("candidate_logits", best.values);
            g_.output("candidate_tokens", best.indices);
        }
    }

private:
    std::string base() const { return c_.names.base; }

    Value norm(Value x, const std::string& name) {
        const Scope scope(g_, name);
        const Value weight = g_.weight("weight", {c_.hidden_size});
        return c_.norm == NormKind::layer ? layer_norm(x, weight, g_.weight("bias", {c_.hidden_size}), c_.norm_eps)
                                          : rms_norm(x, weight, c_.norm_eps);
    }

    Value table() { return g_.weight(base() + c_.names.embedding + ".weight", {c_.vocab_size, c_.hidden_size}); }

    Value embed() {
        const Value rows = embedding(g_.input("tokens", {batch_, tokens_}, DType::i32), table(), c_.embedding_scale);
        if (padded_) {
            keys_ = g_.input("keys", {batch_, o_.max_tokens}, DType::i32);
        }
        if (c_.rope) {
            Rope turn = *c_.rope;
            turn.max_positions = o_.max_tokens;
            const std::vector<float> data = rope_table(turn, c_.head_dim);
            const auto pairs = static_cast<std::int64_t>(data.size()) / o_.max_tokens / 2;
            rope_table_ = g_.constant("rope_table", {o_.max_tokens, pairs, 2}, data);
            return rows;  // turning depends on distances alone: padding before a sequence changes none
        }
        const Value positions = g_.weight(base() + c_.names.positions + ".weight", {c_.max_positions, c_.hidden_size});
        return rows + (padded_ ? embedding(g_.input("positions", {batch_, tokens_}, DType::i32), positions)
                               : slice(positions, 0, start_, tokens_));
    }

    Value layer(Value h, std::int64_t i) {
        const Scope scope(g_, base() + c_.names.layers + "." + std::to_string(i));
        const std::string& after = c_.names.attention_output_norm;
        const Value attended = attention(norm(h, c_.names.attention_norm), i, after.empty() ? h : Value());
        h = after.empty() ? attended : h + norm(attended, after);
        const std::string& last = c_.names.feed_forward_output_norm;
        const Value fed = feed_forward(norm(h, c_.names.feed_forward_norm), last.empty() ? h : Value());
        return last.empty() ? fed : h + norm(fed, last);
    }

    /// (batch, 1, 1, count) of the input `keys`.
    Value seen_keys(Dim first, const Dim& count) {
        return padded_ ? reshape(slice(keys_, 1, std::move(first), count), {batch_, 1, 1, count}) : Value();
    }

    /// The rows that a run writes and sees of the rings of this window; the same for all layers that have it.
    struct Ring {
        RingRows written, seen;
        Dim kept;  ///< older tokens that are seen
    };

    const Ring& ring(std::int64_t window, std::int64_t rows) {
        const auto found = rings_.find(window);
        if (found != rings_.end()) {
            return found->second;
        }
        const auto size = [&](const char* what, std::int64_t most) {
            return g_.symbol(ring_symbol(window, what), std::max<std::int64_t>(most, 1));
        };
        const bool one = tokens_ == Dim(1);
        const Dim kept = size("kept", window - 1);
        const Dim count = kept + tokens_;
        Ring r;
        r.written = {size("at", rows - 1), one ? Dim(1) : size("written", o_.chunk), tokens_};
        r.seen = {size("first", rows - 1), size("seen", rows), count};
        r.kept = kept;
        return rings_.emplace(window, std::move(r)).first->second;
    }

    /// `residual`, where there is one, is added.
    Value attention(Value x, std::int64_t i, Value residual) {
        const DecoderNames& n = c_.names;
        GroupedQueryAttentionOptions o{
            .name = n.attention, .heads = c_.heads, .kv_heads = c_.kv_heads, .head_dim = c_.head_dim, .rope = c_.rope};
        o.window = c_.windows[static_cast<std::size_t>(i)];
        o.rope_table = rope_table_;
        o.qkv_bias = c_.qkv_bias;
        o.bias = c_.output_bias;
        o.fused_qkv = !n.fused_qkv.empty();
        o.one_launch = true;  // load_decoder() keeps parameters in the order in which they are named here
        if (c_.qk_norm) {
            o.qk_norm_eps = c_.norm_eps;
        }
        if (c_.attention_scale != 0.0f) {
            o.scale = c_.attention_scale;
        }
        o.softcap = c_.attention_softcap;
        const std::int64_t rows = cache_rows(c_, o_, i);
        o.cache = kv_cache(g_, "cache", o_.max_batch, rows, c_.kv_heads, c_.head_dim, start_, o_.kv);
        if (rows < o_.max_tokens) {
            const Ring& r = ring(o.window, rows);
            o.cache->written = r.written;
            o.cache->seen = r.seen;
            o.keys = seen_keys(start_ - r.kept, r.seen.count);
        } else {
            o.keys = seen_keys(0, start_ + tokens_);
        }
        o.names[0] = o.fused_qkv ? n.fused_qkv.c_str() : o.names[0];
        o.names[3] = n.output.c_str();
        o.residual = residual;
        return grouped_query_attention(x, o);
    }

    Value feed_forward(Value x, Value residual) {
        const DecoderNames& n = c_.names;
        const Scope scope(g_, n.feed_forward);
        const bool bias = c_.feed_forward_bias;
        const Value up = linear_layer(x, n.up, c_.intermediate_size, bias, c_.gated ? Activation::none : c_.activation);
        const Value hidden = c_.gated ? linear_layer(x, n.gate, c_.intermediate_size, bias, c_.activation, up) : up;
        return linear_layer(hidden, n.down, c_.hidden_size, bias, Activation::none, {}, residual);
    }

    Value logits(Value h) {
        const Value matrix =
            c_.tied_embeddings ? table() : g_.weight(c_.names.head + ".weight", {c_.vocab_size, c_.hidden_size});
        const Value y = linear(h, matrix);
        return c_.logit_softcap == 0.0f
                   ? y
                   : scale(activate(scale(y, 1.0f / c_.logit_softcap), Activation::tanh), c_.logit_softcap);
    }

    Graph& g_;
    const DecoderConfig& c_;
    const DecoderOptions& o_;
    bool padded_;
    Dim batch_, tokens_, start_;
    Value keys_;                          ///< (batch, max_tokens), where sequences are padded
    std::map<std::int64_t, Ring> rings_;  ///< by window
    Value rope_table_;
};

}  // namespace

std::int64_t cache_rows(const DecoderConfig& config, const DecoderOptions& options, std::int64_t layer) {
    const std::int64_t window = config.windows[static_cast<std::size_t>(layer)];
    return window == 0 ? options.max_tokens : std::min(options.max_tokens, window - 1 + options.chunk);
}

std::string ring_symbol(std::int64_t window, const char* what) {
    return "window" + std::to_string(window) + "_" + what;
}

void describe_decoder(Graph& graph, const DecoderConfig& config, const DecoderOptions& options, DecoderRun run) {
    Description(graph, config, options, run).run(run);
}

}  // namespace vkf
