# SPDX-License-Identifier: Apache-2.0
"""attn_implementation="bauta" against eager, in float32 on the CPU.

Both are compared with the model in float64. The bounds of their errors are
derived from it by rounding.py; the test of planted errors shows that they can
fail."""

from __future__ import annotations

import copy
import importlib.util
import pathlib

import bauta
from bauta import Mask
from support import need, raises, seed

need("numpy")
torch = need("torch")
transformers = need("transformers")
import bauta.transformers
import rounding

bauta.transformers.register()
torch.set_num_threads(1)  # models so small gain nothing from more

SMALL = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
GROUPED = {**SMALL, "num_key_value_heads": 2}


def configs():
    t = transformers
    gpt2 = {"vocab_size": 50, "n_embd": 32, "n_layer": 2, "n_head": 4}
    gpt2.update(bos_token_id=1, eos_token_id=2)
    return {
        "gpt2": (t.GPT2LMHeadModel, t.GPT2Config(**gpt2, attn_pdrop=0.0)),
        "llama": (t.LlamaForCausalLM, t.LlamaConfig(**GROUPED)),
        "mistral": (
            t.MistralForCausalLM,
            t.MistralConfig(**GROUPED, sliding_window=4),
        ),
        "gemma2": (
            t.Gemma2ForCausalLM,
            t.Gemma2Config(
                **GROUPED,
                head_dim=8,
                query_pre_attn_scalar=8,
                attn_logit_softcapping=2.0,
                sliding_window=64,
            ),
        ),
        "qwen3": (t.Qwen3ForCausalLM, t.Qwen3Config(**GROUPED, head_dim=8)),
        "bert": (
            t.BertForMaskedLM,
            t.BertConfig(**SMALL, attention_probs_dropout_prob=0.0),
        ),
        "bart": (
            t.BartForConditionalGeneration,
            t.BartConfig(
                vocab_size=50,
                d_model=32,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=64,
                decoder_ffn_dim=64,
                max_position_embeddings=64,
            ),
        ),
    }


STD = 0.08  # of the weights of models that are compared
CHOSEN = 16  # see compare()
DECODERS = ("gpt2", "llama", "mistral", "gemma2", "qwen3")


def models(name, std=None, how="bauta"):
    """The same weights with eager attention in float64 and float32, and with
    bauta. The first is the reference. Matrices are normal with this deviation;
    the default of transformers is so small that attention hardly matters."""
    kind, config = configs()[name]
    # A config keeps its implementation, so each model has its own.
    build = lambda how: kind._from_config(copy.deepcopy(config), attn_implementation=how)
    eager = build("eager").eval()
    for parameter in eager.parameters():
        if std and parameter.dim() == 2:
            parameter.data.normal_(0.0, std)
    exact, ours = build("eager").eval(), build(how).eval()
    for each in (exact, ours):
        each.load_state_dict(eager.state_dict())
    assert eager.config._attn_implementation == "eager"
    assert ours.config._attn_implementation == how
    return exact.double(), eager, ours


def reference_mask(name, mask):
    """The mask of a decoder for the reference. With transformers' own, a padding
    token that sees nothing would be NaN in float64, and spread; here it sees
    itself, which changes no other token."""
    time = mask.shape[1]
    ahead = torch.arange(time)[None] - torch.arange(time)[:, None]
    band = (ahead <= 0) & (ahead > -4) if name == "mistral" else ahead <= 0
    visible = band[None] & mask.bool()[:, None] | torch.eye(time, dtype=torch.bool)
    return torch.where(visible, 0.0, -1e30).double()[:, None]


def compare(case, exact, results, rows):
    """The errors of logits (batch, tokens, vocabulary) are within their bounds,
    in rows (batch, tokens): of the logits with the largest errors, and of as many
    others. `exact` runs the reference, and gives the logits in float64."""
    with rounding.Bound() as bound:
        want = exact()
    assert torch.isfinite(want[rows]).all(), case
    rows = rows[:, :, None].expand_as(want).flatten(1)
    with torch.no_grad():
        errors = {
            name: torch.where(rows, (logits - want).abs().flatten(1), 0.0)
            for name, logits in results.items()
        }
    worst = torch.stack(list(errors.values())).amax((0, 1)).topk(CHOSEN).indices
    chosen = torch.cat([worst, torch.randperm(rows.shape[1])[:CHOSEN]])
    bounds = bound.of(want, chosen)
    for name, error in errors.items():
        ratio = (error[:, chosen] / bounds.clamp(min=1e-30)).max()
        assert ratio <= 1, f"{case}: {name} is {ratio:.3g} times the bound off"


