// SPDX-License-Identifier: Apache-2.0
#include "text/post_processor.h"

namespace vkf::text {

namespace {

/// Tokens before a text, or after it. One that is named stands for as many as it has ids.
constexpr std::size_t kMostAffixed = 1000;

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
        const Json& ids = part.at("special_tokens").at(name).at("ids");
        if (side.size() + ids.size() > kMostAffixed) {
            refuse("a template of more than", std::to_string(kMostAffixed) + " tokens");
        }
        for (const Json& id : ids) {
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
    Affixes all;
    for (const Affixes& next : sequence_of(part, "processors", read_post_processor)) {
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
