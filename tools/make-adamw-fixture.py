#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/data/adamw.h: some steps of torch.optim.AdamW with clipping.

    tools/make-adamw-fixture.py > tests/data/adamw.h

Needs PyTorch, which the tests themselves do not.
"""
import re

import torch

COUNT = 19  # a vector of AVX-512 and a tail
STEPS = 3
RATE, BETAS, EPSILON, DECAY, CLIP = 0.01, (0.9, 0.999), 1e-8, 0.1, 1.0


def word(x):
    """A number as C writes it in hexadecimal, without idle zeros."""
    return re.sub(r"\.?0*p", "p", float(x).hex())


def array(name, rows):
    print(f"static const float {name}[{len(rows)}][{COUNT}] = {{")
    for row in rows:
        words = [word(x) + "f" for x in row]
        lines, line = [], "    {"
        for i, text in enumerate(words):
            last = i == len(words) - 1
            piece = f" {text}" + (" }," if last else ",")
            if len(line) + len(piece) > 80:
                lines.append(line)
                line = "     "
            line += piece
        print("\n".join(lines + [line]))
    print("};")


def main():
    random = torch.Generator().manual_seed(7)
    p = torch.nn.Parameter(torch.randn(COUNT, generator=random))
    sizes = 10.0 ** torch.linspace(-5, 1, COUNT)
    adamw = torch.optim.AdamW([p], lr=RATE, betas=BETAS, eps=EPSILON,
                              weight_decay=DECAY, foreach=False, fused=False)
    gradients, norms = [], []
    states = {"p": [p.tolist()], "m": [[0.0] * COUNT], "v": [[0.0] * COUNT]}
    for step in range(STEPS):
        # The last gradient is small enough not to be clipped.
        scale = 0.01 if step == STEPS - 1 else 1.0
        p.grad = torch.randn(COUNT, generator=random) * sizes * scale
        gradients.append(p.grad.tolist())
        norms.append(float(torch.nn.utils.clip_grad_norm_([p], CLIP)))
        adamw.step()
        states["p"].append(p.tolist())
        states["m"].append(adamw.state[p]["exp_avg"].tolist())
        states["v"].append(adamw.state[p]["exp_avg_sq"].tolist())
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print(f"/* adamw.h - {STEPS} steps of torch.optim.AdamW of PyTorch "
          f"{torch.__version__.split('+')[0]}, written by\n"
          " * tools/make-adamw-fixture.py. Row t of p, m and v is what stands "
          "after t\n * steps. */")
    print("/* clang-format off */")
    print(f"enum {{ ADAMW_COUNT = {COUNT}, ADAMW_STEPS = {STEPS} }};")
    print(f"static const double adamw_rate = {RATE};")
    print(f"static const double adamw_beta1 = {BETAS[0]};")
    print(f"static const double adamw_beta2 = {BETAS[1]};")
    print(f"static const double adamw_epsilon = {EPSILON};")
    print(f"static const double adamw_decay = {DECAY};")
    print(f"static const double adamw_clip = {CLIP};")
    print("static const double adamw_norm[] = {\n    "
          + ", ".join(word(x) for x in norms) + "\n};")
    array("adamw_gradient", gradients)
    for name, rows in states.items():
        array(f"adamw_{name}", rows)


if __name__ == "__main__":
    main()
