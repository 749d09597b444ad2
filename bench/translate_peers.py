#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CTranslate2 and bauta, translating with beam search in turns.

    python3 -m venv venv &&
    venv/bin/pip install torch transformers sentencepiece sacremoses ctranslate2
    make && venv/bin/python bench/translate_peers.py [--threads N] [--turns N]
        [--beams N] [--model FOLDER] [--text FILE] [PROGRAM...]

Each PROGRAM is a bauta, by default build/bauta; several compare one state of it
with another. bauta's times are of the whole program, from lines of text to
lines of text; CTranslate2's are from tokens to tokens, of a model in memory
that has translated the text once. Both stop a sentence as soon as they have as
many translations as beams, and CTranslate2 has one worker of one thread for
each thread. Prints medians and how many translations are the same.

CTranslate2's converter drops the embedding of <pad>, from which a Marian model
begins, for a vector of zeros. That suits models whose <pad> is zeros, and
others end each sentence early, which looks fast. It is kept here."""
import argparse
import gzip
import os
import statistics
import subprocess
import tempfile
import time

import ctranslate2
import transformers
from ctranslate2.converters import transformers as converters

DATA = "../shared/data/"
PARSER = argparse.ArgumentParser()
PARSER.add_argument("--threads", type=int, default=2)
PARSER.add_argument("--turns", type=int, default=5)
PARSER.add_argument("--beams", type=int, default=5)
PARSER.add_argument("--batch", type=int, default=64,
                    help="sentences in a batch of CTranslate2")
PARSER.add_argument("--model", default=DATA + "models/marian-m30k")
PARSER.add_argument("--text", default=DATA + "multi30k/test_2016_flickr.en.gz")
PARSER.add_argument("programs", nargs="*", metavar="PROGRAM",
                    default=["build/bauta"])
OPTIONS = PARSER.parse_args()


class KeepPad(converters.MarianMTLoader):
    def set_config(self, config, model, tokenizer):
        super().set_config(config, model, tokenizer)
        config.decoder_start_token = tokenizer.pad_token

    def set_decoder(self, spec, decoder):
        converters.BartLoader.set_decoder(self, spec, decoder)
        spec.start_from_zero_embedding = False

    def get_vocabulary(self, model, tokenizer):
        return converters.BartLoader.get_vocabulary(self, model, tokenizer)

    def _remove_pad_weights(self, spec):
        pass


def convert(to):
    converters._MODEL_LOADERS["MarianConfig"] = KeepPad()
    converters.TransformersConverter(OPTIONS.model).convert(to)
    return ctranslate2.Translator(to, compute_type="float32",
                                  inter_threads=OPTIONS.threads,
                                  intra_threads=1)


def peer(translator, sources):
    start = time.perf_counter()
    results = translator.translate_batch(
        sources, beam_size=OPTIONS.beams, max_batch_size=OPTIONS.batch)
    return time.perf_counter() - start, [r.hypotheses[0] for r in results]


def ours(program, path):
    start = time.perf_counter()
    run = subprocess.run(
        [program, "translate", OPTIONS.model, "--file", path, "--quiet",
         "--num-beams", str(OPTIONS.beams), "--early-stopping", "yes",
         "--threads", str(OPTIONS.threads)],
        check=True, capture_output=True)
    return time.perf_counter() - start, run.stdout.decode().splitlines()


def show(name, seconds, note):
    print(f"{name}: median {statistics.median(seconds):.3f} s, "
          f"{min(seconds):.3f} to {max(seconds):.3f}{note}", flush=True)


def main():
    with gzip.open(OPTIONS.text, "rt") as file:
        lines = file.read().splitlines()
    tokenizer = transformers.AutoTokenizer.from_pretrained(OPTIONS.model)
    sources = [tokenizer.convert_ids_to_tokens(tokenizer.encode(line))
               for line in lines]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "text")
        with open(path, "w") as file:
            file.write("".join(line + "\n" for line in lines))
        translator = convert(os.path.join(folder, "model"))
        _, theirs = peer(translator, sources)
        texts = [tokenizer.decode(tokenizer.convert_tokens_to_ids(tokens),
                                  skip_special_tokens=True)
                 for tokens in theirs]
        seconds = {program: [] for program in OPTIONS.programs}
        peers, same = [], {}
        for _ in range(OPTIONS.turns):
            for program in OPTIONS.programs:
                spent, output = ours(program, path)
                seconds[program].append(spent)
                same[program] = sum(a == b for a, b in zip(texts, output))
            peers.append(peer(translator, sources)[0])
    median = statistics.median(peers)
    for program in OPTIONS.programs:
        ratio = median / statistics.median(seconds[program])
        show(program, seconds[program], f"; {ratio:.2f} times CTranslate2; "
             f"{same[program]} of {len(lines)} translations the same")
    show("CTranslate2 " + ctranslate2.__version__, peers, "")


if __name__ == "__main__":
    main()
