// SPDX-License-Identifier: Apache-2.0
// Tensors that outlive a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "../base/export.h"
#include "../compile/weight_layout.h"

namespace vkf {

struct TensorStore;

/// A part of a state: the first `length` elements along dimension `dim`, and all elements along the
/// others. A length of -1 means the whole state.
struct StatePart {
    std::size_t dim = 0;
    std::int64_t length = -1;
};

/// Tensors that outlive a run; copies share the memory. Programs that share a State must not run at
/// the same time, nor while it is read, written or cleared.
class VKF_API State {
public:
    State() = default;

    explicit operator bool() const noexcept { return store_ != nullptr; }
    const StoredTensor* find(std::string_view name) const;
    /// Names, types, shapes and places.
    const WeightLayout& layout() const noexcept;
    /// The elements of a state or of a part of it, row-major, as they lie on the device, bit for
    /// bit. Waits for the queue. Throws Error naming a state that is not there, a part that does
    /// not fit, or a device for which the host submits.
    std::vector<std::byte> read(std::string_view name, StatePart part = {}) const;
    /// Writes the elements of a state or of a part of it; what lies outside the part stays as it
    /// is. Waits until that is done, or where the host submits notes it for record_upload(). Throws
    /// Error naming a state that is not there, a part that does not fit, or a number of bytes that
    /// is not the part's.
    void write(std::string_view name, std::span<const std::byte> bytes, StatePart part = {});
    std::uint64_t bytes() const;
    /// Sets every byte to zero; waits until it is done, or where the host submits notes it for
    /// record_upload().
    void clear();

private:
    friend struct Insides;
    explicit State(std::shared_ptr<TensorStore> store) : store_(std::move(store)) {}

    std::shared_ptr<TensorStore> store_;
};

}  // namespace vkf
