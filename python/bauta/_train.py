# SPDX-License-Identifier: Apache-2.0
"""Corpora and training."""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Iterable, NamedTuple, Sequence

from . import _core
from ._errors import ArgumentError
from ._inspect import Audit
from ._model import Model, _last, _tuple
from ._tokenizer import Tokenizer, _unpack, ids_of


class Corpus:
    """Documents of tokens, or pairs of source and target.

    >>> import bauta
    >>> corpus = bauta.Corpus([[1, 2, 3], [4, 5]])
    >>> len(corpus), corpus.tokens, corpus[1]
    (2, 5, [4, 5])
    """

    def __init__(self, documents: Iterable[Any] = ()) -> None:
        self._handle = _core.corpus_create()
        for document in documents:
            self.add(document)

    @classmethod
    def _wrap(cls, handle: Any) -> Corpus:
        corpus = object.__new__(cls)
        corpus._handle = handle
        return corpus

    @classmethod
    def load(
        cls,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        tokenizer: Tokenizer,
        **options: Any,
    ) -> Corpus:
        """Load text files. Options are lines, skip_invalid and memory_bytes.

        Each file is a document, or with ``lines`` each line. A corpus may be
        larger than memory.
        """
        if isinstance(files, (str, os.PathLike)):
            files = [files]
        paths = [os.fspath(path) for path in files]
        return cls._wrap(_core.corpus_load(tokenizer._handle, paths, options))

    @classmethod
    def load_pairs(
        cls,
        source: str | os.PathLike[str],
        target: str | os.PathLike[str] | None,
        tokenizer: Tokenizer,
        **options: Any,
    ) -> Corpus:
        """Load pairs: line i of ``target`` translates line i of ``source``.

        Without ``target``, the lines of ``source`` have two columns separated by
        a tab.
        """
        path = None if target is None else os.fspath(target)
        return cls._wrap(
            _core.corpus_load_pairs(tokenizer._handle, os.fspath(source), path, options)
        )

    def add(self, tokens: Any, source: Any = None) -> None:
        """Add a document, or a target with its source. Tokens are copied."""
        tokens = ids_of(tokens)
        source = None if source is None else ids_of(source, "source")
        _core.corpus_add(self._handle, tokens, source)

    def split(self, share: float) -> Corpus:
        """Move this share of the documents, the last ones, to a new corpus."""
        return Corpus._wrap(_core.corpus_split(self._handle, share))

    def __len__(self) -> int:
        return _core.corpus_properties(self._handle)["documents"]

    def __getitem__(self, index: int) -> Any:
        """The tokens of a document, or (tokens, source) of a pair."""
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"there is no document {index} of {len(self)}")
        tokens, source = _core.corpus_document(self._handle, index)
        ids = _unpack("I", tokens).tolist()
        if source is None or not self.pairs:
            return ids
        return ids, _unpack("I", source).tolist()

    @property
    def pairs(self) -> bool:
        """Whether documents have a source."""
        return _core.corpus_properties(self._handle)["pairs"]

    @property
    def tokens(self) -> int:
        """The number of tokens, without those of sources."""
        return _core.corpus_properties(self._handle)["tokens"]

    def __repr__(self) -> str:
        return f"<bauta.Corpus {len(self)} documents, {self.tokens} tokens>"


class Step(NamedTuple):
    """The report of a training step."""

    step: int
    """Steps taken, this one included."""
    epoch: int
    """Complete passes through the corpus."""
    loss: float
    """The mean over the predicted tokens, in nats."""
    counted: int
    """Predicted tokens."""
    tokens: int
    """Tokens read, sources included."""
    grad_norm: float
    """The norm of the gradients before clipping."""
    learning_rate: float
    """Of this step."""
    updated: bool
    """False if the gradients were not finite, or nothing was to be predicted."""


