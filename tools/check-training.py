#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train the same model on the same batches with bauta and with PyTorch.

    tools/check-training.py [--library build/libbauta.so] [--steps 200]
                            [--data ../shared/data] [--only NAME] [--threads 2]

Needs torch and transformers from PyPI. A new model is saved by bauta and loaded
by transformers; the order of the data, the masked tokens and the learning rate
are computed here again, from the definitions in the library's headers. Prints the
two losses every 20 steps, their largest difference, and the tokens a second of
both, taken in turns of ten steps.
"""
import argparse
import ctypes
import gzip
import json
import os
import sys
import tempfile
import time

import numpy as np

IGNORE = 0xFFFFFFFF
ORDER, OFFSET, HIDING = 1, 2, 3
TURN = 10  # steps of the one, then of the other
U32 = np.uint64(0xFFFFFFFF)


def philox(counter, key):
    """Philox4x32-10 over arrays of counters."""
    c = [np.asarray(x, np.uint64) & U32 for x in counter]
    k = [np.uint64(key[0]), np.uint64(key[1])]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> np.uint64(32)) ^ c[1] ^ k[0], b & U32,
             (a >> np.uint64(32)) ^ c[3] ^ k[1], a & U32]
        k = [(k[0] + np.uint64(0x9E3779B9)) & U32,
             (k[1] + np.uint64(0xBB67AE85)) & U32]
    return c


def draw(seed, purpose, a, b):
    """64 random bits for (purpose, a, b): src/base/philox.h."""
    a = np.asarray(a, np.uint64)
    word = philox([a, a >> np.uint64(32), np.full_like(a, b),
                   np.full_like(a, 0x64610000 + purpose)],
                  (seed & 0xFFFFFFFF, seed >> 32))
    return word[0] << np.uint64(32) | word[1]


def unit(bits):
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0 ** -53


def below(bits, limit):
    return int(bits) * limit >> 64


class Epoch:
    """Sequences of one pass, in batches: src/data/epoch.c."""

    def __init__(self, texts, sources, options, shifted, number):
        self.list = []
        context = options.context_length
        for d, text in enumerate(texts):
            length = len(text) - shifted
            if sources is not None:
                if max(len(text), len(sources[d])) <= context:
                    self.list.append((d, 0, len(text)))
                continue
            if length <= 0:
                continue
            end = min(length, context)
            if length > context:
                end = 1 + below(draw(options.seed, OFFSET, d, number), context)
            first = 0
            while first < length:
                self.list.append((d, first, end - first))
                first, end = end, min(end + context, length)
        order = draw(options.seed, ORDER, np.arange(len(self.list) + 1),
                     number)
        for i in range(len(self.list), 1, -1):
            j = below(order[i], i)
            self.list[i - 1], self.list[j] = self.list[j], self.list[i - 1]
        self.batches, batch, tokens = [], [], 0
        for s in self.list:
            more = s[2] if sources is None else max(s[2], len(sources[s[0]]))
            full = (len(batch) == options.batch_sequences
                    if options.batch_sequences
                    else tokens + more > options.batch_tokens)
            if batch and full:
                self.batches.append(batch)
                batch, tokens = [], 0
            batch.append(s)
            tokens += more
        self.batches.append(batch)


class Options(ctypes.Structure):
    _fields_ = ([("size", ctypes.c_size_t), ("objective", ctypes.c_int),
                 ("mode", ctypes.c_int), ("seed", ctypes.c_uint64)]
                + [(n, ctypes.c_size_t) for n in
                   ("batch_sequences", "batch_tokens",
                    "gradient_accumulation_steps", "microbatch_tokens",
                    "context_length")]
                + [(n, ctypes.c_float) for n in
                   ("dropout", "label_smoothing", "mlm_probability",
                    "mlm_random", "mlm_keep", "scheduled_sampling")]
                + [("max_steps", ctypes.c_size_t),
                   ("warmup_steps", ctypes.c_size_t),
                   ("lr_scheduler_type", ctypes.c_int)]
                + [(n, ctypes.c_double) for n in
                   ("learning_rate", "min_learning_rate", "adam_beta1",
                    "adam_beta2", "adam_epsilon", "weight_decay",
                    "max_grad_norm", "ema_decay")])


class Report(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("step", ctypes.c_size_t),
                ("epoch", ctypes.c_size_t), ("loss", ctypes.c_double),
                ("counted", ctypes.c_size_t), ("tokens", ctypes.c_size_t),
                ("grad_norm", ctypes.c_double),
                ("learning_rate", ctypes.c_double),
                ("updated", ctypes.c_bool)]


class ContextOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("threads", ctypes.c_int),
                ("isa", ctypes.c_char_p)]


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("message", ctypes.c_char * 256)]


class Tokens(ctypes.Structure):
    _fields_ = [("count", ctypes.c_size_t),
                ("ids", ctypes.POINTER(ctypes.c_uint32)),
                ("types", ctypes.c_void_p), ("starts", ctypes.c_void_p),
                ("ends", ctypes.c_void_p)]


class Library:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)

    def call(self, name, *args):
        error = Error()
        if getattr(self.library, name)(*args, ctypes.byref(error)):
            raise SystemExit(f"{name}: {error.message.decode()}")

    def make(self, name, *args):
        handle = ctypes.c_void_p()
        self.call(name, ctypes.byref(handle), *args)
        return handle

    def encode(self, tokenizer, text):
        tokens, raw = Tokens(), text.encode()
        self.call("bauta_tokenizer_encode", tokenizer, raw,
                  ctypes.c_size_t(len(raw)), None, ctypes.byref(tokens))
        ids = list(tokens.ids[:tokens.count])
        self.library.bauta_tokens_release(ctypes.byref(tokens))
        return ids

    def corpus(self, texts, sources):
        corpus = self.make("bauta_corpus_create")
        for i, text in enumerate(texts):
            source = sources[i] if sources else []
            self.call("bauta_corpus_add", corpus,
                      (ctypes.c_uint32 * len(text))(*text),
                      ctypes.c_size_t(len(text)),
                      (ctypes.c_uint32 * len(source))(*source)
                      if sources else None, ctypes.c_size_t(len(source)))
        return corpus


def options_of(**given):
    base = dict(size=ctypes.sizeof(Options), objective=0, mode=0, seed=1,
                batch_sequences=0, batch_tokens=4096,
                gradient_accumulation_steps=1, microbatch_tokens=1 << 20,
                context_length=0, dropout=0, label_smoothing=0,
                mlm_probability=0.15, mlm_random=0.1, mlm_keep=0.1,
                scheduled_sampling=0, max_steps=200, warmup_steps=20,
                lr_scheduler_type=2, learning_rate=1e-3,
                min_learning_rate=1e-4, adam_beta1=0.9, adam_beta2=0.99,
                adam_epsilon=1e-8, weight_decay=0.1, max_grad_norm=1.0,
                ema_decay=0)
    base.update(given)
    return Options(**base)


def rate_of(o, step):
    """bt_learning_rate() of src/train/optimizer.c."""
    if step <= o.warmup_steps:
        return o.learning_rate * step / o.warmup_steps
    x = min((step - o.warmup_steps) / (o.max_steps - o.warmup_steps), 1.0)
    if o.lr_scheduler_type == 3:
        return max(o.learning_rate * (o.warmup_steps / step) ** 0.5,
                   o.min_learning_rate)
    return (o.min_learning_rate + (o.learning_rate - o.min_learning_rate)
            * 0.5 * (1 + np.cos(np.pi * x)))


def masked(text, first, options, epoch, mask, special, vocabulary):
    """Inputs and labels of a masked sequence: src/data/objective.c."""
    ids = np.array(text, np.int64)
    numbers = np.arange(first, first + len(text), dtype=np.uint64)
    hide = (unit(draw(options.seed, HIDING, numbers, epoch))
            < float(np.float32(options.mlm_probability)))
    hide &= ~np.isin(ids, special)
    labels = np.where(hide, ids, -100)
    u = unit(draw(options.seed, HIDING, numbers, epoch | 1 << 31))
    random = draw(options.seed, HIDING, numbers, epoch | 3 << 30)
    kept = float(np.float32(options.mlm_keep))
    limit = kept + float(np.float32(options.mlm_random))
    for i in np.flatnonzero(hide):
        if u[i] >= limit:
            ids[i] = mask
        elif u[i] >= kept:
            ids[i] = below(random[i], vocabulary)
    return ids, labels


def pad(rows, value):
    import torch
    out = np.full((len(rows), max(len(r) for r in rows)), value, np.int64)
    for i, row in enumerate(rows):
        out[i, :len(row)] = row
    return torch.from_numpy(out)


class Twin:
    """The same training in PyTorch, padded, eager, as people write it."""

    def __init__(self, case, folder):
        import torch
        import transformers
        kind = {"causal": transformers.AutoModelForCausalLM,
                "masked": transformers.AutoModelForMaskedLM,
                "seq2seq": transformers.AutoModelForSeq2SeqLM}[case.objective]
        self.torch, self.case = torch, case
        self.model = kind.from_pretrained(folder, dtype=torch.float32)
        self.model.train()
        for module in self.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        o = case.options
        trained = [p for n, p in self.model.named_parameters()
                   if p.requires_grad and "embed_positions" not in n]
        self.trained = trained
        self.optimizer = torch.optim.AdamW(
            [{"params": [p for p in trained if p.dim() > 1],
              "weight_decay": o.weight_decay},
             {"params": [p for p in trained if p.dim() <= 1],
              "weight_decay": 0.0}],
            betas=(o.adam_beta1, o.adam_beta2), eps=o.adam_epsilon)

    def inputs(self, batch, epoch):
        case, torch = self.case, self.torch
        ids, labels, sources = [], [], []
        for d, first, count in batch:
            text = case.texts[d]
            if case.objective == "causal":
                ids.append(text[first:first + count])
                labels.append(text[first + 1:first + count + 1])
            elif case.objective == "seq2seq":
                ids.append([case.start] + text[:-1])
                labels.append(text)
                sources.append(case.sources[d])
            else:
                i, l = masked(text[first:first + count], case.starts[d] + first,
                              case.options, epoch, case.mask, case.special,
                              case.vocabulary)
                ids.append(i)
                labels.append(l)
        given = {"input_ids": pad(ids, 0)}
        seen = (pad([[1] * len(i) for i in ids], 0))
        if case.objective == "seq2seq":
            given = {"input_ids": pad(sources, case.pad),
                     "attention_mask": pad([[1] * len(i) for i in sources], 0),
                     "decoder_input_ids": pad(ids, case.pad)}
        elif case.objective == "masked":
            given["attention_mask"] = seen
        return given, pad(labels, -100)

    def step(self, batch, epoch, number):
        torch, o = self.torch, self.case.options
        given, labels = self.inputs(batch, epoch)
        begin = time.perf_counter()
        for group in self.optimizer.param_groups:
            group["lr"] = rate_of(o, number)
        logits = self.model(**given).logits
        loss = torch.nn.functional.cross_entropy(
            logits.view(-1, logits.shape[-1]), labels.view(-1),
            ignore_index=-100, label_smoothing=float(o.label_smoothing))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.trained, o.max_grad_norm)
        self.optimizer.step()
        return loss.item(), time.perf_counter() - begin


class Case:
    def __init__(self, name, objective, texts, sources, config, options,
                 mask=None, special=()):
        self.name, self.objective = name, objective
        self.texts, self.sources, self.options = texts, sources, options
        self.config = config
        self.vocabulary = config["vocab_size"]
        self.start = config.get("decoder_start_token_id")
        self.pad = config.get("pad_token_id", 0)
        self.mask, self.special = mask, np.array(special)
        self.starts = np.concatenate([[0], np.cumsum([len(t) for t in texts])])
        options.context_length = options.context_length or config.get(
            "n_positions", config.get("max_position_embeddings"))


def run(library, case, tokenizer, threads):
    o = case.options
    context_options = ContextOptions(ctypes.sizeof(ContextOptions), threads,
                                     None)
    context = library.make("bauta_context_create",
                           ctypes.byref(context_options))
    model = library.make("bauta_model_create",
                         json.dumps(case.config).encode(), ctypes.c_uint64(7))
    with tempfile.TemporaryDirectory() as folder:
        library.call("bauta_model_save", model, f"{folder}/m".encode())
        twin = Twin(case, f"{folder}/m")
    corpus = library.corpus(case.texts, case.sources)
    trainer = library.make("bauta_trainer_create", context, model, tokenizer,
                           corpus, ctypes.byref(o))
    number = at = 0
    epoch = Epoch(case.texts, case.sources, o, case.objective == "causal", 0)
    worst = seconds = twin_seconds = tokens = 0
    for first in range(1, o.max_steps + 1, TURN):
        steps = range(first, min(first + TURN, o.max_steps + 1))
        reports = [Report(ctypes.sizeof(Report)) for _ in steps]
        took = []
        for report in reports:
            begin = time.perf_counter()
            library.call("bauta_trainer_step", trainer, ctypes.byref(report))
            took.append(time.perf_counter() - begin)
        for i, (step, report) in enumerate(zip(steps, reports)):
            if at == len(epoch.batches):
                number, at = number + 1, 0
                epoch = Epoch(case.texts, case.sources, o,
                              case.objective == "causal", number)
            loss, twin_took = twin.step(epoch.batches[at], number, step)
            at += 1
            worst = max(worst, abs(loss - report.loss))
            if step > TURN:  # both have warmed up
                seconds += took[i]
                twin_seconds += twin_took
                tokens += report.counted if case.objective == "seq2seq" \
                    else report.tokens
            if step % 20 == 0 or step == 1:
                print(f"  step {step:4} bauta {report.loss:9.6f} "
                      f"PyTorch {loss:9.6f} counted {report.counted}",
                      flush=True)
    print(f"{case.name}: largest difference {worst:.2e}; bauta "
          f"{tokens / seconds:.0f} tokens/s, PyTorch "
          f"{tokens / twin_seconds:.0f}, ratio {twin_seconds / seconds:.2f}",
          flush=True)
    return worst


def cases(library, data, steps):
    text = open(f"{data}/tinyshakespeare/input.txt").read()
    raw = text.encode()
    chars = library.make("bauta_tokenizer_characters", raw,
                         ctypes.c_size_t(len(raw)))
    ids = library.encode(chars, text)
    yield Case("GPT-2, characters, 4 x 128, 12 x 64", "causal",
               [ids[:len(ids) * 9 // 10]], None,
               {"model_type": "gpt2", "n_embd": 128, "n_head": 4, "n_layer": 4,
                "n_positions": 64, "vocab_size": 65, "n_ctx": 64},
               options_of(batch_sequences=12, max_steps=steps)), None
    folder = f"{data}/models/bert-shakespeare"
    tokenizer = library.make("bauta_tokenizer_load", folder.encode())
    lines = [l for l in text.split("\n") if l]
    yield Case("BERT, masked, 4 x 192", "masked",
               [library.encode(tokenizer, l) for l in lines[:8000]], None,
               json.load(open(f"{folder}/config.json")),
               options_of(batch_tokens=2048, max_steps=steps,
                          learning_rate=5e-4),
               mask=4, special=range(5)), tokenizer
    folder = f"{data}/models/marian-m30k"
    tokenizer = library.make("bauta_tokenizer_load", folder.encode())
    sides = [gzip.open(f"{data}/multi30k/train.{x}.gz", "rt").read().split("\n")
             for x in ("en", "de")]
    pairs = [(a, b) for a, b in zip(*sides) if a and b][:4000]
    config = json.load(open(f"{folder}/config.json"))
    config.update(dropout=0.0)
    yield Case("Marian, transformer-tiny, 4 + 4 x 128", "seq2seq",
               [library.encode(tokenizer, b) for _, b in pairs],
               [library.encode(tokenizer, a) for a, _ in pairs], config,
               options_of(batch_tokens=2048, max_steps=steps,
                          learning_rate=1e-3, lr_scheduler_type=3,
                          label_smoothing=0.1, adam_beta2=0.98,
                          weight_decay=0.0, max_grad_norm=25.0)), tokenizer


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", default=f"{here}/../build/libbauta.so")
    parser.add_argument("--data", default=f"{here}/../../shared/data")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", type=int)
    args = parser.parse_args()
    import torch
    torch.set_num_threads(args.threads)
    library = Library(args.library)
    failed = False
    for i, (case, tokenizer) in enumerate(cases(library, args.data,
                                                args.steps)):
        if args.only is None or args.only == i:
            failed |= run(library, case, tokenizer, args.threads) > 1e-2
    sys.exit(failed)


if __name__ == "__main__":
    main()
