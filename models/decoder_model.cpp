// SPDX-License-Identifier: Apache-2.0
#include "models/decoder_model.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "models/families/family.h"
#include "runtime/base/paths.h"

namespace vkf {

namespace {

using nlohmann::json;

/// A number or a list of them; null says that there is none. `otherwise` is for a file that does
/// not say, where the vocabulary has it.
std::vector<std::int32_t> read_ids(ConfigReader& r, const char* name, std::optional<std::int32_t> otherwise = {},
                                   std::int64_t vocab_size = 0) {
    const json* value = r.find(name);
    std::vector<std::int32_t> ids;
    const auto add = [&](const json& id) {
        const bool fits = id.is_number_integer() && id >= 0 && id <= std::numeric_limits<std::int32_t>::max();
        if (!fits) {
            r.fail(name, "must be a token's id, or a list of them");
        }
        ids.push_back(id.get<std::int32_t>());
    };
    if (value != nullptr && value->is_array()) {
        std::for_each(value->begin(), value->end(), add);
    } else if (value != nullptr) {
        add(*value);
    } else if (!r.is_null(name) && otherwise && *otherwise < vocab_size) {
        ids.push_back(*otherwise);
    }
    return ids;
}

/// The fields that transformers obeys where it takes the likeliest token each time, and that say
/// something else than what stands beside them. (An empty list and null say nothing.)
std::vector<std::string> not_obeyed(const json& generation) {
    const std::pair<const char*, json> fields[] = {{"repetition_penalty", 1},
                                                   {"encoder_repetition_penalty", 1},
                                                   {"no_repeat_ngram_size", 0},
                                                   {"encoder_no_repeat_ngram_size", 0},
                                                   {"min_length", 0},
                                                   {"min_new_tokens", 0},
                                                   {"num_beams", 1},
                                                   {"bad_words_ids", nullptr},
                                                   {"suppress_tokens", nullptr},
                                                   {"begin_suppress_tokens", nullptr},
                                                   {"forced_bos_token_id", nullptr},
                                                   {"forced_eos_token_id", nullptr},
                                                   {"forced_decoder_ids", nullptr},
                                                   {"force_words_ids", nullptr},
                                                   {"constraints", nullptr},
                                                   {"guidance_scale", 1},
                                                   {"penalty_alpha", 0},
                                                   {"watermarking_config", nullptr},
                                                   {"sequence_bias", nullptr},
                                                   {"stop_strings", nullptr},
                                                   {"exponential_decay_length_penalty", nullptr}};
    std::vector<std::string> names;
    for (const auto& [name, neutral] : fields) {
        const auto found = generation.find(name);
        const bool says = found != generation.end() && !found->is_null() && *found != neutral;
        if (says && !(found->is_array() && found->empty())) {
            names.emplace_back(name);
        }
    }
    return names;
}

}  // namespace

DecoderModel read_decoder(std::string_view text, const std::string& file) {
    const OwnedJson root = parse_config(text, file);
    ConfigReader r(root, file);
    const Family& family = find_family(r, &Family::decoder, "an architecture");
    DecoderModel model;
    model.family_ = family.decoder(r);
    model.facts_ = model.family_->facts();
    model.facts_.model_type = r.text("model_type", "");
    const std::vector<std::int32_t> begin = read_ids(r, "bos_token_id", family.begin, model.facts_.vocab_size);
    model.facts_.begin = begin.empty() ? std::nullopt : std::optional(begin.front());
    model.facts_.end = read_ids(r, "eos_token_id", family.end, model.facts_.vocab_size);
    r.finish();
    return model;
}

DecoderModel read_decoder(const Checkpoint& checkpoint) {
    DecoderModel model = read_decoder(checkpoint.config(), checkpoint.config_file());
    const std::size_t layers = model.facts().layers.size(), tensors = checkpoint.names().size();
    if (layers > tensors) {  // said before each of them is described
        throw Error(std::to_string(layers) + " layers are more than the files have tensors, " + std::to_string(tensors),
                    checkpoint.config_file());
    }
    const std::filesystem::path path = checkpoint.folder() / "generation_config.json";
    if (is_there(path)) {
        const OwnedJson root = parse_config(file_text(path, kMostConfigBytes), utf8_name(path));
        ConfigReader r(root, utf8_name(path));
        const std::vector<std::int32_t> begin = read_ids(r, "bos_token_id"), end = read_ids(r, "eos_token_id");
        model.facts_.begin = begin.empty() ? model.facts_.begin : begin.front();
        model.facts_.end = end.empty() && !r.is_null("eos_token_id") ? model.facts_.end : end;
        model.facts_.not_obeyed = not_obeyed(root);
    } else {  // then transformers takes them from here
        model.facts_.not_obeyed = not_obeyed(parse_config(checkpoint.config(), checkpoint.config_file()));
    }
    return model;
}

const DecoderFamily& family_of(const DecoderModel& model) {
    if (!model.family_) {
        throw Error("the model is empty: read_decoder() gives one", "DecoderModel");
    }
    return *model.family_;
}

const DecoderFacts& facts_of(const DecoderModel& model) {
    family_of(model);
    return model.facts();
}

}  // namespace vkf
