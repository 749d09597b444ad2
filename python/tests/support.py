# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests, which run with pytest or with run_tests.py alone."""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import unittest


def need(module):
    """The module, or skip the tests of this file."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise unittest.SkipTest(f"there is no {module}") from None


@contextlib.contextmanager
def raises(kind, text=""):
    """The block raises an exception of this kind, whose message has the text."""
    try:
        yield
    except kind as error:
        assert text in str(error), f"want {text!r}, got {error!s}"
    else:
        raise AssertionError(f"no {kind.__name__} was raised")


def all_raise(cases):
    """Each (call, kind, text) raises that kind, and the message has the text."""
    for number, (call, kind, text) in enumerate(cases):
        try:
            with raises(kind, text):
                call()
        except AssertionError as error:
            raise AssertionError(f"case {number}: {error}") from None


def seed():
    """The seed of a random test; it is printed when the test fails."""
    number = int(
        os.environ.get("BAUTA_SEED") or random.SystemRandom().randrange(1 << 31)
    )
    print(f"BAUTA_SEED={number}")
    return number
