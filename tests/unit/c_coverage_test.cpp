// SPDX-License-Identifier: Apache-2.0
// C covers C++: whatever the public headers declare is in vkformer_c.h under its name, or under the
// name that stands here, or stands here with the reason why C has no use for it. The same of each
// overload and of each parameter.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/declarations.h"

using namespace vkf::test;

namespace {

using Reasons = std::map<std::string, std::string>;

/// Classes of which C has no function, and why.
const Reasons kClassesNotInC{
    {"Capabilities", "vkf_capabilities has what they look at"},
    {"Checkpoint", "C names the folder"},
    {"ConstantData", "for compilation"},
    {"Cost", "a sum of two members"},
    {"DecoderModel", "vkf_decoder_get() returns its facts"},
    {"DecoderPlan", "vkf_decoder_create() makes one, and vkf_decoder_memory() tells what it takes"},
    {"Dim", "vkf_dim is a struct"},
    {"Error", "vkf_last_error() returns its text"},
    {"MappedFile", "C has files of its own"},
    {"ModelMemory", "vkf_model_memory::total"},
    {"Recompute", "vkf_graph_begin_recompute() and vkf_graph_end_recompute()"},
    {"Required", "C cannot ask for a member"},
    {"Safetensors", "C names the file"},
    {"Scope", "vkf_graph_push_scope() and vkf_graph_pop_scope()"},
    {"ScoreMod", "C gives its text and numbers"},
    {"Status", "a vkf_result"},
    {"Transport", "vkf_communicator_create_local() makes them"},
    {"TextEncoderModel", "vkf_text_encoder_get() returns its facts"},
    {"ValueInfo", "for whoever writes ops"},
};

const Reasons kNotInC{
    {"Adapter::name", "for messages"},
    {"Adapter::options", "vkf_lora_options::adapter stands for them"},
    {"Device::give_up_all", "for languages that are told of a fork, as Python is"},
    {"DeviceTensor::device", "whoever made it knows the device"},
    {"DeviceRequirements::DeviceRequirements", "Device::requirements() makes it"},
    {"DeviceRequirements::str", "a text of what vkf_requirements_get() tells"},
    {"Decoder::weights", "the decoder's own; vkf_weights_load_decoder() loads some to be shared"},
    {"EncoderDecoder::describe_decoder", "vkf_encoder_decoder_create() does it"},
    {"EncoderDecoder::describe_encoder", "vkf_encoder_decoder_create() does it"},
    {"Graph::add_node", "for whoever writes ops, in C++"},
    {"Graph::add_view", "for whoever writes ops"},
    {"Graph::after_linear", "for whoever writes layers, in C++; vkf_lora_create() uses it"},
    {"Graph::as_image", "for whoever writes ops"},
    {"Graph::check_content", "for whoever writes ops"},
    {"Graph::constrain", "for whoever writes ops"},
    {"Graph::constraints", "for compilation"},
    {"Graph::content_checks", "for compilation"},
    {"Graph::in_recompute", "for differentiation"},
    {"Graph::linear_hook", "for whoever writes layers, in C++"},
    {"Graph::max_of", "for whoever writes ops"},
    {"Graph::nodes", "for compilation"},
    {"Graph::recomputed", "for differentiation"},
    {"Graph::rank", "what vkf_graph_set_rank() was given"},
    {"Graph::scoped", "for whoever writes layers"},
    {"Graph::storages", "for compilation"},
    {"Graph::str", "for messages"},
    {"Graph::symbol_names", "for messages"},
    {"Graph::symbols", "for compilation"},
    {"Graph::values", "for compilation"},
    {"Ticket::Ticket", "null is none"},
    {"Value::Value", "vkf_no_value()"},
    {"Value::graph", "a member of vkf_value"},
    {"Value::id", "a member of vkf_value"},
    {"WeightLayout::blocks", "vkf_weight_layout_tensors() tells each tensor's"},
    {"WeightLayout::none", "vkf_compile() without weights"},
    {"Weights::Weights", "null is none"},
    {"broadcast_shapes", "for whoever writes ops"},
    {"byte_size", "C's tensors say their bytes"},
    {"Communicator::ranks", "vkf_communicator_rank()"},
    {"cut", "a part of vkf_decoder_create()"},
    {"packed_shard", "a part of vkf_decoder_create()"},
    {"share_of", "for whoever writes layers"},
    {"check_rank", "vkf_graph_set_rank() does it"},
    {"contiguous_strides", "for whoever writes ops"},
    {"describe_text_encoder", "vkf_text_encoder_create() does it"},
    {"elements", "for whoever writes ops"},
    {"embed_tokens", "a part of vkf_encoder_decoder_create()"},
    {"file_text", "C has fopen()"},
    {"is_contiguous", "for whoever writes ops"},
    {"layer_options", "a part of vkf_encoder_decoder_create()"},
    {"name_of", "for messages"},
    {"read_bytes", "C gives tensors and does not get any"},
    {"read_text", "C has fopen()"},
    {"require_memory", "a part of vkf_decoder_create()"},
    {"rope_scaling_kind", "C names the kinds as numbers"},
    {"size_of", "C has sizeof()"},
    {"stored_as", "a part of vkf_weight_layout_create()"},
    {"utf8_name", "C's texts are UTF-8"},
};

/// The names in C, without "vkf_", of each overload, in the order of the headers, or the reason why
/// it has none. A function that is not here has one overload, and its own name.
const std::map<std::string, std::vector<std::string>> kTwins{
    {"Adapter::Adapter", {"adapter_write"}},
    {"Decoder::Decoder", {"decoder_create", "decoder_create_with_weights", "decoder_create_with_weights"}},
    {"Communicator::Communicator", {"communicator_create_local"}},
    {"Decoder::model", {"decoder_get"}},
    {"Decoder::prompt", {"decoder_prompt", "decoder_prompt"}},
    {"Device::compile", {"compile", "compile", "compile_layout", "Plan is for whoever writes ops"}},
    {"Device::import_fd", {"shared_buffer_import_fd"}},
    {"Device::import_hardware_buffer", {"shared_buffer_import_hardware_buffer"}},
    {"Device::import_host", {"shared_buffer_import_host"}},
    {"Device::load", {"weights_load", "weights_load", "weights_load_planned"}},
    {"Device::make_shared_buffer", {"shared_buffer_create"}},
    {"Device::make_state", {"state_create", "state_create"}},
    {"Device::messages", {"device_take_messages"}},
    {"Device::requirements", {"requirements_create"}},
    {"Device::shared_host_alignment", {"shared_host_alignment"}},
    {"Device::make_tensor", {"device_tensor_create"}},
    {"DeviceRequirements::extensions", {"requirements_extensions"}},
    {"DeviceRequirements::features", {"requirements_features"}},
    {"DeviceRequirements::list", {"requirements_get"}},
    {"DeviceTensor::DeviceTensor", {"null is none"}},
    {"DeviceTensor::bytes", {"device_tensor_get"}},
    {"DeviceTensor::dtype", {"device_tensor_get"}},
    {"DeviceTensor::read", {"device_tensor_read", "device_tensor_read"}},
    {"DeviceTensor::shape", {"device_tensor_get"}},
    {"EncoderDecoder::EncoderDecoder", {"encoder_decoder_create", "encoder_decoder_load"}},
    {"Graph::constant", {"graph_constant", "graph_constant"}},
    {"Graph::weight", {"graph_weight", "graph_weight_shard"}},
    {"Program::allocate", {"program_allocate", "program_allocate"}},
    {"Program::download", {"program_download", "program_download", "program_download_i32", "program_download_bits"}},
    {"Program::record", {"program_record", "program_record"}},
    {"Program::upload", {"program_upload", "program_upload_i32", "program_upload_bits"}},
    {"SharedBuffer::buffer", {"shared_buffer_get"}},
    {"SharedBuffer::bytes", {"shared_buffer_get"}},
    {"State::State", {"null is none"}},
    {"State::find", {"state_tensors"}},
    {"State::layout", {"state_tensors"}},
    {"TextEncoder::TextEncoder", {"text_encoder_create", "text_encoder_create_with_weights"}},
    {"TextEncoder::model", {"text_encoder_get"}},
    {"Ticket::done", {"ticket_wait"}},
    {"Ticket::value", {"ticket_semaphore"}},
    {"Ticket::wait", {"ticket_wait", "ticket_wait"}},
    {"Value::rank", {"value_shape"}},
    {"Value::size", {"value_shape"}},
    {"Value::str", {"value_text"}},
    {"WeightLayout::WeightLayout", {"vkf_weight_layout_create() makes it of tensors"}},
    {"WeightLayout::find", {"weight_layout_tensors"}},
    {"Weights::bytes", {"weights_bytes", "weights_bytes_of_type"}},
    {"Weights::find", {"weights_tensors"}},
    {"Weights::layout", {"weights_tensors"}},
    {"Weights::names", {"weights_tensors"}},
    {"append", {"append", "append_pages"}},
    {"local_transports", {"communicator_create_local"}},
    {"clear_adapter", {"adapter_clear"}},
    {"gelu", {"activate"}},
    {"kv_cache", {"graph_kv_cache"}},
    {"load_decoder", {"weights_load_decoder", "weights_load_decoder"}},
    {"load_text_encoder", {"weights_load_text_encoder"}},
    {"make_weight_layout", {"weight_layout_create", "weight_layout_create"}},
    {"merge_adapter", {"adapter_merge"}},
    {"operator*", {"mul"}},
    {"operator+", {"add"}},
    {"read_decoder", {"C reads a whole folder", "decoder_create"}},
    {"read_text_encoder", {"text_encoder_create"}},
    {"relu", {"activate"}},
    {"restore_state", {"state_restore"}},
    {"save_adapter", {"adapter_save"}},
    {"save_decoder", {"decoder_save"}},
    {"save_state", {"state_save"}},
    {"save_left_out", {"device_save_left_out"}},
    {"save_tuning", {"device_save_tuning"}},
    {"silu", {"activate"}},
    {"tunables", {"tunable"}},
    {"update", {"update_adamw", "update_sgd"}},
    {"left_out_file", {"device_left_out_file"}},
    {"tuning_file", {"device_tuning_file"}},
};

/// The parameter that C has under another name, or the reason why it has none.
const Reasons kParameters{
    {"Communicator::Communicator(transport)", "the number of ranks makes one for each"},
    {"Decoder::Decoder(checkpoint)", "folder"},
    {"Decoder::Decoder(model)", "folder"},
    {"Decoder::Decoder(plan)", "the folder and the options make it"},
    {"Decoder::prompt(tokens)", "prompts"},
    {"Decoder::restore_cache(file)", "path"},
    {"Decoder::save_cache(file)", "path"},
    {"Decoder::set_adapter(adapter)", "folder"},
    {"Device::compile(weights)", "layout"},
    {"Device::list(broken)", "left out, which vkf_device_list() documents; an error where no device is usable"},
    {"Device::list(get)", "get_instance_proc_addr"},
    {"Device::requirements(get)", "get_instance_proc_addr"},
    {"FineTuner::FineTuner(checkpoint)", "folder"},
    {"FineTuner::FineTuner(model)", "folder"},
    {"Graph::weight(shard)", "its members are arguments"},
    {"Program::download(to)", "data"},
    {"Sampler::choose(candidates)", "those of a decoder and a sequence"},
    {"TextEncoder::TextEncoder(checkpoint)", "folder"},
    {"TextEncoder::TextEncoder(model)", "folder"},
    {"Trainer::resume(file)", "path"},
    {"Trainer::save(file)", "path"},
    {"Value::size(dim)", "all sizes are returned"},
    {"decoder_logits(model)", "folder"},
    {"image_input(options)", "its members are arguments"},
    {"image_output(options)", "format"},
    {"load_decoder(checkpoint)", "folder"},
    {"load_decoder(model)", "folder"},
    {"load_decoder(plan)", "weights do not depend on its sizes"},
    {"load_text_encoder(checkpoint)", "folder"},
    {"load_text_encoder(model)", "folder"},
    {"merge_adapter(checkpoint)", "from"},
    {"merge_adapter(folder)", "to"},
    {"merge_adapter(model)", "from"},
    {"read_decoder(checkpoint)", "folder"},
    {"read_text_encoder(checkpoint)", "folder"},
    {"save_decoder(checkpoint)", "from"},
    {"save_decoder(folder)", "to"},
    {"save_decoder(model)", "from"},
    {"score_mod(mod)", "glsl"},
    {"use_glsl_compiler(compiler)", "compile"},
};

/// Parameters of a struct's type that C has as something else, and why.
const Reasons kOtherTypes{
    {"make_weight_layout(device)", "the device has its capabilities"},
};

std::string snake(const std::string& name) {
    std::string out;
    for (const char c : name) {
        out += (c >= 'A' && c <= 'Z' ? std::string(out.empty() ? "" : "_") + static_cast<char>(c + 32)
                                     : std::string(1, c));
    }
    return out;
}

/// "Program::run" -> "Program" and "run"; a constructor is "create".
struct Name {
    explicit Name(const std::string& full) {
        const std::size_t colons = full.rfind("::");
        owner = colons == std::string::npos ? "" : full.substr(0, colons);
        function = colons == std::string::npos ? full : full.substr(colons + 2);
        in_c = {owner.empty() ? function : snake(owner) + "_" + (function == owner ? "create" : function)};
        if (owner == "torch") {  // where nothing else has the name
            in_c.push_back(function);
        } else if (owner == "DeviceRequirements") {
            in_c = {"requirements_" + function};
        }
    }

