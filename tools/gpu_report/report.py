# SPDX-License-Identifier: Apache-2.0
"""Runs gpu_report on the compilers of GPUs; tells, keeps, draws, compares and checks what they say.

The arguments are those of tools/gpu-report, which builds the program first.
"""

import argparse
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import peer

# What drivers call what is reported: RADV, NVK, Turnip, Honeykrisp, lavapipe. The first that a
# driver tells of counts; where several names stand together, their sum.
NAMES = {
    "registers": [["VGPRs"], ["Number of GPRs"], ["Registers used"], ["GPRs"]],
    "spills": [["Spilled VGPRs", "Spilled SGPRs"], ["Spills to memory", "Fills from memory"],
               ["STP Count", "LDP Count"], ["Spills", "Fills"]],
    "scratch": [["Scratch size"], ["SLM size"], ["Scratch"]],
    "shared": [["LDS size"]],
    "waves": [["Subgroups per SIMD"], ["Max warps/SM"], ["Max Waves Per Core"], ["Threads"]],
    "instructions": [["Instructions"], ["Instruction count"], ["Instruction Count"]],
    "cycles": [["Inverse Throughput"], ["Static cycle count"], ["ALU"]],
    "latency": [["Latency"]],
}
# The most waves that the hardware can hold, by the name under which the driver tells them and the
# driver's device: occupancy is a share of it.
MOST_WAVES = {"Subgroups per SIMD": {"NAVI3": 32, "GFX12": 32, "VEGA10": 10, "POLARIS10": 8},
              "Max warps/SM": {"": 48}, "Max Waves Per Core": {"": 16}, "Threads": {"": 1024}}
COLUMNS = ["registers", "spills", "scratch", "shared", "occupancy", "instructions", "cycles"]
HERE = pathlib.Path(__file__).resolve().parent


def numbers(statistics, device):
    """The statistics of one driver under names that all share; what it does not tell is absent."""
    out = {}
    for name, choices in NAMES.items():
        for choice in choices:
            if choice[0] in statistics:
                out[name] = sum(int(statistics.get(part, 0)) for part in choice)
                if name == "waves":
                    most = next((m for key, m in MOST_WAVES[choice[0]].items() if key in device.upper()), None)
                    if most:
                        out["occupancy"] = round(100 * out[name] / most)
                break
    return out


def run(arguments, gpu):
    command = [arguments.program, "--only", arguments.only]
    if gpu != "here":
        command = [arguments.compilers, gpu] + command
    for _ in range(3):  # the compilers may be busy
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            break
        time.sleep(2)
    if done.returncode != 0 or not done.stdout.startswith("{"):
        sys.exit(f"gpu-report: {gpu}: {(done.stderr or done.stdout).strip()[-2000:]}")
    told = json.loads(done.stdout)
    if not told["tells"]:
        sys.exit(f"gpu-report: {gpu}: the driver of {told['device']} does not tell of its pipelines "
                 "(VK_KHR_pipeline_executable_properties)")
    cases = {}
    for case in told["cases"]:
        if "error" in case:
            sys.exit(f"gpu-report: {gpu}, {case['name']}: {case['error']}")
        cases[case["name"]] = [
            {"kernel": d["kernel"], "dispatches": d["dispatches"], "groups": d["groups"],
             **numbers(d["statistics"], told["device"])} for d in case["dispatches"]]
    return {"device": told["device"].strip(), "driver": told["driver"], "cases": cases,
            "work": {c["name"]: {"flops": c["flops"], "bytes": c["bytes"]} for c in told["cases"]}}


