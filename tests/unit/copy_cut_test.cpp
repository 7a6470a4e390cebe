// SPDX-License-Identifier: Apache-2.0
// Texts that are cut in their middle.
#include <doctest/doctest.h>

#include <string>

#include "runtime/base/text.h"

namespace {

std::string cut(const std::string& text, std::size_t room) {
    std::string out(room, '#');
    out.resize(vkf::copy_cut(text, out.data(), room));
    return out;
}

}  // namespace

TEST_CASE("text: what does not fit is cut in its middle, between characters") {
    CHECK(cut("", 0).empty());
    CHECK(cut("all of it", 9) == "all of it");
    CHECK(cut("all of it", 8) == "all ...t");
    CHECK(cut("all of it", 5) == "all o");
    CHECK(cut("0123456789", 9) == "0123...89");
    const std::string euro = "\xe2\x82\xac", euros = euro + euro + euro + euro + euro;
    CHECK(cut(euros, 5) == euro);
    CHECK(cut(euros, 2).empty());
    for (std::size_t room = 6; room < euros.size(); ++room) {
        CAPTURE(room);
        const std::string text = cut(euros, room);
        CHECK(text.size() <= room);
        const std::size_t at = text.find("...");
        REQUIRE(at != std::string::npos);
        CHECK(at % 3 == 0);
        CHECK((text.size() - at - 3) % 3 == 0);
    }
}

TEST_CASE("text: the parts of a list") {
    std::string_view rest = "a,,b";
    CHECK(vkf::take_part(rest, ',') == "a");
    CHECK(vkf::take_part(rest, ',').empty());
    CHECK(vkf::take_part(rest, ',') == "b");
    CHECK(rest.empty());
    CHECK(vkf::take_part(rest, ',').empty());
}
