#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the tools that no C++ program holds: tools/gpu_report, tools/gpu-day, tools/lib/fuzz and those of tools/bench."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools" / "gpu_report"))
sys.dont_write_bytecode = True
import peer  # noqa: E402
import report  # noqa: E402


def told(**cases):
    """A report of one GPU: for each case its dispatches."""
    return {"gpu": {"device": "GPU", "driver": "driver", "cases": cases}}


def dispatch(kernel="matvec", **figures):
    return {"kernel": kernel, "dispatches": 1, "groups": 1, **figures}


class Numbers(unittest.TestCase):
    def test_names_of_drivers_become_ours(self):
        got = report.numbers({"VGPRs": 96, "Spilled VGPRs": 2, "Spilled SGPRs": 3, "Subgroups per SIMD": 4}, "POLARIS10")
        self.assertEqual(got, {"registers": 96, "spills": 5, "waves": 4, "occupancy": 50})
        got = report.numbers({"Number of GPRs": 40, "Max warps/SM": 12, "SLM size": 0}, "NVIDIA")
        self.assertEqual(got, {"registers": 40, "waves": 12, "occupancy": 25, "scratch": 0})

    def test_what_a_driver_does_not_tell_is_absent(self):
        self.assertEqual(report.numbers({"Subgroups per SIMD": 4}, "another"), {"waves": 4})


class Limits(unittest.TestCase):
    limits = {"limits": {"spills": 0, "occupancy": 25},
              "exceptions": [{"gpu": "g.*", "kernel": "large", "occupancy": 10, "why": "large"}]}

    def test_beyond(self):
        self.assertEqual(report.beyond(self.limits, told(a=[dispatch(spills=0, occupancy=25)])), [])
        self.assertEqual(report.beyond(self.limits, told(a=[dispatch(spills=1, occupancy=24)])),
                         ["gpu a matvec: spills 1, the limit is 0", "gpu a matvec: occupancy 24, the limit is 25"])

    def test_exceptions(self):
        self.assertEqual(report.beyond(self.limits, told(a=[dispatch("large", occupancy=10)])), [])
        self.assertEqual(len(report.beyond(self.limits, told(a=[dispatch("large", occupancy=9)]))), 1)
        self.assertEqual(len(report.beyond(self.limits, told(a=[dispatch("larger", occupancy=10)]))), 1)

    def test_nothing_to_check_is_not_within_the_limits(self):
        self.assertEqual(report.beyond(self.limits, told()), ["gpu: nothing was checked"])
        self.assertEqual(report.beyond(self.limits, told(a=[dispatch(registers=8)])), ["gpu: nothing was checked"])

    def test_the_limits_that_are_kept_can_be_read(self):
        kept = json.loads((ROOT / "tools" / "gpu_report" / "limits.json").read_text())
        self.assertTrue(set(kept["limits"]) <= set(report.COLUMNS))
        self.assertTrue(all("why" in rule for rule in kept["exceptions"]))


class Compare(unittest.TestCase):
    def test_changes(self):
        was, now = told(a=[dispatch(registers=8)], b=[dispatch()]), told(a=[dispatch(registers=9)], c=[dispatch("new")])
        self.assertEqual(report.compare(was, was), [])
        self.assertEqual(report.compare(was, now),
                         ["gpu a matvec: registers 8 -> 9", "gpu c new: new", "gpu b matvec: gone"])

    def test_what_was_not_asked_for_is_not_gone(self):
        was = told(a=[dispatch()], b=[dispatch()])
        self.assertEqual(report.compare(was, told(a=[dispatch()]), "^a"), [])
        self.assertEqual(report.compare(was, {}), [])

    def test_one_file_may_be_compared_and_written(self):
        with tempfile.TemporaryDirectory() as folder:
            program, kept = pathlib.Path(folder, "program"), pathlib.Path(folder, "kept.json")
            case = {"name": "a", "flops": 1, "bytes": 1, "dispatches": [{**dispatch(), "statistics": {"VGPRs": 9}}]}
            said = {"device": "NAVI31", "driver": "driver", "tells": True, "cases": [case]}
            program.write_text(f"#!/bin/sh\necho '{json.dumps(said)}'\n")
            program.chmod(0o755)
            kept.write_text(json.dumps({"here": told(a=[dispatch(registers=8)])["gpu"]}))
            script = [sys.executable, ROOT / "tools" / "gpu_report" / "report.py", "--program", program, "--compilers",
                      "none", "here", "--compare"]
            missing = subprocess.run([*script, pathlib.Path(folder, "none.json")], capture_output=True, text=True)
            self.assertEqual(missing.returncode, 2)
            self.assertIn("none.json", missing.stderr)
            both = subprocess.run([*script, kept, "--json", kept], capture_output=True, text=True)
            self.assertIn("here a matvec: registers 8 -> 9", both.stdout, both.stderr)


