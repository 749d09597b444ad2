# SPDX-License-Identifier: Apache-2.0
"""Models over NumPy arrays."""

from __future__ import annotations

import gc
import html
import pathlib
import random
import tempfile
import threading

import bauta
from bauta import Mask, Model, Tokenizer, Trainer
from support import all_raise, need, raises, seed

np = need("numpy")
tree = pathlib.Path(__file__).resolve().parents[2]

BYTES = Tokenizer.bytes()
TINY = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
WORDS = ["the cat sat on the mat", "a dog ran to the cat", "the dog sat"]


def decoder(number=1):
    return Model.preset("gpt2-tiny", BYTES, seed=number, **TINY)


def encoder():
    tokenizer = Tokenizer.train(WORDS * 3, kind="wordpiece", vocab_size=60)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    return Model.preset("bert-tiny", tokenizer, intermediate_size=32, **sizes)


def translator():
    tokenizer = Tokenizer.train(WORDS * 3, kind="unigram", vocab_size=60)
    sizes = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    return Model.preset("transformer-tiny", tokenizer, **sizes, **heads)


def random_sequences(rng, vocabulary, count):
    return [
        [rng.randrange(vocabulary) for _ in range(rng.randint(1, 12))]
        for _ in range(count)
    ]


def padded(sequences):
    grid = np.full((len(sequences), max(map(len, sequences))), 7, np.int64)
    for row, each in zip(grid, sequences):
        row[: len(each)] = each
    return grid, [len(each) for each in sequences]


def test_forms_of_a_batch_have_the_same_bits():
    rng = random.Random(seed())
    for model in (decoder(), encoder()):
        sequences = random_sequences(rng, model.vocab_size, 4)
        alone = [model.logits(each) for each in sequences]
        packed = model.logits(sequences)
        grid, lengths = padded(sequences)
        grid_logits = model.logits(grid, lengths=lengths)
        assert grid_logits.shape == (*grid.shape, model.vocab_size)
        for one, some, row, length in zip(alone, packed, grid_logits, lengths):
            assert one.shape == (length, model.vocab_size)
            assert np.array_equal(one, some)
            assert np.array_equal(one, row[:length]) and not row[length:].any()
        assert np.array_equal(
            model.logits(np.array(sequences[0], np.int32)), alone[0]
        )


def test_encoder_decoders():
    model = translator()
    sources, targets = [[5, 6, 7], [8, 9]], [[2, 3], [4, 5, 6]]
    packed = model.logits(sources, targets)
    for source, target, some in zip(sources, targets, packed):
        assert np.array_equal(model.logits(source, target), some)
    states = model.hidden_states(sources, targets)
    assert len(states) == model.decoder_layers + 1
    assert states[0][1].shape == (3, model.hidden_size)
    mask = Mask.none(5, 5)
    assert not np.array_equal(model.logits(sources, targets, cross_mask=mask)[0], packed[0])
    texts = model.translate(["the cat", "a dog"], max_new_tokens=4)
    assert len(texts) == 2 and all(isinstance(text, str) for text in texts)
    assert model.translate("the cat", max_new_tokens=4) == texts[0]
    source = model.tokenizer.encode("the cat")
    result = model.generate(source, max_new_tokens=4)
    logprobs = model.logprobs(
        source,
        [model.generation_config["decoder_start_token_id"], *result.tokens],
    )
    assert logprobs[:-1].tolist() == result.logprobs
    assert model.audit(checks=["reach", "tokens", "incremental"]).passed
    weights = model.attention_weights([5, 6, 7], [2, 3], attention="cross")
    assert weights.weights.shape == (2, 2, 2, 3)
    assert np.allclose(weights.weights.sum(-1), 1)


