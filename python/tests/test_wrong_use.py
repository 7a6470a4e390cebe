# SPDX-License-Identifier: Apache-2.0
"""What is given wrongly is told, and what is given is not lost."""

import gc
import math

import numpy as np
import pytest
from conftest import ROOT

import vkformer as vkf

RNG = np.random.default_rng(11)


def array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def two_graphs():
    g, other = vkf.Graph(), vkf.Graph()
    return g, g.symbol("n", 8), other, other.symbol("m", 4), other.symbol("k", 4)


# --- sizes -----------------------------------------------------------------------------------


def test_sizes_of_another_graph_are_refused():
    g, n, other, m, k = two_graphs()
    x = g.input("x", [n, 4])
    for wrong in (m, k):  # k has a number that g has no symbol of
        for call in (lambda: n + wrong, lambda: n - wrong, lambda: wrong * n, lambda: n // wrong, lambda: n == wrong,
                     lambda: n != wrong, lambda: g.input("y", [wrong, 2]), lambda: g.state("s", [wrong]), lambda: g.max_of(wrong),
                     lambda: g.text(wrong), lambda: vkf.reshape(x, [wrong, 4]), lambda: x.reshape((4, wrong)),
                     lambda: vkf.slice(x, 0, wrong, 1), lambda: vkf.slice(x, 0, 0, wrong), lambda: x[wrong:], lambda: x[:, wrong],
                     lambda: vkf.broadcast_to(x, [wrong, 8, 4]), lambda: vkf.sum_to(x, [wrong, 4]),
                     lambda: vkf.dropout(x, 0.5, wrong), lambda: vkf.rope(x, vkf.Rope(layout="half"), wrong),
                     lambda: vkf.kv_cache(g, "c", 1, 8, 1, 4, wrong)):
            with pytest.raises(ValueError, match="another graph"):
                call()
    assert n == n and n != 3 and n + 1 - 1 == n and (n * 2) // 2 == n and len({n, n + 0}) == 1
    assert g.max_of(2 * n) == 16 and repr(x[1:n]) and x.reshape((2 * n, 2)).shape[0] == 2 * n


def test_numbers_for_symbols_are_checked():
    g, n, *_ = two_graphs()
    assert (n * 2).eval({"n": 3}) == 6
    with pytest.raises(ValueError, match="tokens"):
        n.eval({"tokens": 3})
    with pytest.raises(ValueError, match="n: is -1"):
        n.eval({"n": -1})


def test_sizes_that_64_bits_do_not_hold():
    g, n, *_ = two_graphs()
    m = g.symbol("m", 8)
    assert (n * 2**60).eval({"n": 7}) == 7 * 2**60 and (n * 2**59 + -2**62).eval({"n": 8}) == 0
    assert (5 - n * 2**60).eval({"n": 7}) == 5 - 7 * 2**60
    for size in (n * 2**62, n * n * 2**58, n * 2**59 + m * 2**59, n * 2**60 + (2**63 - 1), -1 - n * 2**60):
        with pytest.raises(ValueError, match="64 bits"):
            size.eval({"n": 8, "m": 8})


def test_true_is_no_size_and_none_no_index():
    g, n, *_ = two_graphs()
    x = g.input("x", [n, 6, 4])
    for index in ((slice(None), True), None, (None, 0), 1.0):
        with pytest.raises(TypeError, match="a number, a size or a slice"):
            x[index]
    with pytest.raises(TypeError):
        g.input("y", [True, 2])


def test_arrays_are_uploaded_in_their_shape(device):
    g, n, *_ = two_graphs()
    g.output("y", g.input("x", [n, 4]) * 2)
    program = device.compile(g)
    program.set("n", 2)
    with pytest.raises(ValueError, match=r"x: is \(2, 4\) now, and \(4, 2\) was given"):
        program.upload("x", array(4, 2))
    for x in (np.arange(8, dtype=np.float32), np.arange(8, dtype=np.float32).reshape(2, 4)):
        program.upload("x", x)
        program.run()
        np.testing.assert_array_equal(program.download("y"), np.arange(8).reshape(2, 4) * 2)


