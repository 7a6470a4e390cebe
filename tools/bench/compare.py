#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the bench of two versions, on a machine that is shared with others.

    compare.py OLD NEW [--filter REGEX] [--rounds N] [--seconds S] [--json FILE]

OLD and NEW are two programs `bench`. Both run at once, but only one of them at any moment: each is
stopped (SIGSTOP) while the other has its slice of time, and both measure the same row. What slows
the machine for longer than a slice so slows both. A slice takes several runs of the row, so that
the one run in which a program is stopped does not move the median. Each round starts both anew and
changes who comes first. Prints, for each row that both have, the medians in milliseconds over all
rounds, and the median, least and greatest ratio of a round: NEW over OLD. Rows that start other
programs (…_start) are left out. Needs a system with SIGSTOP.
"""
import argparse
import collections
import contextlib
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

LEFT_OUT = re.compile("_start$|^library_size$")
RUNS_IN_A_SLICE = 7
LEAST_SLICE, MOST_SLICE = 0.3, 15.0  # seconds


def refuse(reason):
    """Ends with one line on standard error, and status 2."""
    print(f"compare.py: {reason}", file=sys.stderr)
    raise SystemExit(2)


def rows_of(program, options):
    """The rows that it has, told by itself: it also refuses options that it does not take."""
    try:
        listed = subprocess.run([program, "--list", "--filter", options.filter, "--seconds", str(options.seconds)],
                                capture_output=True, text=True, errors="replace", check=False)
    except OSError as e:
        refuse(f"cannot start {program}: {e.strerror}")
    if listed.returncode != 0:
        said = listed.stderr.strip() or f"ended with {listed.returncode}"
        refuse(f"{program} --list: {said.splitlines()[0]}")
    return [name for name in listed.stdout.split() if not LEFT_OUT.search(name)]


class Turns:
    """A bench that runs only while it has its turn."""

    def __init__(self, program, rows, seconds, file):
        self.file, self.rows = file, set(rows)
        self.done, self.measured, self.rest = False, 0, b""
        self.said = collections.deque(maxlen=20)  # its last lines
        pattern = "^(" + "|".join(map(re.escape, rows)) + ")$"
        self.process = subprocess.Popen([program, "--filter", pattern, "--seconds", str(seconds), "--json", file],
                                        stdout=subprocess.PIPE, start_new_session=True)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.signal(signal.SIGSTOP)

    def signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass  # it ended meanwhile

    def look(self):
        """Counts the rows that have been printed."""
        self.done = self.process.poll() is not None
        *lines, self.rest = (self.rest + (self.process.stdout.read() or b"")).split(b"\n")
        self.said.extend(line.decode(errors="replace") for line in lines)
        self.measured += sum(line.decode(errors="replace").split(" ")[0] in self.rows for line in lines)

    def turn(self, seconds, rows):
        """Lets it run so long, or until it has measured so many rows."""
        self.signal(signal.SIGCONT)
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.done and self.measured < rows:
            time.sleep(0.01)
            self.look()
        if not self.done:
            self.signal(signal.SIGSTOP)

    def times(self):
        self.signal(signal.SIGCONT)
        if self.process.wait() != 0:
            self.look()
            raise SystemExit("\n".join([*self.said, self.rest.decode(errors="replace"),
                                        f"{self.process.args[0]} ended with {self.process.returncode}"]))
        with open(self.file) as file:
            return {row["name"]: row["ms"] for row in json.load(file)}

    def end(self):
        """Kills it, and what it started, if it is still there: whoever is stopped ends in no other way."""
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait()
        self.process.stdout.close()


def own_output(path):
    """The program's own output that is this file, if one is."""
    for stream in [sys.stdout, sys.stderr]:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(path), os.fstat(stream.fileno())):
                return stream
    return None


