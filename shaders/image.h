// SPDX-License-Identifier: Apache-2.0
// Parameters of image_read.comp and image_write.comp: texels of a two-dimensional image and the
// elements of a tensor (height, width, channels), channels 1 to 4.
#ifndef VKF_SHADERS_IMAGE_H
#define VKF_SHADERS_IMAGE_H

#include "common/types.h"

VKF_CONSTANT(kImageBindingImage, 0)
VKF_CONSTANT(kImageBindingTensor, 1)

VKF_PUSH_BEGIN(ImagePush)
uint height;
uint width;
uint channels;
uint stride[3];
uint offset;
VKF_PUSH_END(ImagePush)

#endif
