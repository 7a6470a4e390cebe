// SPDX-License-Identifier: Apache-2.0
// A renderer with Vulkan of its own draws a flock whose every move is decided by a Transformer
// layer, recorded between its simulation and its drawing. Lines show what one boid attends to: blue
// whom it aligns with, amber whom it stays with, green whom it avoids, red whom it fears.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "picture.h"
#include "renderer.h"

namespace {

namespace fs = std::filesystem;

struct Options {
    std::uint64_t frames = 240;
    fs::path out;
    std::string size = "960x540";
    std::uint32_t boids = 128, hunters = 2, watched = 0;
    bool window = false, checked = false;
};

VkExtent2D parse_size(const std::string& text) {
    VkExtent2D size{};
    char rest = 0;
    if (std::sscanf(text.c_str(), "%ux%u%c", &size.width, &size.height, &rest) != 2 || size.width < 16 ||
        size.height < 16 || size.width > 4096 || size.height > 4096) {
        throw std::runtime_error("--size is " + text + ", and must be WxH, of 16 to 4096 each");
    }
    return size;
}

/// Counts what is wrong and says it.
int verdict(const Renderer& renderer, const Flock& flock, const Gpu& gpu, double bright) {
    int wrong = 0;
    const double difference = difference_from_rules(flock, renderer.tokens(), renderer.said());
    std::printf("accelerations differ from the rules in double precision by at most %.2g\n", difference);
    wrong += difference <= 1e-3 ? 0 : 1;
    std::printf("%.1f %% of the last picture is drawn on\n", 100 * bright);
    wrong += bright > 0.005 && bright < 0.5 ? 0 : 1;
    for (const std::string& message : gpu.messages()) {
        std::printf("%s\n", message.c_str());
        ++wrong;
    }
    return wrong;
}

int run(const Options& o) {
    const VkExtent2D size = parse_size(o.size);
    const Flock flock{o.boids, o.hunters};
    if (o.hunters >= o.boids || o.watched >= o.boids) {
        throw std::runtime_error("--hunters and --watch must be less than --boids, " + std::to_string(o.boids));
    }
    if (o.frames == 0 && !o.window) {
        throw std::runtime_error("--frames 0 is for a window, which can be closed");
    }
    if (!o.out.empty()) {
        fs::create_directories(o.out);
    }
    double bright = 0;
    const auto finished = [&](std::uint64_t frame, Pixels pixels) {
        bright = bright_share(pixels);
        if (!o.out.empty()) {
            char name[32];
            std::snprintf(name, sizeof(name), "frame-%04u.png", static_cast<unsigned>(frame));
            write_png(o.out / name, size.width, size.height, pixels);
        }
    };
    Gpu gpu(o.window ? window_extensions() : std::vector<const char*>(), o.window);
    const std::unique_ptr<Window> window = o.window ? open_window(gpu, size) : nullptr;
    Renderer renderer(gpu, flock, o.watched, o.checked, size, finished);
    std::printf("%s: %u boids\n", renderer.device().capabilities().name.c_str(), flock.boids);
    const auto start = std::chrono::steady_clock::now();
    std::uint64_t frames = 0;
    for (; frames < o.frames || o.frames == 0; ++frames) {
        if (window != nullptr && !window->open()) {
            break;
        }
        renderer.draw(window.get());
    }
    renderer.finish();
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    std::printf("%u frames, %.2f ms each; recording the layer took %.0f us\n", static_cast<unsigned>(frames),
                ms / static_cast<double>(std::max<std::uint64_t>(frames, 1)), renderer.record_microseconds());
    return frames == 0 ? 0 : verdict(renderer, flock, gpu, bright) == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
    Options o;
    CLI::App app("A flock steered by a Transformer layer in a renderer's own command buffer");
    app.add_option("--frames", o.frames, "how many; in a window 0 is until it is closed")->capture_default_str();
    app.add_option("--out", o.out, "a folder for frame-0000.png and so on; none: no files");
    app.add_option("--size", o.size, "WxH, in pixels")->capture_default_str();
    app.add_option("--boids", o.boids, "how many")->check(CLI::Range(2, 4096))->capture_default_str();
    app.add_option("--hunters", o.hunters, "how many of them are feared")
        ->check(CLI::Range(0, 64))
        ->capture_default_str();
    app.add_option("--watch", o.watched, "whose attention is drawn")->capture_default_str();
    app.add_flag("--checked", o.checked, "look for wrong use of the layer");
    app.add_flag("--window", o.window, "show them");
    CLI11_PARSE(app, argc, argv);
    return run(o);
} catch (const std::exception& e) {
    std::fprintf(stderr, "embed: %s\n", e.what());
    return 1;
}
