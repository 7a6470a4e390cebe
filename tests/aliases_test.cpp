// SPDX-License-Identifier: Apache-2.0
// Which buffers of a module are said to share memory. Under validation the layer looks at every
// such module that a pipeline is made of.
#include "runtime/compile/aliases.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "matmul_lanes.spv.h"
#include "runtime/compile/glsl.h"
#include "runtime/compile/prune.h"
#include "runtime/compile/specialize.h"
#include "runtime/compile/spirv_code.h"
#include "runtime/compile/spirv_module.h"
#include "shaders/common/activation.h"
#include "shaders/matmul.h"
#include "tests/glsl.h"

namespace vkf::test {

namespace {

/// How many buffers a module says to share memory.
int marked(const std::vector<std::uint32_t>& code) {
    int count = 0;
    spv::each_instruction(spv::Words(code).subspan(spv::kHeaderWords), [&](spv::Words i) {
        count += spv::op_of(i) == spv::kOpDecorate && i[2] == spv::kDecorationAliased ? 1 : 0;
    });
    return count;
}

/// Of a kernel with these buffers that does this.
int marked(const std::string& buffers, const std::string& body) {
    const std::string source = "#version 450\nlayout(local_size_x = 1) in;\n" + buffers +
                               "layout(push_constant) uniform Push { uint first_group; uint group_count; uint n; };\n"
                               "void main() { uint i = gl_GlobalInvocationID.x;\n" +
                               body + "}\n";
    const std::vector<std::uint32_t> before = prune(compile_glsl(source, "aliases"));
    const std::vector<std::uint32_t> after = mark_aliases(before);
    CHECK(mark_aliases(after) == after);
    CHECK((after == before) == (marked(after) == 0));
    return marked(after);
}

std::string buffer(int binding, const std::string& name, const std::string& type, const std::string& how = "") {
    return "layout(set = 0, binding = " + std::to_string(binding) + ") " + how + " buffer Block" + name + " { " + type +
           " " + name + "[]; };\n";
}

}  // namespace

TEST_SUITE("aliases") {
    TEST_CASE("aliases: buffers of one binding that are touched, and not all only read") {
        if (!can_compile_glsl()) {
            return;
        }
        const std::string both = buffer(0, "a", "float") + buffer(0, "fours", "vec4");
        CHECK(marked(both, "fours[i] = vec4(1.0); a[i] = a[4 * i + n];") == 2);
        CHECK(marked(both, "a[i] = a[4 * i + n];") == 0);
        CHECK(marked(both + buffer(0, "words", "uint", "readonly"), "fours[i] = vec4(a[n], words[n], a[i], n);") == 3);
        CHECK(marked(both + buffer(1, "b", "float"), "fours[i] = vec4(b[i]); b[n] = a[i];") == 2);
        CHECK(marked(buffer(0, "a", "float") + buffer(1, "fours", "vec4"), "fours[i] = vec4(a[i]);") == 0);
        CHECK(marked(
                  buffer(0, "a", "float", "readonly") + buffer(0, "fours", "vec4", "readonly") + buffer(1, "y", "vec4"),
                  "y[i] = fours[i] + a[n];") == 0);
        CHECK(marked(buffer(0, "a", "float", "restrict") + buffer(0, "fours", "vec4", "restrict"),
                     "fours[i] = vec4(a[n]);") == 0);
        CHECK(marked("layout(set = 0, binding = 0) buffer A { readonly uint count; float a[]; };\n" +
                         buffer(0, "words", "uint", "readonly"),
                     "a[i] = float(words[i]);") == 2);
    }

    TEST_CASE("aliases: a product that loads as floats what it has stored in fours") {
        using namespace shader;
        for (const std::uint32_t in_fours : {0u, 1u}) {
            for (const std::uint32_t act : {kActRelu, kActGelu}) {
                std::vector<std::uint32_t> constants(kMatmulSpecAct + 1, 8);
                constants[kMatmulSpecALoad] = constants[kMatmulSpecBLoad] = 0;
                constants[kMatmulSpecCVec] = in_fours;
                constants[kMatmulSpecAct] = act;
                const std::vector<std::uint32_t> whole = SpirvCode(spirv::kMatmulLanesSpirv).words();
                CHECK(marked(mark_aliases(prune(specialize(whole, constants)))) ==
                      (in_fours != 0 && act == kActGelu ? 2 : 0));
            }
        }
    }

    TEST_CASE("aliases: what is no module stays as it is") {
        const std::vector<std::uint32_t> cut{spv::kMagic, 0x10300, 0, 10, 0, spv::head(spv::kOpDecorate, 3), 1};
        CHECK(mark_aliases(cut) == cut);
        CHECK(mark_aliases({}).empty());
    }
}

}  // namespace vkf::test
