# SPDX-License-Identifier: Apache-2.0
"""What holds at the second call, beside another feature, or at the edge of what may be given."""

import copy
import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from conftest import ROOT

import vkformer as vkf
from vkformer import eager

ONES, ZEROS = np.ones((3, 4), np.float32), np.zeros((3, 4), np.float32)


def sum_of_two(device):
    g = vkf.Graph()
    g.output("y", vkf.scale(g.input("x", [3, 4]), 2.0) + g.input("z", [3, 4]))
    return device.compile(g)


# --- bind() ----------------------------------------------------------------------------------


def test_what_is_bound_stays_bound_over_calls(device):
    p = sum_of_two(device)
    five, seven, out = device.tensor(5 * ONES), device.tensor(7 * ONES), device.tensor(ZEROS)
    p.bind("x", five)
    assert p(z=ZEROS)["y"][0, 0] == 10
    assert p(x=seven, z=ZEROS)["y"][0, 0] == 14
    assert p(z=ZEROS)["y"][0, 0] == 10
    p.bind("y", out)
    assert p.tensors(z=ZEROS)["y"].numpy()[0, 0] == 10
    assert out.numpy()[0, 0] == 0
    p.upload("z", ONES)
    p.run()
    assert out.numpy()[0, 0] == 11
    p.bind("y", None)
    assert p.tensors(z=ZEROS)["y"].numpy()[0, 0] == 10


def test_an_array_takes_the_place_of_what_was_bound(device):
    p = sum_of_two(device)
    p.bind("x", device.tensor(5 * ONES))
    assert p(x=ONES, z=ZEROS)["y"][0, 0] == 2
    with pytest.raises(ValueError, match="x: is an input, and was not given"):
        p(z=ZEROS)


def test_a_refused_call_keeps_what_was_bound(device):
    p = sum_of_two(device)
    p.bind("x", device.tensor(5 * ONES))
    for wrong in (dict(z=np.ones((3, 5), np.float32), x=ONES), dict(x=ONES, z=np.ones(4, np.float32))):
        with pytest.raises(ValueError, match="z: has the shape"):
            p(**wrong)
        assert p(z=ZEROS)["y"][0, 0] == 10


def test_a_call_that_is_refused_behind_an_upload_keeps_what_was_bound(device):
    p = sum_of_two(device)
    p.bind("x", device.tensor(5 * ONES))
    with pytest.raises(ValueError, match="a tensor of I32 was given"):
        p(x=ONES, z=device.tensor(np.zeros((3, 4), np.int32)))
    assert p(z=ZEROS)["y"][0, 0] == 10
    assert p(x=ONES, z=device.tensor(ZEROS))["y"][0, 0] == 2
    with pytest.raises(ValueError, match="x: is an input, and was not given"):
        p(z=ZEROS)
    g = vkf.Graph()
    rows = g.symbol("rows", 8)
    x, z, w = (g.input(name, [rows, 4]) for name in "xzw")
    g.output("y", x + z + w)
    p = device.compile(g)
    p.bind("x", device.tensor(5 * ONES))
    p.bind("w", device.tensor(2 * ONES))
    with pytest.raises(ValueError, match="w: is"):  # which has three rows
        p(x=np.ones((5, 4), np.float32), z=np.ones((5, 4), np.float32))
    assert p(z=ZEROS)["y"][0, 0] == 7


def test_a_call_with_a_bound_output_is_refused_before_it_runs(device):
    p = sum_of_two(device)
    out = device.tensor(7 * ONES)
    p.bind("y", out)
    with pytest.raises(ValueError, match="y: is bound to a tensor"):
        p(x=ONES, z=ZEROS)
    assert out.numpy()[0, 0] == 7
    p.bind("y", None)
    assert p(x=ONES, z=ZEROS)["y"][0, 0] == 2


# --- functions of arrays -----------------------------------------------------------------------


