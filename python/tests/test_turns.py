# SPDX-License-Identifier: Apache-2.0
"""Texts and steps do not mix: threads take turns, and a thread never waits for itself."""

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

GENERATE = ROOT / "samples/generate"
ONE, OTHER = [1, 25, 272], [1, 18, 272]


@pytest.fixture(scope="module")
def model():
    return vkf.load_decoder(GENERATE, max_tokens=64)


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """A decoder with score() and an adapter, and that adapter, which changes what is answered."""
    folder = tmp_path_factory.mktemp("adapter")
    checkpoint = vkf.Checkpoint(GENERATE)
    tuner = vkf.FineTuner(vkf.default_device(), checkpoint, vkf.read_decoder(checkpoint), max_batch=2, max_tokens=8,
                          lora=vkf.LoraOptions(rank=2, targets=["q_proj"]), optimizer=vkf.AdamW(1e-2))
    tuner.take_step([[*ONE, 296], [*OTHER, 353]])
    tuner.save(folder)
    return vkf.load_decoder(GENERATE, max_tokens=64, score=True, adapter=folder), vkf.Adapter(folder)


def in_threads(calls):
    out, threads = [None] * len(calls), []

    def work(i):
        try:
            out[i] = calls[i]()
        except Exception as e:  # told where it is asked for
            out[i] = e

    for i in range(len(calls)):
        threads.append(threading.Thread(target=work, args=(i,), daemon=True))
        threads[-1].start()
    for t in threads:
        t.join(60)
        assert not t.is_alive(), "waits for ever"
    for got in out:
        if isinstance(got, Exception):
            raise got
    return out


def texts(model, prompt, **options):
    return [list(model.stream_ids(prompt, 24, ignore_end=True, **options)) for _ in range(6)]


@pytest.mark.parametrize("options", [{}, {"temperature": 0.01, "top_k": 2}])
def test_texts_of_threads_do_not_mix(model, options):
    prompts = [ONE, OTHER, [1, 2, 3, 4]]
    want = [texts(model, p, **options) for p in prompts]
    got = in_threads([lambda p=p: texts(model, p, **options) for p in prompts])
    assert got == want


def test_a_text_within_a_text_is_refused(model):
    want = model.generate(ONE)
    open_stream = model.stream(ONE, 8)
    first = next(open_stream)
    for call in (lambda: model.generate(OTHER), lambda: list(model.stream(OTHER)), lambda: model.prompt([OTHER]),
                 lambda: model.step([1]), lambda: model.append([1]), lambda: model.restore_cache("nothing")):
        with pytest.raises(vkf.Error, match=r"close\(\)") as told:
            call()
        assert not isinstance(told.value, ValueError)
    assert [first, *open_stream] == want  # as if nothing had been asked
    drawn = {"temperature": 0.01, "top_k": 2}
    for one, other in (({}, drawn), (drawn, {})):  # whose programs are others
        stream = model.stream(ONE, 8, **one)
        first = next(stream)
        with pytest.raises(vkf.Error, match=r"close\(\)"):
            model.generate(OTHER, **other)
        assert [first, *stream] == want
    for end in (lambda s: s.close(), lambda s: None):
        stream = model.stream(ONE, 8)
        next(stream)
        end(stream)
        del stream
        assert model.generate(ONE) == want
    for token in model.stream(ONE):  # whoever leaves a loop leaves the text
        break
    assert model.generate(ONE) == want


@pytest.mark.parametrize("options", [{}, {"temperature": 0.01, "top_k": 2}])
def test_scores_and_adapters_within_a_text_are_refused(scored, options):
    decoder, adapter = scored
    decoder.set_adapter(adapter)
    want = list(decoder.stream(ONE, 8, **options))
    stream = decoder.stream(ONE, 8, **options)
    first = next(stream)
    calls = [decoder.clear_adapter, lambda: decoder.set_adapter(adapter)]
    for call in calls if options else [*calls, lambda: decoder.score([9, 10, 11])]:
        with pytest.raises(vkf.Error, match=r"close\(\)"):
            call()
    assert [first, *stream] == want  # and the adapter stayed where it was
    assert list(decoder.stream(ONE, 8, **options)) == want


