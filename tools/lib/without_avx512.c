/* SPDX-License-Identifier: Apache-2.0
 * Preloaded by tools/without-avx512: the process sees an AMD Zen 3, which has AVX2 and no AVX-512.
 * Where the processor can (cpuid_fault in /proc/cpuinfo), Linux lets CPUID fault (arch_prctl(2),
 * ARCH_SET_CPUID), and the handler answers in its place. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { kSetCpuid = 0x1012 }; /* ARCH_SET_CPUID */

static long let_cpuid_run(int on) { return syscall(SYS_arch_prctl, kSetCpuid, on); }

/* Bits of leaf 7: those that begin with AVX512, and AMX. */
static const uint32_t kEbx = 1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31;
static const uint32_t kEcx = 1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14;
static const uint32_t kEdx = 1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25;

static void answer(uint32_t leaf, uint32_t part, uint32_t r[4]) {
    let_cpuid_run(1);
    __cpuid_count(leaf, part, r[0], r[1], r[2], r[3]);
    let_cpuid_run(0);
    if (leaf == 0) {
        memcpy(&r[1], "Auth", 4);
        memcpy(&r[3], "enti", 4);
        memcpy(&r[2], "cAMD", 4);
    } else if (leaf == 1) {
        r[0] = 0x00a20f10; /* family 25, model 33 */
    } else if (leaf == 7 && part == 0) {
        r[0] = 0;
        r[1] &= ~kEbx;
        r[2] &= ~kEcx;
        r[3] &= ~kEdx;
    } else if (leaf == 7) {
        memset(r, 0, 4 * sizeof(r[0]));
    }
}

static void on_fault(int number, siginfo_t* info, void* context) {
    greg_t* at = ((ucontext_t*)context)->uc_mcontext.gregs;
    const unsigned char* code = (const unsigned char*)at[REG_RIP];
    (void)info;
    if (code[0] != 0x0f || code[1] != 0xa2) { /* no CPUID: it faults again, and ends the process */
        signal(number, SIG_DFL);
        return;
    }
    uint32_t r[4];
    answer((uint32_t)at[REG_RAX], (uint32_t)at[REG_RCX], r);
    at[REG_RAX] = r[0];
    at[REG_RBX] = r[1];
    at[REG_RCX] = r[2];
    at[REG_RDX] = r[3];
    at[REG_RIP] += 2;
}

__attribute__((constructor)) static void start(void) {
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    if (sigaction(SIGSEGV, &action, NULL) != 0 || let_cpuid_run(0) != 0) {
        fputs("without-avx512: this processor, or this Linux, does not let CPUID fault\n", stderr);
        _exit(1);
    }
}