    std::string owner, function;
    std::vector<std::string> in_c;
};

/// A function of C: its parameters and the members of the structs that it takes; these structs and
/// those in them.
struct FunctionOfC {
    std::set<std::string> parameters, structs;
};

/// Adds the structs in a type, and those that their members name.
void add_structs(const std::string& type, const Declarations& c, std::set<std::string>& out) {
    for (const std::string& word : words(type)) {
        const auto found = c.structs.find(word);
        if (found != c.structs.end() && out.insert(word).second) {
            for (const Parameter& member : found->second.members) {
                add_structs(member.type, c, out);
            }
        }
    }
}

std::map<std::string, FunctionOfC> functions_of_c(const Declarations& c) {
    std::map<std::string, FunctionOfC> out;
    for (const Function& function : c.functions) {
        FunctionOfC& one = out[function.name.substr(std::string("vkf_").size())];
        for (const Parameter& parameter : function.parameters) {
            one.parameters.insert(parameter.name);
            add_structs(parameter.type, c, one.structs);
            for (const std::string& word : words(parameter.type)) {
                const auto taken = c.structs.find(word);
                if (taken != c.structs.end()) {
                    for (const Parameter& member : taken->second.members) {
                        one.parameters.insert(member.name);
                    }
                }
            }
        }
    }
    return out;
}

/// Gives for each struct of C++ those of C that stand for it.
std::map<std::string, std::set<std::string>> structs_in_c(const Declarations& c) {
    std::map<std::string, std::set<std::string>> out;
    for (const auto& [name, declared] : c.structs) {
        for (const std::string& twin : stands_for(declared.comment)) {
            out[twin].insert(name);
        }
    }
    return out;
}

/// True unless the parameter is a struct that C has, and the function in C takes no such struct.
bool takes(const FunctionOfC& function, const std::string& owner, const Parameter& parameter,
           const std::map<std::string, std::set<std::string>>& structs) {
    for (const std::string& word : words(parameter.type)) {
        auto found = structs.find(owner + "::" + word);
        found = found == structs.end() ? structs.find(word) : found;
        if (found != structs.end() &&
            std::none_of(found->second.begin(), found->second.end(),
                         [&](const std::string& one) { return function.structs.count(one) != 0; })) {
            return false;
        }
    }
    return true;
}

/// The name of a function of C++ in C, for each overload; empty where C has none.
std::vector<std::string> twins(const std::string& full, const std::map<std::string, FunctionOfC>& c) {
    const auto told = kTwins.find(full);
    if (told != kTwins.end()) {
        return told->second;
    }
    for (const std::string& name : Name(full).in_c) {
        if (c.count(name) != 0) {
            return {name};
        }
    }
    return {};
}

}  // namespace