def reference_inputs(name, inputs):
    wide = dict(inputs)
    if name in DECODERS and "attention_mask" in inputs:
        wide["attention_mask"] = reference_mask(name, inputs["attention_mask"])
    return wide


def check(name, rows, how="bauta", **inputs):
    exact, eager, ours = models(name, STD, how)
    with torch.no_grad():
        results = {"eager": eager(**inputs).logits, how: ours(**inputs).logits}
    wide = reference_inputs(name, inputs)
    compare(name, lambda: exact(**wide).logits, results, rows)


def batch(padding):
    ids = torch.randint(3, 50, (3, 11))
    mask = torch.ones_like(ids)
    for row, pad in ((0, 4), (2, 1)):
        if padding == "left":
            mask[row, :pad] = 0
        elif padding == "right":
            mask[row, -pad:] = 0
    return ids, mask


def padded_inputs(name, padding):
    ids, mask = batch(padding)
    inputs = {"input_ids": ids, "attention_mask": mask}
    if name != "bart":
        return inputs, mask.bool()
    inputs["decoder_input_ids"] = torch.randint(3, 50, (3, 7))
    return inputs, torch.ones(3, 7, dtype=torch.bool)


def test_padded_batches_agree_with_eager():
    torch.manual_seed(seed())
    for name in configs():
        for padding in ("none", "left", "right"):
            inputs, rows = padded_inputs(name, padding)
            check(name, rows, **inputs)
        ids = batch("none")[0]
        check(name, torch.ones_like(ids).bool(), input_ids=ids)


def test_planted_errors_are_out_of_bounds():
    """What is rounded to bfloat16, and a key that is hidden by mistake."""
    torch.manual_seed(seed())
    ours = bauta.transformers._attention

    def rounded(*args, **kwargs):
        out, _ = ours(*args, **kwargs)
        return out.bfloat16().float(), None

    def hidden(module, query, key, value, attention_mask, **kwargs):
        masks = []
        for mask in attention_mask.masks:
            visible = mask.to_dense()
            row = visible.sum(1).argmax()  # sees another key, too
            visible[row, visible[row].nonzero()[0][0]] = False
            masks.append(Mask.dense(visible))
        wrong = bauta.transformers.MaskBatch(masks, query.shape[0])
        return ours(module, query, key, value, wrong, **kwargs)

    for how, attention in (("rounded", rounded), ("hidden", hidden)):
        transformers.AttentionInterface.register(how, attention)
        transformers.AttentionMaskInterface.register(how, bauta.transformers._mask)
        for name in configs():
            inputs, rows = padded_inputs(name, "right")
            with raises(AssertionError, f"{name}: {how} is"):
                check(name, rows, how, **inputs)


def test_packed_batches_agree_with_eager_and_with_sequences_alone():
    torch.manual_seed(seed())
    lengths = (4, 6, 1)
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    ids = torch.randint(3, 50, (1, 11))
    inputs = {"input_ids": ids, "position_ids": positions, "use_cache": False}
    for name in DECODERS:
        exact, eager, ours = models(name, STD)
        with torch.no_grad():
            results = {"eager": eager(**inputs).logits, "bauta": ours(**inputs).logits}
            alone = [ours(input_ids=part).logits for part in ids.split(lengths, 1)]
            results["sequences alone"] = torch.cat(alone, 1)
        rows = torch.ones_like(ids).bool()
        compare(name, lambda: exact(**inputs).logits, results, rows)


