// SPDX-License-Identifier: Apache-2.0
#include "c/device.h"
#include "models/decoder.h"
#include "models/decoder_logits.h"
#include "models/encoder_decoder.h"
#include "models/files/checkpoint.h"
#include "models/files/config_reader.h"
#include "models/files/safetensors.h"
#include "models/sampler.h"
#include "models/text_encoder.h"
#include "runtime/base/map_file.h"

struct vkf_decoder {
    vkf::Decoder decoder;
    std::shared_ptr<const vkf_program> prompt = vkf::c::lent(decoder.prompt_program()),
                                       step = vkf::c::lent(decoder.step_program());
};

struct vkf_encoder_decoder {
    vkf::EncoderDecoder model;
    std::shared_ptr<const vkf_program> encoder = vkf::c::lent(model.encoder()), decoder = vkf::c::lent(model.decoder());
    std::vector<vkf::Decoded> found = {};
};

struct vkf_sampler {
    vkf::Sampler sampler;
};

struct vkf_text_encoder {
    vkf::TextEncoder encoder;
    std::shared_ptr<const vkf_program> program = vkf::c::lent(encoder.program());
};

namespace {

using namespace vkf;
using namespace vkf::c;

/// The caller's own ids: a step allocates nothing.
std::span<const std::int32_t> span_of(const vkf_tokens* tokens) {
    const vkf_tokens& t = need(tokens, "tokens");
    return {t.count == 0 ? t.ids : &need(t.ids, "the tokens' ids"), static_cast<std::size_t>(t.count)};
}

std::vector<std::int32_t> ids_of(const vkf_tokens& tokens) {
    return tokens.count == 0
               ? std::vector<std::int32_t>()
               : std::vector<std::int32_t>(&need(tokens.ids, "the tokens' ids"), tokens.ids + tokens.count);
}

DecoderOptions decoder_options_of(const vkf_decoder_options* options) {
    const vkf_decoder_options o = read(options);
    DecoderOptions out;
    out.max_batch = or_default(o.max_batch, out.max_batch);
    out.max_tokens = o.max_tokens;
    out.chunk = or_default(o.chunk, out.chunk);
    out.candidates = o.candidates;
    out.kv = weight_type_of(o.kv).value_or(out.kv);
    out.arithmetic = arithmetic_of(o.arithmetic);
    out.score = o.score;
    out.profile = o.profile;
    out.progress = progress_of(o.progress, o.user);
    if (o.lora) {
        out.lora = lora_of(o.lora);
    }
    if (o.communicator) {
        out.communicator = o.communicator->ranks;
    }
    out.split = pick(std::array{Split::tensor, Split::layers}, o.split, "split");
    if (o.speeds) {
        out.speeds.assign(o.speeds, o.speeds + (out.communicator ? out.communicator->ranks() : 1));
    }
    return out;
}

TextEncoderOptions text_encoder_options_of(const vkf_text_encoder_options* options) {
    const vkf_text_encoder_options o = read(options);
    TextEncoderOptions out;
    out.max_batch = or_default(o.max_batch, out.max_batch);
    out.max_tokens = o.max_tokens;
    out.arithmetic = arithmetic_of(o.arithmetic);
    return out;
}

void fill_memory(vkf_model_memory& out, const ModelMemory& m) {
    fill(out, {0, 0, m.weights, m.cache, m.scratch, m.constants, m.transfers, m.total()});
}

DecoderPlan plan_of(const Device& device, const Checkpoint& checkpoint, const LoadOptions& load,
                    const vkf_decoder_options* options) {
    return DecoderPlan(device, checkpoint, read_decoder(checkpoint), decoder_options_of(options), load);
}

EncoderDecoderConfig config_of(const vkf_encoder_decoder_config& c) {
    EncoderDecoderConfig out;
    out.source_vocabulary = c.source_vocabulary;
    out.target_vocabulary = c.target_vocabulary;
    out.d_model = or_default(c.d_model, out.d_model);
    out.nhead = or_default(c.nhead, out.nhead);
    out.num_encoder_layers = or_default(c.num_encoder_layers, out.num_encoder_layers);
    out.num_decoder_layers = or_default(c.num_decoder_layers, out.num_decoder_layers);
    out.dim_feedforward = or_default(c.dim_feedforward, out.dim_feedforward);
    out.activation = or_default(activation_of(c.activation), out.activation);
    out.norm_first = c.norm_first;
    out.layer_norm_eps = or_default(c.layer_norm_eps, out.layer_norm_eps);
    out.embedding_scale = or_default(c.embedding_scale, out.embedding_scale);
    out.max_source = c.max_source;
    out.max_target = c.max_target;
    return out;
}

vkf_encoder_decoder* load_encoder_decoder(const vkf_device* device, std::span<const HostTensor> tensors,
                                          const vkf_load_options* load, const vkf_encoder_decoder_config* config,
                                          std::int64_t max_batch) {
    return new vkf_encoder_decoder{EncoderDecoder(need(device, "device").device, tensors,
                                                  config_of(read_needed(config, "config")),
                                                  or_default<std::int64_t>(max_batch, 1), load_of(load))};
}

const Decoded& found_by(const vkf_encoder_decoder* model, std::uint64_t source) {
    const std::vector<Decoded>& found = need(model, "model").found;
    if (source >= found.size()) {
        throw Error("source " + std::to_string(source) + " of " + std::to_string(found.size()) + " that were decoded");
    }
    return found[static_cast<std::size_t>(source)];
}

}  // namespace

