// SPDX-License-Identifier: Apache-2.0
#include "models/files/model_folder.h"
#include "models/files/parameters.h"
#include "runtime/graph/packed.h"

namespace vkf {

namespace {

namespace fs = std::filesystem;

/// The tensor as the file is to have it; the bytes come later.
HostTensor described(const Parameter& p) {
    if (p.source.type != WeightType::f32) {
        return p.source;
    }
    return p.kept.type == WeightType::f32 ? HostTensor{p.source.name, DType::f32, p.source.shape, {}}
                                          : HostTensor{p.source.name, DType::f32, p.kept.shape, {}, p.kept.type};
}

/// Holds the bytes of one parameter at a time.
class Bytes {
public:
    std::span<const std::byte> of(const Parameter& p) {
        if (p.source.type != WeightType::f32 || (p.kept.type == WeightType::f32 && p.source.dtype == DType::f32)) {
            return p.source.data;
        }
        if (p.kept.type == WeightType::f32) {
            numbers_.resize(p.source.data.size() / size_of(p.source.dtype));
            widen(p.source, 0, numbers_);
            return std::as_bytes(std::span(numbers_));
        }
        const HostTensor tensor = tensor_of(p, numbers_);
        words_.resize(p.kept.bytes / sizeof(std::uint32_t));
        pack_rows(tensor, p.kept.type, 0, words_);
        return std::as_bytes(std::span(words_));
    }

private:
    std::vector<float> numbers_;
    std::vector<std::uint32_t> words_;
};

}  // namespace

void save_parameters(const fs::path& folder, const Checkpoint& checkpoint, const std::vector<Parameter>& parameters,
                     const LoadProgress& progress) {
    check_config_is_there(checkpoint.folder());
    make_model_folder(folder);
    std::vector<HostTensor> tensors;
    std::uint64_t all = 0;
    for (const Parameter& p : parameters) {
        tensors.push_back(described(p));
        all += p.kept.bytes;
    }
    Bytes bytes;
    std::uint64_t done = 0;
    const auto next = [&](std::size_t index) {
        const std::span<const std::byte> data = bytes.of(parameters[index]);
        done += data.size();
        if (progress) {
            progress(done, all);
        }
        return data;
    };
    write_model_folder(folder, checkpoint.folder(), tensors, next);
}

}  // namespace vkf
