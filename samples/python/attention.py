# SPDX-License-Identifier: Apache-2.0
"""Attention in three lines, checked against NumPy in one, and a picture of what looked at what."""

import pathlib
import sys

import numpy as np

import vkformer as vkf

words = "the cat sat on the mat".split()
rng = np.random.default_rng(1)
q, k, v = (rng.standard_normal((1, 2, len(words), 16)).astype(np.float32) for _ in range(3))

y, weights = vkf.scaled_dot_product_attention(q, k, v, is_causal=True, need_weights=True)

np.testing.assert_allclose(y, weights @ v, atol=1e-5)
picture = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "attention.svg")
vkf.plot.attention(weights[0], words).save(picture)
print(f"{vkf.default_device()}: {picture}")
