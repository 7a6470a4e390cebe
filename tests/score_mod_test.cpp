// SPDX-License-Identifier: Apache-2.0
// Score mods against their twins in C++. Where the machine has no GLSL compiler, they are counted
// as not run.
#include "ops/score_mod.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "ops/ops.h"
#include "runtime/compile/glsl.h"
#include "runtime/compile/lowering.h"
#include "score_mod.glsl.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/glsl.h"
#include "tests/op_check.h"
#include "tests/reference.h"

using namespace vkf;
using namespace vkf::test;

namespace {

const std::string kHead = "float score_mod(float score, uint batch, uint head, uint query, uint key) ";

ScoreMod returning(const std::string& expression, std::vector<float> parameters = {}) {
    return ScoreMod::glsl(kHead + "{ return " + expression + "; }", std::move(parameters));
}

/// f(score, batch, head, query, key) on every score of up to four dimensions.
template <class F>
Tensor twin(const Tensor& scores, F f) {
    Tensor out = scores;
    for_each_index(scores.shape, [&](const Sizes& index) {
        const auto at = [&](std::size_t from_innermost) {
            return from_innermost < index.size() ? static_cast<double>(index[index.size() - 1 - from_innermost]) : 0.0;
        };
        const double score = scores.at(index);
        const double changed = f(score, at(3), at(2), at(1), at(0));
        out.at(index) = std::isnan(score) && changed != -kInf ? score : changed;
    });
    return out;
}

template <class F>
std::string mismatch(const Tensor& scores, const ScoreMod& mod, F f) {
    OpCheck check;
    return check.difference(score_mod(check.input("scores", scores), mod), twin(scores, f));
}

std::string compile_error(const ScoreMod& mod) {
    return error_of([&] { mod.shader("score_mod", glsl::kScoreModGlsl.text()); });
}

}  // namespace

TEST_SUITE_BEGIN("score_mod");

TEST_CASE("score_mod: relative position bias on every rank") {
    if (!can_compile_glsl()) {
        return;
    }
    const ScoreMod mod = returning("score - 0.1 * float(int(query) - int(key))");
    const auto f = [](double s, double, double, double q, double k) { return s - 0.1 * (q - k); };
    for (const Sizes& shape :
         {Sizes{1}, Sizes{9}, Sizes{4, 7}, Sizes{3, 5, 1}, Sizes{2, 3, 5, 7}, Sizes{1, 2, 33, 65}}) {
        CAPTURE(shape.size());
        CHECK(mismatch(random_tensor(shape, 3, 4), mod, f) == "");
    }
}

TEST_CASE("score_mod: a parameter's number that is outside is taken to the nearest") {
    if (!can_compile_glsl()) {
        return;
    }
    const std::vector<float> numbers{1, 2, 4};
    const auto f = [&](double s, double, double, double q, double k) {
        return s + numbers[static_cast<std::size_t>(std::clamp(1000000 * (q - k) + 1, 0.0, 2.0))];
    };
    CHECK(mismatch(random_tensor({3, 4, 5}),
                   returning("score + parameter(1000000 * (int(query) - int(key)) + 1)", numbers), f) == "");
    for (const char* constant : {"3", "-1", "2147483647", "3u"}) {
        CHECK(compile_error(returning(std::string("score + parameter(") + constant + ")", numbers)) != "");
    }
}

TEST_CASE("score_mod: every index is the right one") {
    if (!can_compile_glsl()) {
        return;
    }
    const auto f = [](double s, double b, double h, double q, double k) { return s + 1000 * b + 100 * h + 10 * q + k; };
    CHECK(mismatch(random_tensor({3, 4, 5, 6}),
                   returning("score + float(1000u * batch + 100u * head + 10u * query + key)"), f) == "");
}

