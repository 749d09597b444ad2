#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's tokenizers and bauta, timed in turns in one process.

    python3 -m venv venv && venv/bin/pip install tokenizers
    make && venv/bin/python bench/tokenize_peers.py [--tokenizer FOLDER]
        [--library FILE] [TEXT...]

Each text is encoded as a whole and line by line, on one thread; both compute
ids and offsets, and the ids are compared. Hugging Face's library remembers
words that it has seen, so its first turn is not counted. Figures are medians;
nothing of this is needed by the library or its tests."""
import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import argparse
import ctypes
import statistics
import time

import tokenizers

DATA = "../shared/data/"
PARSER = argparse.ArgumentParser()
PARSER.add_argument("--tokenizer", default=DATA + "gpt2-bpe",
                    help="a folder with a tokenizer.json")
PARSER.add_argument("--library", default="build/libbauta.so")
PARSER.add_argument("--turns", type=int, default=7)
PARSER.add_argument("texts", nargs="*", metavar="TEXT", default=[
    DATA + "wikitext-2-raw/wiki.test.raw",
    DATA + "wikitext-2-raw/wiki.valid.raw"])
OPTIONS = PARSER.parse_args()
BAUTA = ctypes.CDLL(OPTIONS.library)


class Tokens(ctypes.Structure):
    _fields_ = [("count", ctypes.c_size_t),
                ("ids", ctypes.POINTER(ctypes.c_uint32)),
                ("types", ctypes.POINTER(ctypes.c_uint32)),
                ("starts", ctypes.POINTER(ctypes.c_size_t)),
                ("ends", ctypes.POINTER(ctypes.c_size_t))]


class Ours:
    def __init__(self, path):
        self.handle = ctypes.c_void_p()
        if BAUTA.bauta_tokenizer_load(ctypes.byref(self.handle), path.encode(),
                                      None):
            raise RuntimeError("bauta_tokenizer_load: " + path)

    def encode(self, text, keep=None):
        tokens = Tokens()
        if BAUTA.bauta_tokenizer_encode(self.handle, text,
                                        ctypes.c_size_t(len(text)), None,
                                        ctypes.byref(tokens), None):
            raise RuntimeError("bauta_tokenizer_encode")
        if keep is not None:
            keep += tokens.ids[:tokens.count]
        BAUTA.bauta_tokens_release(ctypes.byref(tokens))


class Theirs:
    def __init__(self, path):
        self.handle = tokenizers.Tokenizer.from_file(path + "/tokenizer.json")

    def encode(self, text, keep=None):
        encoding = self.handle.encode(text)
        if keep is not None:
            keep += encoding.ids


def timed(peer, parts):
    start = time.perf_counter()
    for part in parts:
        peer.encode(part)
    return time.perf_counter() - start


def ids(peer, parts):
    kept = []
    for part in parts:
        peer.encode(part, kept)
    return kept


def line(name, ours, theirs, parts):
    raw = [part.encode() for part in parts]
    same = ids(ours, raw) == ids(theirs, parts)
    took = [], []
    for _ in range(OPTIONS.turns):
        took[0].append(timed(ours, raw))
        took[1].append(timed(theirs, parts))
    mine, other = [sum(map(len, raw)) / statistics.median(times) * 1e-6
                   for times in took]
    print(f"{name:28} {mine:8.1f} {other:8.1f} {mine / other:7.1f} x  "
          f"{'same ids' if same else 'THE IDS DIFFER'}", flush=True)


def main():
    print(f"tokenizers {tokenizers.__version__}, one thread, MB/s")
    print(f"{'text':28} {'bauta':>8} {'theirs':>8} {'ratio':>7}")
    ours, theirs = Ours(OPTIONS.tokenizer), Theirs(OPTIONS.tokenizer)
    for path in OPTIONS.texts:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        name = os.path.basename(path)
        line(name + ", lines", ours, theirs, text.splitlines(keepends=True))
        line(name + ", whole", ours, theirs, [text])


main()
