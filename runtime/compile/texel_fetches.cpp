// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/texel_fetches.h"

#include <algorithm>
#include <map>

#include "runtime/compile/spirv_declarations.h"
#include "runtime/compile/spirv_module.h"

namespace vkf {

using namespace spv;

namespace {

/// An array in a storage buffer.
struct Array {
    std::uint32_t binding = kMaxOperands;
    std::uint8_t bytes = 0;  ///< of an element; 0: none that a texel can be
    bool touched = false;    ///< by a function
};

/// An element that is loaded, by the pointer to it.
struct Element {
    std::uint32_t variable = 0, index = 0;
};

/// The arrays of a module, and what its functions do with them.
class Arrays {
public:
    Arrays(const ModuleParts& module, std::size_t bound) : declared_(module, bound), indices_(bound) {
        std::map<std::uint32_t, Words> pointers;
        std::map<std::uint32_t, std::uint32_t> bindings;
        Ids shared(bound);  // what others may write meanwhile
        for (const Words i : module.head) {
            const std::uint32_t op = op_of(i);
            if (op == kOpTypePointer) {
                pointers[i[1]] = i;
            } else if (op == kOpDecorate && i.size() == 4 && i[2] == kDecorationBinding) {
                bindings[i[1]] = i[3];
            } else if (op == kOpDecorate && i.size() == 4 && i[2] == kDecorationArrayStride) {
                strides_[i[1]] = i[3];
            } else if (const std::size_t at = op == kOpDecorate ? 2 : 3;
                       (op == kOpDecorate || op == kOpMemberDecorate) && i.size() > at &&
                       (i[at] == kDecorationVolatile || i[at] == kDecorationCoherent)) {
                shared.insert(i[1]);
            }
            if (op == kOpConstant && is_index(i[1])) {
                indices_.insert(i[2]);
            }
        }
        for (const Words i : module.head) {
            if (op_of(i) != kOpVariable || i[3] != kStorageStorageBuffer || !bindings.contains(i[2])) {
                continue;
            }
            Array array{bindings[i[2]]};
            const Words pointer = pointers[i[1]];
            if (!pointer.empty() && !shared.contains(i[2]) && !shared.contains(pointer[3])) {
                array.bytes = element_bytes(pointer[3]);
            }
            arrays_[i[2]] = array;
        }
        for (const std::vector<Words>& function : module.functions) {
            for (const Words i : function) {
                look_at(i);
            }
        }
    }

    /// What a texel of each binding has.
    TexelBytes texels(std::uint32_t asked) const {
        TexelBytes out{};
        for (std::uint32_t b = 0; b < kMaxOperands; ++b) {
            std::uint8_t bytes = 0;
            bool one = (asked >> b & 1u) != 0 && (kept_ >> b & 1u) == 0;
            for (const auto& [id, array] : arrays_) {
                if (array.binding == b && array.touched) {
                    one = one && array.bytes != 0;
                    bytes = std::max(bytes, array.bytes);
                }
            }
            out[b] = one ? bytes : std::uint8_t{0};
        }
        return out;
    }

    const Declarations& declared() const { return declared_; }

    /// The array that an id is, if functions touch it; else null.
    const Array* find(std::uint32_t id) const {
        const auto found = arrays_.find(id);
        return found != arrays_.end() && found->second.touched ? &found->second : nullptr;
    }

    /// The element that a pointer points to, or null.
    const Element* element(std::uint32_t pointer) const {
        const auto found = elements_.find(pointer);
        return found != elements_.end() ? &found->second : nullptr;
    }

private:
    bool is_index(std::uint32_t type) const { return declared_.is(type, kOpTypeInt) && declared_.of(type)[2] == 32; }

    std::uint32_t bits(std::uint32_t type) const {
        const bool number = declared_.is(type, kOpTypeInt) || declared_.is(type, kOpTypeFloat);
        return number ? declared_.of(type)[2] : 0;
    }

    /// Bytes of an element of the one array without end that a block has; 0 if that is no texel.
    std::uint8_t element_bytes(std::uint32_t block) const {
        const Words members = declared_.of(block);
        if (!declared_.is(block, kOpTypeStruct) || members.size() != 3 ||
            !declared_.is(members[2], kOpTypeRuntimeArray)) {
            return 0;
        }
        const std::uint32_t element = declared_.of(members[2])[2];
        std::uint32_t size = bits(element);
        if (declared_.is(element, kOpTypeVector)) {
            const Words vector = declared_.of(element);
            size = bits(vector[2]) >= 32 ? bits(vector[2]) * vector[3] : 0;
        }
        const auto stride = strides_.find(members[2]);
        const bool texel = size == 32 || size == 64 || size == 128;
        return texel && stride != strides_.end() && stride->second * 8 == size ? static_cast<std::uint8_t>(size / 8)
                                                                               : std::uint8_t{0};
    }

