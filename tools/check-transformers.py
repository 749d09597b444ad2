#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exchange model folders with Hugging Face in both directions: for every family,
transformers saves a small random model; bauta loads that folder, computes
logits and saves it again; transformers loads the copy. All three must agree,
also if the file stores optional tensors with other values: positions instead of
sinusoids, and a head that is not the token table.

    tools/check-transformers.py build/libbauta.so [FOLDER ...]

Folders given are checked as well. Needs torch and transformers; not part of the
tests. Logits are compared in units of 2^-24 times the largest one, as derived in
tests/test_model.c.
"""

import ctypes
import os
import shutil
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers as hf
from safetensors.torch import load_file, save_file

BOUND = 160
LLAMA = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, vocab_size=96, max_position_embeddings=64, pad_token_id=None,
             bos_token_id=1, eos_token_id=2)
BERT = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            vocab_size=96, max_position_embeddings=66, pad_token_id=1)
BART = dict(d_model=32, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=40, vocab_size=96,
            max_position_embeddings=64, pad_token_id=95, decoder_start_token_id=95, eos_token_id=0,
            bos_token_id=1, forced_eos_token_id=None)
FAMILIES = {
    "gpt2": (hf.GPT2LMHeadModel, hf.GPT2Config(
        n_embd=32, n_head=4, n_layer=2, n_positions=64, vocab_size=96, bos_token_id=1, eos_token_id=2)),
    "gpt2-untied": (hf.GPT2LMHeadModel, hf.GPT2Config(
        n_embd=32, n_head=4, n_layer=2, n_positions=64, vocab_size=96, bos_token_id=1, eos_token_id=2,
        tie_word_embeddings=False)),
    "llama": (hf.LlamaForCausalLM, hf.LlamaConfig(**LLAMA)),
    "mistral": (hf.MistralForCausalLM, hf.MistralConfig(sliding_window=4, **LLAMA)),
    "qwen2": (hf.Qwen2ForCausalLM, hf.Qwen2Config(
        use_sliding_window=True, sliding_window=4, max_window_layers=1, **LLAMA)),
    "qwen3": (hf.Qwen3ForCausalLM, hf.Qwen3Config(head_dim=16, tie_word_embeddings=True, **LLAMA)),
    "bert": (hf.BertForMaskedLM, hf.BertConfig(**BERT)),
    "roberta": (hf.RobertaForMaskedLM, hf.RobertaConfig(type_vocab_size=1, **BERT)),
    "marian": (hf.MarianMTModel, hf.MarianConfig(**BART)),
    "bart": (hf.BartForConditionalGeneration, hf.BartConfig(**BART)),
}
# Tensors that save_pretrained() leaves out: the name, and that of one with its shape.
STORED = {
    "gpt2": {"lm_head.weight": "transformer.wte.weight"},
    "qwen3": {"lm_head.weight": "model.embed_tokens.weight"},
    "roberta": {"lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight"},
    "bart": {"lm_head.weight": "model.shared.weight"},
    "marian": {"model.encoder.embed_positions.weight": None,
               "model.decoder.embed_positions.weight": None,
               "lm_head.weight": "model.shared.weight"},
}


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("message", ctypes.c_char * 256)]


class Batch(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("count", ctypes.c_size_t), ("lengths", ctypes.c_void_p),
                ("stride", ctypes.c_size_t), ("ids", ctypes.c_void_p), ("types", ctypes.c_void_p),
                ("mask", ctypes.c_void_p), ("cross", ctypes.c_void_p), ("prefixes", ctypes.c_void_p)]


class Outputs(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("logits", ctypes.c_void_p), ("encoder", ctypes.c_void_p),
                ("decoder", ctypes.c_void_p)]


class Bauta:
    """bauta.h through ctypes, the calls of this check."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(os.path.abspath(path))
        self.context = ctypes.c_void_p()
        self.call("bauta_context_create", ctypes.byref(self.context), None)

    def call(self, name, *arguments):
        err = Error()
        if getattr(self.lib, name)(*arguments, ctypes.byref(err)):
            raise RuntimeError(f"{name}: {err.message.decode()}")

    def load(self, folder):
        model = ctypes.c_void_p()
        self.call("bauta_model_load", ctypes.byref(model), folder.encode(), ctypes.c_bool(False))
        return model

    def save(self, model, folder):
        self.call("bauta_model_save", model, folder.encode())

    def free(self, model):
        self.lib.bauta_model_free(model)

    def logits(self, model, source, target, vocabulary):
        """source and target are (batch, time) without padding, or None."""
        keep, batches = [], []
        for ids in (source, target):
            if ids is None:
                batches.append(None)
                continue
            flat = (ctypes.c_uint32 * ids.numel())(*ids.flatten().tolist())
            keep.append(flat)
            batch = Batch(ctypes.sizeof(Batch), ids.shape[0], None, ids.shape[1],
                          ctypes.cast(flat, ctypes.c_void_p), None, None, None, None)
            keep.append(batch)
            batches.append(ctypes.byref(batch))
        top = target if target is not None else source
        out = torch.empty(*top.shape, vocabulary)
        outputs = Outputs(ctypes.sizeof(Outputs), out.data_ptr(), None, None)
        self.call("bauta_model_forward", self.context, model, *batches, ctypes.byref(outputs))
        return out


