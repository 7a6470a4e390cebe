# SPDX-License-Identifier: Apache-2.0
"""What can go wrong. The extension raises these."""


class Error(RuntimeError):
    """What went wrong in vkformer.

    `where` names the op, tensor or file, where the library refuses and not the package; `result` is
    the VkResult, 0 where Vulkan was not asked.
    """

    where: str = ""
    result: int = 0


class DeviceLost(Error):
    """The device was lost. Make a new one."""


class ArgumentError(Error, ValueError):
    """A shape, type or option that does not fit; also a ValueError."""


class FileMissing(Error, FileNotFoundError):
    """A file that is not there; also a FileNotFoundError."""


class OutOfMemory(Error, MemoryError):
    """Memory of the device or the host does not suffice; also a MemoryError."""


for _class in (Error, DeviceLost, ArgumentError, FileMissing, OutOfMemory):
    _class.__module__ = "vkformer"
