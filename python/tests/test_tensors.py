# SPDX-License-Identifier: Apache-2.0
"""Tensors that stay on the device, and pass from program to program."""

import gc
import threading

import numpy as np
import pytest

import vkformer as vkf

RNG = np.random.default_rng(17)


def array(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


@pytest.fixture
def programs(device):
    a, b = vkf.Graph(), vkf.Graph()
    x = a.input("x", [a.symbol("rows", 9), 5])
    a.output("y", vkf.softmax(x * 2.0))
    a.output("z", vkf.relu(x))
    y = b.input("y", [b.symbol("rows", 300), 5])  # more rows than the first has
    b.output("w", vkf.gelu(y) + b.input("bias", [5]))
    return device.compile(a), device.compile(b)


def test_from_program_to_program(programs):
    first, second = programs
    bias = array(5)
    for rows in (7, 1, 9, 7, 0):
        x = array(rows, 5)
        between = first.tensors(x=x)
        assert list(between) == ["y", "z"] and repr(between["y"]) == f"<Tensor ({rows}, 5) float32>"
        last = second.tensors(y=between["y"], bias=bias)["w"]
        want = first(x=x)
        np.testing.assert_array_equal(between["z"].numpy(), want["z"])
        np.testing.assert_array_equal(last.numpy(), second(y=want["y"], bias=bias)["w"])
        np.testing.assert_array_equal(second(y=between["y"], bias=bias)["w"], last.numpy())


def test_arrays_and_back(device):
    for dtype in (np.float32, np.float16, np.int32):
        x = array(3, 4, dtype=dtype)
        t = device.tensor(x)
        assert t.shape == (3, 4) and t.dtype == np.dtype(dtype).name and t.ndim == 2 and len(t) == 3 and t.bytes == x.nbytes
        np.testing.assert_array_equal(t.numpy(), x)
        np.testing.assert_array_equal(np.asarray(t), x)
        np.testing.assert_array_equal(np.asarray(t, np.float64), x)
        np.testing.assert_array_equal(np.from_dlpack(t), x)
        np.testing.assert_array_equal(t.reshape(2, -1).numpy(), x.reshape(2, -1))
        t.reshape((12,)).write(x.ravel()[::-1])
        np.testing.assert_array_equal(t.numpy().ravel(), x.ravel()[::-1])
    types = pytest.importorskip("ml_dtypes")
    x = array(6).astype(types.bfloat16)
    np.testing.assert_array_equal(device.tensor(x).numpy(), x.astype(np.float32))
    assert device.tensor(np.array([2**31 - 1])).dtype == "int32" and device.tensor(3.5).shape == ()
    with pytest.raises(ValueError, match="float64"):
        device.tensor(np.ones(3))


def test_functions_and_modules_keep_them_there(device):
    q, k, v = array(2, 8, 6, 16), array(2, 2, 6, 16), array(2, 2, 6, 16)
    tensors = [device.tensor(x) for x in (q, k, v)]
    y = vkf.scaled_dot_product_attention(*tensors, is_causal=True, enable_gqa=True)
    assert isinstance(y, vkf.Tensor) and y.shape == q.shape
    np.testing.assert_array_equal(y.numpy(), vkf.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))
    # the first argument says the kind
    mixed = vkf.scaled_dot_product_attention(q, tensors[1], v, enable_gqa=True)
    assert isinstance(mixed, np.ndarray)
    flat = vkf.softmax(vkf.gelu(tensors[0].reshape(-1, 16)))
    np.testing.assert_array_equal(flat.numpy(), vkf.softmax(vkf.gelu(q.reshape(-1, 16))))
    half = vkf.relu(device.tensor(q.astype(np.float16)))
    assert half.dtype == "float16"
    values, indices = vkf.top_k(tensors[0], 3)
    assert isinstance(values, vkf.Tensor) and indices.dtype == "int32" and indices.shape == (2, 8, 6, 3)
    m = vkf.nn.Linear(16, 3).load_state_dict({"weight": array(3, 16), "bias": array(3)})
    assert isinstance(m(tensors[0]), vkf.Tensor)
    np.testing.assert_array_equal(m(tensors[0]).numpy(), m(q))


def test_trainers_take_them(device):
    g = vkf.Graph()
    x, t = g.input("x", [g.symbol("rows", 16), 4]), g.input("t", [g.symbol("more", 16)], "int32")
    t = vkf.slice(t, 0, 0, 5)
    loss = vkf.cross_entropy(vkf.slice(vkf.linear_layer(x, "w", 3), 0, 0, 5), t)
    a, labels = array(5, 4), np.array([0, 2, 1, 1, 0], np.int32)
    steps = [vkf.Trainer(g2, l2, vkf.SGD(lr=0.1)) for g2, l2 in [(g, loss)]]
    first = steps[0]({"x": device.tensor(a), "t": device.tensor(labels)})
    again = steps[0]({"x": a, "t": labels})
    assert again.loss < first.loss


def test_bound_by_hand(programs, device):
    first, _ = programs
    x = array(4, 5)
    first.set("rows", 4)
    given, found = device.tensor(x), device.make_tensor([4, 5])
    first.bind("x", given)
    first.bind("y", found)
    first.run()
    np.testing.assert_array_equal(first.download("z"), np.maximum(x, 0))
    with pytest.raises(ValueError, match="bound to a tensor"):
        first.download("y")
    np.testing.assert_allclose(found.numpy().sum(-1), 1, rtol=1e-6)
    first.bind("x", None)
    first.bind("y", None)
    with pytest.raises(ValueError, match="never uploaded"):
        first.run()


