#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare models on a GPU with PyTorch: errors, equal bits, and training.

    python3 tools/check-gpu-accuracy.py [--device cuda] [--dtype bfloat16]
        [--parts accuracy,bits,grpo] [--models gpt2,llama,qwen3] [--all]

needs the package bauta, PyTorch and transformers. For each model, made by
transformers with random weights that bfloat16 can represent:

accuracy  Logits and gradients of bauta against float64 of PyTorch, beside the
          errors of PyTorch's own bfloat16 (model.to(bfloat16)) and of autocast,
          both with scaled_dot_product_attention. The root mean square (rms) and
          the largest error, and the ratio of bauta's rms to each. Then bauta in
          float32: the rms of errors relative to that of the numbers.
bits      Log-probabilities of sampled tokens are those of Model.logprobs, and a
          batch has the bits of its sequences, before and after training steps.
grpo      examples/grpo.py, whose divergence must be 0.

It fails if an rms of bauta is more than RATIO times that of PyTorch's bfloat16,
if float32 is off by more than LOGITS or GRADIENTS, or if a bit differs. --all
prints every gradient. With --device cpu bauta computes in float32.
"""

from __future__ import annotations

import argparse
import copy
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import transformers

import bauta

tree = pathlib.Path(__file__).resolve().parents[1]
RATIO = 1.5
LOGITS, GRADIENTS = 1e-5, 1e-4
BATCH, LENGTH = 2, 192


def configs():
    sizes = {
        "vocab_size": 4096,
        "hidden_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "intermediate_size": 1408,
        "max_position_embeddings": 512,
    }
    return {
        "gpt2": transformers.GPT2Config(
            vocab_size=5000,
            n_embd=768,
            n_layer=4,
            n_head=12,
            n_positions=512,
            bos_token_id=1,
            eos_token_id=2,
        ),
        "llama": transformers.LlamaConfig(**sizes),
        "qwen3": transformers.Qwen3Config(**sizes, head_dim=64),
    }


def new_model(config, device):
    """Weights of a width at which attention is not uniform, rounded."""
    torch.manual_seed(1)
    for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout"):
        if hasattr(config, name):
            setattr(config, name, 0.0)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(
            config, attn_implementation="sdpa", dtype=torch.float32
        )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # biases and norms
                parameter.add_(0.1 * torch.randn_like(parameter))
            else:
                parameter.mul_(1.5)
            parameter.copy_(parameter.bfloat16().float())
    return model.eval()


class WideNorm(torch.nn.Module):
    """RMSNorm in the type of its input; transformers computes it in float32."""

    def __init__(self, norm):
        super().__init__()
        self.weight, self.epsilon = norm.weight, norm.variance_epsilon

    def forward(self, x):
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon)
        return self.weight * (x * scale)


def widen(module):
    for name, child in module.named_children():
        if type(child).__name__.endswith("RMSNorm"):
            setattr(module, name, WideNorm(child))
        else:
            widen(child)


def run_torch(model, ids, autocast=False):
    """Logits and gradients in float64, by the names of the file."""
    model.zero_grad(set_to_none=True)
    with torch.autocast(ids.device.type, torch.bfloat16, enabled=autocast):
        logits = model(ids, use_cache=False).logits
    wide = logits if logits.dtype == torch.float64 else logits.float()
    loss = torch.nn.functional.cross_entropy(
        wide[:, :-1].flatten(0, 1), ids[:, 1:].flatten()
    )
    loss.backward()
    gradients = {n: p.grad.double() for n, p in model.named_parameters()}
    return logits.detach().double(), gradients


def run_bauta(folder, ids, device, dtype):
    place = {} if device == "cpu" else {"device": device, "dtype": dtype}
    model = bauta.Model.load(folder, trainable=True, **place)
    array = ids.cpu().numpy()
    logits = torch.from_numpy(model.logits(array)).to(ids.device)
    model.loss(array)
    gradients = {
        name: torch.from_numpy(np.array(gradient)).to(ids.device).double()
        for name, gradient in model.gradients().items()
    }
    return logits.double(), gradients


def errors(got, want):
    difference = got - want
    return difference.square().mean().sqrt().item(), difference.abs().max().item()


def compare(name, ours, theirs, auto, want, show_all):
    """The worst ratio of our rms to that of PyTorch's bfloat16."""
    o, p, a = (errors(x[0], want[0]) for x in (ours, theirs, auto))
    size = want[0].square().mean().sqrt().item()
    print(
        f"{name} logits, rms {size:.3g}: error rms {o[0]:.3e} "
        f"(PyTorch {p[0]:.3e}, autocast {a[0]:.3e}: ratios {o[0] / p[0]:.2f} and "
        f"{o[0] / a[0]:.2f}), largest {o[1]:.3e} ({p[1]:.3e}, {a[1]:.3e})"
    )
    rows = []
    for key in ours[1]:
        triple = [errors(x[1][key], want[1][key]) for x in (ours, theirs, auto)]
        ratios = [triple[0][0] / (each[0] + 1e-30) for each in triple[1:]]
        rows.append((ratios[0], ratios[1], triple, key))
        if show_all:
            print(f"  {key}: ratios {ratios[0]:.2f} and {ratios[1]:.2f}, {triple}")
    rows.sort()
    middle, last = rows[len(rows) // 2], rows[-1]
    autos = sorted(row[1] for row in rows)
    largest = max(row[2][0][1] / (row[2][1][1] + 1e-30) for row in rows)
    print(
        f"{name} gradients of {len(rows)} tensors, ratios of rms to PyTorch: median "
        f"{middle[0]:.2f}, worst {last[0]:.2f} ({last[3]}); to autocast: median "
        f"{autos[len(autos) // 2]:.2f}, worst {autos[-1]:.2f}; worst ratio of "
        f"largest errors {largest:.2f}"
    )
    return max(o[0] / p[0], last[0])


def check_accuracy(name, model, options, folder):
    torch.manual_seed(2)
    shape = (BATCH, LENGTH)
    ids = torch.randint(0, model.config.vocab_size, shape, device=model.device)
    wide = copy.deepcopy(model).double()
    widen(wide)
    want = run_torch(wide, ids)
    autocast = run_torch(model, ids, autocast=True)
    single = run_torch(model, ids)
    rounded = run_torch(model.to(torch.bfloat16), ids)
    ours = run_bauta(folder, ids, options.device, options.dtype)
    missing = set(want[1]) ^ set(ours[1])
    assert not missing, missing
    ratio = compare(name, ours, rounded, autocast, want, options.all)
    exact = run_bauta(folder, ids, options.device, "float32")
    relative = [
        errors(x[0], want[0])[0] / want[0].square().mean().sqrt().item()
        for x in (exact, single)
    ]
    worst = [
        max(
            errors(x[1][key], want[1][key])[0]
            / (want[1][key].square().mean().sqrt().item() + 1e-30)
            for key in exact[1]
            if not_zero(want[1][key], want[1])
        )
        for x in (exact, single)
    ]
    print(
        f"{name} float32, relative rms: logits {relative[0]:.2e} (PyTorch "
        f"{relative[1]:.2e}), worst gradient {worst[0]:.2e} ({worst[1]:.2e})"
    )
    good = ratio <= RATIO and relative[0] <= LOGITS and worst[0] <= GRADIENTS
    return good


def not_zero(gradient, others):
    """Not the gradient of a bias of keys, which is 0 but for rounding."""
    size = gradient.square().mean().sqrt()
    typical = sorted(g.square().mean().sqrt().item() for g in others.values())
    return size > 1e-6 * typical[len(typical) // 2]


def check_bits(name, model, options, folder):
    vocab_size = model.config.vocab_size
    place = {}
    if options.device != "cpu":
        place = {"device": options.device, "dtype": options.dtype}
    model = bauta.Model.load(folder, trainable=True, **place)
    trainer = bauta.Trainer(
        model, learning_rate=1e-4, warmup_steps=0, max_steps=9, weight_decay=0.0
    )
    rng = np.random.default_rng(3)
    differ = compared = 0
    start = time.monotonic()
    for turn in range(3):
        prompts = [
            rng.integers(0, vocab_size, rng.integers(1, 40)).tolist()
            for _ in range(16)
        ]
        samples = model.generate(
            prompts,
            do_sample=True,
            top_k=0,
            max_new_tokens=48,
            seed=turn,
            eos_token_id=[],
        )
        texts = [prompt + sample.tokens for prompt, sample in zip(prompts, samples)]
        lines = model.logprobs(texts)
        for prompt, sample, line in zip(prompts, samples, lines):
            again = line[len(prompt) - 1 : -1].tolist()
            differ += sum(x != y for x, y in zip(again, sample.logprobs))
            compared += len(again)
        for number in (0, 7):
            alone = model.logprobs(texts[number])
            differ += int((alone != lines[number]).sum())
            compared += len(alone)
        trainer.step_batch({"input_ids": texts})
    print(
        f"{name} {options.dtype} on {model.device}: {differ} of {compared} "
        f"log-probabilities differ between generation, training batch and "
        f"sequences alone; {time.monotonic() - start:.1f} s"
    )
    return differ == 0


def check_grpo(options):
    script = tree / "examples" / "grpo.py"
    dtype = "float32" if options.device == "cpu" else options.dtype
    command = [sys.executable, script, "--sampler", "bauta", "--seeds", "1"]
    command += ["--device", options.device, "--dtype", dtype]
    result = subprocess.run(command, capture_output=True, text=True)
    print("grpo:", " ".join(result.stdout.split("\n")[-2:]).strip(), result.stderr[-500:])
    return result.returncode == 0 and "divergence 0.0 over" in result.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--parts", default="accuracy,bits,grpo")
    parser.add_argument("--models", default="gpt2,llama,qwen3")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    parts = options.parts.split(",")
    transformers.utils.logging.disable_progress_bar()
    bad = []
    device = "cpu" if options.device == "cpu" else "cuda"
    for name in options.models.split(","):
        model = new_model(configs()[name], device)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            for part, check in (("bits", check_bits), ("accuracy", check_accuracy)):
                if part in parts and not check(name, model, options, folder):
                    bad.append(f"{name} {part}")
                sys.stdout.flush()
    if "grpo" in parts and not check_grpo(options):
        bad.append("grpo")
    print("failed: " + ", ".join(bad) if bad else "all checks passed")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
