// SPDX-License-Identifier: Apache-2.0
#include "models/blocks/token_embedding.h"

#include "layers/linear.h"
#include "layers/linear_hook.h"
#include "layers/parallel.h"
#include "layers/sharing.h"

namespace vkf {

Value TokenEmbedding::embed(Value ids, float scale) const {
    return vocab_parallel_embedding(ids, name_, vocabulary_, width_, scale);
}

Value TokenEmbedding::logits(Value h, bool tied, float softcap) const {
    const Value y = product(h, tied);
    return softcap == 0.0f ? y : scale(activate(scale(y, 1.0f / softcap), Activation::tanh), softcap);
}

Value TokenEmbedding::product(Value h, bool tied) const {
    Graph& g = *graph_;
    if (!tied) {
        return is_whole(g)
                   ? linear_layer(h, "lm_head", vocabulary_, false)
                   : linear_rows(h, "lm_head", {0, vocabulary_, {share_of_vocabulary(vocabulary_, g.rank())}}, false);
    }
    refuse_hook_of_shares(g);
    const auto part = [&] { return share_of_vocabulary(vocabulary_, g.rank()); };
    const Value rows = is_whole(g) ? g.weight(name_, {vocabulary_, width_})
                                   : g.weight(name_, {part().count, width_}, {0, vocabulary_, {part()}});
    const Scope scope(g, "lm_head");  // by which an adapter is asked for
    return hooked(h, linear(h, rows));
}

}  // namespace vkf
