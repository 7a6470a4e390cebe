// SPDX-License-Identifier: Apache-2.0
// C covers C++: whatever the public headers declare is in vkformer_c.h under its name, or under the
// name that stands here, or stands here with the reason why C has no use for it.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

std::string whole(const fs::path& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
}

std::string without_comments(const std::string& text) { return std::regex_replace(text, std::regex("//[^\n]*"), ""); }

fs::path root() { return VKFORMER_SOURCE_DIR; }

std::vector<fs::path> public_headers() {
    const std::string cmake = whole(root() / "cmake/Headers.cmake");
    const std::size_t begin = cmake.find("set(public_headers");
    REQUIRE(begin != std::string::npos);
    const std::string list = cmake.substr(begin, cmake.find(')', begin) - begin);
    const std::regex header(R"([\w/]+\.h)");
    std::vector<fs::path> out;
    for (std::sregex_iterator i(list.begin(), list.end(), header), end; i != end; ++i) {
        out.push_back(root() / i->str());
    }
    return out;
}

/// "Program::run", "matmul".
std::set<std::string> names_of_cpp() {
    std::set<std::string> out;
    const std::regex function(R"((?:^|\n)VKF_API\s+(?!struct|class)[\w:<>,&\s*]*?\b(\w+)\s*\()");
    const std::regex type(R"((?:class|struct) VKF_API (\w+)[^{;]*\{([\s\S]*?)\n\};)");
    const std::regex method(R"(\n    (?:static |explicit |const )*[\w:<>,&*]+[\w:<>,&*\s]*?[\s&*](\w+)\s*\()");
    const auto each = [](const std::string& text, const std::regex& what, const auto& f) {
        for (std::sregex_iterator i(text.begin(), text.end(), what), end; i != end; ++i) {
            f(*i);
        }
    };
    for (const fs::path& header : public_headers()) {
        const std::string text = without_comments(whole(header));
        each(text, function, [&](const std::smatch& m) { out.insert(m[1].str()); });
        each(text, type, [&](const std::smatch& m) {
            const std::string name = m[1].str(), body = m[2].str();
            each(body.substr(0, body.find("private:")), method, [&](const std::smatch& f) {
                if (f[1] != name && f[1] != "operator" && f[1] != "bool") {
                    out.insert(name + "::" + f[1].str());
                }
            });
        });
    }
    return out;
}

std::set<std::string> names_of_c() {
    std::set<std::string> out;
    const std::string text = without_comments(whole(root() / "c/vkformer_c.h"));
    const std::regex function(R"(\bvkf_(\w+)\()");
    for (std::sregex_iterator i(text.begin(), text.end(), function), end; i != end; ++i) {
        out.insert((*i)[1].str());
    }
    return out;
}

/// The members of structs that are nothing but members: "MatmulOptions" -> "scale", "bias", ...
std::map<std::string, std::set<std::string>> members_of_cpp() {
    std::map<std::string, std::set<std::string>> out;
    const std::regex type(R"(struct (\w+) \{\n([\s\S]*?)\n\};)"), initializer(R"(\{[^{}]*\}|= [^,;]*)");
    const std::regex arguments("<[^<>]*>"), member(R"(\b(\w+)(?:\[\d+\])?\s*([,;]))");
    for (const fs::path& header : public_headers()) {
        const std::string text = without_comments(whole(header));
        for (std::sregex_iterator i(text.begin(), text.end(), type), end; i != end; ++i) {
            std::string body = std::regex_replace((*i)[2].str() + "\n", initializer, "");
            while (std::regex_search(body, arguments)) {  // templates in templates
                body = std::regex_replace(body, arguments, "");
            }
            std::istringstream lines(body);
            for (std::string line; std::getline(lines, line);) {
                if (line.find('(') != std::string::npos) {  // a function
                    continue;
                }
                for (std::sregex_iterator m(line.begin(), line.end(), member); m != end; ++m) {
                    out[(*i)[1]].insert((*m)[1]);
                }
            }
        }
    }
    return out;
}

