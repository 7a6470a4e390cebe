# SPDX-License-Identifier: Apache-2.0
"""Gradients beside differences in double precision, and training steps."""

import array as array_module
import importlib.util

import numpy as np
import pytest

import vkformer as vkf

RNG = np.random.default_rng(11)


def array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def gradient_of(f, *arrays):
    """The gradients of sum(f(...) * seed) at the arrays, and the seed."""
    g = vkf.Graph()
    values = [g.input(f"x{i}", a.shape) for i, a in enumerate(arrays)]
    y = f(*values)
    seed = array(*[int(s) for s in y.shape])
    for i, d in enumerate(vkf.gradients(y, values, g.input("seed", seed.shape))):
        g.output(f"d{i}", vkf.contiguous(d))
    out = vkf.default_device().compile(g)(seed=seed, **{f"x{i}": a for i, a in enumerate(arrays)})
    return [out[f"d{i}"] for i in range(len(arrays))], seed


def differences(f, seed, *arrays):
    out = []
    arrays = [a.astype(np.float64) for a in arrays]
    for a in arrays:
        d = np.zeros_like(a)
        for at in np.ndindex(a.shape):
            old = a[at]
            a[at] = old + 1e-5
            up = (f(*arrays) * seed).sum()
            a[at] = old - 1e-5
            d[at] = (up - (f(*arrays) * seed).sum()) / 2e-5
            a[at] = old
        out.append(d)
    return out


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


CASES = {
    "matmul": (lambda a, b: a @ b, lambda a, b: a @ b, [(3, 4), (4, 5)]),
    "softmax": (lambda x: vkf.softmax(x), softmax, [(3, 7)]),
    "rms_norm": (lambda x, w: vkf.rms_norm(x, w, 1e-5),
                 lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w, [(3, 6), (6,)]),
    "silu and views": (lambda x: vkf.silu(x[1:, :, 0] * 2.0), lambda x: 2 * x[1:, :, 0] / (1 + np.exp(-2 * x[1:, :, 0])), [(3, 4, 2)]),
    "attention": (lambda q, k, v: vkf.scaled_dot_product_attention(q, k, v, is_causal=True),
                  lambda q, k, v: softmax(np.where(np.tril(np.ones((4, 4), bool)), q @ k.swapaxes(-1, -2) / 2.0, -1e30)) @ v,
                  [(1, 2, 4, 4)] * 3),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    f, reference, shapes = CASES[name]
    arrays = [array(*s) for s in shapes]
    found, seed = gradient_of(f, *arrays)
    for got, want in zip(found, differences(reference, seed.astype(np.float64), *arrays)):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def classifier(width=16):
    g = vkf.Graph()
    rows = g.symbol("rows", 64)
    x, t = g.input("x", [rows, 8]), g.input("t", [rows], "int32")
    with vkf.Scope(g, "net"):
        hidden = vkf.relu(vkf.linear_layer(x, "first", width))
        logits = vkf.linear_layer(hidden, "last", 3)
    return g, vkf.cross_entropy(logits, t)


X, T = array(40, 8), RNG.integers(0, 3, 40)


@pytest.mark.parametrize("optimizer", [vkf.AdamW(lr=1e-2), vkf.Adam(lr=1e-2), vkf.SGD(lr=0.5, momentum=0.9)], ids=repr)
def test_losses_fall(optimizer):
    g, loss = classifier()
    step = vkf.Trainer(g, loss, optimizer, max_norm=1.0)
    losses = [step(x=X, t=T).loss for _ in range(30)]
    assert losses[-1] < 0.8 * losses[0] and step.step == 30
    assert step.parameters == ["net.first.weight", "net.first.bias", "net.last.weight", "net.last.bias"]


def test_a_step_is_the_one_that_numpy_takes():
    g = vkf.Graph()
    x, t = g.input("x", [5, 4]), g.input("t", [5], "int32")
    loss = vkf.cross_entropy(vkf.linear_layer(x, "w", 3), t)
    w, b, a, labels = array(3, 4), array(3), array(5, 4), np.array([0, 2, 1, 1, 0])
    step = vkf.Trainer(g, loss, vkf.SGD(lr=0.1), weights={"w.weight": w, "w.bias": b})
    done = step({"x": a, "t": labels})
    p = softmax((a @ w.T + b).astype(np.float64))
    assert abs(done.loss + np.log(p[np.arange(5), labels]).mean()) < 1e-5
    d = (p - np.eye(3)[labels]) / 5
    after = step.state_dict()
    np.testing.assert_allclose(after["w.weight"], w - 0.1 * d.T @ a, atol=1e-5)
    np.testing.assert_allclose(after["w.bias"], b - 0.1 * d.sum(0), atol=1e-5)
    assert abs(done.grad_norm - np.sqrt(((d.T @ a) ** 2).sum() + (d.sum(0) ** 2).sum())) < 1e-4


@pytest.mark.parametrize("kind", ["AdamW", "Adam", "SGD"])
def test_losses_are_those_of_torch(kind):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 3)).double()
    weights = {f"net.{n}": p.detach().float().numpy() for n, p in net.named_parameters()}
    options = {"lr": 1e-2, "weight_decay": 0.1} if kind != "SGD" else {"lr": 0.2, "momentum": 0.9}
    g = vkf.Graph()
    x, t = g.input("x", [40, 8]), g.input("t", [40], "int32")
    with vkf.Scope(g, "net"):
        h = vkf.gelu(vkf.torch.layer_norm_layer(vkf.linear_layer(x, "0", 16), "1"))
        loss = vkf.cross_entropy(vkf.linear_layer(h, "3", 3), t)
    step = vkf.Trainer(g, loss, getattr(vkf, kind)(**options), weights=weights, max_norm=0.5)
    optimizer = getattr(torch.optim, kind)(net.parameters(), **options)
    for _ in range(10):
        optimizer.zero_grad()
        want = torch.nn.functional.cross_entropy(net(torch.from_numpy(X).double()), torch.from_numpy(T))
        want.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        done = step(x=X, t=T)
        assert abs(done.loss - want.item()) < 2e-4 and abs(done.grad_norm - norm.item()) < 1e-3
    for name, p in net.named_parameters():
        np.testing.assert_allclose(step.state_dict()[f"net.{name}"], p.detach().numpy(), atol=2e-4)


