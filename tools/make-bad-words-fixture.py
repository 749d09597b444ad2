#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/data/bad_words.h: the tokens that transformers masks by bad_words_ids.

    tools/make-bad-words-fixture.py [CASES] | clang-format > tests/data/bad_words.h

The vocabulary is small, so that partial matches are frequent.
Needs torch and transformers; nothing else needs them.
"""
import json
import random
import sys

import torch
from transformers import NoBadWordsLogitsProcessor

VOCAB = 8


def draw(rng):
    tokens = range(rng.choice([2, 3, VOCAB]))
    history = rng.choices(tokens, k=rng.randrange(1, 9))
    words = [rng.choices(tokens, k=rng.choice([1, 2, 2, 3, 4, 6]))
             for _ in range(rng.randrange(1, 7))]
    if rng.random() < 0.5:  # one that the history is about to complete
        tail = rng.randrange(1, len(history) + 1)
        words.append(history[-tail:] + [rng.randrange(VOCAB)])
    return history, words, sorted(rng.sample(range(VOCAB), rng.choice([0, 1, 2])))


def forbidden(history, words, ends):
    if all(word in [[end] for end in ends] for word in words):
        return 0  # nothing is left of the list, which transformers refuses
    act = NoBadWordsLogitsProcessor(words, ends or None)
    row = act(torch.tensor([history]), torch.zeros(1, VOCAB))[0].tolist()
    return sum(1 << i for i, x in enumerate(row) if x == float("-inf"))


def main():
    rng = random.Random(5)
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* bad_words.h - written by tools/make-bad-words-fixture.py. */")
    print("#ifndef BT_TEST_DATA_BAD_WORDS_H\n#define BT_TEST_DATA_BAD_WORDS_H\n")
    print("#include <stddef.h>\n#include <stdint.h>\n")
    print("static const struct {\n    size_t count;\n    uint32_t history[8];")
    print("    const char *settings;")
    print("    uint32_t forbidden; /* a bit for each token */\n}")
    print("word_cases[] = {")
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 32):
        history, words, ends = draw(rng)
        text = json.dumps(dict(eos_token_id=ends, bad_words_ids=words))
        print("{ %d, { %s }, %s, %d }," % (
            len(history), ", ".join(map(str, history)), json.dumps(text),
            forbidden(history, words, ends)))
    print("};\n\n#endif")


main()
