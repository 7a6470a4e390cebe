// SPDX-License-Identifier: Apache-2.0
// A decoder layer as llama.cpp describes one: weights as the case says, keys and values in half
// precision.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "layer_case.h"
#include "peer_ggml_graph.h"

namespace {

class GgmlLayer : public GgmlGraph {
public:
    GgmlLayer(ggml_backend_t backend, const OpCase& op, const OpData& data)
        : GgmlGraph(backend, op.name, data), op_(op), dim_(op.columns / op.heads) {
        ggml_context* c = context();
        for (const LayerTensor& t : layer_tensors(op)) {
            weights_.push_back(ggml_new_tensor_2d(c, GGML_TYPE_F32, t.columns, t.rows));
        }
        x_ = ggml_new_tensor_2d(c, GGML_TYPE_F32, op.columns, op.rows);
        positions_ = ggml_new_tensor_1d(c, GGML_TYPE_I32, op.rows);
        mask_ = op.rows > 1 ? ggml_new_tensor_2d(c, GGML_TYPE_F16, op.inner, (op.rows + 63) / 64 * 64) : nullptr;
        keys_ = ggml_new_tensor_2d(c, GGML_TYPE_F16, op.kv_heads * dim_, op.inner);
        values_ = ggml_new_tensor_2d(c, GGML_TYPE_F16, op.kv_heads * dim_, op.inner);
        ggml_tensor* h = ggml_add(c, x_, attention(norm(x_, "input_layernorm.weight")));
        finish(ggml_add(c, h, feed_forward(norm(h, "post_attention_layernorm.weight"))));
        upload();
    }

private:
    ggml_tensor* weight(std::string_view name) const {
        std::size_t i = 0;
        for (const LayerTensor& t : layer_tensors(op_)) {
            if (t.name == name) {
                return weights_[i];
            }
            ++i;
        }
        return nullptr;
    }

    ggml_tensor* norm(ggml_tensor* x, std::string_view name) const {
        return ggml_mul(context(), ggml_rms_norm(context(), x, kNormEps), weight(name));
    }

    ggml_tensor* product(std::string_view name, ggml_tensor* x) const {
        return ggml_mul_mat(context(), weight(name), x);
    }

    ggml_tensor* turned(ggml_tensor* x, std::int64_t heads) const {
        ggml_tensor* by_head = ggml_reshape_3d(context(), x, dim_, heads, op_.rows);
        return ggml_rope_ext(context(), by_head, positions_, nullptr, static_cast<int>(dim_), GGML_ROPE_TYPE_NEOX, 0,
                             static_cast<float>(kRopeTheta), 1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
    }

    /// Writes the new rows behind the cached ones; (dimensions, keys, heads) of all.
    ggml_tensor* cached(ggml_tensor* cache, ggml_tensor* rows) {
        ggml_context* c = context();
        compute(ggml_cpy(c, rows,
                         ggml_view_2d(c, cache, cache->ne[0], op_.rows, cache->nb[1],
                                      static_cast<std::size_t>(op_.inner - op_.rows) * cache->nb[1])));
        return ggml_view_3d(c, cache, dim_, op_.inner, op_.kv_heads, cache->nb[1],
                            static_cast<std::size_t>(dim_) * cache->nb[0], 0);
    }

    ggml_tensor* attention(ggml_tensor* x) {
        ggml_context* c = context();
        ggml_tensor* q = ggml_permute(c, turned(product("self_attn.q_proj.weight", x), op_.heads), 0, 2, 1, 3);
        ggml_tensor* k = turned(product("self_attn.k_proj.weight", x), op_.kv_heads);
        k = cached(keys_, ggml_reshape_2d(c, k, op_.kv_heads * dim_, op_.rows));
        ggml_tensor* v = cached(values_, product("self_attn.v_proj.weight", x));
        ggml_tensor* y = ggml_flash_attn_ext(c, q, k, v, mask_, 1.0f / std::sqrt(static_cast<float>(dim_)), 0.0f, 0.0f);
        accumulate_in_fp32(y);
        return product("self_attn.o_proj.weight", ggml_reshape_2d(c, y, op_.columns, op_.rows));
    }

    ggml_tensor* feed_forward(ggml_tensor* x) const {
        ggml_tensor* gate = product("mlp.gate_proj.weight", x);
        return product("mlp.down_proj.weight", ggml_swiglu_split(context(), gate, product("mlp.up_proj.weight", x)));
    }

    void upload() {
        float* numbers = kept_.weight.data();
        for (ggml_tensor* t : weights_) {
            set_packed(t, numbers);
            numbers += ggml_nelements(t);
        }
        set(x_, kept_.x.data());
        std::vector<std::int32_t> positions(static_cast<std::size_t>(op_.rows));
        std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(op_.inner - op_.rows));
        ggml_backend_tensor_set(positions_, positions.data(), 0, ggml_nbytes(positions_));
        if (mask_) {
            set_mask(mask_, op_);
        }
        const std::int64_t cached = layer_cached(op_);
        std::vector<float> rows(static_cast<std::size_t>(op_.inner * op_.kv_heads * dim_));
        std::copy_n(kept_.bias.begin(), cached, rows.begin());
        set_packed(keys_, rows.data());
        std::copy_n(rows.begin(), cached, kept_.bias.begin());
        std::copy_n(kept_.bias.begin() + cached, cached, rows.begin());
        set_packed(values_, rows.data());
        std::copy_n(rows.begin(), cached, kept_.bias.begin() + cached);
    }

    OpCase op_;
    std::int64_t dim_;
    std::vector<ggml_tensor*> weights_;
    ggml_tensor *x_ = nullptr, *positions_ = nullptr, *mask_ = nullptr, *keys_ = nullptr, *values_ = nullptr;
};

}  // namespace

std::unique_ptr<PeerOp> make_ggml_layer(ggml_backend_t backend, const OpCase& op, const OpData& data) {
    return std::make_unique<GgmlLayer>(backend, op, data);
}