def test_fitting_shows_a_bar_where_it_is_told_to(monkeypatch):
    import io
    import sys

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def losses(**options):
        g, loss = classifier()
        return vkf.Trainer(g, loss, vkf.AdamW(lr=1e-2), seed=1).fit([{"x": X, "t": T}] * 5, **options)

    for screen, options, shown in ((Terminal(), {}, False), (Terminal(), {"progress": True}, True), (io.StringIO(), {"progress": True}, False)):
        monkeypatch.setattr(sys, "stderr", screen)
        found = losses(**options)
        assert len(found) == 5 and found[-1] < found[0] and ("training [" in screen.getvalue()) == shown
    g, loss = classifier()
    step = vkf.Trainer(g, loss, vkf.AdamW(lr=1e-2), seed=1)
    assert [step(x=X, t=T).loss for _ in range(5)] == found


def test_accumulation_and_resuming(tmp_path):
    def make():
        g, loss = classifier()
        return vkf.Trainer(g, loss, vkf.AdamW(lr=1e-2), accumulates=True, seed=4)

    whole, parts = make(), make()
    for _ in range(3):
        whole(x=X, t=T)
        parts.accumulate(x=X[:10], t=T[:10], weight=10)
        parts(x=X[10:], t=T[10:], weight=30)
    for name, a in whole.state_dict().items():
        np.testing.assert_allclose(parts.state_dict()[name], a, atol=2e-4, err_msg=name)
    whole.save(tmp_path / "training.safetensors")
    again = make()
    again.resume(tmp_path / "training.safetensors")
    assert again.step == 3 and again(x=X, t=T).loss == whole(x=X, t=T).loss


def test_what_is_accumulated_is_not_lost_by_saving(tmp_path):
    g, loss = classifier()
    step = vkf.Trainer(g, loss, accumulates=True)
    step.accumulate(x=X, t=T)
    with pytest.raises(ValueError, match="1 micro-batches are accumulated"):
        step.save(tmp_path / "training.safetensors")
    step(x=X, t=T)
    step.save(tmp_path / "training.safetensors")


def test_a_step_that_fails_drops_what_was_accumulated():
    def failing(step):
        with pytest.raises(ValueError, match="has the shape"):
            step(x=X[:, :1], t=T)

    def dropping(step):
        step.drop_micro_batches()

    def refusing(step):
        with pytest.raises(ValueError, match="is of float64"):
            step.accumulate(x=X.astype(np.float64), t=T)

    norms = []
    for between in (failing, dropping, refusing):
        g, loss = classifier()
        step = vkf.Trainer(g, loss, accumulates=True, seed=4)
        if between is not refusing:
            step.accumulate(x=X * 100, t=T, weight=9)
        between(step)
        norms.append(step(x=X, t=T).grad_norm)
    assert norms[0] == norms[1] == norms[2]
    g, loss = classifier()
    kept = vkf.Trainer(g, loss, accumulates=True, seed=4)
    kept.accumulate(x=X * 100, t=T, weight=9)
    refusing(kept)
    assert kept(x=X, t=T).grad_norm != norms[0]


