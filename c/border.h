// SPDX-License-Identifier: Apache-2.0
// Where C ends and C++ begins: exceptions become results, C's structs become ours.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "c/vkformer_c.h"
#include "ops/ops.h"
#include "runtime/device/device.h"
#include "runtime/device/program.h"
#include "runtime/device/shared_buffer.h"

struct vkf_graph : vkf::Graph {
    std::size_t scopes = 0;  // open ones
};
struct vkf_weights : vkf::Weights {};
struct vkf_weight_layout : vkf::WeightLayout {};
struct vkf_state : vkf::State {
    bool lent = false;  // a trainer's own
};

struct vkf_device_tensor : vkf::DeviceTensor {};
struct vkf_communicator {
    std::shared_ptr<vkf::Communicator> ranks;
};

namespace vkf::c {

/// An argument that is null and must not be.
struct Missing {
    const char* what;
};

/// Writes the last error, and gives `result` back. Does not allocate.
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
vkf_result
fail(vkf_result result, const char* format, ...) noexcept;
/// Fails with the exception that is being handled.
vkf_result fail_by_exception(const char* function) noexcept;
vkf_result result_of(const Status& status) noexcept;

/// Every function that may throw is the body of one of these.
template <class Body>
vkf_result guard(const char* function, Body&& body) noexcept {
    try {
        body();
        return VKF_OK;
    } catch (...) {
        return fail_by_exception(function);
    }
}

template <class T>
T& need(T* pointer, const char* what) {
    if (!pointer) {
        throw Missing{what};
    }
    return *pointer;
}

/// Gives what the body returns to `out`. When the body fails, a handle that is lent is null; else
/// `out` may be one of the body's inputs, and stays as it is.
template <class T, class Body>
vkf_result give(const char* function, T* out, Body&& body) noexcept {
    return guard(function, [&] {
        T& result = need(out, "the output");
        if constexpr (std::is_pointer_v<T>) {
            result = nullptr;
        }
        result = body();
    });
}

/// Guards a body that makes a handle, which is null when the body fails.
template <class T, class Body>
vkf_result make(const char* function, T** out, Body&& body) noexcept {
    return guard(function, [&] {
        T*& result = need(out, "the output");
        result = nullptr;
        result = std::unique_ptr<T>(body()).release();
    });
}

// --- structs that grow ---------------------------------------------------------------------------

/// No struct of any version is larger.
inline constexpr std::uint32_t kLargestStruct = 4096;

/// Null, or what is wrong with what a T says its size is.
template <class T>
const char* check_size(std::uint32_t size) noexcept {
    if (size < sizeof(size)) {
        return "struct_size is not set";
    }
    return size > kLargestStruct || size % alignof(T) != 0 ? "struct_size is not the size of a struct" : nullptr;
}

/// Copies what both sides know of `from`; the rest is 0. Returns null, or what is wrong with it.
/// Does not allocate.
template <class T>
const char* copy_struct(const void* from, T& to) noexcept {
    to = {};
    std::uint32_t size = 0;
    std::memcpy(&size, from, sizeof(size));
    if (const char* wrong = check_size<T>(size)) {
        return wrong;
    }
    for (std::size_t i = sizeof(T); i < size; ++i) {
        if (static_cast<const std::byte*>(from)[i] != std::byte{0}) {
            return "asks for what is newer than this library";
        }
    }
    std::memcpy(&to, from, size < sizeof(T) ? size : sizeof(T));
    return nullptr;
}

/// Element i of an array whose stride is what its first element says.
template <class T>
const char* copy_element(const T* array, std::uint32_t i, T& to) noexcept {
    if constexpr (requires { array->struct_size; }) {
        return copy_struct(reinterpret_cast<const std::byte*>(array) + std::size_t{i} * array->struct_size, to);
    } else {
        to = array[i];
        return nullptr;
    }
}

/// Reads options, which errors call `what`; null stands for all defaults.
template <class T>
T read(const T* from, const char* what = "options") {
    T to{};
    if (from) {
        if (const char* wrong = copy_struct(from, to)) {
            throw Error(wrong, what);
        }
    }
    return to;
}

template <class T>
T read_needed(const T* from, const char* what) {
    return read(&need(from, what), what);
}

/// A caller's struct that will be filled.
template <class T>
T& need_struct(T* to, const char* what) {
    if (const char* wrong = check_size<T>(need(to, what).struct_size)) {
        throw Error(std::string("of the output, ") + wrong);
    }
    return *to;
}

/// Fills a caller's struct as far as the caller knows it, and with 0 what only the caller knows.
template <class T>
void fill(T& to, T from) {
    const std::uint32_t size = need_struct(&to, "the output").struct_size;
    from.struct_size = size;
    std::memcpy(&to, &from, size < sizeof(T) ? size : sizeof(T));
    if (size > sizeof(T)) {
        std::memset(reinterpret_cast<std::byte*>(&to) + sizeof(T), 0, size - sizeof(T));
    }
}

/// Fills at most *count elements of a caller's list, where there is one, by `one(i)`, and tells how
/// many there are.
template <class T, class One>
void give_list(std::size_t all, T* list, std::uint32_t* count, One&& one) {
    const std::uint32_t room = list ? need(count, "count") : 0;
    const std::size_t stride = room != 0 ? need_struct(list, "the list").struct_size : 0;
    const auto element = [&](std::size_t i) {
        return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(list) + i * stride);
    };
    const std::size_t given = std::min<std::size_t>(all, room);
    for (std::size_t i = 0; i < given; ++i) {  // before anything is written
        need_struct(element(i), "the list");
    }
    for (std::size_t i = 0; i < given; ++i) {
        fill(*element(i), one(i));
    }
    need(count, "count") = static_cast<std::uint32_t>(all);
}