def test_results_have_the_16_bits_of_the_first_floating_array(device):
    types = pytest.importorskip("ml_dtypes")
    ids, table = np.array([2, 0]), np.arange(12, dtype=np.float32).reshape(3, 4).astype(types.bfloat16)

    class Kept(np.ndarray):
        pass

    class Rows(vkf.nn.Module):
        def describe(self, ids, table):
            return vkf.embedding(ids, table)

    for call in (vkf.function(lambda ids, table: vkf.embedding(ids, table), device=device), Rows(), vkf.embedding):
        rows = call(ids, table)
        assert rows.dtype == table.dtype
        np.testing.assert_array_equal(rows, table[ids])
        assert call(ids, table.view(Kept)).dtype == table.dtype
    assert vkf.embedding(ids, table.astype(np.float16)).dtype == np.float16
    assert vkf.embedding(ids, table.astype(np.float32)).dtype == np.float32


def test_options_that_are_equal_and_not_the_same_have_programs_of_their_own(device):
    f = vkf.function(lambda x, n: vkf.scale(x, 7.0 if n is True else 3.0), device=device)
    assert f(ONES, n=1)[0, 0] == 3
    assert f(ONES, n=True)[0, 0] == 7
    assert f(ONES, n=1.0)[0, 0] == 3


def test_names_of_arguments_do_not_clash_with_ours(device):
    assert vkf.function(lambda y0: vkf.scale(y0, 2.0), device=device)(ONES)[0, 0] == 2
    assert vkf.function(lambda x1, *rest: x1 + rest[0] + rest[1], device=device)(ONES, ONES, ONES)[0, 0] == 3
    y, z = vkf.function(lambda y0, y_1: (y0 + y_1, y0), device=device)(ONES, 2 * ONES)
    assert y[0, 0] == 3 and z[0, 0] == 1


def test_errors_name_the_argument_of_a_method(device):
    class Model:
        def forward(self, hidden):
            return vkf.scale(hidden, 2.0)

    with pytest.raises(ValueError, match="forward: hidden: is of float64"):
        vkf.function(Model().forward, device=device)(np.ones((2, 2)))


def test_functions_that_give_or_take_nothing_say_so(device):
    with pytest.raises(TypeError, match="gave a NoneType as a result"):
        vkf.function(lambda x: None, device=device)(ONES)
    with pytest.raises(TypeError, match="takes at least one array"):
        vkf.function(lambda: None, device=device)()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_the_child_of_a_fork_waits_for_no_lock_of_its_parent(device):
    held, done = threading.Event(), threading.Event()

    def hold():
        with eager._lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            vkf.function(lambda x: vkf.scale(x, 2.0), device=device)(ONES)
        except vkf.Error:
            os._exit(0)
        os._exit(1)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("threads", [1, 3])
def test_daemon_threads_do_not_end_the_process(threads):
    program = f"""
import numpy as np, vkformer as vkf, threading, time
g = vkf.Graph()
x = g.input("x", [64, 256])
g.output("y", vkf.matmul(x, x, transpose_b=True))
p = vkf.Device().compile(g)
started = threading.Semaphore(0)
def loop():
    p(x=np.ones((64, 256), np.float32))
    started.release()
    while True:
        p(x=np.ones((64, 256), np.float32))
for _ in range({threads}):
    threading.Thread(target=loop, daemon=True).start()
for _ in range({threads}):
    started.acquire()
time.sleep(0.05)
"""
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")


def test_zeros_of_both_signs_have_programs_of_their_own(device):
    f = vkf.function(lambda x, *, a: vkf.scale(x, 1.0 if str(a)[0] == "-" else 2.0), device=device)
    assert f(ONES, a=0.0)[0, 0] == 2 and f(ONES, a=-0.0)[0, 0] == 1 and f(ONES, a=0.0)[0, 0] == 2


def test_functions_may_be_made_while_programs_are_cleared():
    wrong, ended = [], threading.Event()

    def make():
        keep = []
        while not ended.is_set():
            keep.append(vkf.function(lambda x: x))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=make)
    thread.start()
    try:
        until = time.perf_counter() + 2
        while time.perf_counter() < until and not wrong:
            try:
                vkf.clear_programs()
            except RuntimeError as e:
                wrong.append(e)
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(before)
    assert not wrong


