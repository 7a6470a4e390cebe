// SPDX-License-Identifier: Apache-2.0
// Names for enumerators and types of elements.
#pragma once

#include "errors.h"
#include "nanobind.h"

#include <cstddef>
#include <iterator>
#include <string>

namespace py {

template <class E>
struct Names;  // static constexpr const char* kWhat; kNames[]: the enumerators in order

/// An enumerator, given by its name.
template <class E>
struct Choice {
    std::string text;
    operator E() const {
        std::string all;
        for (std::size_t i = 0; i < std::size(Names<E>::kNames); ++i) {
            if (text == Names<E>::kNames[i]) return static_cast<E>(i);
            all += (i == 0 ? "" : ", ") + std::string(Names<E>::kNames[i]);
        }
        fail(std::string(Names<E>::kWhat) + " is \"" + text + "\"; there are: " + all);
    }
};

template <class E>
const char* name(E value) {
    return Names<E>::kNames[static_cast<std::size_t>(value)];
}

#define PY_NAMES(E, what, hint, ...)                                \
    template <>                                                     \
    struct Names<E> {                                               \
        static constexpr const char* kWhat = what;                  \
        static constexpr const char* kNames[] = {__VA_ARGS__};      \
        static constexpr auto kHint = nb::detail::const_name(hint); \
    }
PY_NAMES(vkf::Causal, "causal", "typing.Literal['none', 'top_left', 'bottom_right']", "none", "top_left",
         "bottom_right");
PY_NAMES(vkf::Polarity, "polarity", "typing.Literal['attend', 'ignore']", "attend", "ignore");
PY_NAMES(vkf::Activation, "activation",
         "typing.Literal['none', 'relu', 'gelu', 'gelu_tanh', 'silu', 'tanh', 'sigmoid', 'rsqrt']", "none", "relu",
         "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "rsqrt");
PY_NAMES(vkf::RopeLayout, "layout", "typing.Literal['interleaved', 'half']", "interleaved", "half");
PY_NAMES(vkf::ScoreKind, "kind", "typing.Literal['dot', 'scaled_dot', 'general', 'additive']", "dot", "scaled_dot",
         "general", "additive");
PY_NAMES(vkf::WeightType, "the type of weights", "typing.Literal['f32', 'f16', 'bf16', 'int8', 'int4']", "f32", "f16",
         "bf16", "int8", "int4");
PY_NAMES(vkf::Arithmetic, "arithmetic", "typing.Literal['f32', 'f16', 'int8']", "f32", "f16", "int8");
PY_NAMES(vkf::Split, "split", "typing.Literal['tensor', 'layers']", "tensor", "layers");
PY_NAMES(vkf::PackOn, "pack_on", "typing.Literal['by_device', 'host', 'device']", "by_device", "host", "device");
PY_NAMES(vkf::Schedule::Kind, "kind", "typing.Literal['constant', 'linear', 'cosine']", "constant", "linear", "cosine");
PY_NAMES(vkf::DeviceType, "type", "str", "other", "integrated", "discrete", "virtual", "cpu");
PY_NAMES(vkf::ImageAccess, "access", "typing.Literal['none', 'sampled', 'storage']", "none", "sampled", "storage");
PY_NAMES(vkf::ImageFormat, "format", "typing.Literal['any', 'rgba8', 'rgba16f', 'r32f', 'rgba32f']", "any", "rgba8",
         "rgba16f", "r32f", "rgba32f");
PY_NAMES(vkf::DecoderTask, "task", "typing.Literal['prompt', 'step', 'score']", "prompt", "step", "score");
PY_NAMES(vkf::StorageKind, "kind", "str", "input", "weight", "state", "constant", "intermediate", "output");
PY_NAMES(vkf::RopeScaling::Kind, "kind", "typing.Literal['none', 'linear', 'ntk', 'llama3', 'yarn']", "none", "linear",
         "ntk", "llama3", "yarn");
#undef PY_NAMES

/// An element type: a name ("float32", "f32", "F32"), or what NumPy and PyTorch call their types.
struct Type {
    std::string text;
    operator vkf::DType() const;
};
/// NumPy's name.
const char* name(vkf::DType type);

}  // namespace py
