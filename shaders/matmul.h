// SPDX-License-Identifier: Apache-2.0
// Matrix product in fp32: C[b, m, n] = act(alpha * (sum over k of A[b, m, k] * B[b, k, n]) +
// bias[n]) over three batch dimensions b; that plus other[b, m, n], a residual, or times it, a
// gate, where there is one. Eight kernels take the same parameters: matmul.comp (tiles in registers
// alone), matmul_shared.comp (tiles in shared memory), matvec.comp and matvec_columns.comp (few
// rows of A), matmul_half.comp (A and B rounded to f16), matmul_coopmat.comp (the same on
// cooperative matrices), matmul_merge.comp (the end of sums in parts: k and B are others there) and
// matmul_dot.comp. The last, and the int8 variant of matmul_coopmat.comp, multiply codes of int8:
// both A and B are rows of words then, and k counts the codes in them, filled up as they are.
//
// Every operand is strided, in elements. A stride of 0 broadcasts: grouped heads are batch
// dimensions (sequence, kv head, head within its group), with 0 as B's last batch stride. Sizes are
// all > 0; an element offset plus its strides stays below 2^32. C may not overlap the other
// operands, nor itself; but it may be other, where Act is none or relu.
#ifndef VKF_SHADERS_MATMUL_H
#define VKF_SHADERS_MATMUL_H

#include "common/activation.h"
#include "common/packed.h"
#include "common/types.h"

VKF_CONSTANT(kMatmulBindingA, 0)
VKF_CONSTANT(kMatmulBindingB, 1)
VKF_CONSTANT(kMatmulBindingBias, 2)  // or other; any buffer where there is neither: never read then
VKF_CONSTANT(kMatmulBindingC, 3)
// the other operand where there is a bias too; not bound elsewhere: Vulkan guarantees four
VKF_CONSTANT(kMatmulBindingOther, 4)

// Ids of the specialization constants. Id 0 is the local size in x.
//
// Rows: rows of C per group in matmul (1 to 8; with 8 lanes to 32; with 4 lanes 4, 8, 12 or 16) and
//   matvec (1 to 4). matmul's kernel for 8 lanes loads A another way for up to kMatmulFewRows.
//   1, 2 or 4 in matvec_columns.
// ALoad: how A is read, a kMatmulA... below.
// BLoad: how B is read, a kMatmulB... below.
// CVec: 1 writes C, and reads the bias, by vec4 (not in those for few rows of A). Needs c_column ==
//   1, bias_stride 0 or 1, and n, c_row, c_batch[], c_offset and bias_offset multiples of 4.
// Act: a kAct... of common/activation.h.
// AMasked: 1 lets an element of A whose bits are those of -0.0 count as absent: B's element there
//   contributes nothing, be it NaN or infinite.
// TileRows, TileColumns, TileDepth: the shared tile of matmul_shared, matmul_dot, matmul_half and
//   matmul_coopmat. Multiples of 4; the local size is TileRows * TileColumns / 16, in matmul_shared
//   and matmul_dot a half or a quarter of it too, and the shared memory
//   (TileRows + TileColumns + 8) * TileDepth * 4 bytes. In matmul_half, TileDepth counts words of
//   two numbers, and is a multiple of kMatmulHalfRun; in matmul_dot words of four codes. In
//   matmul_coopmat: multiples of
//   SubgroupRows, of SubgroupColumns, and of 8 and MatDepth; the shared memory is told by
//   CoopmatTile of ops/matmul_tiles.h.
// MatRows, MatColumns, MatDepth: the device's cooperative matrices (M, N, K), MatColumns and
//   MatDepth multiples of 8, of codes MatDepth 8 or a multiple of 16.
// SubgroupRows, SubgroupColumns: the part of the tile that one subgroup computes, multiples of
//   MatRows and MatColumns.
// Stages: 2 in matmul_coopmat where what the next step needs is stored beside what this step's
//   products read; 1 where it takes its place behind them, which takes a barrier more and half of
//   the memory.
// Subgroup: the subgroups' size, which the pipeline requires; the local size is as many of them as
//   the tile has such parts.
// Other: what the other operand is and where, a kMatmulOther... below.
// CodeSteps: matmul_lanes4: the steps of four k that a round takes of int4, 1 or 2. Two share the
//   codes they load, and a round's condition for what a group of int4 shares.
// Split: invocations that share the sum of one output in matvec; a power of two that divides the
//   local size. In matvec_columns that is the local size, a power of two from 8 * Rows on.
//
// Where a value says vec4, the buffer's bound range must start at a multiple of 16 bytes.
VKF_CONSTANT(kMatmulSpecRows, 1)
VKF_CONSTANT(kMatmulSpecALoad, 2)
VKF_CONSTANT(kMatmulSpecBLoad, 3)
VKF_CONSTANT(kMatmulSpecCVec, 4)
VKF_CONSTANT(kMatmulSpecAct, 5)
VKF_CONSTANT(kMatmulSpecAMasked, 6)
VKF_CONSTANT(kMatmulSpecTileRows, 7)
VKF_CONSTANT(kMatmulSpecTileColumns, 8)
VKF_CONSTANT(kMatmulSpecTileDepth, 9)
VKF_CONSTANT(kMatmulSpecSplit, 10)
VKF_CONSTANT(kMatmulSpecMatRows, 11)
VKF_CONSTANT(kMatmulSpecMatColumns, 12)
VKF_CONSTANT(kMatmulSpecMatDepth, 13)
VKF_CONSTANT(kMatmulSpecSubgroupRows, 14)
VKF_CONSTANT(kMatmulSpecSubgroupColumns, 15)
VKF_CONSTANT(kMatmulSpecSubgroup, 16)
VKF_CONSTANT(kMatmulSpecOther, 17)
VKF_CONSTANT(kMatmulSpecStages, 18)
VKF_CONSTANT(kMatmulSpecCodeSteps, 19)

