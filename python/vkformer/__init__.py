# SPDX-License-Identifier: Apache-2.0
"""Transformers on any Vulkan GPU: attention and the layers around it, from Python.

    import numpy as np, vkformer as vkf
    y = vkf.scaled_dot_product_attention(q, k, v, is_causal=True)     # arrays in, arrays out

    g = vkf.Graph()                                                   # or a graph, for programs
    x = g.input("x", [1, g.symbol("tokens", 512), 64])
    g.output("y", vkf.gelu(vkf.linear_layer(x, "up", 256)))
    program = vkf.Device().compile(g, {"up.weight": w, "up.bias": b})
    program(x=array)["y"]

    model = vkf.load_decoder("path/to/hf/folder", weights="int8")
    print(model.generate("1234567 is", max_tokens=20))

What is public in C++ is here under its name. Functions that PyTorch has take PyTorch's arguments,
and arrays (NumPy, PyTorch on the CPU, anything with __dlpack__) as well as the values of a graph.
Importing touches no device. docs/python.md tells more.
"""

import sys as _sys

from ._errors import ArgumentError, DeviceLost, Error, FileMissing, OutOfMemory
from . import _vkformer

# A free-threaded build of Python takes its lock back when it imports the extension; one that was
# told not to would let threads into objects that rely on it.
if not getattr(_sys, "_is_gil_enabled", lambda: True)():
    raise ImportError("vkformer needs the interpreter's lock: start Python without PYTHON_GIL=0 and -X gil=0, and it "
                      "takes the lock back when it imports vkformer")

from ._vkformer import (
    AdamW, Adapter, ArithmeticUse, AttentionResult, BufferRange, CachedKv, Capabilities,
    Checkpoint, Communicator, Cost, Decoded, DecoderCore, DecoderFacts, DecoderModel, DecoderPlan, Device,
    DeviceMemory, DeviceRequirement, DeviceRequirements, Dim, DispatchTime, EncoderDecoder,
    EncoderDecoderConfig, EncoderFacts, FineTuner, FloatFacts, Fp32Reason, Graph, HostTensor, ImageView,
    KvCache, LayerCache, LeftOut, Lora, LoraOptions, Mask, MatrixShape, MemorySizes, ModelMemory,
    PagedKvCache, Program, RingRows, Rope, RopeScaling, SGD, Safetensors, Sampler, Schedule,
    ScoreMod, Segment, SelfCheck, SelfTest, SharedBuffer, State, StoredTensor, TextEncoderCore, TextEncoderModel,
    Tensor, Ticket, Traffic, TrainerCore, TrainingStep, Tunable, Value, WeightLayout, Weights, accumulate,
    activate, add, all_gather, all_reduce, append, attention, attention_scores, batch_norm, batch_norm_train,
    biased_scores, broadcast, broadcast_shapes, broadcast_to, clear_adapter, clip_grad_norm,
    column_parallel_linear, combine_masks, compile_glsl, concat, contiguous, copy_into, decoder_logits,
    describe_text_encoder, embed_tokens, feed_forward, gated, gated_feed_forward, gather_pages,
    glsl_compiler, gradients, grouped_query_attention, hard_max, image_input, image_output,
    incremental_attention, is_contiguous, kv_cache, left_out_file, linear_layer, load_decoder_weights, local_communicators,
    load_text_encoder_weights, log_sum_exp, make_weight_layout, merge_adapter, merge_heads,
    mul, multi_head_attention, multi_head_attention_by_heads, pack_into, packed_attention,
    paged_attention, permute, read_decoder, read_text, read_text_encoder, repeat_kv, reshape,
    restore_state, rope, rope_at, rope_by_table, rope_scaling_kind, rope_table, row_parallel_linear, save_adapter,
    save_decoder, save_left_out, save_safetensors, save_state, save_tuning, scale, scatter_pages, score_mod,
    self_attention, sequence_mask, sinusoidal_positions, slice, split_heads, sum_to, to, torch,
    trainable, transpose, tunables, tuning_file, unpack_rows, update, use_glsl_compiler, vocab_parallel_embedding,
)
from ._vkformer import __version__ as __version__
from . import _program as _program  # what a notebook shows of a program
from . import _reprs as _reprs
from ._scopes import Recompute, Scope
from .eager import clear_programs, default_device, set_default_device
from .functional import (
    argmax, cross_entropy, dropout, embedding, function, gelu, layer_norm, linear, matmul,
    relu, rms_norm, scaled_dot_product_attention, silu, softmax, sum, top_k,
)
from .models import Decoder, TextEncoder, load_decoder, load_text_encoder
from .training import Adam, Trainer
from . import nn, plot