def generated(name, exact, ids, mask, sequences):
    """The logits in float64 of what generate() chose, in one parallel pass."""
    if name == "bart":
        inputs = {"input_ids": ids, "attention_mask": mask}
        return exact(**inputs, decoder_input_ids=sequences[:, :-1]).logits
    new = sequences.shape[1] - ids.shape[1]
    mask = torch.cat([mask, torch.ones(len(mask), new - 1, dtype=mask.dtype)], 1)
    wide = reference_inputs(name, {"attention_mask": mask})
    wide["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    return exact(input_ids=sequences[:, :-1], **wide).logits[:, -new:]


def test_generation_with_caches_agrees_with_eager():
    torch.manual_seed(seed())
    for name in (*DECODERS, "bart"):
        exact, eager, ours = models(name, STD)
        ids, mask = batch("right" if name == "bart" else "left")
        options = {
            "attention_mask": mask,
            "max_new_tokens": 9,
            "do_sample": False,
            "pad_token_id": 0,
            "eos_token_id": None,
            "output_logits": True,
            "return_dict_in_generate": True,
        }
        static = {"cache_implementation": "static", "disable_compile": True}
        for how, model, cache in (
            ("eager", eager, {}),
            ("dynamic cache", ours, {}),
            ("static cache", ours, static),
        ):
            got = model.generate(ids, **options, **cache)
            logits = torch.stack(got.logits, 1)
            reference = lambda: generated(name, exact, ids, mask, got.sequences)
            rows = torch.ones(logits.shape[:2], dtype=torch.bool)
            compare(name, reference, {how: logits}, rows)


def test_examples_of_reinforcement_learning_with_transformers_as_the_sampler():
    path = pathlib.Path(__file__).resolve().parents[2] / "examples" / "grpo.py"
    spec = importlib.util.spec_from_file_location("grpo", path)
    grpo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(grpo)
    rewards, divergence, compared = grpo.train(1, 3, grpo.TransformersSampler, True)
    assert compared == 3 * grpo.PROMPTS * grpo.GROUP * grpo.LENGTH
    assert len(rewards) == 3 and 0 < divergence < 1e-4, divergence


def test_gradients_agree_with_eager():
    torch.manual_seed(seed())
    for name in ("llama", "bert"):
        exact, eager, ours = models(name)
        ids, mask = batch("right")
        losses = []
        for model in (exact, eager, ours):
            logits = model(input_ids=ids, attention_mask=mask).logits[mask.bool()]
            logits.square().mean().backward()
            losses.append({n: p.grad for n, p in model.named_parameters()})
        for key, want in losses[0].items():
            if want is None:
                continue
            usual = (losses[1][key] - want).abs().max()
            error = (losses[2][key] - want).abs().max()
            assert error <= 4 * usual + 1e-6 * want.abs().max() + 1e-9, (name, key)


def test_padding_is_never_read():
    """NaN in the embedding of the padding token reaches no other token."""
    torch.manual_seed(seed())
    _, _, ours = models("llama")
    ids, mask = batch("left")
    ids[mask == 0] = 0
    with torch.no_grad():
        want = ours(input_ids=ids, attention_mask=mask).logits
        ours.model.embed_tokens.weight[0] = float("nan")
        got = ours(input_ids=ids, attention_mask=mask).logits
    assert torch.equal(got[mask.bool()], want[mask.bool()])


def test_custom_masks():
    torch.manual_seed(seed())
    visible = torch.rand(1, 1, 11, 11) < 0.5
    visible |= torch.eye(11, dtype=torch.bool)
    additive = torch.zeros(1, 1, 11, 11).masked_fill(
        ~visible, torch.finfo(torch.float32).min
    )
    ids = torch.randint(3, 50, (2, 11))
    wide = torch.where(visible, 0.0, -1e30).double()
    for name in ("gpt2", "llama"):
        exact, eager, ours = models(name, STD)
        with torch.no_grad():
            results = {"eager": eager(input_ids=ids, attention_mask=additive).logits}
            for kind, mask in (("additive", additive), ("bool", visible)):
                results[kind] = ours(input_ids=ids, attention_mask=mask).logits
            reference = lambda: exact(input_ids=ids, attention_mask=wide).logits
            with raises(bauta.UnsupportedError, "additive"):
                ours(input_ids=ids, attention_mask=additive * 0 - 1)
        compare(name, reference, results, torch.ones_like(ids).bool())


def test_what_is_not_supported_is_an_error():
    _, config = configs()["gpt2"]
    config = copy.deepcopy(config)
    config.attn_pdrop = 0.5
    model = transformers.GPT2LMHeadModel._from_config(
        config, attn_implementation="bauta"
    )
    model.train()
    with raises(bauta.UnsupportedError, "dropout 0.5"):
        model(input_ids=torch.randint(3, 50, (1, 5)))
    model.eval().half()
    with raises(TypeError, "float16"):
        model(input_ids=torch.randint(3, 50, (1, 5)))


def test_masks_of_known_functions_are_those_of_all_functions():
    """The short way gives the pairs that evaluating the function gives."""
    from transformers.masking_utils import (
        bidirectional_mask_function,
        causal_mask_function,
        sdpa_mask,
    )

    for function in (causal_mask_function, bidirectional_mask_function):
        for q, kv, q0, kv0 in (
            (5, 5, 0, 0),
            (3, 8, 5, 0),
            (1, 9, 8, 0),
            (2, 16, 4, 0),
            (4, 6, 7, 5),
            (7, 3, 0, 0),
        ):
            given = dict(
                batch_size=2,
                q_length=q,
                kv_length=kv,
                q_offset=q0,
                kv_offset=kv0,
                mask_function=function,
            )
            want = sdpa_mask(**given, allow_is_causal_skip=False)[0, 0]
            masks = bauta.transformers._mask(**given).masks
            assert masks[0] == Mask.dense(want.numpy()), (function, q, kv, q0, kv0)


def test_docstrings():
    import doctest

    results = doctest.testmod(bauta.transformers)
    assert results.failed == 0 and results.attempted > 2
