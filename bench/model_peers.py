# SPDX-License-Identifier: Apache-2.0
"""model_peers.py - training of bench/model_gpu.c's models by PyTorch.

    model_peers.py gpt2|llama1b [--sequences N] [--length N] [--steps N]

The same shapes with random weights and tokens: torch.compile, autocast to
bfloat16 with float32 master weights, scaled_dot_product_attention, clipping of
the norm, fused AdamW. Compilation and the first steps are not counted. Prints
the median of the time of a step and tokens per second.
"""
import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn

MODELS = {
    "gpt2": dict(width=768, layers=12, heads=12, kv_heads=12, hidden=3072,
                 vocab=50257, context=1024, llama=False),
    "llama1b": dict(width=2048, layers=16, heads=32, kv_heads=8, hidden=8192,
                    vocab=128256, context=4096, llama=True),
}


def rotate(x, angles):
    cos, sin = angles.cos(), angles.sin()
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads = c["heads"], c["kv_heads"]
        self.dim = c["width"] // c["heads"]
        both = (self.heads + 2 * self.kv_heads) * self.dim
        self.qkv = nn.Linear(c["width"], both, bias=not c["llama"])
        self.out = nn.Linear(c["width"], c["width"], bias=not c["llama"])

    def forward(self, x, angles):
        batch, length, width = x.shape
        h, k = self.heads, self.kv_heads
        q, key, value = self.qkv(x).view(batch, length, h + 2 * k, self.dim) \
            .transpose(1, 2).split((h, k, k), dim=1)
        if angles is not None:
            q, key = rotate(q, angles), rotate(key, angles)
        y = F.scaled_dot_product_attention(q, key, value, is_causal=True,
                                           enable_gqa=h != k)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gated = c["llama"]
        width, hidden = c["width"], c["hidden"]
        self.up = nn.Linear(width, hidden * (2 if self.gated else 1),
                            bias=not self.gated)
        self.down = nn.Linear(hidden, width, bias=not self.gated)

    def forward(self, x):
        if not self.gated:
            return self.down(F.gelu(self.up(x), approximate="tanh"))
        gate, up = self.up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        norm = nn.RMSNorm if c["llama"] else nn.LayerNorm
        self.norms = nn.ModuleList(norm(c["width"]) for _ in range(2))
        self.attention, self.ffn = Attention(c), FeedForward(c)

    def forward(self, x, angles):
        x = x + self.attention(self.norms[0](x), angles)
        return x + self.ffn(self.norms[1](x))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        self.tokens = nn.Embedding(c["vocab"], c["width"])
        self.positions = None if c["llama"] else \
            nn.Embedding(c["context"], c["width"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["layers"]))
        self.norm = (nn.RMSNorm if c["llama"] else nn.LayerNorm)(c["width"])
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, labels):
        at = torch.arange(ids.shape[1], device=ids.device)
        x, angles = self.tokens(ids), None
        if self.positions is not None:
            x = x + self.positions(at)
        else:
            dim = self.config["width"] // self.config["heads"]
            step = torch.arange(0, dim, 2, device=ids.device) / dim
            angles = at[:, None] * 500000.0 ** -step
        for layer in self.layers:
            x = layer(x, angles)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    with torch.device("cuda"):
        model = Model(MODELS[args.model])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    run = torch.compile(model)
    shape = (args.sequences, args.length)
    ids = torch.randint(MODELS[args.model]["vocab"], shape, device="cuda")
    labels = ids.roll(-1, 1)
    seconds = []
    for i in range(args.steps + 3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(ids, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    median = sorted(seconds[3:])[args.steps // 2]
    print(f"PyTorch {torch.__version__}, torch.compile, {args.model}, "
          f"{args.sequences} x {args.length} tokens: {median * 1e3:.1f} ms a "
          f"step, {ids.numel() / median:.0f} tokens/s, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