std::vector<std::vector<std::int32_t>> vkf::c::all_ids_of(std::uint32_t count, const vkf_tokens* tokens,
                                                          const char* what) {
    std::vector<std::vector<std::int32_t>> out;
    for (std::uint32_t i = 0; i < count; ++i) {
        out.push_back(ids_of((&need(tokens, what))[i]));
    }
    return out;
}

vkf::LoraOptions vkf::c::lora_of(const vkf_lora_options* options) {
    const vkf_lora_options o = read(options, "lora");
    if (o.adapter) {
        if (o.rank != 0 || o.alpha != 0 || o.target_count != 0) {
            throw Error("of vkf_lora_options, `adapter` stands in place of rank, alpha and targets");
        }
        return Adapter(path_of(o.adapter)).options();
    }
    LoraOptions out;
    out.rank = or_default(o.rank, out.rank);
    out.alpha = or_default(o.alpha, out.alpha);
    for (std::uint32_t i = 0; i < o.target_count; ++i) {
        out.targets.push_back(text((&need(o.targets, "targets"))[i], "one of the targets"));
    }
    return out;
}

vkf_result vkf_decoder_create(vkf_device* device, const char* folder, const vkf_load_options* load,
                              const vkf_decoder_options* options, vkf_decoder** decoder) {
    return make(__func__, decoder, [&] {
        const Device& on = need(device, "device").device;
        const Checkpoint checkpoint(path_of(text(folder, "folder")));
        return new vkf_decoder{Decoder(on, checkpoint, plan_of(on, checkpoint, load_of(load), options))};
    });
}

vkf_result vkf_weights_load_decoder(vkf_device* device, const char* folder, const vkf_load_options* load,
                                    vkf_weights** weights) {
    return make(__func__, weights, [&] {
        const Device& on = need(device, "device").device;
        const Checkpoint checkpoint(path_of(text(folder, "folder")));
        return new vkf_weights{load_decoder(on, checkpoint, read_decoder(checkpoint), load_of(load))};
    });
}

vkf_result vkf_decoder_create_with_weights(vkf_device* device, const char* folder, const vkf_weights* weights,
                                           const vkf_decoder_options* options, vkf_decoder** decoder) {
    return make(__func__, decoder, [&] {
        const Device& on = need(device, "device").device;
        const Checkpoint checkpoint(path_of(text(folder, "folder")));
        return new vkf_decoder{
            Decoder(on, need(weights, "weights"), read_decoder(checkpoint), decoder_options_of(options))};
    });
}

vkf_result vkf_decoder_memory(const vkf_device* device, const char* folder, const vkf_load_options* load,
                              const vkf_decoder_options* options, vkf_model_memory* memory) {
    return guard(__func__, [&] {
        vkf_model_memory& out = need(memory, "memory");
        const Checkpoint checkpoint(path_of(text(folder, "folder")));
        const DecoderPlan plan = plan_of(need(device, "device").device, checkpoint, load_of(load), options);
        fill_memory(out, plan.memory());
    });
}

void vkf_decoder_destroy(vkf_decoder* decoder) { delete decoder; }

vkf_result vkf_decoder_save(const char* from, const char* to, const vkf_load_options* load) {
    return guard(__func__, [&] {
        const Checkpoint checkpoint(path_of(text(from, "from")));
        save_decoder(path_of(text(to, "to")), checkpoint, read_decoder(checkpoint), load_of(load));
    });
}

