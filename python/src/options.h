// SPDX-License-Identifier: Apache-2.0
// Keywords that several functions have in common.
#pragma once

#include "bind.h"

namespace py {

/// A communicator that Python has.
struct Ranks {
    std::shared_ptr<vkf::Communicator> communicator;
};

inline vkf::SoftmaxOptions softmax_options(const std::optional<vkf::Mask>& mask, float scale, float softcap,
                                           const vkf::Value& sinks) {
    return {.mask = mask.value_or(vkf::Mask()), .scale = scale, .softcap = softcap, .sinks = sinks};
}

#define SOFTMAX_OPTIONS \
    nb::kw_only(), "mask"_a = nb::none(), "scale"_a = 1.0f, "softcap"_a = 0.0f, "sinks"_a = nb::none()

/// How weights are loaded.
#define LOAD_TYPES                                                                   \
    const std::optional<Choice<vkf::WeightType>>&matrices, const nb::object &choose, \
        const Choice<vkf::PackOn>&pack_on, const nb::object &load_progress
#define LOAD_NAMES                                                                                      \
    "matrices"_a = nb::none(), "choose"_a = nb::none(), "pack_on"_a = Choice<vkf::PackOn>{"by_device"}, \
    "load_progress"_a = nb::none()
#define LOAD_VALUES load_options(matrices, choose, pack_on, load_progress)

}  // namespace py
