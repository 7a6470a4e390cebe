// SPDX-License-Identifier: Apache-2.0
// ggml's Vulkan backend, through its public interface.
#include <ggml-backend.h>
#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string_view>

#include "peer_ggml_graph.h"

namespace {

using Backend = std::unique_ptr<ggml_backend, Deleter<ggml_backend_free>>;

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

ggml_type type_of(vkf::WeightType type) {
    switch (type) {
        case vkf::WeightType::f16: return GGML_TYPE_F16;
        case vkf::WeightType::bf16: return GGML_TYPE_BF16;
        case vkf::WeightType::int8: return GGML_TYPE_Q8_0;
        case vkf::WeightType::int4: return GGML_TYPE_Q4_0;
        case vkf::WeightType::f32: break;
    }
    return GGML_TYPE_F32;
}

/// The kernels of ggml take keys and values in half precision or quantized; they compute in single
/// precision.
ggml_type kept_type(const OpCase& op) { return op.type == vkf::WeightType::f32 ? GGML_TYPE_F16 : type_of(op.type); }

class GgmlOp : public GgmlGraph {
public:
    GgmlOp(ggml_backend_t backend, const OpCase& op, const OpData& data) : GgmlGraph(backend, op.name, data), op_(op) {
        ggml_context* c = context();
        ggml_tensor* result = nullptr;
        ggml_tensor* x = nullptr;
        ggml_tensor* weight = nullptr;
        ggml_tensor* bias = nullptr;
        ggml_tensor* positions = nullptr;
        ggml_tensor* mask = nullptr;
        switch (op.kind) {
            case OpKind::copy:
                x = ggml_new_tensor_2d(c, GGML_TYPE_F32, op.columns, op.rows);
                result = ggml_cpy(c, x, ggml_new_tensor_2d(c, GGML_TYPE_F32, op.columns, op.rows));
                break;
            case OpKind::matmul:
            case OpKind::linear:
                x = ggml_new_tensor_2d(c, GGML_TYPE_F32, op.inner, op.rows);
                weight = ggml_new_tensor_2d(c, type_of(op.type), op.inner, op.columns);
                result = ggml_mul_mat(c, weight, x);
                break;
            case OpKind::softmax:
                x = ggml_new_tensor_2d(c, GGML_TYPE_F32, op.columns, op.rows);
                result = ggml_soft_max(c, x);
                break;
            case OpKind::layer_norm:
                x = ggml_new_tensor_2d(c, GGML_TYPE_F32, op.columns, op.rows);
                weight = ggml_new_tensor_1d(c, GGML_TYPE_F32, op.columns);
                bias = ggml_new_tensor_1d(c, GGML_TYPE_F32, op.columns);
                result = ggml_add(c, ggml_mul(c, ggml_norm(c, x, kNormEps), weight), bias);
                break;
            case OpKind::rms_norm:
                x = ggml_new_tensor_2d(c, GGML_TYPE_F32, op.columns, op.rows);
                weight = ggml_new_tensor_1d(c, GGML_TYPE_F32, op.columns);
                result = ggml_mul(c, ggml_rms_norm(c, x, kNormEps), weight);
                break;
            case OpKind::rope:  // its rows are (tokens, heads, dimensions)
                x = ggml_new_tensor_3d(c, GGML_TYPE_F32, op.columns, op.rows, op.inner);
                positions = ggml_new_tensor_1d(c, GGML_TYPE_I32, op.inner);
                result = ggml_rope(c, x, positions, static_cast<int>(op.columns), 0);
                break;
            case OpKind::attention:
                x = ggml_new_tensor_3d(c, GGML_TYPE_F32, op.columns, op.rows, op.heads);
                weight = ggml_new_tensor_3d(c, kept_type(op), op.columns, op.inner, op.kv_heads);
                bias = ggml_new_tensor_3d(c, kept_type(op), op.columns, op.inner, op.kv_heads);
                mask = op.causal ? ggml_new_tensor_2d(c, GGML_TYPE_F16, op.inner, (op.rows + 63) / 64 * 64) : nullptr;
                result = ggml_flash_attn_ext(c, x, weight, bias, mask, 1.0f / std::sqrt(static_cast<float>(op.columns)),
                                             0.0f, 0.0f);
                accumulate_in_fp32(result);
                break;
            case OpKind::decoder_layer:
            case OpKind::composed_attention: throw std::logic_error("ggml was asked for " + op.name);
        }
        finish(result);
        set(x, op.kind == OpKind::rope ? heads_last(data.x).data() : data.x.data());
        if (op.kind == OpKind::matmul) {
            set(weight, transposed(data.weight, op.inner, op.columns).data());
        } else if (weight) {
            set_packed(weight, kept_.weight.data());
        }
        if (mask) {
            set_mask(mask, op);
        }
        if (bias) {
            set_packed(bias, kept_.bias.data());
        }
        if (positions) {
            std::vector<std::int32_t> indices(static_cast<std::size_t>(op.inner));
            std::iota(indices.begin(), indices.end(), 0);
            ggml_backend_tensor_set(positions, indices.data(), 0, ggml_nbytes(positions));
        }
    }

    std::vector<float> result() override {
        const std::vector<float> out = GgmlGraph::result();
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

    OpCase op_;
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
        ops_.push_back(op.kind == OpKind::decoder_layer ? make_ggml_layer(backend_.get(), op, data)
                                                        : std::make_unique<GgmlOp>(backend_.get(), op, data));
        return ops_.back().get();
    }

private:
    Backend backend_;
    // Kept to the end. ggml's descriptor sets go on naming the buffers of earlier graphs, in
    // bindings that later shaders do not use. Vulkan allows that, but Mesa 22's lavapipe counts
    // references on those buffers when they are gone.
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
