// SPDX-License-Identifier: Apache-2.0
// What functions throw.
#pragma once

#include <string>

#include "runtime/base/error.h"

namespace vkf::test {

/// The text of the Error that f() throws; empty where it throws none.
template <class F>
std::string error_of(F f) {
    try {
        f();
    } catch (const Error& e) {
        return e.what();
    }
    return {};
}

}  // namespace vkf::test
