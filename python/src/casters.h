// SPDX-License-Identifier: Apache-2.0
// What nanobind does not know how to pass between C++ and Python.
#pragma once

#include "names.h"
#include "nanobind.h"
#include "values.h"

#include <cstdint>
#include <string>
#include <type_traits>

NAMESPACE_BEGIN(NB_NAMESPACE)
NAMESPACE_BEGIN(detail)

/// None is no tensor; a result of attention is its y.
template <>
struct type_caster<vkf::Value> {
    NB_TYPE_CASTER(vkf::Value, make_caster<py::Value>::Name)

    bool from_python(handle src, std::uint8_t, cleanup_list*) noexcept {
        value = {};
        if (src.is_none()) return true;
        py::Value* found = nullptr;
        if (!nb::try_cast<py::Value*>(src, found) || found == nullptr) return false;
        value = found->value;
        return true;
    }
    static handle from_cpp(const vkf::Value& src, rv_policy, cleanup_list*) {
        return src ? py::wrap(src).release() : none().release();
    }
};

template <>
struct type_caster<vkf::AttentionResult> {
    NB_TYPE_CASTER(vkf::AttentionResult, make_caster<py::AttentionResult>::Name)

    bool from_python(handle, std::uint8_t, cleanup_list*) noexcept { return false; }
    static handle from_cpp(const vkf::AttentionResult& src, rv_policy, cleanup_list*) {
        return py::wrap(src).release();
    }
};

/// A number, or a size with symbols.
template <>
struct type_caster<vkf::Dim> {
    NB_TYPE_CASTER(vkf::Dim, const_name("int | ") + make_caster<py::Dim>::Name)

    bool from_python(handle src, std::uint8_t, cleanup_list*) noexcept {
        if (PyIndex_Check(src.ptr()) != 0 && !PyBool_Check(src.ptr())) {
            const Py_ssize_t number = PyNumber_AsSsize_t(src.ptr(), PyExc_OverflowError);
            if (number == -1 && PyErr_Occurred() != nullptr) {
                PyErr_Clear();
                return false;
            }
            value = vkf::Dim(static_cast<std::int64_t>(number));
            return true;
        }
        py::Dim* found = nullptr;
        if (!nb::try_cast<py::Dim*>(src, found) || found == nullptr) return false;
        value = found->dim;
        return true;
    }
    static handle from_cpp(const vkf::Dim& src, rv_policy, cleanup_list*) { return py::wrap(src, object()).release(); }
};

/// Its files cannot be copied, which a vector of them does not tell.
template <>
struct is_copy_constructible<vkf::Checkpoint> : std::false_type {};

template <class E>
struct type_caster<py::Choice<E>> {
    NB_TYPE_CASTER(py::Choice<E>, py::Names<E>::kHint)

    bool from_python(handle src, std::uint8_t, cleanup_list*) noexcept {
        if (PyUnicode_Check(src.ptr()) == 0) return false;
        return nb::try_cast<std::string>(src, value.text);
    }
    static handle from_cpp(const py::Choice<E>& src, rv_policy, cleanup_list*) {
        return nb::str(src.text.c_str()).release();
    }
};

template <>
struct type_caster<py::Type> {
    NB_TYPE_CASTER(py::Type, const_name("object"))

    bool from_python(handle src, std::uint8_t, cleanup_list*) noexcept {
        if (src.is_none()) return false;
        try {
            const char* attribute = PyType_Check(src.ptr()) != 0 ? "__name__" : "name";
            object text = borrow(src);
            if (PyUnicode_Check(src.ptr()) == 0) {
                text = nb::hasattr(src, attribute) ? nb::getattr(src, attribute) : nb::object(nb::str(src));
            }
            value.text = nb::cast<std::string>(text);
            return true;
        } catch (...) {
            return false;
        }
    }
    static handle from_cpp(const py::Type& src, rv_policy, cleanup_list*) {
        return nb::str(src.text.c_str()).release();
    }
};

NAMESPACE_END(detail)
NAMESPACE_END(NB_NAMESPACE)
