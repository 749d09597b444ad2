# SPDX-License-Identifier: Apache-2.0
"""Runs the tests without pytest: every function test_*() of every file
test_*.py.

    run_tests.py [--no-torch] [NAME...]

Files whose modules are missing are skipped. With names, only these files run.
"""

from __future__ import annotations

import importlib
import pathlib
import sys
import unittest

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here))


def file_suite(path):
    try:
        module = importlib.import_module(path.stem)
    except unittest.SkipTest as skipped:
        print(f"{path.name}: skipped, {skipped}")
        return unittest.TestSuite()
    return unittest.TestSuite(
        unittest.FunctionTestCase(function, description=f"{path.stem}.{name}")
        for name, function in vars(module).items()
        if name.startswith("test_")
    )


def main(args):
    if "--no-torch" in args:
        args.remove("--no-torch")
        for name in ("torch", "transformers"):
            sys.modules[name] = None  # importing it then fails
    suite = unittest.TestSuite()
    for path in sorted(here.glob("test_*.py")):
        if not args or path.stem in args:
            suite.addTest(file_suite(path))
    result = unittest.TextTestRunner(buffer=True).run(suite)
    return not result.wasSuccessful()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
