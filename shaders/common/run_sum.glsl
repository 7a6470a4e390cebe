// SPDX-License-Identifier: Apache-2.0
// A sum of many numbers that one invocation adds up: in runs, and these into a second number, so
// that a small one beside a large sum is not rounded away again and again.
#ifndef VKF_SHADERS_COMMON_RUN_SUM_GLSL
#define VKF_SHADERS_COMMON_RUN_SUM_GLSL

const uint kRunOfSum = 128u;

struct RunSum {
    float runs;  // of those that are complete
    float run;
};

// Adds the number of turn 0, 1, ...
void add(inout RunSum sum, uint turn, float number) {
    sum.run += number;
    bool full = turn % kRunOfSum == kRunOfSum - 1u;
    sum.runs += full ? sum.run : 0.0;
    sum.run = full ? 0.0 : sum.run;
}

#endif
