# SPDX-License-Identifier: Apache-2.0
"""Models on a GPU, against those on the CPU. Skipped without a GPU.

BAUTA_TEST_DEVICE chooses another one than "cuda".
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
import unittest

import bauta
from bauta import Corpus, Mask, Model, Tokenizer, Trainer
from support import need, seed
from test_model import BYTES, WORDS, padded, random_sequences

np = need("numpy")
DEVICE = os.environ.get("BAUTA_TEST_DEVICE", "cuda")
if DEVICE != "cpu" and bauta._core.gpu_count() == 0:
    raise unittest.SkipTest("there is no GPU")
DTYPES = ("float32",) if DEVICE == "cpu" else ("float32", "bfloat16")
SIZES = {"n_embd": 128, "n_layer": 2, "n_head": 2, "n_positions": 128}
LLAMA = {
    "model_type": "llama",
    "vocab_size": 300,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}


def gpt2(dtype, device=DEVICE, number=1):
    return Model.preset(
        "gpt2-tiny", BYTES, seed=number, device=device, dtype=dtype, **SIZES
    )


def llama(dtype, device=DEVICE):
    return Model.create(LLAMA, seed=2, device=device, dtype=dtype, tokenizer=BYTES)


def models():
    for dtype in DTYPES:
        yield gpt2(dtype)
        yield llama(dtype)


def off(got, want):
    """The root mean square of the error, relative to that of the numbers."""
    error = np.sqrt(np.square(np.subtract(got, want, dtype=np.float64)).mean())
    return error / (np.sqrt(np.square(want, dtype=np.float64).mean()) + 1e-12)


# Sums in float32 in another order, and numbers rounded to 8 bits.
LIMIT = {"float32": 1e-4, "bfloat16": 3e-2}


def test_a_model_says_where_it_is():
    for dtype in DTYPES:
        model = gpt2(dtype)
        assert model.device.startswith(DEVICE) and model.dtype == dtype
        if DEVICE != "cpu":
            assert f"{dtype} on {model.device}" in repr(model)


def test_a_batch_has_the_bits_of_its_sequences():
    rng = random.Random(seed())
    for model in models():
        sequences = random_sequences(rng, model.vocab_size, 5)
        alone = [model.logits(each) for each in sequences]
        grid, lengths = padded(sequences)
        rows = model.logits(grid, lengths=lengths)
        for one, some, row, length in zip(
            alone, model.logits(sequences), rows, lengths
        ):
            assert np.array_equal(one, some)
            assert np.array_equal(one, row[:length]) and not row[length:].any()
        for one, ids in zip(alone, sequences):
            assert np.isfinite(one).all()
            assert np.array_equal(one, model.logits(ids))


def test_numbers_are_those_of_the_cpu():
    rng = random.Random(seed())
    for make in (gpt2, llama):
        host = make("float32", "cpu")
        ids = random_sequences(rng, host.vocab_size, 4)
        want = host.loss(ids)
        for dtype in DTYPES:
            model = make(dtype)
            limit = LIMIT[dtype]
            for got, expected in zip(model.logits(ids), host.logits(ids)):
                assert off(got, expected) <= limit, (dtype, off(got, expected))
            got, expected = model.hidden_states(ids), host.hidden_states(ids)
            assert off(got[-1][0], expected[-1][0]) <= limit
            assert off(model.embed(ids), host.embed(ids)) <= limit
            assert abs(model.loss(ids) - want) <= limit * want
            gradients = host.gradients()
            for name, array in model.gradients().items():
                assert off(array, gradients[name]) <= 3 * limit, (
                    name,
                    off(array, gradients[name]),
                )
            assert set(model.gradients()) == set(gradients)
            model.zero_grad()
            assert not any(a.any() for a in model.gradients().values())


def test_sampler_and_trainer_are_the_same_bits():
    rng = random.Random(seed())
    for model in models():
        trainer = Trainer(model, warmup_steps=0, learning_rate=1e-3, max_steps=100)
        for turn in range(4):
            prompts = random_sequences(rng, 256, 6)
            samples = model.generate(
                prompts, do_sample=True, max_new_tokens=20, seed=turn, top_k=0
            )
            texts = [p + s.tokens for p, s in zip(prompts, samples)]
            for prompt, sample, line in zip(prompts, samples, model.logprobs(texts)):
                assert line[len(prompt) - 1 : -1].tolist() == sample.logprobs
            one = model.generate(
                prompts[2], do_sample=True, max_new_tokens=20, seed=turn, top_k=0
            )
            assert one.tokens == samples[2].tokens
            step = trainer.step_batch({"input_ids": texts})
            assert step.updated


def test_training_lowers_the_loss_as_on_the_cpu():
    text = BYTES.encode("the cat sat on the mat. " * 8)
    losses = {}
    for dtype in ("host", *DTYPES):
        model = gpt2("float32", "cpu") if dtype == "host" else gpt2(dtype)
        trainer = Trainer(
            model,
            Corpus([text] * 4),
            learning_rate=1e-3,
            warmup_steps=2,
            max_steps=12,
            batch_tokens=256,
        )
        losses[dtype] = [trainer.step().loss for _ in range(12)]
        assert losses[dtype][-1] < 0.8 * losses[dtype][0]
        assert np.isfinite(trainer.evaluate(Corpus([text])))
        assert np.isfinite(model.perplexity(Corpus([text]))["perplexity"])
    for dtype in DTYPES:
        for got, want in zip(losses[dtype], losses["host"]):
            assert abs(got - want) <= 3 * LIMIT[dtype] * want, (dtype, got, want)


def test_a_run_continues_to_the_bit():
    text = BYTES.encode("the cat sat on the mat. " * 8)
    options = {"learning_rate": 1e-3, "warmup_steps": 2, "batch_tokens": 256}
    for dtype in DTYPES:
        with tempfile.TemporaryDirectory() as folder:
            runs = []
            for name, steps in (("whole", (8,)), ("parts", (4, 8))):
                for limit in steps:
                    model = gpt2(dtype)
                    trainer = Trainer(model, Corpus([text] * 4), max_steps=8, **options)
                    trainer.train(f"{folder}/{name}", max_steps=limit, save_steps=4)
                runs.append(model.state_dict())
            for name, array in runs[0].items():
                assert np.array_equal(array, runs[1][name]), name


def test_weights_are_read_and_written():
    host = gpt2("float32", "cpu", number=3)
    weights = host.state_dict()
    for dtype in DTYPES:
        model = gpt2(dtype)
        model.load_state_dict(weights)
        for name, array in model.state_dict().items():
            assert np.array_equal(array, weights[name]), name
        fresh = gpt2(dtype, number=3)
        assert np.array_equal(model.logits("abc"), fresh.logits("abc"))
        with tempfile.TemporaryDirectory() as folder:
            model.save(folder + "/model")
            again = Model.load(folder + "/model", device=DEVICE, dtype=dtype)
            assert not again.trainable and again.device == model.device
            assert np.array_equal(model.logits("abc"), again.logits("abc"))
            step = 0 if dtype == "float32" else 2**-8  # of rounding
            for name, array in again.state_dict().items():
                assert np.allclose(array, weights[name], rtol=step, atol=0), name
            trainable = Model.load(
                folder + "/model", device=DEVICE, dtype=dtype, trainable=True
            )
            assert np.array_equal(trainable.logits("abc"), again.logits("abc"))
            trainable.loss("abc")
            assert trainable.gradients()["transformer.wte.weight"].any()


def test_every_kind_of_model_runs():
    tokenizer = Tokenizer.train(WORDS * 3, kind="wordpiece", vocab_size=60)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    two = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    for dtype in DTYPES:
        place = {"device": DEVICE, "dtype": dtype}
        model = Model.preset(
            "bert-tiny", tokenizer, intermediate_size=64, **sizes, **place
        )
        (found,) = model.fill("the [MASK] sat", top_k=3)
        assert len(found) == 3 and found[0].probability >= found[1].probability
        assert model.embed(WORDS, normalize=True).shape == (3, 64)
        pieces = Tokenizer.train(WORDS * 3, kind="unigram", vocab_size=60)
        model = Model.preset("transformer-tiny", pieces, **two, **heads, **place)
        texts = model.translate(["the cat", "a dog"], max_new_tokens=4)
        assert texts[0] == model.translate("the cat", max_new_tokens=4)
        beams = model.generate("the cat", num_beams=3, max_new_tokens=4)
        assert np.isfinite(beams.score)


def test_inspection():
    for dtype in DTYPES:
        model = gpt2(dtype)
        weights = model.attention_weights("some text").weights
        assert np.allclose(weights.sum(-1), 1, atol=1e-2)
        assert (weights[:, :, 0, 1:] == 0).all() and (weights[:, :, 4, :5] > 0).all()
        audit = model.audit(checks=["reach", "incremental"])
        assert audit.passed, str(audit)
        model.check_finite("some text")
        hidden = model.logits(list(range(9)), mask=Mask.window(9, window=3))
        assert np.array_equal(hidden[:3], model.logits(list(range(9)))[:3])


def test_streams_and_threads_take_turns():
    model = gpt2(DTYPES[-1])
    options = {"max_new_tokens": 24, "eos_token_id": []}
    prompts = [[n, n + 1, n + 2] for n in range(6)]
    want = [model.generate(prompt, **options).tokens for prompt in prompts]
    streams = [model.generate(p, stream=True, **options) for p in prompts[:2]]
    mixed = [[token.id for token in both if token.id is not None] for both in zip(*streams)]
    assert [list(ids) for ids in zip(*mixed)] == want[:2]
    got = [None] * len(prompts)

    def work(number):
        got[number] = model.generate(prompts[number], **options).tokens

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == want


def test_models_are_freed():
    """As many models as would not fit at once, and what they leave."""
    for _ in range(30):
        model = gpt2(DTYPES[-1])
        stream = model.generate([1, 2], max_new_tokens=4, stream=True)
        next(stream)
        Trainer(model, max_steps=1, warmup_steps=0)
