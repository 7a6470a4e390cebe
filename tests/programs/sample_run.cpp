// SPDX-License-Identifier: Apache-2.0
#include "sample_run.h"

#include <doctest/doctest.h>

Outcome run(const std::vector<std::string>& words) { return Process(words).wait(kSeconds); }

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void check_sane(const Outcome& o, const std::string& name) {
    CHECK_FALSE(o.hung);
    CHECK(o.signal == 0);
    CHECK((o.code == 0 || o.code == 1));
    CHECK_FALSE(has(o.output, "Sanitizer"));
    CHECK_FALSE(has(o.output, "runtime error:"));
    if (o.code == 1) {
        CHECK(has(o.output, name + ": "));
    }
}

void check_refused(const Outcome& o, const std::string& name, const std::string& part) {
    check_sane(o, name);
    CHECK(o.code == 1);
    CHECK_MESSAGE(has(o.output, part), "no \"" << part << "\" in: " << o.output);
}
