"""Parse arguments and options of the command line: times, selections of partitions, and NAME=VALUE pairs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

import click

MAX_INT16: Final = 2**15 - 1
MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
MAX_SECONDS: Final = 10.0**9
"""The longest time that an option accepts: 31 years, whose number of milliseconds fits into every request."""

_EPOCH_MS: Final = re.compile(r"[0-9]{12,16}")
_DURATION: Final = re.compile(r"-?([0-9]+) ?(ms|s|m|min|h|d)(?: ago)?")
_LENGTH: Final = re.compile(r"([0-9]{1,9}) ?(ms|s|m|min|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class Number(click.IntRange):
    """The type of an option with a number from `at_least` to `at_most`, the maximum of the request's field."""

    def __init__(self, at_least: int = 0, at_most: int = MAX_INT32) -> None:
        super().__init__(at_least)  # the help text shows only this limit
        self._most = at_most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number as an int. Raise BadParameter if `value` is not a number or is out of range."""
        number = super().convert(value, param, ctx)
        if number > self._most:
            self.fail(f"{number} is not between {self.min} and {self._most}.", param, ctx)
        return number


class Seconds(click.FloatRange):
    """The type of an option for a time in seconds from `at_least` to `MAX_SECONDS`. Refuses inf and nan."""

    def __init__(self, at_least: float = 0) -> None:
        super().__init__(at_least)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the time as a float. Raise BadParameter if `value` is not a number or is out of range."""
        seconds = super().convert(value, param, ctx)
        if not seconds <= MAX_SECONDS:  # true for nan, too
            self.fail(f"{value} is not a time of at most {MAX_SECONDS:.0f} seconds.", param, ctx)
        return seconds


def moment_ms(text: str, now_ms: int) -> int:
    """Parse a time, and return it in milliseconds since 1970. Raise ValueError if `text` is not a time.

    Accepted forms: `2026-03-01`, `2026-03-01T12:30` (local time), `2026-03-01T12:30:00Z`, `15m` (ago), `1772368200000`
    and `now`. Times before 1970 become 0, because requests have no such times.
    """
    if text == "now":
        return now_ms
    if _EPOCH_MS.fullmatch(text):
        return int(text)
    if duration := _DURATION.fullmatch(text):
        return max(now_ms - int(duration[1]) * _UNITS_MS[duration[2]], 0)
    return max(round(datetime.fromisoformat(text).timestamp() * 1000), 0)


def duration_of(text: str) -> int:
    """Parse a duration such as `30s`, `12h` or `7d`, and return it in milliseconds.

    Raise BadParameter if `text` is not a duration. Options use this function as their type.
    """
    duration = _LENGTH.fullmatch(text)
    if duration is None:
        raise click.BadParameter(f"{text!r} is not a duration. Write for example 30s, 15m, 12h or 7d.")
    return int(duration[1]) * _UNITS_MS[duration[2]]


def time_of(text: str) -> int:
    """Parse a time as `moment_ms` does, relative to the current time. Raise BadParameter if `text` is not a time.

    Options use this function as their type.
    """
    try:
        return moment_ms(text, round(time.time() * 1000))
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is not a time. Write 2026-03-01T12:30 (add Z or +02:00 unless it is local time), or 15m, 2h, 3d"
            " for a time that long ago, or milliseconds since 1970."
        ) from None


def principal_of(text: str) -> str:
    """Return a principal such as `User:alice`. Raise BadParameter for a string that does not name one.

    Options use this function as their type.
    """
    from ..auth.principal import Principal

    try:
        return str(Principal.parse(text))
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


class TopicSelection(NamedTuple):
    """A topic and the selected partitions. An empty tuple selects all partitions."""

    topic: str
    partitions: tuple[int, ...]

    def includes(self, partition: tuple[str, int]) -> bool:
        """Whether a (topic, partition) pair is selected."""
        topic, index = partition
        return topic == self.topic and (not self.partitions or index in self.partitions)


def topic_selection(text: str) -> TopicSelection:
    """Parse `orders` or `orders:0,1`. Raise BadParameter for any other form. Options use this as their type."""
    topic, colon, partitions = text.partition(":")
    if not topic or (colon and not re.fullmatch(r"[0-9]+(,[0-9]+)*", partitions)):
        raise click.BadParameter(f"{text!r} is not TOPIC or TOPIC:PARTITION,PARTITION, such as orders or orders:0,1")
    return TopicSelection(topic, tuple(sorted({int(each) for each in partitions.split(",") if each})))


def bytes_of(text: str) -> bytes:
    """Return an argument of the command line in UTF-8. Bytes that are not valid UTF-8 stay as they were given."""
    return text.encode(errors="surrogateescape")


def name_and_value(pair: str, option: str) -> tuple[str, str]:
    """Split NAME=VALUE, and return name and value. Raise BadParameter for any other form."""
    name, equals, value = pair.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint=option)
    return name, value


def config_changes(pairs: Iterable[str], unset: Iterable[str]) -> dict[str, str | None]:
    """Return the configs to set (`pairs` of NAME=VALUE) and to remove, the latter with the value None.

    Raises click.UsageError if a name occurs twice or if there is nothing to change.
    """
    changes: dict[str, str | None] = dict.fromkeys(unset)
    for pair in pairs:
        key, value = name_and_value(pair, "--set")
        if key in changes:
            raise click.UsageError(f"{key} is given twice")
        changes[key] = value
    if not changes:
        raise click.UsageError("nothing to change: give --set NAME=VALUE or --unset NAME")
    return changes
