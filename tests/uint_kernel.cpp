// SPDX-License-Identifier: Apache-2.0
#include "tests/uint_kernel.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/compile/glsl.h"
#include "runtime/compile/lowering.h"
#include "tests/device.h"
#include "tests/op_check.h"

namespace vkf::test {

namespace {

struct UintParams {
    std::shared_ptr<const Shader> shader;
    std::vector<std::uint32_t> constants;
};

void lower_uint_kernel(Lowering& l) {
    const auto& p = l.params<UintParams>();
    Constants constants;
    for (std::size_t id = 0; id < p.constants.size(); ++id) {
        constants.set(static_cast<std::uint32_t>(id), p.constants[id]);
    }
    l.dispatch({Kernel{p.shader.get(), constants, "a function of uint", p.shader}},
               {{l.input(0), Access::read}, {l.output(0), Access::write}}, [](const Operands&, Command& c) noexcept {
                   c.push(std::array<std::uint32_t, 2>{});
                   c.groups(1);
               });
}

constexpr OpType kUintKernel{"uint_kernel", lower_uint_kernel};

}  // namespace

UintKernel::UintKernel(const std::string& text, const std::string& function, const std::vector<std::string>& constants,
                       const std::string& entry_point) {
    std::string source = "#version 450\nlayout(local_size_x_id = 0) in;\n";
    for (std::size_t n = 0; n < constants.size(); ++n) {
        source += "layout(constant_id = " + std::to_string(n + 1) + ") const uint " + constants[n] + " = 0;\n";
    }
    source +=
        "layout(set = 0, binding = 0) readonly buffer X { uint x[]; };\n"
        "layout(set = 0, binding = 1) writeonly buffer Y { uint y[]; };\n"
        "layout(push_constant) uniform Push { uint first_group; uint group_count; };\n" +
        text + "\nvoid main() { y[gl_LocalInvocationID.x] = " + function + "(x[gl_LocalInvocationID.x]); }\n";
    const auto code = std::make_shared<std::vector<std::uint32_t>>(compile_glsl(source, function));
    const auto word = [](const std::string& letters) {
        std::uint32_t out = 0;
        std::memcpy(&out, letters.data(), sizeof(out));
        return out;
    };
    std::replace(code->begin(), code->end(), word("main"), word(entry_point));
    shader_ = std::shared_ptr<const Shader>(new Shader{"uint_kernel", *code}, [code](const Shader* s) { delete s; });
}

std::string UintKernel::difference(const std::vector<std::uint32_t>& constants, std::int64_t count,
                                   const std::function<std::uint32_t(std::uint32_t)>& want) const {
    Tensor x({count}), y({count});
    for (std::int64_t i = 0; i < count; ++i) {
        x.data[static_cast<std::size_t>(i)] = static_cast<double>(i);
        y.data[static_cast<std::size_t>(i)] = want(static_cast<std::uint32_t>(i));
    }
    std::vector<std::uint32_t> all{static_cast<std::uint32_t>(count)};
    all.insert(all.end(), constants.begin(), constants.end());
    OpCheck check;
    const Value in = check.indices("x", x);
    const Value out = check.graph
                          .add_node(kUintKernel, {in}, std::make_shared<const UintParams>(UintParams{shader_, all}),
                                    {{DType::i32, {count}, {}, {}}})
                          .front();
    return vkf::test::difference(check.run(out), y, exactly());
}

}  // namespace vkf::test
