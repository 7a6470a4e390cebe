# SPDX-License-Identifier: Apache-2.0
"""Wrong input, lifetimes, threads, counts of references."""

import ctypes
import gc
import os
import pathlib
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from conftest import ROOT

import vkformer as vkf


def layer(tokens=32):
    g = vkf.Graph()
    x = g.input("x", [1, g.symbol("tokens", tokens), 8])
    g.output("y", vkf.gelu(vkf.linear_layer(x, "up", 16)))
    return g


WEIGHTS = {"up.weight": np.ones((16, 8), np.float32), "up.bias": np.zeros(16, np.float32)}


@pytest.fixture
def program(device):
    return device.compile(layer(), WEIGHTS)


X = np.ones((1, 4, 8), np.float32)


def is_told(kind, words, call):
    with pytest.raises(kind) as told:
        call()
    for word in words:
        assert word in str(told.value), str(told.value)
    return told.value


def test_wrong_arrays(program):
    is_told(ValueError, ["x", "(1, tokens, 8)", "(1, 4, 7)"], lambda: program(x=X[..., :7]))
    is_told(ValueError, ["x", "(4, 8)"], lambda: program(x=X[0]))
    is_told(ValueError, ["tokens", "99", "32"], lambda: program(x=np.ones((1, 99, 8), np.float32)))
    is_told(ValueError, ["z", "inputs: x"], lambda: program(z=X))
    is_told(ValueError, ["x", "float64", "float32"], lambda: program(x=X.astype(np.float64)))
    is_told(ValueError, ["x", "int32"], lambda: program(x=X.astype(np.int32)))
    is_told(ValueError, ["x", "str"], lambda: program(x="text"))
    is_told(ValueError, ["x", "object"], lambda: program(x=np.array([object()])))
    is_told(ValueError, ["x", "complex64"], lambda: program(x=X.astype(np.complex64)))
    is_told(ValueError, ["tokens", "whole number"], lambda: program(tokens="four"))
    is_told(ValueError, ["x"], lambda: program())
    np.testing.assert_allclose(program(x=X)["y"].shape, (1, 4, 16))  # as good as before


def test_strided_and_read_only_arrays(program):
    want = program(x=X)["y"]
    wide = np.ones((2, 8, 16), np.float32)
    np.testing.assert_array_equal(program(x=wide[:1, ::2, ::2])["y"], want)
    fixed = X.copy()
    fixed.flags.writeable = False
    np.testing.assert_array_equal(program(x=fixed)["y"], want)
    np.testing.assert_array_equal(program(x=X.tolist())["y"], want)
    np.testing.assert_array_equal(program(x=X.astype(np.float16))["y"], want)


def test_what_has_a_buffer_alone(device):
    numbers = (ctypes.c_float * 3)(1, 2, 3)
    for given, want in ((numbers, [1, 2, 3]), (((ctypes.c_float * 3) * 2)(numbers), [[1, 2, 3], [0, 0, 0]]),
                        ((ctypes.c_int * 2)(4, 5), [4, 5]), ((ctypes.c_uint16 * 2)(4, 65535), [4, 65535]),
                        (ctypes.c_float(2), 2), (memoryview(numbers), [1, 2, 3]), (bytearray(b"ab"), [97, 98])):
        assert device.tensor(given).numpy().tolist() == want
    np.testing.assert_array_equal(vkf.Graph().constant("c", numbers).shape, [3])
    g = vkf.Graph()
    g.output("y", g.input("x", [3]) * 2.0)
    assert device.compile(g)(x=numbers)["y"].tolist() == [2, 4, 6]
    assert vkf.local_communicators(1)[0].all_reduce(numbers) == [1, 2, 3]

    class Pair(ctypes.Structure):
        _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_float)]

    for wrong in ((ctypes.c_float.__ctype_be__ * 3)(1, 2, 3), (Pair * 2)()):
        with pytest.raises(ValueError, match="data: is a"):
            device.tensor(wrong)


def test_masked_arrays_are_refused(device):
    masked = np.ma.array(np.ones((2, 3), np.float32), mask=[[0, 1, 0], [0, 0, 1]])
    for call in (lambda: device.tensor(masked), lambda: vkf.sum(masked), lambda: vkf.softmax(masked),
                 lambda: vkf.Graph().constant("c", masked), lambda: device.load({"w": masked.astype(np.uint16)})):
        with pytest.raises(ValueError, match=r"masked array.*filled\(value\)"):
            call()
    assert vkf.sum(masked.filled(0)) == 4