def test_masks_and_prefixes_of_a_batch():
    model = decoder()
    ids = list(range(10, 18))
    hidden = model.logits(ids, mask=Mask.window(8, window=3))
    assert np.array_equal(hidden[:3], model.logits(ids)[:3])
    assert not np.array_equal(hidden[4], model.logits(ids)[4])
    prefix = model.logits(ids, prefix_lengths=[4])
    assert not np.array_equal(prefix[0], model.logits(ids)[0])
    changed = model.logits(ids[:-1] + [99], prefix_lengths=[4])
    assert np.array_equal(prefix[:7], changed[:7])


def test_sampler_and_trainer_are_the_same_bits():
    model = decoder()
    rng = random.Random(seed())
    trainer = Trainer(model, warmup_steps=0, learning_rate=1e-2, max_steps=100)
    for round in range(5):
        prompts = random_sequences(rng, 256, 3)
        samples = model.generate(
            prompts, do_sample=True, max_new_tokens=8, seed=round, top_k=0
        )
        texts = [p + s.tokens for p, s in zip(prompts, samples)]
        for prompt, sample, line in zip(prompts, samples, model.logprobs(texts)):
            assert line[len(prompt) - 1 : -1].tolist() == sample.logprobs
        trainer.step_batch({"input_ids": texts})


def test_gradients_are_slopes_of_the_loss():
    rng = np.random.default_rng(seed())
    model = decoder()
    texts = ["some text", "more"]
    weights = [rng.normal(size=len(text)).astype(np.float32) for text in texts]
    model.zero_grad()
    loss = model.loss(texts, weights=weights)
    gradients = {name: g.copy() for name, g in model.gradients().items()}
    tensors = model.state_dict()
    for name in rng.choice(sorted(gradients), 6, replace=False):
        direction = rng.normal(size=tensors[name].shape).astype(np.float32)
        step = np.float32(1e-2 / np.linalg.norm(direction)) * direction
        kept = tensors[name].copy()
        ends = []
        for sign in (1, -1):
            tensors[name][...] = kept + sign * step
            ends.append(model.loss(texts, weights=weights))
        tensors[name][...] = kept
        slope = float((gradients[name].astype(float) * step).sum())
        # The third derivative and float32 losses: 1e-2 of a step of 1e-2.
        assert abs((ends[0] - ends[1]) / 2 - slope) < 1e-4 + 1e-2 * abs(slope), name
    logprobs = model.logprobs(texts)
    mean = sum(float(-(w * p)[:-1].sum()) for w, p in zip(weights, logprobs))
    assert abs(mean / (len(texts[0]) + len(texts[1]) - 2) - loss) < 1e-5


def test_gradients_accumulate_and_scale():
    model = decoder()
    model.zero_grad()
    first = model.loss("some text", scale=0.5)
    half = model.gradients()["transformer.wte.weight"].copy()
    model.loss("some text", scale=0.5)
    whole = model.gradients()["transformer.wte.weight"]
    assert np.allclose(whole, 2 * half) and first == model.loss("some text") / 2
    model.zero_grad()
    assert not whole.any()


def test_ignored_targets_are_not_counted():
    model = decoder()
    ids = [1, 2, 3, 4]
    everything = model.logprobs(ids)
    targets = [2, -100, 4, -1]
    some = model.logprobs(ids, targets=targets)
    assert some.tolist() == [everything[0], 0, everything[2], 0]
    assert abs(model.loss(ids, targets=targets) + (some[0] + some[2]) / 2) < 1e-6
    grid = np.array([[1, 2, 3], [4, 5, 0]])
    rows = model.logprobs(grid, lengths=[3, 2])
    assert np.array_equal(rows[1], [*model.logprobs([4, 5]), 0])


def test_arrays_are_not_copies_and_keep_the_model():
    model = decoder()
    weight = model.state_dict()["transformer.wte.weight"]
    before = model.logits([1, 2])
    weight[1] += 1
    assert not np.array_equal(before, model.logits([1, 2]))
    del model
    gc.collect()
    assert np.isfinite(weight).all()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "m")
        decoder().save(path)
        loaded = Model.load(path)
        array = loaded.state_dict()["transformer.wte.weight"]
        with raises(ValueError, "read-only"):
            array[0] = 1
        with raises(bauta.ArgumentError, "trainable"):
            loaded.gradients()
        for dtype in ("float32", "bfloat16", "int8"):
            packed = Model.load(path, dtype=dtype)
            assert "transformer.h.0.mlp.c_fc.weight" not in packed.state_dict()
            same = np.array_equal(packed.logits([1, 2, 3]), loaded.logits([1, 2, 3]))
            assert same == (dtype == "float32"), dtype