@pytest.mark.parametrize("accumulates", [False, True])
def test_an_empty_batch_takes_no_step(accumulates):
    g, loss = classifier()
    step = vkf.Trainer(g, loss, vkf.SGD(lr=0.1, weight_decay=0.5), accumulates=accumulates)
    before = step.state_dict()
    for call in (step, step.accumulate) if accumulates else (step,):
        with pytest.raises(ValueError, match=r"step 0: the input x is .*a batch of nothing"):
            call(x=X[:0], t=T[:0])
    for name, a in step.state_dict().items():
        np.testing.assert_array_equal(a, before[name])
    assert step.step == 0 and step(x=X, t=T).loss > 0


def test_the_program_of_a_step_is_not_called():
    g, loss = classifier()
    step = vkf.Trainer(g, loss, vkf.SGD(lr=0.1), train="*", seed=3)
    before = step.state_dict()
    for call in (lambda: step.program(), lambda: step.program(x=X, t=T)):
        with pytest.raises(ValueError, match="a model's own and is not called"):
            call()
    after = step.state_dict()
    assert step.step == 0 and all((before[name] == after[name]).all() for name in before)
    with pytest.raises(ValueError, match='fits "b.\\*"'):
        vkf.Trainer(*classifier(), train="b.*")


@pytest.mark.parametrize("optimizer", [vkf.SGD(lr=0.1), vkf.SGD(lr=0.1, weight_decay=0.5), vkf.AdamW(weight_decay=0),
                                       vkf.AdamW(lr=0.1, weight_decay=0.01)])
def test_a_bias_of_minus_infinity_stays(optimizer):
    g = vkf.Graph()
    loss = vkf.cross_entropy(g.input("x", [2, 3]) + g.weight("b", [3]), g.input("t", [2], "int32"))
    step = vkf.Trainer(g, loss, optimizer, weights={"b": np.array([0, -np.inf, 0.5], np.float32)})
    for _ in range(2):
        assert np.isfinite(step(x=array(2, 3), t=np.array([0, 2], np.int32)).loss)
    b = step.state_dict()["b"]
    assert b[1] == -np.inf and np.isfinite(b[[0, 2]]).all() and (b[[0, 2]] != [0, 0.5]).all()


def test_some_parameters_stay():
    g, loss = classifier()
    weights = {"net.first.weight": array(16, 8), "net.first.bias": array(16)}
    step = vkf.Trainer(g, loss, vkf.SGD(lr=0.1), weights=weights, train=["net.last.*"])
    assert step.parameters == ["net.last.weight", "net.last.bias"]
    step(x=X, t=T)
    g, loss = classifier()
    with pytest.raises(ValueError, match="net.first.weight"):
        vkf.Trainer(g, loss, train=["net.last.*"])
    g, loss = classifier()
    with pytest.raises(ValueError, match="nothing"):
        vkf.Trainer(g, loss, train=["nothing*"])


def test_wrong_batches():
    g, loss = classifier()
    step = vkf.Trainer(g, loss)
    for batch, words in (({"x": X[:, :4], "t": T}, "x"), ({"y": X}, "y"), ({"x": X[0], "t": T}, "x")):
        with pytest.raises(ValueError, match=words):
            step(batch)
    with pytest.raises(ValueError):
        step(x=np.full((4, 8), np.nan, np.float32), t=T[:4])
    step(x=X, t=T)


def square(dtype="float32"):
    """A trainer of w whose loss is the sum of w * x + y, and its inputs' sizes."""
    g = vkf.Graph()
    a, b = g.symbol("a", 8), g.symbol("b", 8)
    x, y = g.input("x", [a, b], dtype), g.input("y", [a, b])
    z = g.input("z", [a + 1])
    x = vkf.to(x, "float32") if dtype != "float32" else x
    w = g.weight("w", [1])
    return vkf.Trainer(g, vkf.sum(x * w + y) + vkf.sum(z), vkf.SGD(lr=0.0), weights={"w": np.ones(1, np.float32)})


def test_sizes_that_contradict_each_other_are_refused():
    step = square()
    x, z = np.ones((2, 3), np.float32), np.zeros(3, np.float32)
    assert step(x=x, y=x, z=z).loss == 12
    for batch, sizes, words in (({"x": x, "y": x.T, "z": z}, {}, r"y: a is 3 in y \(3, 2\), and 2 in x"),
                                ({"x": x, "y": x, "z": z}, {"b": 4}, r"x: b is 3 in x \(2, 3\), and 4 as given"),
                                ({"x": x, "y": x, "z": z[:2]}, {}, r"z: has the shape .*now \(3,\), and \(2,\) was given"),
                                ({"x": np.ones((9, 3), np.float32), "y": x, "z": z}, {}, "a is 2 in y"),
                                ({"x": np.ones((9, 3), np.float32), "y": np.ones((9, 3), np.float32), "z": z}, {}, "a: is 9; its largest is 8")):
        with pytest.raises(ValueError, match=words):
            step(batch, sizes=sizes)
    assert step(x=x, y=x, z=z).loss == 12 and step(x=x.T, y=x.T, z=np.zeros(4, np.float32)).loss == 12


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_arrays_of_16_bits_are_read_as_their_type(dtype):
    step = square(dtype)
    y, z = np.zeros((2, 3), np.float32), np.zeros(3, np.float32)
    for x in (np.full((2, 3), 1.5, np.float16), np.full((2, 3), 1.5, np.float32)):
        assert step(x=x, y=y, z=z).loss == 9
        assert step(x=x, y=x.astype(np.float16), z=z).loss == 18
    if importlib.util.find_spec("ml_dtypes"):
        assert step(x=np.full((2, 3), 1.5, importlib.import_module("ml_dtypes").bfloat16), y=y, z=z).loss == 9


