// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/lowering.h"

#include <algorithm>

#include "runtime/compile/buffer_limit.h"
#include "shaders/common/rounds.h"

namespace vkf {

namespace {

void prepare_collective(const Operands& operands, Command& command) noexcept {
    command.push(CollectivePush{operands[0].offset, operands[1].offset});
    command.groups(operands[0].elements());
    command.cost(0, static_cast<double>(operands[0].elements() + operands[1].elements()) * sizeof(float));
}

}  // namespace

std::int64_t Lowering::max_of(const Dim& dim) const { return vkf::max_of(dim, symbols_); }

std::uint64_t Lowering::bytes_of(ValueId id) const {
    const ValueInfo& v = values_[id];
    std::uint64_t last = 0;
    for (std::size_t i = 0; i < v.shape.size(); ++i) {
        last += static_cast<std::uint64_t>((max_of(v.shape[i]) - 1) * max_of(v.strides[i]));
    }
    return (last + 1) * size_of(dtype(id));
}

ValueId Lowering::slice(ValueId id, std::size_t dim, const Dim& start, const Dim& length) {
    ValueInfo v = values_[id];
    v.offset = v.offset + start * v.strides[dim];
    v.shape[dim] = length;
    values_.push_back(std::move(v));
    return static_cast<ValueId>(values_.size() - 1);
}

ValueId Lowering::window(ValueId id, const Shape& shape, const Shape& strides, const Dim& offset) {
    ValueInfo v = values_[id];
    v.shape = shape;
    v.strides = strides;
    v.offset = offset;
    values_.push_back(std::move(v));
    return static_cast<ValueId>(values_.size() - 1);
}

std::vector<ValueId> Lowering::chunks(ValueId id, std::size_t dim, std::int64_t step) {
    const std::uint64_t room = bindable_bytes(device_);
    const std::uint64_t bytes = bytes_of(id);
    if (bytes <= room) {
        return {id};
    }
    const ValueInfo& v = values_[id];
    const bool fixed = v.shape[dim].is_constant() && v.strides[dim].is_constant();
    const std::int64_t size = fixed ? v.shape[dim].constant() : 0;
    const std::uint64_t pitch = fixed ? static_cast<std::uint64_t>(v.strides[dim].constant()) * size_of(dtype(id)) : 0;
    // what one element of `dim` spans: other dimensions may reach further than the next begins
    const std::uint64_t one = fixed ? bytes - static_cast<std::uint64_t>(size - 1) * pitch : 0;
    const std::int64_t fit =
        pitch == 0 || one > room ? 0 : static_cast<std::int64_t>((room - one) / pitch + 1) / step * step;
    if (fit < 1) {
        throw Error(beyond_one_buffer(storages_[v.storage], bytes, device_) + ", and cannot be cut", node_->label);
    }
    std::vector<ValueId> out;
    for (std::int64_t start = 0; start < size; start += fit) {
        out.push_back(slice(id, dim, start, std::min(fit, size - start)));
    }
    return out;
}

void Lowering::check_range(ValueId id) const {
    const std::uint64_t bytes = bytes_of(id);
    if (bytes > device_.storage_range) {
        throw Error(beyond_one_buffer(storages_[values_[id].storage], bytes, device_), node_->label);
    }
}

void Lowering::check_rounds(std::int64_t rounds, const std::string& what) const {
    if (device_.cpu() && rounds > shader::kMostRounds) {
        throw Error(what + " would take " + std::to_string(rounds) +
                        " rounds of a shader's loops, which drivers of processors may end after " +
                        std::to_string(shader::kMostRounds),
                    node_->label);
    }
}

ValueId Lowering::scratch(DType dtype, const Shape& shape) {
    storages_.push_back({StorageKind::intermediate, node_->label + ".scratch", dtype, shape});
    ValueInfo v;
    v.storage = static_cast<StorageId>(storages_.size() - 1);
    v.shape = shape;
    v.strides = contiguous_strides(shape);
    values_.push_back(std::move(v));
    return static_cast<ValueId>(values_.size() - 1);
}

ValueId Lowering::once(std::string_view how, ValueId from, const std::function<ValueId()>& make) {
    const auto same = [&](const Made& m) {
        const ValueInfo& a = values_[m.from];
        const ValueInfo& b = values_[from];
        return m.how == how && a.storage == b.storage && a.offset == b.offset && a.shape == b.shape &&
               a.strides == b.strides && a.words == b.words;
    };
    if (storages_[values_[from].storage].kind == StorageKind::state) {
        return make();
    }
    const auto found = std::find_if(made_.begin(), made_.end(), same);
    if (found != made_.end()) {
        return found->tensor;
    }
    const ValueId tensor = make();
    made_.push_back({how, from, tensor});
    return tensor;
}

ValueId Lowering::words(ValueId id) {
    ValueInfo v = values_[id];
    const StorageInfo& s = storages_[v.storage];
    const Dim pitch = s.shape[1];
    Dim first;
    if (v.shape.size() != 2 || !(v.shape[1] == Dim(s.columns)) || !(v.strides == Shape{v.shape[1], Dim(1)}) ||
        !(v.offset == Dim(0) || v.offset.divided_by(v.shape[1], first))) {
        refuse_packed(id);
    }
    v.offset = first * pitch;
    v.shape[1] = pitch;
    v.strides[0] = pitch;
    v.words = true;
    values_.push_back(std::move(v));
    return static_cast<ValueId>(values_.size() - 1);
}

ValueId Lowering::join(std::span<const ValueId> parts) {
    StorageInfo all;
    ValueInfo v = values_[parts.front()];
    v.shape[0] = 0;
    for (const ValueId id : parts) {
        const StorageInfo& s = storages_[values_[id].storage];
        v.shape[0] = v.shape[0] + values_[id].shape[0];
        const Dim rows = all.parts.empty() ? s.shape[0] : all.shape[0] + s.shape[0];
        all.kind = s.kind;
        all.name += (all.name.empty() ? "" : " + ") + s.name;
        all.dtype = s.dtype;
        all.type = s.type;
        all.columns = s.columns;
        all.shape = s.shape;
        all.shape[0] = rows;
        all.parts.push_back(values_[id].storage);
    }
    v.storage = static_cast<StorageId>(storages_.size());
    storages_.push_back(std::move(all));
    values_.push_back(std::move(v));
    return static_cast<ValueId>(values_.size() - 1);
}

void Lowering::refuse_packed(ValueId id) const {
    const StorageInfo& s = storages_[values_[id].storage];
    throw Error("weight " + s.name + " is kept as " + std::string(name_of(s.type)) +
                    ", which can be read as linear's weight and embedding's table alone, all of its columns in their "
                    "order: load it as f32 (LoadOptions::choose)",
                node_->label);
}

Dispatch& Lowering::dispatch(std::vector<Kernel> kernels, std::initializer_list<Binding> bindings, Prepare prepare,
                             std::vector<std::uint32_t> words) {
    if (bindings.size() > kMaxOperands) {
        throw Error(
            std::to_string(bindings.size()) + " buffers in one dispatch; the most is " + std::to_string(kMaxOperands),
            node_->label);
    }
    const auto buffers = std::count_if(bindings.begin(), bindings.end(), [&](const Binding& b) {
        return storages_[values_[b.value].storage].image == ImageAccess::none;
    });
    if (buffers > device_.storage_buffers) {
        throw Error(std::to_string(buffers) + " storage buffers are needed, the device has " +
                        std::to_string(device_.storage_buffers) + " a stage",
                    node_->label);
    }
    for (const Binding& b : bindings) {
        if (weight_type(b.value) != WeightType::f32 && !values_[b.value].words) {
            refuse_packed(b.value);
        }
    }
    Dispatch d;
    d.node = id_;
    d.kernels = std::move(kernels);
    for (Kernel& k : d.kernels) {
        k.bindings = static_cast<std::uint32_t>(bindings.size());
    }
    d.bindings = bindings;
    d.prepare = prepare;
    d.words = std::move(words);
    out_.push_back(std::move(d));
    return out_.back();
}

bool Lowering::is_exchangeable(ValueId id) const {
    const ValueInfo& v = values_[id];
    return storages_[v.storage].kind == StorageKind::intermediate && is_contiguous(v.shape, v.strides) &&
           size_of(storages_[v.storage].dtype) == sizeof(float);
}

Dispatch& Lowering::collective(Collective what, ValueId input, ValueId output, std::vector<std::uint32_t> words) {
    if (!is_exchangeable(input) || !is_exchangeable(output)) {
        throw Error("a collective works on dense scratch of 32 bits", node_->label);
    }
    Dispatch d;
    d.node = id_;
    d.collective = what;
    d.bindings = {{input, Access::read}, {output, Access::write}};
    d.prepare = prepare_collective;
    d.words = std::move(words);
    if (what != Collective::all_gather) {  // as many numbers as before
        d.in_place_input = 0;
        d.in_place_output = 1;
    }
    out_.push_back(std::move(d));
    return out_.back();
}

}  // namespace vkf
