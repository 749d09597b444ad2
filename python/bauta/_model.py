# SPDX-License-Identifier: Apache-2.0
"""Models: load, generate, run, differentiate and inspect."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from typing import Any, Iterator, NamedTuple, Sequence

from . import _core
from ._batch import Batch, decode_all, encode_all, is_one
from ._errors import ArgumentError, FileError, FormatError, UnsupportedError
from ._generate import (
    EMPTY,
    Generation,
    Session,
    Token,
    as_arrays,
    options_handle,
    sampled_seeds,
)
from ._inspect import ATTENTIONS, AttentionWeights, Audit
from ._tokenizer import Tokenizer, ids_of

_DTYPES = {"float32": 0, "bfloat16": 1, "int8": 2}


class Filling(NamedTuple):
    """A candidate for a masked token."""

    token: int
    """Its id."""
    text: str
    """Its text."""
    probability: float
    """Among all tokens."""
    sentence: str
    """The text with this mask replaced."""


class _Memory:
    """Memory of the library for NumPy, which keeps it and so its owner."""

    __slots__ = ("owner", "__array_interface__")

    def __init__(self, owner: Any, address: int, shape: Any, writable: bool) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3,
            "typestr": "<f4",
            "shape": shape,
            "data": (address, not writable),
        }


class Model:
    """A Transformer from a Hugging Face folder.

    >>> import bauta
    >>> tokenizer = bauta.Tokenizer.characters("abc")
    >>> model = bauta.Model.preset("gpt2-tiny", tokenizer, seed=1)
    >>> model.kind, model.vocab_size
    ('decoder-only', 5)
    >>> model.generate("ab", max_new_tokens=3).finish in ("length", "end")
    True
    >>> model.logits("abc").shape
    (3, 5)

    A model that is not trainable is never written to, and threads may use it at
    once. Calls on a trainable model, or on one on a GPU, wait for each other.

    Token arguments are ids or texts, and results have their form:

    ========================================== ==================================
    given                                      results
    ========================================== ==================================
    one sequence: ids, or a str                (tokens, ...)
    an array (batch, tokens), with ``lengths`` (batch, tokens, ...), 0 in padding
    a list of sequences, or of str             a list of arrays (tokens, ...)
    ========================================== ==================================

    An encoder-decoder reads ``input_ids`` with its encoder and
    ``decoder_input_ids`` with its decoder. ``mask`` and ``cross_mask`` are masks
    over all rows of the batch that hide more; ``prefix_lengths`` gives each
    sequence of a decoder a bidirectional prefix.
    """

    tokenizer: Tokenizer | None
    _handle: Any
    _guard: Any
    _properties: dict[str, Any]
    _dtype: str
    _version: int

    def __init__(self) -> None:
        raise TypeError("models are created by Model.load() and the like")

    @classmethod
    def _wrap(
        cls, handle: Any, tokenizer: Tokenizer | None, dtype: str | None = None
    ) -> Model:
        model = object.__new__(cls)
        model._handle = handle
        model._properties = _core.model_properties(handle)
        model.tokenizer = tokenizer
        model._dtype = dtype or "float32"
        model._version = 0
        # The context of a device serves one call at a time.
        one_call = model.trainable or model.device != "cpu"
        model._guard = threading.RLock() if one_call else contextlib.nullcontext()
        return model

    # ---- create, load and save ---------------------------------------------------

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        *,
        trainable: bool = False,
        dtype: str | None = None,
        device: str | None = None,
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    ) -> Model:
        """Load a model folder, or the folder of a training run.

        On the CPU, float32 weights of a model that is not trainable stay in the
        mapped file, and ``dtype`` packs the matrices for generation: "float32"
        (same bits, faster), "bfloat16" or "int8".

        ``device`` "cuda" is the first usable GPU, "cuda:1" the one with that
        number. There ``dtype`` is the type that the model computes in:
        "float32" (the default), or "bfloat16" with float32 sums, master weights
        and gradients. All calls are the same as on the CPU, and so are the
        guarantees: a batch has the bits of its sequences alone, and training
        those of inference.

        The tokenizer is that of the folder, if it has one, unless another is
        given.

        >>> import bauta, tempfile
        >>> model = bauta.Model.preset("gpt2-tiny", bauta.Tokenizer.bytes(), seed=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(folder + "/model")
        ...     again = bauta.Model.load(folder + "/model", device="cpu")
        >>> again.device, again.dtype
        ('cpu', 'float32')
        >>> bool((again.logits("abc") == model.logits("abc")).all())
        True
        """
        folder = os.fspath(folder)
        number, place = _placement(dtype, device)
        handle = _core.model_load(folder, trainable, number, place)
        if tokenizer is None:
            tokenizer = _folder_tokenizer(folder)
        elif not isinstance(tokenizer, Tokenizer):
            tokenizer = Tokenizer.load(tokenizer)
        return cls._wrap(handle, tokenizer, dtype)

    @classmethod
    def _create(
        cls,
        config: str,
        seed: int,
        tokenizer: Tokenizer | None,
        dtype: str | None,
        device: str | None,
    ) -> Model:
        number, place = _placement(dtype, device)
        if place is None and dtype not in (None, "float32"):
            raise ArgumentError(
                f"dtype is {dtype!r}: a trainable model on the CPU is float32"
            )
        handle = _core.model_create(config, seed, number, place)
        return cls._wrap(handle, tokenizer, dtype)

    @classmethod
    def create(
        cls,
        config: dict[str, Any],
        *,
        seed: int = 1,
        dtype: str | None = None,
        device: str | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> Model:
        """A trainable model with random weights, from the contents of a config.json.

        ``device`` and ``dtype`` are those of :meth:`load`; the weights do not
        depend on them. A trainable model on the CPU is float32.

        >>> import bauta
        >>> config = {"model_type": "gpt2", "vocab_size": 50, "n_embd": 8,
        ...           "n_layer": 1, "n_head": 2, "n_positions": 16}
        >>> model = bauta.Model.create(config, device="cpu")
        >>> model.trainable, model.device
        (True, 'cpu')
        """
        return cls._create(json.dumps(config), seed, tokenizer, dtype, device)

    @classmethod
    def preset(
        cls,
        name: str,
        tokenizer: Tokenizer,
        *,
        seed: int = 1,
        dtype: str | None = None,
        device: str | None = None,
        **overrides: Any,
    ) -> Model:
        """A trainable model with random weights, by the name of a preset.

        ``overrides`` replace members of its config. :func:`bauta.presets` lists
        the names. ``device`` and ``dtype`` are those of :meth:`create`.
        """
        config, _ = _core.preset(name, tokenizer._handle, json.dumps(overrides))
        return cls._create(config, seed, tokenizer, dtype, device)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a folder that transformers and :meth:`load` read."""
        folder = os.fspath(folder)
        with self._guard:
            _core.model_save(self._handle, folder)
        if self.tokenizer is not None:
            self.tokenizer.save(folder)

    # ---- properties --------------------------------------------------------------

    @property
    def kind(self) -> str:
        """ "decoder-only", "encoder-only" or "encoder-decoder"."""
        return self._properties["kind"]

    @property
    def trainable(self) -> bool:
        """Whether the model has gradients."""
        return self._properties["trainable"]

    @property
    def device(self) -> str:
        """ "cpu", or the GPU with its number, such as "cuda:0"."""
        return self._properties["device"]

    @property
    def dtype(self) -> str:
        """The type of the matrices on the CPU; on a GPU, that of computation."""
        return self._dtype

    @property
    def vocab_size(self) -> int:
        """The number of tokens of the model."""
        return self._properties["vocab_size"]

    @property
    def hidden_size(self) -> int:
        """The size of a hidden state."""
        return self._properties["hidden_size"]

    @property
    def max_positions(self) -> int:
        """The context length."""
        return self._properties["max_positions"]

    @property
    def encoder_layers(self) -> int:
        """The layers of the encoder; 0 without one."""
        return self._properties["encoder_layers"]

    @property
    def decoder_layers(self) -> int:
        """The layers of the decoder; 0 without one."""
        return self._properties["decoder_layers"]

    @property
    def num_parameters(self) -> int:
        """The number of parameters; a shared matrix counts once."""
        return self._properties["parameters"]

    @property
    def warnings(self) -> str:
        """Warnings from loading, one sentence on each line."""
        return self._properties["warnings"]

    @property
    def config(self) -> dict[str, Any]:
        """The config as the library describes it."""
        return json.loads(_core.model_describe(self._handle))

    @property
    def generation_config(self) -> dict[str, Any]:
        """The options of :meth:`generate` by default."""
        return json.loads(_core.generate_options_json(options_handle(self, {})))

    def __repr__(self) -> str:
        where = "" if self.device == "cpu" else f", {self.dtype} on {self.device}"
        return f"<bauta.Model {self.kind}, {self.num_parameters} parameters{where}>"

    def _copies(self, gradients: bool) -> dict[str, Any]:
        """Tensors of a model on a GPU."""
        import numpy as np

        arrays = {}
        for name, shape, *_ in _core.model_tensors(self._handle):
            to = np.empty(shape, np.float32)
            try:
                _core.model_read(self._handle, name, to, gradients)
            except ArgumentError:  # a tensor that is not trained
                continue
            arrays[name] = to
        return arrays

    def _arrays(self, gradients: bool) -> dict[str, Any]:
        import numpy as np

        if self.device != "cpu":
            with self._guard:
                return self._copies(gradients)
        arrays = {}
        for name, shape, data, writable, gradient in _core.model_tensors(self._handle):
            address = gradient if gradients else data
            if address:
                memory = _Memory(self._handle, address, shape, writable)
                arrays[name] = np.asarray(memory)
        return arrays

    def state_dict(self) -> dict[str, Any]:
        """The weights by transformers' names, as NumPy arrays without a copy.

        Arrays of a trainable model are writable; a packed model has no arrays
        of its packed matrices. Arrays of a model on a GPU are float32 copies:
        of the master weights, or, if it is not trainable, of the weights that
        it computes with.

        >>> import bauta
        >>> model = bauta.Model.preset("gpt2-tiny", bauta.Tokenizer.bytes())
        >>> model.state_dict()["transformer.ln_f.bias"].shape == (model.hidden_size,)
        True
        """
        return self._arrays(False)

    def load_state_dict(self, state: dict[str, Any], *, strict: bool = True) -> None:
        """Replace weights of a trainable model by arrays of the same shapes.

        With ``strict`` there must be an array for every name; otherwise the
        weights without one are unchanged. The gradients are unchanged, too.

        >>> import bauta
        >>> one, two = (bauta.Model.preset("gpt2-tiny", bauta.Tokenizer.bytes(), seed=s)
        ...             for s in (1, 2))
        >>> two.load_state_dict(one.state_dict())
        >>> bool((one.logits("abc") == two.logits("abc")).all())
        True
        """
        import numpy as np

        if not self.trainable:
            raise ArgumentError("the model is not trainable; load it with trainable=True")
        shapes = {t[0]: t[1] for t in _core.model_tensors(self._handle)}
        missing = [name for name in shapes if name not in state]
        if strict and missing:
            raise ArgumentError(f"there is no array for {missing[0]!r}")
        arrays = {}
        for name, value in state.items():
            if name not in shapes:
                raise ArgumentError(f"the model has no tensor {name!r}")
            array = np.ascontiguousarray(value, np.float32)
            if array.shape != shapes[name]:
                raise ArgumentError(f"{name!r} is {array.shape}, not {shapes[name]}")
            arrays[name] = array
        with self._guard:
            self._version += 1
            for name, array in arrays.items():
                _core.model_write(self._handle, name, array)

    def gradients(self) -> dict[str, Any]:
        """The gradients of a trainable model, as NumPy arrays without a copy.

        On a GPU they are float32 copies.
        """
        if not self.trainable:
            raise ArgumentError("the model is not trainable; load it with trainable=True")
        return self._arrays(True)

    def zero_grad(self) -> None:
        """Set all gradients to 0."""
        with self._guard:
            _core.model_zero_gradients(self._handle)

    # ---- batches -----------------------------------------------------------------

    def _batches(
        self,
        input_ids: Any,
        decoder_input_ids: Any = None,
        *,
        cross_mask: Any = None,
        decoder_mask: Any = None,
        decoder_lengths: Any = None,
        **options: Any,
    ) -> tuple[Batch | None, Batch | None]:
        """Source and target."""
        two = self.kind == "encoder-decoder"
        if two != (decoder_input_ids is not None):
            need = "needs" if two else "has no"
            raise ArgumentError(f"the model is {self.kind} and {need} decoder_input_ids")
        if not two and (cross_mask, decoder_mask, decoder_lengths) != (None,) * 3:
            raise ArgumentError(f"the model is {self.kind} and has no cross-attention")
        first = Batch(input_ids, "input_ids", self.tokenizer, **options)
        if self.kind == "encoder-only":
            return first, None
        if not two:
            return None, first
        target = Batch(
            decoder_input_ids,
            "decoder_input_ids",
            self.tokenizer,
            lengths=decoder_lengths,
            mask=decoder_mask,
            cross_mask=cross_mask,
            target=True,
        )
        return first, target

    def logits(self, input_ids: Any, decoder_input_ids: Any = None, **options: Any) -> Any:
        """The logits of every token, (tokens, vocabulary) for each sequence.

        Options are lengths, token_type_ids, mask, prefix_lengths, and of an
        encoder-decoder decoder_lengths, decoder_mask and cross_mask.

        >>> import bauta
        >>> model = bauta.Model.preset("gpt2-tiny", bauta.Tokenizer.bytes(), seed=1)
        >>> one, two = model.logits(["first", "second text"])
        >>> bool((one == model.logits("first")).all())  # the batch changes no bit
        True
        """
        import numpy as np

        source, target = self._batches(input_ids, decoder_input_ids, **options)
        batch = _last(source, target)
        logits = np.empty((batch.rows, self.vocab_size), np.float32)
        with self._guard:
            _core.model_forward(
                self._handle, _tuple(source), _tuple(target), logits, None, None
            )
        return batch.results(logits)

    def hidden_states(
        self, input_ids: Any, decoder_input_ids: Any = None, **options: Any
    ) -> list[Any]:
        """The embedded tokens and the output of every layer of the last stack.

        The last one is taken after the final norm. Options are those of
        :meth:`logits`.
        """
        import numpy as np

        source, target = self._batches(input_ids, decoder_input_ids, **options)
        batch = _last(source, target)
        layers = self.encoder_layers if target is None else self.decoder_layers
        states = np.empty((layers + 1, batch.rows, self.hidden_size), np.float32)
        to = (states, None) if target is None else (None, states)
        with self._guard:
            _core.model_forward(
                self._handle, _tuple(source), _tuple(target), None, *to
            )
        return [batch.results(state) for state in states]

    def _labels(self, batch: Batch, targets: Any) -> Any:
        if targets is not None:
            return batch.flat(targets, "targets", "uint32")
        if self.kind == "encoder-only":
            raise ArgumentError("an encoder needs targets")
        return batch.next_tokens()

    def loss(
        self,
        input_ids: Any,
        decoder_input_ids: Any = None,
        *,
        targets: Any = None,
        weights: Any = None,
        label_smoothing: float = 0.0,
        dropout: float = 0.0,
        seed: int = 0,
        scale: float = 1.0,
        **options: Any,
    ) -> float:
        """The mean cross-entropy in nats; adds to the gradients of the model.

        ``targets`` have the form of the tokens, and are not shifted: the target
        of a row is the token that it is to predict. Negative ones are ignored.
        The default of a decoder is the next token. ``weights`` multiply the
        loss of each row; the mean is over the targets. ``scale`` multiplies
        loss and gradients. Options are those of :meth:`logits`.

        >>> import bauta
        >>> model = bauta.Model.preset("gpt2-tiny", bauta.Tokenizer.bytes(), seed=1)
        >>> loss = model.loss("some text")
        >>> gradient = model.gradients()["transformer.wte.weight"]
        >>> gradient.shape == (model.vocab_size, model.hidden_size)
        True
        >>> bool(gradient.any())
        True
        """
        source, target = self._batches(input_ids, decoder_input_ids, **options)
        batch = _last(source, target)
        labels = self._labels(batch, targets)
        if weights is not None:
            weights = batch.flat(weights, "weights", "float32")
        how = {
            "label_smoothing": label_smoothing,
            "dropout": dropout,
            "seed": seed,
            "weight": scale,
        }
        with self._guard:
            loss, _ = _core.model_loss(
                self._handle, _tuple(source), _tuple(target), labels, weights, how
            )
        return loss

    def logprobs(
        self,
        input_ids: Any,
        decoder_input_ids: Any = None,
        *,
        targets: Any = None,
        **options: Any,
    ) -> Any:
        """The log-probability of the target of every row, as in :meth:`loss`.

        0 for ignored targets, such as that of the last token. A token that
        :meth:`generate` chose has the same bits in ``Generation.logprobs``:

        >>> import bauta
        >>> model = bauta.Model.preset("gpt2-tiny", bauta.Tokenizer.bytes(), seed=1)
        >>> prompt = [1, 2, 3]
        >>> sample = model.generate(prompt, max_new_tokens=5, do_sample=True, seed=7)
        >>> again = model.logprobs(prompt + sample.tokens)
        >>> again[len(prompt) - 1 : -1].tolist() == sample.logprobs
        True
        """
        import numpy as np

        source, target = self._batches(input_ids, decoder_input_ids, **options)
        batch = _last(source, target)
        labels = self._labels(batch, targets)
        logprobs = np.empty(batch.rows, np.float32)
        with self._guard:
            _core.model_logprobs(
                self._handle, _tuple(source), _tuple(target), labels, logprobs
            )
        return batch.results(logprobs)

    def check_finite(
        self, input_ids: Any, decoder_input_ids: Any = None, **options: Any
    ) -> None:
        """Raise NotFiniteError that names the first layer with NaN or infinity."""
        source, target = self._batches(input_ids, decoder_input_ids, **options)
        with self._guard:
            _core.model_check_finite(self._handle, _tuple(source), _tuple(target))

    # ---- generation --------------------------------------------------------------

    def _prompts(self, prompts: Any, is_source: bool) -> tuple[list[Any], bool]:
        """Prompts as lists of ids, and whether it was one."""
        one = isinstance(prompts, str)
        ids = encode_all(prompts, self.tokenizer, "prompts")
        one = one or is_one(ids)
        sequences = [ids] if one else list(ids)
        tokenizer = self.tokenizer
        if tokenizer is not None:
            texts = [prompts] if one else list(prompts)
            sequences = [
                _ended(tokenizer, each, is_source) if isinstance(text, str) else each
                for each, text in zip(sequences, texts)
            ]
        return as_arrays(sequences, "prompts"), one

    def generate(
        self,
        prompts: Any,
        *,
        decoder_input_ids: Any = None,
        stream: bool = False,
        max_sequences: int = 32,
        max_batched_tokens: int = 2048,
        **options: Any,
    ) -> Any:
        """Continue prompts; of an encoder-decoder, translate sources.

        ``prompts`` is one text or sequence of ids, or a list of them. The
        result is a :class:`Generation` for one prompt, and a list of one for
        each prompt otherwise; with num_return_sequences above 1, a list of so
        many for each prompt. A result does not depend on the batch: it has the
        bits of its prompt alone.

        Options have transformers' names, meanings and order: max_new_tokens,
        max_length, min_new_tokens, min_length, do_sample, temperature, top_k,
        top_p, min_p, repetition_penalty, no_repeat_ngram_size, num_beams,
        length_penalty, early_stopping, num_return_sequences,
        renormalize_logits, decoder_start_token_id, forced_bos_token_id,
        forced_eos_token_id, eos_token_id, suppress_tokens, bad_words_ids,
        stop_strings; and ``seed`` (samples are a function of it and of the
        prompt; sample j has seed + j) and ``sliding_window``. Defaults are those
        of the model's generation_config.json. ``decoder_input_ids`` begins the
        target of an encoder-decoder.

        With ``stream`` the result is an iterator over :class:`Token`. Dropping
        it ends the generation. Ctrl-C interrupts between two tokens.
        ``max_sequences`` run at once, the others wait.

        >>> import bauta
        >>> tokenizer = bauta.Tokenizer.characters("abcd")
        >>> model = bauta.Model.preset("gpt2-tiny", tokenizer, seed=1)
        >>> results = model.generate(["ab", "c"], max_new_tokens=2, eos_token_id=[])
        >>> [len(result.tokens) for result in results]
        [2, 2]
        >>> pieces = model.generate("ab", max_new_tokens=4, eos_token_id=[], stream=True)
        >>> sum(token.id is not None for token in pieces)
        4
        """
        is_source = self.kind == "encoder-decoder"
        sequences, one = self._prompts(prompts, is_source)
        if decoder_input_ids is not None and not is_source:
            raise ArgumentError(f"the model is {self.kind} and has no decoder_input_ids")
        start = EMPTY
        if decoder_input_ids is not None:
            start = encode_all(decoder_input_ids, self.tokenizer, "decoder_input_ids")
            start = ids_of(start, "decoder_input_ids")
        seeds = sampled_seeds(options, self.generation_config)
        session = Session(
            self,
            {"max_sequences": max_sequences, "max_batched_tokens": max_batched_tokens},
        )
        if seeds is not None:
            options = {**options, "num_return_sequences": 1}
        handles = [
            options_handle(self, options if seed is None else {**options, "seed": seed})
            for seed in (seeds or [None])
        ]
        for number, ids in enumerate(sequences):
            tokens, source = (start, ids) if is_source else (ids, None)
            for sample, handle in enumerate(handles):
                tag = number * len(handles) + sample
                session.add(tag, handle, tokens, source, stream)
        if stream:
            return session.stream()
        results = session.run()
        per_prompt = [
            [g for s in range(len(handles)) for g in results[p * len(handles) + s]]
            for p in range(len(sequences))
        ]
        many = options.get("num_return_sequences", 1) != 1 or seeds is not None
        if not many:
            per_prompt = [each[0] for each in per_prompt]
        return per_prompt[0] if one else per_prompt

    def translate(self, texts: Any, **options: Any) -> Any:
        """The translation of a text, or of each of a list of texts.

        Options are those of :meth:`generate`, which also gives scores.
        """
        if self.kind != "encoder-decoder":
            raise UnsupportedError(f"the model is {self.kind} and does not translate")
        if self.tokenizer is None:
            raise ArgumentError("the model has no tokenizer")
        results = self.generate(texts, **options)
        if isinstance(results, Generation):
            return results.text
        if results and isinstance(results[0], list):
            return [[each.text for each in some] for some in results]
        return [each.text for each in results]

    def fill(self, text: str, *, top_k: int = 5) -> list[list[Filling]]:
        """The most likely tokens for each "[MASK]" (or "<mask>") of a text."""
        tokenizer = self.tokenizer
        if self.kind != "encoder-only":
            raise UnsupportedError(f"the model is {self.kind} and fills no masks")
        if tokenizer is None or tokenizer.mask_token_id is None:
            raise ArgumentError("the model has no tokenizer with a mask token")
        mask_id = tokenizer.mask_token_id
        mask = tokenizer.id_to_token(mask_id) or ""
        ids = tokenizer.encode(text.replace("[MASK]", mask).replace("<mask>", mask))
        rows = [row for row, id in enumerate(ids) if id == mask_id]
        if not rows:
            raise ArgumentError(f"the text has no {mask}")
        known = min(self.vocab_size, tokenizer.vocab_size)
        top = {"top_k": top_k, "vocab_size": known}
        batch = Batch(ids, "text", None)
        with self._guard:
            found = _core.model_top_tokens(
                self._handle, batch.as_tuple(), None, rows, top
            )
        numbers, shares = memoryview(found[0]).cast("I"), memoryview(found[1]).cast("d")
        result = []
        for gap, row in enumerate(rows):
            at = range(gap * top_k, (gap + 1) * top_k)
            result.append(
                [self._filling(ids, row, numbers[i], shares[i]) for i in at]
            )
        return result

    def _filling(self, ids: list[int], row: int, token: int, share: float) -> Filling:
        tokenizer = self.tokenizer
        assert tokenizer is not None
        kept = [
            token if number == row else id
            for number, id in enumerate(ids)
            if number == row
            or id == tokenizer.mask_token_id
            or not tokenizer.is_special(id)
        ]
        return Filling(
            token,
            tokenizer.decode([token], skip_special_tokens=False),
            share,
            tokenizer.decode(kept, skip_special_tokens=False),
        )

    def embed(
        self,
        texts: Any,
        *,
        pooling: str = "mean",
        normalize: bool = False,
        batch_size: int = 32,
    ) -> Any:
        """One vector for each text or sequence of ids, (count, hidden size).

        ``pooling`` is "mean", "cls" (the first token) or "last". One text gives
        one vector. The vector of a text is the same in any batch.
        """
        import numpy as np

        ids = encode_all(texts, self.tokenizer, "texts")
        one = is_one(ids)
        sequences = [ids] if one else list(ids)
        out = np.empty((len(sequences), self.hidden_size), np.float32)
        how = {"pooling": pooling, "normalize": normalize}
        for first in range(0, len(sequences), max(1, batch_size)):
            part = sequences[first : first + max(1, batch_size)]
            batch = Batch([list(each) for each in part], "texts", None)
            with self._guard:
                _core.model_embed(
                    self._handle, batch.as_tuple(), how, out[first : first + len(part)]
                )
        return out[0] if one else out

    # ---- inspection --------------------------------------------------------------

    def attention_weights(
        self,
        input_ids: Any,
        decoder_input_ids: Any = None,
        *,
        attention: str | None = None,
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        **options: Any,
    ) -> AttentionWeights:
        """Attention weights (layers, heads, queries, keys), with a picture.

        ``attention`` is "encoder", "decoder" or "cross"; the default is the
        last of them that the model has, but "cross". Hidden pairs are exactly
        0, visible ones never are.

        >>> import bauta
        >>> model = bauta.Model.preset("gpt2-tiny", bauta.Tokenizer.bytes(), seed=1)
        >>> weights = model.attention_weights("abc", layers=[0])
        >>> weights.weights.shape[0], weights.weights.shape[2:]
        (1, (3, 3))
        >>> bool(weights.weights[0, 0, 0, 1] == 0)
        True
        """
        import numpy as np

        source, target = self._batches(input_ids, decoder_input_ids, **options)
        if attention is None:
            attention = "encoder" if target is None else "decoder"
        if attention not in ATTENTIONS:
            raise ArgumentError(f"attention is {attention!r}, not one of {ATTENTIONS}")
        kind = ATTENTIONS.index(attention)
        count = self._properties["heads"][kind]
        if count == 0:
            raise ArgumentError(f"the model has no {attention} attention")
        depth = self.encoder_layers if kind == 0 else self.decoder_layers
        layers = list(range(depth)) if layers is None else list(layers)
        heads = list(range(count)) if heads is None else list(heads)
        queries = source if kind == 0 else target
        keys = target if kind == 1 else source
        assert queries is not None and keys is not None
        weights = np.empty(
            (len(layers), len(heads), queries.rows, keys.rows), np.float32
        )
        pairs = [(layer, head) for layer in layers for head in heads]
        with self._guard:
            _core.model_attention_weights(
                self._handle, _tuple(source), _tuple(target), kind, pairs, weights
            )
        labels = [self._tokens_text(batch) for batch in (queries, keys)]
        return AttentionWeights(weights, kind, layers, heads, *labels)

    def _tokens_text(self, batch: Batch) -> list[str] | None:
        if self.tokenizer is None:
            return None
        return decode_all(self.tokenizer, memoryview(batch.ids).cast("B").cast("I"))

    def audit(
        self,
        input_ids: Any = None,
        decoder_input_ids: Any = None,
        *,
        checks: Sequence[str] = (),
        probes: int = 0,
        seed: int = 1,
        **options: Any,
    ) -> Audit:
        """Test the guarantees on this model: does anything leak?

        Without tokens, the batch is two sequences of pseudorandom ones.
        ``checks`` are names such as "reach" or "incremental"; all by default.

        >>> import bauta
        >>> model = bauta.Model.preset("gpt2-tiny", bauta.Tokenizer.bytes(), seed=1)
        >>> audit = model.audit(checks=["reach", "incremental"])
        >>> audit.passed
        True
        """
        if input_ids is None:
            input_ids = [_some_ids(self.vocab_size, n, seed + n) for n in (9, 5)]
            if self.kind == "encoder-decoder":
                decoder_input_ids = [
                    _some_ids(self.vocab_size, n, seed + n) for n in (6, 8)
                ]
        source, target = self._batches(input_ids, decoder_input_ids, **options)
        how = {"probes": probes, "seed": seed}
        with self._guard:
            text = _core.audit_model(
                self._handle, _tuple(source), _tuple(target), list(checks), how
            )
        return Audit(json.loads(text))

    def perplexity(self, corpus: Any, **options: Any) -> dict[str, Any]:
        """The perplexity of a :class:`Corpus`: a dict with "perplexity" and "loss".

        Options are context_length, stride and max_tokens.
        """
        text = self.tokenizer._handle if self.tokenizer is not None else None
        with self._guard:
            return _core.perplexity(self._handle, text, corpus._handle, options)


def _placement(dtype: str | None, device: str | None) -> tuple[int, str | None]:
    """dtype and device for the extension module, which has None for the CPU."""
    if dtype is not None and dtype not in _DTYPES:
        raise ArgumentError(f"dtype is {dtype!r}, not one of {list(_DTYPES)}")
    number = -1 if dtype is None else _DTYPES[dtype]
    return number, None if device == "cpu" else device


def _tuple(batch: Batch | None) -> Any:
    return None if batch is None else batch.as_tuple()


def _last(source: Batch | None, target: Batch | None) -> Batch:
    """The batch whose rows have logits."""
    batch = source if target is None else target
    assert batch is not None
    return batch


def _some_ids(vocab_size: int, count: int, seed: int) -> list[int]:
    ids, state = [], seed
    for _ in range(count):
        state = (state * 1103515245 + 12345) % (1 << 31)
        ids.append((state >> 8) % vocab_size)
    return ids


def _ended(tokenizer: Tokenizer, ids: Any, is_source: bool) -> Any:
    """A source ends with the end token; an empty prompt is the first token."""
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    if is_source:
        done = len(ids) and ids[-1] in (eos, tokenizer.sep_token_id)
        return ids if done or eos is None else [*ids, eos]
    if len(ids):
        return ids
    first = bos if bos is not None else eos
    if first is None:
        raise ArgumentError("the prompt has no tokens")
    return [first]


_TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.json",
    "encoder.json",
    "tokenizer.model",
    "spiece.model",
    "vocab.txt",
    "source.spm",
)


def _folder_tokenizer(folder: str) -> Tokenizer | None:
    """The tokenizer of a folder; None if the folder has no file of one."""
    try:
        return Tokenizer.load(folder)
    except (FileError, FormatError, UnsupportedError):
        if any(os.path.exists(os.path.join(folder, f)) for f in _TOKENIZER_FILES):
            raise
        return None
