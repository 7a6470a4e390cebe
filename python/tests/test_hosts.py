# SPDX-License-Identifier: Apache-2.0
"""A host in Python: a Vulkan device made with ctypes is borrowed, and a program recorded into its
command buffer, on its buffers."""

import ctypes as c
import ctypes.util
import sys
import threading
import time

import numpy as np
import pytest

import vkformer as vkf

U32, U64, P = c.c_uint32, c.c_uint64, c.c_void_p


def struct(name, *fields):
    return type(name, (c.Structure,), {"_fields_": [(n, t) for n, t in fields]})


HEAD = [("sType", U32), ("pNext", P)]
Application = struct("Application", *HEAD, ("name", c.c_char_p), ("version", U32), ("engine", c.c_char_p),
                     ("engine_version", U32), ("api", U32))
InstanceInfo = struct("InstanceInfo", *HEAD, ("flags", U32), ("application", P), ("layers", U32), ("layer_names", P),
                      ("extensions", U32), ("extension_names", P))
QueueInfo = struct("QueueInfo", *HEAD, ("flags", U32), ("family", U32), ("count", U32), ("priorities", P))
DeviceInfo = struct("DeviceInfo", *HEAD, ("flags", U32), ("queues", U32), ("queue_infos", P), ("layers", U32), ("layer_names", P),
                    ("extensions", U32), ("extension_names", P), ("features", P))
PoolInfo = struct("PoolInfo", *HEAD, ("flags", U32), ("family", U32))
CommandsInfo = struct("CommandsInfo", *HEAD, ("pool", U64), ("level", U32), ("count", U32))
BeginInfo = struct("BeginInfo", *HEAD, ("flags", U32), ("inheritance", P))
BufferInfo = struct("BufferInfo", *HEAD, ("flags", U32), ("size", U64), ("usage", U32), ("sharing", U32), ("families", U32), ("indices", P))
Needs = struct("Needs", ("size", U64), ("alignment", U64), ("types", U32))
AllocateInfo = struct("AllocateInfo", *HEAD, ("size", U64), ("type", U32))
Barrier = struct("Barrier", *HEAD, ("source", U32), ("target", U32))
SubmitInfo = struct("SubmitInfo", *HEAD, ("waits", U32), ("wait_semaphores", P), ("stages", P), ("count", U32), ("commands", P),
                    ("signals", U32), ("signal_semaphores", P))
STORAGE, HOST_VISIBLE = 0x20, 0x2 | 0x4
COMPUTE, HOST_STAGE, WRITE, HOST_READ = 0x800, 0x4000, 0x40, 0x2000


