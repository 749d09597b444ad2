#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small SentencePiece models, and the results of the library for some texts.

    python3 -m venv venv && venv/bin/pip install sentencepiece==0.2.2 transformers
    venv/bin/python tools/make-sentencepiece-fixtures.py tests/data fuzz/corpus

The models are written here, byte by byte, from pieces that are our own; only
expect.json asks the libraries.

tests/data/sentencepiece/unigram.model  with a map of characters
tests/data/sentencepiece/bpe.model      user-defined and unused pieces, equal
                                        scores, characters that are no pieces
tests/data/sentencepiece/bytes.model    BPE with byte fallback, spaces kept
tests/data/sentencepiece/suffix.model   spaces end words, unknown surface "?"
tests/data/sentencepiece/words.model    whole words
tests/data/sentencepiece/chars.model    characters
tests/data/sentencepiece/vocab.json     Marian's ids for unigram and bpe
tests/data/sentencepiece/expect.json    texts (hexadecimal), ids, decoded texts
fuzz/corpus/sentencepiece/              the same models and broken ones
"""
import json
import shutil
import struct
import sys
import tempfile
from pathlib import Path

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE, WORD, CHAR = range(1, 5)


# ---- protobuf ---------------------------------------------------------------

def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def number(field, value):
    return varint(field << 3) + varint(value)


def data(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def piece(text, score=0.0, kind=NORMAL):
    body = data(1, text) + varint(2 << 3 | 5) + struct.pack("<f", score)
    return data(1, body + (number(3, kind) if kind != NORMAL else b""))


def model(kind, pieces, trainer=b"", normalizer=b"", charsmap=b""):
    if charsmap:
        normalizer = data(2, charsmap) + normalizer
    return (b"".join(piece(*p) for p in pieces) + data(2, number(3, kind) + trainer)
            + data(3, data(1, "ours") + normalizer))


# ---- the map of characters --------------------------------------------------

RULES = {"ﬁ": "fi", "\u3000": " ", "\t": " ", "\n": " ", "\r": " ", "a\u030a": "å",
         "\u030a": "", "\u2126": "Ω", "½": " 1⁄2", "\ufffd": " ", "\u200b": "", "x\u0323": "X",
         "x\u0323\u0301": "XX", "ａ": "a", "A": "a", "T": "t"}


def double_array(keys):
    """A double array of darts-clone's layout: {bytes: value} to units."""
    units, used = [0] * 256, [False] * 256
    used[0] = True
    offsets = set()  # no two nodes share one, or each would have the other's children

    def grow(size):
        while len(units) < size:
            units.extend([0] * 256)
            used.extend([False] * 256)

    def place(node, prefix):
        labels = sorted({k[len(prefix)] for k in keys
                         if k.startswith(prefix) and len(k) > len(prefix)})
        ends = prefix in keys
        slots = labels + ([0] if ends else [])
        offset = 1
        while True:
            grow((offset | 255) + 1)
            if offset not in offsets and not any(used[offset ^ s] for s in slots):
                break
            offset += 1
        offsets.add(offset)
        distance = offset ^ node
        assert distance < 1 << 21
        units[node] |= distance << 10 | ends << 8
        for s in slots:
            used[offset ^ s] = True
        if ends:
            units[offset] = keys[prefix] | 1 << 31
        for label in labels:
            units[offset ^ label] = label
        for label in labels:
            place(offset ^ label, prefix + bytes([label]))

    place(0, b"")
    # An empty unit must not look like somebody's child; a value never does.
    for i, full in enumerate(used):
        units[i] |= 0 if full else 1 << 31
    return units


def charsmap(rules):
    forms, keys = bytearray(), {}
    for key, form in rules.items():
        keys[key.encode()] = len(forms)
        forms += form.encode() + b"\0"
    trie = b"".join(struct.pack("<I", u) for u in double_array(keys))
    return struct.pack("<I", len(trie)) + trie + bytes(forms)


# ---- the models -------------------------------------------------------------

SPECIALS = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
WORDS = "▁the ▁cat ▁sat ▁on ▁mat ▁a th at an he in ▁t ▁fi ... .. åå XX Ω 1 2 .".split()
LETTERS = list("▁abcdefghijklmnopqrstuvwyzåX,")


def scored(texts, start=-2.0, step=-0.25):
    return [(t, start + step * i) for i, t in enumerate(texts)]


def unigram():
    return model(UNIGRAM, SPECIALS + scored(WORDS + LETTERS), charsmap=charsmap(RULES))


