#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the tools that no C++ program holds: tools/gpu_report, tools/gpu-day, tools/test,
tools/lib/fuzz and those of tools/bench."""
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

    SCRIPT = ROOT / "tools" / "gpu-day"

    def call(self, function, *arguments):
        """Calls a function of the script."""
        script = 'source "$0" --help >/dev/null; made=$2 out=$3; "$1" "${@:2}"'
        return subprocess.run(["bash", "-c", script, self.SCRIPT, function, *arguments], capture_output=True, text=True,
                              check=False)

    def tell(self, parts, expected):
        """What is told of parts: each is a text, or a text and an exit status, None before it has one."""
        with tempfile.TemporaryDirectory() as folder:
            made, out = pathlib.Path(folder, "made"), pathlib.Path(folder, "out")
            (made / "parts").mkdir(parents=True)
            out.mkdir()
            if expected:
                (made / "parts" / "count").write_text(f"{expected}\n")
            for i, part in enumerate(parts):
                text, status = part if isinstance(part, tuple) else (part, int("SUCCESS" not in part))
                (made / "parts" / f"{i}.txt").write_text(text)
                if status is not None:
                    (made / "parts" / f"{i}.status").write_text(f"{status}\n")
            return self.call("tell_tests", made, out)

    def test_all_passed(self):
        done = self.tell(["Status: SUCCESS!\n", "Status: SUCCESS!\n"], 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 of 2 parts of the tests came to their end, 2 passed", done.stdout)
        self.assertNotIn("stopped", done.stdout)

    def test_anything_less(self):
        good, bad = "Status: SUCCESS!\n", "TEST CASE:  softmax\nStatus: FAILURE!\n"
        for parts, expected in [([], 0), ([], 2), ([good], 2), ([good, bad], 2), ([good, ""], 2), ([good], 0),
                                ([good, (good, 1)], 2), ([good, (good, None)], 2)]:
            self.assertNotEqual(self.tell(parts, expected).returncode, 0, (parts, expected))
        self.assertIn("    softmax", self.tell([good, bad], 2).stdout)

    def test_what_was_stopped_did_not_fail(self):
        stopped = ("TEST CASE:  {}\n\na_test.cpp:25: FATAL ERROR: test case CRASHED: "
                   "SIGTERM - Termination request signal\n\n[doctest] Status: FAILURE!\n")
        failed = "TEST CASE:  norm\n\na_test.cpp:9: ERROR: CHECK( 1 == 2 ) is NOT correct!\n\n"
        done = self.tell([(stopped.format("softmax"), None), (failed + stopped.format("attention"), 1)], 2)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "0 of 2 parts of the tests came to their end, 0 passed; what failed:\n    norm\n"
                                      "what was stopped, as the time was over:\n    attention\n    softmax\n")

    def test_validation_fails_a_part(self):
        said = "validation, softmax: VUID-x: bad\n"
        done = self.tell([(said + "Status: SUCCESS!\n", 1), "Status: SUCCESS!\n"], 2)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("2 of 2 parts of the tests came to their end, 1 passed", done.stdout)
        self.assertIn("    " + said, done.stdout)

    def test_parts_keep_their_status(self):
        with tempfile.TemporaryDirectory() as folder:
            made = pathlib.Path(folder)
            for name in ["tests", "parts"]:
                (made / name).mkdir()
            write_program(made / "tests" / "vkformer_tests", "#!/bin/sh\necho \"$@\"\nexit 3\n")
            script = 'source "$0" --help >/dev/null; made=$1; test_part 7'
            done = subprocess.run(["bash", "-c", script, self.SCRIPT, made], check=False)
            self.assertEqual(done.returncode, 3)
            self.assertEqual((made / "parts" / "7.status").read_text(), "3\n")
            self.assertEqual((made / "parts" / "7.txt").read_text(), "--first=7 --last=12\n")

    def test_libraries_of_the_machine_come_first(self):
        with tempfile.TemporaryDirectory() as folder:
            packed, missing = pathlib.Path(folder, "packed"), pathlib.Path(folder, "missing")
            packed.mkdir()
            for name in ["libc.so.6", "libof_no_machine.so.1"]:
                (packed / name).touch()
            done = self.call("missing_libraries", packed, missing)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(os.listdir(missing), ["libof_no_machine.so.1"])

    def test_arguments_are_refused_before_anything_is_done(self):
        with tempfile.TemporaryDirectory() as folder:
            for arguments in [("run",), ("--quick", "out"), ("out", "--quick"), ("a", "b", "c"), ("run", "a", "b", "c"),
                              ("pack", "--x"), ("pack", "a", "b"), ("run", "")]:
                done = subprocess.run([self.SCRIPT, *arguments], capture_output=True, text=True, cwd=folder, check=False)
                self.assertEqual(done.returncode, 1, arguments)
                self.assertIn("see --help", done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertEqual(os.listdir(folder), [])

    def test_a_doctor_that_is_stopped_is_followed_by_a_quick_one(self):
        """A whole day of programs that do nothing."""
        with tempfile.TemporaryDirectory() as folder:
            made, out, shim = [pathlib.Path(folder, name) for name in ["made", "out", "shim"]]
            doctor = "#!/bin/sh\ncase \"$*\" in *--quick*) echo quick ;; *) echo device; sleep 20 ;; esac\n"
            tests = "#!/bin/sh\n[ \"$1\" != --count ] || echo 'current filters: 6'\necho 'Status: SUCCESS!'\n"
            for name, text in [("tools/doctor/vkformer-doctor", doctor), ("tools/bench/bench", "#!/bin/sh\n"),
                               ("tools/tune/vkformer-tune", "#!/bin/sh\n"), ("tests/vkformer_tests", tests)]:
                (made / name).parent.mkdir(parents=True)
                write_program(made / name, text)
            (made / "prefix").mkdir()
            shim.mkdir()
            write_program(shim / "cmake", "#!/bin/sh\n")
            script = 'source "$0" --help >/dev/null; left() { echo 1; }; run "$1" "$2"'
            done = subprocess.run(["bash", "-c", script, self.SCRIPT, folder, out], capture_output=True, text=True,
                                  env={**os.environ, "GPU_DAY_BUILD": str(made), "PATH": f"{shim}:{os.environ['PATH']}"},
                                  check=False)
            summary = (out / "summary.txt").read_text()
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertRegex(summary, "doctor +[0-9]+ s  stopped after 1 s\ndevice\nquick doctor +[0-9]+ s  done\nquick\n")
            self.assertIn("1 of 1 parts of the tests came to their end, 1 passed", summary)
            self.assertFalse((made / "prefix").exists())


class Test(unittest.TestCase):
    def test_options_are_whole_words_of_the_help(self):
        told = "  -R <regex>, --tests-regex <regex> = Run\n  --stop-time <time>\n  --[no-]rerun-failed\n"
        script = 'source "$0"; names_option "$1" "$2"'
        for option, named in {"--tests-regex": True, "--stop-time": True, "--tests": False, "--stop": False,
                              "--time": False, "--regex": False}.items():
            done = subprocess.run(["bash", "-c", script, ROOT / "tools" / "lib" / "setup.sh", told, option], check=False)
            self.assertEqual(done.returncode == 0, named, option)


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


def heed_signals():
    """What starts this test may ignore them."""
    for number in [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT]:
        signal.signal(number, signal.SIG_DFL)


class CompareBenches(unittest.TestCase):
    PROGRAM = """#!/bin/sh
