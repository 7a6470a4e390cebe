// SPDX-License-Identifier: Apache-2.0
// A renderer with Vulkan of its own draws a flock whose every move is decided by a Transformer
// layer, recorded between its simulation and its drawing. Lines show what one boid attends to: blue
// whom it aligns with, amber whom it stays with, green whom it avoids, red whom it fears. With
// --learn a layer that begins at random is trained in the same command buffer, a few steps a frame,
// to steer as those rules do, while the flock flies by what it has learned so far.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>

#include "../arguments.h"
#include "picture.h"
#include "renderer.h"

namespace {

namespace fs = std::filesystem;

struct Options {
    std::uint64_t frames = 240;
    fs::path out;
    std::string size = "960x540";
    std::uint32_t boids = 128, hunters = 2, watched = 0;
    bool window = false, checked = false, learn = false, repeat = false;
    LessonOptions lessons;
    double learn_to = 0;  // 0: not asked
};

constexpr std::uint64_t kShow = 60;  // frames from one line of numbers to the next

VkExtent2D parse_size(const std::string& text) {
    VkExtent2D size{};
    const std::size_t by = text.find('x');
    const bool numbers = by != std::string::npos && read_number(text.substr(0, by), size.width) &&
                         read_number(text.substr(by + 1), size.height);
    if (!numbers || size.width < 16 || size.height < 16 || size.width > 4096 || size.height > 4096) {
        throw std::runtime_error("--size is " + text + ", and must be WxH, of 16 to 4096 each");
    }
    return size;
}

/// What a flight leaves: what was wrong in it, and a number made of every bit that came of it.
struct Flight {
    int wrong = 0;
    std::uint64_t digest = kDigestOfNothing;
};

/// True where the share of the picture that is drawn on tells something: with enough boids for its
/// shape, and not too many. The world is as wide as the picture, and its height does not change.
bool fills(const Options& o, VkExtent2D size) {
    const double crowd = o.boids * static_cast<double>(size.height) / size.width;
    return o.boids >= 16 && crowd >= 24 && crowd <= 200;
}

/// Counts what is wrong and says it.
int verdict(const Options& o, const Renderer& renderer, const Gpu& gpu, double bright) {
    int wrong = 0;
    const auto expect = [&](bool right, const std::string& bound) {
        if (!right) {
            std::printf("that is wrong: %s\n", bound.c_str());
            ++wrong;
        }
    };
    if (const Lessons* lessons = renderer.lessons()) {
        const double fell = lessons->last() / lessons->first();
        std::printf("the loss fell from %.3f to %.3f\n", lessons->first(), lessons->last());
        expect(
            o.learn_to == 0 || fell <= o.learn_to,
            "it fell to " + std::to_string(fell) + " of what it was, and --learn-to is " + std::to_string(o.learn_to));
    } else {
        const Flock flock{o.boids, o.hunters};
        const double difference = difference_from_rules(flock, renderer.tokens(), renderer.said());
        std::printf("accelerations differ from the rules in double precision by at most %.2g\n", difference);
        expect(difference <= 1e-3, "they may by 0.001");
    }
    std::printf("%.1f %% of the last picture is drawn on\n", 100 * bright);
    expect(!fills(o, parse_size(o.size)) || (bright > 0.005 && bright < 0.5), "0.5 to 50 % must be");
    for (const std::string& message : gpu.messages()) {
        std::printf("%s\n", message.c_str());
        ++wrong;
    }
    return wrong;
}

/// How far the lessons have come, on the standard output and above the window.
void show(const Frame& frame, Window* window) {
    char text[160];
    std::snprintf(text, sizeof(text), "%s; neighbours' headings agree to %.2f", frame.lessons->text().c_str(),
                  order(frame.boids));
    std::printf("frame %u: %s\n", static_cast<unsigned>(frame.number), text);
    std::fflush(stdout);
    if (window != nullptr) {
        window->title(std::string("vkformer: embed: ") + text);
    }
}

Flight fly(const Options& o) {
    Flight flight;
    double bright = 0;
    const VkExtent2D size = parse_size(o.size);
    Gpu gpu(o.window ? window_extensions() : std::vector<const char*>(), o.window);
    const std::unique_ptr<Window> window = o.window ? open_window(gpu, size) : nullptr;
    const auto finished = [&](const Frame& frame) {
        bright = bright_share(frame.pixels);
        flight.digest = digest(frame.pixels, flight.digest);
        if (frame.lessons != nullptr && frame.number % kShow == kShow - 1) {
            show(frame, window.get());
        }
        if (!o.out.empty()) {
            char name[32];
            std::snprintf(name, sizeof(name), "frame-%04u.png", static_cast<unsigned>(frame.number));
            write_png(o.out / name, size.width, size.height, frame.pixels);
        }
    };
    RendererOptions options{.flock = {o.boids, o.hunters}, .watched = o.watched, .size = size, .checked = o.checked};
    if (o.learn) {
        options.learn = o.lessons;
    }
    Renderer renderer(gpu, options, finished);
    std::printf("%s: %u boids\n", renderer.device().capabilities().name.c_str(), o.boids);
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
    if (o.learn) {
        const double losses[] = {renderer.lessons()->first(), renderer.lessons()->last()};
        flight.digest = digest(std::as_bytes(std::span(losses)), flight.digest);
    }
    flight.wrong = frames == 0 ? 0 : verdict(o, renderer, gpu, bright);
    return flight;
}

int run(const Options& o) {
    if (o.hunters >= o.boids || o.watched >= o.boids) {
        throw std::runtime_error("--hunters and --watch must be less than --boids, " + std::to_string(o.boids));
    }
    if (o.frames == 0 && !o.window) {
        throw std::runtime_error("--frames 0 is for a window, which can be closed");
    }
    if (!o.out.empty()) {
        fs::create_directories(o.out);
    }
    const Flight first = fly(o);
    if (!o.repeat) {
        return first.wrong == 0 ? 0 : 1;
    }
    const Flight second = fly(o);
    const bool same = first.digest == second.digest;
    std::printf("two runs gave %s bits\n", same ? "the same" : "different");
    return first.wrong + second.wrong == 0 && same ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
    Options o;
    CLI::App app("A flock steered by a Transformer layer in a renderer's own command buffer");
    add_number(app, "--frames", o.frames, "how many; in a window 0 is until it is closed")->capture_default_str();
    app.add_option("--out", o.out, "a folder for frame-0000.png and so on; none: no files");
    app.add_option("--size", o.size, "WxH, in pixels")->capture_default_str();
    add_number(app, "--boids", o.boids, "how many")->check(CLI::Range(2, 4096))->capture_default_str();
    add_number(app, "--hunters", o.hunters, "how many of them are feared")
        ->check(CLI::Range(0, 64))
        ->capture_default_str();
    add_number(app, "--watch", o.watched, "whose attention is drawn")->capture_default_str();
    app.add_flag("--checked", o.checked, "look for wrong use of the layer");
    app.add_flag("--window", o.window, "show them");
    app.add_flag("--learn", o.learn, "begin at random, and learn from the layer of rules while flying");
    add_number(app, "--learn-budget", o.lessons.budget_ms, "milliseconds of the device's time a frame, on average")
        ->needs("--learn")
        ->check(CLI::Range(0.01, 1000.0))
        ->capture_default_str();
    add_number(app, "--learn-steps", o.lessons.steps, "exactly so many a frame instead; 0: by the budget")
        ->needs("--learn")
        ->check(CLI::Range(0u, Lessons::kMost))
        ->capture_default_str();
    add_number(app, "--learn-to", o.learn_to, "fail unless the loss falls to this share of what it was")
        ->needs("--learn");
    app.add_flag("--repeat", o.repeat, "fly twice, and fail unless every bit is the same");
    if (const int code = parse_arguments(app, argc, argv); code >= 0) {
        return code;
    }
    const int code = run(o);
    end_output();
    return code;
} catch (const std::exception& e) {
    std::fprintf(stderr, "embed: %s\n", e.what());
    return 1;
}
