// SPDX-License-Identifier: Apache-2.0
// Unicode's normal forms against utf8proc's own, and in the time that a text's length allows.
#include "text/unicode.h"

#include <doctest/doctest.h>
#include <utf8proc.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>

using namespace vkf::text;

namespace {

/// What utf8proc makes of it in one call.
std::string direct(const std::string& text, NormalForm form) {
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.c_str());
    const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> out(form == NormalForm::nfc    ? utf8proc_NFC(bytes)
                                                                 : form == NormalForm::nfd  ? utf8proc_NFD(bytes)
                                                                 : form == NormalForm::nfkc ? utf8proc_NFKC(bytes)
                                                                                            : utf8proc_NFKD(bytes),
                                                                 std::free);
    return reinterpret_cast<const char*>(out.get());
}

constexpr NormalForm kForms[] = {NormalForm::nfc, NormalForm::nfd, NormalForm::nfkc, NormalForm::nfkd};

std::string repeated(const std::string& text, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) {
        out += text;
    }
    return out;
}

}  // namespace

TEST_SUITE_BEGIN("tokenizer");

TEST_CASE("tokenizer: normal forms are those of utf8proc") {
    // letters, marks of many classes, Hangul, ligatures, and any character
    constexpr std::array<std::array<char32_t, 2>, 8> kRanges{{{0x20, 0x7E},
                                                              {0xC0, 0x17F},
                                                              {0x300, 0x36F},
                                                              {0x591, 0x5C7},
                                                              {0x1100, 0x11FF},
                                                              {0xAC00, 0xAC40},
                                                              {0xFB00, 0xFDFF},
                                                              {0x1, 0x10FFFF}}};
    std::mt19937 random(1);
    for (int i = 0; i < 2000; ++i) {
        std::string text;
        for (unsigned count = random() % 12; count > 0; --count) {
            const auto& [first, last] = kRanges[random() % kRanges.size()];
            const char32_t c = first + random() % (last - first + 1);
            append_utf8(text, c >= 0xD800 && c < 0xE000 ? U'a' : c);
        }
        CAPTURE(text);
        for (const NormalForm form : kForms) {
            CHECK(normalized(text, form) == direct(text, form));
        }
    }
    CHECK(normalized(std::string("a\0e\xCC\x81", 5), NormalForm::nfc) == std::string("a\0\xC3\xA9", 4));
}

TEST_CASE("tokenizer: marks in any order are put in order in time") {
    const std::string above = "\xCC\x81", below = "\xCC\xA3";
    constexpr int kMarks = 300'000;  // whose exchange of neighbours would take an hour
    const std::string text = "a" + repeated(above, kMarks) + repeated(below, kMarks);
    CHECK(normalized(text, NormalForm::nfd) == "a" + repeated(below, kMarks) + repeated(above, kMarks));
    CHECK(normalized(text, NormalForm::nfkc).starts_with("\xE1\xBA\xA1" + below));
}
