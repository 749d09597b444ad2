# SPDX-License-Identifier: Apache-2.0
"""Generation: options by transformers' names, results and streams."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Sequence

from . import _core
from ._errors import ArgumentError, Error, error_of
from ._tokenizer import _unpack, ids_of

if TYPE_CHECKING:
    from ._model import Model


class Token(NamedTuple):
    """A token of a stream."""

    sequence: int
    """The number of the sequence, counted over prompts and their samples."""
    id: int | None
    """None for the last text of a sequence, which was held back."""
    text: str
    """The text that became final; "" without a tokenizer."""
    logprob: float
    """The log-probability under the model, before any processor."""


class Generation:
    """A generated sequence.

    ``tokens`` are the new ones, with the end token; ``logprobs`` their
    log-probabilities under the model, before temperature and other processors:
    the bits that :meth:`Model.logprobs` gives for the same tokens. ``finish`` is
    "end", "stop", "length", "cancelled" or "context". ``score`` is the sum of
    the log-probabilities that the search used, of a beam divided by its length
    to the power of length_penalty.
    """

    __slots__ = ("text", "tokens", "logprobs", "score", "finish", "prompt_tokens")

    text: str | None
    tokens: list[int]
    logprobs: list[float]
    score: float
    finish: str
    prompt_tokens: int

    def __init__(self, fields: Any, prompt_tokens: int) -> None:
        tokens, logprobs, self.score, self.finish, self.text = fields
        self.tokens = _unpack("I", tokens).tolist()
        self.logprobs = _unpack("f", logprobs).tolist()
        self.prompt_tokens = prompt_tokens

    def __str__(self) -> str:
        return self.text if self.text is not None else str(self.tokens)

    def __repr__(self) -> str:
        what = repr(self.text) if self.text is not None else str(self.tokens)
        return f"<bauta.Generation {what}, {self.finish}>"


_EARLY_STOPPING = {False: "no", True: "yes", "never": "never"}


def _id_list(value: Any, name: str) -> Any:
    if value is None:
        return None
    return ids_of([value] if hasattr(value, "__index__") else value, name)


def options_handle(model: Model, options: dict[str, Any]) -> Any:
    """The model's generation options with changes, for the extension module."""
    options = dict(options)
    eos = _id_list(options.pop("eos_token_id", None), "eos_token_id")
    suppress = _id_list(options.pop("suppress_tokens", None), "suppress_tokens")
    stops = options.pop("stop_strings", None)
    if isinstance(stops, str):
        stops = [stops]
    words = options.pop("bad_words_ids", None)
    if words is not None:
        words = [ids_of(word, "bad_words_ids") for word in words]
    if "early_stopping" in options:
        value = options["early_stopping"]
        if value not in _EARLY_STOPPING:
            raise ArgumentError(
                f'early_stopping is {value!r}, not False, True or "never"'
            )
        options["early_stopping"] = _EARLY_STOPPING[value]
    if options.get("max_new_tokens") and "max_length" not in options:
        options["max_length"] = 0  # as in transformers, max_new_tokens wins
    stops = None if stops is None else list(stops)
    return _core.generate_options(model._handle, options, eos, suppress, stops, words)


class Session:
    """A generator with its requests."""

    def __init__(self, model: Model, settings: dict[str, Any]) -> None:
        self.model = model
        self.version = model._version
        text = model.tokenizer._handle if model.tokenizer is not None else None
        with model._guard:
            self.handle = _core.generator_create(model._handle, text, settings)
        self.results: dict[int, list[Generation]] = {}
        self.left = 0

    def add(self, tag: int, options: Any, tokens: Any, source: Any, stream: bool) -> None:
        with self.model._guard:
            _core.generator_add(self.handle, options, tag, tokens, source, stream)
        self.left += 1

    def step(self) -> list[tuple[int, int | None, float, str | None]]:
        """One step of the model. Between two of them Python handles signals."""
        with self.model._guard:
            if self.model._version != self.version:
                raise Error("the model was trained while a text was generated")
            self.left, events = _core.generator_step(self.handle)
        result = _core.generator_take(self.handle)
        while result is not None:
            tag, prompt_tokens, _, status, message, hypotheses = result
            if status:
                raise error_of(status, message)
            self.results[tag] = [Generation(h, prompt_tokens) for h in hypotheses]
            result = _core.generator_take(self.handle)
        return events

    def close(self) -> None:
        """Free the generator, while no other thread uses its context."""
        with self.model._guard:
            self.handle, self.left = None, 0

    def run(self) -> dict[int, list[Generation]]:
        try:
            while self.left:
                self.step()
        finally:
            self.close()
        return self.results

    def stream(self) -> Iterator[Token]:
        try:
            while self.left:
                for tag, token, logprob, text in self.step():
                    if token is not None or text:
                        yield Token(tag, token, text or "", logprob)
        finally:
            self.close()


def sampled_seeds(options: dict[str, Any], config: dict[str, Any]) -> list[int] | None:
    """The seeds of num_return_sequences samples; None with beams or for one.

    The library returns several sequences of one beam search. Samples are
    requests of their own, the j-th with the seed + j.
    """
    count = options.get("num_return_sequences", 1)
    beams = options.get("num_beams", config.get("num_beams", 1))
    if count == 1 or beams != 1:
        return None
    if not options.get("do_sample", config.get("do_sample", False)):
        raise ArgumentError(
            f"num_return_sequences is {count}, without do_sample and num_beams"
        )
    first = options.get("seed", 0)
    return [first + j for j in range(count)]


def as_arrays(sequences: Sequence[Any], name: str) -> list[Any]:
    return [ids_of(each, name) for each in sequences]


EMPTY = array("I")
