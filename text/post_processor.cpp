// SPDX-License-Identifier: Apache-2.0
#include "text/post_processor.h"

namespace vkf::text {

namespace {

Affixes template_of(const Json& part) {
    Affixes affixes;
    bool seen = false;
    for (const Json& item : part.at("single")) {
        if (item.contains("Sequence")) {
            if (seen) {
                refuse("a template with", "the text twice");
            }
            seen = true;
            continue;
        }
        const std::string name = item.at("SpecialToken").at("id").get<std::string>();
        std::vector<TokenId>& side = seen ? affixes.after : affixes.before;
        for (const Json& id : part.at("special_tokens").at(name).at("ids")) {
            side.push_back(token_id(id));
        }
    }
    if (!seen) {
        refuse("a template", "without the text");
    }
    return affixes;
}

/// ["[SEP]", 102]
TokenId second(const Json& pair) { return token_id(pair.at(1)); }

Affixes sequence(const Json& part) {
    const Nested nested;
    Affixes all;
    for (const Json& one : part.at("processors")) {
        const Affixes next = read_post_processor(one);
        all.before.insert(all.before.begin(), next.before.begin(), next.before.end());
        all.after.insert(all.after.end(), next.after.begin(), next.after.end());
    }
    return all;
}

}  // namespace

Affixes read_post_processor(const Json& part) {
    const std::string type = type_of(part);
    if (type.empty() || type == "ByteLevel") {  // which is about offsets
        return {};
    }
    if (type == "TemplateProcessing") {
        return template_of(part);
    }
    if (type == "BertProcessing" || type == "RobertaProcessing") {
        return {{second(part.at("cls"))}, {second(part.at("sep"))}};
    }
    if (type == "Sequence") {
        return sequence(part);
    }
    refuse("post-processor", type);
}

}  // namespace vkf::text
