// SPDX-License-Identifier: Apache-2.0
#include "peer_ggml_graph.h"

#include <ggml-alloc.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

GgmlGraph::GgmlGraph(ggml_backend_t backend, std::string name, const OpData& data)
    : kept_(data), backend_(backend), name_(std::move(name)) {
    context_.reset(ggml_init(
        {.mem_size = 256 * ggml_tensor_overhead() + ggml_graph_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    graph_ = ggml_new_graph(context());
}

void GgmlGraph::compute(ggml_tensor* tensor) { ggml_build_forward_expand(graph_, tensor); }

void GgmlGraph::finish(ggml_tensor* result) {
    result_ = result;
    compute(result);
    buffer_.reset(ggml_backend_alloc_ctx_tensors(context(), backend_));
    if (!buffer_) {
        throw std::runtime_error("ggml could not allocate the tensors of " + name_);
    }
}

void GgmlGraph::run() {
    if (ggml_backend_graph_compute(backend_, graph_) != GGML_STATUS_SUCCESS) {
        throw std::runtime_error("ggml failed at " + name_);
    }
}

std::vector<float> GgmlGraph::result() {
    std::vector<float> out(static_cast<std::size_t>(ggml_nelements(result_)));
    ggml_backend_tensor_get(result_, out.data(), 0, ggml_nbytes(result_));
    return out;
}

void accumulate_in_fp32(ggml_tensor* attention) {
#ifdef VKFORMER_GGML_PREC_SET_ACC
    if (!ggml_prec_set_acc(attention, GGML_PREC_F32)) {
        throw std::runtime_error("ggml does not accumulate attention in fp32");
    }
#else
    ggml_flash_attn_ext_set_prec(attention, GGML_PREC_F32);
#endif
}

void set(ggml_tensor* tensor, const float* data) { ggml_backend_tensor_set(tensor, data, 0, ggml_nbytes(tensor)); }

void set_packed(ggml_tensor* tensor, float* data) {
    if (tensor->type == GGML_TYPE_F32) {
        set(tensor, data);
        return;
    }
    std::vector<std::byte> packed(ggml_nbytes(tensor));
    ggml_quantize_chunk(tensor->type, data, packed.data(), 0, ggml_nrows(tensor), tensor->ne[0], nullptr);
    ggml_backend_tensor_set(tensor, packed.data(), 0, packed.size());
    ggml_get_type_traits(tensor->type)->to_float(packed.data(), data, ggml_nelements(tensor));
}

void set_mask(ggml_tensor* mask, const OpCase& op) {
    std::vector<float> values(static_cast<std::size_t>(ggml_nelements(mask)), -std::numeric_limits<float>::infinity());
    for (std::int64_t query = 0; query < op.rows; ++query) {
        const std::int64_t end = query + 1 + op.inner - op.rows;
        const std::int64_t first = op.window > 0 ? std::max<std::int64_t>(0, end - op.window) : 0;
        std::fill_n(values.begin() + query * op.inner + first, end - first, 0.0f);
    }
    set_packed(mask, values.data());
}
