// SPDX-License-Identifier: Apache-2.0
// A layer that sees only a window keeps its cache as a ring: token i lies in row i mod rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/blocks/decoder_facts.h"
#include "ops/ops.h"

namespace vkf {

/// Rows of a layer's cache for sequences of up to `max_tokens`, of which a run reads up to `chunk`.
/// Fewer rows than max_tokens form a ring: the window's older tokens, and those of a run.
std::int64_t cache_rows(const LayerCache& layer, std::int64_t max_tokens, std::int64_t chunk);

/// Values of a graph's sizes, by their names.
class RingSizes {
public:
    struct Size {
        std::string_view name;
        std::int64_t value = 0;
    };

    void add(std::string_view name, std::int64_t value) noexcept { sizes_[count_++] = {name, value}; }
    const Size* begin() const noexcept { return sizes_.data(); }
    const Size* end() const noexcept { return begin() + count_; }

private:
    std::array<Size, 5> sizes_ = {};
    std::size_t count_ = 0;
};

/// The sizes that the description of a run and whoever runs it agree on. Layers with one window
/// share them.
class CacheRing {
public:
    CacheRing(std::int64_t window, std::int64_t rows);

    std::int64_t window() const noexcept { return window_; }

    struct Rows {
        RingRows written, seen;
        Dim kept;  ///< older tokens that are seen
    };
    /// Rows as sizes of a graph whose runs read `tokens`, at most `chunk`.
    Rows describe(Graph& graph, const Dim& tokens, std::int64_t chunk) const;
    /// Gives the sizes to set for a run of `count` tokens behind `length` older ones. The names
    /// live as long as the ring. Allocates nothing.
    RingSizes sizes(DecoderTask task, std::int64_t length, std::int64_t count) const noexcept;

private:
    std::int64_t window_, rows_;
    std::string kept_;  ///< older tokens that are seen
    std::string at_;    ///< row of the first new token
    /// New tokens before the ring's end; the others follow from row 0 on (not of a step).
    std::string written_;
    std::string first_;  ///< row of the oldest token that is seen
    std::string seen_;   ///< tokens that are seen before the ring's end
};

/// One for each window whose layers keep less than `max_tokens`.
std::vector<CacheRing> rings_of(std::span<const LayerCache> layers, std::int64_t max_tokens, std::int64_t chunk);

}  // namespace vkf
