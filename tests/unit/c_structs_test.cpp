// SPDX-License-Identifier: Apache-2.0
// C's structs and enums cover C++'s. The comment above each in vkformer_c.h names those that it
// stands for: "C++: Rope, RopeScaling." What has none there stands here, with the reason.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/declarations.h"

using namespace vkf::test;

namespace {

using Reasons = std::map<std::string, std::string>;

const Reasons kOnlyInC{
    {"vkf_dim", "a Dim of one term; Dim is a class"}, {"vkf_metadata", "an entry of std::map"},
    {"vkf_result", "exceptions end at the border"},   {"vkf_switch", "bool, where the default is true"},
    {"vkf_tokens", "std::vector<std::int32_t>"},      {"vkf_value", "Value is a class"},
};

const Reasons kStructsNotInC{
    {"BatchNormResult", "vkf_batch_norm_train() returns its members"},
    {"Candidates", "vkf_decoder_candidates() returns its members"},
    {"ClippedNorm", "vkf_clip_grad_norm() returns its members"},
    {"Decoded", "vkf_encoder_decoder_tokens() and vkf_encoder_decoder_cross_attention() return its members"},
    {"FloatFacts", "for the doctor's report"},
    {"ImageOptions", "vkf_image_input() and vkf_image_output() take its members"},
    {"IncrementalAttentionResult", "vkf_incremental_attention() returns its members"},
    {"LayerCache", "for whoever plans a decoder's memory; vkf_decoder_memory() does"},
    {"MatrixShape", "for choosing kernels; vkf_program_explain() names them"},
    {"Incoming", "for whoever writes transports, in C++"},
    {"Outgoing", "for whoever writes transports, in C++"},
    {"Rank", "vkf_graph_set_rank() takes its members"},
    {"SelfCheck", "vkf_self_test_options::progress is given its members"},
    {"SelfTest", "vkf_device_self_test() returns its verdict, vkf_device_left_out() what was left out"},
    {"Shard", "vkf_graph_weight_shard() takes its members"},
    {"Required", "a member that must be given, which C cannot ask for"},
    {"Status", "a vkf_result and vkf_last_error()"},
    {"StorageInfo", "for whoever writes ops"},
    {"SymbolInfo", "for compilation"},
    {"TopK", "vkf_top_k() returns its members"},
    {"Tunable", "vkf_tunable() and vkf_tunable_values() return its members"},
    {"ValueInfo", "for whoever writes ops"},
    {"torch::DecoderResult", "vkf_transformer_decoder() returns its members"},
};

const Reasons kEnumsNotInC{
    {"DecoderTask", "for whoever plans a decoder; C has a function for each"},
    {"StorageKind", "for whoever writes ops"},
};

/// The member that C has under another name, or the reason why it has none.
const Reasons kMembers{
    {"AttentionOptions::cumulative_keys", "an argument of vkf_packed_attention()"},
    {"AttentionOptions::cumulative_queries", "an argument of vkf_packed_attention()"},
    {"AttentionOptions::pages", "a member of vkf_paged_kv_cache"},
    {"BorrowedDevice::keep", "C keeps what it lends"},
    {"BorrowedDevice::memory", "the members of MemoryHooks stand by themselves"},
    {"Capabilities::int8_matrix_shapes", "for choosing kernels; vkf_program_explain() names them"},
    {"Capabilities::left_out", "vkf_device_left_out() tells it"},
    {"Capabilities::left_out_damage", "vkf_program_explain() tells it"},
    {"Capabilities::matrix_shapes", "for choosing kernels; vkf_program_explain() names them"},
    {"Capabilities::tuning", "a host gives it: vkf_device_options::tuning, or vkf_device_tuning_file()"},
    {"Capabilities::tuning_from", "vkf_program_explain() tells it"},
    {"Capabilities::variants", "for tests"},
    {"DecoderFacts::end", "vkf_decoder_end_tokens() returns it"},
    {"DecoderFacts::layers", "for whoever plans a decoder's memory; vkf_decoder_memory() does"},
    {"DecoderFacts::not_obeyed", "vkf_decoder_not_obeyed() returns it"},
    {"MemoryHooks::user", "memory_user"},
    {"RopeScaling::kind", "scaling"},
    {"Segment::cost", "the members of Cost stand by themselves"},
    {"TrainerOptions::optimizer", "a pointer for each of the two, adamw and sgd"},
};

/// Reasons likewise, of enumerators.
const Reasons kEnumerators{
    {"DType::boolean", "VKF_BOOL"},
    {"DeviceType::virtual_gpu", "VKF_DEVICE_VIRTUAL"},
    {"ImageAccess::none", "an image has an access"},
    {"RopeScaling::Kind::none", "VKF_ROPE_UNSCALED"},
};

const std::set<std::string> kEnumeratorsOnlyInC{"VKF_WEIGHT_AS_GIVEN"};

std::string upper(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](char c) { return c >= 'a' && c <= 'z' ? c - 32 : c; });
    return text;
}

