#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fit_phi.py - the coefficients of bt_normal_tail_ratio() in src/backend/cpu/kernels/activations.h.

R(a) = e^(a^2 / 2) Phi(-a) = 1/2 erfcx(a / sqrt(2)) on [0, 14] by N(a) / D(a),
of degrees 4 and 5, such that the largest relative error is least. Remez's
exchange: at as many points as there are unknowns, and one more, the error is
to be E with alternating signs,

    N(a_i) / R(a_i) = D(a_i) (1 + (-1)^i E),

which is linear in N, D and E when the D beside E is taken from the last turn;
the points then move to where the error is largest. As N and D may be multiplied
by the same factor, that one of 20000 is chosen at which rounding to float does
least harm. Needs nothing but Python."""
import math
import struct
from decimal import Decimal, getcontext

END, NUM, DEN = 14.0, 4, 5
getcontext().prec = 60


def ratio(a):
    """R(a): by erfc, or by its continued fraction where erfc is small."""
    z = a / math.sqrt(2)
    if z < 5:
        return 0.5 * math.erfc(z) * math.exp(z * z)
    f = 0.0
    for k in range(200, 0, -1):
        f = k / 2 / (z + f)
    return 0.5 / (math.sqrt(math.pi) * (z + f))


def value(coefficients, a):
    return math.fsum(c * a**k for k, c in enumerate(coefficients))


def solve(rows):
    """Gauss, with the right sides in the last column."""
    n = len(rows)
    for i in range(n):
        p = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[p] = rows[p], rows[i]
        for r in range(i + 1, n):
            f = rows[r][i] / rows[i][i]
            rows[r] = [x - f * y for x, y in zip(rows[r], rows[i])]
    x = [Decimal(0)] * n
    for i in reversed(range(n)):
        rest = sum(rows[i][c] * x[c] for c in range(i + 1, n))
        x[i] = (rows[i][n] - rest) / rows[i][i]
    return [float(v) for v in x]


def powers(a, first, last):
    return [Decimal(a) ** k if k else Decimal(1) for k in range(first, last + 1)]


def interpolate(points, den):
    """N and D with the error E, -E, E ... at the points."""
    for _ in range(20):
        rows = []
        for i, a in enumerate(points):
            r = Decimal(ratio(a))
            rows.append([p / r for p in powers(a, 0, NUM)]
                        + [-p for p in powers(a, 1, DEN)]
                        + [-Decimal((-1) ** i) * Decimal(value(den, a)),
                           Decimal(1)])
        x = solve(rows)
        last, den = den, [1.0] + x[NUM + 1:NUM + 1 + DEN]
        if len(last) == len(den) and max(
                abs(p - q) for p, q in zip(last, den)) < 1e-12:
            break
    return x[:NUM + 1], den


def spread(count):
    """Points of [0, END], close together at both ends and near zero."""
    for i in range(count):
        s = 0.5 - 0.5 * math.cos(math.pi * i / (count - 1))
        yield 1 / (1 - s * END / (1 + END)) - 1


def extremes(error, grid):
    """The largest error of every run of one sign."""
    runs = []
    for a in grid:
        e = error(a)
        if runs and (runs[-1][1] > 0) == (e > 0):
            if abs(e) > abs(runs[-1][1]):
                runs[-1] = (a, e)
        else:
            runs.append((a, e))
    return runs


def remez():
    count = NUM + DEN + 2
    points, den, grid = list(spread(count)), [1.0], list(spread(4001))
    for _ in range(40):
        num, den = interpolate(points, den)
        runs = extremes(lambda a: value(num, a) / value(den, a) / ratio(a) - 1,
                        grid)
        while len(runs) > count:
            runs.pop(0 if abs(runs[0][1]) < abs(runs[-1][1]) else -1)
        points = [a for a, _ in runs]
        errors = [abs(e) for _, e in runs]
        if max(errors) < 1.001 * min(errors):
            break
    return num, den, max(errors)


def to_float(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def rounded(num, den, factor):
    """Both in float; exactly 1/2 at zero."""
    n = [to_float(c * factor) for c in num]
    d = [to_float(c * factor) for c in den]
    n[0] = d[0] / 2
    return n, d


def best_factor(num, den):
    grid = [(a, ratio(a)) for a in (END * i / 50 for i in range(51))]
    best = (math.inf, 1.0)
    for k in range(20000):
        n, d = rounded(num, den, 2 ** (k / 20000))
        worst = 0.0
        for a, r in grid:
            worst = max(worst, abs(value(n, a) / value(d, a) / r - 1))
            if worst >= best[0]:
                break
        else:
            best = (worst, 2 ** (k / 20000))
    return best[1]


def main():
    num, den, error = remez()
    print(f"/* fitted within {error * 2**24:.3f} u, ", end="")
    n, d = rounded(num, den, best_factor(num, den))
    worst = max(abs(value(n, a) / value(d, a) / ratio(a) - 1)
                for a in (END * i / 5000 for i in range(5001)))
    print(f"rounded to float within {worst * 2**24:.3f} u */")
    for letter, coefficients in (("N", n), ("D", d)):
        for k, c in enumerate(coefficients):
            mantissa, exponent = c.hex().split("p")
            print(f"#define BT_PHI_{letter}{k} {mantissa[:10].rstrip('0')}"
                  f"p{exponent}f")


if __name__ == "__main__":
    main()
