// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/stored.h"

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace vkf {

namespace {

std::string stored_text(const StoredTensor& t, WantedBy by) {
    return shape_text(t.shape) + " " + std::string(name_of(t.dtype)) +
           (by == WantedBy::program ? " kept as " + std::string(name_of(t.type)) : "");
}

}  // namespace

StoredTensor as_declared(const StorageInfo& storage) {
    StoredTensor t{storage.name, storage.dtype, {}, 0, 0, size_of(storage.dtype)};
    for (const Dim& d : storage.shape) {
        t.shape.push_back(d.constant());
        t.bytes *= static_cast<std::uint64_t>(d.constant());
    }
    return t;
}

const StoredTensor& check_stored(const std::string& what, const StoredTensor& wanted, const StoredTensor* given,
                                 WantedBy by) {
    if (!given) {
        throw Error("is missing; the graph wants it as " + shape_text(wanted.shape), what);
    }
    const bool kept = by == WantedBy::graph || given->type == wanted.type;
    if (given->shape != wanted.shape || given->dtype != wanted.dtype || !kept) {
        throw Error("is " + stored_text(*given, by) +
                        (by == WantedBy::graph ? ", the graph wants " : ", the program was compiled for ") +
                        stored_text(wanted, by),
                    what);
    }
    return *given;
}

}  // namespace vkf
