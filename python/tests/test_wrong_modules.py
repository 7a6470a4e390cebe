# SPDX-License-Identifier: Apache-2.0
"""Modules with wrong arguments, files, pictures, and processes that fork."""

import copy
import ctypes
import math
import os
import pickle
import subprocess
import sys
import xml.etree.ElementTree

import numpy as np
import pytest
from test_wrong_use import array, sums

import vkformer as vkf


# --- modules ---------------------------------------------------------------------------------


def test_unknown_keywords_of_modules():
    nn = vkf.nn
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    decoder = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    g = vkf.Graph()
    v, x = g.input("x", [1, 4, 8]), array(1, 4, 8)
    modules = [nn.Linear(8, 3), nn.LayerNorm(8), nn.RMSNorm(8), layer, nn.TransformerEncoder(layer, 1), nn.MultiheadAttention(8, 2)]
    for m in modules:
        for call in (lambda: m(x, scael=2), lambda: m(v, scael=2), lambda: m(x, scael=None), lambda: m(x, x7=x)):
            with pytest.raises(TypeError, match="scael|x7"):
                call()
    for m in (decoder, nn.TransformerDecoder(decoder, 1), nn.Transformer(8, 2, 1, 1, 16, batch_first=True)):
        with pytest.raises(TypeError, match="scael"):
            m(x, x, scael=2)
    with pytest.raises(TypeError, match="scael"):
        nn.Embedding(4, 3)(np.array([1]), scael=2)
    attention = nn.MultiheadAttention(8, 2)
    for call in (lambda: attention(x, x, x, None, True, None, True, False, 1), lambda: attention(x, x, x, None, False, need_weights=True)):
        with pytest.raises(TypeError, match="at most|multiple"):
            call()


def encoder_weights():
    return {"self_attn.in_proj_weight": array(24, 8), "self_attn.in_proj_bias": array(24), "self_attn.out_proj.weight": array(8, 8),
            "self_attn.out_proj.bias": array(8), "linear1.weight": array(16, 8), "linear1.bias": array(16), "linear2.weight": array(8, 16),
            "linear2.bias": array(8), "norm1.weight": array(8), "norm1.bias": array(8), "norm2.weight": array(8), "norm2.bias": array(8)}


def test_is_causal_of_encoders():
    layer = vkf.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    weights = encoder_weights()
    layer.load_state_dict(weights)
    x, mask = array(2, 5, 8), np.triu(np.ones((5, 5), bool), 1)
    want = layer(x, mask)
    assert abs(want - layer(x)).max() > 1e-3
    np.testing.assert_allclose(layer(x, is_causal=True), want, atol=1e-6)
    np.testing.assert_allclose(layer(x, mask, is_causal=True), want, atol=1e-6)
    np.testing.assert_allclose(layer(src=x, src_mask=mask), want, atol=1e-6)
    stack = vkf.nn.TransformerEncoder(layer, 1).load_state_dict({f"layers.0.{n}": a for n, a in weights.items()})
    np.testing.assert_allclose(stack(x, is_causal=True), want, atol=1e-6)
    g = vkf.Graph()
    with pytest.raises(ValueError, match="is_causal"):
        layer(g.input("x", [1, g.symbol("n", 8), 8]), is_causal=True)


def test_the_last_norm_is_the_one_that_is_given():
    layer = vkf.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    weights = {f"layers.0.{n}": a for n, a in encoder_weights().items()}
    ends = {"norm.weight": array(8), "norm.bias": array(8)}
    x = array(2, 5, 8)
    y = vkf.nn.TransformerEncoder(layer, 1).load_state_dict(weights)(x)
    for norm, eps in ((True, 1e-5), (vkf.nn.LayerNorm(8, eps=0.5), 0.5)):
        got = vkf.nn.TransformerEncoder(layer, 1, norm).load_state_dict({**weights, **ends})(x)
        np.testing.assert_allclose(got, vkf.layer_norm(y, ends["norm.weight"], ends["norm.bias"], eps), atol=1e-5)
    with pytest.raises(ValueError, match="RMSNorm"):
        vkf.nn.TransformerEncoder(layer, 1, vkf.nn.RMSNorm(8))


