// SPDX-License-Identifier: Apache-2.0
// Memory that runs out while a tokenizer or a chat template is read and used.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tests/allocations.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

using namespace vkf;

namespace {

const std::filesystem::path kSource = VKFORMER_SOURCE_DIR;

/// What a life does is done while the nth allocation fails (0: none), and all that follow where
/// `onwards` says so. True where it ended with std::bad_alloc.
bool refused(const std::function<void()>& life, std::uint64_t nth, bool onwards) {
    const allocations::Failing failing(nth, onwards);
    try {
        life();
        return false;
    } catch (const std::bad_alloc&) {
        return true;
    }
}

/// Of each chain of callers the first allocation and the last fail.
void fail_each(const std::function<void()>& life) {
    refused(life, 0, false);  // fills what is made once
    std::vector<std::uint64_t> places;
    {
        const allocations::Chains chains;
        refused(life, 0, false);
        places = chains.ends();
    }
    CHECK_FALSE(places.empty());
    std::size_t failed = 0;
    for (const std::uint64_t nth : places) {
        failed += refused(life, nth, failed % 2 == 1) ? 1 : 0;
    }
    CHECK(failed == places.size());
    CHECK_FALSE(refused(life, 0, false));
}

}  // namespace

// Not of SentencePiece models: libsentencepiece ends the process.
TEST_CASE("tokenizer: memory that runs out anywhere is an exception, and the next attempt succeeds") {
    if (!allocations::can_fail()) {
        return;
    }
    for (const char* name : {"samples/generate", "tests/text/bert"}) {
        CAPTURE(name);
        const std::filesystem::path folder = kSource / name;
        fail_each([&] {
            const Tokenizer tokenizer(folder);
            tokenizer.decode(tokenizer.encode("ab 12 <s> the end\xe2\x82\xac"));
        });
    }
    std::ifstream file(kSource / "tests/text/chat.json");
    const nlohmann::json templates = nlohmann::json::parse(file);
    for (std::size_t i = 0; i < templates.size(); i += 7) {
        const std::string name = templates[i][0], text = templates[i][1];
        CAPTURE(name);
        fail_each([&] {
            try {
                ChatTemplate::parse(text, "<s>", name).prompt("a question that is longer than a short text", "");
            } catch (const Error&) {  // one that is not supported, or wants a system message
            }
        });
    }
}
