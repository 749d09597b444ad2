# SPDX-License-Identifier: Apache-2.0
"""Tokenizers, generation and training with Python's standard library alone."""

from __future__ import annotations

import gc
import os
import pathlib
import signal
import tempfile
import threading

import bauta
from bauta import Corpus, Model, Tokenizer, Trainer
from support import raises

LETTERS = Tokenizer.characters("abcdefgh \n")
TINY = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}


def tiny(seed=1):
    return Model.preset("gpt2-tiny", LETTERS, seed=seed, **TINY)


def rotary():
    """A small Llama, which has no limit of positions."""
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": len(LETTERS),
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6,
    }
    return Model.create(config, tokenizer=LETTERS)


def test_the_stub_names_what_the_module_has():
    import ast

    stub = pathlib.Path(__file__).resolve().parents[1] / "bauta" / "_core.pyi"
    names = {
        node.name
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    module = {name for name in vars(bauta._core) if not name.startswith("_")}
    assert names == module, names ^ module


def test_tokenizers_round_trip():
    text = "Grüße, 世界 🙂!"
    for tokenizer in (
        Tokenizer.bytes(),
        Tokenizer.characters(text),
        Tokenizer.train([text] * 3, vocab_size=300),
    ):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert tokenizer.decode(tuple(ids)) == text
        assert max(ids) < len(tokenizer) == tokenizer.vocab_size
        assert tokenizer.token_to_id("<|endoftext|>") == tokenizer.eos_token_id
        assert tokenizer.id_to_token(tokenizer.eos_token_id) == "<|endoftext|>"
        assert tokenizer.is_special(tokenizer.eos_token_id)
        assert tokenizer.encode("") == [] and tokenizer.decode([]) == ""


def test_offsets_count_characters():
    tokenizer = Tokenizer.characters("äö🙂a")
    text = "a🙂äö"
    ids, spans = tokenizer.encode_with_offsets(text)
    assert len(ids) == 4
    assert [text[start:end] for start, end in spans] == list(text)


def test_lone_surrogates_are_no_crash():
    tokenizer = Tokenizer.bytes()
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a?b"


def test_tokenizers_save_and_load():
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = Tokenizer.train(["low lower lowest"] * 4, vocab_size=280)
        tokenizer.save(folder)
        again = Tokenizer.load(pathlib.Path(folder))
        assert again.encode("lower low") == tokenizer.encode("lower low")


def test_chat_templates():
    with tempfile.TemporaryDirectory() as folder:
        Tokenizer.bytes().save(folder)
        template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        pathlib.Path(folder, "chat_template.jinja").write_text(template)
        tokenizer = Tokenizer.load(folder)
        messages = [{"role": "user", "content": "hi"}]
        assert tokenizer.apply_chat_template(messages) == "<user>hi"
    with raises(bauta.ArgumentError, "folder"):
        Tokenizer.bytes().apply_chat_template(messages)


def test_generation_does_not_depend_on_the_batch():
    model = tiny()
    options = {"max_new_tokens": 9, "do_sample": True, "seed": 5}
    prompts = ["abc", "h", [1, 2, 3, 4], "fed cba"]
    together = model.generate(prompts, **options)
    few = model.generate(prompts, max_sequences=2, **options)
    for prompt, result, other in zip(prompts, together, few):
        alone = model.generate(prompt, **options)
        assert alone.tokens == result.tokens == other.tokens
        assert alone.logprobs == result.logprobs == other.logprobs
        assert alone.text == result.text == LETTERS.decode(alone.tokens)


def test_streams_are_the_result_in_pieces():
    model = tiny()
    options = {"max_new_tokens": 7, "do_sample": True, "seed": 2}
    prompts = ["abc", "hg"]
    whole = model.generate(prompts, **options)
    pieces = list(model.generate(prompts, stream=True, **options))
    for number, result in enumerate(whole):
        mine = [piece for piece in pieces if piece.sequence == number]
        assert [p.id for p in mine if p.id is not None] == result.tokens
        assert [p.logprob for p in mine if p.id is not None] == result.logprobs
        assert "".join(p.text for p in mine) == result.text
    stream = model.generate("abc", stream=True, max_new_tokens=20)
    next(stream)
    del stream  # ends the generation
    gc.collect()
    assert model.generate("abc", max_new_tokens=3).tokens == model.generate(
        "abc", max_new_tokens=3
    ).tokens


def test_samples_of_a_prompt():
    model = tiny()
    options = {"max_new_tokens": 6, "do_sample": True, "eos_token_id": []}
    group = model.generate("abc", num_return_sequences=4, seed=10, **options)
    assert len(group) == 4 and len({tuple(g.tokens) for g in group}) > 1
    for number, sample in enumerate(group):
        alone = model.generate("abc", seed=10 + number, **options)
        assert sample.tokens == alone.tokens and sample.logprobs == alone.logprobs
    pair = model.generate(["a", "b"], num_return_sequences=2, **options)
    assert [len(each) for each in pair] == [2, 2]
    beams = model.generate("abc", num_beams=3, num_return_sequences=2, max_new_tokens=4)
    assert len(beams) == 2 and beams[0].score >= beams[1].score


def test_every_option_reaches_the_library():
    model = tiny()
    options = {
        "max_new_tokens": 12,
        "max_length": 30,
        "min_new_tokens": 2,
        "min_length": 3,
        "repetition_penalty": 1.5,
        "no_repeat_ngram_size": 2,
        "do_sample": True,
        "temperature": 0.5,
        "top_k": 4,
        "top_p": 0.5,
        "min_p": 0.25,
        "seed": 77,
        "renormalize_logits": True,
        "forced_eos_token_id": 1,
        "eos_token_id": [3, 4],
        "suppress_tokens": [5],
    }
    from bauta import _core
    from bauta._generate import options_handle
    import json

    used = json.loads(_core.generate_options_json(options_handle(model, options)))
    for name, value in options.items():
        assert used[name] == (value if name != "suppress_tokens" else [5]), name
    beams = {"num_beams": 3, "length_penalty": 2.0, "early_stopping": "never"}
    used = json.loads(_core.generate_options_json(options_handle(model, beams)))
    assert {name: used[name] for name in beams} == beams
    result = model.generate("abc", **options)
    assert 5 not in result.tokens


def test_stops_and_bad_words():
    model = tiny()
    plain = model.generate("abc", max_new_tokens=12, eos_token_id=[])
    stop = plain.text[3:5]
    stopped = model.generate(
        "abc", max_new_tokens=12, eos_token_id=[], stop_strings=stop
    )
    assert stopped.finish == "stop" and stopped.text == plain.text.split(stop)[0]
    banned = plain.tokens[0]
    other = model.generate("abc", max_new_tokens=12, bad_words_ids=[[banned]])
    assert banned not in other.tokens
    ended = model.generate("abc", max_new_tokens=12, eos_token_id=banned)
    assert ended.finish == "end" and ended.tokens == [banned]


def test_bad_options_are_errors():
    model = tiny()
    cases = [
        ({"max_new_token": 3}, TypeError, "did you mean 'max_new_tokens'?"),
        ({"nonsense": 1}, TypeError, "there is no option 'nonsense'"),
        ({"max_new_tokens": -1}, ValueError, "max_new_tokens is -1"),
        ({"max_new_tokens": 1.5}, ValueError, "max_new_tokens is 1.5"),
        ({"max_new_tokens": "3"}, ValueError, "max_new_tokens is '3'"),
        ({"max_new_tokens": 1 << 70}, ValueError, "max_new_tokens"),
        ({"temperature": "hot"}, ValueError, "temperature is 'hot'"),
        ({"do_sample": 1}, ValueError, "do_sample is 1, not True or False"),
        ({"early_stopping": "maybe"}, ValueError, "early_stopping"),
        ({"top_p": 2.0, "do_sample": True}, ValueError, "top-p is 2"),
        ({"temperature": -1.0, "do_sample": True}, ValueError, "temperature"),
        ({"num_beams": 0}, ValueError, "number of beams is 0"),
        ({"eos_token_id": -4}, ValueError, "eos_token_id"),
        ({"eos_token_id": list(range(9))}, ValueError, "9 end tokens"),
        ({"suppress_tokens": list(range(99))}, ValueError, "99 suppressed"),
        ({"stop_strings": ["a\0b"]}, ValueError, "NUL"),
        ({"stop_strings": [3]}, TypeError, ""),
        ({"bad_words_ids": [[]]}, ValueError, ""),
        ({"num_return_sequences": 3}, ValueError, "do_sample"),
        ({"max_sequences": 0}, ValueError, ""),
        ({"decoder_input_ids": [1]}, ValueError, "decoder-only"),
        ({"forced_eos_token_id": 1 << 40}, ValueError, "forced_eos_token_id"),
    ]
    for options, kind, text in cases:
        try:
            with raises(kind, text):
                model.generate("abc", **{"max_new_tokens": 3, **options})
        except AssertionError as error:
            raise AssertionError(f"{options}: {error}") from None
    for prompt in ([999], [[]], [-1], [1.5], [1 << 40], ["a", 5]):
        with raises((ValueError, TypeError)):
            model.generate(prompt, max_new_tokens=3)
    with raises(bauta.ArgumentError, "64 positions"):
        model.generate([1] * 100, max_new_tokens=3)


def test_errors_of_files():
    with raises(bauta.FileError, "nowhere"):
        Model.load("/nowhere")
    with raises(OSError, "nowhere"):
        Tokenizer.load("/nowhere")
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "config.json").write_text('{"model_type": "gpt2"')
        with raises(bauta.Error, "config.json"):
            Model.load(folder)
    with raises(bauta.ArgumentError, "dtype"):
        Model.load("/nowhere", dtype="int4")
    with raises(bauta.Error, "gpt"):
        Model.preset("gpt9", LETTERS)
    for kind in (Model, Tokenizer):
        with raises(TypeError):
            kind()


