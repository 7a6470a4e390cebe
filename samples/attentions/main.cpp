// SPDX-License-Identifier: Apache-2.0
// An example of each attention, and of each layer that stands around it, with a relation that a
// person can check. docs/attention.md says what they are called elsewhere. Ends with 1 where a
// relation does not hold.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "../arguments.h"
#include "example.h"

int main(int argc, char** argv) try {
    CLI::App app("An example of each attention on a Vulkan device, which VKFORMER_DEVICE names");
    if (const int code = parse_arguments(app, argc, argv); code >= 0) {
        return code;
    }
    Examples examples(Device::create());
    const Capabilities& caps = examples.device().capabilities();
    std::printf("%s, %s\n", caps.name.c_str(), caps.driver.c_str());
    scaled_dot_product(examples);
    options_of_scores(examples);
    sequences(examples);
    layers(examples);
    grouped_queries(examples);
    torch_modules(examples);
    ways_to_score(examples);
    positions(examples);
    the_rest(examples);
    std::printf("\n%d claims, %d do not hold\n", examples.claims(), examples.failures());
    // of the validation layer, where it is on
    const std::vector<std::string> messages = examples.device().messages();
    for (const std::string& message : messages) {
        std::printf("%s\n", message.c_str());
    }
    end_output();
    return examples.failures() == 0 && messages.empty() ? 0 : 1;
} catch (const std::exception& e) {
    std::fprintf(stderr, "attentions: %s\n", e.what());
    return 1;
}
