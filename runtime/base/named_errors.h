// SPDX-License-Identifier: Apache-2.0
// Errors that name the file they are about.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "error.h"

namespace vkf {

/// What f() gives. What it throws becomes an Error whose where() is `file`, but for want of memory,
/// which stays std::bad_alloc.
template <class F>
auto naming(const std::string& file, const F& f) {
    try {
        return f();
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::exception& error) {
        throw Error(error.what(), file);
    }
}

}  // namespace vkf
