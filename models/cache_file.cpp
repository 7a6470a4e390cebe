// SPDX-License-Identifier: Apache-2.0
#include "models/cache_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <iterator>
#include <map>
#include <span>

#include "models/adapter_states.h"
#include "models/state_tensors.h"
#include "runtime/base/error.h"
#include "runtime/base/mapped_bytes.h"
#include "runtime/base/text.h"
#include "runtime/device/corner.h"
#include "runtime/device/insides.h"

namespace vkf {

namespace {

constexpr const char* kVersionKey = "vkformer.cache";
constexpr const char* kVersion = "1";
constexpr const char* kModelKey = "model_type";
constexpr const char* kTypeKey = "kv";
constexpr const char* kRankKey = "rank";
constexpr const char* kSizes = "decoder.sizes";
constexpr const char* kLayers = "decoder.layers";
constexpr const char* kPadding = "decoder.padding";
constexpr const char* kNext = "decoder.next";
constexpr const char* kCandidateTokens = "decoder.candidate_tokens";
constexpr const char* kCandidateLogits = "decoder.candidate_logits";
constexpr const char* kBeside[] = {kSizes, kLayers, kPadding, kNext, kCandidateTokens, kCandidateLogits};

/// States that are keys and values; an adapter lies beside them.
std::vector<StoredTensor> caches_of(const State& state) {
    std::vector<StoredTensor> out;
    for (const StoredTensor& t : state.layout().tensors()) {
        if (adapted_layer(t.name).empty()) {
            out.push_back(t);
        }
    }
    return out;
}

/// The rows of a cache that hold tokens: of a ring that has been filled, all.
std::int64_t rows_in_use(const StoredTensor& cache, std::int64_t length) { return std::min(length, cache.shape[1]); }

/// The number as a file has it, whatever the program's locale is.
std::string speed_text(double speed) {
    std::array<char, 400> text{};  // the largest double has 309 digits before its point
    const auto end = std::to_chars(text.data(), text.data() + text.size(), speed, std::chars_format::fixed, 6);
    return {text.data(), end.ptr};
}

std::string speeds_text(const std::vector<double>& speeds) {
    std::string text;
    for (const double speed : speeds) {
        text += (text.empty() ? " by " : " : ") + speed_text(speed);
    }
    return text;
}

/// The part of a decoder that a rank has, as the file says it; empty where it has all.
std::string part_text(const DecoderOptions& o) {
    return o.communicator && o.communicator->ranks() > 1
               ? std::to_string(o.communicator->rank()) + " of " + std::to_string(o.communicator->ranks()) +
                     (o.split == Split::layers ? ", layers" : ", tensor") + speeds_text(o.speeds)
               : std::string();
}

template <class T>
HostTensor tensor(const char* name, DType dtype, std::vector<std::int64_t> shape, const std::vector<T>& numbers) {
    return {name, dtype, std::move(shape), std::as_bytes(std::span(numbers))};
}

std::vector<std::int64_t> layer_sizes(const DecoderFacts& facts) {
    std::vector<std::int64_t> out;
    for (const LayerCache& layer : facts.layers) {
        out.insert(out.end(), {layer.kv_heads, layer.head_dim, layer.window});
    }
    return out;
}

std::string layer_text(std::span<const std::int64_t> layer) {
    return std::to_string(layer[0]) + " kv heads of " + std::to_string(layer[1]) + " numbers and " +
           (layer[2] == 0 ? "no window" : "a window of " + std::to_string(layer[2]));
}

bool is_of_shape(const HostTensor& t, const std::vector<std::int64_t>& shape) {
    return std::equal(t.shape.begin(), t.shape.end(), shape.begin(), shape.end(),
                      [](std::int64_t has, std::int64_t wanted) { return wanted < 0 || has == wanted; });
}

}  // namespace

void save_cache_file(const std::filesystem::path& path, const DecoderPlan& plan, const State& caches,
                     const DecoderBatch& batch, const DecoderAnswers& answers) {
    const auto size = static_cast<std::int64_t>(batch.size());
    std::vector<HostTensor> corners;
    for (const StoredTensor& t : caches_of(caches)) {
        corners.push_back({t.name, t.dtype, {size, rows_in_use(t, batch.length()), t.shape[2], t.shape[3]}, {}});
    }
    const DecoderFacts& facts = plan.model().facts();
    const std::vector<std::int64_t> sizes{facts.vocab_size, batch.length(), batch.finished() ? 1 : 0};
    const std::vector<std::int64_t> layers = layer_sizes(facts);
    const std::vector<std::int32_t> padding(batch.padding().begin(), batch.padding().end());
    const auto answered = static_cast<std::int64_t>(answers.next.size());
    const std::int64_t candidates = plan.options().candidates;
    const std::vector<HostTensor> beside{
        tensor(kSizes, DType::i64, {3}, sizes),
        tensor(kLayers, DType::i64, {static_cast<std::int64_t>(facts.layers.size()), 3}, layers),
        tensor(kPadding, DType::i32, {size}, padding),
        tensor(kNext, DType::i32, {answered}, answers.next),
        tensor(kCandidateTokens, DType::i32, {answered, candidates}, answers.candidate_tokens),
        tensor(kCandidateLogits, DType::f32, {answered, candidates}, answers.candidate_logits)};
    std::map<std::string, std::string> metadata{
        {kVersionKey, kVersion}, {kModelKey, facts.model_type}, {kTypeKey, std::string(name_of(plan.options().kv))}};
    if (const std::string part = part_text(plan.options()); !part.empty()) {
        metadata[kRankKey] = part;
    }
    write_states(path, caches, corners, beside, metadata);
}

CacheFile::CacheFile(const std::filesystem::path& path, const DecoderPlan& plan, const State& caches) : file_(path) {
    check_model(plan);
    read_sizes(plan);
    read_answers(plan);
    check_caches(plan.options(), caches);
}

void CacheFile::refuse(const std::string& what) const { throw Error(what, file_.file()); }

template <class T>
std::vector<T> CacheFile::numbers(const char* name, DType dtype, const std::vector<std::int64_t>& shape) const {
    const HostTensor& t = file_.at(name);
    if (t.dtype != dtype || t.type != WeightType::f32 || !is_of_shape(t, shape)) {
        std::string wanted = shape_text(shape);
        for (std::size_t at = wanted.find("-1"); at != std::string::npos; at = wanted.find("-1")) {
            wanted.replace(at, 2, "any");
        }
        refuse("tensor " + t.name + " is " + saved_text(t) + " instead of " + wanted + " " +
               std::string(name_of(dtype)));
    }
    std::vector<T> out(t.data.size() / sizeof(T));
    if (!out.empty()) {
        copy_bytes(t.data, std::as_writable_bytes(std::span(out)).data());
    }
    return out;
}

void CacheFile::check_model(const DecoderPlan& plan) const {
    const auto said = [&](const char* key) {
        const auto found = file_.metadata().find(key);
        return found == file_.metadata().end() ? std::string() : found->second;
    };
    const std::string version = said(kVersionKey);
    if (version.empty()) {
        refuse("is not of a decoder's caches: its metadata have no " + std::string(kVersionKey));
    }
    if (version != kVersion) {
        refuse("has caches of version " + printable(version) + "; only " + kVersion + " is known");
    }
    const DecoderFacts& facts = plan.model().facts();
    if (said(kModelKey) != facts.model_type) {
        refuse("is of a model of type " + printable(said(kModelKey)) + ", the decoder's is \"" + facts.model_type +
               "\"");
    }
    if (said(kTypeKey) != name_of(plan.options().kv)) {
        refuse("has caches kept as " + printable(said(kTypeKey)) + ", the decoder keeps them as " +
               std::string(name_of(plan.options().kv)));
    }
    if (const std::string part = part_text(plan.options()); said(kRankKey) != part) {
        const auto whose = [](const std::string& text) {
            return text.empty() ? std::string("of a decoder of one rank") : "of rank " + printable(text);
        };
        refuse("has the caches " + whose(said(kRankKey)) + ", this is a decoder " + whose(part));
    }
    check_layers(facts);
}

void CacheFile::check_layers(const DecoderFacts& facts) const {
    const std::vector<std::int64_t> saved = numbers<std::int64_t>(kLayers, DType::i64, {-1, 3});
    const std::vector<std::int64_t> wanted = layer_sizes(facts);
    if (saved.size() != wanted.size()) {
        refuse("is of a model of " + std::to_string(saved.size() / 3) + " layers, the decoder's has " +
               std::to_string(wanted.size() / 3));
    }
    for (std::size_t i = 0; i < saved.size(); i += 3) {
        const auto there = std::span(saved).subspan(i, 3), here = std::span(wanted).subspan(i, 3);
        if (!std::ranges::equal(there, here)) {
            refuse("layer " + std::to_string(i / 3) + " has " + layer_text(there) + ", the decoder's has " +
                   layer_text(here));
        }
    }
}

void CacheFile::read_sizes(const DecoderPlan& plan) {
    const DecoderOptions& options = plan.options();
    const std::vector<std::int64_t> sizes = numbers<std::int64_t>(kSizes, DType::i64, {3});
    if (sizes[0] != plan.model().facts().vocab_size) {
        refuse("is of a vocabulary of " + std::to_string(sizes[0]) + ", the decoder's has " +
               std::to_string(plan.model().facts().vocab_size));
    }
    length_ = sizes[1];
    if (length_ < 0 || length_ > options.max_tokens) {
        refuse("holds " + std::to_string(length_) + " tokens; the decoder has room for " +
               std::to_string(options.max_tokens));
    }
    if (sizes[2] != 0 && sizes[2] != 1) {
        refuse("tensor " + std::string(kSizes) + " says " + std::to_string(sizes[2]) +
               " of whether the prompt was read to its end; 0 or 1 is expected");
    }
    finished_ = sizes[2] == 1;
    const std::vector<std::int32_t> padding = numbers<std::int32_t>(kPadding, DType::i32, {-1});
    if (padding.empty() || padding.size() > static_cast<std::size_t>(options.max_batch)) {
        refuse("holds " + std::to_string(padding.size()) + " sequences; the decoder takes 1 to " +
               std::to_string(options.max_batch));
    }
    // While a prompt is not read to its end, all that is read of it may be padding.
    const std::int64_t most = finished_ ? length_ - 1 : options.max_tokens;
    for (const std::int32_t p : padding) {
        if (p < 0 || p > most) {
            refuse("tensor " + std::string(kPadding) + " has " + std::to_string(p) +
                   " tokens in front of a sequence of " + std::to_string(length_));
        }
        padding_.push_back(static_cast<std::size_t>(p));
    }
    if (*std::min_element(padding_.begin(), padding_.end()) != 0) {
        refuse("tensor " + std::string(kPadding) + " pads every sequence");
    }
}

void CacheFile::read_answers(const DecoderPlan& plan) {
    const std::int64_t wanted = plan.options().candidates;
    answers_.next = numbers<std::int32_t>(kNext, DType::i32, {-1});
    const auto answered = static_cast<std::int64_t>(answers_.next.size());
    if (answered != 0 && (!finished_ || answers_.next.size() != padding_.size())) {
        refuse("tensor " + std::string(kNext) + " has " + std::to_string(answered) + " tokens for " +
               std::to_string(padding_.size()) + " sequences" + (finished_ ? "" : " that were not read to their end"));
    }
    const std::vector<std::int32_t> tokens = numbers<std::int32_t>(kCandidateTokens, DType::i32, {answered, -1});
    const std::int64_t saved = file_.at(kCandidateTokens).shape[1];
    const std::vector<float> logits = numbers<float>(kCandidateLogits, DType::f32, {answered, saved});
    if (answered != 0 && saved < wanted) {
        refuse("has " + std::to_string(saved) + " candidates of each sequence, the decoder gives " +
               std::to_string(wanted));
    }
    for (std::int64_t b = 0; b < answered; ++b) {  // the likeliest come first
        answers_.candidate_tokens.insert(answers_.candidate_tokens.end(), tokens.begin() + b * saved,
                                         tokens.begin() + b * saved + wanted);
        answers_.candidate_logits.insert(answers_.candidate_logits.end(), logits.begin() + b * saved,
                                         logits.begin() + b * saved + wanted);
    }
    const std::int64_t vocabulary = plan.model().facts().vocab_size;
    for (const auto* ids : {&answers_.next, &answers_.candidate_tokens}) {
        for (const std::int32_t id : *ids) {
            if (id < 0 || id >= vocabulary) {
                refuse("tensor " + std::string(ids == &answers_.next ? kNext : kCandidateTokens) + " has token " +
                       std::to_string(id) + ", which is outside the vocabulary of " + std::to_string(vocabulary));
            }
        }
    }
}

void CacheFile::check_caches(const DecoderOptions& options, const State& caches) const {
    for (const StoredTensor& t : caches_of(caches)) {
        const HostTensor& saved = file_.at(t.name);
        const std::int64_t rows = rows_in_use(t, length_);
        const std::vector<std::int64_t> wanted{static_cast<std::int64_t>(padding_.size()), rows, t.shape[2],
                                               t.shape[3]};
        if (saved.dtype == t.dtype && saved.type == WeightType::f32 && saved.shape == wanted) {
            continue;
        }
        const bool ring = saved.shape.size() == 4 && saved.shape[1] != rows &&
                          (t.shape[1] < options.max_tokens || saved.shape[1] < length_);
        refuse("tensor " + t.name + " is " + saved_text(saved) + "; of a cache of " + std::to_string(t.shape[1]) +
               " rows that holds " + std::to_string(length_) + " tokens it would be " + shape_text(wanted) + " " +
               std::string(name_of(t.dtype)) +
               (ring ? ": a ring that has been filled goes only into one of as many rows (window - 1 + chunk)" : ""));
    }
    for (const HostTensor& t : file_.tensors()) {
        const bool known =
            (caches.find(t.name) != nullptr && adapted_layer(t.name).empty()) ||
            std::any_of(std::begin(kBeside), std::end(kBeside), [&](const char* n) { return t.name == n; });
        if (!known) {
            refuse("has a tensor " + printable(t.name) + ", which is no cache of the decoder");
        }
    }
}

void CacheFile::write(const State& caches) const {
    for (const StoredTensor& t : caches_of(caches)) {
        const HostTensor& saved = file_.at(t.name);
        write_corner(*Insides::store(caches), t, saved.shape, saved.data);
    }
}

}  // namespace vkf