@pytest.mark.parametrize("width", [3, 2**20, 2**20 + 1])
def test_pages_of_more_than_32_bits_are_written(device, width):
    g = vkf.Graph()
    x = g.input("x", [1, 3, 1, 1])
    vkf.scatter_pages(g.state("pool", [2, 4096, 1, 1]), x, g.input("table", [1, width], "int32"),
                      g.input("lengths", [1], "int32"))
    g.output("y", x * 2)
    state = device.make_state([g])
    program = device.compile(g, state=state)
    numbers = np.arange(7, 10, dtype=np.float32).reshape(1, 3, 1, 1)
    program(x=numbers, table=np.zeros((1, width), np.int32), lengths=np.array([5], np.int32))
    np.testing.assert_array_equal(state.read("pool").ravel()[:6], [0, 0, 7, 8, 9, 0])


def test_names_with_a_zero_are_told_apart(device):
    g = vkf.Graph()
    x = g.input("x\0a", [2])
    g.output("y\0a", x * 2.0)
    g.output("y\0b", x * 3.0)
    assert set(g.inputs) == {"x\0a"} and set(g.outputs) == {"y\0a", "y\0b"}
    program = device.compile(g)
    assert set(program.inputs) == {"x\0a"} and set(program.outputs) == {"y\0a", "y\0b"}
    found = program(**{"x\0a": np.ones(2, np.float32)})
    assert [found[name].tolist() for name in ("y\0a", "y\0b")] == [[2, 2], [3, 3]]


def test_hooks_give_a_value_of_their_graph():
    g, other = vkf.Graph(), vkf.Graph()
    x, z = g.input("x", [2, 4]), other.input("z", [2, 3])

    def foreign(x, y):  # whose graph goes with it
        return vkf.Graph().input("z", [2, 3])

    for hook, kind, words in ((foreign, ValueError, "z .2, 3. F32 is a value of another graph"),
                              (lambda x, y: z, ValueError, "another graph"), (lambda x, y: None, TypeError, "is None"),
                              (lambda x, y: y[:, 0:2], ValueError, "must be of the same graph and shape")):
        g.after_linear(hook)
        for describe in (lambda: vkf.linear_layer(x, "w", 3), lambda: vkf.feed_forward(x, 3, "relu", name="f")):
            with pytest.raises(kind, match=words):
                describe()
    g.after_linear(lambda x, y: y * 2.0)
    assert vkf.linear_layer(x, "w", 3).shape == (2, 3)


def test_layers_that_are_refused_leave_no_weights(device):
    g = vkf.Graph()
    x = g.input("x", [1, 3, 4])
    for options in (dict(nhead=2, dim_feedforward=-1), dict(nhead=3), dict(nhead=3, norm_first=True),
                    dict(nhead=2, layer_norm_eps=math.nan), dict(nhead=2, dropout=2.0)):
        for describe in (lambda: vkf.torch.transformer_encoder_layer(x, **options),
                         lambda: vkf.torch.transformer_encoder(x, num_layers=2, **options),
                         lambda: vkf.torch.transformer_decoder_layer(x, vkf.torch.DecoderInputs(x), **options)):
            with pytest.raises(ValueError):
                describe()
    for count in (0, -1):
        with pytest.raises(ValueError, match=f"num_layers is {count}"):
            vkf.torch.transformer_encoder(x, num_layers=count, nhead=2)
    with pytest.raises(ValueError, match="at least 1"):
        vkf.torch.transformer_decoder(x, [], nhead=2)
    with pytest.raises(ValueError, match="head_dim 0"):
        vkf.kv_cache(g, "c", 1, 8, 1, 0, 0, "int8")
    assert not g.weights and not g.states
    g.output("y", x * 2.0)
    device.compile(g)


# --- functions -------------------------------------------------------------------------------


def test_rows_of_nothing_have_no_largest():
    for call in (lambda x: vkf.argmax(x), lambda x: vkf.top_k(x, 1)):
        with pytest.raises(ValueError, match=r"(argmax|top_k): the rows of input \(3, 0\) have no elements"):
            call(array(3, 0))
    assert vkf.argmax(array(0, 3)).shape == (0,)


