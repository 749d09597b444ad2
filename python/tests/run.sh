#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh - the tests of the Python package with an extension module that was
# just built, without installing it.
#
#   run.sh PYTHON python/ _core.abi3.so [OPTION...]
#
# Options are those of run_tests.py. Tests that need NumPy, PyTorch or
# transformers are skipped where those are missing. The module serves every
# Python, so the system's is used if it has NumPy and PYTHON has not.
set -eu
python=$1 source=$(cd "$2" && pwd) module=$(realpath "$3")
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null
then
    echo "there is no Python 3.9 or later"
    exit 77
fi
if ! "$python" -c 'import numpy' 2>/dev/null &&
    /usr/bin/python3 -c 'import numpy' 2>/dev/null; then
    python=/usr/bin/python3
fi
mkdir "$work/bauta"
for file in "$source"/bauta/*.py "$module"; do
    ln -s "$file" "$work/bauta/"
done
PYTHONPATH=$work PYTHONDONTWRITEBYTECODE=1 \
    "$python" "$source/tests/run_tests.py" "$@"