vkf_result vkf_decoder_get(const vkf_decoder* decoder, vkf_decoder_facts* facts) {
    return guard(__func__, [&] {
        const DecoderFacts& f = need(decoder, "decoder").decoder.model().facts();
        vkf_decoder_facts out{};
        out.has_begin = f.begin.has_value();
        out.begin = f.begin.value_or(0);
        out.begins_texts = f.begins_texts;
        out.vocab_size = f.vocab_size;
        out.max_positions = f.max_positions;
        out.model_type = f.model_type.c_str();
        out.width = f.width;
        fill(need(facts, "facts"), out);
    });
}

vkf_result vkf_decoder_end_tokens(const vkf_decoder* decoder, int32_t* ids, uint64_t capacity, uint64_t* count) {
    return guard(__func__, [&] {
        const std::vector<std::int32_t>& end = need(decoder, "decoder").decoder.model().facts().end;
        give_numbers<std::int32_t>("the list of ids", end, ids, capacity, count);
    });
}

vkf_result vkf_decoder_not_obeyed(const vkf_decoder* decoder, char* text, size_t capacity, size_t* needed) {
    return guard(__func__, [&] {
        std::string lines;
        for (const std::string& field : need(decoder, "decoder").decoder.model().facts().not_obeyed) {
            lines += field + "\n";
        }
        give_text(lines, text, capacity, needed);
    });
}

vkf_result vkf_decoder_prompt(vkf_decoder* decoder, uint32_t count, const vkf_tokens* prompts) {
    return guard(__func__, [&] { need(decoder, "decoder").decoder.prompt(all_ids_of(count, prompts, "prompts")); });
}

vkf_result vkf_decoder_append(vkf_decoder* decoder, const vkf_tokens* tokens) {
    return guard(__func__, [&] { need(decoder, "decoder").decoder.append(span_of(tokens)); });
}

vkf_result vkf_decoder_step(vkf_decoder* decoder, const vkf_tokens* tokens) {
    return guard(__func__, [&] { need(decoder, "decoder").decoder.step(span_of(tokens)); });
}

vkf_result vkf_decoder_next(const vkf_decoder* decoder, int32_t* ids, uint64_t capacity, uint64_t* count) {
    return guard(__func__, [&] {
        give_numbers<std::int32_t>("the list of tokens", need(decoder, "decoder").decoder.next(), ids, capacity, count);
    });
}

vkf_result vkf_decoder_candidates(const vkf_decoder* decoder, uint64_t sequence, int32_t* ids, float* logits,
                                  uint64_t capacity, uint64_t* count) {
    return guard(__func__, [&] {
        const Candidates best = need(decoder, "decoder").decoder.candidates(static_cast<std::size_t>(sequence));
        if (!best.tokens.empty() && best.tokens.size() <= capacity) {  // before anything is written
            need(ids, "ids");
            need(logits, "logits");
        }
        give_numbers<std::int32_t>("the list of candidates", best.tokens, ids, capacity, count);
        give_numbers<float>("the list of candidates", best.logits, logits, capacity, nullptr);
    });
}

vkf_result vkf_decoder_room(const vkf_decoder* decoder, int64_t* tokens) {
    return give(__func__, tokens, [&] { return need(decoder, "decoder").decoder.room(); });
}

vkf_result vkf_decoder_set_adapter(vkf_decoder* decoder, const char* folder) {
    return guard(__func__,
                 [&] { need(decoder, "decoder").decoder.set_adapter(Adapter(path_of(text(folder, "folder")))); });
}

vkf_result vkf_decoder_clear_adapter(vkf_decoder* decoder) {
    return guard(__func__, [&] { need(decoder, "decoder").decoder.clear_adapter(); });
}

vkf_result vkf_decoder_save_cache(const vkf_decoder* decoder, const char* path) {
    return guard(__func__, [&] { need(decoder, "decoder").decoder.save_cache(path_of(text(path, "path"))); });
}

vkf_result vkf_decoder_restore_cache(vkf_decoder* decoder, const char* path) {
    return guard(__func__, [&] { need(decoder, "decoder").decoder.restore_cache(path_of(text(path, "path"))); });
}

vkf_result vkf_decoder_score(vkf_decoder* decoder, const vkf_tokens* tokens, float* logits, uint64_t capacity,
                             uint64_t* count) {
    return guard(__func__, [&] {
        constexpr const char* kLogits = "the table of logits";
        Decoder& d = need(decoder, "decoder").decoder;
        const std::vector<std::int32_t> ids = ids_of(need(tokens, "tokens"));
        const std::uint64_t size = ids.size() * static_cast<std::uint64_t>(d.model().facts().vocab_size);
        if (size > capacity || !logits) {  // before the text takes the place of what was read
            need_room(kLogits, size, logits, capacity, count);
        }
        const std::vector<float> all = d.score(ids);
        give_numbers<float>(kLogits, all, logits, capacity, count);
    });
}

