#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/data/models: tiny random model folders with the results of
transformers.

    tools/make-model-fixtures.py [FOLDER [NAME...]]

FOLDER is tests/data/models by default, and NAMEs select some of the models.

Each folder holds config.json and model.safetensors, as save_pretrained writes
them, and beside them

    golden.safetensors        a right-padded batch, its labels, hidden states,
                              logits and loss, the losses of five steps of
                              AdamW, and generation: greedy and, in newer
                              folders, by beam search
    grads.safetensors         the gradient of the loss, parameter by parameter
    after-adamw5.safetensors  the parameters after the five steps

in float32 on the CPU, with eager attention and no dropout. Needs transformers
and PyTorch, which the tests themselves do not. The files are written anew only
when a family or a case is added: other versions round otherwise, within the
bounds of the tests.
"""
import json
import os
import sys

import torch
import transformers
from safetensors.torch import save_file

PAD, BOS, EOS = 0, 1, 2
VOCAB = 40
RATE, STEPS, DECAY = 1e-3, 5, 0.01


def llama_sizes(**more):
    """What Llama and its relatives have in common here."""
    return dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=24,
                num_hidden_layers=2, num_attention_heads=2,
                num_key_value_heads=1, max_position_embeddings=32,
                pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS) | more


# The name of each folder, the model and its config.
MODELS = {
    # Biases of q, k and v; a tied head, whose padding row is trained by the
    # head and not by lookups.
    "qwen2": ("Qwen2", llama_sizes(tie_word_embeddings=True)),
    # Only the second layer has the window.
    "qwen2-window3": ("Qwen2", llama_sizes(
        num_key_value_heads=2, use_sliding_window=True, sliding_window=3,
        max_window_layers=1)),
    # Norms of queries and keys; heads wider than their share of the width.
    "qwen3": ("Qwen3", llama_sizes(
        head_dim=12, rope_parameters={"rope_type": "default",
                                      "rope_theta": 100.0})),
    # Heads of 6 columns, no power of two, and one pair of keys and values.
    "llama-odd": ("Llama", llama_sizes(
        hidden_size=18, num_attention_heads=3, head_dim=6,
        intermediate_size=29)),
    # No size is a multiple of a vector, nor of another's.
    "gpt2-odd": ("GPT2", dict(
        vocab_size=37, n_embd=15, n_head=3, n_layer=2, n_inner=31,
        n_positions=11, pad_token_id=None, bos_token_id=BOS,
        eos_token_id=EOS)),
    # Positions start after the padding token's, one token type; the head has
    # GELU whatever the layers have.
    "roberta": ("Roberta", dict(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=24,
        num_hidden_layers=2, num_attention_heads=2, hidden_act="relu",
        max_position_embeddings=14, type_vocab_size=1, layer_norm_eps=1e-5,
        pad_token_id=1, bos_token_id=0, eos_token_id=2)),
    # Positions from row 2 on, norms of the embeddings, scaled embeddings.
    "bart": ("Bart", dict(
        vocab_size=VOCAB, d_model=16, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=24, decoder_ffn_dim=20, max_position_embeddings=16,
        scale_embedding=True, pad_token_id=1, bos_token_id=0, eos_token_id=2,
        decoder_start_token_id=2, forced_eos_token_id=2)),
    # Version 1.0: ReLU, a tied head with scaled hidden states; heads wider than
    # their share of the width, few buckets.
    "t5": ("T5", dict(
        vocab_size=VOCAB, d_model=16, d_kv=12, d_ff=24, num_layers=2,
        num_decoder_layers=2, num_heads=2, relative_attention_num_buckets=8,
        relative_attention_max_distance=6, feed_forward_proj="relu",
        pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)),
    # Version 1.1: gated GELU, a head of its own.
    "t5-v1.1": ("T5", dict(
        vocab_size=VOCAB, d_model=16, d_kv=8, d_ff=20, num_layers=2,
        num_heads=3, relative_attention_num_buckets=6,
        relative_attention_max_distance=5, feed_forward_proj="gated-gelu",
        tie_word_embeddings=False, pad_token_id=0, eos_token_id=1,
        decoder_start_token_id=0)),
    # Softcaps of scores and logits that bite, a window of 3 in the first of two
    # layers, heads wider than their share, norms after sublayers.
    "gemma2": ("Gemma2", llama_sizes(
        head_dim=12, query_pre_attn_scalar=7, sliding_window=3,
        attn_logit_softcapping=2.0, final_logit_softcapping=3.0)),
    # Windows in layers 0 and 1, another rotary base there, a linear factor in
    # layer 2, norms of queries and keys.
    "gemma3": ("Gemma3", llama_sizes(
        num_hidden_layers=3, head_dim=12, query_pre_attn_scalar=9,
        sliding_window=3, layer_types=["sliding_attention",
                                       "sliding_attention", "full_attention"],
        sliding_window_pattern=3,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 2.0,
                               "rope_theta": 1000.0},
            "sliding_attention": {"rope_type": "default",
                                  "rope_theta": 100.0}})),
    # Three heads, no power of two, so that the slopes are out of order.
    "mpt": ("Mpt", dict(
        vocab_size=VOCAB, d_model=18, n_heads=3, n_layers=2, max_seq_len=32,
        use_cache=True, pad_token_id=None, bos_token_id=BOS,
        eos_token_id=EOS)),
}

CONFIGS = {"Gemma3": "Gemma3TextConfig"}
HEADS = {"Roberta": "RobertaForMaskedLM",
         "Bart": "BartForConditionalGeneration",
         "T5": "T5ForConditionalGeneration",
         "GPT2": "GPT2LMHeadModel"}


def untied(family, values):
    """Whether a T5 has a head of its own: transformers ties a new one."""
    return family == "T5" and values.get("tie_word_embeddings") is False


def config_untie(path):
    """Say so in the config, as those of T5 1.1 on the hub do."""
    name = os.path.join(path, "config.json")
    with open(name) as file:
        config = json.load(file)
    config["tie_word_embeddings"] = False
    with open(name, "w") as file:
        json.dump(config, file, indent=2, sort_keys=True)
        file.write("\n")


def model_make(family, values, random):
    """A model whose every parameter is random: fresh ones have gains of 1 and
    biases of 0, which would hide a missing one."""
    dropout = ("dropout", "dropout_rate", "attention_dropout",
               "activation_dropout", "hidden_dropout_prob", "attention_probs_dropout_prob",
               "resid_pdrop", "embd_pdrop", "attn_pdrop")
    config = getattr(transformers, CONFIGS.get(family, family + "Config"))(
        **values)
    for name in dropout:
        if hasattr(config, name):
            setattr(config, name, 0.0)
    config._attn_implementation = "eager"
    head = HEADS.get(family, family + "ForCausalLM")
    model = getattr(transformers, head)(config).float()
    if untied(family, values):
        model.lm_head.weight = torch.nn.Parameter(
            torch.zeros_like(model.shared.weight))
    with torch.no_grad():
        for name, p in model.named_parameters():
            draw = torch.randn(p.shape, generator=random)
            gain = p.dim() == 1 and name.endswith("weight")
            p.copy_(1 + 0.2 * draw if gain else 0.3 * draw)
            if family == "T5" and name.endswith("Attention.q.weight"):
                p /= config.d_kv ** 0.5  # where others scale the scores
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.copy_(0.3 * torch.randn(
                model.final_logits_bias.shape, generator=random))
    return model.train()


def tokens_make(random, lengths, vocab, pad):
    """A right-padded batch of ids and its mask."""
    time = max(lengths)
    ids = torch.randint(3, vocab, (len(lengths), time), generator=random)
    mask = torch.tensor([[int(t < n) for t in range(time)] for n in lengths])
    return torch.where(mask == 1, ids, torch.tensor(pad)), mask


def batch_make(model, random):
    config = model.config
    vocab, pad = config.vocab_size, config.pad_token_id or 0
    ids, mask = tokens_make(random, [7, 4, 2], vocab, pad)
    batch = {"input_ids": ids, "attention_mask": mask}
    if config.is_encoder_decoder:
        target, real = tokens_make(random, [6, 3, 5], vocab, pad)
        start = torch.full((3, 1), config.decoder_start_token_id)
        batch["decoder_input_ids"] = torch.cat([start, target[:, :-1]], 1)
        batch["labels"] = torch.where(real == 1, target, -100)
    elif isinstance(model, transformers.RobertaForMaskedLM):
        asked = torch.zeros_like(ids)
        asked[0, 2] = asked[0, 5] = asked[1, 1] = asked[2, 0] = 1
        batch["labels"] = torch.where(asked == 1, ids, -100)
        batch["input_ids"] = torch.where(asked == 1, vocab - 1, ids)
    else:
        if config.pad_token_id is not None:
            ids[0, 3] = pad  # as a real token, whose row stays untrained
        batch["labels"] = torch.where(mask == 1, ids, -100)
    return batch


def forward_save(golden, model, batch):
    with torch.no_grad():
        out = model(**batch, output_hidden_states=True, return_dict=True)
    for name in ("hidden_states", "encoder_hidden_states",
                 "decoder_hidden_states"):
        for i, state in enumerate(getattr(out, name, None) or ()):
            golden[f"{name}.{i}"] = state
    golden["logits"] = out.logits
    golden["loss"] = out.loss.reshape(1)


def generate_save(golden, model, batch):
    """Greedy and by beams, of the longest sequence, which has no padding."""
    if isinstance(model, transformers.RobertaForMaskedLM):
        return
    with torch.no_grad():
        for name, beams in {"greedy": 1, "beam3": 3}.items():
            golden["generate." + name] = model.eval().generate(
                batch["input_ids"][:1],
                attention_mask=batch["attention_mask"][:1], do_sample=False,
                num_beams=beams, max_new_tokens=4 if beams == 1 else 6,
                pad_token_id=model.config.pad_token_id or 0)
    model.train()


def parameters(model):
    return {n: p.detach().clone() for n, p in model.named_parameters()}


def steps_run(model, batch):
    adamw = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.999),
                              eps=1e-8, weight_decay=DECAY)
    losses, grads = [], None
    for _ in range(STEPS):
        adamw.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        grads = grads or {n: p.grad.clone()
                          for n, p in model.named_parameters()}
        losses.append(loss.detach())
        adamw.step()
    return torch.stack(losses), grads


def folder_write(path, family, values, seed):
    random = torch.Generator().manual_seed(seed)
    model = model_make(family, values, random)
    batch = batch_make(model, random)
    golden = dict(batch)
    model.save_pretrained(path)
    if untied(family, values):
        config_untie(path)
    forward_save(golden, model, batch)
    generate_save(golden, model, batch)
    golden["adamw_losses"], grads = steps_run(model, batch)
    write = {"golden": golden, "grads": grads,
             "after-adamw5": parameters(model)}
    for name, tensors in write.items():
        save_file({n: t.contiguous() for n, t in tensors.items()},
                  os.path.join(path, name + ".safetensors"))
    extra = os.path.join(path, "generation_config.json")
    if os.path.exists(extra):
        os.remove(extra)


def main():
    torch.set_num_threads(1)
    home = os.path.join(os.path.dirname(__file__), "..", "tests/data/models")
    root = sys.argv[1] if len(sys.argv) > 1 else home
    for seed, (name, (family, values)) in enumerate(MODELS.items()):
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        folder_write(os.path.join(root, name), family, values, seed)
        print(name)


if __name__ == "__main__":
    main()