/// Gives for each name in C++ the names in C that say they stand for it. Fails for what C has and
/// does not explain, and for what stands for nothing.
template <class T>
std::map<std::string, std::vector<std::string>> pairs(const std::map<std::string, T>& cpp,
                                                      const std::map<std::string, T>& c, const Reasons& not_in_c) {
    std::map<std::string, std::vector<std::string>> out;
    for (const auto& entry : c) {
        const std::string& name = entry.first;
        const std::vector<std::string> all = stands_for(entry.second.comment);
        CHECK_MESSAGE(all.empty() == (kOnlyInC.count(name) != 0), name << " says wrongly what it stands for");
        for (const std::string& twin : all) {
            CHECK_MESSAGE(cpp.count(twin) != 0, name << " stands for " << twin << ", which C++ has not");
            out[twin].push_back(name);
        }
    }
    for (const auto& entry : cpp) {
        const bool there = out.count(entry.first) != 0, explained = not_in_c.count(entry.first) != 0;
        CHECK_MESSAGE((there || explained), entry.first << " is not in vkformer_c.h");
        CHECK_MESSAGE(!(there && explained), entry.first << " is in vkformer_c.h after all");
    }
    for (const auto& entry : not_in_c) {
        CHECK_MESSAGE(cpp.count(entry.first) != 0, entry.first << " is not in C++ any more");
    }
    return out;
}

/// Checks `name`, which is as C has it (`there`) or is explained in the table.
void check(const std::string& name, bool there, const Reasons& table, const std::set<std::string>& in_c) {
    const auto other = table.find(name);
    if (other == table.end()) {
        CHECK_MESSAGE(there, name << " is not in vkformer_c.h");
    } else if (is_reason(other->second)) {
        CHECK_MESSAGE(!there, name << " is in vkformer_c.h after all");
    } else {
        CHECK_MESSAGE(in_c.count(other->second) != 0, name << " is not in vkformer_c.h as " << other->second);
    }
}

void check_table(const Reasons& table, const std::set<std::string>& names) {
    for (const auto& entry : table) {
        CHECK_MESSAGE(names.count(entry.first) != 0, entry.first << " is not in C++ any more");
    }
}

}  // namespace

TEST_SUITE("c coverage") {
    TEST_CASE("c coverage: C's structs have the members that C++'s have") {
        const Declarations cpp = public_declarations(), c = declarations_of_c();
        CHECK(cpp.structs.size() > 60);
        std::set<std::string> compared;
        for (const auto& [name, names_in_c] : pairs(cpp.structs, c.structs, kStructsNotInC)) {
            std::set<std::string> members;
            for (const std::string& one : names_in_c) {
                for (const Parameter& member : c.structs.at(one).members) {
                    members.insert(member.name);
                }
            }
            const auto declared = cpp.structs.find(name);
            if (declared == cpp.structs.end()) {
                continue;  // said above
            }
            for (const Parameter& member : declared->second.members) {
                const std::string full = name + "::" + member.name;
                compared.insert(full);
                check(full, members.count(member.name) != 0, kMembers, members);
            }
        }
        CHECK(compared.size() > 250);
        check_table(kMembers, compared);
    }

    TEST_CASE("c coverage: C's enums have the enumerators that C++'s have") {
        const Declarations cpp = public_declarations(), c = declarations_of_c();
        CHECK(cpp.enums.size() > 13);
        std::set<std::string> compared;
        for (const auto& pair : pairs(cpp.enums, c.enums, kEnumsNotInC)) {
            const std::string& name = pair.first;
            std::set<std::string> left;
            for (const std::string& one : pair.second) {
                left.insert(c.enums.at(one).enumerators.begin(), c.enums.at(one).enumerators.end());
            }
            const auto declared = cpp.enums.find(name);
            if (declared == cpp.enums.end()) {
                continue;
            }
            // the longest first, so that TANH does not take GELU_TANH
            std::vector<std::string> all = declared->second.enumerators;
            std::sort(all.begin(), all.end(),
                      [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
            for (const std::string& one : all) {
                const std::string full = name + "::" + one, ending = "_" + upper(one);
                compared.insert(full);
                std::string shortest;
                for (const std::string& candidate : left) {
                    if (candidate.ends_with(ending) && (shortest.empty() || candidate.size() < shortest.size())) {
                        shortest = candidate;
                    }
                }
                check(full, !shortest.empty(), kEnumerators, left);
                const auto other = kEnumerators.find(full);
                left.erase(other == kEnumerators.end() ? shortest : other->second);
            }
            for (const std::string& one : left) {
                CHECK_MESSAGE(kEnumeratorsOnlyInC.count(one) != 0, one << " stands for nothing in " << name);
            }
        }
        CHECK(compared.size() > 50);
        check_table(kEnumerators, compared);
    }

    TEST_CASE("c coverage: structs that grow are checked for padding behind their last members") {
        std::ifstream in(std::filesystem::path(VKFORMER_SOURCE_DIR) / "c/border.cpp");
        const std::string border{std::istreambuf_iterator<char>(in), {}};
        int grow = 0;
        for (const auto& [name, declared] : declarations_of_c().structs) {
            if (declared.members.front().name == "struct_size") {
                const std::string check = "VKF_ENDS_WITH(" + name + ", " + declared.members.back().name + ");";
                CHECK_MESSAGE(border.find(check) != std::string::npos, "c/border.cpp has no " << check);
                ++grow;
            }
        }
        CHECK(grow > 40);
    }

    TEST_CASE("c coverage: a function takes or fills each of C's structs") {
        const Declarations c = declarations_of_c();
        std::set<std::string> used;
        const auto use = [&used](const std::string& type) {
            const std::set<std::string> all = words(type);
            used.insert(all.begin(), all.end());
        };
        for (const Function& function : c.functions) {
            for (const Parameter& parameter : function.parameters) {
                use(parameter.type);
            }
        }
        for (const auto& entry : c.structs) {
            for (const Parameter& member : entry.second.members) {
                use(member.type);
            }
        }
        for (const auto& entry : c.structs) {
            CHECK_MESSAGE(used.count(entry.first) != 0, "no function knows " << entry.first);
        }
    }
}