def test_the_bias_of_layer_norm_is_kept():
    x, w, b = array(3, 8), array(8), array(8)
    want = vkf.layer_norm(x, (8,), w, b)
    for got in (vkf.layer_norm(x, w, bias=b), vkf.layer_norm(x, w, b), vkf.layer_norm(x, w, bias=b, eps=1e-5),
                vkf.layer_norm(x, w, b, 1e-5), vkf.layer_norm(x, w, weight=b)):
        np.testing.assert_array_equal(got, want)
    assert abs(want - vkf.layer_norm(x, w)).max() > 0.1
    for call in (lambda: vkf.layer_norm(x, w, b, w), lambda: vkf.layer_norm(x, w, 1e-5), lambda: vkf.rms_norm(x, w, b)):
        with pytest.raises(TypeError):
            call()
    g = vkf.Graph()
    v = g.input("x", [3, 8])
    g.output("y", vkf.layer_norm(v, g.input("w", [8]), bias=g.input("b", [8])))
    np.testing.assert_allclose(vkf.default_device().compile(g)(x=x, w=w, b=b)["y"], want, atol=1e-6)


def test_the_options_of_matmul_are_kept():
    a, b, bias = array(2, 3, 4), array(4, 5), array(5)
    np.testing.assert_allclose(vkf.matmul(a, b, bias=bias, scale=0.5, activation="relu"), np.maximum(0.5 * (a @ b) + bias, 0), atol=1e-5)
    for option in ("masked_weights", "masked_gradient", "heads_last"):
        with pytest.raises(ValueError, match=option):
            vkf.matmul(a, b, **{option: True})


def test_values_and_arrays_do_not_mix():
    g = vkf.Graph()
    v = g.input("x", [1, 1, 4, 8])
    x = array(1, 1, 4, 8)
    with pytest.raises(TypeError, match="values of one graph"):
        vkf.scaled_dot_product_attention(x, x, x, g.input("m", [4, 4]))
    with pytest.raises(TypeError, match="values of one graph"):
        vkf.scaled_dot_product_attention(v, v, v, np.ones((4, 4), bool))
    with pytest.raises(TypeError):
        vkf.matmul(x, v)


def test_two_kinds_of_causal():
    x = array(1, 2, 4, 8)
    with pytest.raises(ValueError, match="top_left"):
        vkf.scaled_dot_product_attention(x, x, x, is_causal=True, causal="bottom_right")
    want = vkf.scaled_dot_product_attention(x, x, x, is_causal=True)
    np.testing.assert_array_equal(vkf.scaled_dot_product_attention(x, x, x, is_causal=True, causal="top_left"), want)


def test_rows_of_targets_are_rows_of_inputs():
    with pytest.raises(ValueError, match=r"\(3, 2\)"):
        vkf.cross_entropy(array(2, 3, 5), np.zeros((3, 2), np.int32))


def test_attention_takes_lists_and_no_nothing():
    q = array(1, 2, 3, 4)
    want = vkf.scaled_dot_product_attention(q, q, q)
    for k, v in ((q.tolist(), q), (q, q.tolist()), (q.tolist(), q.tolist())):
        np.testing.assert_array_equal(vkf.scaled_dot_product_attention(q, k, v), want)
    x = vkf.Graph().input("x", q.shape)
    for given, name in (((q, None, q), "key"), ((q, q, None), "value"), ((None, q, q), "query"), ((x, None, x), "key"), ((x, x, None), "value")):
        with pytest.raises(TypeError, match=f"{name}: is None"):
            vkf.scaled_dot_product_attention(*given)


def test_sizes_of_norms_may_be_integers_of_numpy():
    x, w = array(3, 8), array(8)
    for size in (np.int64(8), (np.int32(8),), np.uint8(8)):
        np.testing.assert_array_equal(vkf.layer_norm(x, size), vkf.layer_norm(x, 8))
        np.testing.assert_array_equal(vkf.layer_norm(x, size, w, w), vkf.layer_norm(x, 8, w, w))
        np.testing.assert_array_equal(vkf.rms_norm(x, size, w), vkf.rms_norm(x, 8, w))
        for norm in (vkf.nn.LayerNorm, vkf.nn.RMSNorm):
            np.testing.assert_array_equal(norm(size, elementwise_affine=False)(x), norm(8, elementwise_affine=False)(x))
    with pytest.raises(ValueError, match="normalized_shape"):
        vkf.layer_norm(x, np.int64(4))


def test_masked_arrays_in_lists_are_refused(device):
    masked = np.ma.array([1, 2], mask=[1, 0], dtype=np.float32)
    for call in (lambda: device.tensor([masked]), lambda: device.tensor([[1.0, np.ma.masked]]), lambda: vkf.relu([masked, masked]),
                 lambda: vkf.relu(((masked,),))):
        with pytest.raises(ValueError, match="masked array"):
            call()


