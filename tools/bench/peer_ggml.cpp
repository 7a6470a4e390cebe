// SPDX-License-Identifier: Apache-2.0
// ggml's Vulkan backend, through its public interface.
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string_view>

#include "peer.h"

namespace {

template <auto Free>
struct Deleter {
    void operator()(auto* p) const { Free(p); }
};
using Backend = std::unique_ptr<ggml_backend, Deleter<ggml_backend_free>>;
using Context = std::unique_ptr<ggml_context, Deleter<ggml_free>>;
using Buffer = std::unique_ptr<ggml_backend_buffer, Deleter<ggml_backend_buffer_free>>;

void set(ggml_tensor* tensor, const std::vector<float>& data) {
    ggml_backend_tensor_set(tensor, data.data(), 0, ggml_nbytes(tensor));
}

/// ggml's product takes both operands with the inner dimension contiguous.
std::vector<float> transposed(const std::vector<float>& x, std::int64_t rows, std::int64_t columns) {
    std::vector<float> out(x.size());
    for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
            out[static_cast<std::size_t>(c * rows + r)] = x[static_cast<std::size_t>(r * columns + c)];
        }
    }
    return out;
}

void set_half(ggml_tensor* tensor, const std::vector<float>& data) {
    std::vector<ggml_fp16_t> half(data.size());
    ggml_fp32_to_fp16_row(data.data(), half.data(), static_cast<std::int64_t>(data.size()));
    ggml_backend_tensor_set(tensor, half.data(), 0, ggml_nbytes(tensor));
}

/// What is added to scores, (rows, keys): rows beyond the queries, which fill ggml's last tile, are hidden.
std::vector<float> attention_mask(const OpCase& op, std::int64_t rows) {
    std::vector<float> mask(static_cast<std::size_t>(rows * op.inner), -std::numeric_limits<float>::infinity());
    for (std::int64_t query = 0; query < op.rows; ++query) {
        const std::int64_t end = query + 1 + op.inner - op.rows;
        const std::int64_t first = op.window > 0 ? std::max<std::int64_t>(0, end - op.window) : 0;
        std::fill_n(mask.begin() + query * op.inner + first, end - first, 0.0f);
    }
    return mask;
}

class GgmlOp : public PeerOp {
public:
    GgmlOp(ggml_backend_t backend, const OpCase& op, const OpData& data) : backend_(backend), op_(op) {
        context_.reset(ggml_init({.mem_size = 64 * ggml_tensor_overhead() + ggml_graph_overhead(),
                                  .mem_buffer = nullptr,
                                  .no_alloc = true}));
        ggml_context* c = context_.get();
        ggml_tensor* x = nullptr;
        ggml_tensor* weight = nullptr;
        ggml_tensor* bias = nullptr;
        ggml_tensor* positions = nullptr;
        ggml_tensor* mask = nullptr;
        switch (op.kind) {
            case OpKind::copy:
                x = ggml_new_tensor_2d(c, GGML_TYPE_F32, op.columns, op.rows);
                result_ = ggml_cpy(c, x, ggml_new_tensor_2d(c, GGML_TYPE_F32, op.columns, op.rows));
                break;
            case OpKind::matmul:
            case OpKind::linear:
                x = ggml_new_tensor_2d(c, GGML_TYPE_F32, op.inner, op.rows);
                weight = ggml_new_tensor_2d(c, GGML_TYPE_F32, op.inner, op.columns);
                result_ = ggml_mul_mat(c, weight, x);
                break;
            case OpKind::softmax:
                x = ggml_new_tensor_2d(c, GGML_TYPE_F32, op.columns, op.rows);
                result_ = ggml_soft_max(c, x);
                break;
            case OpKind::layer_norm:
                x = ggml_new_tensor_2d(c, GGML_TYPE_F32, op.columns, op.rows);
                weight = ggml_new_tensor_1d(c, GGML_TYPE_F32, op.columns);
                bias = ggml_new_tensor_1d(c, GGML_TYPE_F32, op.columns);
                result_ = ggml_add(c, ggml_mul(c, ggml_norm(c, x, kNormEps), weight), bias);
                break;
            case OpKind::rms_norm:
                x = ggml_new_tensor_2d(c, GGML_TYPE_F32, op.columns, op.rows);
                weight = ggml_new_tensor_1d(c, GGML_TYPE_F32, op.columns);
                result_ = ggml_mul(c, ggml_rms_norm(c, x, kNormEps), weight);
                break;
            case OpKind::rope:  // its rows are (tokens, heads, dimensions)
                x = ggml_new_tensor_3d(c, GGML_TYPE_F32, op.columns, op.rows, op.inner);
                positions = ggml_new_tensor_1d(c, GGML_TYPE_I32, op.inner);
                result_ = ggml_rope(c, x, positions, static_cast<int>(op.columns), 0);
                break;
            case OpKind::attention:  // its kernels take keys and values in half precision; it computes in single
                x = ggml_new_tensor_3d(c, GGML_TYPE_F32, op.columns, op.rows, kHeads);
                weight = ggml_new_tensor_3d(c, GGML_TYPE_F16, op.columns, op.inner, kKvHeads);
                bias = ggml_new_tensor_3d(c, GGML_TYPE_F16, op.columns, op.inner, kKvHeads);
                mask = op.causal ? ggml_new_tensor_2d(c, GGML_TYPE_F16, op.inner, (op.rows + 63) / 64 * 64) : nullptr;
                result_ = ggml_flash_attn_ext(c, x, weight, bias, mask,
                                              1.0f / std::sqrt(static_cast<float>(op.columns)), 0.0f, 0.0f);
                ggml_flash_attn_ext_set_prec(result_, GGML_PREC_F32);
                break;
            case OpKind::composed_attention: throw std::logic_error("ggml was asked for " + op.name);
        }
        graph_ = ggml_new_graph(c);
        ggml_build_forward_expand(graph_, result_);
        buffer_.reset(ggml_backend_alloc_ctx_tensors(c, backend_));
        if (!buffer_) {
            throw std::runtime_error("ggml could not allocate the tensors of " + op.name);
        }
        set(x, op.kind == OpKind::rope ? heads_last(data.x) : data.x);
        if (op.is_attention()) {
            set_half(weight, data.weight);
            set_half(bias, data.bias);
        } else if (weight) {
            set(weight, op.kind == OpKind::matmul ? transposed(data.weight, op.inner, op.columns) : data.weight);
        }
        if (mask) {
            set_half(mask, attention_mask(op, mask->ne[1]));
        }
        if (bias && !op.is_attention()) {
            set(bias, data.bias);
        }
        if (positions) {
            std::vector<std::int32_t> indices(static_cast<std::size_t>(op.inner));
            std::iota(indices.begin(), indices.end(), 0);
            ggml_backend_tensor_set(positions, indices.data(), 0, ggml_nbytes(positions));
        }
    }

