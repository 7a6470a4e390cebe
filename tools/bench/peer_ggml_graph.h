// SPDX-License-Identifier: Apache-2.0
// A ggml graph with its tensors on a backend.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <memory>
#include <string>
#include <vector>

#include "peer.h"

template <auto Free>
struct Deleter {
    void operator()(auto* p) const { Free(p); }
};

class GgmlGraph : public PeerOp {
public:
    void run() override;
    std::vector<float> result() override;
    const OpData& kept() const override { return kept_; }

protected:
    explicit GgmlGraph(ggml_backend_t backend, std::string name, const OpData& data);

    /// The context in which the tensors are described.
    ggml_context* context() const { return context_.get(); }
    /// Has the tensor computed, in the order of these calls.
    void compute(ggml_tensor* tensor);
    /// The tensors are allocated, and `result` is what result() gives, (..., ne[0]). After the last
    /// compute().
    void finish(ggml_tensor* result);

    OpData kept_;  ///< the operands; whatever keeps them in fewer bits changes them here

private:
    ggml_backend_t backend_;
    std::string name_;
    std::unique_ptr<ggml_context, Deleter<ggml_free>> context_;
    std::unique_ptr<ggml_backend_buffer, Deleter<ggml_backend_buffer_free>> buffer_;
    ggml_cgraph* graph_ = nullptr;
    ggml_tensor* result_ = nullptr;
};

/// Asks ggml_flash_attn_ext() for it.
void accumulate_in_fp32(ggml_tensor* attention);
/// fp32 numbers for an fp32 tensor.
void set(ggml_tensor* tensor, const float* data);
/// Sets them as the tensor's type keeps them; `data` becomes what they stand for then.
void set_packed(ggml_tensor* tensor, float* data);
/// -inf where causal attention of `rows` queries, the last of which sees all keys, and a window
/// hide a key; for queries beyond `rows`, which fill ggml's last tile, everywhere. `mask`: f16,
/// (keys, queries).
void set_mask(ggml_tensor* mask, const OpCase& op);

/// A case's decoder layer; see layer_case.h.
std::unique_ptr<PeerOp> make_ggml_layer(ggml_backend_t backend, const OpCase& op, const OpData& data);
