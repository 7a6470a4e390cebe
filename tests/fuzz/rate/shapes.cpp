// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/rate/shapes.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

namespace vkf::fuzz {

namespace {

/// `begin`, so many of `part(i)` with commas between as fill the bytes, and `end`.
template <class Part>
std::string list_of(const char* begin, std::size_t bytes, const char* end, Part part) {
    std::string text = begin;
    for (std::size_t i = 0; text.size() < bytes; ++i) {
        text += i == 0 ? "" : ",";
        text += part(i);
    }
    return text + end;
}

std::string copies(std::string_view part, std::size_t bytes) {
    std::string text;
    while (text.size() < bytes) {
        text += part;
    }
    return text;
}

/// A short word of letters, another for each number.
std::string word(std::size_t i) {
    std::string w;
    for (++i; i > 0; i /= 26) {
        --i;
        w += static_cast<char>('a' + i % 26);
    }
    return w;
}

std::string quoted(const std::string& text) { return "\"" + text + "\""; }
std::string number(std::size_t i) { return std::to_string(i); }

std::string read_whole(const char* name) {
    std::ifstream in(std::string(VKFORMER_SOURCE_DIR "/tests/") + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

// --- safetensors ---------------------------------------------------------------------------------

/// A header, and so many bytes of data.
std::string tensors(const std::string& header, std::size_t data = 0) {
    const std::uint64_t length = header.size();
    std::string file(sizeof length, '\0');
    std::memcpy(file.data(), &length, sizeof length);
    return file + header + std::string(data, '\0');
}

std::string offsets(std::size_t begin, std::size_t end) {
    return "\"data_offsets\":[" + number(begin) + "," + number(end) + "]}";
}

std::string empty_tensors(std::size_t bytes) {
    return tensors(list_of("{", bytes, "}", [](std::size_t i) {
        return quoted(word(i)) + R"(:{"dtype":"U8","shape":[0],)" + offsets(0, 0);
    }));
}

std::string metadata(std::size_t bytes) {
    return tensors(
        list_of(R"({"__metadata__":{)", bytes, "}}", [](std::size_t i) { return quoted(word(i)) + ":\"\""; }));
}

std::string many_dimensions(std::size_t bytes) {
    const std::string shape = list_of("[", 126, "]", [](std::size_t) { return std::string("0"); });
    return tensors(list_of("{", bytes, "}", [&](std::size_t i) {
        return quoted(word(i)) + R"(:{"dtype":"U8","shape":)" + shape + "," + offsets(0, 0);
    }));
}

std::string long_name(std::size_t bytes) {
    return tensors("{" + quoted(std::string(bytes, 'a')) + R"(:{"dtype":"U8","shape":[0],)" + offsets(0, 0) + "}");
}

std::string packed_tensors(std::size_t bytes) {
    const std::size_t count = bytes / 250;
    std::string header = R"({"__metadata__":{"vkformer.packed":"1")", data;
    for (std::size_t i = 0; i < count; ++i) {
        header += ",\"vkformer.packed:" + word(i) + R"(":"int8 8")";
    }
    header += "}";
    for (std::size_t i = 0; i < count; ++i) {
        data += "," + quoted(word(i)) + R"(:{"dtype":"I32","shape":[2,8],)" + offsets(64 * i, 64 * (i + 1));
    }
    return tensors(header + data + "}", 64 * count);
}

std::string many_matrices(std::size_t bytes) {
    std::size_t count = 0;
    const std::string header = list_of("{", bytes * 9 / 10, "}", [&](std::size_t i) {
        ++count;
        return quoted(word(i)) + R"(:{"dtype":"F32","shape":[1,1],)" + offsets(4 * i, 4 * (i + 1));
    });
    return tensors(header, 4 * count);
}

std::string adapter(const std::string& file) {
    const std::string config = R"({"peft_type":"LORA","bias":"none","lora_alpha":8})";
    return std::string{static_cast<char>(config.size()), '\0'} + config + file;
}

std::string adapted_layers(std::size_t bytes) {
    std::size_t count = 0;
    const std::string header = list_of("{", bytes * 9 / 10, "}", [&](std::size_t i) {
        count = i + 1;
        return "\"l" + number(i / 2) + (i % 2 == 0 ? ".lora_A" : ".lora_B") +
               R"(.weight":{"dtype":"F32","shape":[1,1],)" + offsets(4 * i, 4 * (i + 1));
    });
    return adapter(tensors(header, 4 * count));
}

// --- an index and config.json --------------------------------------------------------------------

std::string many_entries(std::size_t bytes) {
    return list_of(R"({"weight_map":{)", bytes, "}}",
                   [](std::size_t i) { return quoted(word(i)) + R"(:"model-00001-of-00003.safetensors")"; });
}

std::string many_shards(std::size_t bytes) {
    return list_of(R"({"weight_map":{)", bytes, "}}",
                   [](std::size_t i) { return quoted(word(i)) + ":" + quoted(word(i)); });
}

/// A model's config.json, with one field more.
std::string config_with(const std::string& field) {
    std::string config = read_whole("decoders/llama/config.json");
    return config.insert(config.find('{') + 1, field + ",");
}

std::string labels(std::size_t bytes) {
    return config_with(list_of(R"("id2label":{)", bytes, "}", [](std::size_t i) { return quoted(word(i)) + ":\"\""; }));
}

std::string end_tokens(std::size_t bytes) {
    return config_with(
        list_of(R"("task_specific_params":[)", bytes, "]", [](std::size_t) { return std::string("1"); }));
}

std::string empty_lists(std::size_t bytes) {
    return config_with(
        list_of(R"("task_specific_params":[)", bytes, "]", [](std::size_t) { return std::string("[]"); }));
}

std::string unknown_field(std::size_t bytes) {
    return config_with(list_of(R"("what":[)", bytes, "]", [](std::size_t) { return std::string("1"); }));
}

std::string long_number(std::size_t bytes) { return config_with("\"pad_token_id\":" + std::string(bytes, '9')); }

std::string long_text(std::size_t bytes) { return config_with("\"what\":" + quoted(copies("\\u0080", bytes))); }

// --- tokenizers ----------------------------------------------------------------------------------

std::string tokenizer(const std::string& model, const std::string& more = {}) {
    return R"({"model":)" + model + more + "}";
}

std::string numbered(std::size_t bytes) {
    return list_of("{", bytes, "}", [](std::size_t i) { return quoted(word(i)) + ":" + number(i); });
}

const std::string& small_model() {
    static const std::string model = R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})";
    return model;
}

std::string large_vocabulary(std::size_t bytes) {
    return tokenizer(R"({"type":"BPE","vocab":)" + numbered(bytes) + R"(,"merges":[]})");
}

std::string word_pieces(std::size_t bytes) {
    return tokenizer(R"({"type":"WordPiece","unk_token":"a","vocab":)" + numbered(bytes) + "}");
}

std::string unigrams(std::size_t bytes) {
    return tokenizer(R"({"type":"Unigram","unk_id":0,"vocab":)" +
                     list_of("[", bytes, "]", [](std::size_t i) { return "[" + quoted(word(i)) + ",0]"; }) + "}");
}

/// Every word of three letters, and the merges that make them; the same again for the rest.
std::string merges(std::size_t bytes, bool pairs) {
    const std::size_t most = 26 + 26 * 26 + 26 * 26 * 26;
    std::string model = R"({"type":"BPE","vocab":{)";
    for (std::size_t i = 0; i < most; ++i) {
        model += (i == 0 ? "" : ",") + quoted(word(i)) + ":" + number(i);
    }
    return tokenizer(model + "}," +
                     list_of("\"merges\":[", bytes - std::min(bytes, model.size()), "]}", [&](std::size_t i) {
                         const std::string w = word(26 + i % (most - 26));
                         return pairs ? "[" + quoted(w.substr(0, 1)) + "," + quoted(w.substr(1)) + "]"
                                      : quoted(w.substr(0, 1) + " " + w.substr(1));
                     }));
}
std::string merges_in_words(std::size_t bytes) { return merges(bytes, false); }
std::string merges_in_pairs(std::size_t bytes) { return merges(bytes, true); }

std::string added_tokens(std::size_t bytes, bool normalized = false) {
    return list_of(",\"added_tokens\":[", bytes, "]", [&](std::size_t i) {
        return "{\"id\":" + number(i + 3) + ",\"content\":\"<" + word(i) + "\"" +
               (normalized ? ",\"normalized\":true" : "") + "}";
    });
}
std::string many_added(std::size_t bytes) { return tokenizer(small_model(), added_tokens(bytes)); }

std::string sequence(const char* member, const char* parts, std::size_t bytes, const char* part) {
    return list_of((std::string(",") + member + R"(:{"type":"Sequence",)" + parts + ":[").c_str(), bytes, "]}",
                   [&](std::size_t) { return std::string(part); });
}

std::string normalized_tokens(std::size_t bytes) {
    return tokenizer(small_model(),
                     sequence("\"normalizer\"", "\"normalizers\"", bytes / 2, R"({"type":"Lowercase"})") +
                         added_tokens(bytes / 2, true));
}

std::string growing_text(std::size_t bytes) {
    return tokenizer(small_model(), sequence("\"normalizer\"", "\"normalizers\"", std::min<std::size_t>(bytes, 2500),
                                             R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})"));
}

std::string long_replacement(std::size_t bytes) {
    return tokenizer(small_model(), R"(,"normalizer":{"type":"Replace","pattern":{"String":"a"},"content":)" +
                                        quoted(std::string(bytes, 'b')) + "}");
}

std::string template_of_many(std::size_t bytes) {
    const std::string ids = list_of("[", bytes / 2, "]", [](std::size_t) { return std::string("1"); });
    return tokenizer(small_model(), R"(,"post_processor":{"type":"TemplateProcessing","special_tokens":{"a":{"ids":)" +
                                        ids + R"(}},"single":)" +
                                        list_of("[", bytes / 2, R"(,{"Sequence":{}}]})", [](std::size_t) {
                                            return std::string(R"({"SpecialToken":{"id":"a"}})");
                                        }));
}

std::string processors(std::size_t bytes) {
    return tokenizer(small_model(), sequence("\"post_processor\"", "\"processors\"", bytes,
                                             R"({"type":"BertProcessing","cls":["a",1],"sep":["b",2]})"));
}

std::string patterns(std::size_t bytes) {
    const std::string pattern = copies("a|", 4000) + "b";
    return tokenizer(small_model(),
                     list_of(R"(,"pre_tokenizer":{"type":"Sequence","pretokenizers":[)", bytes, "]}", [&](std::size_t) {
                         return R"({"type":"Split","behavior":"Isolated","pattern":{"Regex":)" + quoted(pattern) + "}}";
                     }));
}

std::string long_pattern(std::size_t bytes) {
    return tokenizer(small_model(), R"(,"pre_tokenizer":{"type":"Split","behavior":"Isolated","pattern":{"Regex":)" +
                                        quoted(copies(R"(\\b)", bytes)) + "}}");
}

std::string stripped_token(std::size_t bytes) {
    return tokenizer(R"({"type":"BPE","vocab":{"b":0,)" + quoted(std::string(bytes, 'a')) + R"(:5},"merges":[]})",
                     R"(,"decoder":{"type":"Strip","content":"a","start":1000000000,"stop":0})");
}

std::string one_number(std::size_t bytes) {
    return tokenizer(small_model(), ",\"version\":" + std::string(bytes, '1'));
}

std::string unknown_member(std::size_t bytes) {
    return tokenizer(small_model(), list_of(",\"what\":[", bytes, "]", [](std::size_t) { return std::string("[]"); }));
}

std::string charsmap(std::size_t bytes) {
    // a trie of one unit that leads nowhere, and replacements
    std::string map(4 + 1024, '\0');
    map[1] = 4;
    map.append(bytes * 3 / 4, 'b');
    map += '\0';
    constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (std::size_t i = 0; i + 2 < map.size(); i += 3) {
        const auto at = [&](std::size_t k) { return std::uint32_t{static_cast<unsigned char>(map[i + k])}; };
        const std::uint32_t bits = at(0) << 16 | at(1) << 8 | at(2);
        for (const int shift : {18, 12, 6, 0}) {
            text += kDigits[bits >> shift & 63];
        }
    }
    return tokenizer(small_model(),
                     R"(,"normalizer":{"type":"Precompiled","precompiled_charsmap":)" + quoted(text) + "}");
}

// --- SentencePiece -------------------------------------------------------------------------------

std::string field(int number_of_it, std::string_view bytes) {
    std::string out{static_cast<char>(number_of_it << 3 | 2)};
    std::size_t size = bytes.size();
    for (; size > 127; size >>= 7) {
        out += static_cast<char>(size | 128);
    }
    return out + static_cast<char>(size) + std::string(bytes);
}

std::string piece(std::string_view text, int type = 1) {
    return field(1, field(1, text) + std::string("\x15\0\0\x80\xBF\x18", 6) + static_cast<char>(type));
}

std::string pieces(std::size_t bytes) {
    std::string model = piece("<unk>", 2) + piece("<s>", 3) + piece("</s>", 3);
    for (std::size_t i = 0; model.size() < bytes; ++i) {
        model += piece(word(i));
    }
    return model;
}

std::string long_piece(std::size_t bytes) {
    return piece("<unk>", 2) + piece("<s>", 3) + piece("</s>", 3) + piece(std::string(bytes, 'a'));
}

// --- chat templates ------------------------------------------------------------------------------

/// Of more than a MiB a template is refused.
std::string marks(std::string_view part, std::size_t bytes) {
    return copies(part, std::min<std::size_t>(bytes, 1'000'000));
}

std::string system_marks(std::size_t bytes) { return marks("<|im_start|>system\n", bytes); }
std::string system_texts(std::size_t bytes) { return marks("<|im_start|>system\n", bytes) + "<|im_end|>\n"; }
std::string dates(std::size_t bytes) {
    return marks("Cutting Knowledge Date: ", bytes) + "\n<|start_header_id|><|eot_id|>trim bos_token";
}
std::string instructions(std::size_t bytes) { return "'" + marks("[INST][/INST]", bytes); }
std::string quoted_instructions(std::size_t bytes) { return marks("'[INST]''[/INST]'", bytes); }
std::string nested_loops(std::size_t bytes) { return marks("{% for a in b %}", bytes) + "<start_of_turn>"; }

// --- a device's own ------------------------------------------------------------------------------

std::string zeros(std::size_t bytes) { return std::string(bytes, '\0'); }
std::string choices(std::size_t bytes) {
    return list_of("vkformer tuning 1\n", bytes, "\n", [](std::size_t) { return std::string("a=1"); });
}

constexpr LargeFile kFiles[] = {
    {"safetensors", "tensors of nothing", empty_tensors},
    {"safetensors", "metadata", metadata},
    {"safetensors", "64 dimensions each", many_dimensions},
    {"safetensors", "a long name", long_name},
    {"packed_weights", "packed matrices", packed_tensors},
    {"states", "tensors", many_matrices},
    {"states", "metadata", metadata},
    {"adapters", "layers", adapted_layers},
    {"index", "tensors", many_entries},
    {"index", "shards", many_shards},
    {"config", "labels", labels},
    {"config", "numbers", end_tokens},
    {"config", "empty lists", empty_lists},
    {"config", "an unknown field", unknown_field},
    {"config", "a long number", long_number},
    {"config", "a long text", long_text},
    {"tokenizer_json", "a vocabulary", large_vocabulary},
    {"tokenizer_json", "word pieces", word_pieces},
    {"tokenizer_json", "unigrams", unigrams},
    {"tokenizer_json", "merges", merges_in_words},
    {"tokenizer_json", "merges in pairs", merges_in_pairs},
    {"tokenizer_json", "added tokens", many_added},
    {"tokenizer_json", "added tokens, normalized", normalized_tokens},
    {"tokenizer_json", "a text that doubles", growing_text},
    {"tokenizer_json", "a long replacement", long_replacement},
    {"tokenizer_json", "a template", template_of_many},
    {"tokenizer_json", "processors", processors},
    {"tokenizer_json", "patterns", patterns},
    {"tokenizer_json", "a long pattern", long_pattern},
    {"tokenizer_json", "a token that is stripped", stripped_token},
    {"tokenizer_json", "a long number", one_number},
    {"tokenizer_json", "an unknown member", unknown_member},
    {"tokenizer_json", "a table of replacements", charsmap},
    {"tokenizer_model", "pieces", pieces, 40},  // libsentencepiece: some 200 bytes a piece, twice
    {"tokenizer_model", "a long piece", long_piece},
    {"chat_template", "ChatML's marks", system_marks},
    {"chat_template", "ChatML's marks and an end", system_texts},
    {"chat_template", "Llama 3's dates", dates},
    {"chat_template", "instructions", instructions},
    {"chat_template", "quoted instructions", quoted_instructions},
    {"chat_template", "loops in loops", nested_loops},
    {"pipeline_cache", "zeros", zeros},
    {"tuning", "choices", choices},
};

}  // namespace

std::span<const LargeFile> large_files() { return kFiles; }

}  // namespace vkf::fuzz
