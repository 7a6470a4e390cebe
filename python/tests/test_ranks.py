# SPDX-License-Identifier: Apache-2.0
"""Several ranks in one process: a thread each."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from conftest import ROOT

import vkformer as vkf


def on_ranks(ranks, work):
    out, errors = [None] * ranks, [None] * ranks

    def run(communicator):
        try:
            out[communicator.rank] = work(communicator)
        except Exception as error:  # the others' threads end too
            errors[communicator.rank] = error

    communicators = vkf.local_communicators(ranks)
    threads = [threading.Thread(target=run, args=(c,)) for c in communicators]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out, errors


def test_collectives():
    def work(c):
        total = c.all_reduce(np.full(3, c.rank + 1, np.float32))
        c.agree("name", "same")
        return list(total), c.all_gather(b"ab" * c.rank), c.broadcast(bytes([c.rank]), 1), c.traffic().all_reduces

    out, errors = on_ranks(3, work)
    assert errors == [None] * 3
    assert out == [([6.0] * 3, [b"", b"ab", b"abab"], b"\x01", 1)] * 3


def test_bytes_from_one_to_another():
    def work(c):
        if c.rank == 0:
            return c.send(b"hidden", 1) or c.traffic().sends
        return c.receive(6, 0)

    out, errors = on_ranks(2, work)
    assert errors == [None] * 2
    assert out == [1, b"hidden"]


def test_ranks_that_differ_are_named():
    _, errors = on_ranks(2, lambda c: c.agree("model", f"model {c.rank}"))
    assert all("another model than" in str(e) for e in errors)


def test_layers(device):
    rng = np.random.default_rng(1)
    up, down, table = (rng.standard_normal(s).astype(np.float32) for s in ((8, 6), (6, 8), (10, 6)))
    ids = np.array([[3, 9, 0]], np.int32)

    def work(c):
        g = vkf.Graph()
        g.set_rank(c.rank, c.ranks)
        h = vkf.vocab_parallel_embedding(g.input("ids", [1, 3], "int32"), "table", 10, 6)
        y = vkf.row_parallel_linear(vkf.column_parallel_linear(h, "up", 8), "down", 8, 6, input_is_parallel=True)
        g.output("y", y)
        g.output("sum", vkf.all_reduce(h))
        g.output("first", vkf.broadcast(vkf.scale(h, float(c.rank)), 1))
        g.output("both", vkf.concat(vkf.all_gather(h, [6] * c.ranks), -1))
        mine = slice(4 * c.rank, 4 * c.rank + 4)
        weights = {"up.weight": up[mine], "down.weight": down[:, mine], "table": table[5 * c.rank:5 * c.rank + 5]}
        return device.compile(g, weights, communicator=c)(ids=ids)

    out, errors = on_ranks(2, work)
    assert errors == [None] * 2
    h = table[ids]
    for one in out:
        np.testing.assert_allclose(one["y"], h @ up.T @ down.T, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(one["sum"], 2 * h)
        np.testing.assert_array_equal(one["first"], h)
        np.testing.assert_array_equal(one["both"], np.concatenate([h, h], -1))


def test_a_program_of_ranks_needs_them(device):
    g = vkf.Graph()
    g.output("y", vkf.all_reduce(g.input("x", [4])))
    with pytest.raises(ValueError, match="communicator"):
        device.compile(g)


def test_ranks_with_halves_of_a_batch_learn_as_one_does(device):
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((4, 6, 3)).astype(np.float32), rng.standard_normal((4, 6, 2)).astype(np.float32)
    first = {"w": rng.standard_normal((2, 3)).astype(np.float32)}

    def learn(rows, communicator=None):
        g = vkf.Graph()
        n = g.symbol("n", 6)
        error = vkf.linear(g.input("x", [n, 3]), g.weight("w", [2, 3])) - g.input("y", [n, 2])
        loss = vkf.scale(vkf.sum(error * error), 1 / (2 * (rows.stop - rows.start)))
        step = vkf.Trainer(g, loss, vkf.SGD(lr=0.1), weights=first,
                           device=vkf.Device() if communicator else device, communicator=communicator)
        return [step({"x": x[i, rows], "y": y[i, rows]}).loss for i in range(4)]

    halves, errors = on_ranks(2, lambda c: learn(slice(3 * c.rank, 3 * c.rank + 3), c))
    assert errors == [None] * 2
    assert halves[0] == halves[1]
    np.testing.assert_allclose(halves[0], learn(slice(0, 6)), rtol=1e-5)


def test_ranks_that_import_numpy_together():
    code = """
import sys, threading
import vkformer as vkf
assert "numpy" not in sys.modules
out = {}
def run(c):
    out[c.rank] = list(c.all_reduce([1.0]))
threads = [threading.Thread(target=run, args=(c,)) for c in vkf.local_communicators(2)]
[t.start() for t in threads]
[t.join() for t in threads]
assert out == {0: [2.0], 1: [2.0]}, out
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_decoder_by_layers(device):
    folder = ROOT / "tests" / "decoders" / "llama"
    want = vkf.load_decoder(folder, device=device, max_tokens=24).generate([3, 1, 4, 1, 5], 8)

    def work(c):
        decoder = vkf.load_decoder(folder, device=vkf.Device(), max_tokens=24, chunk=2, communicator=c, split="layers",
                                   speeds=[1.0, 2.0])
        return decoder.generate([3, 1, 4, 1, 5], 8), c.traffic().all_reduces

    out, errors = on_ranks(2, work)
    assert errors == [None] * 2
    assert out == [(want, 0)] * 2