def test_lists_within_themselves_are_refused():
    itself, deep = [1.0], 1.0
    itself += [itself, itself]
    for _ in range(100000):
        deep = [deep]
    for wrong in (itself, deep):
        with pytest.raises(ValueError):
            vkf.relu(wrong)


# --- masks -----------------------------------------------------------------------------------


def attended(q, k, v, mask):
    scores = (q.astype(np.float64) @ np.swapaxes(k, -1, -2)) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 2, 3), (2, 1, 2, 3)])
def test_masks_broadcast(lead):
    q, k, v = array(*lead, 4, 8), array(*lead, 5, 8), array(*lead, 5, 8)
    full = (*lead, 4, 5)
    for rank in range(len(full) + 1):
        for ones in range(1 << rank):
            shape = tuple(1 if ones >> i & 1 else size for i, size in enumerate(full[len(full) - rank:]))
            mask = RNG.random(shape) < 0.7
            bias = array(*shape)
            np.testing.assert_allclose(vkf.scaled_dot_product_attention(q, k, v, bias), attended(q, k, v, bias), atol=2e-5)
            if np.broadcast_to(mask, full).any(-1).all():
                np.testing.assert_allclose(vkf.scaled_dot_product_attention(q, k, v, mask), attended(q, k, v, mask), atol=2e-5)


def test_wrong_masks():
    x = array(2, 3, 2, 4, 8)
    for shape in ((3, 2, 1, 4, 4), (6, 1, 4, 4), (2, 1, 4, 4), (1, 2, 3, 2, 4, 4), (3, 4), (4, 3), (2, 3, 3, 4, 4)):
        with pytest.raises(ValueError, match="broadcast"):
            vkf.scaled_dot_product_attention(x, x, x, np.ones(shape, bool))
    y = array(3, 2, 2, 4, 8)
    with pytest.raises(ValueError, match="before the heads"):
        vkf.scaled_dot_product_attention(x, y, y)
    for kind in (np.int32, np.int64, np.uint8):
        with pytest.raises(ValueError, match="attn_mask is of .*int"):
            vkf.scaled_dot_product_attention(x, x, x, np.ones((4, 4), kind))
    with pytest.raises(ValueError, match="attn_mask is of int"):
        vkf.scaled_dot_product_attention(x, x, x, [[1] * 4] * 4)
    vkf.scaled_dot_product_attention(x, x, x, [[True] * 4] * 4)


def test_masks_on_the_device(device):
    x = array(2, 3, 4, 8)
    mask = np.tril(np.ones((4, 4), bool))
    want = vkf.scaled_dot_product_attention(x, x, x, mask)
    t = device.tensor(x)
    np.testing.assert_array_equal(vkf.scaled_dot_product_attention(t, t, t, device.tensor(mask)).numpy(), want)


# --- programs --------------------------------------------------------------------------------


def sums(device):
    g = vkf.Graph()
    n = g.symbol("n", 8)
    g.output("y", g.input("a", [n]) + g.input("b", [n]))
    return device.compile(g)


def test_a_forgotten_input_is_told(device):
    program = sums(device)
    one = np.ones(4, np.float32)
    program(a=one, b=one)
    with pytest.raises(ValueError, match="b: is an input, and was not given"):
        program(a=one)
    with pytest.raises(ValueError, match="a: is an input"):
        program.tensors(b=one)
    program.bind("b", device.tensor(3 * one))
    np.testing.assert_array_equal(program(a=one, n=4)["y"], 4 * one)
    program.bind("b", None)
    with pytest.raises(ValueError, match="b: is an input"):
        program(a=one)
    g = vkf.Graph()
    x, t = g.input("x", [2, 4]), g.input("t", [2, 4])
    step = vkf.Trainer(g, vkf.sum(vkf.linear_layer(x, "w", 4) * t))
    step(x=one.reshape(1, 4).repeat(2, 0), t=one.reshape(1, 4).repeat(2, 0))
    with pytest.raises(ValueError, match="t: is an input"):
        step(x=np.ones((2, 4), np.float32))
    with pytest.raises(ValueError, match="rows: there is no such size"):
        step(x=np.ones((2, 4), np.float32), t=np.ones((2, 4), np.float32), sizes={"rows": 2})


