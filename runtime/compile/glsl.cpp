// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/glsl.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/library.h"
#ifdef VKFORMER_RUNTIME_GLSLANG
#include "runtime/compile/glsl_linked.h"
#endif

namespace vkf {

namespace {

[[maybe_unused]] constexpr const char* kShadercNames[] = {
#if defined(_WIN32)
    "shaderc_shared.dll", "libshaderc_shared.dll"
#elif defined(__APPLE__)
    "libshaderc_shared.1.dylib", "libshaderc.1.dylib"
#else
    "libshaderc.so.1", "libshaderc_shared.so.1"
#endif
};

/// The few functions of shaderc's C interface that are needed, and the values of its enumerations
/// that go with them.
class Shaderc {
public:
    explicit Shaderc(const char* name) : name_(name), library_({name}) {
        const bool complete = library_ && load(compiler_initialize_, "shaderc_compiler_initialize") &&
                              load(compiler_release_, "shaderc_compiler_release") &&
                              load(options_initialize_, "shaderc_compile_options_initialize") &&
                              load(options_release_, "shaderc_compile_options_release") &&
                              load(options_set_target_env_, "shaderc_compile_options_set_target_env") &&
                              load(compile_into_spv_, "shaderc_compile_into_spv") &&
                              load(result_status_, "shaderc_result_get_compilation_status") &&
                              load(result_message_, "shaderc_result_get_error_message") &&
                              load(result_length_, "shaderc_result_get_length") &&
                              load(result_bytes_, "shaderc_result_get_bytes") &&
                              load(result_release_, "shaderc_result_release");
        compiler_ = complete ? compiler_initialize_() : nullptr;
    }
    ~Shaderc() {
        if (compiler_) {
            compiler_release_(compiler_);
        }
    }
    Shaderc(const Shaderc&) = delete;
    Shaderc& operator=(const Shaderc&) = delete;

    const std::string& name() const noexcept { return name_; }
    std::string why_not() const { return library_ ? name_ + " lacks functions of shaderc" : library_.why(); }
    explicit operator bool() const noexcept { return compiler_ != nullptr; }

    std::vector<std::uint32_t> compile(const std::string& source, const std::string& name) const {
        constexpr int kComputeShader = 2;
        constexpr int kTargetVulkan = 0;
        constexpr std::uint32_t kVulkan11 = (1u << 22) | (1u << 12);
        using Options = std::unique_ptr<void, void (*)(void*)>;
        const Options options(options_initialize_(), options_release_);
        if (options) {
            options_set_target_env_(options.get(), kTargetVulkan, kVulkan11);
        }
        using Result = std::unique_ptr<void, void (*)(void*)>;
        const Result result(options ? compile_into_spv_(compiler_, source.data(), source.size(), kComputeShader,
                                                        name.c_str(), "main", options.get())
                                    : nullptr,
                            result_release_);
        if (!result) {
            throw Error(name_ + " has no memory left", name);
        }
        if (result_status_(result.get()) != 0) {
            throw Error(std::string("does not compile:\n") + result_message_(result.get()), name);
        }
        std::vector<std::uint32_t> words(result_length_(result.get()) / sizeof(std::uint32_t));
        std::memcpy(words.data(), result_bytes_(result.get()), words.size() * sizeof(std::uint32_t));
        return words;
    }

private:
    template <class Function>
    bool load(Function*& function, const char* symbol) {
        function = reinterpret_cast<Function*>(library_.symbol(symbol));
        return function != nullptr;
    }

    std::string name_;
    SharedLibrary library_;
    void* compiler_ = nullptr;
    void* (*compiler_initialize_)() = nullptr;
    void (*compiler_release_)(void*) = nullptr;
    void* (*options_initialize_)() = nullptr;
    void (*options_release_)(void*) = nullptr;
    void (*options_set_target_env_)(void*, int, std::uint32_t) = nullptr;
    void* (*compile_into_spv_)(const void*, const char*, std::size_t, int, const char*, const char*,
                               const void*) = nullptr;
    int (*result_status_)(const void*) = nullptr;
    const char* (*result_message_)(const void*) = nullptr;
    std::size_t (*result_length_)(const void*) = nullptr;
    const char* (*result_bytes_)(const void*) = nullptr;
    void (*result_release_)(void*) = nullptr;
};

/// The compilers that can be used. The mutex is held while one works, unless it is a host's for
/// several threads: glslang shares things between its compilations, and not every version locks
/// them. A host's compiler may ask for its name meanwhile.
struct Compilers {
    std::recursive_mutex mutex;
    GlslCompiler host;
    bool host_takes_threads = false;
    std::map<std::string, Shaderc> opened;

    const Shaderc& shaderc(const char* name) { return opened.try_emplace(name, name).first->second; }
};

Compilers& compilers() {
    static Compilers all;
    return all;
}

struct Choice {
    std::string name;  // empty: there is no compiler
    GlslCompiler compile;
    std::string why_not;
    bool takes_threads = false;
};

Choice choice_of(const Shaderc& library) {
    return {library.name(),
            [&](const std::string& source, const std::string& name) { return library.compile(source, name); },
            {},
            false};
}

Choice choose(Compilers& all) {
    const char* named = std::getenv("VKFORMER_SHADERC");
    if (named && *named) {
        const Shaderc& library = all.shaderc(named);
        return library ? choice_of(library)
                       : Choice{{}, {}, "what VKFORMER_SHADERC names is no libshaderc: " + library.why_not(), false};
    }
    if (all.host) {
        return {"the host's compiler", all.host, {}, all.host_takes_threads};
    }
#ifdef VKFORMER_RUNTIME_GLSLANG
    return {"glslang, linked in", compile_glsl_linked, {}, false};
#else
    std::string tried;
    for (const char* name : kShadercNames) {
        const Shaderc& library = all.shaderc(name);
        if (library) {
            return choice_of(library);
        }
        tried += "\n    " + library.why_not();
    }
    return {
        {},
        {},
        "there is no GLSL compiler. Install libshaderc (Debian 13, Ubuntu: libshaderc1; Debian 12's lacks symbols), or "
        "build vkformer with -DVKFORMER_RUNTIME_GLSLANG=ON, or give it one of yours (use_glsl_compiler). Tried:" +
            tried,
        false};
#endif
}

}  // namespace

void use_glsl_compiler(GlslCompiler compiler, bool several_threads) {
    Compilers& all = compilers();
    const std::scoped_lock lock(all.mutex);
    std::swap(all.host, compiler);  // the one before is destroyed behind the lock
    all.host_takes_threads = several_threads;
}

std::string glsl_compiler() {
    Compilers& all = compilers();
    const std::scoped_lock lock(all.mutex);
    return choose(all).name;
}

std::vector<std::uint32_t> compile_glsl(const std::string& source, const std::string& name) {
    Compilers& all = compilers();
    std::unique_lock lock(all.mutex);
    const Choice choice = choose(all);
    if (!choice.compile) {
        throw Error(choice.why_not, name);
    }
    if (choice.takes_threads) {
        lock.unlock();
    }
    return choice.compile(source, name);
}

}  // namespace vkf
