// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/glsl_linked.h"

#include <glslang/Include/glslang_c_interface.h>
#include <glslang/Public/resource_limits_c.h>

#include <memory>

#include "runtime/base/error.h"

namespace vkf {

namespace {

[[noreturn]] void refuse(const char* log, const std::string& name) {
    const std::string text = log ? log : "";
    throw Error("does not compile:\n" + text.substr(0, text.find_last_not_of('\n') + 1), name);
}

}  // namespace

std::vector<std::uint32_t> compile_glsl_linked(const std::string& source, const std::string& name) {
    static const int initialized = glslang_initialize_process();
    if (!initialized) {
        throw Error("glslang could not be initialised", name);
    }
    glslang_input_t input{};
    input.language = GLSLANG_SOURCE_GLSL;
    input.stage = GLSLANG_STAGE_COMPUTE;
    input.client = GLSLANG_CLIENT_VULKAN;
    input.client_version = GLSLANG_TARGET_VULKAN_1_1;
    input.target_language = GLSLANG_TARGET_SPV;
    input.target_language_version = GLSLANG_TARGET_SPV_1_3;
    input.code = source.c_str();
    input.default_version = 450;
    input.default_profile = GLSLANG_NO_PROFILE;
    input.messages = static_cast<glslang_messages_t>(GLSLANG_MSG_SPV_RULES_BIT | GLSLANG_MSG_VULKAN_RULES_BIT);
    input.resource = glslang_default_resource();

    const std::unique_ptr<glslang_shader_t, decltype(&glslang_shader_delete)> shader(glslang_shader_create(&input),
                                                                                     glslang_shader_delete);
    if (!shader || !glslang_shader_preprocess(shader.get(), &input) || !glslang_shader_parse(shader.get(), &input)) {
        refuse(shader ? glslang_shader_get_info_log(shader.get()) : nullptr, name);
    }
    const std::unique_ptr<glslang_program_t, decltype(&glslang_program_delete)> program(glslang_program_create(),
                                                                                        glslang_program_delete);
    glslang_program_add_shader(program.get(), shader.get());
    if (!glslang_program_link(program.get(), input.messages)) {
        refuse(glslang_program_get_info_log(program.get()), name);
    }
    glslang_program_SPIRV_generate(program.get(), input.stage);
    std::vector<std::uint32_t> words(glslang_program_SPIRV_get_size(program.get()));
    glslang_program_SPIRV_get(program.get(), words.data());
    return words;
}

}  // namespace vkf