TEST_CASE("score_mod: softcap by hand, with our tanh, helpers and parameters") {
    if (!can_compile_glsl()) {
        return;
    }
    const ScoreMod mod = ScoreMod::glsl(
        "const float mod_one = 1.0;\n"
        "float mod_cap(float x, float c) { return c * safe_tanh(x / c) * mod_one; }  // our own\n" +
            kHead + "{\n    return mod_cap(score, parameter(1)) + parameter(0);\n}  // end",
        {0.1f, 5.0f});
    CHECK(mismatch(random_tensor({2, 3, 4, 9}, 1, 40), mod, [](double s, double, double, double, double) {
              return 5 * std::tanh(s / 5) + static_cast<double>(0.1f);
          }) == "");
}

TEST_CASE("score_mod: parameters by a computed index, and their bits") {
    if (!can_compile_glsl()) {
        return;
    }
    const std::vector<float> slopes{0.5f, -1.0f / 3.0f, 1e-30f, 16777217.0f};
    const ScoreMod mod = returning("score * parameter(head)", slopes);
    const Tensor scores = random_tensor({2, 4, 3, 5});
    CHECK(mismatch(scores, mod, [&](double s, double, double h, double, double) {
              return s * static_cast<double>(slopes[static_cast<std::size_t>(h)]);
          }) == "");
    std::vector<float> odd{-0.0f, 1.17549435e-38f, 3.40282347e38f, 0.1f, 7.0e-10f, 1.0f / 3.0f};
    odd.resize(16, -2.5e7f);
    Tensor want({16});
    for (std::size_t i = 0; i < odd.size(); ++i) {
        want.data[i] = static_cast<double>(odd[i]);
    }
    OpCheck check;
    CHECK(same_bits(check.run(score_mod(check.input("scores", Tensor({16})), returning("parameter(key)", odd))), want));
}

TEST_CASE("score_mod: a document mask returns -inf, which softmax takes as masked") {
    if (!can_compile_glsl()) {
        return;
    }
    const ScoreMod mod =
        returning("(query >= uint(parameter(0))) == (key >= uint(parameter(0))) ? score : negative_infinity()", {3.0f});
    Tensor scores = random_tensor({2, 2, 7, 7}, 5, 4);
    scores.at({0, 1, 2, 6}) = kNan;  // masked: leaves no trace
    scores.at({1, 0, 5, 4}) = kNan;  // not masked: its row
    const auto f = [](double s, double, double, double q, double k) { return (q >= 3) == (k >= 3) ? s : -kInf; };
    CHECK(mismatch(scores, mod, f) == "");
    OpCheck check;
    const Tensor want = reference::softmax(twin(scores, f));
    CHECK(check.difference(softmax(score_mod(check.input("scores", scores), mod)), want) == "");
    CHECK_FALSE(std::isnan(want.at({0, 1, 2, 0})));
    CHECK(std::isnan(want.at({1, 0, 5, 3})));
    OpCheck none;  // no key is left
    const Value all_masked = softmax(score_mod(none.input("scores", scores), returning("negative_infinity()")));
    CHECK(none.difference(all_masked, Tensor({2, 2, 7, 7})) == "");
}

TEST_CASE("score_mod: a NaN stays one, infinities reach the mod") {
    if (!can_compile_glsl()) {
        return;
    }
    const Tensor scores({6}, {kNan, kInf, -kInf, 1.0, -0.0, kNan});
    CHECK(mismatch(scores, returning("7.0"), [](double, double, double, double, double) { return 7.0; }) == "");
    CHECK(mismatch(scores, returning("-score"), [](double s, double, double, double, double) { return -s; }) == "");
}