def test_a_refused_trainer_leaves_the_graph_as_it_was():
    w = np.zeros((3, 4), np.float32)

    def described():
        g = vkf.Graph()
        rows = g.symbol("rows", 8)
        x, t = g.input("x", [rows, 4]), g.input("t", [rows], "int32")
        return g, vkf.cross_entropy(vkf.linear_layer(x, "a", 3) + g.weight("c", [3]), t)

    other = described()[1]
    refused = (dict(train=["*.bias"]), dict(train=["*.bias", "z*"]), dict(weights={"a.wieght": w}), dict(weights={"a.weight": w.T}),
               dict(weights={"a.weight": w.astype(np.float64)}), dict(train=["*.weight"], weights={"a.bias": w, "c": w[:, 0]}),
               dict(train=["*.weight"], weights={"a.bias": np.zeros(3, np.int32), "c": w[:, 0]}), dict(max_norm=-1.0), dict(loss_scale=-1.0),
               dict(optimizer=vkf.AdamW(lr=-1.0)), dict(schedule=vkf.Schedule("linear", 0, 0)), dict(decay_to=lambda name: 1 / 0), dict(loss=other))
    for options in refused:
        g, loss = described()
        before = (repr(g), g.weights)
        with pytest.raises((ValueError, ZeroDivisionError)):
            vkf.Trainer(g, options.get("loss", loss), **{n: o for n, o in options.items() if n != "loss"})
        assert (repr(g), g.weights) == before, options
        step = vkf.Trainer(g, loss, weights={"a.weight": w + 1}, optimizer=vkf.SGD(0.5))
        assert step.parameters == ["a.weight", "a.bias", "c"]
        step(x=np.ones((3, 4), np.float32), t=[0, 1, 1])
        assert all((a != b).any() for a, b in zip(step.state_dict().values(), (w + 1, w[:, 0], w[:, 0])))


def test_an_output_of_the_step_s_name_is_refused_before_the_graph_changes():
    for name in ("loss", "grad_norm"):
        g = vkf.Graph()
        x = g.input("x", [1, 4])
        loss = vkf.cross_entropy(vkf.linear_layer(x, "a", 3), g.input("t", [1], "int32"))
        g.output(name, vkf.relu(x))
        for _ in range(2):
            with pytest.raises(ValueError, match=f"{name}: the graph has an output of that name"):
                vkf.Trainer(g, loss)
        assert g.weights


def test_batches_of_doubles_are_refused_unless_written_out():
    step = square()
    y, z = np.zeros((1, 3), np.float32), np.zeros(2, np.float32)
    assert step(x=[[0.5, 1.0, 1.5]], y=y, z=z).loss == 3
    numbers = array_module.array("d", [0.5, 1.0, 1.5])
    for x in (np.ones((1, 3)), memoryview(numbers).cast("B").cast("d", [1, 3]), memoryview(np.ones((1, 3)))):
        with pytest.raises(ValueError, match="x: is of float64"):
            step(x=x, y=y, z=z)
    with pytest.raises(ValueError, match="z: is of float64"):
        step(x=y, y=y, z=numbers[:2])
    with pytest.raises(ValueError, match="masked array"):
        step(x=[np.ma.array([1, 2, 3], mask=[1, 0, 0], dtype=np.float32)], y=y, z=z)


def test_recomputed_blocks():
    def losses(block):
        g = vkf.Graph()
        x, t = g.input("x", [40, 8]), g.input("t", [40], "int32")
        if block:
            with vkf.Recompute(g):
                h = vkf.gelu(vkf.linear_layer(x, "a", 16))
        else:
            h = vkf.gelu(vkf.linear_layer(x, "a", 16))
        step = vkf.Trainer(g, vkf.cross_entropy(vkf.linear_layer(h, "b", 3), t), seed=1)
        return [step(x=X, t=T).loss for _ in range(3)]

    assert losses(True) == losses(False)