def test_models_of_the_tests_load():
    for folder in sorted((tree / "tests" / "data" / "models").iterdir()):
        model = Model.load(folder)
        assert model.tokenizer is None
        ids = [1, 2, 3, 4, 5]
        extra = (ids,) if model.kind == "encoder-decoder" else ()
        assert np.isfinite(model.logits(ids, *extra)).all(), folder.name
        assert sum(t.size for t in model.state_dict().values()) >= model.num_parameters
        assert model.config and isinstance(repr(model), str)
        with raises(bauta.ArgumentError, "tokenizer"):
            model.logits("text", *extra)


def test_fill_and_embed():
    model = encoder()
    gaps = model.fill("the [MASK] sat on <mask>", top_k=3)
    assert [len(gap) for gap in gaps] == [3, 3]
    for gap in gaps:
        shares = [candidate.probability for candidate in gap]
        assert shares == sorted(shares, reverse=True) and sum(shares) <= 1
    best = gaps[0][0]
    assert best.text in best.sentence and "[MASK]" in best.sentence
    with raises(bauta.ArgumentError, "no [MASK]"):
        model.fill("nothing")
    vectors = model.embed(WORDS, normalize=True, batch_size=2)
    assert vectors.shape == (3, model.hidden_size)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert np.array_equal(model.embed(WORDS[1], normalize=True), vectors[1])
    last = model.hidden_states(WORDS[0])[-1]
    assert np.array_equal(model.embed(WORDS[0], pooling="cls"), last[0])
    assert np.allclose(model.embed(WORDS[0]), last.mean(0), atol=1e-6)
    with raises(bauta.UnsupportedError, "decoder-only"):
        decoder().fill("a [MASK]")
    with raises(bauta.UnsupportedError, "encoder-only"):
        model.translate("text")


def test_attention_weights_and_pictures():
    model = decoder()
    weights = model.attention_weights("ab<&c")
    assert weights.weights.shape == (2, 2, 5, 5)
    assert np.array_equal(weights.weights != 0, np.broadcast_to(Mask.causal(5).to_dense(), (2, 2, 5, 5)))
    page = weights._repr_html_()
    assert page.startswith("<iframe") and "<!DOCTYPE html>" in html.unescape(page)
    assert "head" in html.unescape(page)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "weights.html")
        weights.save(path, title="weights")
        assert path.stat().st_size > 1000
    with raises(bauta.ArgumentError, "cross"):
        model.attention_weights("ab", attention="cross")
    with raises(bauta.ArgumentError, "layer"):
        model.attention_weights("ab", layers=[2])


def test_audits():
    audit = decoder().audit(probes=3)
    assert audit and audit.passed and len(audit.findings) >= 10
    assert "incremental" in str(audit) and "<table>" in audit._repr_html_()
    with raises(bauta.ArgumentError, "did you mean 'reach'"):
        decoder().audit(checks=["reech"])


def test_not_finite_is_reported():
    model = decoder()
    model.check_finite("abc")
    model.state_dict()["transformer.wte.weight"][ord("b")] = np.nan
    with raises(bauta.NotFiniteError, "transformer.wte.weight holds NaN"):
        model.check_finite("abc")


def test_perplexity():
    model = decoder()
    result = model.perplexity(bauta.Corpus([list(range(50))]), context_length=16)
    assert abs(result["perplexity"] - np.exp(result["loss"])) < 1e-6 * result["perplexity"]
    assert result["tokens"] == 49


