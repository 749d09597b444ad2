#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/data/models: tiny random model folders with the results of
transformers.

    tools/make-model-fixtures.py [FOLDER]      default: tests/data/models

Each folder holds config.json and model.safetensors, as save_pretrained writes
them, and beside them

    golden.safetensors        a right-padded batch, its labels, hidden states,
                              logits and loss, the losses of five steps of
                              AdamW, and greedy generation
    grads.safetensors         the gradient of the loss, parameter by parameter
    after-adamw5.safetensors  the parameters after the five steps

in float32 on the CPU, with eager attention and no dropout. Needs transformers
and PyTorch, which the tests themselves do not. The files are written anew only
when a family or a case is added: other versions round otherwise, within the
bounds of the tests.
"""
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
}

HEADS = {"Roberta": "RobertaForMaskedLM",
         "Bart": "BartForConditionalGeneration",
         "GPT2": "GPT2LMHeadModel"}


def model_make(family, values, random):
    """A model whose every parameter is random: fresh ones have gains of 1 and
    biases of 0, which would hide a missing one."""
    dropout = ("dropout", "attention_dropout", "activation_dropout",
               "hidden_dropout_prob", "attention_probs_dropout_prob",
               "resid_pdrop", "embd_pdrop", "attn_pdrop")
    config = getattr(transformers, family + "Config")(**values)
    for name in dropout:
        if hasattr(config, name):
            setattr(config, name, 0.0)
    config._attn_implementation = "eager"
    head = HEADS.get(family, family + "ForCausalLM")
    model = getattr(transformers, head)(config).float()
    with torch.no_grad():
        for name, p in model.named_parameters():
            draw = torch.randn(p.shape, generator=random)
            gain = p.dim() == 1 and name.endswith("weight")
            p.copy_(1 + 0.2 * draw if gain else 0.3 * draw)
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
    """Greedy, of the longest sequence, which has no padding."""
    if isinstance(model, transformers.RobertaForMaskedLM):
        return
    with torch.no_grad():
        golden["generate.greedy"] = model.eval().generate(
            batch["input_ids"][:1], attention_mask=batch["attention_mask"][:1],
            do_sample=False, num_beams=1, max_new_tokens=4,
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
        folder_write(os.path.join(root, name), family, values, seed)
        print(name)


if __name__ == "__main__":
    main()