def test_an_approximate_gelu_is_not_computed_exactly():
    class GELU:
        approximate = "tanh"

    layers = [vkf.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation=a) for a in (GELU(), "gelu")]
    assert layers[0].options["activation"] == "gelu_tanh" and layers[1].options["activation"] == "gelu"
    weights = encoder_weights()
    x = array(1, 4, 8)
    near, exact = (layer.load_state_dict(weights)(x) for layer in layers)
    assert 0 < abs(near - exact).max() < 0.1


def layer_of(weights=None):
    return vkf.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).load_state_dict(weights or encoder_weights())


def test_bools_of_numpy_are_bools():
    layer, x = layer_of(), array(1, 5, 8)
    plain, causal = layer(x), layer(x, is_causal=True)
    assert abs(plain - causal).max() > 1e-3
    for no, yes in ((np.bool_(False), np.bool_(True)), (np.array(False), np.array(True))):
        np.testing.assert_array_equal(layer(x, is_causal=no), plain)
        np.testing.assert_array_equal(layer(x, is_causal=yes), causal)
        assert layer.program(x, is_causal=no) is layer.program(x, is_causal=False)
    m = vkf.nn.MultiheadAttention(8, 2, batch_first=True)
    m.load_state_dict({n[10:]: a for n, a in encoder_weights().items() if n.startswith("self_attn.")})
    assert m(x, need_weights=np.bool_(False))[1] is None and m(x, need_weights=np.int64(1))[1] is not None
    assert m(x, average_attn_weights=np.bool_(False))[1].shape == (1, 2, 5, 5)
    g = vkf.Graph()
    assert vkf.nn.MultiheadAttention(8, 2, batch_first=True)(g.input("x", [1, 4, 8]), need_weights=np.False_, is_causal=np.False_)[1] is None
    with pytest.raises(TypeError, match="by their names"):
        layer(x, None, None, np.bool_(False))
    with pytest.raises(TypeError, match="is_causal: .* a bool is wanted"):
        layer(x, is_causal=np.zeros(2, bool))


def test_modules_of_ones_own_may_describe_themselves_in_any_way():
    class Bound(vkf.nn.Module):
        def __init__(self):
            super().__init__()
            self.describe = lambda x, attn_mask=None: x if attn_mask is None else x + attn_mask

    class Static(vkf.nn.Module):
        @staticmethod
        def describe(x, attn_mask=None):
            return x if attn_mask is None else x + attn_mask

    x = array(2, 3)
    for module in (Bound(), Static()):
        assert (module(x) == x).all() and (module(x, x) == 2 * x).all()
        with pytest.raises(ValueError, match="attn_mask is of int32; a mask is of bool"):
            module(x, np.ones((2, 3), np.int32))


def test_sizes_of_norms_are_whole_numbers():
    for wrong in ((3.7,), "3", ("3",)):
        for norm in (vkf.nn.LayerNorm, vkf.nn.RMSNorm):
            with pytest.raises(TypeError):
                norm(wrong)
    norm = vkf.nn.LayerNorm(np.int64(3)).load_state_dict({"weight": np.ones(3, np.float32), "bias": np.zeros(3, np.float32)})
    assert norm(array(2, 3)).shape == (2, 3)


def test_results_are_like_the_first_argument_whatever_the_order_of_the_call(device):
    layer, x = layer_of(), array(1, 3, 8)
    mask = np.array([[False, False, True]])
    bias = np.where(mask, -np.inf, 0).astype(np.float32)
    assert isinstance(layer(src_key_padding_mask=mask, src=device.tensor(x)), vkf.Tensor)
    assert layer(src_key_padding_mask=bias, src=x.astype(np.float16)).dtype == np.float16
    assert layer.program(src_key_padding_mask=mask, src=x) is layer.program(src=x, src_key_padding_mask=mask)