TEST_CASE("score_mod: views, and no scores") {
    if (!can_compile_glsl()) {
        return;
    }
    const ScoreMod mod = returning("score + float(key)");
    const auto f = [](double s, double, double, double, double k) { return s + k; };
    const Tensor scores = random_tensor({3, 6, 5}, 2, 4);
    OpCheck views;
    const Value x = slice(transpose(views.input("scores", scores), -1, -2), 1, 1, 4);
    CHECK(views.difference(score_mod(x, mod), twin(slice(transpose(scores, -1, -2), 1, 1, 4), f)) == "");
    OpCheck empty;
    const Dim keys = empty.graph.symbol("keys", 5);
    const Value none = score_mod(empty.input("scores", Tensor({3, 0}), {3, keys}), mod);
    empty.set("keys", 0);
    CHECK(empty.difference(none, Tensor({3, 0})) == "");
}

TEST_CASE("score_mod: an empty mod is nothing, wrong shapes and parameters are refused") {
    Graph g;
    const Value x = g.input("x", {2, 3});
    CHECK(score_mod(x, {}).id() == x.id());
    CHECK_FALSE(ScoreMod());
    CHECK(ScoreMod::glsl("score_mod"));
    const ScoreMod mod = returning("score");
    CHECK(contains(error_of([&] { score_mod(g.input("i", {2}, DType::i32), mod); }), "must be F32"));
    CHECK(contains(error_of([&] { score_mod(g.input("five", {1, 1, 1, 1, 1}), mod); }), "(batch, head, query, key)"));
    CHECK(contains(error_of([] { ScoreMod::glsl("float f() { return 1.0; }"); }), "defines no function"));
    CHECK(contains(error_of([] { ScoreMod::glsl(std::string("score_mod\0", 10)); }), "zero byte"));
    CHECK(contains(error_of([] { returning("score", std::vector<float>(17)); }), "17 parameters are more than 16"));
    CHECK(contains(error_of([] { returning("score", {1.0f, NAN}); }), "parameter 1 = nan"));
    CHECK(contains(error_of([] { ScoreMod().shader("a", glsl::kScoreModGlsl.text()); }), "empty mod"));
    CHECK(contains(error_of([&] { mod.shader("a", "#version 450\nvoid main() {}\n"); }), "no place for a mod"));
}

TEST_CASE("score_mod: what the compiler says counts lines as the text does") {
    if (!can_compile_glsl()) {
        return;
    }
    const auto third_line = [](const std::string& line) {
        return ScoreMod::glsl("// a comment\n" + kHead + "{\n" + line + "\n}\n", {1.0f, 2.0f});
    };
    for (const char* wrong : {"return scoer;", "return score", "return score_mod;", "return parameter(2);",
                              "return \"text\";", "int query = 1.5;"}) {
        CAPTURE(wrong);
        const std::string said = compile_error(third_line(wrong));
        CAPTURE(said);
        const bool there = contains(said, "score_mod:3:") || contains(said, "score_mod:4:");
        CHECK(there);  // the parser may see it at the next token only
    }
    CHECK(contains(compile_error(third_line("return scoer;")), "score_mod:3:"));
    CHECK(contains(compile_error(third_line("return scoer;")), "scoer"));
    const std::string missing =
        compile_error(ScoreMod::glsl("float score_mad(float score) { return score; } // score_mod"));
    CHECK(contains(missing, "'score_mod'"));
    CHECK(contains(missing, "behind score_mod:"));
    CHECK_FALSE(compile_error(ScoreMod::glsl("/* score_mod")).empty());
    CHECK_FALSE(compile_error(ScoreMod::glsl("#if 1\n" + kHead + "{ return score; }")).empty());
    CHECK_FALSE(compile_error(returning("parameter(0)")).empty());
    Graph g;
    g.output("y", score_mod(g.input("x", {2, 3}), third_line("return scoer;")));
    CHECK(contains(error_of([&] { device().compile(g); }), "scoer"));
}