class Trainer:
    """Trains a model: AdamW, with the library's batches, masks and run loop.

    ``options`` have the names of transformers' TrainingArguments where it has
    one: learning_rate, max_steps, warmup_steps, lr_scheduler_type ("constant",
    "linear", "cosine", "inverse_sqrt"), weight_decay, max_grad_norm, adam_beta1,
    adam_beta2, adam_epsilon, label_smoothing, gradient_accumulation_steps,
    seed; and batch_tokens, batch_sequences, microbatch_tokens, context_length,
    min_learning_rate, dropout, mlm_probability, mlm_random, mlm_keep, mode,
    objective ("auto", "causal", "seq2seq", "masked", "prefix"),
    scheduled_sampling, ema_decay. With ``finetune`` the defaults are a small
    learning rate that falls to 0.

    >>> import bauta
    >>> tokenizer = bauta.Tokenizer.characters("ab ")
    >>> model = bauta.Model.preset("gpt2-tiny", tokenizer, seed=1)
    >>> corpus = bauta.Corpus([tokenizer.encode("ab " * 20)])
    >>> trainer = bauta.Trainer(model, corpus, warmup_steps=1, learning_rate=1e-2)
    >>> first = trainer.step().loss
    >>> for _ in range(10):
    ...     report = trainer.step()
    >>> report.loss < first
    True

    Options and corpus determine every bit of a run. A model on a GPU is trained
    there, in bfloat16 with float32 master weights, gradients and moments if its
    dtype is "bfloat16".
    """

    model: Model
    corpus: Corpus | None

    def __init__(
        self,
        model: Model,
        corpus: Corpus | None = None,
        *,
        finetune: bool = False,
        **options: Any,
    ) -> None:
        text = model.tokenizer._handle if model.tokenizer is not None else None
        documents = None if corpus is None else corpus._handle
        self.model, self.corpus = model, corpus
        with model._guard:
            self._handle = _core.trainer_create(
                model._handle, text, documents, finetune, options
            )

    @property
    def steps(self) -> int:
        """Steps taken."""
        return _core.trainer_steps(self._handle)[0]

    @property
    def epoch_steps(self) -> int:
        """The approximate number of steps in a pass through the corpus."""
        return _core.trainer_steps(self._handle)[1]

    def step(self) -> Step:
        """Take one step on the next batch of the corpus."""
        if self.corpus is None:
            raise ArgumentError("the trainer has no corpus; use step_batch()")
        with self.model._guard:
            self.model._version += 1
            return Step(**_core.trainer_step(self._handle))

    def step_batch(self, *batches: dict[str, Any]) -> Step:
        """Take one step on batches of your own, which count as one large batch.

        A batch is a dict of arguments of :meth:`Model.loss`: input_ids,
        decoder_input_ids, targets, weights, lengths, masks. The loss is the mean
        over all targets of weight x -log-probability. If the weight of a sampled
        token is its advantage, that is a policy gradient.

        >>> import bauta
        >>> model = bauta.Model.preset("gpt2-tiny", bauta.Tokenizer.bytes(), seed=1)
        >>> trainer = bauta.Trainer(model, warmup_steps=0, learning_rate=1e-3)
        >>> step = trainer.step_batch({"input_ids": [1, 2, 3], "weights": [1.0, -0.5, 0]})
        >>> step.counted
        2
        """
        parts = []
        for batch in batches:
            batch = dict(batch)
            targets, weights = batch.pop("targets", None), batch.pop("weights", None)
            source, target = self.model._batches(**batch)
            rows = _last(source, target)
            labels = self.model._labels(rows, targets)
            if weights is not None:
                weights = rows.flat(weights, "weights", "float32")
            parts.append((_tuple(source), _tuple(target), labels, weights))
        with self.model._guard:
            self.model._version += 1
            return Step(**_core.trainer_step_batch(self._handle, parts))

    def evaluate(self, corpus: Corpus, *, max_tokens: int = 0) -> float:
        """The mean loss over a corpus, without dropout."""
        with self.model._guard:
            return _core.trainer_evaluate(self._handle, corpus._handle, max_tokens)[0]

    def audit(self, *, checks: Sequence[str] = (), **options: Any) -> Audit:
        """Audit the next batch, by default for leaks."""
        with self.model._guard:
            text = _core.audit_trainer(self._handle, list(checks), options)
        return Audit(json.loads(text))

    def save(self, folder: str | os.PathLike[str], *, notes: Any = None) -> None:
        """Write a checkpoint, a model folder from which :meth:`resume` continues."""
        text = None if notes is None else json.dumps(notes)
        with self.model._guard:
            _core.trainer_folder(self._handle, "save", os.fspath(folder), text)

    def resume(self, folder: str | os.PathLike[str]) -> None:
        """Continue a checkpoint, with a trainer like the saved one on its model."""
        with self.model._guard:
            self.model._version += 1
            _core.trainer_folder(self._handle, "resume", os.fspath(folder), None)

    def export(self, folder: str | os.PathLike[str]) -> None:
        """Write a model folder, with the averaged weights if there are any."""
        with self.model._guard:
            _core.trainer_folder(self._handle, "export", os.fspath(folder), None)

    def train(
        self,
        folder: str | os.PathLike[str],
        *,
        validation: Corpus | None = None,
        resume: bool = True,
        notes: Any = None,
        on_step: Callable[[Step], None] | None = None,
        on_evaluate: Callable[[dict[str, Any]], None] | None = None,
        on_save: Callable[[tuple[int, str]], None] | None = None,
        on_warning: Callable[[str], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """The library's run loop, in the folder of a run.

        The folder receives checkpoints, the links "last" and "best", and
        metrics.jsonl. A run that was interrupted continues from its last
        checkpoint, unless ``resume`` is False, and takes the steps that it would
        have taken. Options are max_steps, num_train_epochs, max_minutes,
        logging_steps, eval_steps, eval_tokens, save_steps, save_total_limit,
        early_stopping_patience and average_checkpoints.

        Ctrl-C and exceptions of callbacks end the run after the current step
        with a checkpoint, and are raised then. ``should_stop`` is asked after
        each step. The result is a dict with "ending" ("done", "stopped",
        "early_stopping", "time"), "step", "loss", "best_loss" and more.
        """
        callbacks: dict[str, Any] = {}
        if on_step is not None:
            callbacks["on_step"] = lambda report: on_step(_step(report))
        if on_evaluate is not None:
            callbacks["on_evaluate"] = on_evaluate
        if on_save is not None:
            callbacks["on_save"] = on_save
        if on_warning is not None:
            callbacks["on_warning"] = on_warning
        if should_stop is not None:
            callbacks["should_stop"] = lambda none: should_stop()
        text = None if notes is None else json.dumps(notes)
        documents = None if validation is None else validation._handle
        with self.model._guard:
            run = _core.run_open(os.fspath(folder), True)
            self.model._version += 1
            try:
                if resume:
                    _core.run_resume(run, self._handle, 0)
                return _core.run_train(
                    run, self._handle, documents, options, text, callbacks
                )
            finally:
                self.model._version += 1
                # The traceback of an exception would keep the folder locked.
                del run


def _step(report: dict[str, Any]) -> Step:
    report = dict(report)
    report.pop("seconds")
    return Step(**report)


def presets() -> dict[str, str]:
    """The names of model presets, with what they are.

    >>> import bauta
    >>> "gpt2-tiny" in bauta.presets()
    True
    """
    return _core.preset_names()


def preset_options(name: str, tokenizer: Tokenizer) -> dict[str, Any]:
    """The training options of a preset, for :class:`Trainer`."""
    return _core.preset(name, tokenizer._handle, None)[1]
