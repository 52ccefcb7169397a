"""Finds out by names and content whether a file may be a copy of another one, made by a rotation or by gzip."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from .lines import LineFile

_ROTATION: Final = re.compile(r"([.\-_]\d[\d.\-_T:]*)?(\.gz)?$")
"""The suffix of a rotated file: a number or a date, and .gz if it is compressed."""

_SECOND_NS: Final = 1_000_000_000


class Match(Enum):
    """The result of comparing a file with a file that may be its original."""

    DIFFERENT = "different"
    BEGINNING = "beginning"
    """The original begins with the content of the copy."""
    WHOLE = "whole"
    """Both files have the same content, and the copy is not older than the original."""


def base_name(name: str) -> str:
    """Return the name of a file's log: the file's name without .gz, and without a number or date at the end."""
    return _ROTATION.sub("", name)


def is_copy_name(copy: str, original: str, *, was_read: bool) -> bool:
    """Return whether a file may be a copy of another according to their names.

    A copy has the original's name plus .gz. If lines of the original were read, it may also have the name plus a
    number or date, with or without .gz.
    """
    if not copy.startswith(original):
        return False
    suffix = copy[len(original) :]
    return suffix == ".gz" or (was_read and _ROTATION.fullmatch(suffix) is not None)


def compare(copy: LineFile, original: LineFile) -> Match | None:
    """Compare a file with the beginning of a file that may be its original.

    Returns None if the copy is longer than the original, and the original has changed during the comparison. Raises
    FileNotReadyError.
    """
    stamp = original.stamp()
    ours, theirs = original.chunks(), copy.chunks()
    left = right = b""
    while True:
        left, right = left or next(ours, b""), right or next(theirs, b"")
        common = min(len(left), len(right))
        if common == 0:
            break
        if left[:common] != right[:common]:
            return Match.DIFFERENT
        left, right = left[common:], right[common:]
    if right:
        return Match.DIFFERENT if original.stamp() == stamp else None
    return Match.BEGINNING if left or _is_older(copy.stamp(), stamp) else Match.WHOLE


def _is_older(copy: tuple[int, int], original: tuple[int, int]) -> bool:
    """Return whether a copy was modified before the original. Some tools round the time of a copy down to seconds."""
    time_ns, original_ns = copy[1], original[1]
    return time_ns < (original_ns - original_ns % _SECOND_NS if time_ns % _SECOND_NS == 0 else original_ns)