def test_what_has_dlpack_alone(program):
    class Foreign:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    np.testing.assert_array_equal(program(x=Foreign(X))["y"], program(x=X)["y"])
    np.testing.assert_allclose(vkf.relu(Foreign(X)), X)


def test_ids_are_narrowed_with_a_check():
    table = np.eye(5, dtype=np.float32)
    for kind in (np.int64, np.int32, np.int16, np.int8, np.uint8):
        np.testing.assert_array_equal(vkf.embedding(np.array([3, 1], kind), table), table[[3, 1]])
    is_told(ValueError, [str(2**40), "32 bits"], lambda: vkf.embedding(np.array([2**40]), table))


def test_wrong_graphs():
    g = vkf.Graph()
    x = g.input("x", [2, 3])
    is_told(ValueError, ["rms_norm", "w (4)", "x (2, 3)"], lambda: vkf.rms_norm(x, g.weight("w", [4])))
    is_told(ValueError, ["layout", "quarter", "interleaved"], lambda: vkf.Rope(layout="quarter"))
    is_told(ValueError, ["dtype", "float128"], lambda: g.input("y", [1], "float128"))
    is_told(TypeError, ["rope"], lambda: vkf.rope(x))
    is_told(TypeError, ["layout"], lambda: vkf.Rope())
    is_told(ValueError, ["normalized_shape"], lambda: vkf.layer_norm(x, (4,)))
    is_told(ValueError, ["dim"], lambda: vkf.softmax(x, 0))
    is_told(ValueError, ["enable_gqa"], lambda: vkf.scaled_dot_product_attention(
        np.ones((1, 4, 2, 8), np.float32), *[np.ones((1, 2, 2, 8), np.float32)] * 2))
    is_told(ValueError, ["exclude"], lambda: vkf.scaled_dot_product_attention(
        *[np.ones((1, 1, 2, 8), np.float32)] * 3, np.ones((2, 2), bool), is_causal=True))
    is_told(TypeError, ["str"], lambda: vkf.gelu("x"))
    with pytest.raises((ValueError, TypeError)):
        x[5:1, "a"]
    other = vkf.Graph().input("x", [2, 3])
    is_told(ValueError, [], lambda: x + other)


def test_errors_have_a_place(device):
    error = is_told(vkf.Error, ["up.weight"], lambda: device.compile(layer(), {}))
    assert isinstance(error, ValueError) and error.result == 0
    error = is_told(FileNotFoundError, ["/nowhere"], lambda: vkf.load_decoder("/nowhere"))
    assert isinstance(error, vkf.Error) and "/nowhere" in error.where
    is_told(FileNotFoundError, ["nothing.safetensors"], lambda: device.load("nothing.safetensors"))
    is_told(ValueError, ["no device"], lambda: vkf.Device("a device that nobody has"))
    is_told(ValueError, ["weights"], lambda: device.load(7))


@pytest.mark.parametrize("name", ["is not a folder", "no usable", "No such file or directory", "libvulkan", "validation layer",
                                  "cannot open file: No such file or directory", "the device is given up; make a new Device",
                                  "needs 1; the device has ", "the device has no memory of a fitting type"])
def test_names_do_not_decide_what_errors_are(name, tmp_path):
    g = vkf.Graph()
    with pytest.raises(vkf.ArgumentError):
        vkf.add(g.input("z", [3]), g.input(name, [2]))
    g.output("y", vkf.scale(g.input(f"x: {name}", [2]), 2.0))
    with pytest.raises(vkf.ArgumentError):  # which ends in the name
        vkf.default_device().compile(g)()
    folder = tmp_path / name
    folder.mkdir()
    (folder / name).write_bytes(b"junkjunkjunk")
    for call in (lambda: vkf.Safetensors(folder / name), lambda: vkf.nn.Linear(1, 1).load_state_dict(folder / name)):
        with pytest.raises(vkf.ArgumentError):
            call()
    for call in (lambda: vkf.Safetensors(folder / "nothing"), lambda: vkf.Safetensors(folder / name / "nothing"), lambda: vkf.Checkpoint(folder / name),
                 lambda: vkf.save_safetensors(folder / "nowhere" / name, {"a": np.ones(2, np.float32)})):
        with pytest.raises(vkf.FileMissing):
            call()


