# SPDX-License-Identifier: Apache-2.0
"""A layer of one's own: described once, compiled for every length, and what the device made of it."""

import numpy as np

import vkformer as vkf


def block(x: vkf.Value, name: str) -> vkf.Value:
    """Gated attention: what a head says is weighed by a gate of its own input."""
    width = x.shape[-1]
    assert isinstance(width, int)
    with vkf.Scope(x.graph, name):
        h = vkf.rms_norm(x, x.graph.weight("norm.weight", [width]))
        seen = vkf.grouped_query_attention(h, name="attn", heads=8, kv_heads=2, rope=vkf.Rope(layout="half"))
        gate = vkf.linear_layer(h, "gate", width, activation="sigmoid")
        return x + gate * seen


g = vkf.Graph()
x = g.input("x", [1, g.symbol("tokens", 512), 64])
g.output("y", block(block(x, "layers.0"), "layers.1"))

rng = np.random.default_rng(0)
weights = {name: 0.1 * rng.standard_normal(shape).astype(np.float32) for name, (shape, _) in g.weights.items()}
program = vkf.Device().compile(g, weights)
for tokens in (5, 64):
    y = program(x=rng.standard_normal((1, tokens, 64)).astype(np.float32))["y"]
    print(y.shape, float(np.abs(y).mean()))
print(program.explain())