class ReportArguments(unittest.TestCase):
    """What cannot be used is told before any kernel is compiled."""

    def refused(self, folder, *arguments):
        program = pathlib.Path(folder, "program")
        write_program(program, "#!/bin/sh\ntouch \"$0.ran\"\n")
        done = subprocess.run([sys.executable, ROOT / "tools" / "gpu_report" / "report.py", "--program", program, *arguments],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertFalse(pathlib.Path(f"{program}.ran").exists())
        return done.stderr

    def test_missing_programs(self):
        with tempfile.TemporaryDirectory() as folder:
            missing = pathlib.Path(folder, "missing")
            for gpus in [[], ["here", "gpu"]]:
                self.assertIn(f"--compilers {missing}", self.refused(folder, "--compilers", missing, *gpus))
            self.assertIn(f"--program {missing}",
                          self.refused(folder, "--compilers", "none", "here", "--program", missing))

    def test_json_of_another_shape(self):
        shapes = [[], 5, None, {"g": 5}, {"g": {}}, {"g": {"cases": []}}, {"g": {"cases": {"a": 5}}},
                  {"g": {"cases": {"a": [5]}}}, {"g": {"cases": {"a": [{}]}}}]
        with tempfile.TemporaryDirectory() as folder:
            kept = pathlib.Path(folder, "kept.json")
            for shape in shapes:
                kept.write_text(json.dumps(shape))
                said = self.refused(folder, "--compilers", "none", "here", "--compare", kept)
                self.assertIn("kept.json: it is not what --json writes", said)
        self.assertTrue(report.is_report({}))
        self.assertTrue(report.is_report(told(a=[dispatch()])))

    def test_names_in_a_picture(self):
        drawn = report.picture({"a&<b>": told(**{"c<\"d\"&": [dispatch()]})["gpu"]})
        texts = [element.text for element in xml.etree.ElementTree.fromstring(drawn).iter() if element.text]
        self.assertIn("a&<b>", texts)
        self.assertIn("c<\"d\"&", texts)


class Peer(unittest.TestCase):
    def test_bytes_of_loads(self):
        for name, count in {"global_load_b128": 16, "buffer_load_u16": 2, "buffer_load_dwordx4": 16,
                            "buffer_load_dword": 4, "buffer_load_ushort": 2, "buffer_load_ubyte": 1,
                            "global_load_i8": 1, "buffer_load_d16_b16": 2, "buffer_load_short_d16": 2}.items():
            self.assertEqual(peer.bytes_of(name), count, name)

    def test_innermost_loops(self):
        lines = ["BB1:", "v_mov_b32", "BB2:", "v_fma_f32 v0", "s_cbranch_scc1 BB2", "s_cbranch_scc1 BB1", "s_endpgm"]
        self.assertEqual(peer.loops(lines), [["BB2:", "v_fma_f32 v0", "s_cbranch_scc1 BB2"]])
        self.assertEqual(peer.count(peer.loops(lines)[0], 64)["multiply_adds"], 1)


class GpuDay(unittest.TestCase):
    """The tests of a day count as done only where all their parts came to a good end."""

    def tell(self, parts, expected):
        with tempfile.TemporaryDirectory() as folder:
            made, out = pathlib.Path(folder, "made"), pathlib.Path(folder, "out")
            (made / "parts").mkdir(parents=True)
            out.mkdir()
            if expected:
                (made / "parts" / "count").write_text(f"{expected}\n")
            for i, text in enumerate(parts):
                (made / "parts" / f"{i}.txt").write_text(text)
            script = 'source "$0" --help >/dev/null; made=$1 out=$2; tell_tests'
            return subprocess.run(["bash", "-c", script, ROOT / "tools" / "gpu-day", made, out], capture_output=True,
                                  text=True, check=False)

    def test_all_passed(self):
        done = self.tell(["Status: SUCCESS!\n", "Status: SUCCESS!\n"], 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 of 2 parts of the tests came to their end, 2 passed", done.stdout)

    def test_anything_less(self):
        good, bad = "Status: SUCCESS!\n", "TEST CASE:  softmax\nStatus: FAILURE!\n"
        for parts, expected in [([], 0), ([], 2), ([good], 2), ([good, bad], 2), ([good, ""], 2), ([good], 0)]:
            self.assertNotEqual(self.tell(parts, expected).returncode, 0, (parts, expected))
        self.assertIn("    softmax", self.tell([good, bad], 2).stdout)


def write_program(path, text):
    path.write_text(text)
    path.chmod(0o755)


class Fuzz(unittest.TestCase):
    def run_for(self, seconds):
        """How long the targets are told to run."""
        with tempfile.TemporaryDirectory() as folder:
            targets = pathlib.Path(folder, "tests", "fuzz_targets")
            targets.parent.mkdir()
            write_program(targets, "#!/bin/sh\necho \"$@\" >\"$0.told\"\n")
            done = subprocess.run([ROOT / "tools" / "lib" / "fuzz", folder, seconds, "config"], capture_output=True, text=True,
                                  check=False)
            told = pathlib.Path(f"{targets}.told")
            return done, told.read_text() if told.exists() else None

    def test_parts_of_a_second_are_rounded_up(self):
        for seconds, whole in {"0.5": 1, "1": 1, "2.25": 3, "0.001": 1}.items():
            done, told = self.run_for(seconds)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"-max_total_time={whole} ", told)

    def test_no_time_is_refused(self):
        for seconds in ["0", "0.0"]:
            done, told = self.run_for(seconds)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("more than 0 seconds", done.stderr)
            self.assertIsNone(told)
            done = subprocess.run([ROOT / "tools" / "test", "--fuzz", seconds], capture_output=True, text=True, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("more than 0 seconds", done.stderr)


class CompareBenches(unittest.TestCase):
    PROGRAM = """#!/bin/sh
if [ "$1" = --list ]; then echo row_a; exit; fi
"""

    def start(self, folder, old, new):
        for name, text in [("old", old), ("new", new)]:
            write_program(pathlib.Path(folder, name), self.PROGRAM + text)
        return subprocess.Popen([sys.executable, ROOT / "tools" / "bench" / "compare.py", pathlib.Path(folder, "old"),
                                 pathlib.Path(folder, "new"), "--rounds", "1"], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def test_what_a_bench_said_last_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            process = self.start(folder, "echo 'row_a FAILED: wrong by 3'\nexit 1\n", "")
            said = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, 1)
            self.assertIn("row_a FAILED: wrong by 3", said)
            self.assertIn("ended with 1", said)

    def compare(self, folder, *arguments):
        """Compares a bench with itself, which notes what it measures in a file `measured`."""
        program = pathlib.Path(folder, "bench")
        write_program(program, self.PROGRAM + """while [ "$1" != --json ]; do shift; done
echo '[{"name": "row_a", "ms": 1}]' >"$2"
touch "$(dirname "$0")/measured"
""")
        return subprocess.run([sys.executable, ROOT / "tools" / "bench" / "compare.py", program, program, *arguments],
                              capture_output=True, text=True, cwd=folder, check=False)

    def refused(self, folder, *arguments):
        """One line on standard error, before anything is measured."""
        done = self.compare(folder, *arguments)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertFalse(pathlib.Path(folder, "measured").exists())
        return done.stderr

    def test_options_are_refused_before_measuring(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn("missing/x: No such file", self.refused(folder, "--json", "missing/x"))
            self.assertIn("it is a directory", self.refused(folder, "--json", folder))
            for arguments in [("--rounds", "0"), ("--rounds", "-1"), ("--seconds", "nan"), ("--seconds", "0")]:
                self.assertIn(" ".join(arguments), self.refused(folder, *arguments))

    def test_what_a_bench_refuses_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "refusing")
            write_program(program, "#!/bin/sh\necho 'bench: mismatched (' >&2\nexit 1\n")
            for old, told_too in [(program, "bench: mismatched ("), (pathlib.Path(folder, "missing"), "cannot start")]:
                done = subprocess.run([sys.executable, ROOT / "tools" / "bench" / "compare.py", old, program],
                                      capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
                self.assertIn(told_too, done.stderr)

    def test_a_file_is_kept_until_the_times_are_there(self):
        with tempfile.TemporaryDirectory() as folder:
            kept = pathlib.Path(folder, "kept.json")
            kept.write_text("before")
            self.refused(folder, "--json", kept, "--seconds", "nan")
            self.refused(folder, "--json", kept, "--rounds", "0")
            self.assertEqual(kept.read_text(), "before")
            done = self.compare(folder, "--json", kept, "--rounds", "2")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(kept.read_text()), {"row_a": [[1, 1], [1, 1]]})
            self.assertFalse(pathlib.Path(folder, "kept.json.part").exists())

    def test_no_bench_is_left_behind(self):
        quick = """echo $$ >"$0.pid.part" && mv "$0.pid.part" "$0.pid"
while [ "$1" != --json ]; do shift; done
"""
        for number in [signal.SIGTERM, signal.SIGINT]:
            with tempfile.TemporaryDirectory() as folder:
                # the first look at the rows ends, the round does not
                first = 'if [ ! -e "$0.known" ]; then touch "$0.known"; echo \'[{"name": "row_a", "ms": 1}]\' >"$2"; exit; fi\n'
                process = self.start(folder, quick + first + "sleep 100\n", quick + "sleep 100\n")
                pids, until = [pathlib.Path(folder, f"{name}.pid") for name in ["old", "new"]], time.monotonic() + 60
                while not (pids[1].exists() and pathlib.Path(folder, "old.known").exists()) and time.monotonic() < until:
                    time.sleep(0.05)
                process.send_signal(number)
                process.communicate(timeout=60)
                self.assertNotEqual(process.returncode, 0)
                for pid in pids:
                    with self.assertRaises(ProcessLookupError):
                        os.kill(int(pid.read_text()), 0)


if __name__ == "__main__":
    unittest.main()