def test_what_is_none_of_its_kind_is_told(device):
    three = array(3, 3)
    with pytest.raises(TypeError, match="set_default_device: is a str; a Device"):
        vkf.set_default_device("llvmpipe")
    with pytest.raises(TypeError, match="use_glsl_compiler: is a int; a function"):
        vkf.use_glsl_compiler(3)
    with pytest.raises(TypeError, match="b: is a ndarray; what is given by its name is hashable"):
        vkf.function(lambda x, b: x + b, device=device)(three, b=three)
    with pytest.raises(ValueError, match="have as many dimensions"):
        vkf.scaled_dot_product_attention(array(1, 2, 3, 4), array(4), array(1, 2, 3, 4))
    for norm in (vkf.layer_norm, vkf.rms_norm):
        with pytest.raises(ValueError, match="have no elements"):
            norm(np.float32(1), (1,))
    model = vkf.load_decoder(ROOT / "tests/decoders/llama", device=device, max_tokens=16)
    for call in (lambda: model.generate([5, 2**40], 2), lambda: model.encode([-2**40])):
        with pytest.raises(vkf.Error, match="prompt: -?1099511627776 is no token id"):
            call()
    for seed in (-1, 2**64):
        with pytest.raises(vkf.Error, match=f"seed is {seed}"):
            model.generate([5, 6], 2, seed=seed)
    encoder = vkf.load_text_encoder(ROOT / "tests/encoders/bert", device=device)
    with pytest.raises(vkf.Error, match="texts: 1099511627776 is no token id"):
        encoder.encode([[2**40]])


def test_a_value_of_no_dimension_stays_one_beside_a_number(device):
    g = vkf.Graph()
    x = g.input("x", [3])
    for name, y in (("a", x[1] + 2), ("b", x[1] - 2), ("c", 2 - x[1]), ("d", x[1] * 2), ("e", x + 2)):
        assert y.shape == ((3,) if name == "e" else ())
        g.output(name, y)
    out = device.compile(g)(x=np.array([4, 5, 6], np.float32))
    assert [out[name].shape for name in "abcd"] == [()] * 4
    assert [float(out[name]) for name in "abcd"] == [7, 3, -3, 10]


def test_states_of_none_and_parts_of_less_than_nothing(device):
    with pytest.raises(TypeError, match="graphs: one is None"):
        device.make_state([None])
    g = vkf.Graph()
    s = g.state("s", [4])
    g.output("y", vkf.copy_into(s, g.input("x", [4])) * 1.0)
    state = device.make_state([g])
    for length in (-2, -5):
        for call in (lambda: state.read("s", 0, length), lambda: state.write("s", array(4), 0, length),
                     lambda: vkf.save_state("/nowhere/s", state, {"s": (0, length)})):
            with pytest.raises(ValueError, match=f"s: length is {length}"):
                call()
    assert state.read("s", 0, -1).shape == (4,) and state.read("s", 0, 0).shape == (0,)


def test_slots_that_are_not_there(device):
    program = sums(device)
    program.allocate()
    program.finished(0)
    with pytest.raises(ValueError, match="slot 1, and the program has 1"):
        program.finished(1)
    g = vkf.Graph()
    g.output("y", g.input("x", [4]) * 2.0)
    two = device.compile(g, slots=2)
    two.allocate()
    two.finished(1)
    with pytest.raises(ValueError, match="slot 2, and the program has 2"):
        two.finished(2)
    with pytest.raises(ValueError, match="record_segment: slot 77, and the program has 2"):
        two.record_segment(0, 1.0, 77)


def test_wrong_sizes_and_names(device):
    program = sums(device)
    one = np.ones(4, np.float32)
    for call, words in ((lambda: program(a=one, b=one, n=-1), "n: is -1"), (lambda: program(a=one, b=one, m=1), "m: .*sizes: n"),
                        (lambda: program.set("m", 1), "m"), (lambda: program.set("n", -1), "n"), (lambda: program.cost({"m": 1}), "m"),
                        (lambda: program.cost({"n": -1}), "n")):
        with pytest.raises(ValueError, match=words):
            call()
    g = vkf.Graph()
    g.output("y", vkf.linear_layer(g.input("x", [2, 4]), "up", 3))
    weights = {"up.weight": array(3, 4), "up.bias": array(3)}
    device.compile(g, weights)
    for call in (lambda: device.compile(g, {**weights, "up.wieght": array(3, 4)}),
                 lambda: vkf.Trainer(g, vkf.sum(g.input("z", [2])), weights={"up.wieght": array(3, 4)})):
        with pytest.raises(ValueError, match="up.wieght"):
            call()
    with pytest.raises(ValueError, match="nothing"):
        vkf.nn.Linear(4, 3).load_state_dict({"weight": array(3, 4), "bias": array(3), "nothing": array(3)})(array(2, 4))