def test_the_examples_of_functions_are_right():
    x, factor = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8), np.linspace(0, 2, 8, dtype=np.float32)
    texts = [ROOT.joinpath("docs/python.md").read_text(), vkf.function.__doc__]
    for text, name in zip(texts, ("gated", "swish")):
        (line,) = [line.strip() for line in text.splitlines() if line.strip().startswith(f"{name} = vkf.function(")]
        names = {"vkf": vkf}
        exec(line, names)
        for by in (factor, factor[:1]):
            np.testing.assert_allclose(names[name](x, by), x / (1 + np.exp(-x * by)), atol=1e-6)
            np.testing.assert_allclose(names[name](x[:2], by), x[:2] / (1 + np.exp(-x[:2] * by)), atol=1e-6)


# --- downloads -------------------------------------------------------------------------------


def test_downloads_have_the_shape_of_their_run(device):
    g = vkf.Graph()
    a, b = g.symbol("a", 8), g.symbol("b", 8)
    g.output("y", vkf.scale(g.input("x", [a, b]), 1.0))
    program = device.compile(g)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)

    def wait():
        program.upload("x", x)
        program.submit().wait()

    def run():
        program.upload("x", x)
        program.run()

    for begin in (lambda: program(x=x), run, wait):
        program.set("a", 2)
        program.set("b", 3)
        begin()
        program.set("a", 3)
        program.set("b", 2)
        np.testing.assert_array_equal(program.download("y"), x)
        program.set("b", 7)
        np.testing.assert_array_equal(program.download("y"), x)
        with pytest.raises(ValueError):
            program(x=np.ones((4, 5), np.float32), a=4, b=4)
        np.testing.assert_array_equal(program.download("y"), x)


def test_downloads_of_a_trainers_program_have_the_shape_of_their_run():
    g = vkf.Graph()
    x = g.input("x", [g.symbol("n", 64), 4])
    y = vkf.linear_layer(x, "w", 4)
    g.output("y", vkf.scale(y, 1.0))
    step = vkf.Trainer(g, vkf.sum(y))
    step(x=np.ones((3, 4), np.float32))
    assert step.program.download("y").shape == (3, 4)
    step.program.set("n", 64)
    with pytest.raises(ValueError, match=r"y: has 12 elements of the last run, and its shape is \(64, 4\) now"):
        step.program.download("y")


# --- graphs --------------------------------------------------------------------------------


def test_indices_have_one_ellipsis_and_may_have_steps_of_one():
    g = vkf.Graph()
    x = g.input("x", [2, 3, 4])
    with pytest.raises(ValueError, match="one ellipsis at most"):
        x[..., ..., 0]
    assert x[0:1:1].shape == (1, 3, 4)
    with pytest.raises(ValueError, match="steps of 1"):
        x[0:2:2]


def test_sizes_beyond_their_symbols_are_refused_and_quotients_that_do_not_fit_are_none():
    g = vkf.Graph()
    n = g.symbol("n", 8)
    assert (4 * n).eval({"n": 8}) == 32
    with pytest.raises(ValueError, match="n: is 4611686018427387904; its largest is 8"):
        (4 * n).eval({"n": 2**62})
    with pytest.raises(ValueError):
        (n + (-(2**63))) // -1


def test_a_ring_of_another_graph_is_refused(device):
    g, other = vkf.Graph(), vkf.Graph()
    g.symbol("a", 4)
    row = other.symbol("b", 4)
    q, k, v = g.input("q", [1, 1, 1, 4]), g.input("k", [1, 1, 4, 4]), g.input("v", [1, 1, 4, 4])
    with pytest.raises(ValueError, match="another graph"):
        vkf.attention(q, k, v, ring=vkf.RingRows(row, 2, 4))


def test_what_holds_values_keeps_their_graphs():
    def pages():
        gone = vkf.Graph()
        table, lengths = gone.input("t", [1, 2], "int32"), gone.input("l", [1], "int32")
        return vkf.PagedKvCache(g.state("k", [2, 2, 1, 4]), g.state("v", [2, 2, 1, 4]), table, lengths)

    g = vkf.Graph()
    cache = pages()
    gc.collect()
    others = [vkf.Graph() for _ in range(3)]
    assert cache.table.shape == (1, 2) and cache.lengths.shape == (1,)
    with pytest.raises(ValueError, match="another graph|of different graphs|two graphs"):
        vkf.paged_attention(g.input("q", [1, 1, 1, 4]), cache)
    assert len(others) == 3


