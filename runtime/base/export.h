// SPDX-License-Identifier: Apache-2.0
// VKF_API marks the types and functions that leave a shared vkformer. Everything else is hidden; a
// static one exports nothing.
#pragma once

#if !defined(VKFORMER_SHARED)
#define VKF_API
#elif !defined(_WIN32)
#define VKF_API __attribute__((visibility("default")))
#elif defined(VKFORMER_BUILDING)
#define VKF_API __declspec(dllexport)
#else
#define VKF_API __declspec(dllimport)
#endif