// --- numbers and texts ---------------------------------------------------------------------------

/// C's enumerators count through a table of ours.
template <class E, std::size_t N>
E pick(const std::array<E, N>& table, std::uint32_t i, const char* what) {
    if (i >= N) {
        throw Error(std::string(what) + " " + std::to_string(i) + " is unknown, the last is " + std::to_string(N - 1));
    }
    return table[i];
}

inline bool on_or_default(vkf_switch choice, bool otherwise) {
    return pick(std::array{otherwise, true, false}, choice, "switch");
}

template <class T>
T or_default(T value, T otherwise) {
    return value != T{} ? value : otherwise;
}

inline std::string text_or(const char* text, const char* otherwise = "") { return text ? text : otherwise; }
inline std::string text(const char* t, const char* what) { return &need(t, what); }

/// Throws where give_text() would, ahead of what cannot be undone.
inline void need_room(char* to, std::size_t capacity) {
    if (capacity != 0) {
        need(to, "the text");
    }
}
/// Gives a text as vkformer_c.h says.
void give_text(const std::string& from, char* to, std::size_t capacity, std::size_t* needed);

/// Tells how many numbers there are where `count` is not null, and throws where not all have room:
/// ahead of what cannot be undone, too.
template <class T>
void need_room(const std::string& what, std::uint64_t size, T* to, std::uint64_t capacity, std::uint64_t* count) {
    if (size <= capacity && size != 0) {
        need(to, "data");
    }
    if (count) {
        *count = size;
    }
    if (size > capacity) {
        throw Error("has " + std::to_string(size) + " elements; there is room for " + std::to_string(capacity), what);
    }
}
/// Copies numbers; otherwise as need_room().
template <class T>
void give_numbers(const std::string& what, std::span<const T> from, T* to, std::uint64_t capacity,
                  std::uint64_t* count) {
    need_room(what, from.size(), to, capacity, count);
    if (!from.empty()) {
        std::memcpy(to, from.data(), from.size() * sizeof(T));
    }
}

DType dtype_of(vkf_dtype dtype);
vkf_dtype dtype_to_c(DType dtype);
/// Nothing for VKF_WEIGHT_AS_GIVEN.
std::optional<WeightType> weight_type_of(vkf_weight_type type);
vkf_weight_type weight_type_to_c(WeightType type);
Activation activation_of(vkf_activation activation);

// --- graphs --------------------------------------------------------------------------------------

Dim dim_of(const vkf_dim& dim, const Graph& graph);
/// Turns a size into its form in C; throws where it has more terms.
vkf_dim dim_to_c(const Dim& dim, const Graph& graph);
Shape shape_of(std::uint32_t rank, const vkf_dim* shape, const Graph& graph);

/// Gives an empty Value for a null `value`, where an operand may be left out.
Value value_or_none(vkf_value value);
Value value_of(vkf_value value, const char* what);
vkf_value to_c(const Value& value);

Mask mask_of(const vkf_mask* mask);
Rope rope_of(const vkf_rope_options* options);
ScoreMod score_mod_of(const char* glsl, const float* parameters, std::uint32_t count);

/// Gives the tensors of a layout, which outlives the caller's list.
void give_tensors(const WeightLayout& layout, vkf_stored_tensor* tensors, std::uint32_t* count);

template <class Body>
vkf_result give_value(const char* function, vkf_value* out, Body&& body) noexcept {
    return give(function, out, [&] { return to_c(body()); });
}

}  // namespace vkf::c