@pytest.mark.parametrize("length", [2**32, 2**62])
def test_tables_that_no_device_holds_take_no_memory(length):
    start = time.monotonic()
    with pytest.raises(ValueError, match="more than 2"):
        vkf.sinusoidal_positions(vkf.Graph(), length, 2)
    with pytest.raises(ValueError, match="more than 2"):
        vkf.rope_table(vkf.Rope(layout="half", max_positions=length), 4)
    assert time.monotonic() - start < 5


def test_adapters_take_rows_without_a_batch(device):
    g = vkf.Graph()
    vkf.Lora(g, vkf.LoraOptions(targets=["*"]))
    g.output("y", vkf.linear_layer(g.input("x", [3]), "a", 4))
    state = device.make_state([g])
    assert device.compile(g, device.load({"a.weight": np.ones((4, 3), np.float32), "a.bias": np.zeros(4, np.float32)}),
                          state=state)(x=np.ones(3, np.float32))["y"].shape == (4,)


# --- numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{"dampening": float("nan")}, {"dampening": float("inf")}, {"momentum": 1e300},
                                   {"lr": 1e300}])
def test_numbers_that_no_float_holds_are_refused(wrong):
    g = vkf.Graph()
    w = g.state("w", [4])
    loss = vkf.sum_to(w * w, [1])
    with pytest.raises(ValueError, match="not finite"):
        vkf.update([w], vkf.gradients(loss, [w]), vkf.SGD(**{"momentum": 0.9, **wrong}))


def test_a_schedule_has_a_factor_at_every_step():
    assert vkf.Schedule(kind="constant", warmup=10).at(2**63 - 1) == 1


def test_options_that_are_no_numbers_are_refused(device):
    with pytest.raises(ValueError, match="wait_seconds is not a number"):
        vkf.Device(wait_seconds=float("nan"))
    with pytest.raises(ValueError, match="submit_budget is not a number"):
        vkf.Device(submit_budget=float("nan"))
    with pytest.raises(ValueError, match="seconds is not a number"):
        device.self_test(seconds=float("nan"))


def test_ranks_of_one_process_have_a_bound():
    with pytest.raises(ValueError, match="16000 ranks are more than 4096"):
        vkf.local_communicators(16000)


def test_what_bfloat16_gives_it_takes(device):
    g = vkf.Graph()
    g.state("b", [2, 3], "bfloat16")
    state = device.make_state([g])
    given = np.array([[1, 1.00390625, 1.01171875], [-2.5, np.inf, np.nan]], np.float32)
    state["b"] = given
    kept = state["b"]
    assert kept[0].tolist() == [1, 1, 1.015625] and kept[1, :2].tolist() == [-2.5, np.inf] and np.isnan(kept[1, 2])
    state["b"] = kept
    assert np.array_equal(state["b"], kept, equal_nan=True)
    tensor = device.make_tensor([2, 2], "bfloat16")
    tensor.write(np.full((2, 2), 3, np.float32))
    tensor.write(tensor.numpy())
    assert (tensor.numpy() == 3).all()


def test_fields_of_records_and_scalars_are_arrays(device):
    records = np.zeros(3, dtype=[("kind", "u1"), ("x", "f4", (4,))])
    records["x"] = 5
    assert sum_of_two(device)(x=records["x"], z=ZEROS)["y"][0, 0] == 10
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert float(vkf.function(lambda x: vkf.scale(x, 2.0), device=device)(ml_dtypes.bfloat16(3))) == 6


def test_ctrl_c_ends_loading_that_reports_no_progress(device):
    weights = {f"w{i}": np.ones((1024, 2048), np.float32) for i in range(8)}
    start = time.monotonic()
    device.load(weights, matrices="int4")
    whole = time.monotonic() - start

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, whole * 0.2)
        with pytest.raises(KeyboardInterrupt):
            device.load(weights, matrices="int4")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_functions_can_be_copied():
    one = vkf.function(lambda x: vkf.scale(x, 2))
    x = np.ones(3, np.float32)
    for _ in range(2):  # the second time with programs
        for made in (copy.copy(one), copy.deepcopy(one)):
            assert made(x).tolist() == [2, 2, 2] and made.program(x) is not one.program(x)
            vkf.clear_programs()
            assert repr(made) == repr(one) == "<Function <lambda>: 0 programs>"
            one(x)
