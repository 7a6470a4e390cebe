// SPDX-License-Identifier: Apache-2.0
// A model's folder: its index of shards, and its config.json as decoders and text encoders read it.
#include "models/files/checkpoint.h"

#include "models/decoder_plan.h"
#include "models/text_encoder.h"
#include "runtime/device/device.h"
#include "tests/fuzz/target.h"

namespace vkf::fuzz {

namespace {

namespace fs = std::filesystem;

void copy(const char* from, const char* name) {
    fs::copy_file(fs::path(VKFORMER_SOURCE_DIR "/tests") / from, folder() / name, fs::copy_options::overwrite_existing);
}

void read_index(Bytes bytes) {
    static const bool beside = [] {
        for (const char* name : {"config.json", "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                 "model-00003-of-00003.safetensors"}) {
            copy((std::string("decoders/llama3/") + name).c_str(), name);
        }
        return true;
    }();
    require(beside, "no shards");
    write(folder() / "model.safetensors.index.json", bytes);
    const Checkpoint checkpoint(folder());
    for (const std::string& name : checkpoint.names()) {
        require(checkpoint.find(name) != nullptr && checkpoint.find(name)->name == name, "a tensor is not found");
    }
}

void read_config(Bytes bytes) {
    static const bool beside = [] {
        copy("decoders/llama/model.safetensors", "model.safetensors");
        return true;
    }();
    require(beside, "no tensors");
    write(folder() / "config.json", bytes);
    const Checkpoint checkpoint(folder());
    try {
        const DecoderModel model = read_decoder(checkpoint);
        const DecoderPlan plan(device(), checkpoint, model, {.chunk = 4});
        require(plan.memory().total() > 0, "a decoder takes no memory");
    } catch (const Error&) {
    }
    try {
        read_text_encoder(checkpoint);
    } catch (const Error&) {
    }
}

const Target kIndex("index", read_index);
const Target kConfig("config", read_config);

}  // namespace

}  // namespace vkf::fuzz
