// SPDX-License-Identifier: Apache-2.0
#include "ops/score_mod.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <mutex>

#include "ops/checks.h"
#include "runtime/compile/glsl.h"
#include "runtime/compile/kernel.h"

namespace vkf {

namespace {

using namespace support;

constexpr const char* kName = "score_mod";
constexpr std::size_t kMaxParameters = 16;
constexpr std::string_view kMarker = "#include \"score_mod.glsl\"\n";

/// A module compiled at run time, and the Shader that points into it.
struct Module {
    std::string name;
    std::vector<std::uint32_t> words;
    Shader shader;

    Module(std::string n, std::vector<std::uint32_t> w)
        : name(std::move(n)), words(std::move(w)), shader{name.c_str(), words} {}
};

/// Modules by name and text, as long as anybody keeps them. A mod that is made again for every
/// graph is compiled once, and has one pipeline a device. Threads that want one at once may each
/// compile it; one is kept.
class Modules {
public:
    std::shared_ptr<const Shader> find_or_compile(const std::string& name, const std::string& source) {
        const std::pair key(name, source);
        std::shared_ptr<const Module> module = known(key, nullptr);
        if (!module) {  // compiled without the lock: a host's compiler may wait for other threads
            module = known(key, std::make_shared<const Module>(name, compile_glsl(source, name)));
        }
        return {module, &module->shader};
    }

private:
    using Key = std::pair<std::string, std::string>;

    /// The module that is kept; where there is none, `made` is kept.
    std::shared_ptr<const Module> known(const Key& key, std::shared_ptr<const Module> made) {
        const std::scoped_lock lock(mutex_);
        std::erase_if(modules_, [](const auto& entry) { return entry.second.expired(); });
        if (const auto found = modules_.find(key); found != modules_.end()) {
            if (std::shared_ptr<const Module> module = found->second.lock()) {
                return module;
            }
        }
        if (made) {
            modules_[key] = made;
        }
        return made;
    }

    std::mutex mutex_;
    std::map<Key, std::weak_ptr<const Module>> modules_;
};

Modules& modules() {
    static Modules all;
    return all;
}

/// Throws where the text, beside its comments, uses a word for what kernels do not bind to a mod.
void require_no_memory(std::string text) {
    for (std::size_t at; (at = text.find("\\\n")) != std::string::npos;) {  // lines that go on
        text.erase(at, 2);
    }
    const auto of_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
    for (std::size_t at = 0; at < text.size();) {
        if (text.compare(at, 2, "//") == 0) {
            at = std::min(text.find('\n', at), text.size());
        } else if (text.compare(at, 2, "/*") == 0) {
            at = std::min(text.find("*/", at + 2), text.size() - 2) + 2;
        } else if (!of_word(text[at])) {
            ++at;
        } else {
            const auto end = std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), of_word);
            const std::string word(text.begin() + static_cast<std::ptrdiff_t>(at), end);
            require(word != "buffer" && word != "uniform" && word != "shared", kName,
                    "the text uses `" + word + "`: a mod has its arguments and parameters, and no memory of its own");
            at += word.size();
        }
    }
}

std::string literal(float value) {
    char text[64];
    const auto end = std::to_chars(text, text + sizeof(text), static_cast<double>(value), std::chars_format::scientific,
                                   16);  // whatever the locale, and exactly
    return {text, end.ptr};
}

std::string define(const std::string& text) {
    const std::size_t equals = text.find('=');
    return "#define " + (equals == std::string::npos ? text : text.substr(0, equals) + " " + text.substr(equals + 1)) +
           "\n";
}

}  // namespace

struct ScoreMod::State {
    std::string snippet;  // text that stands in the place of score_mod.glsl
    std::mutex mutex;
    // shaders that were compiled live as long as the mod
    std::vector<std::shared_ptr<const Shader>> kept;
};

ScoreMod ScoreMod::glsl(std::string text, std::vector<float> parameters) {
    require(text.find(kName) != std::string::npos, kName,
            "the text defines no function `float score_mod(float score, uint batch, uint head, uint query, uint key)`");
    require(text.find('\0') == std::string::npos, kName, "the text holds a zero byte");
    require_no_memory(text);
    require(parameters.size() <= kMaxParameters, kName,
            std::to_string(parameters.size()) + " parameters are more than " + std::to_string(kMaxParameters));
    std::string snippet;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        require_finite(kName, ("parameter " + std::to_string(i)).c_str(), parameters[i]);
        snippet += (i == 0 ? "" : ", ") + literal(parameters[i]);
    }
    if (!parameters.empty()) {
        const std::string count = std::to_string(parameters.size());
        const std::string type = "float[" + count + "]";
        std::string ranges;
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            ranges += (i == 0 ? "" : ", ") + std::string("float[1](0.0)");
        }
        // length() computes nothing, and its text is wrong where i is a constant outside
        snippet = "const " + type + " kModParameters = " + type + "(" + snippet + ");\nconst " + type +
                  "[1] kModRanges = " + type + "[1](" + ranges +
                  ");\n#define parameter(i) (kModParameters[clamp(int(i), 0, " + count +
                  " - 1) * kModRanges[i].length()])\n";
    }
    snippet += "#line 1 \"score_mod\"\n" + text + R"(
#line 1 "behind score_mod"
float mod_carrying_nan(float score, uint batch, uint head, uint query, uint key) {
    float changed = score_mod(score, batch, head, query, key);
    bool masked = floatBitsToUint(changed) == (kInfinityBits | kSignBit);
    return is_nan(score) && !masked ? score : changed;
}
#define score_mod mod_carrying_nan
)";
    ScoreMod mod;
    mod.state_ = std::make_shared<State>();
    mod.state_->snippet = std::move(snippet);
    return mod;
}

std::shared_ptr<const Shader> ScoreMod::shader(const std::string& name, std::string_view source,
                                               const std::vector<std::string>& defines) const {
    const std::size_t version_end = source.find('\n') + 1;
    const std::size_t marker = source.find(kMarker);
    require(state_ != nullptr, kName, "an empty mod has no shader");
    require(marker != std::string_view::npos, kName, "shader " + name + " has no place for a mod");
    std::string text(source.substr(0, version_end));
    text += "#define SCORE_MOD\n";
    for (const std::string& d : defines) {
        text += define(d);
    }
    text += source.substr(version_end, marker - version_end);
    text += state_->snippet;
    text += source.substr(marker + kMarker.size());
    std::shared_ptr<const Shader> shader = modules().find_or_compile(name, text);
    const std::scoped_lock lock(state_->mutex);
    if (std::find(state_->kept.begin(), state_->kept.end(), shader) == state_->kept.end()) {
        state_->kept.push_back(shader);
    }
    return shader;
}

}  // namespace vkf