/// The members of C's structs, by the name of the C++ struct that stands above each.
std::map<std::string, std::set<std::string>> members_of_c() {
    std::map<std::string, std::set<std::string>> out;
    const std::string text = std::regex_replace(whole(root() / "c/vkformer_c.h"), std::regex("///<[^\n]*"), "");
    const std::regex type(R"(\n/// (?:\w+::)?(\w+)[^\n]*\n(?:///[^\n]*\n)*typedef struct \w+ \{([\s\S]*?)\n\})");
    const std::regex member(R"(\b(\w+)(?:\[\d+\])?\s*[,;]|\(\*(\w+)\))");
    for (std::sregex_iterator i(text.begin(), text.end(), type), end; i != end; ++i) {
        const std::string body = (*i)[2];
        for (std::sregex_iterator m(body.begin(), body.end(), member); m != end; ++m) {
            out[(*i)[1]].insert((*m)[(*m)[1].matched ? 1 : 2]);
        }
    }
    return out;
}

std::string snake(const std::string& name) {
    std::string out;
    for (const char c : name) {
        out += (c >= 'A' && c <= 'Z' ? std::string(out.empty() ? "" : "_") + static_cast<char>(c + 32)
                                     : std::string(1, c));
    }
    return out;
}

/// What C has as plain numbers and structs.
const std::set<std::string> kNotForC{"Capabilities", "Checkpoint",  "DecoderModel", "DecoderPlan", "Dim",
                                     "Error",        "MappedFile",  "Safetensors",  "ScoreMod",    "TextEncoderModel",
                                     "Value",        "WeightLayout"};

const std::map<std::string, std::string> kUnderAnotherName{
    {"Decoder::candidates", "decoder_candidates"},
    {"Decoder::model", "decoder_get"},
    {"Device::compile", "compile"},
    {"Device::import_fd", "shared_buffer_import_fd"},
    {"Device::import_hardware_buffer", "shared_buffer_import_hardware_buffer"},
    {"Device::import_host", "shared_buffer_import_host"},
    {"Device::load", "weights_load"},
    {"Device::make_shared_buffer", "shared_buffer_create"},
    {"Device::make_state", "state_create"},
    {"Device::messages", "device_take_messages"},
    {"Device::requirements", "requirements_create"},
    {"Device::shared_host_alignment", "shared_host_alignment"},
    {"DeviceRequirements::list", "requirements_get"},
    {"DeviceRequirements::extensions", "requirements_extensions"},
    {"DeviceRequirements::features", "requirements_features"},
    {"Program::times", "program_time_table"},
    {"SharedBuffer::buffer", "shared_buffer_get"},
    {"SharedBuffer::bytes", "shared_buffer_get"},
    {"Ticket::done", "ticket_wait"},
    {"Ticket::value", "ticket_semaphore"},
    {"kv_cache", "graph_kv_cache"},
    {"load_decoder", "decoder_create"},
    {"make_weight_layout", "weight_layout_create"},
    {"load_text_encoder", "text_encoder_create"},
    {"multihead_attention", "torch_multihead_attention"},
    {"project_memory", "torch_project_memory"},
    {"read_decoder", "decoder_create"},
    {"read_text_encoder", "text_encoder_create"},
    {"restore_state", "state_restore"},
    {"save_decoder", "decoder_save"},
    {"save_state", "state_save"},
    {"save_tuning", "device_save_tuning"},
    {"tunables", "tunable"},
    {"tuning_file", "device_tuning_file"},
};