def test_ctrl_c_interrupts_a_generation():
    """The generation has no end; only the signal ends it."""
    model = rotary()
    timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
    with raises(KeyboardInterrupt):
        timer.start()
        model.generate(
            "abc", max_new_tokens=1 << 40, eos_token_id=[], sliding_window=32
        )
    timer.join()
    assert len(model.generate("abc", max_new_tokens=3, eos_token_id=[]).tokens) == 3


def corpus(lines=40):
    return Corpus([LETTERS.encode("abcdefgh" * 3)] * lines)


def trainer_of(model, documents, **options):
    options = {"max_steps": 6, "warmup_steps": 1, "batch_tokens": 96, **options}
    return Trainer(model, documents, learning_rate=1e-2, **options)


def test_training_learns():
    model = tiny()
    trainer = trainer_of(model, corpus(), max_steps=40)
    losses = [trainer.step().loss for _ in range(40)]
    assert losses[-1] < 0.5 * losses[0], losses
    assert trainer.steps == 40 and trainer.epoch_steps >= 1
    assert trainer.evaluate(corpus(3)) < 0.5 * losses[0]
    assert model.generate("abc", max_new_tokens=5).text == "defgh"
    assert trainer.audit().passed


def test_runs_call_back_and_resume():
    with tempfile.TemporaryDirectory() as folder:
        steps, saves, losses = [], [], []
        run = pathlib.Path(folder, "run")
        result = trainer_of(tiny(), corpus()).train(
            run,
            validation=corpus(2),
            eval_steps=2,
            max_steps=4,
            on_step=steps.append,
            on_save=saves.append,
            on_evaluate=lambda evaluation: losses.append(evaluation["loss"]),
        )
        assert result["ending"] == "done" and result["step"] == 4
        assert [step.step for step in steps] == [1, 2, 3, 4]
        assert [step for step, _ in saves] == [2, 4] and len(losses) == 2
        assert (run / "metrics.jsonl").exists()
        again = trainer_of(tiny(seed=9), corpus())
        result = again.train(run, validation=corpus(2), eval_steps=2, max_steps=6)
        assert result["step"] == 6
        straight = trainer_of(tiny(), corpus())
        for _ in range(6):
            last = straight.step()
        assert result["loss"] == last.loss  # to the bit
        assert Model.load(run).tokenizer is not None


