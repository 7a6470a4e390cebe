// SPDX-License-Identifier: Apache-2.0
// The handle of a device, and what several files read of a caller's arguments.
#pragma once

#include <filesystem>
#include <mutex>

#include "c/border.h"
#include "layers/lora.h"

namespace vkf::c {

/// Handles of destroyed programs, which a checked host may still use by mistake. Guarded by the
/// mutex; the list goes through the handles, so that burying one allocates nothing.
struct Graveyard {
    std::mutex mutex;
    vkf_program* first = nullptr;

    Graveyard() = default;
    ~Graveyard();
    Graveyard(const Graveyard&) = delete;
    Graveyard& operator=(const Graveyard&) = delete;
};

std::filesystem::path path_of(const std::string& utf8);
using ProgressOfC = void (*)(void* user, std::uint64_t done, std::uint64_t all);
/// Turns a callback of C into one of C++; empty where `progress` is null.
LoadProgress progress_of(ProgressOfC progress, void* user);
LoadOptions load_of(const vkf_load_options* options);
/// Turns tensors of C into those of C++, which read the caller's data.
std::vector<HostTensor> tensors_of(std::uint32_t count, const vkf_tensor* tensors);
Arithmetic arithmetic_of(std::uint32_t arithmetic);
/// A handle of a program that a model or a trainer owns.
std::shared_ptr<vkf_program> lent(Program& program);
/// Turns adapters of C into those of C++; reads the folder that `options` may name.
LoraOptions lora_of(const vkf_lora_options* options);
std::vector<std::vector<std::int32_t>> all_ids_of(std::uint32_t count, const vkf_tokens* tokens, const char* what);

}  // namespace vkf::c

struct vkf_device {
    vkf::Device device;
    std::shared_ptr<vkf::c::Graveyard> graveyard = std::make_shared<vkf::c::Graveyard>();
    std::mutex messages_mutex = {};
    std::string messages = {};  // not yet taken
};
