// SPDX-License-Identifier: Apache-2.0
#include "text/prompt.h"

#include <algorithm>

#include "runtime/base/map_file.h"
#include "runtime/base/paths.h"
#include "text/json.h"

namespace vkf {

namespace {

namespace fs = std::filesystem;
using text::Json;

std::string text_member(const Json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// True where add_bos_token rules a class of tokenizers.
bool obeys_add_bos_token(const std::string& tokenizer_class) {
    for (const char* family : {"Llama", "CodeLlama", "Gemma"}) {
        if (tokenizer_class.starts_with(family)) {
            return true;
        }
    }
    return tokenizer_class.empty();
}

/// The longest end of `text` that `stop` begins with, in bytes; shorter than the stop.
std::size_t begun(std::string_view text, std::string_view stop) {
    for (std::size_t n = std::min(stop.size() - 1, text.size()); n > 0; --n) {
        if (text.ends_with(stop.substr(0, n))) {
            return n;
        }
    }
    return 0;
}

}  // namespace

BeginOfText begin_of_text(const fs::path& folder, bool trained) {
    const fs::path path = folder / "tokenizer_config.json";
    const BeginOfText by_training = trained ? BeginOfText::put : BeginOfText::as_tokenizer;
    if (!is_there(path)) {
        return by_training;
    }
    const OwnedJson config = text::read_object(path);
    const bool json = is_there(folder / "tokenizer.json");
    const auto said = config.find("add_bos_token");
    const bool obeyed = !json || obeys_add_bos_token(text_member(config, "tokenizer_class"));
    if (said != config.end() && said->is_boolean() && obeyed) {
        return *said ? BeginOfText::put : BeginOfText::leave_out;
    }
    return json ? BeginOfText::as_tokenizer : by_training;
}

std::vector<std::int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view text, BeginOfText policy,
                                        std::optional<std::int32_t> begin) {
    std::vector<std::int32_t> ids = tokenizer.encode(text);
    if (policy == BeginOfText::as_tokenizer || !begin) {
        return ids;
    }
    const auto begins = [&](const std::vector<std::int32_t>& of) {
        return std::find_if(of.begin(), of.end(), [&](std::int32_t id) { return id != *begin; }) - of.begin();
    };
    // what the text itself begins with stays
    const std::ptrdiff_t own = begins(ids) > 0 ? begins(tokenizer.encode(text, false)) : 0;
    const std::ptrdiff_t wanted = policy == BeginOfText::put ? std::max<std::ptrdiff_t>(own, 1) : own;
    if (begins(ids) < wanted) {
        ids.insert(ids.begin(), *begin);
    } else if (begins(ids) > wanted) {
        ids.erase(ids.begin());
    }
    return ids;
}

StopTexts::StopTexts(std::vector<std::string> stops) : stops_(std::move(stops)) { std::erase(stops_, ""); }

std::string StopTexts::push(std::string_view piece) {
    if (stopped_) {
        return {};
    }
    held_ += piece;
    std::size_t end = held_.size();
    for (const std::string& stop : stops_) {
        const std::size_t at = held_.find(stop);
        stopped_ = stopped_ || at != std::string::npos;
        end = std::min(end, at);
    }
    if (stopped_) {
        return release(end);
    }
    for (const std::string& stop : stops_) {
        end = std::min(end, held_.size() - begun(held_, stop));
    }
    return release(end);
}

std::string StopTexts::finish() { return stopped_ ? std::string() : release(held_.size()); }

std::string StopTexts::release(std::size_t count) {
    std::string out = held_.substr(0, count);
    held_.erase(0, count);
    return out;
}

}  // namespace vkf
