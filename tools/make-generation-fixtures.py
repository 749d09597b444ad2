#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/data/beam_search.h: results of transformers' beam search for a toy model.

    tools/make-generation-fixtures.py | clang-format > tests/data/beam_search.h

The toy model's logits are a hash of the tokens so far, the same as in
tests/test_beam.c, so that only the search is compared. Needs torch and
transformers; nothing else needs them.
"""
import random

import numpy
import torch
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.modeling_outputs import CausalLMOutputWithCrossAttentions

WORD = 0xFFFFFFFF


def logits_of(salt, spread, vocab, ids):
    state = salt
    for i in ids:
        state = ((state ^ (i + 1)) * 2654435761 + 12345) & WORD
    row = []
    for j in range(vocab):
        x = ((state ^ ((j * 40503 + 7) & WORD)) * 2246822519) & WORD
        x ^= x >> 15
        x = (x * 3266489917) & WORD
        x ^= x >> 13
        half = numpy.float32(x >> 8) / numpy.float32(8388608) - numpy.float32(1)
        row.append(half * numpy.float32(spread))
    return row


class Toy(GPT2LMHeadModel):
    """Reads the whole text anew each time, so nothing is cached."""

    def forward(self, input_ids=None, **_):
        rows = [logits_of(self.salt, self.spread, self.config.vocab_size, row)
                for row in input_ids.tolist()]
        logits = torch.tensor(numpy.array(rows, dtype=numpy.float32))[:, None]
        return CausalLMOutputWithCrossAttentions(logits=logits)


def toy_of(case):
    model = Toy(GPT2Config(vocab_size=case["vocab"], n_embd=4, n_head=1,
                           n_layer=1, n_positions=32, bos_token_id=None,
                           eos_token_id=None))
    model.salt, model.spread = case["salt"], case["spread"]
    return model.eval()


def draw(rng):
    vocab = rng.randrange(17, 25)
    return dict(
        vocab=vocab, salt=rng.getrandbits(32), spread=rng.choice([1.0, 4.0]),
        most=rng.randrange(2, 12), beams=rng.randrange(2, 5),
        early=rng.randrange(3), length_penalty=rng.choice([0.0, 0.5, 1.0, 2.0]),
        repetition_penalty=rng.choice([1.0, 1.0, 1.5]),
        no_repeat=rng.choice([0, 0, 1, 2]), min_tokens=rng.choice([0, 0, 3]),
        renormalize=rng.random() < 0.3, last=rng.choice([-1, -1, 0]),
        ends=sorted(rng.sample(range(vocab), rng.choice([1, 1, 2, 3]))))


def run(case):
    given = {k: case[k] for k in ("length_penalty", "repetition_penalty")}
    if case["no_repeat"]:
        given["no_repeat_ngram_size"] = case["no_repeat"]
    if case["min_tokens"]:
        given["min_new_tokens"] = case["min_tokens"]
    if case["last"] >= 0:
        given["forced_eos_token_id"] = case["last"]
    with torch.no_grad():
        out = toy_of(case).generate(
            torch.tensor([[1]]), attention_mask=torch.ones(1, 1),
            do_sample=False, num_beams=case["beams"],
            num_return_sequences=case["beams"], max_length=case["most"] + 1,
            early_stopping=(False, True, "never")[case["early"]],
            eos_token_id=case["ends"], pad_token_id=case["vocab"],
            renormalize_logits=case["renormalize"], use_cache=False,
            return_dict_in_generate=True, output_scores=True, **given)
    texts = []
    for ids, score in zip(out.sequences.tolist(), out.sequences_scores.tolist()):
        new = ids[1:]
        texts.append((score, [i for i in new if i != case["vocab"]]))
    return texts


def emit(case, texts):
    fields = [f"{case['vocab']}, {case['salt']}u, {case['spread']}f",
              f"{case['most']}, {case['beams']}, {case['early']}",
              f"{case['length_penalty']}f, {case['repetition_penalty']}f",
              f"{case['no_repeat']}, {case['min_tokens']}",
              f"{str(case['renormalize']).lower()}, {case['last']}",
              f"{len(case['ends'])}, {{ {', '.join(map(str, case['ends']))} }}",
              str(len(texts))]
    rows = ", ".join(
        f"{{ {score:.9g}f, {len(ids)}, {{ {', '.join(map(str, ids))} }} }}"
        for score, ids in texts)
    print("    { " + ", ".join(fields) + f", {{ {rows} }} }},")


def main():
    rng = random.Random(14)
    print("/* SPDX-License-Identifier: Apache-2.0 */\n"
          "/* beam_search.h - written by tools/make-generation-fixtures.py. */\n"
          "#ifndef BT_TEST_DATA_BEAM_SEARCH_H\n#define BT_TEST_DATA_BEAM_SEARCH_H\n\n"
          "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n\n"
          "typedef struct beam_text {\n    float score;\n    size_t length;\n"
          "    uint32_t ids[12];\n} beam_text;\n\n"
          "static const struct {\n    size_t vocab;\n"
          "    uint32_t salt;\n    float spread;\n"
          "    size_t most, beams;\n    int early;\n"
          "    float length_penalty, repetition_penalty;\n"
          "    size_t no_repeat, min_tokens;\n    bool renormalize;\n"
          "    int last;\n    size_t end_count;\n    uint32_t ends[4];\n"
          "    size_t count;\n    beam_text texts[4];\n} beam_cases[] = {")
    for _ in range(60):
        case = draw(rng)
        emit(case, run(case))
    print("};\n\n#endif")


if __name__ == "__main__":
    main()