def test_copies_of_modules_are_apart():
    x = np.ones((1, 2), np.float32)
    one = vkf.nn.Linear(2, 2, bias=False).load_state_dict({"weight": np.eye(2, dtype=np.float32)})
    want = one(x)
    for made in (copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))):
        other = made(one)
        np.testing.assert_array_equal(other(x), want)
        other.load_state_dict({"weight": 9 * np.eye(2, dtype=np.float32)})
        np.testing.assert_array_equal(other(x), 9 * want)
        np.testing.assert_array_equal(one(x), want)
        assert one.state_dict()["weight"][0, 0] == 1
    weights = {f"layers.0.{n}": a for n, a in encoder_weights().items()}
    stack = vkf.nn.TransformerEncoder(layer_of(), 1).load_state_dict(weights)
    y = array(1, 3, 8)
    np.testing.assert_array_equal(copy.deepcopy(stack)(y), stack(y))


def test_nobody_writes_to_what_a_module_has():
    x = np.ones((1, 2), np.float32)
    module = vkf.nn.Linear(2, 2, bias=False).load_state_dict({"weight": np.eye(2, dtype=np.float32)})
    for m in (module, copy.deepcopy(module)):
        with pytest.raises(ValueError, match="read-only"):
            m.state_dict()["weight"] *= 5
        # another device loads them anew
        np.testing.assert_array_equal(m(vkf.Device().tensor(x)).numpy(), x)
    other = vkf.nn.Linear(2, 2, bias=False).load_state_dict(module.state_dict())
    np.testing.assert_array_equal(other(x), x)


def test_modules_take_no_rows():
    module = vkf.nn.Linear(3, 2, bias=False).load_state_dict({"weight": array(2, 3)})
    assert module(np.ones((0, 3), np.float32)).shape == (0, 2) and module(np.ones((2, 0, 3), np.float32)).shape == (2, 0, 2)


def test_what_looks_like_an_array_is_told():
    class Series:
        shape, dtype = (2, 2), np.dtype("float32")

    class Frame:
        shape = (2, 2)

    module = vkf.nn.Linear(2, 2, bias=False).load_state_dict({"weight": array(2, 2)})
    for call in (vkf.softmax, module, lambda x: vkf.scaled_dot_product_attention(x, x, x), lambda x: vkf.linear(x, array(2, 2))):
        with pytest.raises(ValueError, match="is a Series of float32, not an array"):
            call(Series())
        with pytest.raises(TypeError, match="Frame is neither an array"):
            call(Frame())


def test_embeddings_of_a_largest_norm_are_refused():
    class Embedding:
        num_embeddings, embedding_dim, max_norm = 4, 2, 1.0

    with pytest.raises(ValueError, match="max_norm is 1.0"):
        vkf.nn.from_torch(Embedding())


def test_state_dicts_by_their_path(tmp_path):
    w = {"weight": array(3, 4), "bias": array(3)}
    vkf.save_safetensors(tmp_path / "w.safetensors", w)
    x = array(2, 4)
    want = vkf.nn.Linear(4, 3).load_state_dict(w)(x)
    for file in (tmp_path / "w.safetensors", str(tmp_path / "w.safetensors"), vkf.Safetensors(tmp_path / "w.safetensors")):
        np.testing.assert_array_equal(vkf.nn.Linear(4, 3).load_state_dict(file)(x), want)
    with pytest.raises(TypeError, match="int"):
        vkf.nn.Linear(4, 3).load_state_dict(7)
    with pytest.raises(FileNotFoundError):
        vkf.nn.Linear(4, 3).load_state_dict(tmp_path / "nothing")


