// SPDX-License-Identifier: Apache-2.0
// An outside project that uses the tokenizers: the one whose file is named, or a small one.
#include <vkformer/text.h>
#include <vkformer/vkformer.h>

#include <cstdio>
#include <string>

namespace {

vkf::Tokenizer small() {
    return vkf::Tokenizer::parse(
        R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}, "decoder": {"type": "Fuse"}})",
        "small");
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const vkf::Tokenizer tokenizer = argc > 1 ? vkf::Tokenizer(argv[1]) : small();
        const std::string text = argc > 1 ? "the of and" : "abba";
        const std::string back = tokenizer.decode(tokenizer.encode(text));
        std::printf("%s: %zu tokens\n", back.c_str(), tokenizer.encode(text).size());
        return back == text ? 0 : 1;
    } catch (const vkf::Error& error) {
        std::printf("text: %s\n", error.what());
        return 1;
    }
}