def test_scores_and_adapters_wait_for_texts_of_threads(scored):
    decoder, adapter = scored
    decoder.set_adapter(adapter)
    want = texts(decoder, ONE)

    def other():
        for _ in range(20):
            decoder.score([9, 10, 11])
            decoder.set_adapter(adapter)

    assert in_threads([lambda: texts(decoder, ONE), other, lambda: texts(decoder, ONE)])[::2] == [want, want]


def test_another_thread_waits_for_an_open_text(model):
    want = model.generate(OTHER)
    stream = model.stream(ONE, 8)
    next(stream)
    got = []
    thread = threading.Thread(target=lambda: got.append(model.generate(OTHER)), daemon=True)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive() and not got
    stream.close()
    thread.join(60)
    assert got == [want]


def test_steps_of_threads_do_not_mix():
    def made():
        g = vkf.Graph()
        x, t = g.input("x", [g.symbol("n", 64), 4]), g.input("t", [4, 4])
        loss = vkf.sum(vkf.matmul(vkf.linear_layer(x, "w", 4, bias=False), t))
        return vkf.Trainer(g, loss, weights={"w.weight": np.eye(4, dtype=np.float32)}, optimizer=vkf.SGD(0.0))

    step = made()

    def losses(n):
        return [step(x=np.full((n, 4), n, np.float32), t=np.full((4, 4), n, np.float32)).loss for _ in range(30)]

    for n, got in zip(range(1, 5), in_threads([lambda n=n: losses(n) for n in range(1, 5)])):
        assert got == [16.0 * n**3] * 30


BUSY = "at work"


def test_runs_and_their_tickets_do_not_mix(device):
    graph = vkf.Graph()
    graph.output("y", vkf.scale(graph.input("x", [1000]), 2))
    program = device.compile(graph)
    want = np.full(1000, 4, np.float32)

    def runs(_):
        program.upload("x", np.full(1000, 2, np.float32))
        right = []
        for _ in range(50):
            ticket = program.submit()
            right.append(ticket.wait() and ticket.done() in (False, True) and (program.download("y") == want).all())
        return all(right)

    assert in_threads([lambda i=i: runs(i) for i in range(4)]) == [True] * 4


def test_programs_go_while_threads_wait_for_their_runs(device):
    g = vkf.Graph()
    x = g.input("x", [512, 512])
    y = g.state("w", [512, 512])
    for _ in range(4):
        y = vkf.matmul(y, x)
    g.output("y", y)
    state = device.make_state([g])
    programs = [device.compile(g, state=state) for _ in range(4)]
    zeros = np.zeros((512, 512), np.float32)

    def run():
        program = programs.pop()
        program.upload("x", zeros)
        ticket = program.submit()
        waiting = threading.Thread(target=ticket.wait, daemon=True)
        waiting.start()
        del program  # which waits for the same run, as write() may
        state.write("w", zeros + 1)
        waiting.join(60)
        return ticket.wait(60)

    assert in_threads([run] * 4) == [True] * 4
    assert (state["w"] == 1).all()


def test_what_is_bound_is_not_lost_to_calls_of_threads(device):
    g = vkf.Graph()
    g.output("y", g.input("x", [4]) * g.input("w", [4]))
    program = device.compile(g)
    tensors = [device.tensor(np.full(4, n, np.float32)) for n in range(3)]
    one, other, ended, wrong = np.ones(4, np.float32), device.tensor(np.full(4, 5, np.float32)), [], []
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work():
        while not ended:
            program(x=one, w=other)

    threads = [threading.Thread(target=work) for _ in range(2)]
    try:
        program.bind("w", tensors[0])
        for t in threads:
            t.start()
        until = time.perf_counter() + 4
        while time.perf_counter() < until and not wrong:
            for n, tensor in enumerate(tensors):
                program.bind("w", tensor)
                if program(x=one)["y"][0] != n:  # nobody else binds it
                    wrong.append(n)
    finally:
        ended.append(True)
        sys.setswitchinterval(before)
        for t in threads:
            t.join()
    assert not wrong


