# SPDX-License-Identifier: Apache-2.0
"""ggml's kernels beside ours, as RADV compiles both.

RADV prints any program's shaders (RADV_DEBUG=asm,shaderstats). What counts is the loop that does the
work: the innermost one with the most multiply-adds, or where there are none the most loads.
"""

import re
import subprocess
import time

TESTS = "/usr/libexec/x86_64-linux-gnu/llama.cpp-tests/test-backend-ops"
# Our case, and ggml's test for the same kind of work: mode, op, and what its parameters say.
PAIRS = [
    *[(f"linear_1x4096_{ours}$", "perf", "MUL_MAT", f"type_a={theirs},type_b=f32,m=4096,n=1,k=14336")
      for ours, theirs in [("f32", "f32"), ("f16", "f16"), ("int8", "q8_0"), ("int4", "q4_0")]],
    *[(f"linear_4x4096_{ours}$", "perf", "MUL_MAT", f"type_a={theirs},type_b=f32,m=4096,n=4,k=14336")
      for ours, theirs in [("f32", "f32"), ("f16", "f16"), ("int8", "q8_0"), ("int4", "q4_0")]],
    *[(f"linear_512x4096_{ours}$", "perf", "MUL_MAT", f"type_a={theirs},type_b=f32,m=4096,n=512,k=14336")
      for ours, theirs in [("f32", "f32"), ("f16_in_f16", "f16"), ("int8_in_int8", "q8_0"), ("int4", "q4_0")]],
    *[(f"attention_decode_d64_4096_{ours}$", "perf", "FLASH_ATTN_EXT", f"hsk=64,hsv=64,.*nb=1,.*type_K={theirs}")
      for ours, theirs in [("f16", "f16"), ("int8", "q8_0")]],
    ("attention_prefill_d64_1024_f32_in_f16$", "test", "FLASH_ATTN_EXT",
     "hsk=64,hsv=64,nh=4,nr23=.1,1.,kv=512,nb=75,mask=1,sinks=0,max_bias=0.0*,logit_softcap=0.0*,prec=f32,type_K=f16"),
    ("attention_prefill_d128_1024_f32_in_f16$", "test", "FLASH_ATTN_EXT",
     "hsk=128,hsv=128,nh=4,nr23=.1,1.,kv=512,nb=75,mask=1,sinks=0,max_bias=0.0*,logit_softcap=0.0*,prec=f32,type_K=f16"),
    ("softmax_4096x1024$", "test", "SOFT_MAX", "type=f32,ne=.1024,16,1,1.,mask=0"),
    ("rms_norm_4096x4096$", "test", "RMS_NORM", "type=f32,ne=.1025,5,4,3.,v=0"),
    ("argmax_1x151936$", "test", "ARGMAX", "ne=.32,10,1,1."),
]
# Multiply-adds of one lane by the start of the instruction's name. Matrix units multiply 16x16x16
# a wave.
MULTIPLY_ADDS = [(re.compile(r"v_dual_(fmac|fmaak|fmamk)_f32"), 1), (re.compile(r"v_dot4"), 4),
                 (re.compile(r"v_dot8"), 8), (re.compile(r"v_dot2"), 2), (re.compile(r"v_pk_fma"), 2),
                 (re.compile(r"v_(fma|fmac|mac|mad|fmaak|fmamk|fma_mix)\w*_f(32|16)"), 1)]
# RDNA says bits, GCN words: global_load_b128 and buffer_load_u16, buffer_load_dwordx4 and
# buffer_load_ushort.
BITS = re.compile(r"_[biu](\d+)$")
DWORDS = re.compile(r"_dword(?:x(\d))?$")


def bytes_of(load):
    """The bytes of one lane that an instruction of this name loads."""
    bits, words = BITS.search(load), DWORDS.search(load)
    if bits:
        return int(bits.group(1)) // 8
    if words:
        return 4 * int(words.group(1) or 1)
    return 1 if "byte" in load else 2


def run(compilers, gpu, command):
    """What the program prints, its shaders in it; a few attempts, because the compilers may be busy."""
    text = ""
    for _ in range(5):
        done = subprocess.run([compilers, gpu, "env", "RADV_DEBUG=asm,shaderstats"] + command, capture_output=True,
                              text=True, check=False, errors="replace")
        text = done.stderr + done.stdout
        if "*** SHADER STATS" in text:
            break
        time.sleep(3)
    return text


