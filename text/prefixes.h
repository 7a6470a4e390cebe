// SPDX-License-Identifier: Apache-2.0
// Texts by what another text begins with.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace vkf::text {

/// Numbers of texts, sorted by their text. text_of(number), which gives it, is the same for all
/// calls.
class Prefixes {
public:
    /// Takes those that are not empty. Where two texts are alike, the smaller number stands for
    /// both.
    template <class TextOf>
    void sort(const std::vector<std::int32_t>& numbers, TextOf text_of) {
        for (const std::int32_t number : numbers) {
            if (!text_of(number).empty()) {
                sorted_.push_back(number);
            }
        }
        std::sort(sorted_.begin(), sorted_.end(), [&](std::int32_t a, std::int32_t b) {
            const int order = text_of(a).compare(text_of(b));
            return order < 0 || (order == 0 && a < b);
        });
        for (const std::int32_t number : sorted_) {
            ++first_[static_cast<unsigned char>(text_of(number)[0]) + std::size_t{1}];
        }
        for (std::size_t byte = 1; byte < first_.size(); ++byte) {
            first_[byte] += first_[byte - 1];
        }
    }

    /// Calls f(bytes, number) for each that the text begins with, shortest first.
    template <class TextOf, class F>
    void for_each(std::string_view text, TextOf text_of, F f) const {
        if (text.empty()) {
            return;
        }
        const auto lead = static_cast<unsigned char>(text[0]);
        auto begin = sorted_.begin() + first_[lead];
        auto end = sorted_.begin() + first_[lead + std::size_t{1}];
        // those with n bytes in common are begin..end
        for (std::size_t n = 1; begin != end; ++n) {
            if (text_of(*begin).size() == n) {
                f(n, *begin);
            }
            if (n == text.size()) {
                break;
            }
            const auto byte = static_cast<unsigned char>(text[n]);
            const auto at = [&](std::int32_t number) {
                const std::string_view sought = text_of(number);
                return sought.size() == n ? -1 : static_cast<int>(static_cast<unsigned char>(sought[n]));
            };
            // Mostly, one is left out or none.
            begin += at(*begin) < byte ? 1 : 0;
            if (begin != end && at(*begin) < byte) {
                begin = std::partition_point(begin, end, [&](std::int32_t number) { return at(number) < byte; });
            }
            if (begin != end && at(*(end - 1)) > byte) {
                end = std::partition_point(begin, end, [&](std::int32_t number) { return at(number) <= byte; });
            }
        }
    }

private:
    std::vector<std::int32_t> sorted_;
    std::array<std::int32_t, 257> first_{};  ///< [byte]: those that begin with less
};

}  // namespace vkf::text
