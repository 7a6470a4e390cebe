// SPDX-License-Identifier: Apache-2.0
// A window to show frames in, through GLFW where the sample was built with it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpu.h"

class Window {
public:
    virtual ~Window() = default;
    /// False once it was closed. Handles what the user does.
    virtual bool open() = 0;
    /// Takes the next image to show; false when there is none now (a window that is being resized).
    virtual bool acquire() = 0;
    virtual VkSemaphore acquired() const = 0;
    virtual VkSemaphore drawn() const = 0;
    /// Scales a picture in TRANSFER_SRC_OPTIMAL into the acquired image, and leaves that one as
    /// presenting wants it.
    virtual void blit(VkCommandBuffer commands, VkImage picture, VkExtent2D size) = 0;
    virtual void present() = 0;
    virtual void title(const std::string& text) = 0;
};

/// Instance extensions that a window needs. Throws where there is no display, or no GLFW.
std::vector<const char*> window_extensions();
/// The Gpu must outlive it.
std::unique_ptr<Window> open_window(Gpu& gpu, VkExtent2D size);
