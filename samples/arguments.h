// SPDX-License-Identifier: Apache-2.0
// What the samples ask of a command line beyond CLI11: numbers are numbers.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <system_error>

/// Throws for a number that CLI11 lets through: NaN, which every comparison with a range is false
/// for, infinity, and a whole number that wraps around where 64 bits do not hold it.
inline void require_numbers(const CLI::App& app) {
    for (const CLI::Option* option : app.get_options()) {
        const std::string type = option->get_type_name();
        for (const std::string& text : option->results()) {
            if (type.starts_with("FLOAT") && !std::isfinite(std::strtod(text.c_str(), nullptr))) {
                throw CLI::ValidationError(option->get_name(), text + " is no finite number");
            }
            std::uint64_t number = 0;
            const char* end = text.data() + text.size();
            if (type.starts_with("UINT") && (text.starts_with("-") || std::from_chars(text.data(), end, number).ec ==
                                                                          std::errc::result_out_of_range)) {
                throw CLI::ValidationError(option->get_name(), text + " is not between 0 and 18446744073709551615");
            }
        }
    }
}

/// Reads the command line. Where the program ends here, because of --help or a mistake, its exit
/// code, else -1.
template <typename Check>
int parse_arguments(CLI::App& app, int argc, char** argv, const Check& check) {
    try {
        app.parse(argc, argv);
        require_numbers(app);
        check();
    } catch (const CLI::ParseError& e) {
        return app.exit(e) == 0 ? 0 : 1;  // --help is no failure
    }
    return -1;
}
inline int parse_arguments(CLI::App& app, int argc, char** argv) {
    return parse_arguments(app, argc, argv, [] {});
}
