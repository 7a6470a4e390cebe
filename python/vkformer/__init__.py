# SPDX-License-Identifier: Apache-2.0
"""Transformers on any Vulkan GPU: attention and the layers around it, from Python.

    import numpy as np, vkformer as vkf
    y = vkf.scaled_dot_product_attention(q, k, v, is_causal=True)     # arrays in, arrays out

    g = vkf.Graph()                                                   # or a graph, for programs
    x = g.input("x", [1, g.symbol("tokens", 512), 64])
    g.output("y", vkf.gelu(vkf.linear_layer(x, "up", 256)))
    program = vkf.Device().compile(g, {"up.weight": w, "up.bias": b})
    program(x=array)["y"]

    model = vkf.load_decoder("path/to/hf/folder", weights="int8")
    print(model.generate("1234567 is", max_tokens=20))

What is public in C++ is here under its name. Functions that PyTorch has take PyTorch's arguments,
and arrays (NumPy, PyTorch on the CPU, anything with __dlpack__) as well as the values of a graph.
Importing touches no device. docs/python.md tells more.
"""

from ._errors import ArgumentError, DeviceLost, Error, FileMissing, OutOfMemory
from . import _vkformer
from ._vkformer import *  # noqa: F401,F403
from ._vkformer import __version__, torch
from . import _program  # noqa: F401  what a notebook shows of a program
from ._scopes import Recompute, Scope
from .eager import clear_programs, default_device, set_default_device
from .functional import *  # noqa: F401,F403
from .models import Decoder, TextEncoder, load_decoder, load_text_encoder
from .training import Adam, Trainer
from . import nn, plot  # noqa: F401

__all__ = sorted(name for name in globals() if not name.startswith("_"))