def listed_gpus(compilers):
    done = subprocess.run([compilers, "--list"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = done.stderr.strip() or f"ended with {done.returncode}"
        sys.exit(f"gpu-report: {compilers} --list: {said[-2000:]}")
    return done.stdout.split()


def table(gpu, told):
    lines = [f"{gpu}: {told['device']}, {told['driver']}",
             f"{'case':40} {'kernel':26} {'groups':>8} " + " ".join(f"{c:>12}" for c in COLUMNS)]
    for case, dispatches in told["cases"].items():
        for d in dispatches:
            shown = [str(d[c]) + ("%" if c == "occupancy" else "") if c in d else "-" for c in COLUMNS]
            lines.append(f"{case:40} {d['kernel']:26} {d['groups']:>8} " + " ".join(f"{s:>12}" for s in shown))
            case = ""
    return "\n".join(lines)


def by_place(told):
    """Every dispatch of a report by GPU, case and place; kernels may differ between two reports."""
    return {(gpu, case, at): d for gpu, one in told.items() for case, all_of in one["cases"].items()
            for at, d in enumerate(all_of)}


def is_report(data):
    """Whether the data has what compare() reads of a file that --json wrote."""
    def is_dispatch(d):
        return isinstance(d, dict) and isinstance(d.get("kernel"), str)

    def is_of_one_gpu(one):
        return isinstance(one, dict) and isinstance(one.get("cases"), dict) and all(
            isinstance(all_of, list) and all(map(is_dispatch, all_of)) for all_of in one["cases"].values())

    return isinstance(data, dict) and all(map(is_of_one_gpu, data.values()))


def compare(before, now, only=""):
    """A line for each difference; cases whose names `only` does not find were not asked for now."""
    was, now_is = by_place(before), by_place(now)
    lines = []
    for place in sorted(now_is.keys() & was.keys()):
        old, new = was[place], now_is[place]
        parts = [f"{key} {old.get(key, '-')} -> {new.get(key, '-')}"
                 for key in ["kernel", "dispatches", "groups"] + COLUMNS if old.get(key) != new.get(key)]
        if parts:
            lines.append(f"{place[0]} {place[1]} {new['kernel']}: " + ", ".join(parts))
    lines += [f"{p[0]} {p[1]} {now_is[p]['kernel']}: new" for p in sorted(now_is.keys() - was.keys())]
    lines += [f"{p[0]} {p[1]} {was[p]['kernel']}: gone" for p in sorted(was.keys() - now_is.keys())
              if p[0] in now and re.search(only, p[1])]
    return lines


def limit_of(limits, name, gpu, case, kernel):
    """The limit's number: of the last rule that fits, and why it is another than usual."""
    value = limits["limits"][name]
    for rule in limits["exceptions"]:
        if (name in rule and re.fullmatch(rule.get("gpu", ".*"), gpu) and re.fullmatch(rule.get("case", ".*"), case)
                and re.fullmatch(rule.get("kernel", ".*"), kernel)):
            value = rule[name]
    return value


def beyond(limits, told):
    """A line for each figure beyond its limit, and for each GPU that told nothing to be limited."""
    lines = []
    checked = dict.fromkeys(told, 0)
    for (gpu, case, _), d in by_place(told).items():
        for name in limits["limits"]:
            if name not in d:
                continue
            checked[gpu] += 1
            limit = limit_of(limits, name, gpu, case, d["kernel"])
            if d[name] < limit if name == "occupancy" else d[name] > limit:
                lines.append(f"{gpu} {case} {d['kernel']}: {name} {d[name]}, the limit is {limit}")
    return lines + [f"{gpu}: nothing was checked" for gpu, count in checked.items() if count == 0]


def picture(told):
    """A cell for each case and GPU: the darker, the fewer waves fit; red where memory is spilled to."""
    gpus = list(told)
    cases = list(dict.fromkeys(case for one in told.values() for case in one["cases"]))
    left, top, wide, high = 290, 60, 150, 20
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + wide * len(gpus) + 10}" '
           f'height="{top + high * len(cases) + 30}" font-family="sans-serif" font-size="11">',
           '<rect width="100%" height="100%" fill="white"/>',
           '<text x="10" y="20" font-size="14">Waves that fit beside each other, in % of what the hardware holds; '
           'instructions</text>',
           '<text x="10" y="36" fill="#555">of the dispatch with the most instructions. Red: registers are spilled, '
           'or local memory is used.</text>']
    for x, gpu in enumerate(gpus):
        out.append(f'<text x="{left + wide * x + 6}" y="{top - 6}">{html.escape(gpu)}</text>')
    for y, case in enumerate(cases):
        at = top + high * y
        out.append(f'<text x="10" y="{at + 14}">{html.escape(case)}</text>')
        for x, gpu in enumerate(gpus):
            dispatches = told[gpu]["cases"].get(case)
            if not dispatches:
                continue
            d = max(dispatches, key=lambda one: one.get("instructions", 0))
            share = d.get("occupancy", 0)
            bad = any(one.get("spills", 0) or one.get("scratch", 0) for one in dispatches)
            light = 35 + 0.6 * share
            fill = f"hsl(0,70%,{light}%)" if bad else f"hsl(210,45%,{light}%)"
            ink = "white" if light < 60 else "black"
            out.append(f'<rect x="{left + wide * x}" y="{at}" width="{wide - 2}" height="{high - 2}" fill="{fill}"/>')
            out.append(f'<text x="{left + wide * x + 5}" y="{at + 13}" fill="{ink}">{share}%  '
                       f'{d.get("instructions", "-")}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gpus", nargs="*", metavar="GPU")
    parser.add_argument("--program", required=True)
    parser.add_argument("--compilers", required=True)
    parser.add_argument("--only", default=".*")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--svg", type=pathlib.Path)
    parser.add_argument("--compare", type=pathlib.Path)
    parser.add_argument("--limits", action="store_true")
    parser.add_argument("--ggml", action="store_true")
    arguments = parser.parse_args()
    if arguments.ggml and "here" in arguments.gpus:
        parser.error("--ggml is for GPUs' compilers, not for `here`")
    before = None
    if arguments.compare:  # which --json may name too
        try:
            before = json.loads(arguments.compare.read_text())
        except (OSError, ValueError) as e:
            parser.error(f"--compare {arguments.compare}: {e}")
        if not is_report(before):
            parser.error(f"--compare {arguments.compare}: it is not what --json writes")
    on_compilers = not arguments.gpus or any(gpu != "here" for gpu in arguments.gpus)
    for option, program, used in [("--compilers", arguments.compilers, on_compilers),
                                  ("--program", arguments.program, "here" in arguments.gpus)]:
        if used and not shutil.which(program):
            parser.error(f"{option} {program}: no such program can be started")
    os.environ.pop("VKFORMER_TUNING", None)  # it would decide before what a case asks for
    gpus = arguments.gpus or listed_gpus(arguments.compilers)
    told = {}
    for gpu in gpus:
        told[gpu] = run(arguments, gpu)
        print(table(gpu, told[gpu]) + "\n", flush=True)
        if arguments.ggml:
            print("\n".join(peer.beside(arguments.compilers, arguments.program, gpu)) + "\n", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(told, indent=1) + "\n")
    if arguments.svg:
        arguments.svg.write_text(picture(told))
    if before is not None:
        lines = compare(before, told, arguments.only)
        print("\n".join(lines) if lines else "nothing differs")
    if arguments.limits:
        lines = beyond(json.loads((HERE / "limits.json").read_text()), told)
        print("\n".join(lines) if lines else f"within the limits: {len(by_place(told))} dispatches on {len(told)} GPUs")
        return 1 if lines else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
