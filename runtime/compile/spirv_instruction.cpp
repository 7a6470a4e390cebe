// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/spirv_instruction.h"

namespace vkf {

using namespace spv;

std::pair<std::size_t, std::size_t> spv::literals_of(Words i) {
    switch (op_of(i)) {
        case kOpCapability: return {1, i.size()};
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
        case kOpCooperativeMatrixReduce:
        case kOpExtInst: return {4, 5};
        case kOpVectorShuffle:
        case kOpCompositeInsert: return {5, i.size()};
        default: return {0, 0};
    }
}

bool spv::names_any(Words i, const Ids& ids) {
    bool found = false;
    each_id(i, 1, [&](std::uint32_t id) { found = found || ids.contains(id); });
    return found;
}

std::uint32_t spv::result_of(Words i) {
    switch (op_of(i)) {
        case kOpLabel: return i[1];
        case kOpNop:
        case kOpLine:
        case kOpNoLine:
        case kOpStore:
        case kOpCopyMemory:
        case kOpControlBarrier:
        case kOpMemoryBarrier:
        case kOpCooperativeMatrixStore:
        case kOpAtomicStore: return 0;
        default: return op_of(i) >= kOpLoopMerge && op_of(i) <= kOpUnreachable ? 0 : i.size() > 2 ? i[2] : 0;
    }
}

}  // namespace vkf