def test_a_signal_may_not_call_what_it_interrupts(model):
    decoder = vkf.load_decoder(GENERATE, max_tokens=64, chunk=1)
    before = signal.signal(signal.SIGALRM, lambda *_: decoder.prompt([[1, 2]]))
    try:
        with pytest.raises(vkf.Error, match=BUSY):
            while True:
                signal.setitimer(signal.ITIMER_REAL, 0.002)  # once
                decoder.prompt([[1] * 60])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert decoder.generate(ONE) == model.generate(ONE)


def test_a_progress_may_not_call_what_it_tells_of(device):
    checkpoint = vkf.Checkpoint(GENERATE)

    def progress(done, total):
        if cores:
            cores[0].prompt([[1, 2]])

    cores = []
    facts = vkf.read_decoder(checkpoint)
    plan = vkf.DecoderPlan(device, checkpoint, facts, max_tokens=32, chunk=1, progress=progress)
    core = vkf.DecoderCore(device, checkpoint, plan)
    cores.append(core)
    with pytest.raises(vkf.Error, match=BUSY) as told:
        core.prompt([[1] * 8])
    assert told.value.result == 0 and "VkResult" not in str(told.value) and not isinstance(told.value, ValueError)
    cores.clear()
    core.prompt([ONE])
    assert core.next() == [296]
    # of loading nothing is at work that a function could want
    seen = []
    device.load({"w": np.ones((64, 64), np.float32)}, progress=lambda *_: seen.append(vkf.relu(np.ones(3, np.float32)).tolist()))
    assert seen and seen[0] == [1, 1, 1]
    seen.clear()
    vkf.FineTuner(device, checkpoint, facts, max_tokens=8,
                  load_progress=lambda *_: seen.append(vkf.relu(np.ones(3, np.float32)).tolist()))
    assert seen and seen[0] == [1, 1, 1]


def test_functions_and_modules_do_not_wait_for_each_other():
    linear = vkf.nn.Linear(8, 4)
    linear.load_state_dict({"weight": np.ones((4, 8), np.float32), "bias": np.ones(4, np.float32)})
    one = np.ones((1, 8), np.float32)

    def by_module(x):
        in_threads([lambda: linear(one), lambda: vkf.silu(np.ones(7, np.float32)), vkf.default_device])
        return x * float(linear(one)[0, 0])

    assert vkf.function(by_module)(np.ones(3, np.float32)).tolist() == [9, 9, 9]


def test_a_thread_is_not_taken_for_one_that_has_ended(model):
    want, began, got = model.generate(ONE), [], []

    def begin():
        began.append(model.stream(ONE, 8))
        next(began[0])

    in_threads([begin])
    threads = []
    for _ in range(4):  # one of which has the number of the first, where numbers are given again

        def work():
            try:
                got.append(model.generate(ONE))
            except vkf.Error as e:
                got.append(str(e))

        threads.append(threading.Thread(target=work, daemon=True))
        threads[-1].start()
        threads[-1].join(0.1)
    assert not got  # they wait
    began[0].close()
    for t in threads:
        t.join(60)
    assert got == [want] * 4


