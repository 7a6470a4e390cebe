// SPDX-License-Identifier: Apache-2.0
// Inputs and outputs that lie in tensors of the caller's.
#include <algorithm>

#include "runtime/base/text.h"
#include "runtime/device/insides.h"
#include "runtime/device/program.h"
#include "runtime/device/program_core.h"
#include "runtime/device/tensor_store.h"

namespace vkf {

void Program::bind(std::string_view name, const DeviceTensor& tensor) { core_->bind(name, tensor); }

std::vector<std::int64_t> ProgramCore::shape_of(StorageId external) const {
    std::vector<std::int64_t> out;
    for (const Dim& d : plan.storages[external].shape) {
        out.push_back(d.eval(sizes));
    }
    return out;
}

void ProgramCore::bind(std::string_view name, const DeviceTensor& tensor) {
    const StorageId id = plan.external(name, options.name);
    const StorageInfo& info = plan.storages[id];
    const auto where = [&] {
        return options.name + ": " + (info.kind == StorageKind::input ? "input " : "output ") + info.name;
    };
    refuse_image(info);
    if (tensor) {
        if (tensor.dtype() != info.dtype) {
            throw Error("is " + std::string(name_of(info.dtype)) + ", and a tensor of " +
                            std::string(name_of(tensor.dtype())) + " was given",
                        where());
        }
        if (Insides::store(tensor)->core != device) {
            throw Error("a tensor of another device was given", where());
        }
        const bool checked_numbers = std::any_of(plan.content_checks.begin(), plan.content_checks.end(),
                                                 [&](const ContentCheck& c) { return c.storage == id; });
        if (checked_numbers) {
            throw Error("has numbers that are checked as they are uploaded: no tensor can be bound to it", where());
        }
    }
    finish_run();  // which may still use what was bound
    device->check_alive();
    run_sets.forget_views();
    for (InputState& input : inputs) {
        if (input.storage == id) {
            input.uploaded = false;
            input.dirty = false;
        }
    }
    ran = ran && info.kind == StorageKind::input;  // else what is here is not of the last run
    put_bound(id, tensor);
}

void ProgramCore::put_bound(StorageId id, DeviceTensor tensor) noexcept {
    if (tensor) {
        ++Insides::store(tensor)->bound;
    }
    std::swap(bound_tensors[id], tensor);
    if (tensor) {
        --Insides::store(tensor)->bound;
    }
}

void ProgramCore::check_bound() const {
    for (const StorageId id : externals) {
        const DeviceTensor& tensor = bound_tensors[id];
        if (!tensor) {
            continue;
        }
        const StorageInfo& info = plan.storages[id];
        const auto where = [&] {
            return options.name + ": " + (info.kind == StorageKind::input ? "input " : "output ") + info.name;
        };
        bool same = tensor.shape().size() == info.shape.size();
        for (std::size_t i = 0; same && i < info.shape.size(); ++i) {
            same = info.shape[i].eval(sizes) == tensor.shape()[i];
        }
        if (!same) {
            throw Error("is " + shape_text(shape_of(id)) + " at the sizes set now, and a tensor of " +
                            shape_text(tensor.shape()) + " is bound",
                        where());
        }
        for (const StorageId other : externals) {
            if (info.kind == StorageKind::output && other != id && bound_tensors[other] &&
                Insides::store(bound_tensors[other]) == Insides::store(tensor)) {
                throw Error("is bound to the same memory as " + plan.storages[other].name, where());
            }
        }
    }
}

Place ProgramCore::place_of(StorageId external) const {
    const DeviceTensor& tensor = bound_tensors[external];
    if (!tensor) {
        return {.buffer = io.buffer(), .offset = io_offset[external]};
    }
    const Block& block = Insides::store(tensor)->blocks.front();
    return {.buffer = block.buffer(), .limit = block.bytes()};
}

}  // namespace vkf
