// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/spirv.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/compile/spirv_words.h"

namespace vkf {

using namespace spv;

namespace {

struct Type {
    std::uint32_t op = 0;
    std::vector<std::uint32_t> operands;
    std::uint32_t place = 0;  ///< place in the order of declaration
};

struct Module {
    std::map<std::uint32_t, Type> types;
    std::map<std::uint32_t, std::uint32_t> constants;  // result id -> value
    std::map<std::uint32_t, std::uint32_t> spec_ids, bindings, sets, array_strides;
    // struct, member -> bytes
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> offsets, matrix_strides;
    std::set<std::pair<std::uint32_t, std::uint32_t>> row_major;

    /// Bytes of a type. A type is made of types declared before it; a module that says otherwise
    /// gets 0 for them.
    std::uint32_t bytes(std::uint32_t id, std::uint32_t before = ~0u) const {
        const auto found = types.find(id);
        if (found == types.end() || found->second.place >= before) {
            return 0;
        }
        const Type& t = found->second;
        switch (t.op) {
            case kOpTypeInt:
            case kOpTypeFloat: return t.operands[0] / 8;
            case kOpTypeMatrix:  // of columns
            case kOpTypeVector: return bytes(t.operands[0], t.place) * t.operands[1];
            case kOpTypeArray: {
                const auto stride = array_strides.find(id);
                const auto length = constants.find(t.operands[1]);
                return (stride != array_strides.end() ? stride->second : bytes(t.operands[0], t.place)) *
                       (length != constants.end() ? length->second : 0);
            }
            case kOpTypeStruct: {
                std::uint32_t end = 0;
                for (std::uint32_t m = 0; m < t.operands.size(); ++m) {
                    const auto offset = offsets.find({id, m});
                    const std::uint32_t size = matrix_bytes(id, m).value_or(bytes(t.operands[m], t.place));
                    end = std::max(end, (offset != offsets.end() ? offset->second : 0) + size);
                }
                return end;
            }
            default: return 0;
        }
    }