def test_threads_share_a_model():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "m")
        decoder().save(path)
        model = Model.load(path)
        want = model.logits("some text")
        wrong = []

        def work():
            for _ in range(5):
                if not np.array_equal(model.logits("some text"), want):
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_bad_batches_are_errors():
    model, two = decoder(), translator()
    grid = np.ones((2, 3), np.int64)
    cases = [
        (lambda: model.logits([999]), ValueError, "999"),
        (lambda: model.logits([-1]), ValueError, "negative"),
        (lambda: model.logits([1.5]), TypeError, ""),
        (lambda: model.logits(np.ones(3)), TypeError, "float64"),
        (lambda: model.logits(np.ones((2, 2, 2), int)), ValueError, "3 axes"),
        (lambda: model.logits(np.ones((2, 0), int)), ValueError, "empty"),
        (lambda: model.logits([1] * 65), ValueError, "65"),
        (lambda: model.logits(None), TypeError, ""),
        (lambda: model.logits([1], [2]), ValueError, "decoder-only"),
        (lambda: model.logits([1], cross_mask=Mask.all(1)), ValueError, "decoder-only"),
        (lambda: model.logits([1], nonsense=1), TypeError, "nonsense"),
        (lambda: model.logits([1], lengths=[1]), ValueError, "two axes"),
        (lambda: model.logits(grid, lengths=[1]), ValueError, "1 lengths"),
        (lambda: model.logits(grid, lengths=[1, 4]), ValueError, ""),
        (lambda: model.logits(grid, lengths=[1, -1]), ValueError, "less than 0"),
        (lambda: model.logits([1, 2], mask=Mask.all(3)), ValueError, ""),
        (lambda: model.logits([1, 2], mask="causal"), TypeError, "bauta.Mask"),
        (lambda: model.logits([1, 2], prefix_lengths=[1, 1]), ValueError, "prefix"),
        (lambda: model.logits([1, 2], prefix_lengths=[3]), ValueError, ""),
        (lambda: model.logits([1, 2], token_type_ids=[0]), ValueError, "token_type_ids"),
        (lambda: model.loss([1, 2], targets=[1]), ValueError, "targets"),
        (lambda: model.loss([1, 2], targets=[1, 999]), ValueError, "999"),
        (lambda: model.loss([1, 2], targets=[1.0, 2.0]), TypeError, "targets"),
        (lambda: model.loss([[1, 2]], targets=[[1]]), ValueError, "targets"),
        (lambda: model.loss([1, 2], weights=[1, 2, 3]), ValueError, "weights"),
        (lambda: model.loss([1, 2], label_smoothing=2), ValueError, "smoothing"),
        (lambda: model.loss([1, 2], dropout=1), ValueError, "dropout"),
        (lambda: model.loss([1, 2], dropout="x"), ValueError, "dropout is 'x'"),
        (lambda: two.logits([1]), ValueError, "needs decoder_input_ids"),
        (lambda: two.logits([[1]], [[1], [2]]), ValueError, ""),
        (lambda: encoder().loss([1, 2]), ValueError, "needs targets"),
        (lambda: model.embed([[]]), ValueError, ""),
        (lambda: model.embed([1], pooling="max"), ValueError, "pooling is 'max'"),
        (lambda: encoder().fill("[MASK]", top_k=0), ValueError, ""),
        (lambda: encoder().fill("[MASK]", top_k=1000), ValueError, "1000"),
    ]
    all_raise(cases)


def test_step_batches():
    model = decoder()
    trainer = Trainer(model, warmup_steps=0, learning_rate=1e-3, weight_decay=0.0)
    before = model.logprobs([1, 2, 3])
    for _ in range(5):
        step = trainer.step_batch(
            {"input_ids": [1, 2, 3], "weights": [1.0, -1.0, 0.0]},
            {"input_ids": np.array([[4, 5], [6, 7]]), "weights": np.zeros((2, 2))},
        )
    after = model.logprobs([1, 2, 3])
    assert step.counted == 4 and step.updated and step.step == 5
    assert after[0] > before[0] and after[1] < before[1]
    with raises(bauta.ArgumentError):
        trainer.step_batch()
    with raises(TypeError, "nonsense"):
        trainer.step_batch({"input_ids": [1, 2], "nonsense": 3})