def inputs_of(model):
    torch.manual_seed(1)
    low = 2  # RoBERTa counts positions by which ids are padding
    high = min(90, model.config.vocab_size)
    source = torch.randint(low, high, (3, 21))
    return source, torch.randint(low, high, (3, 17))


def reference(model, source, target):
    with torch.no_grad():
        if model.config.is_encoder_decoder:
            return model(input_ids=source, decoder_input_ids=target).logits
        return model(input_ids=source).logits


def units(want, got):
    return ((want - got).abs().max() / (want.abs().max() * 2.0**-24)).item()


def load_hf(kind, folder):
    """Refuses a folder that lacks or has too many tensors."""
    model, info = kind.from_pretrained(folder, output_loading_info=True, dtype=torch.float32,
                                       attn_implementation="eager")
    wrong = {k: v for k, v in info.items() if v}
    if wrong:
        raise RuntimeError(f"transformers loaded the folder with {wrong}")
    return model.eval()


def check(bauta, name, kind, folder, scratch):
    saved = os.path.join(tempfile.mkdtemp(dir=scratch), "saved")
    original = load_hf(kind, folder)
    source, target = inputs_of(original)
    want = reference(original, source, target)
    both = original.config.is_encoder_decoder
    encoder = kind.__name__.endswith("MaskedLM")
    model = bauta.load(folder)
    batches = (source, target) if both else (source, None) if encoder else (None, source)
    mine = bauta.logits(model, *batches, want.shape[-1])
    bauta.save(model, saved)
    bauta.free(model)
    back = reference(load_hf(kind, saved), source, target)
    worst = max(units(want, mine), units(want, back))
    verdict = "agrees" if worst <= BOUND and torch.equal(want, back) else "DIFFERS"
    print(f"{name:28} bauta {units(want, mine):6.1f} units, saved and loaded again "
          f"{units(want, back):4.1f} units: {verdict}")
    return verdict == "agrees"


def families(scratch):
    for name, (kind, config) in FAMILIES.items():
        torch.manual_seed(0)
        model = kind(config)
        with torch.no_grad():  # zeros and ones would hide a bias in the wrong place
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
        folder = os.path.join(scratch, name)
        model.save_pretrained(folder)
        yield name, kind, folder


def stored(scratch, name, kind, folder):
    """The same model with tensors of its own where it has none."""
    copy = os.path.join(scratch, name + "-stored")
    shutil.copytree(folder, copy)
    path = os.path.join(copy, "model.safetensors")
    tensors = load_file(path)
    for tensor, like in STORED[name].items():
        positions = (BART["max_position_embeddings"], BART["d_model"])
        tensors[tensor] = torch.randn(tensors[like].shape if like else positions)
    save_file(tensors, path, {"format": "pt"})
    return name + "-stored", kind, copy


def given(folders):
    for folder in folders:
        config = hf.AutoConfig.from_pretrained(folder)
        yield os.path.basename(folder.rstrip("/")), getattr(hf, config.architectures[0]), folder


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    bauta = Bauta(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        every = [*families(scratch), *given(sys.argv[2:])]
        every += [stored(scratch, *one) for one in every if one[0] in STORED]
        results = [check(bauta, *one, scratch) for one in every]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
