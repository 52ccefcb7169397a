"""Ranges of plugin versions, in Maven's notation (KIP-891): 1.0, [1.0,2.0), (,1.0],[1.2,).

A version without brackets means exactly this version, as in Kafka Connect.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from .errors import BadRequestError

LATEST: Final = "latest"
"""The setting's value that requests the newest version; the default."""

_SET: Final = re.compile(r"([\[(])([^\[\]()]*)([\])])")
_NUMBERS: Final = re.compile(r"[0-9]+(?:\.[0-9]+)*")


class _Interval(NamedTuple):
    low: str
    high: str
    low_included: bool
    high_included: bool

    def contains(self, version: str) -> bool:
        """Return whether a version lies between the limits; an interval without limits contains no version."""
        at = _order(version)
        above = not self.low or _order(self.low) < at or (self.low_included and _order(self.low) == at)
        below = not self.high or at < _order(self.high) or (self.high_included and _order(self.high) == at)
        return bool(self.low or self.high) and above and below

    def __str__(self) -> str:
        return f"{'[' if self.low_included else '('}{self.low},{self.high}{']' if self.high_included else ')'}"


def version_setting(name: str) -> str:
    """Return the name of the setting for a plugin's version: key.converter.plugin.version for key.converter."""
    return re.sub(r"\.(class|type)$", "", name) + ".plugin.version"


def mismatch(name: str, requested: str | None, available: str) -> str | None:
    """Return the error message if a plugin's version is not in the requested range; None if it is.

    Raises BadRequestError if the request is not a range of versions.
    """
    if requested is None or requested == LATEST:
        return None
    intervals = _parse(requested.strip())
    if any(interval.contains(available) for interval in intervals):
        return None
    wanted = ",".join(map(str, intervals))
    return f"Plugin {name} not found that matches the version range {wanted}, available versions: [{available}]"


def require(name: str, requested: str | None, available: str) -> None:
    """Raise BadRequestError unless a plugin's version is in the requested range."""
    problem = mismatch(name, requested, available)
    if problem is not None:
        raise BadRequestError(problem)


def _parse(text: str) -> list[_Interval]:
    if not text.startswith(("[", "(")):
        text = f"[{text}]"
    intervals: list[_Interval] = []
    for part in re.split(r"(?<=[\])])\s*,\s*", text):
        found = _SET.fullmatch(part.strip())
        if found is None:
            unbounded = part[:1] in ("[", "(") and not re.search(r"[\])]", part)
            problem = "Unbounded range" if unbounded else "Only fully-qualified sets allowed in multiple set scenario"
            raise BadRequestError(f"{problem}: {text}")
        intervals.append(_interval(found, text))
        if len(intervals) > 1 and not _follows(intervals[-2], intervals[-1]):
            raise BadRequestError(f"Ranges overlap: {text}")
    return intervals


def _interval(found: re.Match[str], text: str) -> _Interval:
    low, comma, high = (part.strip() for part in found[2].partition(","))
    if not comma:
        if found[0][0] != "[" or found[0][-1] != "]":
            raise BadRequestError(f"Single version must be surrounded by []: {text}")
        high = low
    interval = _Interval(low, high, found[1] == "[", found[3] == "]")
    if low and high and not (_order(low) < _order(high) or (low == high and found[1] + found[3] == "[]")):
        raise BadRequestError(f"Range defies version ordering: {text}")
    return interval


def _follows(first: _Interval, second: _Interval) -> bool:
    return bool(first.high and second.low) and _order(first.high) <= _order(second.low)


def _order(version: str) -> tuple[tuple[int, ...], bool, str]:
    """Return the sort key of a version: its numbers, then its qualifier; 1.0-rc1 is before 1.0, which equals 1.0.0."""
    found = _NUMBERS.match(version)
    numbers = [int(number) for number in found[0].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    qualifier = version[found.end() :] if found else version
    return tuple(numbers), not qualifier, qualifier.lower()
