// SPDX-License-Identifier: Apache-2.0
// Matrices of weights as kernels read them: rows of 32-bit words, so that no device needs 16-bit or
// 8-bit storage. Each row begins at a multiple of four words: first its codes, from the lowest bits
// of the first word on and filled up with zeros to four words, then its scales, filled up likewise.
//
//   f16, bf16   two numbers a word
//   int8        four signed codes a word; one scale s (fp32) a row: weight = s * code
//   int4        eight codes of 0 to 15 a word; for each 32 columns one word, an fp32 scale s whose
//               lowest four bits, taken as 0 in s, are the zero point z: weight = s * (code - z).
//               The last 32 columns are filled up with z.
//
// How numbers become codes: docs/numerics.md.
#ifndef VKF_SHADERS_COMMON_PACKED_H
#define VKF_SHADERS_COMMON_PACKED_H

#include "types.h"

// In the order of WeightType (runtime/graph/dtype.h).
VKF_CONSTANT(kPackedF32, 0)  // not packed
VKF_CONSTANT(kPackedF16, 1)
VKF_CONSTANT(kPackedBf16, 2)
VKF_CONSTANT(kPackedInt8, 3)
VKF_CONSTANT(kPackedInt4, 4)

VKF_CONSTANT(kPackedGroup, 32)          // columns that share a scale in int4
VKF_CONSTANT(kPackedInt8ScaleWords, 4)  // behind the codes of a row in int8: its scale, and zeros

#endif
