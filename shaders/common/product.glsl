// SPDX-License-Identifier: Apache-2.0
// Where the matrices of a product begin. Names p of the kernel; include it after
// common/dispatch.glsl.
#ifndef VKF_SHADERS_COMMON_PRODUCT_GLSL
#define VKF_SHADERS_COMMON_PRODUCT_GLSL

struct ProductBases {
    uint a;
    uint b;
    uint c;
    // Where the outer batch dimension counts parts of the sums: how far into b this part begins.
    uint part;
};

// Of the batch with this number.
ProductBases product_bases(uint number) {
    uvec3 batch;
    batch.z = take_dimension(number, p.batch2);
    batch.y = take_dimension(number, p.batch1);
    batch.x = number;
    return ProductBases(p.a_offset + batch.x * p.a_batch[0] + batch.y * p.a_batch[1] + batch.z * p.a_batch[2],
                        p.b_offset + batch.x * p.b_batch[0] + batch.y * p.b_batch[1] + batch.z * p.b_batch[2],
                        p.c_offset + batch.x * p.c_batch[0] + batch.y * p.c_batch[1] + batch.z * p.c_batch[2],
                        batch.x * p.b_batch[0]);
}

#endif