class Required:
    """A tensor as PyTorch has them while it records gradients."""

    def __init__(self, array, requires_grad=True):
        self.array, self.shape, self.dtype, self.requires_grad = array, array.shape, array.dtype, requires_grad

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_requires_grad_is_refused_always(device):
    program = sums(device)
    one = np.ones(4, np.float32)
    f = vkf.function(lambda x: x * 2.0)
    for _ in range(2):
        for call in (lambda: program(a=Required(one), b=one), lambda: device.tensor(Required(one)), lambda: f(Required(one)),
                     lambda: device.load({"w": Required(one)}), lambda: vkf.nn.LayerNorm(4, elementwise_affine=False)(Required(one))):
            with pytest.raises(ValueError, match=r"\.detach\(\)"):
                call()
        f(one)  # and the second time the program is there
    np.testing.assert_array_equal(program(a=Required(one, False), b=one)["y"], 2 * one)


def test_types_of_arrays_are_told():
    x = np.ones(4)
    for wrong in (x.astype(">f4"), x.astype(complex), x.astype(object), x.astype(str), x.astype("datetime64[s]")):
        with pytest.raises(ValueError, match=": is of "):
            vkf.relu(wrong.reshape(2, 2))
        try:
            vkf.relu(wrong.reshape(2, 2))
        except ValueError as error:
            assert str(wrong.dtype) in str(error) and "int32" not in str(error)
    for call in (vkf.relu, vkf.softmax, vkf.function(lambda x: x * 2.0)):
        with pytest.raises(TypeError, match="None"):
            call(None)


def test_integers_of_every_width_are_narrowed(device):
    table = array(5, 3)
    for kind in (np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int64):
        ids = np.array([4, 0, 2], kind)
        np.testing.assert_array_equal(vkf.embedding(ids, table), table[[4, 0, 2]])
        assert device.tensor(ids).numpy().tolist() == [4, 0, 2]
    for large in (np.uint32, np.uint64):
        with pytest.raises(ValueError, match="element 1 is 4294967295, which 32 bits do not hold"):
            device.tensor(np.array([1, 0xFFFFFFFF], large))
    with pytest.raises(ValueError, match="element 0 is 18446744073709551615"):
        device.tensor(np.array([0xFFFFFFFFFFFFFFFF], np.uint64))


def test_nothing_stays_nothing():
    for shape in ((0,), (0, 4), (4, 0), (2, 0, 3)):
        x = np.zeros(shape, np.float32)
        assert vkf.relu(x).shape == shape
    assert vkf.relu([]).shape == (0,)


def test_functions_tell_their_names():
    with pytest.raises(ValueError, match="linear: .*requires_grad"):
        vkf.linear(np.ones((2, 4), np.float32), Required(np.ones((3, 4), np.float32)))


def test_wrong_types_are_told_with_the_argument(device):
    program = sums(device)
    g = vkf.Graph()
    x = g.input("x", [4, 4])
    one = np.ones((4, 4), np.float32)
    g.after_linear(lambda x, y: "y")
    calls = [
        (lambda: program.record(0, {"a": "buffer"}), "buffers: is a str"),
        (lambda: program.record(0, {"a": (1, 2)}), "buffers: is a tuple"),
        (lambda: program.record(0, {1: (1, 2, 3)}), "recording: is a int"),
        (lambda: program.record(0, {}, {"a": 1}), "images: is a int"),
        (lambda: device.load({1: one}), "weights: is a int"),
        (lambda: x["a"], "index: is a str"),
        (lambda: x[1.5:], "index: is a float"),
        (lambda: vkf.linear_layer(x, "w", 3), "after_linear: .*is a str"),
        (lambda: device.tensor(one).reshape("ab"), "reshape: is a str"),
        (lambda: device.load({"w": one}, choose=lambda name, shape: 3), "choose: .*is a int"),
    ]
    for call, words in calls:
        with pytest.raises(TypeError, match=words):
            call()
    h = vkf.Graph()
    with pytest.raises(TypeError, match="decay_to: .*is a str"):
        vkf.Trainer(h, vkf.sum(vkf.linear_layer(h.input("x", [4, 4]), "w", 4)), decay_to=lambda name: "much")


