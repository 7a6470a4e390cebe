// SPDX-License-Identifier: Apache-2.0
// Errors that Python gets.
#pragma once

#include "nanobind.h"

#include <string>
#include <typeinfo>

namespace py {

/// What translate() makes an Error of no kind of: no VkResults.
constexpr int kForked = 1'000'000'001, kBusy = 1'000'000'002;
/// Throws the error that Python has for it: see translate().
[[noreturn]] void fail(const std::string& what, const std::string& where = {});

/// Python's name of the object's type.
std::string name_of_type(nb::handle object);
/// cast() that names the argument: TypeError says what is wanted, and what was given.
template <class T>
T cast_as(nb::handle object, const std::string& what, const char* wanted) {
    try {
        return nb::cast<T>(object);
    } catch (const std::bad_cast&) {
        PyErr_Clear();
        throw nb::type_error((what + ": is a " + name_of_type(object) + "; " + wanted + " is wanted").c_str());
    }
}

}  // namespace py
