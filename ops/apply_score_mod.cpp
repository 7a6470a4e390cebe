// SPDX-License-Identifier: Apache-2.0
// score_mod() of a tensor of scores.
#include "ops/add_op.h"
#include "ops/checks.h"
#include "runtime/base/numbers.h"
#include "runtime/compile/lowering.h"
#include "score_mod.glsl.h"
#include "shaders/score_mod.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

constexpr const char* kName = "score_mod";

struct ScoreModParams {
    ScoreMod mod;
};

constexpr uint kLocalSize = 64;

void prepare(const Operands& operands, Command& command) noexcept {
    const View& scores = operands[kScoreModBindingScores];
    ScoreModPush push{};
    push.count = static_cast<uint>(scores.elements());
    push.keys = scores.dim(0);
    push.queries = scores.dim(1);
    push.heads = scores.dim(2);
    push.scores_offset = scores.offset;
    push.out_offset = operands[kScoreModBindingOut].offset;
    command.push(push);
    command.groups(divide_up(scores.elements(), kLocalSize * operands.words[0]));
    const double elements = static_cast<double>(scores.elements());
    command.cost(elements * 20, elements * 8);
}

void lower(Lowering& l) {
    const auto& params = l.params<ScoreModParams>();
    const std::shared_ptr<const Shader> shader = params.mod.shader(kName, glsl::kScoreModGlsl.text());
    // On a processor a group costs as much as a hundred elements.
    const uint each = l.device().cpu() ? 16u : 4u;
    Dispatch& d = l.dispatch(
        {{shader.get(), {kLocalSize, {{kScoreModSpecEach, each}}}, "compiled with the caller's mod", shader}},
        {{l.input(0), Access::read}, {l.output(0), Access::write}}, prepare, {each});
    d.in_place_input = kScoreModBindingScores;
    d.in_place_output = kScoreModBindingOut;
}

constexpr OpType kScoreMod{kName, lower};

}  // namespace

Value score_mod(Value scores, const ScoreMod& mod) {
    require_dtype(kName, scores, DType::f32);
    require(scores.rank() >= 1 && scores.rank() <= 4, kName,
            scores.str() + " must have the dimensions (batch, head, query, key), or the last of them");
    return mod ? add_op(kScoreMod, {dense(scores)}, ScoreModParams{mod}, scores.shape()) : scores;
}

}  // namespace vkf