def replaced(path):
    """The file that is replaced by a rename, or made: what stands behind links, which stay. None
    where it is written in place: what is printed, is no regular file, or is a link in /proc, which
    stands for a file that is open."""
    if own_output(path) or os.path.exists(path) and not os.path.isfile(path):
        return None
    file = path
    for _ in range(40):
        if not os.path.islink(file):
            return file
        folder = os.path.dirname(file)
        if os.path.realpath(folder).startswith("/proc/"):
            return None
        file = os.path.join(folder, os.readlink(file))
    return refuse(f"cannot write {path}: it is a link to itself")


def require_writable(path):
    """Ends where the file cannot be written. It is neither made nor changed."""
    if os.path.isdir(path):
        refuse(f"cannot write {path}: it is a directory")
    file = replaced(path)
    if not file:
        return
    part = file + ".part"
    try:
        with open(part, "w"):
            pass
        os.remove(part)
    except OSError as e:
        refuse(f"cannot write {path}: {e.strerror}")


def write_file(path, text):
    """Writes the text beside the file and renames that; links stay. Writes into what is no regular
    file, and prints the text where that is the program's own output."""
    if own := own_output(path):
        print(text, file=own, flush=True)
        return
    file = replaced(path)
    part = file + ".part" if file else path
    try:
        with open(part, "w") as stream:
            stream.write(text)
        if file:
            os.replace(part, file)
    except OSError as e:
        refuse(f"cannot write {path}: {e.strerror}")


def one_round(programs, rows, seconds, folder, expected):
    """Measures every row once with both; gives the times of each."""
    both = []
    with contextlib.ExitStack() as ends:
        for i, program in enumerate(programs):
            both.append(Turns(program, rows, seconds, os.path.join(folder, f"{i}.json")))
            ends.callback(both[-1].end)
        for count, row in enumerate(rows + [None], start=1):  # the last turn ends them
            slice_of = min(MOST_SLICE, max(LEAST_SLICE, RUNS_IN_A_SLICE * expected.get(row, 0) / 1e3))
            while waiting := [t for t in both if not t.done and t.measured < count]:
                for turns in waiting:
                    turns.turn(slice_of, count)
        return [turns.times() for turns in both]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--filter", default="", help="a regular expression: only rows whose names it finds")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="time that each spends on a row, in all its turns")
    parser.add_argument("--json", help="write the times of every round to this file: {row: [[old, new], ...]}")
    options = parser.parse_args()
    if options.rounds < 1:
        refuse(f"--rounds {options.rounds}: there must be one at least")
    if not (math.isfinite(options.seconds) and options.seconds > 0):
        refuse(f"--seconds {options.seconds}: must be a number above 0")
    if options.json:
        require_writable(options.json)
    # not by the signal itself: both benches are ended first
    for number in [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]:
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, lambda number, frame: sys.exit(128 + number))
    programs = [os.path.abspath(options.old), os.path.abspath(options.new)]
    old_rows, new_rows = [rows_of(program, options) for program in programs]
    rows = [row for row in old_rows if row in new_rows]
    if not rows:
        raise SystemExit("the two have no row in common whose name matches " + options.filter)
    with tempfile.TemporaryDirectory() as folder:
        # how long a run of each row takes; what this device does not run is left out
        expected = one_round(programs[:1], rows, 0.01, folder, {})[0]
        rows = [row for row in rows if expected.get(row)]
        pairs = {row: [] for row in rows}
        for number in range(options.rounds):
            order = programs if number % 2 == 0 else programs[::-1]
            times = one_round(order, rows, options.seconds, folder, expected)
            old, new = times if number % 2 == 0 else times[::-1]
            for row in rows:
                pairs[row].append([old[row], new[row]])
            if options.json and (number == options.rounds - 1 or replaced(options.json)):
                write_file(options.json, json.dumps(pairs, indent=1))
    print(f"{'ms':36} {'old':>10} {'new':>10}  ratio  least..greatest")
    for row, measured in pairs.items():
        ratios = [new / old for old, new in measured]
        print(f"{row:36} {statistics.median(o for o, _ in measured):10.4f} {statistics.median(n for _, n in measured):10.4f}  "
              f"{statistics.median(ratios):5.3f}  {min(ratios):.3f}..{max(ratios):.3f}")


if __name__ == "__main__":
    main()
