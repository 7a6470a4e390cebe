# SPDX-License-Identifier: Apache-2.0
"""Long calls let other threads of Python go on."""

import sys
import threading
import time

import numpy as np
import pytest
from conftest import ROOT

import vkformer as vkf

GENERATE = ROOT / "samples/generate"
needs_text = pytest.mark.skipif(not vkf._vkformer.has_text, reason="built without tokenizers")


class Counter:
    """Counts in a thread of its own, whenever it may run."""

    def __enter__(self):
        self.times, self.stopped = [], False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        while not self.times:
            time.sleep(0.001)
        return self

    def run(self):
        while not self.stopped:
            self.times.append(time.perf_counter())
            time.sleep(0.001)

    def __exit__(self, *_):
        self.stopped = True
        self.thread.join()


@pytest.fixture(autouse=True)
def kept_lock():
    """Python itself does not take the lock from who has it: others run where it is given up, or not at all."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


def counted(call):
    """Calls for a while. How often the other thread ran, and the share of a call that it waited at most."""
    with Counter() as counter:
        start = end = time.perf_counter()
        longest = 0.0
        while end - start < 0.3:
            began = end
            call()
            end = time.perf_counter()
            longest = max(longest, end - began)
    inside = [t for t in counter.times if start <= t <= end]
    gap = max(b - a for a, b in zip([start, *inside], [*inside, end]))
    return len(inside), gap / max(longest, 0.1)


def goes_on(call, attempts=20):
    """The other thread runs while calls do, and no call keeps it waiting for most of its length.

    A busy machine, too, keeps threads waiting, once; a call that keeps the lock does it each time.
    """
    seen = []
    for _ in range(attempts):
        seen.append(counted(call))
        if seen[-1][0] > 10 and seen[-1][1] < 0.6:
            return
    pytest.fail(f"runs of the other thread, and the share of a call that it waited: {seen}")


def test_what_keeps_the_lock_is_seen():
    text = b"ab" * 100_000_000
    assert counted(lambda: text.count(b"ba"))[0] == 0
    with pytest.raises(pytest.fail.Exception, match="the other thread"):
        goes_on(lambda: text.count(b"ba"), 2)

    def mostly():  # a loop of Python's own keeps the lock as well
        until = time.perf_counter() + 0.2
        while time.perf_counter() < until:
            pass
        time.sleep(0.01)

    with pytest.raises(pytest.fail.Exception, match="the other thread"):
        goes_on(mostly, 2)


def test_runs_and_tensors(device):
    g = vkf.Graph()
    x = g.input("x", [768, 768])
    for _ in range(6):
        x = vkf.matmul(x, x)
    g.output("y", x)
    program = device.compile(g)
    a = np.eye(768, dtype=np.float32)
    goes_on(lambda: program(x=a))
    t = device.tensor(a)
    goes_on(lambda: program.tensors(x=t)["y"].numpy())
    program.upload("x", a)
    goes_on(lambda: program.submit().wait())


def test_the_end_of_a_program_that_is_at_work(device):
    g = vkf.Graph()
    x = g.input("x", [768, 768])
    for _ in range(12):
        x = vkf.matmul(x, x)
    g.output("y", x)
    a = np.eye(768, dtype=np.float32)

    def call():
        program = device.compile(g)
        program.upload("x", a)
        program.submit()

    goes_on(call)


def test_making_states(device):
    g = vkf.Graph()
    g.state("s", [96, 1024, 1024])
    goes_on(lambda: device.make_state([g]))


def described(count=3):
    g = vkf.Graph()
    x = g.input("x", [1, g.symbol("tokens", 64), 64])
    for i in range(count):
        with vkf.Scope(g, f"layers.{i}"):
            x = x + vkf.grouped_query_attention(x, name="attn", heads=8, kv_heads=2, rope=vkf.Rope(layout="half"))
    return g, x


def test_compiling(tmp_path):
    def compile():
        # no pipelines to take from
        device = vkf.Device(cache_folder=tmp_path / str(time.perf_counter_ns()))
        g, x = described()
        g.output("y", x)
        device.compile(g, {n: np.zeros(s, np.float32) for n, (s, _) in g.weights.items()})

    goes_on(compile)


def test_making_a_trainer(tmp_path):
    def make():
        device = vkf.Device(cache_folder=tmp_path / str(time.perf_counter_ns()))
        g, x = described(1)
        vkf.Trainer(g, vkf.sum(x), device=device)

    goes_on(make)


def test_steps():
    g, x = described()
    step = vkf.Trainer(g, vkf.sum(x * x))
    batch = np.random.default_rng(1).standard_normal((1, 64, 64)).astype(np.float32) * 0.1
    goes_on(lambda: step(x=batch))


def test_loading(device):
    w = {"w": np.ones((2048, 4096), np.float32)}
    goes_on(lambda: device.load(w, matrices="int8", pack_on="host"))


def test_models(device):
    goes_on(lambda: vkf.load_decoder(GENERATE, max_tokens=64))
    model = vkf.load_decoder(GENERATE, max_tokens=64)
    goes_on(lambda: model.generate([1, 25, 272]))
    goes_on(lambda: model.prompt([[1] * 60]))


@needs_text
def test_encoding():
    encoder = vkf.load_text_encoder(ROOT / "tests/text/bert")
    goes_on(lambda: encoder.encode(["a b c"] * 64))
    tokenizer = vkf.Tokenizer(GENERATE)
    long = "7 is seven. " * 20000
    goes_on(lambda: tokenizer.encode(long))


def test_several_devices_at_once():
    x = np.linspace(-1, 1, 4096, dtype=np.float32).reshape(64, 64)
    devices = [vkf.Device() for _ in range(3)]
    functions = [vkf.function(lambda a, n=n: vkf.softmax(a * float(n + 1)), device=d) for n, d in enumerate(devices)]
    want = [f(x) for f in functions]
    wrong = []

    def work(n):
        for _ in range(20):
            if not np.array_equal(functions[n](x), want[n]):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and not any(d.messages() for d in devices)