__all__ = [
    "Communicator", "Traffic", "all_gather", "all_reduce", "broadcast", "column_parallel_linear",
    "local_communicators", "row_parallel_linear", "vocab_parallel_embedding",
    "Adam", "AdamW", "Adapter", "ArgumentError", "ArithmeticUse", "AttentionResult",
    "BufferRange", "CachedKv", "Capabilities", "Checkpoint", "Cost", "Decoded", "Decoder",
    "DecoderCore", "DecoderFacts", "DecoderModel", "DecoderPlan", "Device", "DeviceLost",
    "DeviceMemory", "DeviceRequirement", "DeviceRequirements", "Dim", "DispatchTime", "EncoderDecoder",
    "EncoderDecoderConfig", "EncoderFacts", "Error", "FileMissing", "FineTuner", "FloatFacts",
    "Fp32Reason",
    "Graph", "HostTensor", "ImageView", "KvCache", "LayerCache", "LeftOut", "Lora", "LoraOptions", "Mask",
    "MatrixShape", "MemorySizes", "ModelMemory", "OutOfMemory", "PagedKvCache", "Program",
    "Recompute", "RingRows", "Rope", "RopeScaling", "SGD", "Safetensors", "Sampler",
    "Schedule", "Scope", "ScoreMod", "Segment", "SelfCheck", "SelfTest", "SharedBuffer", "State", "StoredTensor",
    "Tensor", "TextEncoder", "TextEncoderCore", "TextEncoderModel", "Ticket", "Trainer",
    "TrainerCore", "TrainingStep", "Tunable", "Value", "WeightLayout", "Weights", "accumulate", "activate",
    "add", "append", "argmax", "attention", "attention_scores", "batch_norm",
    "batch_norm_train", "biased_scores", "broadcast_shapes", "broadcast_to", "clear_adapter",
    "clear_programs", "clip_grad_norm", "combine_masks", "compile_glsl", "concat",
    "contiguous", "copy_into", "cross_entropy", "decoder_logits", "default_device",
    "describe_text_encoder", "dropout", "embed_tokens", "embedding", "feed_forward",
    "function", "gated", "gated_feed_forward", "gather_pages", "gelu", "glsl_compiler",
    "gradients", "grouped_query_attention", "hard_max", "image_input", "image_output",
    "incremental_attention", "is_contiguous", "kv_cache", "left_out_file", "layer_norm", "linear",
    "linear_layer", "load_decoder", "load_decoder_weights", "load_text_encoder",
    "load_text_encoder_weights", "log_sum_exp", "make_weight_layout", "matmul",
    "merge_adapter", "merge_heads", "mul", "multi_head_attention",
    "multi_head_attention_by_heads", "nn", "pack_into", "packed_attention", "paged_attention",
    "permute", "plot", "read_decoder", "read_text", "read_text_encoder", "relu", "repeat_kv",
    "reshape", "restore_state", "rms_norm", "rope", "rope_at", "rope_by_table",
    "rope_scaling_kind", "rope_table", "save_adapter", "save_decoder", "save_left_out", "save_safetensors",
    "save_state", "save_tuning", "scale", "scaled_dot_product_attention", "scatter_pages",
    "score_mod", "self_attention", "sequence_mask", "set_default_device", "silu",
    "sinusoidal_positions", "slice", "softmax", "split_heads", "sum", "sum_to", "to", "top_k",
    "torch", "trainable", "transpose", "tunables", "tuning_file", "unpack_rows", "update",
    "use_glsl_compiler",
]

if _vkformer.has_text:  # the library may be built without tokenizers
    from ._vkformer import (
        ChatTemplate, StopTexts, TokenStream, Tokenizer, begin_of_text, encode_prompt,
    )

    __all__ += [
        "ChatTemplate", "StopTexts", "TokenStream", "Tokenizer", "begin_of_text",
        "encode_prompt",
    ]