    /// Bytes of a member that is a matrix and tells how far its columns or rows are apart.
    std::optional<std::uint32_t> matrix_bytes(std::uint32_t id, std::uint32_t member) const {
        const auto stride = matrix_strides.find({id, member});
        const auto matrix = types.find(types.at(id).operands[member]);
        if (stride == matrix_strides.end() || matrix == types.end() || matrix->second.op != kOpTypeMatrix) {
            return std::nullopt;
        }
        const auto column = types.find(matrix->second.operands[0]);
        if (column == types.end() || column->second.op != kOpTypeVector) {
            return std::nullopt;
        }
        return stride->second * (row_major.contains({id, member}) ? column : matrix)->second.operands[1];
    }
};

/// True for what any device can do, and for what has a member of ShaderInterface.
bool is_known(std::uint32_t capability) {
    switch (capability) {
        case kCapabilityMatrix:
        case kCapabilityShader:
        case kCapabilityFloat16:
        case kCapabilityInt64:
        case kCapabilityInt8:
        case kCapabilitySampled1D:
        case kCapabilityImage1D:
        case kCapabilitySampledBuffer:
        case kCapabilityImageBuffer:
        case kCapabilityImageQuery:
        case kCapabilityStorageImageWriteWithoutFormat:
        case kCapabilityStorageBuffer16:
        case kCapabilityVulkanMemoryModel:
        case kCapabilityVulkanMemoryModelDeviceScope:
        case kCapabilityCooperativeMatrix: return true;
        default: break;
    }
    return (capability >= kCapabilityGroupNonUniform && capability <= kCapabilityGroupNonUniformQuad) ||
           (capability >= kCapabilityDenormPreserve && capability <= kCapabilityRoundingModeRTZ) ||
           (capability >= kCapabilityCooperativeMatrixConversionsExt &&
            capability <= kCapabilityCooperativeMatrixPerElement) ||
           (capability >= kCapabilityDotProductInputAll && capability <= kCapabilityDotProduct);
}

/// True where the words of a string are these characters.
bool spells(std::span<const std::uint32_t> words, std::string_view text) {
    for (std::size_t i = 0; i <= text.size(); ++i) {
        const std::uint32_t byte = i / 4 < words.size() ? words[i / 4] >> i % 4 * 8 & 0xff : ~0u;
        if (byte != (i < text.size() ? static_cast<unsigned char>(text[i]) : 0u)) {
            return false;
        }
    }
    return true;
}

}  // namespace

ShaderInterface reflect(std::span<const std::uint32_t> code, const std::string& name) {
    const auto fail = [&](const std::string& what) { throw Error(what, "shader " + name); };
    if (code.size() < kHeaderWords || code[0] != kMagic) {
        fail("not a SPIR-V module");
    }
    Module m;
    ShaderInterface out;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> variables;  // id, pointer type
    std::uint32_t workgroup_size = 0, main = 0;
    std::set<std::uint32_t> buffer_blocks;
    std::map<std::uint32_t, std::vector<std::uint32_t>> composites;
    // variables that functions read, write, index, or hand on, as glslang writes it
    std::set<std::uint32_t> touched;

    for (std::size_t at = 5; at < code.size();) {
        const std::uint32_t op = code[at] & 0xffff;
        const std::uint32_t words = code[at] >> 16;
        if (words == 0 || at + words > code.size()) {
            fail("truncated at word " + std::to_string(at));
        }
        const auto w = code.subspan(at + 1, words - 1);
        const auto need = [&](std::size_t n) {
            if (w.size() < n) {
                fail("malformed instruction " + std::to_string(op) + " at word " + std::to_string(at));
            }
        };
        switch (op) {
            case kOpCapability:
                need(1);
                out.uses_16bit_storage |= w[0] == kCapabilityStorageBuffer16;
                out.uses_float16 |= w[0] == kCapabilityFloat16;
                out.uses_int8 |= w[0] == kCapabilityInt8;
                out.uses_int64 |= w[0] == kCapabilityInt64;
                out.uses_cooperative_matrices |= w[0] == kCapabilityCooperativeMatrix;
                out.uses_matrix_elements |= w[0] >= kCapabilityCooperativeMatrixConversionsExt &&
                                            w[0] <= kCapabilityCooperativeMatrixPerElement;
                out.uses_integer_dot |= w[0] == kCapabilityDotProduct;
                out.uses_memory_model |= w[0] == kCapabilityVulkanMemoryModel;
                out.uses_subgroup_arithmetic |= w[0] == kCapabilityGroupNonUniformArithmetic;
                out.uses_subgroup_quad |= w[0] == kCapabilityGroupNonUniformQuad;
                out.uses_subgroups |= w[0] > kCapabilityGroupNonUniform && w[0] < kCapabilityGroupNonUniformQuad &&
                                      w[0] != kCapabilityGroupNonUniformArithmetic;
                if (!is_known(w[0])) {
                    out.other_capabilities.push_back(w[0]);
                }
                break;
            case kOpEntryPoint:
                need(3);
                if (w[0] == kExecutionModelGLCompute && spells(w.subspan(2), "main")) {
                    main = w[1];
                    out.has_main = true;
                }
                break;
            case kOpExecutionMode:
                need(2);
                if (w[1] == kExecutionModeLocalSize && (main == 0 || w[0] == main)) {
                    need(5);
                    std::copy(w.begin() + 2, w.begin() + 5, out.local_size);
                }
                break;
            case kOpExecutionModeId:
                need(2);
                if (w[1] == kExecutionModeLocalSizeId && (main == 0 || w[0] == main)) {
                    need(5);
                    workgroup_size = w[0];  // the entry point's id stands for a constant of them
                    composites[w[0]] = {w.begin() + 2, w.end()};
                }
                break;
            case kOpTypeImage:
                need(8);
                m.types[w[0]] = {op, {w.begin() + 1, w.end()}, static_cast<std::uint32_t>(at)};
                break;
            case kOpTypeInt:
            case kOpTypeFloat:
            case kOpTypeVector:
            case kOpTypeMatrix:
            case kOpTypeArray:
            case kOpTypeStruct:
            case kOpTypePointer:
                need(op == kOpTypeStruct ? 1 : op == kOpTypeInt || op == kOpTypeFloat ? 2 : 3);
                m.types[w[0]] = {op, {w.begin() + 1, w.end()}, static_cast<std::uint32_t>(at)};
                break;
            case kOpConstant:
            case kOpSpecConstant:
                need(3);
                m.constants[w[1]] = w[2];
                break;
            case kOpSpecConstantComposite:
                need(2);
                composites[w[1]] = {w.begin() + 2, w.end()};
                break;
            case kOpVariable:
                need(3);
                variables.emplace_back(w[1], w[0]);
                break;
            case kOpDecorate:
                need(2);
                if (w[1] == kDecorationBuiltIn && w.size() > 2 && w[2] == kBuiltInWorkgroupSize) {
                    workgroup_size = w[0];
                } else if (w[1] == kDecorationBufferBlock) {
                    buffer_blocks.insert(w[0]);
                } else if (w.size() > 2) {
                    for (const auto& [decoration, map] : {std::pair{kDecorationSpecId, &m.spec_ids},
                                                          {kDecorationBinding, &m.bindings},
                                                          {kDecorationDescriptorSet, &m.sets},
                                                          {kDecorationArrayStride, &m.array_strides}}) {
                        if (w[1] == decoration) {
                            (*map)[w[0]] = w[2];
                        }
                    }
                }
                break;
            case kOpMemberDecorate:
                need(3);
                if (w[2] == kDecorationOffset) {
                    need(4);
                    m.offsets[{w[0], w[1]}] = w[3];
                } else if (w[2] == kDecorationMatrixStride) {
                    need(4);
                    m.matrix_strides[{w[0], w[1]}] = w[3];
                } else if (w[2] == kDecorationRowMajor) {
                    m.row_major.insert({w[0], w[1]});
                }
                break;
            case kOpLoad:
            case kOpAccessChain:
            case kOpInBoundsAccessChain:
            case kOpArrayLength:
                need(3);
                touched.insert(w[2]);
                break;
            case kOpFunctionCall:
                need(3);
                touched.insert(w.begin() + 3, w.end());
                break;
            case kOpStore:
            case kOpCopyMemory:
                need(2);
                touched.insert(w.begin(), w.begin() + 2);
                break;
            default: break;
        }
        at += words;
    }

    std::uint64_t used = 0;
    const auto reach = [&](std::uint32_t id, std::uint32_t binding) {
        out.reached = std::max(out.reached, touched.contains(id) ? binding + 1 : 0);
    };
    for (const auto& [id, pointer] : variables) {
        const auto found = m.types.find(pointer);
        if (found == m.types.end() || found->second.op != kOpTypePointer) {
            continue;
        }
        const std::uint32_t storage = found->second.operands[0];
        if (storage == kStoragePushConstant) {
            out.push_constant_bytes = m.bytes(found->second.operands[1]);
        } else if (storage == kStorageUniformConstant) {
            const auto type = m.types.find(found->second.operands[1]);
            const auto set = m.sets.find(id);
            const auto binding = m.bindings.find(id);
            if (type == m.types.end() || type->second.op != kOpTypeImage || set == m.sets.end() || set->second != 0 ||
                binding == m.bindings.end() || binding->second != 0) {
                fail("uses a sampler, or an image elsewhere than at binding 0, which the runtime does not bind");
            }
            // operand: 1 is used with samplers or fetches, 2 is a storage image
            constexpr std::size_t kSampled = 5;
            out.image = type->second.operands[kSampled] == 1 ? ImageAccess::sampled : ImageAccess::storage;
            used |= 1;
            out.bindings = std::max(out.bindings, 1u);
            reach(id, 0);
        } else if (storage == kStorageStorageBuffer || storage == kStorageUniform) {
            const auto set = m.sets.find(id);
            const auto binding = m.bindings.find(id);
            if (set == m.sets.end() || binding == m.bindings.end() || set->second != 0 || binding->second >= 64) {
                fail("a buffer outside set 0, bindings 0..63");
            }
            const std::string which = "binding " + std::to_string(binding->second);
            const std::uint32_t block = found->second.operands[1];
            const auto type = m.types.find(block);
            if (type == m.types.end() || type->second.op != kOpTypeStruct) {
                fail(which + " is an array of buffers, of which the runtime binds one");
            }
            if (storage == kStorageUniform && !buffer_blocks.contains(block)) {
                fail(which + " is a uniform block, and the runtime binds storage buffers");
            }
            used |= std::uint64_t{1} << binding->second;
            out.bindings = std::max(out.bindings, binding->second + 1);
            reach(id, binding->second);
        }
    }
    if (out.bindings != 0 &&
        used != (out.bindings == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << out.bindings) - 1)) {
        fail("its bindings have gaps");
    }
    for (const auto& [id, spec] : m.spec_ids) {
        out.constant_ids.push_back(spec);
    }
    std::sort(out.constant_ids.begin(), out.constant_ids.end());
    if (const auto found = composites.find(workgroup_size); workgroup_size != 0 && found != composites.end()) {
        for (std::size_t i = 0; i < 3 && i < found->second.size(); ++i) {
            const std::uint32_t id = found->second[i];
            if (m.constants.contains(id)) {
                out.local_size[i] = m.constants[id];
            }
            if (i == 0 && m.spec_ids.contains(id)) {
                out.local_size_id = static_cast<int>(m.spec_ids[id]);
            }
        }
    }
    return out;
}

}  // namespace vkf
