#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fit_tanh.py - the coefficients of bt_tanh() in src/backend/cpu/kernels/tanh.h.

(tanh(x) - x) / x^3 = P(x^2) for |x| <= 0.625 by a polynomial of degree 4 in
x^2, interpolated at Chebyshev's points, where the error is nearly the least
possible. Prints the coefficients as floats and the largest error of
x + x^3 P(x^2), relative to tanh(x), in units of 2^-24. Needs nothing but
Python."""
import math
import struct
from fractions import Fraction

END, DEGREE = 0.625, 4


def tail(z):
    """(tanh(x) - x) / x^3 at z = x^2, by the quotient of two power series."""
    sinh = cosh = Fraction(0)
    term, z = Fraction(1), Fraction(z)
    for k in range(20):
        cosh += term
        sinh += term / (2 * k + 1)
        term *= z / ((2 * k + 1) * (2 * k + 2))
    return (sinh / cosh - 1) / z


def interpolate(points):
    """The polynomial through the points, by Newton's differences."""
    divided = [tail(z) for z in points]
    for level in range(1, len(points)):
        for i in range(len(points) - 1, level - 1, -1):
            divided[i] = ((divided[i] - divided[i - 1])
                          / (Fraction(points[i]) - Fraction(points[i - level])))
    poly = [Fraction(0)]
    for i in reversed(range(len(points))):
        shifted = [Fraction(0)] + poly
        for k, c in enumerate(poly):
            shifted[k] -= Fraction(points[i]) * c
        shifted[0] += divided[i]
        poly = shifted
    return [float(c) for c in poly[:len(points)]]


def to_float(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def main():
    half = END * END / 2
    points = [half - half * math.cos(math.pi * (2 * i + 1) / (2 * DEGREE + 2))
              for i in range(DEGREE + 1)]
    poly = [to_float(c) for c in interpolate(points)]
    worst = 0.0
    for i in range(1, 2001):
        z = Fraction(END * END * i / 2000)
        want = 1 + z * tail(z)
        got = 1 + z * sum(Fraction(c) * z**k for k, c in enumerate(poly))
        worst = max(worst, abs(float(got / want - 1)))
    for k, c in enumerate(poly):
        print(f"#define BT_TANH_C{k} {c.hex()}f")
    print(f"error {worst * 2**24:.3f} u")


if __name__ == "__main__":
    main()
