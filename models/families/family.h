// SPDX-License-Identifier: Apache-2.0
// What the file of a family gives. A file NAME.cpp in this folder defines `Family
// vkf::families::NAME()`; the build lists the files (families.cpp.in), so adding one changes no
// other. Objects that register themselves would be left out of a program that links the library
// statically, since nothing names them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/blocks/decoder_facts.h"
#include "models/blocks/decoder_run.h"
#include "models/blocks/encoder_facts.h"
#include "models/files/config_reader.h"
#include "models/files/parameters.h"
#include "runtime/graph/shard.h"

namespace vkf {

/// A decoder made from a config.json.
class DecoderFamily {
public:
    virtual ~DecoderFamily() = default;
    /// Gives all facts but model_type, begin and end, which every config.json says alike.
    virtual DecoderFacts facts() const = 0;
    /// Describes what the first layer begins with: hidden states (batch, tokens, width).
    virtual Value embed(DecoderRun& run) const = 0;
    /// Describes the layer `index` of hidden states h, and gives its own.
    virtual Value layer(DecoderRun& run, std::int64_t index, Value h) const = 0;
    /// Describes the logits (batch, run.logit_positions(), vocabulary) of what the last layer gave.
    virtual Value logits(DecoderRun& run, Value h) const = 0;
    /// Describes some of the layers, with what stands before the first and behind the last. Gives
    /// the logits, or the hidden states that the next layer begins with.
    Value describe(DecoderRun& run, const Part& layers) const {
        Value h = layers.first == 0 ? embed(run) : run.hidden();
        for (std::int64_t i = layers.first; i < layers.first + layers.count; ++i) {
            h = layer(run, i, h);
        }
        const bool all = layers.first + layers.count == static_cast<std::int64_t>(facts().layers.size());
        return all ? logits(run, h) : h;
    }
    virtual ParameterRules parameters() const = 0;
};

/// An encoder made from a config.json.
class EncoderFamily {
public:
    virtual ~EncoderFamily() = default;
    /// Gives all facts but model_type.
    virtual EncoderFacts facts() const = 0;
    /// Gives the hidden states (batch, tokens, width) of ids (batch, tokens) i32; `keys` (batch, 1,
    /// 1, tokens) i32 is 0 where a text is padded.
    virtual Value describe(Value ids, Value keys) const = 0;
    /// Gives the id that describe() cannot take within a text, where there is one.
    virtual std::optional<std::int32_t> refused() const { return std::nullopt; }
    virtual ParameterRules parameters() const = 0;
};

struct Family {
    std::vector<std::string_view> model_types;  ///< as config.json names them
    /// One of the two. Throws Error for a field that is not supported; fields that were not read
    /// are refused afterwards.
    std::unique_ptr<DecoderFamily> (*decoder)(ConfigReader& reader) = nullptr;
    std::unique_ptr<EncoderFamily> (*encoder)(ConfigReader& reader) = nullptr;
    /// The ids that begin and end a decoder's texts where config.json does not say, as transformers
    /// has it.
    std::optional<std::int32_t> begin = {}, end = {};
};

template <class F>
std::unique_ptr<DecoderFamily> make_decoder(ConfigReader& reader) {
    return std::make_unique<F>(reader);
}
template <class F>
std::unique_ptr<EncoderFamily> make_encoder(ConfigReader& reader) {
    return std::make_unique<F>(reader);
}

/// Lists every family there is.
const std::vector<Family>& all_families();

/// The family of the config.json's model_type that has this kind of model (&Family::decoder or
/// &Family::encoder). Throws Error naming those there are; `kind` says there what was looked for.
template <class Make>
const Family& find_family(ConfigReader& reader, Make Family::*make, const char* kind) {
    const std::string model_type = reader.text("model_type", "");
    std::string known;
    for (const Family& family : all_families()) {
        for (const std::string_view type : family.model_types) {
            if (family.*make == nullptr) {
                continue;
            }
            if (type == model_type) {
                return family;
            }
            known += (known.empty() ? "" : ", ") + std::string(type);
        }
    }
    reader.fail("model_type", std::string("is not ") + kind + " that is known (" + known + ")");
}

/// Files of tied embeddings may have the last matrix too, as a copy of their table.
inline std::map<std::string, std::string> copies_of_table(bool tied_embeddings, const std::string& table) {
    return tied_embeddings ? std::map<std::string, std::string>{{"lm_head.weight", table}}
                           : std::map<std::string, std::string>{};
}

/// Most decoders keep everything but lm_head below "model.". Older files have tables of
/// RoPE's angles too.
inline ParameterRules usual_parameters(bool tied_embeddings) {
    return {.optional_prefix = "model.",
            .ignored = [](const std::string& name) { return name.ends_with("rotary_emb.inv_freq"); },
            .copies = copies_of_table(tied_embeddings, "model.embed_tokens.weight")};
}

}  // namespace vkf
