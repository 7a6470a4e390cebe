// SPDX-License-Identifier: Apache-2.0
#include "window.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#ifdef EMBED_GLFW
#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>

namespace {

class GlfwWindow final : public Window {
public:
    GlfwWindow(Gpu& gpu, VkExtent2D size) : gpu_(gpu) {
        glfwWindowHint(GLFW_CLIENT_API, GLFW_NO_API);
        window_ = glfwCreateWindow(static_cast<int>(size.width), static_cast<int>(size.height), "vkformer: embed",
                                   nullptr, nullptr);
        if (window_ == nullptr) {
            throw std::runtime_error("GLFW made no window");
        }
        check(glfwCreateWindowSurface(gpu.instance, window_, nullptr, &surface_), "glfwCreateWindowSurface");
        VkBool32 presents = VK_FALSE;
        check(vkGetPhysicalDeviceSurfaceSupportKHR(gpu.physical, gpu.family, surface_, &presents), "the surface");
        if (presents == VK_FALSE) {
            throw std::runtime_error("the device does not show pictures in this window");
        }
        for (VkSemaphore& semaphore : acquired_) {
            semaphore = gpu.make_semaphore();
        }
        make_swapchain();
    }

    ~GlfwWindow() override {
        vkDeviceWaitIdle(gpu_.device);
        vkDestroySwapchainKHR(gpu_.device, swapchain_, nullptr);
        vkDestroySurfaceKHR(gpu_.instance, surface_, nullptr);
        glfwDestroyWindow(window_);
        glfwTerminate();
    }

    bool open() override {
        glfwPollEvents();
        return glfwWindowShouldClose(window_) == GLFW_FALSE;
    }

    bool acquire() override {
        if (stale_) {
            make_swapchain();
        }
        if (swapchain_ == VK_NULL_HANDLE) {
            return false;
        }
        turn_ = (turn_ + 1) % kTurns;
        const VkResult result =
            vkAcquireNextImageKHR(gpu_.device, swapchain_, UINT64_MAX, acquired_[turn_], nullptr, &index_);
        stale_ = result == VK_SUBOPTIMAL_KHR || result == VK_ERROR_OUT_OF_DATE_KHR;
        if (result == VK_ERROR_OUT_OF_DATE_KHR) {
            return false;
        }
        check(stale_ ? VK_SUCCESS : result, "vkAcquireNextImageKHR");
        return true;
    }

    VkSemaphore acquired() const override { return acquired_[turn_]; }
    VkSemaphore drawn() const override { return drawn_[index_]; }

    void blit(VkCommandBuffer commands, VkImage picture, VkExtent2D size) override {
        to_layout(commands, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, 0,
                  VK_ACCESS_TRANSFER_WRITE_BIT);
        const auto corner = [](VkExtent2D e) {
            return VkOffset3D{static_cast<std::int32_t>(e.width), static_cast<std::int32_t>(e.height), 1};
        };
        const VkImageSubresourceLayers colour{VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1};
        const VkImageBlit whole{colour, {{0, 0, 0}, corner(size)}, colour, {{0, 0, 0}, corner(extent_)}};
        vkCmdBlitImage(commands, picture, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, images_[index_],
                       VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, 1, &whole, VK_FILTER_LINEAR);
        to_layout(commands, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, VK_IMAGE_LAYOUT_PRESENT_SRC_KHR,
                  VK_ACCESS_TRANSFER_WRITE_BIT, 0);
    }

    void present() override {
        const VkPresentInfoKHR info{
            VK_STRUCTURE_TYPE_PRESENT_INFO_KHR, nullptr, 1, &drawn_[index_], 1, &swapchain_, &index_, nullptr};
        const VkResult result = vkQueuePresentKHR(gpu_.queue, &info);
        stale_ = stale_ || result == VK_SUBOPTIMAL_KHR || result == VK_ERROR_OUT_OF_DATE_KHR;
        check(stale_ ? VK_SUCCESS : result, "vkQueuePresentKHR");
    }

    void title(const std::string& text) override { glfwSetWindowTitle(window_, text.c_str()); }

private:
    static constexpr std::uint32_t kTurns = 3;  // one more than frames in flight