def test_missing_folders_are_told(device, tmp_path):
    where = tmp_path / "nowhere" / "file"
    g = vkf.Graph()
    x = g.input("x", [2])
    g.output("y", vkf.scale(x, 2.0))
    program = device.compile(g, profile=True)
    program(x=np.ones(2, np.float32))
    step = vkf.Trainer(*trained())
    states = vkf.Graph()
    states.state("s", [2])
    state = device.make_state([states])
    for call in (lambda: vkf.save_safetensors(where, {"a": np.ones(2, np.float32)}), lambda: program.write_trace(where), lambda: step.save(where),
                 lambda: vkf.save_state(where, state), lambda: vkf.restore_state(where, state), lambda: step.resume(where)):
        is_told(FileNotFoundError, ["nowhere", "No such file"], call)


def trained():
    g = vkf.Graph()
    return g, vkf.sum(vkf.linear_layer(g.input("x", [2, 2]), "w", 2))


def test_a_hook_and_its_graph_are_collected():
    def graph():
        g = vkf.Graph()
        bias, rows = g.weight("b", [4]), g.symbol("rows", 4)
        g.constant("c", np.zeros(1000, np.float32))
        result = vkf.attention(*[g.input("q", [1, 1, 2, 4])] * 3)
        g.after_linear(lambda x, y: (result, rows) and y + bias)
        vkf.linear_layer(g.input("x", [rows, 4]), "w", 4)
        return g

    g = graph()
    gc.collect()
    # the hook is there as long as its graph
    hooked = vkf.linear_layer(g.input("z", [2, 4]), "w", 4)
    assert hooked.shape == (2, 4) and "b" in g.weights
    last = weakref.ref(g)
    del g
    gc.collect()
    assert last() is not None and vkf.linear_layer(hooked, "v", 4).shape == (2, 4)
    del hooked
    gc.collect()
    assert last() is None
    g = vkf.Graph()
    x = g.input("x", [2, 4])
    g.after_linear(lambda x, y: g.after_linear(None) or y)  # the last call of a hook
    assert vkf.linear_layer(x, "w", 4).shape == vkf.linear_layer(x, "w", 4).shape == (2, 4)


def test_states_and_files_are_dicts_of_their_tensors(device, tmp_path):
    g = vkf.Graph()
    g.state("s", [2]), g.state("t", [3])
    state = device.make_state([g])
    assert sorted(state) == ["s", "t"] and len(state) == 2 and "s" in state
    with pytest.raises(KeyError, match="missing"):
        state["missing"]
    vkf.save_safetensors(tmp_path / "f", {"a": np.ones(2, np.float32), "b": np.zeros(3, np.int32)})
    file = vkf.Safetensors(tmp_path / "f")
    assert [(n, t.shape) for n, t in file.items()] == [(n, file[n].shape) for n in file] and len(file.items()) == 2
    step = vkf.Trainer(*trained(), weights=file_of(tmp_path))  # which has more than the graph
    assert step.state_dict()["w.bias"].tolist() == [7, 7]


def file_of(folder):
    vkf.save_safetensors(folder / "w", {"w.bias": np.full(2, 7, np.float32), "more": np.ones(2, np.float32)})
    return vkf.Safetensors(folder / "w")


def test_too_much_memory(device):
    if not device.capabilities.external_memory_fd:
        pytest.skip("the device shares no memory")
    # where validation is off: asking for it is wrong by the letter
    code = "import vkformer as vkf\ntry:\n    vkf.Device().make_shared_buffer(2**62)\nexcept MemoryError as e:\n    assert isinstance(e, vkf.Error); print('told:', e)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "VKFORMER_VALIDATION": "0"})
    assert done.returncode == 0 and "told:" in done.stdout, done.stdout + done.stderr


def test_arrays_outlive_everything(device):
    program = device.compile(layer(), WEIGHTS)
    y = program(x=X)["y"]
    want = y.copy()
    del program
    gc.collect()
    np.testing.assert_array_equal(y, want)


def test_objects_go_in_any_order():
    import itertools

    for order in itertools.permutations(range(3)):
        device = vkf.Device()
        graph = layer()
        weights = device.load(WEIGHTS, graph)
        program = device.compile(graph, weights)
        keep = [device, graph, weights, program]
        del device, graph, weights
        run = program
        del program
        for at in order:
            keep[at] = None
            gc.collect()
            assert run(x=X)["y"].shape == (1, 4, 16)
        del run
        keep.clear()
        gc.collect()