def bpe():
    merged = [(t, -float(i // 2)) for i, t in enumerate(
        "th the at ▁t ▁th ▁the cat ▁cat sat in on an 日本 日本語 lo low er lower ▁low".split())]
    pieces = SPECIALS + merged + [
        ("[MASK]", 0.0, USER), ("[M", 0.0, USER), ("§", 0.0, USER), ("the§", 0.0, USER),
        ("lowest", -1.5, UNUSED), ("est", -1.0, UNUSED), ("es", -1.0), ("st", -1.25),
    ] + scored([c for c in LETTERS if c not in "kq,"] + ["語"], -50.0)
    return model(BPE, pieces, charsmap=charsmap(RULES))


def bytes_model():
    pieces = SPECIALS + [(f"<0x{b:02X}>", 0.0, BYTE) for b in range(256)]
    pieces += [(t, -float(i)) for i, t in enumerate("▁▁ ▁▁▁▁ he ll llo hello ▁w wor ld éé".split())]
    pieces += scored(list("▁helowrd"), -50.0)
    return model(BPE, pieces, number(35, 1), number(3, 0) + number(4, 0))


def suffix():
    pieces = SPECIALS + scored("the▁ cat▁ a▁ at▁ ▁ th e c a t s".split()) + [("<pad>", 0.0, CONTROL)]
    return model(UNIGRAM, pieces, number(24, 1) + data(44, "?"))


def words():
    return model(WORD, SPECIALS + scored("▁the ▁cat ▁sat ▁".split()))


def chars():
    return model(CHAR, SPECIALS + [("ab", 0.0, USER)] + scored(LETTERS))


MODELS = {"unigram": unigram, "bpe": bpe, "bytes": bytes_model, "suffix": suffix,
          "words": words, "chars": chars}

TEXTS = [t.encode() for t in (
    "", " ", "  ", "the cat sat on the mat.", "  the   cat  ", "The cAt", "thethe the",
    "\tthe\ncat\r\n", "ﬁn ½ \u2126 ａ a\u030a x\u0323 x\u0323\u0301", "\u030a\u030aa\u030a", "▁the▁ ▁",
    "\u3000the\u3000\u3000cat\u3000", "a\ufffdb", "\u200b", "a \u200b b", "........", "...........",
    "lowest lower", "lowest lowestlowest est", "low est", "日本語 日本 語 日", "kk qk, the",
    "[MASK][M the§ thethe§ §", "abab abb", "<s>the</s><unk>", "hello world  hello   ",
    "hellohello ééé 日 \x00 \x7f", "the\u0301", "🎭🎭a🎭", "a\x00b", "<0x41>", "åå Ωx")]
TEXTS += [b"\xff", b"the\xffcat", b"\xc3", b"a\xe6\x97", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b" \x80 \x80 ",
          b"\xc3\xa9\xc3\xa9\xa9", b"x\xcc\xa3\xcc"]

CODES = [t.encode() for t in (
    "", "the cat", ">>de<< the cat", ">>de<<the", ">>xx<< the", "the >>de<< cat", ">>de", ">><<",
    "the</s>cat", "the </s> cat", "<unk><pad>the", "the</s>>>de<< cat", " >>de<< the", "日本 kk", "lower cat")]


def marian(folder):
    """What transformers makes of texts with the two models."""
    from transformers import MarianTokenizer
    tokenizer = MarianTokenizer(*(str(folder / n) for n in ("source.spm", "target.spm", "vocab.json")))
    rows = []
    for text in CODES:
        rows.append({"text": text.hex(), "source": tokenizer(text.decode())["input_ids"],
                     "target": tokenizer(text_target=text.decode())["input_ids"]})
    return rows


def expect(folder):
    import sentencepiece
    out = {}
    for name in MODELS:
        library = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.model"))
        rows = []
        for text in TEXTS:
            ids = library.encode(text)
            decoded = library.decode(ids)
            decoded = decoded if isinstance(decoded, bytes) else decoded.encode()
            rows.append({"text": text.hex(), "ids": ids, "decoded": decoded.hex()})
        out[name] = rows
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(folder / "unigram.model", Path(scratch) / "source.spm")
        shutil.copy(folder / "bpe.model", Path(scratch) / "target.spm")
        shutil.copy(folder / "vocab.json", scratch)
        out["marian"] = marian(Path(scratch))
    return out


def lines(rows):
    return "[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]"


def vocab():
    """Ids against the order of the pieces, some of which are missing."""
    pieces = ["</s>", "<unk>", ">>de<<", "日本", "kk"] + WORDS[::-1] + LETTERS[3:] + ["low", "er", "lower"]
    return {p: i for i, p in enumerate(dict.fromkeys(pieces + ["<pad>"]))}


def broken():
    good = words()
    yield "empty", b""
    yield "truncated", good[:-3]
    yield "length", data(1, piece("a"))[:1] + b"\xff\xff\xff\xff\x0f" + good
    yield "overlong", b"\x80" * 12
    yield "groups", b"\x0b\x0c" + good
    yield "two-unknowns", good + piece("<u>", 0.0, UNKNOWN)
    yield "twice", good + piece("▁the")
    yield "no-bytes", good + data(2, number(35, 1))
    yield "infinite", good + piece("z", float("inf"))
    yield "type", good + piece("z", 0.0, 9)
    yield "surface", good + data(2, data(44, b"\x88"))
    yield "circle", model(UNIGRAM, SPECIALS + scored("ab"),
                          charsmap=struct.pack("<4I", 12, 1 << 8, ord("a") | 1 << 8, 1 << 31) + b"aa")
    yield "unknown-fields", number(99, 5) + varint(98 << 3 | 1) + b"12345678" + data(97, "?") + good


def main():
    folder = Path(sys.argv[1]) / "sentencepiece"
    corpus = Path(sys.argv[2]) / "sentencepiece"
    folder.mkdir(exist_ok=True)
    corpus.mkdir(exist_ok=True)
    for name, make in MODELS.items():
        (folder / f"{name}.model").write_bytes(make())
        (corpus / f"{name}.model").write_bytes(make())
    for name, content in broken():
        (corpus / f"{name}.model").write_bytes(content)
    (folder / "vocab.json").write_text(json.dumps(vocab(), ensure_ascii=False, indent=0) + "\n")
    rows = expect(folder)
    (folder / "expect.json").write_text(
        "{" + ",\n".join(f'"{k}": {lines(v)}' for k, v in rows.items()) + "}\n")


main()
