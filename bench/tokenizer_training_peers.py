#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train tokenizers with bauta, Hugging Face's tokenizers and SentencePiece on the
same files: the time of each on one thread, and whether the vocabularies are
equal.

    python3 -m venv venv && venv/bin/pip install tokenizers sentencepiece
    make && venv/bin/python bench/tokenizer_training_peers.py FILE...

A line is a text. bauta's files are then loaded by Hugging Face's library,
and the ids of 10,000 lines are compared. Files that end in .gz are unpacked.
Nothing of this is needed by the library or its tests."""
import argparse
import gzip
import json
import os
import subprocess
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import sentencepiece  # noqa: E402
from tokenizers import (Tokenizer, models, normalizers, pre_tokenizers,  # noqa: E402
                        trainers)

PARSER = argparse.ArgumentParser()
PARSER.add_argument("files", nargs="+")
PARSER.add_argument("--pieces", type=int, default=8000)
PARSER.add_argument("--program", default="build/bauta")
PARSER.add_argument("--turns", type=int, default=3)
PARSER.add_argument("--lines", type=int, default=10000, help="to compare ids of")
OPTIONS = PARSER.parse_args()
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def unpack(folder):
    for i, name in enumerate(OPTIONS.files):
        reader = gzip.open if name.endswith(".gz") else open
        with reader(name, "rb") as file:
            path = os.path.join(folder, f"{i}.txt")
            with open(path, "wb") as copy:
                copy.write(file.read())
            yield path


def timed(function):
    """The shortest of some turns, and what the last one returned."""
    best = float("inf")
    for _ in range(OPTIONS.turns):
        begin = time.perf_counter()
        result = function()
        best = min(best, time.perf_counter() - begin)
    return best, result


def bauta(kind, files, folder):
    out = os.path.join(folder, kind)
    command = [OPTIONS.program, "tokenizer", "train", "--kind", kind, "--lines",
               "--pieces", str(OPTIONS.pieces), "--out", out]
    subprocess.run(command + files, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return out


def hf_bpe(files):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train(files, trainers.BpeTrainer(
        vocab_size=OPTIONS.pieces, min_frequency=2, special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tokenizer


def hf_wordpiece(files):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train(files, trainers.WordPieceTrainer(
        vocab_size=OPTIONS.pieces, min_frequency=2, special_tokens=BERT,
        show_progress=False))
    return tokenizer


def sp_unigram(files, folder):
    prefix = os.path.join(folder, "sp")
    sentencepiece.SentencePieceTrainer.train(
        input=files, model_prefix=prefix, vocab_size=OPTIONS.pieces, num_threads=1,
        character_coverage=1.0, pad_id=3, minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")


def compare_ids(out, lines, folder):
    """Lines whose ids differ from those of Hugging Face's library."""
    path = os.path.join(folder, "lines")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    got = subprocess.run([OPTIONS.program, "tokenize", out, "--file", path, "--json"],
                         check=True, capture_output=True, text=True).stdout
    got = [json.loads(line)["ids"] for line in got.splitlines()]
    want = [e.ids for e in Tokenizer.from_file(out + "/tokenizer.json").encode_batch(lines)]
    return sum(a != b for a, b in zip(got, want)) + abs(len(got) - len(want))


def model_of(tokenizer):
    return json.loads(tokenizer.to_str())["model"]


def report(name, ours, theirs, peer, note):
    print(f"{name:10} bauta {ours:7.3f} s   {peer} {theirs:7.3f} s   "
          f"{theirs / ours:5.1f} x   {note}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        files = list(unpack(folder))
        lines = []
        for name in files:
            with open(name, encoding="utf-8", errors="replace", newline="\n") as file:
                lines += [line for line in file.read().split("\n") if line]
        some = lines[::max(1, len(lines) // OPTIONS.lines)][:OPTIONS.lines]
        found = {}
        for kind in ("bpe", "wordpiece", "unigram"):
            found[kind] = timed(lambda kind=kind: bauta(kind, files, folder))
        mine = {kind: Tokenizer.from_file(out + "/tokenizer.json")
                for kind, (_, out) in found.items()}

        seconds, other = timed(lambda: hf_bpe(files))
        same = all(model_of(other)[key] == model_of(mine["bpe"])[key]
                   for key in ("vocab", "merges"))
        report("bpe", found["bpe"][0], seconds, "tokenizers", "the same" if same else "DIFFERS")

        seconds, other = timed(lambda: hf_wordpiece(files))
        a, b = set(other.get_vocab()), set(mine["wordpiece"].get_vocab())
        report("wordpiece", found["wordpiece"][0], seconds, "tokenizers",
               f"{len(a & b)} of {len(a)} pieces are the same (ties by hash there)")

        seconds, other = timed(lambda: sp_unigram(files, folder))
        characters = sum(map(len, lines))
        ours = sum(len(e.ids) for e in mine["unigram"].encode_batch(lines)) / characters
        theirs = sum(map(len, other.encode(lines))) / characters
        report("unigram", found["unigram"][0], seconds, "sentencepiece",
               f"tokens per character {ours:.5f}, there {theirs:.5f} ({ours / theirs - 1:+.3%})")

        for kind, (_, out) in found.items():
            print(f"{kind:10} {compare_ids(out, some, folder)} of {len(some)} lines "
                  "have other ids in Hugging Face's library")


main()
