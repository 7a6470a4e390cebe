# SPDX-License-Identifier: Apache-2.0
"""Every public function that computes, beside NumPy in double precision, through random shapes.

hypothesis draws them where it is there, else a generator does. A case draws its numbers and gives
(f, arrays, want): f of the graph's values, and want(weights, *arrays) in double precision.
"""

import os

import numpy as np
import pytest
from random_layers import CASES
from random_states import STATES
from conftest import ROOT

import vkformer as vkf

EXAMPLES = int(os.environ.get("VKFORMER_EXAMPLES", "5"))

# Public functions without numbers of their own, and where they are tested.
ELSEWHERE = {
    "all_gather": "test_ranks.py", "all_reduce": "test_ranks.py", "broadcast": "test_ranks.py",
    "column_parallel_linear": "test_ranks.py", "local_communicators": "test_ranks.py", "row_parallel_linear": "test_ranks.py", "vocab_parallel_embedding": "test_ranks.py",
    "begin_of_text": "test_models.py", "broadcast_shapes": "below", "clear_adapter": "test_models.py",
    "clear_programs": "test_border.py", "compile_glsl": "test_border.py", "decoder_logits": "test_models.py",
    "default_device": "test_border.py", "describe_text_encoder": "test_models.py", "dropout": "test_ops.py",
    "encode_prompt": "test_models.py", "function": "test_ops.py", "glsl_compiler": "test_border.py",
    "image_input": "recorded by hosts alone: tests/image_test.cpp", "image_output": "tests/image_test.cpp",
    "is_contiguous": "below", "load_decoder": "test_models.py", "load_decoder_weights": "test_models.py",
    "load_text_encoder": "test_models.py", "load_text_encoder_weights": "test_models.py",
    "make_weight_layout": "below", "merge_adapter": "test_models.py", "read_decoder": "test_models.py",
    "read_text": "below", "read_text_encoder": "test_models.py", "restore_state": "below",
    "rope_scaling_kind": "test_golden.py", "save_adapter": "test_models.py", "save_decoder": "test_models.py",
    "save_safetensors": "below", "save_state": "below", "save_tuning": "below", "left_out_file": "below", "save_left_out": "below", "set_default_device": "test_border.py",
    "trainable": "test_training.py", "tunables": "below", "tuning_file": "below", "use_glsl_compiler": "test_border.py",
}


