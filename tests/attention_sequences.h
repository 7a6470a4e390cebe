// SPDX-License-Identifier: Apache-2.0
// Sizes, and ways to compute, for attention over sequences of lengths of their own.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>

#include "tests/believed.h"

namespace vkf::test::sequences {

constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kKvHeads = 2;
constexpr std::int64_t kHeadDim = 12;
constexpr std::int64_t kValueDim = 8;

/// Calls f() on the device as it is, and with each other way to compute.
template <class F>
void on_each_way(const F& f) {
    f();
    for (const char* variant : {"attention_shared", "attention_rows", "attention_composed"}) {
        const Believed forced([&](Capabilities& c) { c.variants = variant; });
        CAPTURE(variant);
        f();
    }
}

}  // namespace vkf::test::sequences