TEST_CASE("score_mod: memory of its own is refused, and types that the device was not asked for") {
    for (const std::string own :
         {"layout(set = 0, binding = 2) buffer Mine { float mine[]; };", "shared float mine[8];",
          "uniform Mine { float mine[8]; };", "/* shared */shared/**/ float mine[8]; /* buffer"}) {
        CAPTURE(own);
        CHECK(contains(error_of([&] { ScoreMod::glsl(own + "\n" + kHead + "{ return mine[key]; }"); }),
                       "the text uses `"));
    }
    CHECK(contains(error_of([] { ScoreMod::glsl("shar\\\ned float mine;\n" + kHead + "{ return mine; }"); }),
                   "`shared`"));
    CHECK(ScoreMod::glsl(kHead + "{ return score; } // a buffer \\\n uniform"));
    CHECK(ScoreMod::glsl("// buffer\n/* uniform, shared */ float mod_shared() { return 1.0; }\n" + kHead +
                         "{ return score; } // shared"));
    if (!can_compile_glsl()) {
        return;
    }
    Graph g;
    g.output("y", score_mod(g.input("x", {2, 3}), returning("float(double(score) * 2.0lf)")));
    CHECK(
        contains(error_of([&] { device().compile(g); }), "needs SPIR-V's capability Float64, which vkformer enables"));
}

TEST_CASE("score_mod: defines make variants") {
    if (!can_compile_glsl()) {
        return;
    }
    const ScoreMod mod = returning("score");
    const std::string source =
        "#version 450\n#extension GL_GOOGLE_include_directive : require\n"
        "const uint kInfinityBits = 0x7f800000u; const uint kSignBit = 0x80000000u;\n"
        "bool is_nan(float x) { return isnan(x); }\n#ifdef SCORE_MOD\n#include \"score_mod.glsl\"\n#endif\n"
        "#ifndef WIDE\n#error not wide\n#endif\n"
        "layout(local_size_x = 1) in;\nvoid main() { uint lanes[LANES]; lanes[0] = 1u; }\n";
    CHECK(contains(error_of([&] { mod.shader("v", source); }), "not wide"));
    const auto four = mod.shader("v", source, {"WIDE", "LANES=4"});
    CHECK(four->name == std::string("v"));
    CHECK(mod.shader("v", source, {"WIDE", "LANES=8"}) != four);
    CHECK(mod.shader("v", source, {"WIDE", "LANES=4"}) == four);
}

TEST_CASE("score_mod: two in one program, one after the other and side by side") {
    if (!can_compile_glsl()) {
        return;
    }
    const Tensor scores = random_tensor({2, 3, 4}, 1, 4);
    OpCheck check;
    const Value x = check.input("scores", scores);
    const auto plus = [](double s, double, double h, double, double k) { return s + h + k; };
    const auto times = [](double s, double, double, double q, double) { return s * q; };
    const ScoreMod first = returning("score + float(head) + float(key)");
    const ScoreMod second = returning("score * float(query)");
    const Value y = score_mod(score_mod(x, first), second) + score_mod(x, second);
    CHECK(check.difference(y, reference::add(twin(twin(scores, plus), times), twin(scores, times))) == "");
}

TEST_CASE("score_mod: the same text is the same shader, and has one pipeline") {
    if (!can_compile_glsl()) {
        return;
    }
    const Device fresh = Device::create();
    const auto compile = [&](const std::string& expression) {
        Graph g;
        g.output("y", score_mod(g.input("x", {2, 3}), returning(expression)));
        return fresh.compile(g);
    };
    compile("score * 3.0");
    const std::size_t before = pipelines_of(fresh);
    compile("score * 3.0");
    CHECK(pipelines_of(fresh) == before);
    compile("score * 4.0");
    CHECK(pipelines_of(fresh) == before + 1);
}

TEST_CASE("score_mod: a pipeline is never taken for another's whose mod is gone") {
    if (!can_compile_glsl()) {
        return;
    }
    Device fresh = Device::create();
    for (int i = 0; i < 24; ++i) {
        std::optional<Program> program;
        {
            Graph g;
            g.output("y", score_mod(g.input("x", {1, 4}), returning("score + " + std::to_string(i) + ".0")));
            program = fresh.compile(g);
        }  // mod and graph are gone, the program is not
        program->upload("x", std::vector<float>(4, 0.5f));
        program->run();
        CHECK(program->download("y") == std::vector<float>(4, 0.5f + static_cast<float>(i)));
        CHECK(contains(program->explain(), "score_mod<"));
    }
    CHECK(last_words(std::move(fresh)) == "");
}

