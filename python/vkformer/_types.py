# SPDX-License-Identifier: Apache-2.0
"""The names that stand for C++'s enumerators."""

from __future__ import annotations

import os
from typing import Literal, Union

Activation = Literal["none", "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "rsqrt"]
Arithmetic = Literal["f32", "f16", "int8"]
Causal = Literal["none", "top_left", "bottom_right"]
Kept = Literal["f32", "f16", "bf16", "int8", "int4"]  # what matrices, keys and values are kept as
Split = Literal["tensor", "layers"]  # how ranks share out a decoder
Path = Union[str, "os.PathLike[str]"]