class Host:
    def __init__(self):
        name = ctypes.util.find_library("vulkan")
        if name is None:
            pytest.skip("no loader that ctypes finds")
        self.vk = c.CDLL(name)
        application = Application(0, None, b"host", 0, b"", 0, 1 << 22 | 1 << 12)
        self.instance, self.device = P(), P()
        self.call("vkCreateInstance", c.byref(InstanceInfo(1, None, 0, c.addressof(application))), None, c.byref(self.instance))
        count, devices = U32(1), (P * 1)()
        self.vk.vkEnumeratePhysicalDevices(self.instance, c.byref(count), devices)
        self.physical = P(devices[0])
        priority = c.c_float(1)
        queue = QueueInfo(2, None, 0, 0, 1, c.addressof(priority))
        self.created_with = DeviceInfo(3, None, 0, 1, c.addressof(queue))
        self.call("vkCreateDevice", self.physical, c.byref(self.created_with), None, c.byref(self.device))
        self.keep = application, priority, queue
        self.queue, self.commands, pool = P(), P(), U64()
        self.vk.vkGetDeviceQueue(self.device, 0, 0, c.byref(self.queue))
        self.call("vkCreateCommandPool", self.device, c.byref(PoolInfo(39, None, 2, 0)), None, c.byref(pool))
        self.call("vkAllocateCommandBuffers", self.device, c.byref(CommandsInfo(40, None, pool, 0, 1)), c.byref(self.commands))
        self.pool, self.made = pool, []

    def call(self, name, *arguments):
        result = getattr(self.vk, name)(*arguments)
        assert result == 0, f"{name} gave {result}"

    def buffer(self, size):
        """A buffer in memory that the host sees: its handle, and the memory as an array of floats."""
        buffer, memory, needs, address = U64(), U64(), Needs(), P()
        self.call("vkCreateBuffer", self.device, c.byref(BufferInfo(12, None, 0, size, STORAGE)), None, c.byref(buffer))
        self.vk.vkGetBufferMemoryRequirements(self.device, buffer, c.byref(needs))
        properties = (U32 * 130)()
        self.vk.vkGetPhysicalDeviceMemoryProperties(self.physical, properties)
        kind = next(i for i in range(properties[0])
                    if needs.types >> i & 1 and properties[1 + 2 * i] & HOST_VISIBLE == HOST_VISIBLE)
        self.call("vkAllocateMemory", self.device, c.byref(AllocateInfo(5, None, needs.size, kind)), None, c.byref(memory))
        self.call("vkBindBufferMemory", self.device, buffer, memory, U64(0))
        self.call("vkMapMemory", self.device, memory, U64(0), U64(size), 0, c.byref(address))
        self.made.append((buffer, memory))
        return buffer.value, np.ctypeslib.as_array((c.c_float * (size // 4)).from_address(address.value))

    def submit(self, record):
        self.call("vkBeginCommandBuffer", self.commands, c.byref(BeginInfo(42)))
        record(self.commands.value)
        barrier = Barrier(46, None, WRITE, HOST_READ)
        self.vk.vkCmdPipelineBarrier(self.commands, COMPUTE, HOST_STAGE, 0, 1, c.byref(barrier), 0, None, 0, None)
        self.call("vkEndCommandBuffer", self.commands)
        commands = P(self.commands.value)
        self.call("vkQueueSubmit", self.queue, 1, c.byref(SubmitInfo(4, None, 0, None, None, 1, c.addressof(commands))), U64(0))
        self.call("vkQueueWaitIdle", self.queue)

    def close(self):
        for buffer, memory in self.made:
            self.vk.vkDestroyBuffer(self.device, buffer, None)
            self.vk.vkFreeMemory(self.device, memory, None)
        self.vk.vkDestroyCommandPool(self.device, self.pool, None)
        self.vk.vkDestroyDevice(self.device, None)
        self.vk.vkDestroyInstance(self.instance, None)


def calls_beside_recording(host, device, x_buffer, y_buffer):
    """Calls of a thread answer what they are asked while another one records, which nobody submits."""
    g = vkf.Graph()
    g.output("y", vkf.scale(g.input("x", [128]), 2))
    program = device.compile(g)
    program.allocate()
    buffers = {"x": (x_buffer, 0, 512), "y": (y_buffer, 0, 512)}
    ended, wrong, calls = [], [], 0

    def call():
        nonlocal calls
        try:
            while not ended:
                calls += 1
                if not (program(x=np.full(128, calls, np.float32))["y"] == 2 * calls).all():
                    wrong.append(calls)
        except vkf.Error as e:
            wrong.append(str(e))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=call)
    thread.start()
    try:
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            assert program.shape("y") == (128,)
            host.call("vkBeginCommandBuffer", host.commands, c.byref(BeginInfo(42)))
            program.record(host.commands.value, buffers)
            host.call("vkResetCommandBuffer", host.commands, 0)
    finally:
        ended.append(1)
        thread.join()
        sys.setswitchinterval(before)
    assert calls > 1 and not wrong


def test_a_host_records(tmp_path):
    host = Host()
    locked = []
    needs = vkf.Device.requirements(instance=host.instance.value, physical=host.physical.value)
    assert all(not r.required for r in needs.list) and isinstance(str(needs), str)
    device = vkf.Device.borrow(instance=host.instance.value, physical=host.physical.value, device=host.device.value, queue_family=0,
                               queue=host.queue.value, created_with=c.addressof(host.created_with),
                               lock=lambda: locked.append(1), unlock=lambda: locked.append(-1), cache_folder=tmp_path,
                               staging_bytes=256, submit_budget=1e4)
    assert vkf.tuning_file(device).parent == tmp_path
    g = vkf.Graph()
    x = g.input("x", [g.symbol("rows", 8), 16])
    g.output("y", vkf.gelu(vkf.linear_layer(x, "up", 32)))
    weights = {"up.weight": np.eye(32, 16, dtype=np.float32), "up.bias": np.ones(32, np.float32)}
    program = device.compile(g, weights, checked=True)
    program.allocate()
    x_buffer, x_data = host.buffer(8 * 16 * 4)
    y_buffer, y_data = host.buffer(8 * 32 * 4)
    x_data[:] = np.linspace(-1, 1, 128)
    buffers = {"x": (x_buffer, 0, 8 * 16 * 4), "y": vkf.BufferRange(y_buffer, bytes=8 * 32 * 4, buffer_bytes=8 * 32 * 4)}
    host.submit(lambda commands: program.record(commands, buffers, sizes={"rows": 5}))
    program.finished(0)
    want = program(x=x_data.reshape(8, 16)[:5].copy())["y"]
    assert locked and sum(locked) == 0
    np.testing.assert_array_equal(y_data.reshape(8, 32)[:5], want)
    y_data[:] = 0

    def in_segments(commands):
        program.begin(buffers, sizes={"rows": 5})
        segments = []
        while not segments or not segments[-1].last:
            segments.append(program.record_segment(commands, 1e3))
        assert segments[-1].done == 1.0

    host.submit(in_segments)
    np.testing.assert_array_equal(y_data.reshape(8, 32)[:5], want)
    program.finished(0)
    with pytest.raises(ValueError, match="nothing"):
        host.submit(lambda commands: program.record(commands, {"nothing": (x_buffer, 0, 4)}))
    calls_beside_recording(host, device, x_buffer, y_buffer)
    del program, device
    import gc

    gc.collect()
    host.close()


def test_a_lost_device_is_told():
    host = Host()
    get, address = c.CFUNCTYPE(P, P, c.c_char_p), lambda f: c.cast(f, P).value
    submit = c.CFUNCTYPE(c.c_int32, P, U32, P, U64)
    of_instance = get(("vkGetInstanceProcAddr", host.vk))
    of_device = get(("vkGetDeviceProcAddr", host.vk))
    lost = []

    @submit
    def submitted(queue, count, infos, fence):
        if lost:
            return -4  # VK_ERROR_DEVICE_LOST
        return submit(of_device(host.device, b"vkQueueSubmit"))(queue, count, infos, fence)

    @get
    def device_function(device, name):
        return address(submitted) if name == b"vkQueueSubmit" else of_device(device, name)

    @get
    def instance_function(instance, name):
        return address(device_function) if name == b"vkGetDeviceProcAddr" else of_instance(instance, name)

    device = vkf.Device.borrow(instance=host.instance.value, physical=host.physical.value, device=host.device.value, queue_family=0,
                               queue=host.queue.value, created_with=c.addressof(host.created_with),
                               get_instance_proc_addr=address(instance_function))
    double = vkf.function(lambda x: x * 2.0, device=device)
    x = np.ones((2, 3), np.float32)
    program, tensor = double.program(x), device.tensor(x)
    np.testing.assert_array_equal(double(x), 2 * x)
    lost.append(True)
    for call in (lambda: double(x), lambda: double(tensor), lambda: program(x=x), lambda: program.run(), lambda: device.tensor(x).numpy(),
                 lambda: vkf.function(lambda a: a + a, device=device)(x)):
        with pytest.raises(vkf.DeviceLost) as told:
            call()
        assert isinstance(told.value, vkf.Error) and told.value.result in (-4, 0)
    np.testing.assert_array_equal(vkf.relu(x), x)  # another device goes on
    import gc

    double.clear()
    del program, tensor, device, double, told, call
    gc.collect()
    host.close()


def test_locks_that_are_no_functions_are_refused():
    for hooks in (dict(lock=5, unlock=6), dict(lock=lambda: None, unlock=6)):
        with pytest.raises(TypeError, match="lock and unlock: one is a int; a function is wanted"):
            vkf.Device.borrow(instance=0, physical=0, device=0, **hooks)


def test_borrowing_nothing_is_refused():
    with pytest.raises(ValueError, match="instance"):
        vkf.Device.borrow(instance=0, physical=0, device=0)