// Any strides.
VKF_CONSTANT(kMatmulAScalar, 0)
// vec4 along k: a_k == 1 and k, a_row, a_batch[] and a_offset multiples of 4.
VKF_CONSTANT(kMatmulAVecK, 1)
// vec4 along m, as a transposed matrix is: a_row == 1 and m, a_k, a_batch[] and a_offset multiples
// of 4. In matmul_shared, and in matmul where Rows is a multiple of 4 and more than kMatmulFewRows.
VKF_CONSTANT(kMatmulAVecM, 2)
// Rows of common/packed.h in f16, in matmul_coopmat alone. A is addressed in words then, and k is a
// multiple of 8.
VKF_CONSTANT(kMatmulAHalves, 3)

// Any strides.
VKF_CONSTANT(kMatmulBScalar, 0)
// vec4 along k, as weights stored (n, k) and keys are: b_k == 1 and k, b_column, b_batch[],
// b_offset multiples of 4.
VKF_CONSTANT(kMatmulBVecK, 1)
// vec4 along n, as values are: b_column == 1 and n, b_k, b_batch[], b_offset multiples of 4.
VKF_CONSTANT(kMatmulBVecN, 2)
// Packed weights, rows of common/packed.h: 2 plus the kPacked... they are. B is addressed in words:
// b_column is a row's words, b_offset and b_batch[] are words too. b_k is looked at where
// b_batch[0] is not 0, for then a batch is a part of the sums: all of k.
VKF_CONSTANT(kMatmulBPacked, 2)

// There is no other operand.
VKF_CONSTANT(kMatmulOtherNone, 0)
// The other operand is added to, or multiplied with, what the activation gives; its strides are
// C's. It takes the place of the bias: has_bias is 0.
VKF_CONSTANT(kMatmulOtherResidual, 1)
VKF_CONSTANT(kMatmulOtherGate, 2)
// The residual or gate has a binding of its own, beside the bias.
VKF_CONSTANT(kMatmulOtherResidualBesideBias, 3)
VKF_CONSTANT(kMatmulOtherGateBesideBias, 4)

// Rows of C per group that the kernels have code for.
VKF_CONSTANT(kMatmulMaxRows, 32)
VKF_CONSTANT(kMatvecMaxRows, 4)
// matvec_columns: columns a group, and the fewest invocations of a subgroup
VKF_CONSTANT(kMatvecColumns, 4)
VKF_CONSTANT(kMatvecLeastSubgroup, 4)
VKF_CONSTANT(kMatmulFewRows, 4)

// matmul_half: products that are summed in f16 before fp32 takes over (docs/numerics.md, 12).
VKF_CONSTANT(kMatmulHalfRun, 8)

// clang-format off
VKF_PUSH_BEGIN(MatmulPush)
    uint m;
    uint n;
    uint k;      // products that are summed for each element of C
    uint batch1; // sizes of the two inner batch dimensions; the outer one follows from group_count
    uint batch2;
    uint a_batch[3];
    uint a_row;
    uint a_k;
    uint a_offset;
    uint b_batch[3];
    uint b_k;
    uint b_column;
    uint b_offset;
    uint c_batch[3];
    uint c_row;
    uint c_column;
    uint c_offset;
    uint has_bias;     // 1, or 0
    uint bias_stride;  // 0: one number for all columns
    uint bias_offset;
    uint other_offset;
    float alpha;
VKF_PUSH_END(MatmulPush)
// clang-format on

#endif
