# SPDX-License-Identifier: Apache-2.0
"""One device for all tests; a validation message fails the test that caused it."""

import os
import pathlib
import shutil
import subprocess
import tempfile

import numpy as np
import pytest

import vkformer as vkf

try:
    import hypothesis.configuration

    # not into the folder that the tests are called in
    hypothesis.configuration.set_hypothesis_home_dir(pathlib.Path(tempfile.gettempdir()) / "vkformer-hypothesis")
except ImportError:
    pass

ROOT = pathlib.Path(os.environ.get("VKFORMER_SOURCE") or pathlib.Path(__file__).resolve().parents[2])


def validator(source, name):
    """A compiler of GLSL for machines without libshaderc."""
    with tempfile.TemporaryDirectory() as folder:
        shader, words = pathlib.Path(folder, "mod.comp"), pathlib.Path(folder, "mod.spv")
        shader.write_text(source)
        done = subprocess.run(["glslangValidator", "-V", "--target-env", "vulkan1.1", "-o", words, shader], capture_output=True, text=True)
        if done.returncode != 0:
            raise ValueError(f"{name}: {done.stdout}")
        return np.fromfile(words, np.uint32).tolist()


if not vkf.glsl_compiler() and shutil.which("glslangValidator"):
    vkf.use_glsl_compiler(validator)


@pytest.fixture(scope="session")
def device():
    return vkf.default_device()


@pytest.fixture(autouse=True)
def no_messages():
    yield
    messages = vkf.default_device().messages()
    assert not messages, messages[0]


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture(scope="session")
def root():
    return ROOT