TEST_CASE("score_mod: works on shaders outlive the device and the mod in either order") {
    if (!can_compile_glsl()) {
        return;
    }
    const ScoreMod mod = returning("score + 0.25");
    for (int i = 0; i < 2; ++i) {
        Device fresh = Device::create();
        {
            Graph g;
            g.output("y", score_mod(g.input("x", {4}), mod));
            Program program = fresh.compile(g);
            program.upload("x", std::vector<float>(4, 1.0f));
            program.run();
            CHECK(program.download("y") == std::vector<float>(4, 1.25f));
        }
        CHECK(last_words(std::move(fresh)) == "");
    }
    std::shared_ptr<const Shader> kept;
    kept = returning("score + 0.75").shader("score_mod", glsl::kScoreModGlsl.text());
    CHECK(kept->code.words().front() == 0x07230203);
    CHECK(kept->name == std::string("score_mod"));
}

TEST_CASE("score_mod: without a compiler an error says what to do") {
    const Environment none("VKFORMER_SHADERC", "/nowhere/libshaderc.so.1");
    CHECK(glsl_compiler() == "");
    Graph g;
    g.output("y", score_mod(g.input("x", {2, 3}), returning("score + 0.125")));
    const std::string said = error_of([&] { device().compile(g); });
    CHECK(contains(said, "/nowhere/libshaderc.so.1"));
    CHECK(contains(said, "VKFORMER_SHADERC"));
}

TEST_CASE("score_mod: a host's compiler for several threads may wait for one that needs it") {
    const Environment none("VKFORMER_SHADERC", "");
    int calls = 0;
    use_glsl_compiler(
        [&calls](const std::string&, const std::string& name) {
            if (++calls == 1) {
                std::thread([&] {
                    CHECK(name == "outer");
                    CHECK(!glsl_compiler().empty());
                    returning("score + 2.0").shader("inner", glsl::kScoreModGlsl.text());
                }).join();
            }
            return std::vector<std::uint32_t>{1, 2, 3};
        },
        true);
    const ScoreMod mod = returning("score + 1.0");
    const auto made = mod.shader("outer", glsl::kScoreModGlsl.text());
    CHECK(calls == 2);
    CHECK(mod.shader("outer", glsl::kScoreModGlsl.text()) == made);
    CHECK(calls == 2);
    use_glsl_compiler({});
}

TEST_SUITE_END();

TEST_SUITE("threads") {
    TEST_CASE("threads: score mods are compiled and run side by side, one handle shared") {
        if (!can_compile_glsl()) {
            return;
        }
        const ScoreMod shared = returning("score * 0.5 + float(key)");
        std::vector<std::string> said(4);
        {
            const Device fresh = Device::create();
            std::vector<std::jthread> threads;
            for (std::size_t i = 0; i < said.size(); ++i) {
                threads.emplace_back([&, i] {
                    said[i] = error_of([&] {
                                  Graph g;
                                  const Value x = g.input("x", {1, 3});
                                  const ScoreMod own = returning("score + " + std::to_string(i) + ".0");
                                  g.output("y", score_mod(score_mod(x, own), shared));
                                  Program program = fresh.compile(g);
                                  program.upload("x", std::vector<float>(3, 1.0f));
                                  program.run();
                                  const float half = 0.5f * (1.0f + static_cast<float>(i));
                                  said[i] = program.download("y") == std::vector<float>{half, half + 1, half + 2}
                                                ? ""
                                                : "wrong";
                              }) +
                              said[i];
                });
            }
        }
        CHECK(said == std::vector<std::string>(4));
    }
}