vkf_result vkf_decoder_prompt_program(const vkf_decoder* decoder, const vkf_program** program) {
    return give(__func__, program, [&] { return need(decoder, "decoder").prompt.get(); });
}

vkf_result vkf_decoder_step_program(const vkf_decoder* decoder, const vkf_program** program) {
    return give(__func__, program, [&] { return need(decoder, "decoder").step.get(); });
}

vkf_result vkf_decoder_logits(vkf_value tokens, const char* folder, vkf_value* logits) {
    return give_value(__func__, logits, [&] {
        const Value ids = value_of(tokens, "tokens");
        const std::filesystem::path config = path_of(text(folder, "folder")) / "config.json";
        return decoder_logits(ids, read_decoder(file_text(config, kMostConfigBytes), utf8_name(config)));
    });
}

vkf_result vkf_adapter_write(const char* folder, vkf_state* state) {
    return guard(__func__, [&] { Adapter(path_of(text(folder, "folder"))).write(need(state, "state")); });
}

vkf_result vkf_adapter_clear(vkf_state* state) {
    return guard(__func__, [&] { clear_adapter(need(state, "state")); });
}

vkf_result vkf_adapter_save(const char* folder, const vkf_state* state, const vkf_lora_options* options,
                            const char* base) {
    return guard(__func__, [&] {
        const State& from = need(state, "state");
        save_adapter(path_of(text(folder, "folder")), from, lora_of(&need(options, "options")), text_or(base));
    });
}

vkf_result vkf_adapter_merge(const char* from, const char* to, const char* adapter) {
    return guard(__func__, [&] {
        const Checkpoint checkpoint(path_of(text(from, "from")));
        merge_adapter(path_of(text(to, "to")), checkpoint, read_decoder(checkpoint),
                      Adapter(path_of(text(adapter, "adapter"))));
    });
}

vkf_result vkf_encoder_decoder_create(vkf_device* device, const vkf_weights* weights,
                                      const vkf_encoder_decoder_config* config, int64_t max_batch,
                                      vkf_encoder_decoder** model) {
    return make(__func__, model, [&] {
        return new vkf_encoder_decoder{EncoderDecoder(need(device, "device").device, need(weights, "weights"),
                                                      config_of(read_needed(config, "config")),
                                                      or_default<std::int64_t>(max_batch, 1))};
    });
}

vkf_result vkf_encoder_decoder_load(vkf_device* device, uint32_t count, const vkf_tensor* tensors,
                                    const vkf_load_options* load, const vkf_encoder_decoder_config* config,
                                    int64_t max_batch, vkf_encoder_decoder** model) {
    return make(__func__, model,
                [&] { return load_encoder_decoder(device, tensors_of(count, tensors), load, config, max_batch); });
}

vkf_result vkf_encoder_decoder_load_file(vkf_device* device, const char* path, const vkf_load_options* load,
                                         const vkf_encoder_decoder_config* config, int64_t max_batch,
                                         vkf_encoder_decoder** model) {
    return make(__func__, model, [&] {
        return load_encoder_decoder(device, Safetensors(path_of(text(path, "path"))), load, config, max_batch);
    });
}

vkf_result vkf_encoder_decoder_memory(const vkf_encoder_decoder* model, vkf_model_memory* memory) {
    return guard(__func__, [&] { fill_memory(need(memory, "memory"), need(model, "model").model.memory()); });
}

void vkf_encoder_decoder_destroy(vkf_encoder_decoder* model) { delete model; }

vkf_result vkf_encoder_decoder_generate(vkf_encoder_decoder* model, uint32_t count, const vkf_tokens* sources,
                                        int32_t sos, int32_t eos, int32_t pad) {
    return guard(__func__, [&] {
        vkf_encoder_decoder& m = need(model, "model");
        m.found = m.model.generate(all_ids_of(count, sources, "sources"), sos, eos, pad);
    });
}

vkf_result vkf_encoder_decoder_tokens(const vkf_encoder_decoder* model, uint64_t source, int32_t* ids,
                                      uint64_t capacity, uint64_t* count) {
    return guard(__func__, [&] {
        give_numbers<std::int32_t>("the list of tokens", found_by(model, source).tokens, ids, capacity, count);
    });
}

vkf_result vkf_encoder_decoder_cross_attention(const vkf_encoder_decoder* model, uint64_t source, float* weights,
                                               uint64_t capacity, uint64_t* count) {
    return guard(__func__, [&] {
        give_numbers<float>("the table of weights", found_by(model, source).cross_attention, weights, capacity, count);
    });
}