TEST_SUITE("c coverage") {
    TEST_CASE("c coverage: C has what C++ has, with every parameter") {
        const Declarations cpp = public_declarations(), in_c = declarations_of_c();
        const std::map<std::string, FunctionOfC> c = functions_of_c(in_c);
        const std::map<std::string, std::set<std::string>> structs = structs_in_c(in_c);
        std::map<std::string, std::vector<Function>> overloads;
        for (const Function& function : cpp.functions) {
            overloads[function.name].push_back(function);
        }
        CHECK(overloads.size() > 200);
        CHECK(c.size() > 180);

        std::set<std::string> classes, renamed, needless;
        for (const auto& entry : overloads) {
            const std::string& full = entry.first;
            const std::vector<Function>& all = entry.second;
            const Name name(full);
            classes.insert(name.owner);
            if (kClassesNotInC.count(name.owner) != 0) {
                continue;
            }
            const std::vector<std::string> there = twins(full, c);
            if (kNotInC.count(full) != 0) {
                CHECK_MESSAGE(there.empty(), full << " is in vkformer_c.h after all");
                continue;
            }
            CHECK_MESSAGE(!there.empty(), full << " is not in vkformer_c.h");
            CHECK_MESSAGE((there.empty() || there.size() == all.size()),
                          full << " has " << all.size() << " overloads, and " << there.size() << " of them in C");
            for (std::size_t i = 0; i < std::min(all.size(), there.size()); ++i) {
                if (is_reason(there[i])) {
                    continue;
                }
                const auto twin = c.find(there[i]);
                CHECK_MESSAGE(twin != c.end(), full << " is not in vkformer_c.h as vkf_" << there[i]);
                for (std::size_t p = 0; twin != c.end() && p < all[i].parameters.size(); ++p) {
                    const std::string& parameter = all[i].parameters[p].name;
                    const std::string with_parameter = full + "(" + parameter + ")";
                    const auto other = kParameters.find(with_parameter);
                    if (twin->second.parameters.count(parameter) != 0) {
                        needless.insert(with_parameter);
                        CHECK_MESSAGE(takes(twin->second, name.owner, all[i].parameters[p], structs) !=
                                          (kOtherTypes.count(with_parameter) != 0),
                                      "the " << parameter << " of vkf_" << there[i] << " is not that of " << full);
                    } else if (other == kParameters.end()) {
                        FAIL_CHECK("vkf_" << there[i] << " has no " << parameter << ", which " << full << " has");
                    } else {
                        renamed.insert(with_parameter);
                        CHECK_MESSAGE((is_reason(other->second) || twin->second.parameters.count(other->second) != 0),
                                      "vkf_" << there[i] << " has no " << other->second << " for the " << parameter
                                             << " of " << full);
                    }
                }
            }
        }
        for (const auto& entry : kParameters) {
            CHECK_MESSAGE(renamed.count(entry.first) != 0,
                          entry.first << std::string(needless.count(entry.first) != 0 ? " is in vkformer_c.h after all"
                                                                                      : " is not in C++ any more"));
        }
        for (const auto& entry : kClassesNotInC) {
            CHECK_MESSAGE(classes.count(entry.first) != 0, entry.first << " is not in C++ any more");
        }
        for (const auto& entry : kTwins) {
            CHECK_MESSAGE(overloads.count(entry.first) != 0, entry.first << " is not in C++ any more");
        }
        for (const auto& entry : kNotInC) {
            CHECK_MESSAGE(overloads.count(entry.first) != 0, entry.first << " is not in C++ any more");
        }
    }
}
