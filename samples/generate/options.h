// SPDX-License-Identifier: Apache-2.0
// What the command line asks for.
#pragma once

#include <vkformer/vkformer.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

struct Options {
    std::filesystem::path model = SAMPLE_FOLDER;
    std::string prompt = "1234567 is";
    std::string ids;  ///< instead of a prompt: token ids with spaces between
    bool by_ids = false;
    bool chat = false;   ///< the prompt is a question, put as the folder's chat template says
    std::string system;  ///< and a system message before it
    std::vector<std::string> stop;
    std::string device;
    std::string weights;      ///< what matrices are kept as; empty: as in the file
    std::string pack_on;      ///< "host" or "device"; empty: by the kind of device
    std::string kv = "fp32";  ///< what keys and values are kept as
    std::string arithmetic = "fp32";
    std::filesystem::path adapter;  ///< a LoRA adapter's folder
    std::filesystem::path save;     ///< where a folder with packed weights is written
    std::filesystem::path trace;
    std::filesystem::path texts;  ///< whose accuracy is to be told
    std::int64_t max_tokens = 128;
    std::int64_t chunk = 256;
    vkf::SamplerOptions sampling{.temperature = 0.0f};
    bool ignore_eos = false;
    bool no_bos = false;
    bool dry_run = false;
    bool check = false;
    bool copy_rate = false;
    bool tensor_parallel = false, layer_parallel = false;
    std::string parallel;        ///< "tensor", "layers" or "auto"; empty: this process alone
    std::vector<double> speeds;  ///< of the ranks' devices
    double limit = 10;           ///< seconds that a rank waits for another
};

/// "fp32", "fp16", ... ; nothing for an empty name.
std::optional<vkf::WeightType> weight_type(const std::string& name);
/// "fp32", "fp16" or "int8".
vkf::Arithmetic arithmetic(const std::string& name);
/// Prints to the standard error, where fewer bits were asked for, which products of a prompt stay
/// in fp32, and why.
void print_arithmetic(const vkf::Program& prompt);