class Generator:
    """Draws as hypothesis does, where that is not there."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def integer(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def choice(self, of):
        return of[self.integer(0, len(of) - 1)]


class Hypothesis:
    def __init__(self, data):
        from hypothesis import strategies

        self.data, self.strategies = data, strategies

    def integer(self, low, high):
        return self.data.draw(self.strategies.integers(low, high))

    def choice(self, of):
        return self.data.draw(self.strategies.sampled_from(of))


def through(check):
    """Calls check(draw) some times."""
    try:
        import hypothesis
    except ImportError:
        for seed in range(EXAMPLES):
            check(Generator(seed))
        return

    @hypothesis.settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
                         suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(hypothesis.strategies.data())
    def examples(data):
        check(Hypothesis(data))

    examples()


def as_tuple(x):
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def compare(got, want, rtol, atol):
    for g, w in zip(got, want, strict=True):
        w = np.asarray(w)
        assert g.shape == w.shape, f"{g.shape}, not {w.shape}"
        if w.dtype.kind in "iub":
            np.testing.assert_array_equal(g, w)
        else:
            np.testing.assert_allclose(g.astype(np.float64), w, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", CASES)
def test_function(name, device):
    def check(d):
        f, arrays, want, *tolerance = CASES[name](d)
        rtol, atol = tolerance or (2e-4, 2e-5)
        g = vkf.Graph()
        values = [g.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
        outputs = as_tuple(f(*values)) if values else as_tuple(f(g))
        for i, y in enumerate(outputs):
            g.output(f"y{i}", vkf._vkformer._ready(y))
        rng = np.random.default_rng(len(g.weights))
        weights = {n: rng.normal(0, 0.5, shape).astype(np.float32) for n, (shape, _) in g.weights.items()}
        out = device.compile(g, weights)(**{f"x{i}": a for i, a in enumerate(arrays)})
        wide = {n: w.astype(np.float64) for n, w in weights.items()}
        doubles = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
        compare([out[f"y{i}"] for i in range(len(outputs))], as_tuple(want(wide, *doubles)), rtol, atol)

    through(check)


@pytest.mark.parametrize("name", STATES)
def test_state(name, device):
    through(lambda d: STATES[name](d, device))


def covered():
    return {part for name in (*CASES, *STATES) for part in name.split(" ")[0].split("/")} | set(ELSEWHERE)


def test_every_function_is_here():
    functions = {n for n in vkf.__all__ if n[0].islower() and n not in ("nn", "plot", "torch")}
    functions |= {f"torch.{n}" for n in dir(vkf.torch) if n[0].islower()}
    assert functions - covered() == set()
    assert covered() - functions == set()


def test_what_has_no_numbers(device, tmp_path):
    g = vkf.Graph()
    x, row = g.input("x", [3, 4]), g.input("row", [4])
    assert vkf.broadcast_shapes("add", x, row) == (3, 4)
    with pytest.raises(ValueError, match="add"):
        vkf.broadcast_shapes("add", x, g.input("other", [3]))
    assert vkf.is_contiguous(x) and not vkf.is_contiguous(vkf.transpose(x, 0, 1))
    assert vkf.read_text(ROOT / "LICENSE").strip().startswith("Apache License")
    w = np.arange(12, dtype=np.float32).reshape(3, 4)
    layout = vkf.make_weight_layout({"w": w}, device.capabilities, matrices="f16")
    assert layout.find("w").type == "f16" and layout.find("v") is None and layout.bytes >= 24
    vkf.save_safetensors(tmp_path / "w.safetensors", {"w": w}, {"made": "here"})
    file = vkf.Safetensors(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(file["w"].numpy(), w)
    assert file.metadata == {"made": "here"}
    kept = g.state("kept", [3, 4])
    g.output("y", vkf.contiguous(vkf.copy_into(kept, x)))
    state = device.make_state([g])
    state["kept"] = w
    vkf.save_state(tmp_path / "state.safetensors", state)
    state.clear()
    assert not state["kept"].any()
    vkf.restore_state(tmp_path / "state.safetensors", state)
    np.testing.assert_array_equal(state["kept"], w)
    own = vkf.Device(cache_folder=tmp_path / "cache")
    assert tmp_path / "cache" in vkf.tuning_file(own).parents
    tunable = next(t for t in vkf.tunables() if t.values(own.capabilities))
    vkf.save_tuning(own, f"{tunable.name}={tunable.values(own.capabilities)[0]}")
    assert tunable.name in vkf.tuning_file(own).read_text() and isinstance(tunable.what, str)
    path = vkf.save_left_out(own, [("softmax_wide", "a test says so")])
    assert path == vkf.left_out_file(own)
    later = vkf.Device(cache_folder=tmp_path / "cache")
    assert [(k.kernel, k.why) for k in later.left_out()] == [("softmax_wide", "a test says so")]
    assert vkf.Device(cache_folder=tmp_path / "cache", leave_out="0").capabilities.left_out == []
    vkf.save_left_out(own, [*later.left_out(), ("matmul_half", "another")])
    both = vkf.Device(cache_folder=tmp_path / "cache").left_out()
    assert {(k.kernel, k.why) for k in both} == {("softmax_wide", "a test says so"), ("matmul_half", "another")}
    vkf.save_left_out(own, [])
    assert not path.exists()
    tested = own.self_test()
    assert tested.verdict == "healthy" and tested.complete and tested.floats.nan and not tested.left_out
    assert all(c.problem == "" and c.error <= 1 for c in tested.checks) and len(tested.checks) > 10
