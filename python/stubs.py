# SPDX-License-Identifier: Apache-2.0
"""stubs.py NANOBIND-FOLDER PACKAGE-FOLDER: writes the stubs of the extension into the package."""

import pathlib
import re
import subprocess
import sys

nanobind, package = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
places = (nanobind / "stubgen.py", nanobind.parent / "stubgen.py", nanobind / "src" / "stubgen.py")
found = next((str(place) for place in places if place.exists()), None)
(package / "_vkformer").mkdir(exist_ok=True)
# help() shows classes in the package; stubs define them where they are
code = """
import runpy, sys, types
import vkformer._vkformer as extension
for module in (extension, extension.torch):
    for thing in vars(module).values():
        if isinstance(thing, type) and type(thing) is not type:
            thing.__module__ = module.__name__
            # what the package puts in is imported by some versions, whatever it is called
            if isinstance(vars(thing).get("__repr__"), types.FunctionType):
                del thing.__repr__
runs = runpy.run_path if sys.argv[1].endswith(".py") else runpy.run_module
sys.argv = sys.argv[1:]
runs(sys.argv[0], run_name="__main__")
"""
command = [sys.executable, "-c", code, found or "nanobind.stubgen", "-q", "-m", "vkformer._vkformer", "-r", "-O", str(package)]
done = subprocess.run(command)
# nanobind 2.5 writes them beside the extension, as if it were no package
for beside, place in (("_vkformer.pyi", "__init__.pyi"), ("torch/__init__.pyi", "torch.pyi")):
    if (package / beside).exists():
        (package / beside).replace(package / "_vkformer" / place)
if (package / "torch").exists():
    (package / "torch").rmdir()
for stub in (package / "_vkformer").glob("*.pyi"):
    text = re.sub(r"\bos\.PathLike\b(?!\[)", "os.PathLike[str]", stub.read_text())
    # names of methods that hide a builtin, and types without their arguments
    text = re.sub(r"(?<![\w.])list\[", "builtins.list[", text)
    text = re.sub(r"^ *def .*", lambda line: re.sub(r"(?<![\w.])dict(?![\[\w(])", "dict[str, object]", line[0]), text, flags=re.MULTILINE)
    text = text.replace("import os\n", "import builtins\nimport os\n", 1)
    # Tensor.numpy() hides the module
    text = re.sub(r"^ *def .*", lambda line: re.sub(r"\bnumpy\.", "_numpy.", line[0]), text, flags=re.MULTILINE)
    text = re.sub(r"^import numpy$", "import numpy as _numpy", text, flags=re.MULTILINE)
    # some versions of NumPy want its arguments
    if re.search(r"\b_numpy\.ndarray\b(?!\[)", text):
        text = re.sub(r"\b_numpy\.ndarray\b(?!\[)", "_NDArray[_Any]", text)
        text = text.replace("import builtins\n", "import builtins\nfrom numpy.typing import NDArray as _NDArray\nfrom typing import Any as _Any\n", 1)
    if stub.name == "__init__.pyi" and "__version__" not in text:
        text += "\n__version__: str = ...\n"
    stub.write_text(text)
sys.exit(done.returncode)
