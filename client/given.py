"""Checks the topics, partitions, positions, names, numbers and times that a program passes, before they take effect.

A wrong type raises TypeError, which names the right type. A value that no request can carry is refused here as well,
because a request that is sent in the background would fail the records of other callers. A negative offset is refused
because brokers store it as "no offset", so that the group would start at another position.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, SupportsIndex

from ..protocol.errors import ErrorCode
from .errors import ConfigError, IllegalStateError, InvalidTopicError
from .values import OffsetAndMetadata, Offsets, TopicPartition

MAX_TOPIC_NAME: Final = 249
"""Maximum number of characters of a topic name (Kafka's Topic.MAX_NAME_LENGTH)."""

_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
MAX_STRING: Final = 2**15 - 1
"""Maximum bytes of a string in a request without compact strings."""
MAX_INT16: Final = 2**15 - 1
MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1


def given_only(**arguments: object) -> dict[str, Any]:
    """Return the arguments that are not None."""
    return {name: argument for name, argument in arguments.items() if argument is not None}


def topic_of(given: object) -> str:
    """Return a topic's name; raises TypeError, or InvalidTopicError for a name that no broker accepts."""
    if not isinstance(given, str):
        hint = "; decode it: topic.decode()" if isinstance(given, bytes) else ""
        raise TypeError(f"topic must be a str, not {type(given).__name__}{hint}")
    if not given:
        problem = "is empty"
    elif given in (".", ".."):
        problem = "is not a name"
    elif len(given) > MAX_TOPIC_NAME:
        problem = f"has {len(given)} characters, but at most {MAX_TOPIC_NAME} are allowed"
    elif not _TOPIC_NAME.fullmatch(given):
        problem = "has characters other than ASCII letters, digits, '.', '_' and '-'"
    else:
        return given
    raise InvalidTopicError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {given[:300]!r} {problem}")


def topics_of(given: Iterable[object]) -> list[str]:
    """Return topic names as a list; raises TypeError for a single string, which would be a sequence of letters."""
    if isinstance(given, str | bytes):
        raise TypeError(f"topics={given!r} is one name: give a list of topic names")
    return [topic_of(name) for name in given]


def whole_number(given: object, name: str, at_most: int, hint: str = "", *, at_least: int = 0) -> int:
    """Return a whole number; raises TypeError for another type, and ValueError outside of `at_least` to `at_most`."""
    if isinstance(given, bool) or not isinstance(given, SupportsIndex):
        raise TypeError(f"{name} must be an int, not {type(given).__name__}{hint}")
    number = given.__index__()
    if not at_least <= number <= at_most:
        raise ValueError(f"{name} {number} is not from {at_least} to {at_most}")
    return number


def duration_of(given: object, name: str) -> float:
    """Return a duration, in the unit that `name` ends with.

    Raises TypeError for a value that is not a number, and ValueError for a negative number, infinity or NaN.
    """
    if isinstance(given, bool) or not isinstance(given, float | SupportsIndex):
        raise TypeError(f"{name} must be a number, not {type(given).__name__}")
    duration = given if isinstance(given, float) else float(given.__index__())
    if not math.isfinite(duration) or duration < 0:
        raise ValueError(f"{name} {duration:g} is not a finite number of at least 0")
    return duration


def duration_setting(given: object, name: str) -> float:
    """Return a duration for an argument of a constructor; raises ConfigError for an invalid value."""
    try:
        return duration_of(given, name)
    except (TypeError, ValueError) as error:
        raise ConfigError(name, str(error).removeprefix(f"{name} ")) from None


def count_setting(given: object, name: str, *, at_least: int = 1, at_most: int = MAX_INT32) -> int:
    """Return a count for an argument of a constructor; raises ConfigError for an invalid value."""
    try:
        return whole_number(given, name, at_most, at_least=at_least)
    except (TypeError, ValueError) as error:
        raise ConfigError(name, str(error).removeprefix(f"{name} ")) from None


def partition_of(given: object) -> TopicPartition:
    """Return a (topic, partition) pair as a TopicPartition; raises TypeError for another value."""
    match given:
        case (str(topic), int(partition)) if not isinstance(partition, bool):
            return TopicPartition(topic_of(topic), whole_number(partition, "partition", MAX_INT32))
    raise TypeError(f"{given!r} is not a (topic, partition) pair")


def partitions_of(given: Iterable[object]) -> frozenset[TopicPartition]:
    """Return (topic, partition) pairs as a set of TopicPartitions."""
    if isinstance(given, str):
        raise TypeError(f"{given!r} is a string: give (topic, partition) pairs")
    return frozenset(partition_of(one) for one in given)


def positions_of(given: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return positions to commit, by partition. A plain int becomes an offset without metadata."""
    if not isinstance(given, Mapping):
        raise TypeError(f"offsets must be a mapping from (topic, partition) to the next offset to read, not {given!r}")
    positions: dict[TopicPartition, OffsetAndMetadata] = {}
    for key, at in given.items():
        partition = partition_of(key)
        position = at if isinstance(at, OffsetAndMetadata) else OffsetAndMetadata(at)
        offset, metadata, epoch = position
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise TypeError(f"offset {offset!r} of {partition} is not a whole number")
        if not isinstance(metadata, str) or not isinstance(epoch, int):
            raise TypeError(f"{position!r} for {partition}: metadata is a string, and leader_epoch a whole number")
        if not 0 <= offset <= MAX_INT64:
            raise IllegalStateError(f"cannot commit offset {offset} for {partition}: it is not from 0 to 2^63 - 1")
        if not -1 <= epoch <= MAX_INT32:
            raise ValueError(f"leader_epoch {epoch} for {partition} is not from -1 to {MAX_INT32}")
        positions[partition] = position
    return positions


def name_of(given: object, what: str) -> str:
    """Return a name; the broker decides which names are valid. `what` names the argument in errors.

    Raises TypeError for another type, and ValueError for a string that no request can carry.
    """
    if not isinstance(given, str):
        hint = f"; decode it: {given!r:.100}.decode()" if isinstance(given, bytes) else ""
        raise TypeError(f"{what} must be a str, not {type(given).__name__}{hint}")
    try:
        size = len(given.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} {given!r:.300} cannot be encoded as UTF-8") from None
    if size > MAX_STRING:
        raise ValueError(f"{what} has {size} bytes, but at most {MAX_STRING} are allowed")
    return given


def names_of(given: Iterable[str], what: str) -> list[str]:
    """Return names as a list; raises TypeError for a single string, which would be a sequence of letters."""
    if isinstance(given, str | bytes):
        raise TypeError(f"{what}: {given!r:.300} is one name: give a list of names")
    return [name_of(name, f"each of {what}") for name in given]