    void look_at(Words i) {
        const std::uint32_t op = op_of(i);
        if (const std::uint32_t id = result_of(i); id != 0 && op != kOpLabel && is_index(i[1])) {
            indices_.insert(id);
        }
        const bool chain = op == kOpAccessChain || op == kOpInBoundsAccessChain;
        if (chain && i.size() > 3 && arrays_.contains(i[3])) {
            Array& array = arrays_[i[3]];
            array.touched = true;
            if (i.size() == 6 && indices_.contains(i[5])) {
                elements_[i[2]] = {i[3], i[5]};
            } else {
                keep(array);
            }
            return;
        }
        if (op == kOpLoad && i.size() == 4 && elements_.contains(i[3])) {
            return;
        }
        each_id(i, 1, [&](std::uint32_t id) {
            if (const auto found = arrays_.find(id); found != arrays_.end()) {
                found->second.touched = true;
                keep(found->second);
            }
            if (const Element* e = element(id)) {
                keep(arrays_[e->variable]);
            }
        });
    }

    void keep(const Array& array) {
        if (array.binding < kMaxOperands) {
            kept_ |= 1u << array.binding;
        }
    }

    Declarations declared_;
    Ids indices_;  ///< integers of 32 bits
    std::map<std::uint32_t, std::uint32_t> strides_;
    std::map<std::uint32_t, Array> arrays_;
    std::map<std::uint32_t, Element> elements_;
    std::uint32_t kept_ = 0;  ///< bindings that stay storage buffers, a bit each
};

/// Types of a module, those that it has and those that are added.
class Types {
public:
    Types(const ModuleParts& module, std::uint32_t bound) : bound_(bound) {
        for (const Words i : module.head) {
            const std::uint32_t op = op_of(i);
            if (op == kOpTypeInt && i[2] == 32 && i[3] == 0) {
                uint_ = i[1];
            }
        }
        uint_ = uint_ != 0 ? uint_ : add({head(kOpTypeInt, 4), 0, 32, 0});
        for (const Words i : module.head) {
            if (op_of(i) == kOpTypeVector && i[2] == uint_ && i[3] == 2) {
                two_ = i[1];
            } else if (op_of(i) == kOpTypeVector && i[2] == uint_ && i[3] == 4) {
                four_ = i[1];
            }
        }
        two_ = two_ != 0 ? two_ : add({head(kOpTypeVector, 4), 0, uint_, 2});
        four_ = four_ != 0 ? four_ : add({head(kOpTypeVector, 4), 0, uint_, 4});
        image_ = add({head(kOpTypeImage, 9), 0, uint_, kDimBuffer, 0, 0, 0, 1, 0});
        pointer_ = add({head(kOpTypePointer, 4), 0, kStorageUniformConstant, image_});
    }

    /// Appends what gives a load's result by a fetch of the texel, which has one element of so many
    /// bytes or several.
    void put_fetch(Words load, const Element& element, std::uint8_t bytes, std::uint8_t texel,
                   std::vector<std::uint32_t>& out) {
        const std::uint32_t type = load[1], result = load[2];
        const std::uint32_t image = bound_++;
        const std::uint32_t fetched = type == four_ ? result : bound_++;
        std::uint32_t at = element.index;
        if (bytes != texel) {
            at = put_binary(kOpShiftRightLogical, element.index, number(texel / bytes == 2 ? 1 : 2), out);
        }
        put(out, {head(kOpLoad, 4), image_, image, element.variable});
        put(out, {head(kOpImageFetch, 5), four_, fetched, image, at});
        std::uint32_t part = fetched, of_type = four_;
        if (bytes != 16) {
            of_type = bytes == 8 ? two_ : uint_;
            part = type == of_type ? result : bound_++;
        }
        if (bytes != texel) {
            put_part(element.index, fetched, bytes, texel, part, out);
        } else if (bytes == 8) {
            put(out, {head(kOpVectorShuffle, 7), two_, part, fetched, fetched, 0, 1});
        } else if (bytes == 4) {
            put(out, {head(kOpCompositeExtract, 5), uint_, part, fetched, 0});
        }
        if (type != of_type) {
            put(out, {head(kOpBitcast, 4), type, result, part});
        }
    }

    std::uint32_t pointer() const { return pointer_; }
    const std::vector<std::uint32_t>& added() const { return added_; }
    std::uint32_t bound() const { return bound_; }

private:
    std::uint32_t add(std::initializer_list<std::uint32_t> words, std::size_t result = 1) {
        put(added_, words);
        added_[added_.size() - words.size() + result] = bound_;
        return bound_++;
    }