INTERRUPTED = """
import random, signal, sys, threading, time, numpy as np, vkformer as vkf
class Interrupt(KeyboardInterrupt): pass
def handler(*_): raise Interrupt()
g = vkf.Graph()
step = vkf.Trainer(g, vkf.sum(vkf.linear_layer(vkf.reshape(g.input("x", [4]), [1, 4]), "a", 2)), optimizer=vkf.SGD(0.0))
model = vkf.load_decoder(sys.argv[1], max_tokens=64)
module = vkf.nn.LayerNorm(4, elementwise_affine=False)
x = np.ones((1, 4), np.float32)
def taken(turn):
    free = threading.Thread(target=lambda: turn.hold().__exit__(), daemon=True)
    free.start(); free.join(20)
    return free.is_alive()
signal.signal(signal.SIGALRM, handler)
draw, hits = random.Random(3), 0
turns = [step._turn, model._turn, module._lock]
def take():
    for turn in turns:
        with turn.hold(): pass
until = time.time() + float(sys.argv[2])
while time.time() < until:
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-5, 2e-3))  # once
            end = time.time() + 1
            while time.time() < end:
                for _ in range(200): take()
                model.prompt([[5]]); step(x=x[0]); module(x)
        finally: signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupt: hits += 1
    if hits % 50 == 0 and any(map(taken, turns)): print("a turn stays taken"); break
print("done" if hits > 100 and not any(map(taken, turns)) else f"{hits} interrupts")
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers of signals here")
def test_interrupts_leave_no_turn_taken():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, str(GENERATE), "4"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout == "done\n", done.stdout + done.stderr


def test_ctrl_c_ends_the_waiting_for_a_turn(model):
    stream = in_threads([lambda: begun(model)])[0]
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            model.generate(ONE)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    stream.close()
    assert model.generate(ONE)


def begun(model):
    stream = model.stream(ONE, 8)
    next(stream)
    return stream


COMPILER = """
import threading, time, numpy as np, vkformer as vkf
from conftest import validator
x = np.ones((1, 1, 4, 8), np.float32)
what = lambda: None
def compiler(source, name):
    what()
    time.sleep(0.05)  # other threads go on meanwhile
    return validator(source, name)
vkf.use_glsl_compiler(compiler)
def attend(n):
    mod = vkf.ScoreMod("float score_mod(float s, uint b, uint h, uint q, uint k) { return s * %d.0; }" % n)
    g = vkf.Graph()
    v = g.input("x", [1, 1, 4, 8])
    g.output("y", vkf.attention(v, v, v, score_mod=mod).y)
    return vkf.default_device().compile(g)(x=x)["y"]
attend(1)
def begin(work):
    def run():
        try: work()
        except BaseException as e: print("failed:", repr(e), flush=True)
    t = threading.Thread(target=run, daemon=True)
    t.start()
    return t
threads = [begin(lambda n=n: attend(n)) for n in range(2, 6)]
for t in threads: t.join()
kept = vkf.ScoreMod("float score_mod(float s, uint b, uint h, uint q, uint k) { return s; }")
def with_weight(w, g):
    v = g.input("x", [1, 1, 4, 8])
    return vkf.attention(v, v, v, score_mod=kept).y * w
def train():
    g = vkf.Graph()
    w = g.state("w", [8])
    vkf._vkformer.TrainerCore(vkf.default_device(), g, vkf.sum(with_weight(w, g)), [w])
def forget():
    g = vkf.Graph()
    g.output("y", with_weight(g.weight("w", [8]), g))
    try:
        vkf.default_device().compile(g); print("compiled")
    except ValueError as e:
        assert "w" in str(e), e
def in_thread(work):
    t = begin(work)
    t.join(60)
    if t.is_alive(): print("waits for ever", flush=True)
ran = []
def once(work):
    def call():
        global what
        what = lambda: None
        work()
        ran.append(1)
    return call
# what a compiler calls, and other threads that it waits for
for n, again in enumerate((lambda: attend(7), vkf.glsl_compiler, lambda: vkf.compile_glsl("#version 450\\nvoid main() {}", "x"),
                           lambda: in_thread(lambda: attend(8)), lambda: in_thread(forget), lambda: in_thread(train),
                           lambda: in_thread(lambda: vkf.use_glsl_compiler(None)))):
    what = once(again)
    attend(100 + n)
    assert len(ran) == n + 1
vkf.use_glsl_compiler(compiler)
attend(200)
print("done")
"""


def test_compilers_of_score_mods():
    import shutil

    if not shutil.which("glslangValidator"):
        pytest.skip("no compiler of GLSL")
    done = subprocess.run([sys.executable, "-c", COMPILER], capture_output=True, text=True, timeout=120, cwd=ROOT / "python/tests",
                          env={**os.environ, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT / "python/tests")])})
    assert done.returncode == 0 and done.stdout == "done\n", done.stdout + done.stderr