def test_state_dicts_are_taken_as_they_are(device):
    x = np.ones((1, 2), np.float32)
    kept = np.ones((1, 2), np.float32)
    under = np.ones(8, np.float32)
    view = under[2:4].reshape(1, 2)
    view.flags.writeable = False  # and yet its numbers may change
    given = [(kept, lambda: kept.fill(9)), (view, lambda: under.fill(9))]
    numbers = (ctypes.c_float * 2)(1, 1)
    held = np.frombuffer(numbers, np.float32).reshape(1, 2)
    held.flags.writeable = False
    given.append((held, lambda: ctypes.memset(numbers, 0, 8)))
    rows = [[1.0, 1.0]]
    given.append((rows, lambda: rows[0].append(7.0)))
    tensor = device.tensor(np.ones((1, 2), np.float32))
    given.append((tensor, lambda: tensor.write(9 * x)))
    for weight, change in given:
        module = vkf.nn.Linear(2, 1, bias=False).load_state_dict({"weight": weight})
        change()
        assert module(x).tolist() == [[2]], type(weight)
    constant = np.frombuffer(np.ones(2, np.float32).tobytes(), np.float32).reshape(1, 2)
    module = vkf.nn.Linear(2, 1, bias=False).load_state_dict({"weight": constant})
    assert module.state_dict()["weight"] is constant and module(x).tolist() == [[2]]


def test_masks_of_integers_are_refused(device):
    layer = vkf.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    decoder = vkf.nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    attention = vkf.nn.MultiheadAttention(8, 2, batch_first=True)
    x, square, row = array(1, 3, 8), np.zeros((3, 3), bool), np.zeros((1, 3), bool)
    calls = [
        (lambda kind: attention(x, attn_mask=square.astype(kind)), "MultiheadAttention: attn_mask"),
        (lambda kind: attention(x, x, x, row.astype(kind)), "MultiheadAttention: key_padding_mask"),
        (lambda kind: layer(x, square.astype(kind)), "TransformerEncoderLayer: src_mask"),
        (lambda kind: layer(x, None, row.astype(kind)), "TransformerEncoderLayer: src_key_padding_mask"),
        (lambda kind: decoder(x, x, square.astype(kind)), "TransformerDecoderLayer: tgt_mask"),
        (lambda kind: vkf.nn.TransformerEncoder(layer, 1)(x, mask=square.astype(kind)), "TransformerEncoder: mask"),
        (lambda kind: vkf.nn.TransformerDecoder(decoder, 1)(x, x, square.astype(kind)), "TransformerDecoder: tgt_mask"),
    ]
    for call, words in calls:
        for kind in (np.int32, np.int64, np.uint8):
            with pytest.raises(ValueError, match=f"{words} is of .*int.* a mask is of bool .True may not attend."):
                call(kind)
        for kind in (bool, np.float32):  # which are masks: what is missing is the parameters
            with pytest.raises(ValueError, match="load_state_dict"):
                call(kind)
    layer.load_state_dict(encoder_weights())
    mask = np.triu(np.ones((3, 3), bool), 1)
    np.testing.assert_array_equal(layer(device.tensor(x), device.tensor(mask)).numpy(), layer(x, mask))


def test_modules_take_lists_and_nothing_else():
    module = vkf.nn.Linear(2, 2).load_state_dict({"weight": np.eye(2, dtype=np.float32), "bias": np.zeros(2, np.float32)})
    np.testing.assert_array_equal(module([[1.0, 2.0]]), [[1, 2]])
    np.testing.assert_array_equal(module(((1.0, 2.0),)), [[1, 2]])
    for wrong in (True, 1.0, "x"):
        with pytest.raises(TypeError, match="Linear: a .* is neither an array"):
            module(wrong)
    layer = vkf.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).load_state_dict(encoder_weights())
    x = array(1, 3, 8)
    mask = np.triu(np.ones((3, 3), bool), 1)
    np.testing.assert_array_equal(layer(x, src_mask=mask.tolist()), layer(x, mask))


def test_stacks_have_layers():
    encoder = vkf.nn.TransformerEncoderLayer(4, 1, 3, batch_first=True)
    decoder = vkf.nn.TransformerDecoderLayer(4, 1, 3, batch_first=True)
    for count in (0, -1):
        for make in (lambda: vkf.nn.TransformerEncoder(encoder, count), lambda: vkf.nn.TransformerDecoder(decoder, count),
                     lambda: vkf.nn.Transformer(4, 1, count, 1, batch_first=True),
                     lambda: vkf.nn.Transformer(4, 1, 1, count, batch_first=True)):
            with pytest.raises(ValueError, match=f"layers is {count}; it is at least 1"):
                make()