def test_exceptions_and_ctrl_c_end_a_run_with_a_checkpoint():
    def fail(step):
        if step.step == 2:
            raise ValueError("enough")

    def interrupt(step):
        if step.step == 3:
            signal.raise_signal(signal.SIGINT)

    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(tiny(), corpus())
        kept = None
        try:
            trainer.train(folder, on_step=fail)
        except ValueError as error:
            kept = error  # its traceback must not keep the folder locked
        assert str(kept) == "enough" and trainer.steps == 2
        with raises(KeyboardInterrupt):
            trainer_of(tiny(), corpus()).train(folder, on_step=interrupt)
        assert sorted(p.name for p in pathlib.Path(folder).glob("step-*")) == [
            "step-00000002",
            "step-00000003",
        ]
        result = trainer_of(tiny(), corpus()).train(folder, should_stop=lambda: True)
        assert result["ending"] == "stopped" and result["step"] == 4


def test_bad_training_is_an_error():
    model = tiny()
    with raises(TypeError, "did you mean 'learning_rate'"):
        Trainer(model, corpus(), learning_rat=1)
    with raises(ValueError, "lr_scheduler_type is 'cosin'"):
        Trainer(model, corpus(), lr_scheduler_type="cosin")
    with raises(bauta.ArgumentError, "corpus"):
        Trainer(model).step()
    with raises(bauta.Error):
        Trainer(model, Corpus()).step()
    with raises(bauta.Error):
        Corpus([[1, 2]]).add([3], [4])
    with raises(IndexError):
        corpus(2)[2]
    with tempfile.TemporaryDirectory() as folder:
        model.save(os.path.join(folder, "m"))
        loaded = Model.load(os.path.join(folder, "m"))
        assert loaded.generate("abc", max_new_tokens=4).tokens == model.generate(
            "abc", max_new_tokens=4
        ).tokens
        with raises(bauta.Error, "read-only"):
            Trainer(loaded, corpus())


def test_training_ends_streams():
    model = tiny()
    trainer = trainer_of(model, corpus())
    stream = model.generate("abc", max_new_tokens=30, eos_token_id=[], stream=True)
    next(stream)
    trainer.step()
    with raises(bauta.Error, "trained"):
        list(stream)


def test_threads_may_generate_and_train_at_once():
    model = tiny()
    trainer = trainer_of(model, corpus(), max_steps=20)
    problems = []

    def generate():
        try:
            for _ in range(6):
                try:
                    model.generate("abc", max_new_tokens=4, eos_token_id=[])
                except bauta.Error as error:
                    assert "trained" in str(error)
        except BaseException as error:  # noqa: BLE001
            problems.append(error)

    threads = [threading.Thread(target=generate) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(6):
        trainer.step()
    for thread in threads:
        thread.join()
    assert not problems, problems


def test_objects_live_as_long_as_they_are_used():
    trainer = trainer_of(tiny(), corpus())
    gc.collect()
    assert trainer.step().updated
    stream = tiny().generate("abc", max_new_tokens=3, eos_token_id=[], stream=True)
    gc.collect()
    assert len([piece for piece in stream if piece.id is not None]) == 3