    void make_swapchain() {
        vkDeviceWaitIdle(gpu_.device);
        VkSurfaceCapabilitiesKHR can;
        check(vkGetPhysicalDeviceSurfaceCapabilitiesKHR(gpu_.physical, surface_, &can), "the surface's capabilities");
        if ((can.supportedUsageFlags & VK_IMAGE_USAGE_TRANSFER_DST_BIT) == 0) {
            throw std::runtime_error("pictures cannot be copied to this window");
        }
        int width = 0, height = 0;
        glfwGetFramebufferSize(window_, &width, &height);
        extent_ = can.currentExtent.width != UINT32_MAX
                      ? can.currentExtent
                      : VkExtent2D{static_cast<std::uint32_t>(width), static_cast<std::uint32_t>(height)};
        VkSwapchainKHR old = swapchain_;
        swapchain_ = VK_NULL_HANDLE;
        stale_ = extent_.width == 0 || extent_.height == 0;  // minimised
        if (!stale_) {
            std::uint32_t one = 1;
            VkSurfaceFormatKHR format{};
            const VkResult listed = vkGetPhysicalDeviceSurfaceFormatsKHR(gpu_.physical, surface_, &one, &format);
            check(listed == VK_INCOMPLETE ? VK_SUCCESS : listed, "the surface's formats");
            VkSwapchainCreateInfoKHR info{};
            info.sType = VK_STRUCTURE_TYPE_SWAPCHAIN_CREATE_INFO_KHR;
            info.surface = surface_;
            info.minImageCount =
                std::max(can.minImageCount, can.maxImageCount == 0 ? 3 : std::min(3u, can.maxImageCount));
            info.imageFormat = format.format;
            info.imageColorSpace = format.colorSpace;
            info.imageExtent = extent_;
            info.imageArrayLayers = 1;
            info.imageUsage = VK_IMAGE_USAGE_TRANSFER_DST_BIT;
            info.preTransform = can.currentTransform;
            info.compositeAlpha = VK_COMPOSITE_ALPHA_OPAQUE_BIT_KHR;
            info.presentMode = VK_PRESENT_MODE_FIFO_KHR;
            info.clipped = VK_TRUE;
            info.oldSwapchain = old;
            check(vkCreateSwapchainKHR(gpu_.device, &info, nullptr, &swapchain_), "vkCreateSwapchainKHR");
        }
        vkDestroySwapchainKHR(gpu_.device, old, nullptr);
        if (swapchain_ != VK_NULL_HANDLE) {
            std::uint32_t count = 0;
            check(vkGetSwapchainImagesKHR(gpu_.device, swapchain_, &count, nullptr), "vkGetSwapchainImagesKHR");
            images_.resize(count);
            check(vkGetSwapchainImagesKHR(gpu_.device, swapchain_, &count, images_.data()), "vkGetSwapchainImagesKHR");
            while (drawn_.size() < count) {
                drawn_.push_back(gpu_.make_semaphore());
            }
        }
    }

    void to_layout(VkCommandBuffer commands, VkImageLayout from, VkImageLayout to, VkAccessFlags written,
                   VkAccessFlags access) {
        VkImageMemoryBarrier image{};
        image.sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER;
        image.srcAccessMask = written;
        image.dstAccessMask = access;
        image.oldLayout = from;
        image.newLayout = to;
        image.srcQueueFamilyIndex = image.dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED;
        image.image = images_[index_];
        image.subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1};
        vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 0, nullptr, 0,
                             nullptr, 1, &image);
    }

    Gpu& gpu_;
    GLFWwindow* window_ = nullptr;
    VkSurfaceKHR surface_{};
    VkSwapchainKHR swapchain_{};
    VkExtent2D extent_{};
    std::vector<VkImage> images_;
    VkSemaphore acquired_[kTurns]{};
    std::vector<VkSemaphore> drawn_;  // one an image
    std::uint32_t turn_ = 0, index_ = 0;
    bool stale_ = false;
};

}  // namespace

std::vector<const char*> window_extensions() {
    if (glfwInit() == GLFW_FALSE || glfwVulkanSupported() == GLFW_FALSE) {
        const char* why = nullptr;
        glfwGetError(&why);
        throw std::runtime_error(std::string("no window: ") + (why != nullptr ? why : "no display for Vulkan"));
    }
    std::uint32_t count = 0;
    const char** names = glfwGetRequiredInstanceExtensions(&count);
    return {names, names + count};
}

std::unique_ptr<Window> open_window(Gpu& gpu, VkExtent2D size) { return std::make_unique<GlfwWindow>(gpu, size); }

#else

std::vector<const char*> window_extensions() {
    throw std::runtime_error("no window: built without GLFW (on Debian and Ubuntu the package libglfw3-dev)");
}

std::unique_ptr<Window> open_window(Gpu&, VkExtent2D) { return nullptr; }

#endif