def test_a_write_waits_for_runs_that_read_it(device):
    g = vkf.Graph()
    x = y = g.input("x", [256, 256])
    for _ in range(12):
        y = vkf.matmul(y, x)
    g.output("y", y + g.input("last", [256, 256]))
    program = device.compile(g)
    zeros, ones = np.zeros((256, 256), np.float32), np.ones((256, 256), np.float32)
    last = device.tensor(ones)
    program.bind("last", last)
    program.upload("x", zeros)
    ticket = program.submit()
    last.write(zeros)
    ticket.wait()
    np.testing.assert_array_equal(program.download("y"), ones)
    np.testing.assert_array_equal(program(x=zeros)["y"], zeros)


def test_changes_of_states_wait_for_runs_that_read_them(device):
    g = vkf.Graph()
    x = y = g.input("x", [256, 256])
    for _ in range(12):
        y = vkf.matmul(y, x)
    g.output("y", y + g.state("s", [256, 256]))
    state = device.make_state([g])
    program = device.compile(g, state=state)
    program.upload("x", np.zeros((256, 256), np.float32))
    one = np.ones((256, 256), np.float32)
    for change, left in ((lambda: state.write("s", 5 * one), 5), (lambda: state.write("s", 3 * one[:200], length=200), 3), (state.clear, 0)):
        state["s"] = one
        ticket = program.submit()
        change()
        ticket.wait()
        np.testing.assert_array_equal(program.download("y"), one)
        assert state["s"][0, 0] == left


def test_threads_that_write_leave_no_run_a_part(device):
    g = vkf.Graph()
    x = y = g.input("x", [256, 256])
    for _ in range(4):
        y = vkf.matmul(x, y)
    g.output("y", y)
    program = device.compile(g)
    one = np.eye(256, dtype=np.float32)
    tensor, done = device.tensor(one), threading.Event()
    program(x=tensor)

    def write():
        while not done.is_set():
            tensor.write(2 * one)
            tensor.write(one)

    writer = threading.Thread(target=write)
    writer.start()
    found = {float(program(x=tensor)["y"][0, 0]) for _ in range(100)}
    done.set()
    writer.join()
    assert found <= {1.0, 32.0}


def test_bits_of_bfloat16_stay(device, tmp_path):
    types = pytest.importorskip("ml_dtypes")
    bits = np.arange(6, dtype=np.float32).reshape(2, 3).astype(types.bfloat16)
    tensor = device.tensor(bits)
    copy = device.tensor(tensor)
    assert copy.dtype == "bfloat16"
    np.testing.assert_array_equal(copy.numpy(), tensor.numpy())
    assert device.load({"w": tensor}).find("w").type == "bf16"
    vkf.save_safetensors(tmp_path / "t.safetensors", {"a": tensor})
    kept = vkf.Safetensors(tmp_path / "t.safetensors")["a"]
    assert kept.dtype == "bfloat16"
    np.testing.assert_array_equal(kept.numpy(), tensor.numpy())


def test_arrays_of_them_are_copies(device):
    tensor = device.tensor(array(2, 3))
    with pytest.raises(BufferError, match="always a copy"):
        tensor.__dlpack__(copy=False)
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        with pytest.raises(BufferError, match="always a copy"):
            np.from_dlpack(tensor, copy=False)
        np.testing.assert_array_equal(np.from_dlpack(tensor, copy=True), tensor.numpy())
    np.testing.assert_array_equal(np.from_dlpack(tensor), tensor.numpy())


def test_wrong_use(programs, device):
    first, _ = programs
    t = device.tensor(array(4, 5))
    checks = [
        (lambda: first(x=t.reshape(5, 4)), r"x.*\(rows, 5\).*\(5, 4\)"),
        (lambda: first(x=device.tensor(np.ones((4, 5), np.int32))), "x.*F32.*I32"),
        (lambda: first(x=device.tensor(array(10, 5))), "rows.*10.*9"),
        (lambda: first.upload("x", t), "bind"),
        (lambda: t.reshape(3, -1), r"\(4, 5\)"),
        (lambda: t.write(array(5, 4)), r"\(5, 4\).*\(4, 5\)"),
        (lambda: device.make_tensor([2], "int64"), "I64"),
        (lambda: device.make_tensor([-2]), "-2"),
    ]
    for call, words in checks:
        with pytest.raises(ValueError, match=words):
            call()
    other = vkf.Device()
    with pytest.raises(ValueError, match="another device"):
        first(x=other.tensor(array(4, 5)))
    with pytest.raises(TypeError):
        len(device.tensor(1.0))
    assert first(x=t)["y"].shape == (4, 5)


def test_they_outlive_everything():
    device = vkf.Device()
    g = vkf.Graph()
    g.output("y", vkf.relu(g.input("x", [3, 4])))
    program = device.compile(g)
    x = array(3, 4)
    y = program.tensors(x=device.tensor(x))["y"]
    view = y.reshape(12)
    del program, device, g, y
    gc.collect()
    np.testing.assert_array_equal(view.numpy(), np.maximum(x, 0).ravel())


def test_with_torch(device):
    torch = pytest.importorskip("torch")
    x = torch.randn(3, 4)
    t = device.tensor(x)
    torch.testing.assert_close(torch.from_dlpack(vkf.relu(t)), x.relu())
