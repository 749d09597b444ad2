# SPDX-License-Identifier: Apache-2.0
"""The examples of docstrings, documents and examples/python run as shown."""

from __future__ import annotations

import doctest
import importlib
import pathlib
import re
import subprocess
import sys
import unittest

from support import need

need("numpy")
tree = pathlib.Path(__file__).resolve().parents[2]


def run(results):
    assert results.failed == 0 and results.attempted > 0, results


def test_docstrings():
    for name in (
        "bauta",
        "bauta._attention",
        "bauta._cache",
        "bauta._mask",
        "bauta._model",
        "bauta._tokenizer",
        "bauta._train",
    ):
        run(doctest.testmod(importlib.import_module(name)))


def test_everything_public_has_a_docstring():
    import bauta

    for name in bauta.__all__:
        thing = getattr(bauta, name)
        assert thing.__doc__, name
        if not isinstance(thing, type) or issubclass(thing, Exception):
            continue
        for member, value in vars(thing).items():
            if not member.startswith("_") and callable(value):
                assert getattr(thing, member).__doc__, (name, member)


def blocks(path, word):
    """The ```word blocks of a page."""
    return re.findall(rf"^```{word}\n(.*?)^```", path.read_text(), re.M | re.S)


def page(torch):
    """Blocks that use PyTorch, or the others."""
    path = tree / "docs" / "python.md"
    texts = [b for b in blocks(path, "pycon") if ("torch" in b) == torch]
    test = doctest.DocTestParser().get_doctest(
        "\n".join(texts), {}, "docs/python.md", str(path), 0
    )
    runner = doctest.DocTestRunner()
    runner.run(test)
    run(runner.summarize())


def test_documentation_page():
    page(False)


def test_documentation_page_with_torch():
    try:
        import torch
    except ImportError:
        raise unittest.SkipTest("there is no torch") from None
    page(True)


def test_readme():
    for path in (tree / "README.md", tree / "python" / "README.md"):
        texts = blocks(path, "python")
        assert texts, path
        for text in texts:
            if "torch" not in text:
                exec(compile(text, str(path), "exec"), {})


def test_example_script():
    script = tree / "examples" / "python" / "attention.py"
    result = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "same bits" in result.stdout


def test_example_notebook():
    """The cells run in order, and what a cell shows has a picture."""
    import ast
    import json

    path = tree / "examples" / "python" / "tour.ipynb"
    names, pictures = {}, 0
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        module = ast.parse("".join(cell["source"]))
        last = module.body[-1]
        if isinstance(last, ast.Expr):
            module.body.pop()
        exec(compile(module, str(path), "exec"), names)
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), str(path), "eval"), names)
            pictures += bool(getattr(shown, "_repr_html_", str)())
    assert pictures == 3, pictures


def test_reinforcement_learning_does_not_diverge():
    script = tree / "examples" / "grpo.py"
    command = [sys.executable, script, "--sampler", "bauta", "--seeds", "1"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "divergence 0.0 over" in result.stdout