# --- small things ----------------------------------------------------------------------------


def test_waiting_for_ever(device):
    program = sums(device)
    one = np.ones(4, np.float32)
    program.set("n", 4)
    program.upload("a", one)
    program.upload("b", one)
    for seconds in (math.inf, 1e300, 60, None):
        assert program.submit().wait(seconds) is True
    ticket = program.submit()
    with pytest.raises(ValueError, match="timeout"):
        ticket.wait(math.nan)
    ticket.wait(-1)
    assert ticket.wait()


def test_files_keep_types(tmp_path):
    kinds = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
    arrays = {kind: np.array([[0, 1], [1, 0]], kind) for kind in kinds}
    arrays["int64"][0, 0] = 2**40
    vkf.save_safetensors(tmp_path / "all.safetensors", arrays)
    file = vkf.Safetensors(tmp_path / "all.safetensors")
    for kind in kinds:
        assert file[kind].dtype == kind and file[kind].numpy().dtype == kind
        np.testing.assert_array_equal(file[kind].numpy(), arrays[kind])


def test_files_that_are_cut_short(tmp_path):
    path = tmp_path / "cut.safetensors"
    vkf.save_safetensors(path, {"w": np.ones((1024, 64), np.float32), "none": np.ones((0, 3), np.float16)})
    file = vkf.Safetensors(path)
    assert file["w"].numpy().sum() == 65536 and file["none"].numpy().shape == (0, 3)
    if sys.platform == "win32":
        return  # which lets nobody shorten a file that is mapped
    os.truncate(path, 4096)
    with pytest.raises(vkf.Error, match="cut.safetensors"):
        file["w"].numpy()


def test_pictures_of_what_is_no_number_and_no_text():
    labels = ["a\x00b", "\x1b[0m", "\x85\ufffe"]
    for picture in (vkf.plot.attention([[0.5, math.nan, math.inf]] * 3, labels), vkf.plot.curve([1, math.nan, 2, math.inf, -math.inf, 3, 4], "\x07"),
                    vkf.plot.curve([math.nan]), vkf.plot.curve([-1e308, 1e308]), vkf.plot.curve([2, 2])):
        xml.etree.ElementTree.fromstring(picture)
        for shape in xml.etree.ElementTree.fromstring(picture).iter():
            assert not any("nan" in shape.get(a, "") or "inf" in shape.get(a, "") for a in ("points", "x", "y", "fill"))
    assert vkf.plot.curve([1, math.nan, 2, 3]).count("<polyline") == 2
    g = vkf.Graph()
    g.output("y", vkf.linear_layer(g.input("x", [1, 2]), "a\x01", 2))
    program = vkf.default_device().compile(g, {"a\x01.weight": array(2, 2), "a\x01.bias": array(2)}, profile=True)
    program(x=array(1, 2))
    xml.etree.ElementTree.fromstring(program._repr_svg_())


FORKED = """
import os, sys, numpy as np, vkformer as vkf
{before}
pid = os.fork()
if pid == 0:
    try:
        vkf.relu(np.ones(3, np.float32)); print("ran", flush=True)
    except vkf.Error as e:
        print("told", e, e.result, flush=True)
    sys.exit(7)  # as a child of multiprocessing ends
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.mark.parametrize("before", ["x = vkf.relu(np.ones(3, np.float32)); t = vkf.default_device().tensor(x); w = vkf.Device().load({'a': x})",
                                    "vkf.Device.list()", "vkf.Device.list(); vkf.Graph()"])
def test_children_end(before):
    done = subprocess.run([sys.executable, "-c", FORKED.format(before=before)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.endswith("7\n"), done.stdout + done.stderr
    assert ("ran" in done.stdout) == ("list" in before) and "VkResult" not in done.stdout, done.stdout
