# SPDX-License-Identifier: Apache-2.0
"""Exceptions, one for each status of the library."""

from __future__ import annotations

__all__ = [
    "ArgumentError",
    "DeviceError",
    "Error",
    "FileError",
    "FormatError",
    "NotFiniteError",
    "OutOfMemoryError",
    "UnsupportedError",
]


class Error(Exception):
    """Base class of the library's errors. The text names the value.

    >>> import bauta
    >>> try:
    ...     bauta.Mask.parse("windw(2)", 4)
    ... except bauta.Error as error:
    ...     print(error)
    column 1: there is no mask 'windw'; did you mean 'window'?
    """

    status: int = 0


class ArgumentError(Error, ValueError):
    """An argument is out of range, or arguments do not fit together."""

    status = 1


class OutOfMemoryError(Error, MemoryError):
    """Memory ran out."""

    status = 2


class FileError(Error, OSError):
    """A file cannot be read or written."""

    status = 3


class UnsupportedError(Error, NotImplementedError):
    """The library cannot do this, or not on this machine."""

    status = 4


class NotFiniteError(Error, ArithmeticError):
    """A result is NaN or infinite."""

    status = 5


class FormatError(Error, ValueError):
    """A file is malformed."""

    status = 6


class DeviceError(Error, RuntimeError):
    """A device failed."""

    status = 7


_by_status = {kind.status: kind for kind in Error.__subclasses__()}
for _kind in (Error, *Error.__subclasses__()):
    _kind.__module__ = "bauta"


def error_of(status: int, message: str) -> Error:
    """The exception of a status; called by the extension module."""
    return _by_status.get(status, Error)(message)