# --- values ----------------------------------------------------------------------------------


def test_values_beside_numpy():
    g = vkf.Graph()
    x, y = g.input("x", [2, 3]), g.input("y", [g.symbol("n", 4), 3])
    for call in (lambda: array(2, 3) * x, lambda: x * array(2, 3), lambda: array(2, 3) + x, lambda: array(2, 3) @ x,
                 lambda: np.asarray(x), lambda: len(y), lambda: list(y), lambda: list(vkf.sum(x)[0]) and 1.0 / vkf.sum(x)):
        with pytest.raises(TypeError):
            call()
    assert isinstance(np.float32(2) * x, vkf.Value) and isinstance(x + np.float64(1), vkf.Value)
    many = vkf.Graph().input("many", [1 << 20, 4])
    assert tuple(next(iter(many)).shape) == (4,)
    assert len(x) == 2 and [tuple(row.shape) for row in x] == [(3,), (3,)] and x and y


def test_copies_of_tensors(device):
    t = device.tensor(array(2, 3))
    with pytest.raises(ValueError, match="copy"):
        np.asarray(t, copy=False)
    np.testing.assert_array_equal(np.asarray(t), t.numpy())
    np.testing.assert_array_equal(np.array(t, copy=True), t.numpy())


def test_functions_run_where_their_tensors_are(device):
    other = vkf.Device()
    assert other != device and other == other and device == vkf.default_device() and len({device, other}) == 2
    x = array(3, 4)
    for home in (other, device):
        t = home.tensor(x)
        assert t.device == home and hash(t.device) == hash(home) and t.reshape(12).device == home
        y = vkf.gelu(t)
        assert y.device == home
        np.testing.assert_array_equal(y.numpy(), vkf.gelu(x))
        m = vkf.nn.LayerNorm(4, elementwise_affine=False)(t)
        assert m.device == home
    np.testing.assert_array_equal(vkf.matmul(x, other.tensor(x.T.copy())), vkf.matmul(x, x.T.copy()))
    assert not other.messages()


def test_weights_are_of_their_device():
    module = vkf.nn.Linear(4, 3).load_state_dict({"weight": array(3, 4), "bias": array(3)})
    x = array(2, 4)
    want = module(x)
    double = vkf.function(lambda x: x * 2.0)
    for _ in range(4):  # whose addresses may be those of the ones before
        device = vkf.Device()
        np.testing.assert_array_equal(module(device.tensor(x)).numpy(), want)
        np.testing.assert_array_equal(double(device.tensor(x)).numpy(), 2 * x)
        assert device in module._weights and all(isinstance(d, vkf.Device) for d in module._weights)
        assert all(isinstance(key[0], vkf.Device) for key in double._programs)
        del device
        gc.collect()


def test_numbers_that_fp32_has_not_are_told_as_they_were_given():
    x = vkf.Graph().input("x", [3])
    for describe, said in ((lambda: x * 1e40, r"x \(3\) F32 \* 1e\+40: fp32 has no such number"),
                           (lambda: 1e40 * x, r"1e\+40 \* x \(3\) F32: fp32 has no such number"),
                           (lambda: x * math.inf, r"\* inf: the factor is not finite"),
                           (lambda: x / 0.0, r"x \(3\) F32 / 0\.0: its inverse"),
                           (lambda: x / 1e-39, r"/ 1e-39: its inverse"),
                           (lambda: x + 1e40, r"x \(3\) F32 \+ 1e\+40: fp32 has no such number"),
                           (lambda: 1e40 + x, r"1e\+40 \+ x \(3\) F32: fp32 has no such number"),
                           (lambda: x - 1e40, r"x \(3\) F32 - 1e\+40: fp32 has no such number"),
                           (lambda: 1e40 - x, r"1e\+40 - x \(3\) F32: fp32 has no such number")):
        with pytest.raises(vkf.Error, match=said):
            describe()
    assert len(x.graph.nodes) == 0
    x + -math.inf  # which masks
    x / math.inf, x / 1e40