if [ "$1" = --list ]; then echo row_a; exit; fi
"""

    def start(self, folder, old, new):
        for name, text in [("old", old), ("new", new)]:
            write_program(pathlib.Path(folder, name), self.PROGRAM + text)
        return subprocess.Popen([sys.executable, ROOT / "tools" / "bench" / "compare.py", pathlib.Path(folder, "old"),
                                 pathlib.Path(folder, "new"), "--rounds", "1"], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, preexec_fn=heed_signals)

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

    def test_links_stay(self):
        with tempfile.TemporaryDirectory() as folder:
            data = pathlib.Path(folder, "data")
            data.mkdir()
            there, made = pathlib.Path(folder, "there.json"), pathlib.Path(folder, "made.json")
            (data / "there.json").write_text("before")
            for link in [there, made]:
                link.symlink_to(pathlib.Path("data", link.name))
                done = self.compare(folder, "--json", link, "--rounds", "1")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(link.is_symlink())
                self.assertEqual(json.loads((data / link.name).read_text()), {"row_a": [[1, 1]]})
            pathlib.Path(folder, "loop").symlink_to("loop")
            self.assertIn("it is a link to itself", subprocess.run(
                [sys.executable, ROOT / "tools" / "bench" / "compare.py", "a", "b", "--json", "loop"], cwd=folder,
                capture_output=True, text=True, check=False).stderr)

    def test_what_is_printed_holds_the_rows_and_the_times(self):
        with tempfile.TemporaryDirectory() as folder:
            program, link = pathlib.Path(folder, "bench"), pathlib.Path(folder, "stdout")
            self.compare(folder)
            link.symlink_to("/proc/self/fd/1")
            with open(pathlib.Path(folder, "out.txt"), "w+") as out:
                subprocess.run([sys.executable, ROOT / "tools" / "bench" / "compare.py", program, program, "--rounds", "2",
                                "--json", link], stdout=out, check=True)
                out.seek(0)
                times, rest = json.JSONDecoder().raw_decode(said := out.read())
            self.assertEqual(times, {"row_a": [[1, 1], [1, 1]]})
            self.assertIn("row_a", said[rest:])
            self.assertTrue(link.is_symlink())
            self.assertEqual(sorted(os.listdir(folder)), ["bench", "measured", "out.txt", "stdout"])

    def test_no_bench_is_left_behind(self):
        quick = """echo $$ >"$0.pid.part" && mv "$0.pid.part" "$0.pid"
while [ "$1" != --json ]; do shift; done
"""
        for number in [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]:
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
