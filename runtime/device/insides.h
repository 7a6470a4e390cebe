// SPDX-License-Identifier: Apache-2.0
// The way from a public object to what it stands on, for the library's own files and for tests.
#pragma once

#include <utility>

namespace vkf {

/// A friend of the public classes. Templates, so that this file includes none of them.
struct Insides {
    /// Gives the DeviceCore of a Device, or the ProgramCore of a Program. Throws Error for a
    /// Program that was moved from.
    template <class T>
    static auto& core(const T& object) {
        return *object.core_;
    }
    /// A device's core, shared.
    template <class T>
    static const auto& shared_core(const T& object) noexcept {
        return object.core_;
    }
    /// Takes a device's core out of it; the device can only be destroyed from then on.
    template <class T>
    static auto take_core(T& object) noexcept {
        return std::move(object.core_);
    }
    /// The TensorStore of Weights or of a State; null where there is none.
    template <class T>
    static const auto& store(const T& object) noexcept {
        return object.store_;
    }
    /// The Plan of a DecoderPlan for one of its tasks.
    template <class T, class Task>
    static const auto& plan(const T& object, Task task) {
        return object.plan(task);
    }
    /// Weights or a State on this store.
    template <class T, class Store>
    static T make(Store store) {
        return T(std::move(store));
    }
};

}  // namespace vkf
