# SPDX-License-Identifier: Apache-2.0
"""Attention weights and audits, with their pictures in notebooks."""

from __future__ import annotations

import html
import os
import tempfile
from typing import Any, Iterator, Sequence

from . import _core

ATTENTIONS = ("encoder", "decoder", "cross")


class AttentionWeights:
    """Attention weights of some layers and heads of a model.

    ``weights`` is a NumPy array (layers, heads, queries, keys). Notebooks show a
    page on which layer and head can be chosen.
    """

    weights: Any
    attention: str
    layers: list[int]
    heads: list[int]
    query_tokens: list[str] | None
    key_tokens: list[str] | None

    def __init__(
        self,
        weights: Any,
        kind: int,
        layers: Sequence[int],
        heads: Sequence[int],
        query_tokens: list[str] | None,
        key_tokens: list[str] | None,
    ) -> None:
        self.weights = weights
        self._kind = kind
        self.attention = ATTENTIONS[kind]
        self.layers, self.heads = list(layers), list(heads)
        self.query_tokens, self.key_tokens = query_tokens, key_tokens

    def save(self, path: str | os.PathLike[str], *, title: str | None = None) -> None:
        """Write a picture: .html, or .png, .svg and .pdf if cairo is there."""
        queries, keys = self.weights.shape[2:]
        pictures = [
            (
                self._kind,
                layer,
                head,
                queries,
                keys,
                self.weights[i, j],
                self.query_tokens,
                self.key_tokens,
            )
            for i, layer in enumerate(self.layers)
            for j, head in enumerate(self.heads)
        ]
        _core.picture_save(os.fspath(path), title, pictures)

    def __repr__(self) -> str:
        shape = tuple(self.weights.shape)
        return f"<bauta.AttentionWeights {self.attention}, {shape}>"

    def _repr_html_(self) -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "weights.html")
            self.save(path)
            with open(path, encoding="utf-8") as file:
                page = file.read()
        return (
            '<iframe style="border:0" width="100%" height="600" '
            f'srcdoc="{html.escape(page)}"></iframe>'
        )


class Audit:
    """The findings of an audit, a dict for each check.

    ``passed`` is False if a check failed; ``findings`` have "check", "verdict"
    ("passed", "failed" or "skipped") and "message".
    """

    passed: bool
    findings: list[dict[str, Any]]

    def __init__(self, report: dict[str, Any]) -> None:
        self.passed = report["passed"]
        self.findings = report["findings"]

    def __bool__(self) -> bool:
        return self.passed

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.findings)

    def __str__(self) -> str:
        return "\n".join(
            f"{f['verdict']:8} {f['check']:12} {f.get('message') or ''}".rstrip()
            for f in self.findings
        )

    def __repr__(self) -> str:
        verdict = "passed" if self.passed else "failed"
        return f"<bauta.Audit {verdict}, {len(self.findings)} checks>"

    def _repr_html_(self) -> str:
        rows = "".join(
            "<tr>"
            + "".join(
                f"<td>{html.escape(str(f.get(name) or ''))}</td>"
                for name in ("check", "verdict", "message")
            )
            + "</tr>"
            for f in self.findings
        )
        return f"<table><tr><th>check<th>verdict<th></tr>{rows}</table>"