vkf_result vkf_encoder_decoder_encoder(const vkf_encoder_decoder* model, const vkf_program** program) {
    return give(__func__, program, [&] { return need(model, "model").encoder.get(); });
}

vkf_result vkf_encoder_decoder_decoder(const vkf_encoder_decoder* model, const vkf_program** program) {
    return give(__func__, program, [&] { return need(model, "model").decoder.get(); });
}

vkf_result vkf_sampler_create(const vkf_sampler_options* options, vkf_sampler** sampler) {
    return make(__func__, sampler, [&] {
        const vkf_sampler_options o = read(options);
        SamplerOptions out;
        out.temperature = o.temperature;
        out.top_p = or_default(o.top_p, out.top_p);
        out.top_k = or_default(o.top_k, out.top_k);
        out.seed = o.seed;
        return new vkf_sampler{Sampler(out)};
    });
}

void vkf_sampler_destroy(vkf_sampler* sampler) { delete sampler; }

vkf_result vkf_sampler_choose(vkf_sampler* sampler, const vkf_decoder* decoder, uint64_t sequence, int32_t* id) {
    return give(__func__, id, [&] {
        const Candidates best = need(decoder, "decoder").decoder.candidates(static_cast<std::size_t>(sequence));
        return need(sampler, "sampler").sampler.choose(best);
    });
}

vkf_result vkf_text_encoder_create(vkf_device* device, const char* folder, const vkf_load_options* load,
                                   const vkf_text_encoder_options* options, vkf_text_encoder** encoder) {
    return make(__func__, encoder, [&] {
        const Device& on = need(device, "device").device;
        const TextEncoderOptions how = text_encoder_options_of(options);
        const Checkpoint checkpoint(path_of(text(folder, "folder")));
        const TextEncoderModel model = read_text_encoder(checkpoint);
        return new vkf_text_encoder{TextEncoder(on, checkpoint, model, how, load_of(load))};
    });
}

vkf_result vkf_weights_load_text_encoder(vkf_device* device, const char* folder, const vkf_load_options* load,
                                         vkf_weights** weights) {
    return make(__func__, weights, [&] {
        const Device& on = need(device, "device").device;
        const Checkpoint checkpoint(path_of(text(folder, "folder")));
        return new vkf_weights{load_text_encoder(on, checkpoint, read_text_encoder(checkpoint), load_of(load))};
    });
}

vkf_result vkf_text_encoder_create_with_weights(vkf_device* device, const char* folder, const vkf_weights* weights,
                                                const vkf_text_encoder_options* options, vkf_text_encoder** encoder) {
    return make(__func__, encoder, [&] {
        const Device& on = need(device, "device").device;
        const Checkpoint checkpoint(path_of(text(folder, "folder")));
        return new vkf_text_encoder{
            TextEncoder(on, need(weights, "weights"), read_text_encoder(checkpoint), text_encoder_options_of(options))};
    });
}

vkf_result vkf_text_encoder_memory(const vkf_text_encoder* encoder, vkf_model_memory* memory) {
    return guard(__func__, [&] { fill_memory(need(memory, "memory"), need(encoder, "encoder").encoder.memory()); });
}

void vkf_text_encoder_destroy(vkf_text_encoder* encoder) { delete encoder; }

vkf_result vkf_text_encoder_get(const vkf_text_encoder* encoder, vkf_encoder_facts* facts) {
    return guard(__func__, [&] {
        const EncoderFacts& f = need(encoder, "encoder").encoder.model().facts();
        fill(need(facts, "facts"),
             {0, f.lower_case, {}, f.vocab_size, f.hidden_size, f.max_tokens, f.model_type.c_str(), f.cut_tokens});
    });
}

vkf_result vkf_text_encoder_program(const vkf_text_encoder* encoder, const vkf_program** program) {
    return give(__func__, program, [&] { return need(encoder, "encoder").program.get(); });
}

vkf_result vkf_text_encoder_embed(vkf_text_encoder* encoder, uint32_t count, const vkf_tokens* texts, float* vectors,
                                  uint64_t capacity, uint64_t* numbers) {
    return guard(__func__, [&] {
        std::vector<float> all;
        for (const std::vector<float>& one :
             need(encoder, "encoder").encoder.embed(all_ids_of(count, texts, "texts"))) {
            all.insert(all.end(), one.begin(), one.end());
        }
        give_numbers<float>("the list of vectors", all, vectors, capacity, numbers);
    });
}
