// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/spirv_instruction.h"

#include <algorithm>
#include <cstring>

namespace vkf {

using namespace spv;

namespace {

bool within(Words i, std::uint32_t first, std::uint32_t last) { return op_of(i) >= first && op_of(i) <= last; }

}  // namespace

std::pair<std::size_t, std::size_t> spv::literals_of(Words i) {
    switch (op_of(i)) {
        case kOpCapability: return {1, i.size()};
        case kOpLine: return {2, i.size()};
        case kOpTypeInt:
        case kOpTypeFloat:
        case kOpSelectionMerge: return {2, i.size()};
        case kOpTypePointer: return {2, 3};
        case kOpConstant:
        case kOpSpecConstant:
        case kOpTypeVector:
        case kOpTypeMatrix:
        case kOpLoopMerge: return {3, i.size()};
        case kOpFunction:
        case kOpSpecConstantOp:
        case kOpVariable:
        case kOpStore: return {3, 4};  // behind the kind of access there may be ids of scopes
        case kOpCompositeExtract:
        case kOpBranchConditional: return {4, i.size()};
        case kOpLoad:
        case kOpArrayLength:
        case kOpImageWrite:
        case kOpGroupNonUniformBallotBitCount:
        case kOpCooperativeMatrixReduce:
        case kOpExtInst: return {4, 5};
        case kOpVectorShuffle:
        case kOpCompositeInsert: return {5, i.size()};
        case kOpImageFetch:
        case kOpImageRead:
        case kOpCooperativeMatrixStore: return {5, 6};
        case kOpCooperativeMatrixLoad:
        case kOpCooperativeMatrixMulAdd: return {6, 7};
        default: break;
    }
    if (within(i, kOpGroupNonUniformIAdd, kOpGroupNonUniformLogicalXor)) {
        return {4, 5};
    }
    if (within(i, kOpSDot, kOpSUDot)) {
        return {5, 6};
    }
    return within(i, kOpSUDot + 1, kOpSUDotAccSat) ? std::pair<std::size_t, std::size_t>{6, 7}
                                                   : std::pair<std::size_t, std::size_t>{0, 0};
}

bool spv::has_known_operands(Words i) {
    // What says how memory is accessed; more than a mask follows where that has other bits.
    const auto plain_access = [&](std::size_t at) { return i.size() <= at || (i.size() == at + 1 && i[at] <= 1); };
    switch (op_of(i)) {
        case kOpLoad: return plain_access(4);
        case kOpStore: return plain_access(3);
        case kOpCooperativeMatrixLoad: return plain_access(6);
        case kOpCooperativeMatrixStore: return plain_access(5);
        case kOpUndef:
        case kOpExtInst:
        case kOpFunction:
        case kOpFunctionParameter:
        case kOpFunctionEnd:
        case kOpFunctionCall:
        case kOpVariable:
        case kOpAccessChain:
        case kOpInBoundsAccessChain:
        case kOpArrayLength:
        case kOpImageFetch:
        case kOpImageRead:
        case kOpImageWrite:
        case kOpImage:
        case kOpImageQuerySizeLod:
        case kOpImageQuerySize:
        case kOpBitcast:
        case kOpControlBarrier:
        case kOpMemoryBarrier:
        case kOpCooperativeMatrixMulAdd:
        case kOpCooperativeMatrixLength:
        case kOpCooperativeMatrixConvert:
        case kOpCooperativeMatrixReduce:
        case kOpCooperativeMatrixPerElementOp: return true;
        default: break;
    }
    return within(i, kOpVectorExtractDynamic, kOpTranspose) || within(i, kOpConvertFToU, kOpQuantizeToF16) ||
           within(i, kOpSNegate, kOpSMulExtended) || within(i, kOpAny, kOpFUnordGreaterThanEqual) ||
           within(i, kOpShiftRightLogical, kOpBitCount) || within(i, kOpAtomicLoad, kOpAtomicXor) ||
           within(i, kOpPhi, kOpBranchConditional) || within(i, kOpReturn, kOpUnreachable) ||
           within(i, kOpGroupNonUniformElect, kOpGroupNonUniformQuadSwap) || within(i, kOpSDot, kOpSUDotAccSat) ||
           (op_of(i) == kOpSwitch && i.size() % 2 == 1);
}

bool spv::names_any(Words i, const Ids& ids) {
    bool found = false;
    each_id(i, 1, [&](std::uint32_t id) { found = found || ids.contains(id); });
    return found;
}

std::vector<std::uint32_t> spv::extension_words(std::string_view name) {
    std::vector<std::uint32_t> out(1 + name.size() / 4 + 1);  // at least one byte of 0 ends a name
    out[0] = head(kOpExtension, out.size());
    std::memcpy(&out[1], name.data(), name.size());
    return out;
}

bool spv::is_extension(Words i, std::string_view name) {
    return op_of(i) == kOpExtension && std::ranges::equal(i, extension_words(name));
}

std::uint32_t spv::result_of(Words i) {
    switch (op_of(i)) {
        case kOpLabel: return i.size() > 1 ? i[1] : 0;
        case kOpNop:
        case kOpLine:
        case kOpNoLine:
        case kOpStore:
        case kOpCopyMemory:
        case kOpImageWrite:
        case kOpControlBarrier:
        case kOpMemoryBarrier:
        case kOpCooperativeMatrixStore:
        case kOpAtomicStore: return 0;
        default: return op_of(i) >= kOpLoopMerge && op_of(i) <= kOpUnreachable ? 0 : i.size() > 2 ? i[2] : 0;
    }
}

}  // namespace vkf