def shaders(text):
    """Each shader that was compiled: its statistics and its instructions, with labels between."""
    out = []
    for part in re.split(r"^Compute Shader:?\s*$", text, flags=re.M)[1:]:
        lines, statistics, inside = [], {}, False
        for line in part.splitlines():
            if line.startswith("*** SHADER STATS"):
                inside = True
            elif inside and ":" in line:
                name, value = line.split(":", 1)
                if re.fullmatch(r" *\d+", value):
                    statistics[name] = int(value)
            elif line.startswith("BB") or line.startswith("\t"):
                lines.append(line.split(";")[0].strip())
        if statistics or lines:
            out.append({"statistics": statistics, "lines": lines})
    merged = []  # the text of a shader and its statistics come as two parts
    for one in out:
        if merged and one["statistics"] and not one["lines"] and not merged[-1]["statistics"]:
            merged[-1]["statistics"] = one["statistics"]
        else:
            merged.append(one)
    return [m for m in merged if m["lines"] and m["statistics"]]


def loops(lines):
    """The innermost loops: from a label to a jump back to it, without another such jump between."""
    at = {line[:-1]: i for i, line in enumerate(lines) if line.startswith("BB")}
    spans = []
    for i, line in enumerate(lines):
        match = re.match(r"s_c?branch\w* (BB\d+)", line)
        if match and at.get(match.group(1), i) < i:
            spans.append((at[match.group(1)], i))
    return [lines[a:b + 1] for a, b in spans if not any(a <= c and d <= b and (a, b) != (c, d) for c, d in spans)]


def count(instructions, wave):
    out = {"instructions": 0, "multiply_adds": 0, "loads": 0, "bytes": 0, "shared": 0}
    for line in instructions:
        for part in line.split("::"):
            name = part.split()[0] if part.split() else ""
            if not re.match(r"[a-z]", name) or name.startswith("s_delay"):
                continue
            out["instructions"] += 1
            if name.startswith("v_wmma"):
                out["multiply_adds"] += 16 * 16 * 16 / wave
            out["multiply_adds"] += next((n for pattern, n in MULTIPLY_ADDS if pattern.match(name)), 0)
            if re.match(r"(buffer|global)_load", name):
                out["loads"] += 1
                out["bytes"] += bytes_of(name)
            out["shared"] += name.startswith("ds_")
    return out


def hottest(shader):
    wave = 64
    best = None
    for loop in loops(shader["lines"]) or [shader["lines"]]:
        counted = count(loop, wave)
        key = (counted["multiply_adds"], counted["loads"] + counted["shared"])
        if best is None or key > best[0]:
            best = (key, counted)
    return best[1]


def of_program(text):
    """What is told of the program's shader that multiplies most, or loads most."""
    found = [(hottest(s), s["statistics"]) for s in shaders(text)]
    return max(found, key=lambda f: (f[0]["multiply_adds"], f[0]["loads"] + f[0]["shared"]), default=None)


def told(who, found):
    if not found:
        return f"  {who:6} nothing was compiled"
    loop, statistics = found
    adds = loop["multiply_adds"]
    each = f"{loop['instructions'] / adds:6.2f} instructions, {loop['shared'] / adds:5.2f} of shared memory and " \
           f"{loop['bytes'] / adds:5.2f} bytes a multiply-add" if adds else \
           f"{loop['instructions'] / max(1, loop['bytes']) * 4:6.2f} instructions a 4 bytes loaded"
    return f"  {who:6} {each}; registers {statistics.get('VGPRs')}, shared {statistics.get('LDS size')}, waves " \
           f"{statistics.get('Subgroups per SIMD')}, spilled {statistics.get('Spilled VGPRs')}"


def beside(compilers, program, gpu):
    """Lines for people: for each pair the inner loop of ours and of ggml's."""
    lines = []
    for case, mode, op, parameters in PAIRS:
        ours = of_program(run(compilers, gpu, [program, "--only", case]))
        theirs = of_program(run(compilers, gpu, [TESTS, mode, "-b", "Vulkan0", "-o", op, "-p", parameters]))
        lines += [case.rstrip("$"), told("ours", ours), told("ggml", theirs)]
    return lines
