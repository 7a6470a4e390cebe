// SPDX-License-Identifier: Apache-2.0
// Tokenizers and chat templates: what is accepted encodes and decodes any text.
#include "tests/fuzz/target.h"
#include "text/chat_template.h"
#include "text/prompt.h"
#include "text/tokenizer.h"

namespace vkf::fuzz {

namespace {

constexpr const char* kTexts[] = {"", "Hello, world! 1234 times", "  d\xC3\xA9j\xC3\xA0 vu\n\t<s>\xF0\x9F\x98\x80",
                                  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};

void use(const Tokenizer& tokenizer) {
    require(tokenizer.size() >= 0, "a negative size");
    for (const char* text : kTexts) {
        try {
            const std::vector<std::int32_t> ids = tokenizer.encode(text);
            for (const std::int32_t id : ids) {
                require(id >= 0 && id < tokenizer.size(), "an id outside the vocabulary");
            }
            tokenizer.decode(ids);
            TokenStream stream(tokenizer);
            for (const std::int32_t id : ids) {
                stream.push(id);
            }
            stream.finish();
        } catch (const Error&) {  // of a pattern that takes too long, say
        }
    }
    for (const std::int32_t id : {-1, 0, 5, tokenizer.size(), 1 << 30}) {
        tokenizer.decode({&id, 1}, false);
        tokenizer.token(id);
    }
}

void read_json(Bytes bytes) { use(Tokenizer::parse(text_of(bytes), "fuzz")); }

void read_model(Bytes bytes) {
    const std::filesystem::path file = folder() / "tokenizer.model";
    write(file, bytes);
    use(Tokenizer(file));
}

void read_template(Bytes bytes) {
    const std::string_view text = text_of(bytes);
    const ChatTemplate t = ChatTemplate::parse(text, "<s>", "fuzz");
    require(!t.family().empty(), "a template of no family");
    try {
        t.prompt("What?");
        t.prompt("What?", "Be brief.");
    } catch (const Error&) {  // that takes no system message
    }
}

const Target kJson("tokenizer_json", read_json);
const Target kModel("tokenizer_model", read_model);
const Target kTemplate("chat_template", read_template);

}  // namespace

}  // namespace vkf::fuzz