def test_ten_thousand_calls_leak_nothing():
    """The memory of the process stops growing."""
    model = decoder()
    mask = Mask.causal(4)
    q = np.ones((4, 2, 8), np.float32)

    def calls(count):
        for number in range(count):
            bauta.attention(q, q, q, mask)
            Mask.window(5, window=2) & Mask.causal(5)
            try:
                Mask.parse("nonsense", 3)
            except bauta.Error:
                pass
            if number % 10 == 0:
                model.logprobs([1, 2, 3])
                model.generate([1, 2], max_new_tokens=2, stop_strings=["x"])
                model.state_dict()
                BYTES.decode(BYTES.encode("abc"))

    def resident():
        gc.collect()
        for line in open("/proc/self/status"):
            if line.startswith("RssAnon"):
                return int(line.split()[1])
        return 0

    # A leak of 100 bytes in each call would be 1000 KiB every time. What is
    # allocated once, by a thread or an arena, is not there again.
    calls(1000)
    grown = []
    while len(grown) < 3:
        before = resident()
        calls(10000)
        grown.append(resident() - before)
        if grown[-1] < 900:
            return
    raise AssertionError(grown)


def test_devices_are_errors_where_they_are_missing():
    with tempfile.TemporaryDirectory() as folder:
        decoder().save(folder + "/model")
        make = lambda **options: Model.preset("gpt2-tiny", BYTES, **options)
        load = lambda **options: Model.load(folder + "/model", **options)
        cases = [
            (lambda: make(device="tpu"), bauta.ArgumentError, 'device is "tpu"'),
            (lambda: load(device="cuda:x"), bauta.ArgumentError, 'device is "cuda:x"'),
            (lambda: load(dtype="float16"), bauta.ArgumentError, "dtype is 'float16'"),
            (lambda: make(dtype="bfloat16"), bauta.ArgumentError, "is float32"),
        ]
        if bauta._core.gpu_count() == 0:
            missing = (NotImplementedError, "")
            cases += [
                (lambda: make(device="cuda"), *missing),
                (lambda: make(device="cuda:1", dtype="bfloat16"), *missing),
                (lambda: load(device="cuda"), *missing),
                (lambda: load(device="cuda", trainable=True), *missing),
            ]
        all_raise(cases)
        for model in (load(device="cpu"), make(device="cpu", **TINY)):
            assert (model.device, model.dtype) == ("cpu", "float32")
        assert load(dtype="int8").dtype == "int8"


def test_weights_are_replaced():
    one, two = decoder(1), decoder(2)
    weights = {name: array.copy() for name, array in one.state_dict().items()}
    two.load_state_dict(weights)
    assert np.array_equal(one.logits("abc"), two.logits("abc"))
    bias = {"transformer.ln_f.bias": np.ones(two.hidden_size)}
    two.load_state_dict(bias, strict=False)
    assert (two.state_dict()["transformer.ln_f.bias"] == 1).all()
    assert not np.array_equal(one.logits("abc"), two.logits("abc"))
    with tempfile.TemporaryDirectory() as folder:
        one.save(folder + "/model")
        frozen = Model.load(folder + "/model")
        bad = {"transformer.ln_f.bias": np.ones(3)}
        all_raise(
            [
                (lambda: two.load_state_dict(bias), ValueError, "there is no array"),
                (lambda: two.load_state_dict(bad, strict=False), ValueError, "(3,)"),
                (lambda: two.load_state_dict({"x": 1}, strict=False), ValueError, "'x'"),
                (lambda: frozen.load_state_dict(weights), ValueError, "trainable"),
            ]
        )
    stream = two.generate("ab", max_new_tokens=9, eos_token_id=[], stream=True)
    next(stream)
    two.load_state_dict(weights)
    with raises(bauta.Error, "while a text was generated"):
        list(stream)