const std::map<std::string, std::string> kNotInC{
    {"Device::pipelines", "for tests"},
    {"DeviceRequirements::str", "a text of what vkf_requirements_get() tells"},
    {"Decoder::weights", "the decoder's own"},
    {"EncoderDecoder::describe_decoder", "vkf_encoder_decoder_create() does it"},
    {"EncoderDecoder::describe_encoder", "vkf_encoder_decoder_create() does it"},
    {"Graph::add_node", "for whoever writes ops, in C++"},
    {"Graph::add_view", "for whoever writes ops"},
    {"Graph::made", "for tests"},
    {"Graph::as_image", "for whoever writes ops"},
    {"Graph::check_content", "for whoever writes ops"},
    {"Graph::clone", "for compilation"},
    {"Graph::constrain", "for whoever writes ops"},
    {"Graph::constraints", "for compilation"},
    {"Graph::content_checks", "for compilation"},
    {"Graph::max_of", "for whoever writes ops"},
    {"Graph::nodes", "for compilation"},
    {"Graph::replace", "for compilation"},
    {"Graph::scoped", "for whoever writes layers"},
    {"Graph::storages", "for compilation"},
    {"Graph::str", "for messages"},
    {"Graph::symbol_names", "for messages"},
    {"Graph::symbols", "for compilation"},
    {"Graph::values", "for compilation"},
    {"Program::submissions", "for tests"},
    {"State::find", "C asks by name"},
    {"State::layout", "C asks by name"},
    {"TextEncoder::model", "vkf_text_encoder_embed() tells how many numbers there are"},
    {"Weights::find", "C asks by name"},
    {"Weights::layout", "C asks by name"},
    {"Weights::names", "the host gave them"},
    {"broadcast_shapes", "for whoever writes ops"},
    {"contiguous_strides", "for whoever writes ops"},
    {"describe_text_encoder", "vkf_text_encoder_create() does it"},
    {"elements", "for whoever writes ops"},
    {"embed_tokens", "a part of vkf_encoder_decoder_create()"},
    {"is_contiguous", "for whoever writes ops"},
    {"layer_options", "a part of vkf_encoder_decoder_create()"},
    {"read_text", "C has fopen()"},
    {"require_memory", "a part of vkf_decoder_create()"},
    {"rope_scaling_kind", "C names the kinds as numbers"},
    {"stored_as", "a part of vkf_weight_layout_create()"},
    {"utf8_name", "C's texts are UTF-8"},
};

/// Members that C has elsewhere, or has no use for.
const std::map<std::string, std::string> kMembersNotInC{
    {"AttentionOptions::cumulative_keys", "an argument of vkf_packed_attention()"},
    {"AttentionOptions::cumulative_queries", "an argument of vkf_packed_attention()"},
    {"AttentionOptions::key_lengths", "a member of vkf_paged_kv_cache"},
    {"AttentionOptions::pages", "a member of vkf_paged_kv_cache"},
    {"BorrowedDevice::keep", "C keeps what it lends"},
    {"BorrowedDevice::memory", "its members stand by themselves"},
    {"DecoderFacts::end", "vkf_decoder_end_tokens()"},
    {"DecoderFacts::layers", "for whoever plans a decoder's memory"},
};

}  // namespace

TEST_SUITE("c coverage") {
    TEST_CASE("c coverage: C's structs have the members that C++'s have") {
        const auto cpp = members_of_cpp(), c = members_of_c();
        std::size_t both = 0;
        for (const auto& entry : c) {
            const auto found = cpp.find(entry.first);
            if (found == cpp.end()) {
                continue;
            }
            ++both;
            for (const std::string& member : found->second) {
                const bool there = entry.second.count(member) != 0;
                const std::string name = entry.first + "::" + member;
                CHECK_MESSAGE(there != (kMembersNotInC.count(name) != 0),
                              name << (there ? " is in vkformer_c.h after all" : " is not in vkformer_c.h"));
            }
        }
        CHECK(both > 30);
        for (const auto& entry : kMembersNotInC) {
            const std::string name = entry.first;
            const auto found = cpp.find(name.substr(0, name.find(':')));
            const bool there = found != cpp.end() && found->second.count(name.substr(name.rfind(':') + 1)) != 0;
            CHECK_MESSAGE(there, name << " is not in C++ any more");
        }
    }

    TEST_CASE("c coverage: C has what C++ has") {
        const std::set<std::string> cpp = names_of_cpp(), c = names_of_c();
        CHECK(cpp.size() > 150);
        CHECK(c.size() > 150);
        for (const std::string& name : cpp) {
            const std::size_t colons = name.find("::");
            if (colons != std::string::npos && kNotForC.count(name.substr(0, colons)) != 0) {
                continue;
            }
            const std::string alike =
                colons == std::string::npos ? name : snake(name.substr(0, colons)) + "_" + name.substr(colons + 2);
            const auto other = kUnderAnotherName.find(name);
            const bool there = c.count(alike) != 0 || (other != kUnderAnotherName.end() && c.count(other->second) != 0);
            CHECK_MESSAGE((there || kNotInC.count(name) != 0), name << " is not in vkformer_c.h");
            CHECK_MESSAGE(!(there && kNotInC.count(name) != 0), name << " is in vkformer_c.h after all");
        }
        for (const auto* table : {&kUnderAnotherName, &kNotInC}) {
            for (const auto& entry : *table) {
                CHECK_MESSAGE(cpp.count(entry.first) != 0, entry.first << " is not in C++ any more");
            }
        }
    }
}
