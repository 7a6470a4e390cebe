// SPDX-License-Identifier: Apache-2.0
// Functions whose results the numerical contract can rely on, on every device. Built-ins may err
// far beyond it (exp of a NaN is inf on one device, tanh of a large number NaN), and compilers may
// fold comparisons with a NaN, or min and max, into forms that lose it: NaN and infinities are told
// by their bits here and carried by select. Errors below are the worst measured over all of fp32
// against double precision.
#ifndef VKF_SHADERS_COMMON_NUMERIC_GLSL
#define VKF_SHADERS_COMMON_NUMERIC_GLSL

const uint kInfinityBits = 0x7f800000u;
const uint kNanBits = 0x7fc00000u;
const uint kMagnitudeBits = 0x7fffffffu;
const uint kSignBit = 0x80000000u;

float quiet_nan() {
    return uintBitsToFloat(kNanBits);
}

float negative_infinity() {
    return uintBitsToFloat(kInfinityBits | kSignBit);
}

bool is_nan(float x) {
    return (floatBitsToUint(x) & kMagnitudeBits) > kInfinityBits;
}

bool is_finite(float x) {
    return (floatBitsToUint(x) & kMagnitudeBits) < kInfinityBits;
}

bvec4 not_finite(vec4 x) {
    return equal(floatBitsToUint(x) & kInfinityBits, uvec4(kInfinityBits));
}

vec4 finite_or_zero(vec4 x) {
    return mix(x, vec4(0.0), not_finite(x));
}

// The magnitude of x with the sign of `sign`, bit for bit.
float copy_sign(float x, float sign) {
    return uintBitsToFloat((floatBitsToUint(x) & kMagnitudeBits) | (floatBitsToUint(sign) & kSignBit));
}

// The larger of two; NaN when either is.
float max_or_nan(float a, float b) {
    return is_nan(a) ? a : (is_nan(b) ? b : max(a, b));
}

// e^x for any x that is not NaN: 0 below -86.99 (2^-125.5), inf above 88.722. Relative error 1e-7
// between. x = n ln 2 + r with |r| <= ln(2)/2, n ln 2 taken off in two parts of which the first is
// exact for every n here, fused or not; then a minimax polynomial of e^r, and n added to the
// exponent. The scale is 2^(n-1), as 2^128 is no float; for n = -126 its bits are those of 0, and
// for x at the upper bound the product overflows to inf.
float exp_of_number(float x) {
    float bounded = min(max(x, -87.3), 88.8);
    float n = floor(bounded * 1.44269504 + 0.5);
    float r = (bounded - n * 0.693359375) + n * 2.12194440e-4;
    float e = 1.98756912e-4;
    e = e * r + 1.39819994e-3;
    e = e * r + 8.33345205e-3;
    e = e * r + 4.16657962e-2;
    e = e * r + 1.66666657e-1;
    e = e * r + 0.5;
    e = e * (r * r) + r + 1.0;
    return (e + e) * uintBitsToFloat(uint(int(n) + 126) * (1u << 23));
}

// e^x; NaN is carried, exp(-inf) = 0, exp(inf) = inf.
float safe_exp(float x) {
    return is_nan(x) ? x : exp_of_number(x);
}

// Relative error 1.4e-7. A polynomial near 0, where 1 - 2 / (e^2x + 1) would cancel.
float safe_tanh(float x) {
    float t = abs(x);
    float s = x * x;
    float small = -5.70498872745e-3;
    small = small * s + 2.06390887954e-2;
    small = small * s - 5.37397155531e-2;
    small = small * s + 1.33314422036e-1;
    small = small * s - 3.33332819422e-1;
    small = small * (s * x) + x;
    float large = 1.0 - 2.0 / (exp_of_number(min(t, 20.0) * 2.0) + 1.0);
    float result = t < 0.625 ? small : copy_sign(large, x);
    return is_nan(x) ? x : result;
}

// Relative error 1e-7: a polynomial near 0, 1 - e^p(|x|) elsewhere.
float safe_erf(float x) {
    float t = min(abs(x), 4.0);
    float s = t * t;
    float small = -5.96761703e-4;
    small = small * s + 4.99119423e-3;
    small = small * s - 2.67681349e-2;
    small = small * s + 1.12819925e-1;
    small = small * s - 3.76125336e-1;
    small = small * s + 1.28379166e-1;
    small = small * x + x;
    float large = -1.72853470e-5 * t + 3.83197126e-4;
    large = large * s + (-3.88396438e-3 * t + 2.42546219e-2);
    large = large * t - 1.06777877e-1;
    large = large * t - 6.34846687e-1;
    large = large * t - 1.28717512e-1;
    large = 1.0 - exp_of_number(large * t - t);
    // The sign goes to one side of the choice only: Mesa 25's compiler errs on the bits of a choice
    // between floats.
    float result = t > 0.927734375 ? copy_sign(large, x) : small;
    return is_nan(x) ? x : result;
}

#endif
