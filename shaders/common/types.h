// SPDX-License-Identifier: Apache-2.0
// One declaration of a kernel's parameters for GLSL and C++. A kernel's header reads
//
//     #include "common/types.h"
//     VKF_CONSTANT(kScaleBindingX, 0)
//     VKF_PUSH_BEGIN(ScalePush)
//         uint size;
//         uint stride[5];
//         float scale;
//     VKF_PUSH_END(ScalePush)
//
// and the kernel says `layout(push_constant) uniform Push { ScalePush p; };`. Members are scalars
// and arrays of scalars only, so that std430 and C++ lay them out alike. The first two members are
// common/dispatch.glsl's.
#ifndef VKF_SHADERS_COMMON_TYPES_H
#define VKF_SHADERS_COMMON_TYPES_H

#ifdef __cplusplus

#include <cstdint>

namespace vkf::shader {
using uint = std::uint32_t;
}

// A function that both compile.
#define VKF_FUNCTION inline

// An unsigned constant: a binding, the id of a specialization constant, a value one of these can
// take.
#define VKF_CONSTANT(name, value)       \
    namespace vkf::shader {             \
    inline constexpr uint name = value; \
    }

#define VKF_PUSH_BEGIN(name) \
    namespace vkf::shader {  \
    struct name {            \
        uint first_group;    \
        uint group_count;

// 128 bytes are all that Vulkan 1.1 guarantees.
#define VKF_PUSH_END(name)              \
    }                                   \
    ;                                   \
    static_assert(sizeof(name) <= 128); \
    }

#else

#define VKF_FUNCTION

#define VKF_CONSTANT(name, value) const uint name = value;

#define VKF_PUSH_BEGIN(name) \
    struct name {            \
        uint first_group;    \
        uint group_count;

#define VKF_PUSH_END(name) \
    }                      \
    ;

#endif

#endif
