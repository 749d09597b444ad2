#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small tokenizer for the tests of the program.

    python3 tools/make-tokenizer-fixtures.py tests/data/tokenizers

tests/data/tokenizers/bytelevel  a byte-level BPE with a few merges, <s> and
                                 </s> around a text
"""
import json
import sys
from pathlib import Path

MERGES = """h e|l l|he ll|hell o|Ġ w|o r|l d|Ġw or|Ġwor ld|t h|Ġ th|Ġth e|
e r|i n|in g|Ã ©""".replace("\n", "").split("|")


def alphabet():
    """The character for each byte, as GPT-2 wrote them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = iter(range(256, 512))
    return [chr(b if b in plain else next(other)) for b in range(256)]


def special(name, number):
    return {"id": number, "content": name, "single_word": False,
            "lstrip": False, "rstrip": False, "normalized": False,
            "special": True}


def around(*names):
    pieces = []
    for name, kind in names:
        key = "Sequence" if name in "AB" else "SpecialToken"
        pieces.append({key: {"id": name, "type_id": kind}})
    return pieces


pieces = alphabet() + [merge.replace(" ", "") for merge in MERGES]
bos, eos = len(pieces), len(pieces) + 1
bytelevel = {"type": "ByteLevel", "add_prefix_space": False,
             "trim_offsets": False, "use_regex": True}
tokenizer = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [special("<s>", bos), special("</s>", eos)],
    "normalizer": None,
    "pre_tokenizer": bytelevel,
    "post_processor": {
        "type": "TemplateProcessing",
        "single": around(("<s>", 0), ("A", 0), ("</s>", 0)),
        "pair": around(("<s>", 0), ("A", 0), ("</s>", 0), ("B", 1),
                       ("</s>", 1)),
        "special_tokens": {
            name: {"id": name, "ids": [number], "tokens": [name]}
            for name, number in (("<s>", bos), ("</s>", eos))
        },
    },
    "decoder": bytelevel,
    "model": {
        "type": "BPE", "dropout": None, "unk_token": None,
        "continuing_subword_prefix": None, "end_of_word_suffix": None,
        "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
        "vocab": {piece: i for i, piece in enumerate(pieces)},
        "merges": [merge.split(" ") for merge in MERGES],
    },
}
folder = Path(sys.argv[1], "bytelevel")
folder.mkdir(parents=True, exist_ok=True)
text = json.dumps(tokenizer, separators=(",", ":"))
Path(folder, "tokenizer.json").write_text(text + "\n")
