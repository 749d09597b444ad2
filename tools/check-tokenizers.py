#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare bauta's tokenizers with Hugging Face's and with SentencePiece.

    tools/check-tokenizers.py [--lines 100000] [--library build/libbauta.so]
                              [--data ../shared/data] [--only NAME] [--seed 1]

Needs tokenizers, sentencepiece and transformers from PyPI. Each tokenizer gets
the lines of the corpora in the data folder, and random text: bytes, characters
of all planes, and special tokens among them. Ids must be equal, and decoding
them must give the same text. Prints a line a tokenizer; the exit status says
whether all were equal.
"""
import argparse
import ctypes
import glob
import gzip
import io
import json
import os
import random
import sys
import tempfile
import unicodedata
import zipfile

GPT2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
        r"|\s+(?!\S)|\s+")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("message", ctypes.c_char * 256)]


class Tokens(ctypes.Structure):
    _fields_ = [("count", ctypes.c_size_t),
                ("ids", ctypes.POINTER(ctypes.c_uint32)),
                ("types", ctypes.POINTER(ctypes.c_uint32)),
                ("starts", ctypes.POINTER(ctypes.c_size_t)),
                ("ends", ctypes.POINTER(ctypes.c_size_t))]


class DecodeOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("specials", ctypes.c_bool),
                ("source", ctypes.c_bool)]


class Bauta:
    """A tokenizer of the library, loaded from a folder or a file."""

    def __init__(self, library, path):
        self.library = library
        self.handle = ctypes.c_void_p()
        error = Error()
        if library.bauta_tokenizer_load(ctypes.byref(self.handle),
                                        path.encode(), ctypes.byref(error)):
            raise SystemExit(f"{path}: {error.message.decode()}")

    def encode(self, text):
        tokens, error = Tokens(), Error()
        raw = text if isinstance(text, bytes) else text.encode()
        if self.library.bauta_tokenizer_encode(
                self.handle, raw, ctypes.c_size_t(len(raw)), None,
                ctypes.byref(tokens), ctypes.byref(error)):
            return error.message.decode()
        ids = tokens.ids[:tokens.count]
        self.library.bauta_tokens_release(ctypes.byref(tokens))
        return ids

    def decode(self, ids, specials=True):
        text, size = ctypes.c_void_p(), ctypes.c_size_t()
        options = DecodeOptions(ctypes.sizeof(DecodeOptions), specials, False)
        error = Error()
        array = (ctypes.c_uint32 * len(ids))(*ids)
        if self.library.bauta_tokenizer_decode(
                self.handle, array, ctypes.c_size_t(len(ids)),
                ctypes.byref(options), ctypes.byref(text), ctypes.byref(size),
                ctypes.byref(error)):
            return error.message.decode()
        raw = ctypes.string_at(text, size.value)
        self.library.bauta_text_free(text)
        return raw.decode()


def corpus_lines(data, count, rng):
    """Lines of everything that is there, whole and joined."""
    lines = []
    for path in (glob.glob(f"{data}/wikitext-2-raw/*.raw")
                 + [f"{data}/tinyshakespeare/input.txt",
                    f"{data}/sentencepiece-test/botchan.txt",
                    f"{data}/tinystories-sample/tinystories.txt"]):
        if os.path.exists(path):
            lines += open(path, encoding="utf-8").read().split("\n")
    for path in (glob.glob(f"{data}/multi30k/*.gz")
                 + glob.glob(f"{data}/debian-en-de/*.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            lines += file.read().split("\n")
    for path in glob.glob(f"{data}/tatoeba-en-de/*.zip"):
        with zipfile.ZipFile(path) as archive:
            with archive.open("deu.txt") as file:
                lines += io.TextIOWrapper(file, "utf-8").read().split("\n")
    for path in glob.glob(f"{data}/mt-testsets/**/*", recursive=True):
        if os.path.isfile(path):
            lines += open(path, encoding="utf-8", errors="replace"
                          ).read().split("\n")
    rng.shuffle(lines)
    lines = lines[:count]
    return [a + "\n" + b if i % 10 == 0 else a
            for i, (a, b) in enumerate(zip(lines, lines[1:] + [""]))]


def old_characters():
    """Characters that every table of the last ten years knows."""
    blocks = [(0x20, 0x7F), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x530),
              (0x590, 0x600), (0x600, 0x6FF), (0x900, 0x980), (0xE01, 0xE3A),
              (0x1100, 0x1200), (0x1E00, 0x2000), (0x2000, 0x2070),
              (0x20A0, 0x20BE), (0x2100, 0x2180), (0x2190, 0x2300),
              (0x2460, 0x2600), (0x2600, 0x2700), (0x3000, 0x3100),
              (0x4E00, 0x4F00), (0xAC00, 0xAD00), (0xF900, 0xFA00),
              (0xFB00, 0xFB07), (0xFE20, 0xFE30), (0xFF00, 0xFFEF),
              (0x1D400, 0x1D500), (0x1F300, 0x1F600)]
    return [chr(c) for lo, hi in blocks for c in range(lo, hi)
            if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]


def random_lines(count, rng, specials):
    alphabet = old_characters()
    words = ["the", " ", "  ", "\n", "\r\n", "\t", "'s", "don't", "I'LL",
             "12345", "a", "\u200d", "\u00a0", "\u3000", "\u2581", "...",
             "\u0085", "e\u0301", "\U0001f469\u200d\U0001f4bb", "ﬁ", "½"]
    lines = []
    for i in range(count):
        kind = i % 4
        if kind == 0:
            raw = bytes(rng.randrange(256) for _ in range(rng.randrange(60)))
            text = raw.decode("utf-8", "replace")
            text = "".join(c for c in text
                           if unicodedata.category(c) != "Cn"
                           and ord(c) < 0x3000)
        elif kind == 1:
            text = "".join(rng.choice(alphabet)
                           for _ in range(rng.randrange(40)))
        elif kind == 2:
            text = "".join(rng.choice(words + specials)
                           for _ in range(rng.randrange(20)))
        else:
            text = "".join(rng.choice([rng.choice(words), rng.choice(alphabet),
                                       chr(rng.randrange(32, 127))])
                           for _ in range(rng.randrange(40)))
        lines.append(text)
    return lines


def hugging_face(data, folder):
    """Tokenizers as real files have them, by name: a tokenizers.Tokenizer."""
    from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,
                            normalizers, pre_tokenizers, processors, trainers)

    def gpt2():
        return Tokenizer.from_file(f"{data}/gpt2-bpe/tokenizer.json")

    def cut(pattern):
        return pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False,
                                     use_regex=False)])

    made = {"gpt2": gpt2(),
            "bert-uncased": Tokenizer.from_file(
                f"{data}/bert-uncased/tokenizer.json"),
            "stories260K": Tokenizer.from_file(
                f"{data}/stories260K-hf/tokenizer.json")}
    for name in ("gpt2-shakespeare", "bert-shakespeare"):
        made[name] = Tokenizer.from_file(f"{data}/models/{name}/tokenizer.json")

    t = gpt2()
    whole = json.loads(t.to_str())
    whole["model"]["ignore_merges"] = True
    t = Tokenizer.from_str(json.dumps(whole))
    t.pre_tokenizer = cut(LLAMA3)
    t.add_special_tokens(["<|begin_of_text|>", "<|eot_id|>"])
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(
            "<|begin_of_text|> $A", "<|begin_of_text|> $A $B",
            [("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))])])
    made["llama3-like"] = t

    t = gpt2()
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = cut(QWEN2)
    t.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    made["qwen2-like"] = t

    t = gpt2()
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.add_special_tokens(["<s>", "</s>", AddedToken("<mask>", lstrip=True)])
    t.post_processor = processors.RobertaProcessing(
        ("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")))
    made["roberta-like"] = t

    t = gpt2()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex("[\r\n]"), "isolated"),
        pre_tokenizers.Split(Regex(r"\s?\p{L}+"), "isolated"),
        pre_tokenizers.Split(Regex(r"\s?\p{P}+"), "isolated"),
        pre_tokenizers.Split(Regex("[\u4e00-\u9fa5\u3040-\u30ff]+"),
                             "isolated"),
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made["deepseek-like"] = t

    t = Tokenizer.from_file(f"{data}/bert-uncased/tokenizer.json")
    t.normalizer = normalizers.BertNormalizer(lowercase=False)
    t.add_tokens([AddedToken("new", single_word=True), "[extra]"])
    made["bert-cased-like"] = t

    sample = corpus_lines(data, 5000, random.Random(3))
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>",
                             fuse_unk=True))
    t.normalizer = normalizers.Sequence([
        normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "),
        normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
    t.decoder = decoders.BPEDecoder()
    t.train_from_iterator(sample, trainers.BpeTrainer(
        vocab_size=2000, special_tokens=["<unk>"], end_of_word_suffix="</w>"))
    made["clip-like"] = t

    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.NFKC()
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(sample, trainers.UnigramTrainer(
        vocab_size=2000, special_tokens=["<pad>", "</s>", "<unk>"],
        unk_token="<unk>"))
    t.post_processor = processors.TemplateProcessing(
        "$A </s>", "$A </s> $B </s>", [("</s>", 1)])
    made["unigram"] = t

    t = Tokenizer(models.WordLevel(unk_token="?"))
    t.normalizer = normalizers.Sequence([normalizers.NFD(),
                                         normalizers.StripAccents(),
                                         normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.train_from_iterator(sample, trainers.WordLevelTrainer(
        vocab_size=3000, special_tokens=["?"]))
    made["words"] = t
    made.update(converted(data))
    for name, tokenizer in made.items():
        os.makedirs(f"{folder}/{name}")
        tokenizer.save(f"{folder}/{name}/tokenizer.json")
    return made


def converted(data):
    """What transformers makes of SentencePiece models."""
    from tokenizers import Tokenizer
    from transformers import AlbertTokenizerFast, LlamaTokenizerFast
    from transformers import T5TokenizerFast
    made = {}
    for name, kind, model, file in (
            ("llama2-new", LlamaTokenizerFast,
             "llama2-tokenizer/tokenizer.model", "tokenizer.model"),
            ("t5-like", T5TokenizerFast, "sentencepiece-test/test_model.model",
             "spiece.model"),
            ("albert", AlbertTokenizerFast,
             "sentencepiece-test/hf_spiece.model", "spiece.model")):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(os.path.abspath(f"{data}/{model}"), f"{folder}/{file}")
            made[name] = kind.from_pretrained(folder).backend_tokenizer
        assert made[name].get_vocab_size() > 900, "not converted"
    # As the files of Llama 2 itself are.
    llama = json.loads(made["llama2-new"].to_str())
    llama["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "\u2581"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}
    llama["pre_tokenizer"] = None
    llama["model"]["unk_token"] = "<unk>"
    llama["added_tokens"] = [
        {"id": i, "content": c, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False, "special": True}
        for i, c in enumerate(["<unk>", "<s>", "</s>"])]
    made["llama2"] = Tokenizer.from_str(json.dumps(llama))
    return made


def compare(name, bauta, encode, decode, lines):
    wrong = undone = tokens = 0
    for line in lines:
        want, got = encode(line), bauta.encode(line)
        tokens += len(want)
        if want != got:
            wrong += 1
            if wrong <= 3:
                print(f"  {name}: {line!r}\n    want {want}\n    got  {got}")
            continue
        text = decode(want)
        if text is not None and text != bauta.decode(want):
            undone += 1
            if undone <= 3:
                print(f"  {name}: decode {want}\n    want {text!r}\n"
                      f"    got  {bauta.decode(want)!r}")
    print(f"{name:28} {len(lines):7} lines {tokens:9} tokens "
          f"{wrong:5} wrong {undone:5} decoded otherwise", flush=True)
    return wrong + undone


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lines", type=int, default=100000)
    parser.add_argument("--library", default=f"{here}/../build/libbauta.so")
    parser.add_argument("--data", default=f"{here}/../../shared/data")
    parser.add_argument("--only")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    library = ctypes.CDLL(args.library)
    rng = random.Random(args.seed)
    failures = 0
    plain = corpus_lines(args.data, args.lines * 3 // 4, rng)
    with tempfile.TemporaryDirectory() as folder:
        for name, peer in hugging_face(args.data, folder).items():
            if args.only and args.only != name:
                continue
            specials = [t.content for t
                        in peer.get_added_tokens_decoder().values()]
            lines = plain + random_lines(args.lines - len(plain), rng,
                                         specials)
            failures += compare(
                name, Bauta(library, f"{folder}/{name}"),
                lambda line: peer.encode(line).ids,
                lambda ids: peer.decode(ids, skip_special_tokens=False), lines)
    import sentencepiece
    for model in ["llama2-tokenizer/tokenizer.model",
                  "marian-spm/fr-en/source.spm", "marian-spm/fr-en/target.spm",
                  "models/marian-m30k/source.spm"] + [
                      os.path.relpath(p, args.data) for p in sorted(
                          glob.glob(f"{args.data}/sentencepiece-test/*.model"))]:
        if args.only and args.only != model:
            continue
        peer = sentencepiece.SentencePieceProcessor(
            model_file=f"{args.data}/{model}")
        lines = plain + random_lines(args.lines - len(plain), rng, ["<s>"])
        lines = [line.replace("\0", "") for line in lines]
        failures += compare(model, Bauta(library, f"{args.data}/{model}"),
                            peer.encode, peer.decode, lines)
    if not args.only or args.only == "marian":
        from transformers import MarianTokenizer
        for folder in ("marian-spm/fr-en", "models/marian-m30k"):
            peer = MarianTokenizer.from_pretrained(f"{args.data}/{folder}")
            lines = plain[:args.lines // 10] + random_lines(
                args.lines // 40, rng, ["</s>", "<pad>", ">>de<<"])
            failures += compare(
                folder, Bauta(library, f"{args.data}/{folder}"),
                lambda line: peer(line)["input_ids"],
                lambda ids: None, lines)
    print("all equal" if failures == 0 else f"{failures} differences")
    sys.exit(failures != 0)


if __name__ == "__main__":
    main()