    /// The constant 1, 2 or 3.
    std::uint32_t number(std::uint32_t value) {
        std::uint32_t& id = numbers_[value];
        id = id != 0 ? id : add({head(kOpConstant, 4), uint_, 0, value}, 2);
        return id;
    }

    std::uint32_t put_binary(std::uint32_t op, std::uint32_t a, std::uint32_t b, std::vector<std::uint32_t>& out) {
        put(out, {head(op, 5), uint_, bound_, a, b});
        return bound_++;
    }

    /// Appends what gives `part` an element of a texel that has several: its words are chosen.
    void put_part(std::uint32_t index, std::uint32_t fetched, std::uint8_t bytes, std::uint8_t texel,
                  std::uint32_t part, std::vector<std::uint32_t>& out) {
        std::uint32_t word = put_binary(kOpBitwiseAnd, index, number(texel / bytes - 1u), out);
        if (bytes == 4) {
            put(out, {head(kOpVectorExtractDynamic, 5), uint_, part, fetched, word});
            return;
        }
        word = put_binary(kOpShiftLeftLogical, word, number(1), out);
        const std::uint32_t next = put_binary(kOpBitwiseOr, word, number(1), out);
        const std::uint32_t first = bound_++, second = bound_++;
        put(out, {head(kOpVectorExtractDynamic, 5), uint_, first, fetched, word});
        put(out, {head(kOpVectorExtractDynamic, 5), uint_, second, fetched, next});
        put(out, {head(kOpCompositeConstruct, 5), two_, part, first, second});
    }

    std::uint32_t bound_;
    std::array<std::uint32_t, 4> numbers_{};
    std::vector<std::uint32_t> added_;
    std::uint32_t uint_ = 0, two_ = 0, four_ = 0, image_ = 0, pointer_ = 0;
};

}  // namespace

bool takes_texels(const Capabilities& device) {
    const bool forced = !device.variants.empty() && !device.tuning_is_asked;
    return device.cpu() && device.texel_buffers && !forced &&
           device.tuned("texel_loads").value_or(device.variants.empty()) == 1;
}

TexelFetches fetch_texels(std::vector<std::uint32_t> code, std::uint32_t bindings) {
    const auto module = split_module(code);
    if (bindings == 0 || !module || !is_plain(*module)) {
        return {std::move(code)};
    }
    const std::uint32_t bound = code[kHeaderBound];
    const Arrays arrays(*module, bound);
    const TexelBytes texels = arrays.texels(bindings);
    const auto fetched = [&](std::uint32_t id) {
        const Array* array = arrays.find(id);
        return array && array->binding < kMaxOperands ? texels[array->binding] : std::uint8_t{0};
    };
    if (texels == TexelBytes{}) {
        return {std::move(code)};
    }
    Types types(*module, bound);
    std::vector<std::uint32_t> functions;
    for (const std::vector<Words>& function : module->functions) {
        for (const Words i : function) {
            const bool chain = op_of(i) == kOpAccessChain || op_of(i) == kOpInBoundsAccessChain;
            if (chain && fetched(i[3]) != 0) {
                continue;
            }
            const Element* element = op_of(i) == kOpLoad ? arrays.element(i[3]) : nullptr;
            if (element && fetched(element->variable) != 0) {
                types.put_fetch(i, *element, arrays.find(element->variable)->bytes, fetched(element->variable),
                                functions);
            } else {
                put(functions, i);
            }
        }
    }
    if (types.bound() > kMostIds) {
        return {std::move(code)};
    }
    std::vector<std::uint32_t> out(code.begin(), code.begin() + kHeaderWords), variables;
    out[kHeaderBound] = types.bound();
    put(out, {head(kOpCapability, 2), kCapabilitySampledBuffer});
    for (const Words i : module->head) {
        const Element* gone = is_about(i) ? arrays.element(i[1]) : nullptr;
        const bool of_buffers = op_of(i) == kOpDecorate && fetched(i[1]) != 0 && i[2] != kDecorationBinding &&
                                i[2] != kDecorationDescriptorSet;
        if (op_of(i) == kOpVariable && fetched(i[2]) != 0) {
            put(variables, {head(kOpVariable, 4), types.pointer(), i[2], kStorageUniformConstant});
        } else if (!of_buffers && !(gone && fetched(gone->variable) != 0)) {
            put(out, i);
        }
    }
    put(out, types.added());
    put(out, variables);
    put(out, functions);
    return {std::move(out), texels};
}

}  // namespace vkf