def test_owners_of_functions_that_only_loading_calls_go(device):
    folder = ROOT / "tests/decoders/llama"
    checkpoint = vkf.Checkpoint(folder)
    model = vkf.read_decoder(checkpoint)

    class Owner:
        def tell(self, done, all):
            pass

        def choose(self, name, shape):
            return None

        def decay(self, name):
            return 0.0

    def planned(owner):
        plan = vkf.DecoderPlan(device, checkpoint, model, max_tokens=16, choose=owner.choose, load_progress=owner.tell)
        return vkf.DecoderCore(device, checkpoint, plan)

    lora = vkf.LoraOptions(rank=2, alpha=4, targets=["q_proj"])
    for make in (planned, lambda owner: vkf.load_decoder(folder, device=device, max_tokens=16, progress=owner.tell),
                 lambda owner: vkf.FineTuner(device, checkpoint, model, max_tokens=16, load_progress=owner.tell, decay_to=owner.decay),
                 lambda owner: vkf.FineTuner(device, checkpoint, model, max_tokens=16, lora=lora, choose=owner.choose)):
        owner = Owner()
        owner.made = make(owner)
        last = weakref.ref(owner)
        del owner
        gc.collect()
        assert last() is None


def test_options_of_devices(monkeypatch):
    monkeypatch.delenv("VKFORMER_TUNING", raising=False)
    device = vkf.Device(canary=True, wait_seconds=60, submit_budget=1e6, minimum_profile=True, tuning="0")
    assert device.capabilities.minimum_profile and device.capabilities.storage_buffers == 4
    np.testing.assert_array_equal(vkf.function(lambda x: x * 2.0, device=device)(X), 2 * X)
    for choices in ("nonsense", "matmul=-1"):
        with pytest.raises(ValueError):
            vkf.Device(tuning=choices)
    assert not device.messages()


def test_values_keep_their_graph():
    def make():
        g = vkf.Graph()
        return vkf.relu(g.input("x", [g.symbol("n", 8), 4]))

    y = make()
    gc.collect()
    assert repr(y).startswith("<Value") and y.shape[1] == 4 and repr(y.shape[0]) == "n"
    y.graph.output("y", y)
    g = y.graph
    del y
    gc.collect()
    assert list(g.outputs) == ["y"]


def test_counts_of_references_stay(program, device):
    x = np.ones((1, 2, 8), np.float32)
    tensor = device.tensor(x)

    def many(n):
        for _ in range(n):
            program(x=x)
            vkf.relu(x)
            program.tensors(x=tensor)
            vkf.relu(tensor).reshape(-1)
            with pytest.raises(ValueError):
                program(x=x[0])

    many(200)
    gc.collect()
    before = [sys.getrefcount(o) for o in (x, program, tensor, vkf.Error, None.__class__)], len(gc.get_objects())
    many(int(os.environ.get("VKFORMER_MANY", "10000")))
    gc.collect()
    after = [sys.getrefcount(o) for o in (x, program, tensor, vkf.Error, None.__class__)], len(gc.get_objects())
    assert after[0] == before[0] and after[1] <= before[1] + 50


def test_threads_take_turns(program):
    want = {n: program(x=np.full((1, n, 8), n, np.float32))["y"] for n in range(1, 7)}
    wrong = []

    def work(n):
        for _ in range(20):
            if not np.array_equal(program(x=np.full((1, n, 8), n, np.float32))["y"], want[n]):
                wrong.append(n)
            vkf.gelu(np.full((n, 8), n, np.float32))

    threads = [threading.Thread(target=work, args=(n,)) for n in want]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_importing_touches_nothing():
    # no device, no NumPy, and no threads of a driver
    code = ("import sys, vkformer; assert 'numpy' not in sys.modules and 'torch' not in sys.modules;"
            "assert vkformer.eager._device is None; print(vkformer.Graph())")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and "Graph of 0 nodes" in done.stdout, done.stderr


@pytest.mark.parametrize("has_lock", [True, False])
def test_interpreters_without_their_lock_are_refused(has_lock):
    # as in a free-threaded build that is told never to take the lock back
    code = f"import sys; sys._is_gil_enabled = lambda: {has_lock}\nimport vkformer; print(vkformer.Graph())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if has_lock:
        assert done.returncode == 0 and "Graph of 0 nodes" in done.stdout, done.stderr
    else:
        assert done.returncode == 1 and "ImportError: vkformer needs the interpreter's lock" in done.stderr, done.stderr


