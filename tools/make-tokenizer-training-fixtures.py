#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Results of Hugging Face's trainers on small texts, for
tests/test_tokenizer_training.c.

    python3 -m venv venv && venv/bin/pip install tokenizers==0.23.3
    venv/bin/python tools/make-tokenizer-training-fixtures.py tests/data

tests/data/tokenizer_training.json  a list of cases: lines (each one a text),
                                    options, the pieces after the special tokens
                                    and, for BPE, after the 256 bytes; the
                                    merges; ids of the lines

The WordPiece trainer numbers the characters inside of words in the order of a
hash table, which changes from run to run. Its texts are of four letters, and
training is repeated until the order is that of the alphabet."""
import json
import random
import sys
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

STORY = """The mask hides the face; it does not hide the eyes.
In Venedig trug man die weiße Bauta, auch außerhalb des Karnevals.
Who wears a mask may speak: "I'm nobody," says the masked one, "nobody at all."
Die Maske, die Masken, der Maskierte, maskieren, maskierst, maskiert.
It's 1797, then 1798, then 1979; 17 and 97 are 114.

仮面は顔を隠す。仮面、仮面。
\tTabs\tand  two  spaces   and three,  trailing \x20
naïve café façade — naïve cafés, façades 🎭🎭 🎭
""".splitlines(keepends=True)


def words(seed, letters, count, longest):
    """Lines of random words; few letters, so that there are many ties."""
    draw = random.Random(seed)
    word = lambda: "".join(draw.choice(letters) for _ in range(draw.randint(1, longest)))
    return [" ".join(word() for _ in range(count)) for _ in range(3)]


def bpe(lines, pieces, least):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    trainer = trainers.BpeTrainer(vocab_size=pieces, min_frequency=least,
                                  special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def wordpiece(lines, pieces, least):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=pieces, min_frequency=least, show_progress=False,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def ordered(tokenizer):
    inner = [piece for piece in vocabulary(tokenizer) if piece[:2] == "##" and len(piece) == 3]
    return inner == sorted(inner)


def vocabulary(tokenizer):
    return [piece for piece, _ in sorted(tokenizer.get_vocab().items(), key=lambda x: x[1])]


def case(name, kind, lines, pieces, least):
    train, first = {"bpe": (bpe, 257), "wordpiece": (wordpiece, 5)}[kind]
    tokenizer = train(lines, pieces, least)
    while not ordered(tokenizer):
        tokenizer = train(lines, pieces, least)
    model = json.loads(tokenizer.to_str())["model"]
    return {"name": name, "kind": kind, "lines": lines, "pieces": pieces, "least": least,
            "vocabulary": vocabulary(tokenizer)[first:], "merges": model.get("merges", []),
            "ids": [tokenizer.encode(line).ids for line in lines]}


def main():
    cases = [
        case("a story", "bpe", STORY, 400, 2),
        case("two letters", "bpe", words(1, "ab", 60, 12), 330, 2),
        case("three letters, every pair", "bpe", words(2, "abc", 40, 8), 400, 0),
        case("four letters, three times", "bpe", words(3, "abcd", 200, 6), 380, 3),
        case("two letters", "wordpiece", words(4, "ab", 60, 12), 90, 2),
        case("four letters", "wordpiece", words(5, "abcd", 80, 8), 120, 0),
    ]
    path = Path(sys.argv[1]) / "tokenizer_training.json"
    path.write_text(json.dumps(cases, ensure_ascii=False, separators=(",", ":")) + "\n",
                    encoding="utf-8")


main()
