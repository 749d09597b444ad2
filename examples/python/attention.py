# SPDX-License-Identifier: Apache-2.0
"""Attention under three masks, in parallel and incrementally, with NumPy.

Query t matches key t - 2, if the mask shows that key. The values are the
identity matrix, so the outputs of attention are its weights. Each token is then
computed again as a decoding step, from the keys up to its own, which must give
the same bits. The exit status is 1 if it does not.
"""

import sys

import numpy as np

import bauta
from bauta import Mask

TOKENS, DIM = 12, 32


def encode_position(position):
    """Sinusoids: the dot product of two rows is largest for equal positions."""
    frequency = 1.6 * 0.1 ** (np.arange(0, DIM, 2) / DIM)
    angle = np.asarray(position)[:, None] * frequency
    return np.stack([np.sin(angle), np.cos(angle)], 2).reshape(-1, DIM)


def decode(q, k, v, mask):
    """Token by token: row t of the mask over the keys up to t."""
    rows = []
    for t in range(TOKENS):
        step = mask[t : t + 1, : t + 1]
        rows.append(bauta.attention(q[t : t + 1], k[: t + 1], v[: t + 1], step))
    return np.concatenate(rows)


def main():
    time = np.arange(TOKENS)
    q = encode_position(time - 2).astype(np.float32)
    k = encode_position(time).astype(np.float32)
    v = np.eye(TOKENS, dtype=np.float32)
    masks = {
        "Causal": Mask.causal(TOKENS),
        "Window of 4": Mask.window(TOKENS, window=4),
        "Two packed documents": Mask.from_lengths([5, TOKENS - 5], causal=True),
    }
    same = True
    for title, mask in masks.items():
        weights = bauta.attention(q, k, v, mask)
        print(f"{title}, {mask.pairs} of {TOKENS * TOKENS} pairs visible")
        for line, row in zip(str(mask).split("\n"), weights):
            tenths = (str(min(9, int(w * 10))) for w in row)
            shown = (t if c == "#" else "." for t, c in zip(tenths, line))
            print("", *line, "  ", *shown)
        equal = np.array_equal(decode(q, k, v, mask), weights)
        print(f" Incremental decoding: {'same bits' if equal else 'DIFFERENT BITS'}.\n")
        same = same and equal
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
