#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare transformers' models with attn_implementation="bauta" and "sdpa".

    python3 tools/check-transformers-gpu.py [--device cuda] [--dtype bfloat16]
        [--models gpt2,llama,mistral,qwen3,bert,bart] [--seeds 4] [--limit 1.02]

needs the package bauta, PyTorch and transformers. The models are small and
random, with weights that bfloat16 represents exactly; nothing is downloaded. The
reference is the same model in float64 with eager attention. A case is a batch
without padding, padded left or right, packed (position ids that restart), or
greedy generation with a dynamic or a static cache, whose logits are compared
with those of one parallel pass over what was generated.

A row has the root mean square (rms) of the errors of all logits that are not of
padding, over all seeds, for eager attention, sdpa and bauta, and the ratio of the
last two with its standard error, by the jackknife over sequences. It fails if the
ratio is above --limit by more than three standard errors: most errors are those
of other operations, and differ by chance. With --device cpu --dtype float32 it
runs without a GPU.
"""

from __future__ import annotations

import argparse
import copy
import sys

import torch
import transformers

import bauta.transformers

BATCH, LENGTH, NEW, WINDOW = 4, 96, 12, 24
PADDING = (37, 0, 5, 64)  # tokens of each sequence
PACKED = (40, 1, 120, 64, 31)
SYSTEMS = ("eager", "sdpa", "bauta")
SMALL = {
    "vocab_size": 512,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
}
GROUPED = {**SMALL, "num_key_value_heads": 2}


def kinds():
    t = transformers
    return {
        "gpt2": (
            t.GPT2LMHeadModel,
            t.GPT2Config(
                vocab_size=512,
                n_embd=256,
                n_layer=3,
                n_head=4,
                n_positions=512,
                bos_token_id=1,
                eos_token_id=2,
            ),
        ),
        "llama": (t.LlamaForCausalLM, t.LlamaConfig(**GROUPED)),
        "mistral": (
            t.MistralForCausalLM,
            t.MistralConfig(**GROUPED, sliding_window=WINDOW),
        ),
        "qwen3": (t.Qwen3ForCausalLM, t.Qwen3Config(**GROUPED, head_dim=64)),
        "bert": (t.BertForMaskedLM, t.BertConfig(**SMALL)),
        "bart": (
            t.BartForConditionalGeneration,
            t.BartConfig(
                vocab_size=512,
                d_model=256,
                encoder_layers=3,
                decoder_layers=3,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=512,
                decoder_ffn_dim=512,
                max_position_embeddings=512,
            ),
        ),
    }


DECODERS = ("gpt2", "llama", "mistral", "qwen3")


def models(name, options):
    """The reference, and a model for each system, with the same weights."""
    kind, config = kinds()[name]

    def build(how):
        # A config keeps its implementation, so each model has its own.
        return kind._from_config(copy.deepcopy(config), attn_implementation=how).eval()

    first = build("eager").to(options.device)
    with torch.no_grad():
        for parameter in first.parameters():
            if parameter.dim() == 2:  # attention is not uniform then
                parameter.normal_(0.0, 0.05)
            parameter.copy_(parameter.bfloat16().float())
    weights = first.state_dict()
    found = {}
    for how in SYSTEMS:
        model = build(how).to(options.device)
        model.load_state_dict(weights)
        assert model.config._attn_implementation == how
        found[how] = model.to(getattr(torch, options.dtype))
    return first.double(), found


def visible_to(name, mask):
    """The mask of a decoder for the reference. A padding token, which sees
    nothing, would be NaN in float64, and spread; here it sees itself, which
    changes no other token."""
    length = mask.shape[1]
    place = torch.arange(length, device=mask.device)
    ahead = place[None] - place[:, None]
    band = ahead <= 0
    if name == "mistral":
        band &= ahead > -WINDOW
    visible = band[None] & mask.bool()[:, None]
    visible |= torch.eye(length, dtype=torch.bool, device=mask.device)
    return torch.where(visible, 0.0, -1e30).double()[:, None]


def reference(name, exact, inputs):
    wide = dict(inputs)
    if name in DECODERS and "attention_mask" in wide:
        wide["attention_mask"] = visible_to(name, wide["attention_mask"])
    return exact(**wide).logits


def ids_of(shape, options):
    return torch.randint(3, 512, shape, device=options.device)


def padded(padding, options):
    ids = ids_of((BATCH, LENGTH), options)
    mask = torch.ones_like(ids)
    for row, pad in enumerate(PADDING):
        if padding == "left":
            mask[row, :pad] = 0
        elif padding == "right" and pad:
            mask[row, -pad:] = 0
    return ids, mask


def batch_case(name, exact, found, padding, options):
    """The errors of each system, by sequence, without those of padding."""
    ids, mask = padded(padding, options)
    inputs, rows = {"input_ids": ids, "attention_mask": mask}, mask.bool()
    if name == "bart":
        inputs["decoder_input_ids"] = ids_of((BATCH, LENGTH // 2), options)
        rows = torch.ones_like(inputs["decoder_input_ids"]).bool()
    want = reference(name, exact, inputs)
    errors = {how: model(**inputs).logits - want for how, model in found.items()}
    return {how: [e[r] for e, r in zip(error, rows)] for how, error in errors.items()}


def packed_case(name, exact, found, options):
    ids = ids_of((1, sum(PACKED)), options)
    places = [torch.arange(n, device=options.device) for n in PACKED]
    inputs = {"input_ids": ids, "position_ids": torch.cat(places)[None]}
    inputs["use_cache"] = False
    want = exact(**inputs).logits
    errors = {how: model(**inputs).logits - want for how, model in found.items()}
    return {how: error[0].split(PACKED) for how, error in errors.items()}


def parallel_pass(name, exact, ids, mask, sequences):
    """The logits in float64 of what generate() chose."""
    if name == "bart":
        inputs = {"input_ids": ids, "attention_mask": mask}
        return exact(**inputs, decoder_input_ids=sequences[:, :-1]).logits
    new = sequences.shape[1] - ids.shape[1]
    mask = torch.cat([mask, mask.new_ones(len(mask), new - 1)], 1)
    places = (mask.cumsum(1) - 1).clamp(min=0)
    inputs = {"input_ids": sequences[:, :-1], "attention_mask": mask}
    inputs["position_ids"] = places
    return reference(name, exact, inputs)[:, -new:]


def generate_case(name, exact, found, cache, options):
    ids, mask = padded("right" if name == "bart" else "left", options)
    settings = {
        "attention_mask": mask,
        "max_new_tokens": NEW,
        "do_sample": False,
        "pad_token_id": 0,
        "eos_token_id": None,
        "output_logits": True,
        "return_dict_in_generate": True,
    }
    if cache == "static":
        settings.update(cache_implementation="static", disable_compile=True)
    errors = {}
    for how, model in found.items():
        got = model.generate(ids, **settings)
        want = parallel_pass(name, exact, ids, mask, got.sequences)
        errors[how] = list(torch.stack(got.logits, 1) - want)
    return errors


def cases(name):
    yield "batch", lambda *given: batch_case(*given[:3], "none", given[3])
    yield "padded left", lambda *given: batch_case(*given[:3], "left", given[3])
    yield "padded right", lambda *given: batch_case(*given[:3], "right", given[3])
    if name in DECODERS:
        yield "packed", packed_case
    if name != "bert":
        yield "generate", lambda *given: generate_case(*given[:3], "dynamic", given[3])
        yield "static cache", lambda *given: generate_case(*given[:3], "static", given[3])


def rms(sums):
    """Of rows (sum of squares, count)."""
    return (sums[:, 0].sum() / sums[:, 1].sum()).sqrt()


def compare(ours, theirs):
    """The ratio of rms, and its standard error by the jackknife."""
    count = len(ours)
    keep = ~torch.eye(count, dtype=torch.bool)
    without = torch.stack([rms(ours[each]) / rms(theirs[each]) for each in keep])
    spread = (without - without.mean()).square().sum() * (count - 1) / count
    return (rms(ours) / rms(theirs)).item(), spread.sqrt().item()


def check(name, options):
    sums, bad = {}, []
    for seed in range(options.seeds):
        torch.manual_seed(seed)
        exact, found = models(name, options)
        for case, run in cases(name):
            rows = sums.setdefault(case, {how: [] for how in SYSTEMS})
            for how, errors in run(name, exact, found, options).items():
                rows[how] += [
                    (e.double().square().sum().item(), e.numel()) for e in errors
                ]
    for case, rows in sums.items():
        eager, sdpa, ours = (
            torch.tensor(rows[how], dtype=torch.float64) for how in SYSTEMS
        )
        ratio, chance = compare(ours, sdpa)
        print(
            f"{name:8} {case:13} rms of errors: eager {rms(eager):.3e}, sdpa "
            f"{rms(sdpa):.3e}, bauta {rms(ours):.3e}; bauta to sdpa {ratio:.3f} "
            f"+- {chance:.3f}",
            flush=True,
        )
        if not ratio - 3 * chance <= options.limit:  # NaN is bad, too
            bad.append(f"{name} {case}")
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--models", default="gpt2,llama,mistral,qwen3,bert,bart")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--limit", type=float, default=1.02)
    options = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    bauta.transformers.register()
    bad = []
    with torch.no_grad():
        for name in options.models.split(","):
            bad += check(name, options)
    print("failed: " + ", ".join(bad) if bad else "all checks passed")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