def test_without_vulkan():
    code = ("import vkformer as vkf\ntry:\n    vkf.Device()\n"
            "except vkf.Error as e:\n    assert not isinstance(e, ValueError); print(e)")
    nowhere = {**os.environ, "VK_ICD_FILENAMES": "/nowhere.json", "VK_DRIVER_FILES": "/nowhere.json", "VKFORMER_VALIDATION": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=nowhere)
    assert done.returncode == 0 and "install" in done.stdout, done.stdout + done.stderr


def test_without_a_loader(tmp_path):
    for name in ("libvulkan.so", "libvulkan.so.1"):  # found before the real one, and no library
        (tmp_path / name).write_text("nothing")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("LD_LIBRARY_PATH", "")])
    code = "import vkformer as vkf\nprint(vkf.Graph())\ntry:\n    vkf.Device()\nexcept vkf.Error as e:\n    print(e)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "LD_LIBRARY_PATH": paths})
    assert done.returncode == 0 and "Graph of 0 nodes" in done.stdout, done.stdout + done.stderr
    assert "libvulkan" in done.stdout and "libvulkan1" in done.stdout, done.stdout


def test_nothing_is_written_where_one_stands(tmp_path):
    code = "import numpy as np, vkformer as vkf; vkf.relu(np.ones((2, 3), np.float32)); vkf.default_device().save_pipeline_cache()"
    bare = {n: v for n, v in os.environ.items() if n not in ("XDG_CACHE_HOME", "HOME", "VKFORMER_CACHE_DIR")}
    for where in ({}, {"HOME": str(tmp_path / "home")}, {"XDG_CACHE_HOME": str(tmp_path / "cache")}):
        stand = tmp_path / "here"
        stand.mkdir(exist_ok=True)
        done = subprocess.run([sys.executable, "-c", code], cwd=stand, env={**bare, **where}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert not list(stand.iterdir())
        for folder in where.values():
            assert list(pathlib.Path(folder).rglob("*.pipelines")), folder


INTERRUPTED = {
    "generate": "m = vkf.load_decoder(sys.argv[1], max_tokens=64)\nwhile True: m.generate([1, 25, 272])",
    "stream": "m = vkf.load_decoder(sys.argv[1], max_tokens=64)\nwhile True: list(m.stream_ids([1], 60, ignore_end=True))",
    "training": "g = vkf.Graph(); x = g.input('x', [4, 4])\nstep = vkf.Trainer(g, vkf.sum(vkf.linear_layer(x, 'w', 4)))\n"
                "while True: step(x=np.ones((4, 4), np.float32))",
    "fit": "g = vkf.Graph(); x = g.input('x', [4, 4])\nstep = vkf.Trainer(g, vkf.sum(vkf.linear_layer(x, 'w', 4)))\n"
           "step.fit({'x': np.ones((4, 4), np.float32)} for _ in range(10**9))",
    "functions": "while True: vkf.relu(np.ones((2, 3), np.float32))",
}


@pytest.mark.parametrize("what", INTERRUPTED)
def test_control_c(what):
    code = ("import os, signal, sys, threading, time, numpy as np, vkformer as vkf\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # what runs in the background ignores it
            "def later():\n    time.sleep(0.7)\n    os.kill(os.getpid(), signal.SIGINT)\n"
            "vkf.relu(np.ones(3, np.float32))\nthreading.Thread(target=later, daemon=True).start()\n"
            "try:\n" + "".join(f"    {line}\n" for line in INTERRUPTED[what].splitlines()) +
            "except KeyboardInterrupt:\n    vkf.relu(np.ones(3, np.float32)); print('stopped')")
    done = subprocess.run([sys.executable, "-c", code, str(ROOT / "samples/generate")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == "stopped\n", done.stdout + done.stderr


def test_double_precision_is_refused():
    x = np.ones((2, 3))
    for call in (lambda: vkf.softmax(x), lambda: vkf.linear(x, x), lambda: vkf.function(lambda a: a + 1.0)(x),
                 lambda: vkf.nn.LayerNorm(3, elementwise_affine=False)(x), lambda: vkf.scaled_dot_product_attention(x, x, x)):
        is_told(ValueError, ["float64", "astype(numpy.float32)"], call)
    # of numbers in lists nobody chose the type
    np.testing.assert_array_equal(vkf.relu([[1.0, -2.0]]), [[1, 0]])


def test_what_c_plus_plus_holds_may_outlive_the_interpreter():
    code = ("import vkformer as vkf\n"
            "vkf.use_glsl_compiler(lambda source, name: [])\n"
            "g = vkf.Graph(); g.after_linear(lambda x, y: y)\n"
            "import sys; sys.modules['kept'] = g; print('done')")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "done\n", f"{done.returncode} {done.stderr}"


def test_forks_are_refused():
    code = ("import os, numpy as np, vkformer as vkf\n"
            "x = np.ones((2, 3), np.float32)\n"
            "def child(expected):\n"
            "    pid = os.fork()\n"
            "    if pid == 0:\n"
            "        try:\n"
            "            vkf.relu(x)\n"
            "            os._exit(10)\n"
            "        except vkf.Error as e:\n"
            "            os._exit(20 if 'spawn' in str(e) and not isinstance(e, ValueError) else 30)\n"
            "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == expected\n"
            "child(10)\n"
            "vkf.relu(x)\n"
            "child(20)\n"
            "assert (vkf.relu(x) == 1).all()")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_forks_while_a_thread_runs_are_refused():
    code = ("import os, signal, sys, threading, time, numpy as np, vkformer as vkf\n"
            "g = vkf.Graph(); x = y = g.input('x', [512, 512])\n"
            "for _ in range(6): y = vkf.matmul(y, x)\n"
            "g.output('y', y)\n"
            "p, a, m = vkf.default_device().compile(g), np.zeros((512, 512), np.float32), vkf.nn.LayerNorm(512, elementwise_affine=False)\n"
            "model = vkf.load_decoder(sys.argv[1], max_tokens=64)\n"
            "turn, ended = threading.Event(), threading.Event()\n"
            "def work():\n"
            "    with m._lock.hold(), model._turn.hold():\n"
            "        while not ended.is_set(): p(x=a); turn.set()\n"
            "t = threading.Thread(target=work); t.start(); turn.wait(); time.sleep(0.05)\n"
            "for call in (lambda: p(x=a), p.run, lambda: p.bind('x', None), lambda: m(a), lambda: m.load_state_dict({}),\n"
            "             lambda: model.generate([1], 2), model.clear_adapter):\n"
            "    pid = os.fork()\n"
            "    if pid == 0:\n"
            "        signal.alarm(30)\n"
            "        try:\n"
            "            call()\n"
            "            os._exit(10)\n"
            "        except vkf.Error as e:\n"
            "            os._exit(20 if 'spawn' in str(e) else 30)\n"
            "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 20\n"
            "ended.set(); t.join()")
    done = subprocess.run([sys.executable, "-c", code, str(ROOT / "samples/generate")], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


AT_WORK = {
    "load": "d.load(w)",
    "progress": "d.load(w, progress=lambda done, all: began.set())",
    "choose": "d.load(w, choose=lambda name, shape: None)",
    "prompt": "m.prompt([[1] * 20])",
    "run": "p(x=w['w0'])",
}


@pytest.mark.parametrize("what", AT_WORK)
def test_daemons_sleep_when_the_interpreter_ends(what):
    code = ("import sys, threading, time, numpy as np, vkformer as vkf\n"
            "d, began = vkf.default_device(), threading.Event()\n"
            "w = {f'w{i}': np.zeros((64, 64), np.float32) for i in range(100)}\n"
            "m = vkf.load_decoder(sys.argv[1], chunk=1)\n"
            "g = vkf.Graph(); g.output('y', g.input('x', [64, 64]) * 2.0); p = d.compile(g)\n"
            "def work():\n"
            f"    while True: {AT_WORK[what]}; began.set()\n"
            "threading.Thread(target=work, daemon=True).start(); began.wait(); time.sleep(float(sys.argv[2]))")
    for wait in ("0", "0.013", "0.05"):
        done = subprocess.run([sys.executable, "-c", code, str(ROOT / "samples/generate"), wait], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and not done.stderr, f"{done.returncode} {done.stderr}"


def test_programs_go_in_threads_while_the_interpreter_ends():
    code = ("import atexit, threading, time\n"
            "ending, kept = threading.Event(), []\n"
            "def work(): ending.wait(); kept.clear()\n"
            "thread = threading.Thread(target=work, daemon=True)\n"
            "@atexit.register\n"  # ahead of vkformer's own function, which is called first so
            "def end(): ending.set(); thread.join(20); print('alive' if thread.is_alive() else 'gone')\n"
            "import vkformer as vkf\n"
            "g = vkf.Graph(); g.output('y', g.input('x', [4]) * 2.0)\n"
            "kept.append(vkf.default_device().compile(g)); kept[0](x=[1.0] * 4)\n"
            "thread.start()")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == "gone\n", f"{done.returncode} {done.stdout} {done.stderr}"