    void run() override {
        if (ggml_backend_graph_compute(backend_, graph_) != GGML_STATUS_SUCCESS) {
            throw std::runtime_error("ggml failed at " + op_.name);
        }
    }

    std::vector<float> result() override {
        std::vector<float> out(static_cast<std::size_t>(ggml_nelements(result_)));
        ggml_backend_tensor_get(result_, out.data(), 0, ggml_nbytes(result_));
        return op_.kind == OpKind::rope ? exchanged(out, op_.inner, op_.rows) : out;
    }

private:
    std::vector<float> heads_last(const std::vector<float>& x) const { return exchanged(x, op_.rows, op_.inner); }

    /// (a, b, columns) to (b, a, columns)
    std::vector<float> exchanged(const std::vector<float>& x, std::int64_t a, std::int64_t b) const {
        std::vector<float> out(x.size());
        for (std::int64_t i = 0; i < a * b; ++i) {
            std::copy_n(x.begin() + i * op_.columns, op_.columns, out.begin() + (i % b * a + i / b) * op_.columns);
        }
        return out;
    }

    ggml_backend_t backend_;
    OpCase op_;
    Context context_;
    Buffer buffer_;
    ggml_tensor* result_ = nullptr;
    ggml_cgraph* graph_ = nullptr;
};

class Ggml : public Peer {
public:
    explicit Ggml(const std::string& device) {
        ggml_backend_load_all();
        std::string seen;
        for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i) {
            ggml_backend_dev_t candidate = ggml_backend_dev_get(i);
            if (std::string_view(ggml_backend_reg_name(ggml_backend_dev_backend_reg(candidate))) != "Vulkan") {
                continue;
            }
            seen += std::string(seen.empty() ? "" : ", ") + ggml_backend_dev_description(candidate);
            if (!backend_ && device == ggml_backend_dev_description(candidate)) {
                backend_.reset(ggml_backend_dev_init(candidate, nullptr));
            }
        }
        if (!backend_) {
            throw std::runtime_error("ggml's Vulkan backend does not take " + device + " (it takes: " +
                                     (seen.empty() ? "nothing" : seen) + "; GGML_VK_VISIBLE_DEVICES chooses)");
        }
    }

    std::string name() const override { return std::string("ggml ") + ggml_version(); }

    PeerOp* prepare(const OpCase& op, const OpData& data) override {
        if (op.kind == OpKind::composed_attention) {
            return nullptr;
        }
        ops_.push_back(std::make_unique<GgmlOp>(backend_.get(), op, data));
        return ops_.back().get();
    }

private:
    Backend backend_;
    // Kept to the end. ggml's descriptor sets go on naming the buffers of earlier graphs, in bindings that later shaders do
    // not use. Vulkan allows that, but Mesa 22's lavapipe counts references on those buffers when they are gone.
    std::vector<std::unique_ptr<PeerOp>> ops_;
};

void quiet(ggml_log_level, const char*, void*) {}

}  // namespace

std::unique_ptr<Peer> make_peer(const std::string& device, std::size_t index) {
    setenv("GGML_VK_VISIBLE_DEVICES", std::to_string(index).c_str(),
           0);  // it passes over processors unless they are named
    ggml_log_set(quiet, nullptr);
    return std::make_unique<Ggml>(device);
}
