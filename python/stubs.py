# SPDX-License-Identifier: Apache-2.0
"""stubs.py NANOBIND-FOLDER PACKAGE-FOLDER: writes the stubs of the extension into the package."""

import pathlib
import subprocess
import sys

nanobind, package = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
for stubgen in (nanobind / "stubgen.py", nanobind.parent / "stubgen.py", nanobind / "src" / "stubgen.py"):
    if stubgen.exists():
        break
else:
    sys.exit(f"stubs.py: there is no stubgen.py in {nanobind}")
(package / "_vkformer").mkdir(exist_ok=True)
command = [sys.executable, str(stubgen), "-q", "-m", "vkformer._vkformer", "-r", "-O", str(package)]
sys.exit(subprocess.run(command).returncode)
