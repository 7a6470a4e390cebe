# SPDX-License-Identifier: Apache-2.0
"""Samples run as they are; the notebook cell by cell."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import ROOT

import vkformer as vkf

needs_text = pytest.mark.skipif(not vkf._vkformer.has_text, reason="built without tokenizers")
SAMPLES = ROOT / "samples/python"


def run(tmp_path, script, *arguments, text=""):
    done = subprocess.run([sys.executable, str(SAMPLES / script), *arguments], capture_output=True, text=True, cwd=tmp_path,
                          input=text, timeout=300, env={**os.environ, "VKFORMER_VALIDATION": "0"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_attention(tmp_path):
    run(tmp_path, "attention.py")
    assert (tmp_path / "attention.svg").read_text().startswith("<svg")


def test_layer(tmp_path):
    out = run(tmp_path, "layer.py")
    assert "(1, 5, 64)" in out and "(1, 64, 64)" in out and "dispatches" in out


@needs_text
def test_finetune(tmp_path):
    out = run(tmp_path, "finetune.py", str(ROOT / "samples/generate"), "12")
    losses = [float(line.split()[-1]) for line in out.splitlines() if line.startswith("step")]
    assert len(losses) == 12 and losses[-1] < losses[0] and (tmp_path / "adapter/adapter_config.json").exists()


@needs_text
def test_finetune_learns_texts_as_the_model_is_asked_them(tmp_path, device):
    folder = ROOT / "samples/generate"
    out = run(tmp_path, "finetune.py", str(folder), "1")
    model = vkf.load_decoder(folder, max_tokens=32)
    texts = ["0 is orez.", "1 is eno.", "2 is owt.", "3 is eerht.", "4 is ruof.", "5 is evif."]
    batch = [[*model.encode(text), model.facts.end[0]] for text in texts]
    assert all(ids[0] == model.facts.begin for ids in batch)
    tuner = vkf.FineTuner(device, vkf.Checkpoint(folder), model.model(), max_batch=6, max_tokens=max(map(len, batch)),
                          lora=vkf.LoraOptions(rank=8, targets=["q_proj"]), optimizer=vkf.AdamW(lr=2e-2))
    assert abs(float(out.splitlines()[0].split()[-1]) - tuner.take_step(batch).loss) < 1e-3


@needs_text
def test_search(tmp_path):
    out = run(tmp_path, "search.py", str(ROOT / "tests/text/bert"), "a cat", text="a cat\nthe dogs\n")
    assert out.splitlines()[0].split(maxsplit=1) == ["1.000", "a cat"]


@pytest.mark.parametrize("words", [["search.py"], ["search.py", "folder"], ["finetune.py", "--help"]])
def test_usage(words):
    done = subprocess.run([sys.executable, str(SAMPLES / words[0]), *words[1:]], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stderr.startswith(f"usage: {words[0]} ")


TYPED = sorted(SAMPLES.glob("*.py"))
PACKAGE = pathlib.Path(vkf.__file__).parent


@pytest.mark.parametrize("what", ["samples", "package"])
def test_types_by_mypy(tmp_path, what):
    api = pytest.importorskip("mypy.api")
    files = [str(path) for path in TYPED] if what == "samples" else ["-p", "vkformer"]
    out, errors, status = api.run(["--strict", "--cache-dir", str(tmp_path), *files])
    assert status == 0, out + errors


def test_types_by_pyright(tmp_path):
    pytest.importorskip("pyright")
    strict = tmp_path / "strict.json"
    strict.write_text('{"typeCheckingMode": "strict"}')
    for files, options in ((TYPED, ["-p", str(strict)]), ([*PACKAGE.glob("*.py"), *PACKAGE.glob("_vkformer/*.pyi")], [])):
        # it is a program for Node.js, which is got when it is called first
        done = subprocess.run([sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *options,
                               *map(str, files)], capture_output=True, text=True, timeout=300, cwd=tmp_path)
        if not done.stdout.lstrip().startswith("{"):
            pytest.skip(f"pyright does not run here: {(done.stderr + done.stdout).strip()[-200:]}")
        told = json.loads(done.stdout)
        assert told["summary"]["filesAnalyzed"] == len(files)
        assert not told["generalDiagnostics"], told["generalDiagnostics"]


def test_notebook_in_a_kernel(tmp_path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(SAMPLES / "tour.ipynb", 4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [{kind for output in cell.outputs for kind in output.get("data", {})} for cell in notebook.cells if cell.cell_type == "code"]
    pictures = [i for i, kinds in enumerate(shown) if "image/svg+xml" in kinds]
    tables = [i for i, kinds in enumerate(shown) if "text/html" in kinds]
    assert len(pictures) >= 3 and tables, shown
    assert not [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs if o.output_type == "error"]


def test_notebook():
    cells = json.loads((SAMPLES / "tour.ipynb").read_text())["cells"]
    names = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
            assert cell["outputs"] == []
    assert names["program"]._repr_html_() and names["step"].step == 100
