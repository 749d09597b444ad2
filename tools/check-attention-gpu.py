#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare the error of the GPU kernels with that of PyTorch's bfloat16 attention.

    dump_cuda FOLDER > cases.json
    python3 tools/check-attention-gpu.py cases.json

Every case is computed three times from the same bfloat16 inputs and dense
mask: in float64; by PyTorch in bfloat16 as written (two products and a softmax,
each result rounded); and by scaled_dot_product_attention, whichever back end
takes the mask. A result's error is the largest distance from float64, and the
root of the mean square. For each of out, dq, dk and dv bauta's must be at most
twice those of PyTorch as written, and the root of the mean square at most twice
that of the fused back end; the script fails otherwise. (Largest errors are
single values: a back end whose weights are relative to the row's maximum has
none where one key takes all the weight, for 1 is exact.)
"""

import json
import sys

import torch
import torch.nn.functional as F

NAMES = ["q", "k", "v", "dout", "out", "dq", "dk", "dv"]
ROW = "{:22} {:>4} {:5} {:>10} {:>10} {:>10} {:>6} {:>6}  {:>6} {:>6}"


def load(case):
    n, d = case["tokens"], case["head_dim"]
    data = open(case["file"], "rb").read()
    mask = torch.frombuffer(bytearray(data[: n * n]), dtype=torch.uint8)
    tensors, at = {}, n * n
    for name in NAMES:
        of_keys = name in ("k", "v", "dk", "dv")
        heads = case["kv_heads"] if of_keys else case["heads"]
        size = n * heads * d * 2
        flat = torch.frombuffer(
            bytearray(data[at : at + size]), dtype=torch.bfloat16
        )
        # (heads, tokens, head_dim), as PyTorch has it.
        tensors[name] = flat.view(n, heads, d).transpose(0, 1).cuda()
        at += size
    return mask.view(n, n).bool().cuda(), tensors


def spread(x, heads):
    return x.repeat_interleave(heads // x.shape[0], 0)


def plain(q, k, v, mask):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v


def fused(q, k, v, mask):
    if mask.all():
        mask = None
    elif mask.tril().equal(torch.ones_like(mask).tril()) and not (
        mask.triu(1).any()
    ):
        out = F.scaled_dot_product_attention(
            q[None], k[None], v[None], is_causal=True
        )
        return out[0]
    return F.scaled_dot_product_attention(
        q[None], k[None], v[None], attn_mask=mask
    )[0]


def gradients(how, x, mask, dtype):
    q, k, v = (x[i].to(dtype).requires_grad_() for i in "qkv")
    out = how(q, spread(k, len(q)), spread(v, len(q)), mask)
    grads = torch.autograd.grad(out, (q, k, v), x["dout"].to(dtype))
    return dict(zip(["out", "dq", "dk", "dv"], (out.detach(), *grads)))


def errors(got, want):
    off = (got.double() - want).abs()
    return off.max().item(), off.square().mean().sqrt().item()


def main():
    bad = 0
    header = "bauta plain fused max:pl max:fu rms:pl rms:fu".split()
    print(ROW.format("mask", "head", "what", *header))
    for line in open(sys.argv[1]):
        case = json.loads(line)
        mask, x = load(case)
        want = gradients(plain, x, mask, torch.float64)
        peers = [
            gradients(how, x, mask, torch.bfloat16) for how in (plain, fused)
        ]
        for what in ("out", "dq", "dk", "dv"):
            ours = errors(x[what], want[what])
            a, b = (errors(peer[what], want[what]) for peer in peers)
            ratios = [ours[i] / e[i] for i in range(2) for e in (a, b)]
            print(
                ROW.format(
                    case["name"],
                    case["head_dim"],
                    what,
                    *(f"{e[0]:.2e}" for e in (ours, a, b)),
                    *(f"{r:.2f}" for r in ratios),
                )
            )
            # Not a number is bad, too.
            bad += not max(ratios[0], *ratios[2:]) <= 2.0
    print(f"{bad} results are off by more than twice what PyTorch's are")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
