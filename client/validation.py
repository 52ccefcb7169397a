"""Checks the topics, partitions, positions, names, numbers and times that a program passes, before they take effect.

A wrong type raises TypeError, which names the right type. A value that no request can carry is refused here as well. In
a request that is sent in the background, it would make the records of other callers fail as well. A negative offset is
refused because brokers store it as "no offset", so that the group would start at another position.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, SupportsIndex

from ..protocol.errors import ErrorCode
from ..protocol.schema import NO_UUID
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


def without_none(**arguments: object) -> dict[str, Any]:
    """Return the arguments that are not None."""
    return {name: argument for name, argument in arguments.items() if argument is not None}


def topic_of(topic: object) -> str:
    """Return a topic's name. Raises TypeError, or InvalidTopicError for a name that no broker accepts."""
    if not isinstance(topic, str):
        hint = "; decode it: topic.decode()" if isinstance(topic, bytes) else ""
        raise TypeError(f"topic must be a str, not {type(topic).__name__}{hint}")
    if not topic:
        problem = "is empty"
    elif topic in (".", ".."):
        problem = "is not a name"
    elif len(topic) > MAX_TOPIC_NAME:
        problem = f"has {len(topic)} characters, but at most {MAX_TOPIC_NAME} are allowed"
    elif not _TOPIC_NAME.fullmatch(topic):
        problem = "has characters other than ASCII letters, digits, '.', '_' and '-'"
    else:
        return topic
    raise InvalidTopicError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {topic[:300]!r} {problem}")


def topics_of(topics: Iterable[object]) -> list[str]:
    """Return topic names as a list. Raises TypeError for a single string, which would count as a list of letters."""
    if isinstance(topics, str | bytes):
        raise TypeError(f"topics={topics!r} is one name: give a list of topic names")
    return [topic_of(name) for name in topics]


def whole_number(value: object, name: str, at_most: int, hint: str = "", *, at_least: int = 0) -> int:
    """Return `value` as an int.

    Raises TypeError if it is not an integer, and ValueError if it is not between `at_least` and `at_most`.
    """
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}{hint}")
    number = value.__index__()
    if not at_least <= number <= at_most:
        raise ValueError(f"{name} {number} is not between {at_least} and {at_most}")
    return number


def duration_of(value: object, name: str) -> float:
    """Return a duration, in the unit that `name` ends with.

    Raises TypeError for a value that is not a number, and ValueError for a negative number, infinity or NaN.
    """
    if isinstance(value, bool) or not isinstance(value, float | SupportsIndex):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    duration = value if isinstance(value, float) else float(value.__index__())
    if not math.isfinite(duration) or duration < 0:
        raise ValueError(f"{name} must be a finite number, 0 or greater, not {duration:g}")
    return duration


def duration_setting(value: object, name: str) -> float:
    """Return a constructor's argument as a duration in seconds. Raises ConfigError for an invalid value."""
    try:
        return duration_of(value, name)
    except (TypeError, ValueError) as error:
        raise ConfigError(name, str(error).removeprefix(f"{name} ")) from None


def count_setting(value: object, name: str, *, at_least: int = 1, at_most: int = MAX_INT32) -> int:
    """Return a constructor's argument as a count. Raises ConfigError for an invalid value."""
    try:
        return whole_number(value, name, at_most, at_least=at_least)
    except (TypeError, ValueError) as error:
        raise ConfigError(name, str(error).removeprefix(f"{name} ")) from None


def partition_of(value: object) -> TopicPartition:
    """Return a (topic, partition) pair as a TopicPartition.

    Raises TypeError for another value, InvalidTopicError for a name that no broker accepts, and ValueError for a number
    that no partition can have.
    """
    match value:
        case (str(topic), int(partition)) if not isinstance(partition, bool):
            return TopicPartition(topic_of(topic), whole_number(partition, "partition", MAX_INT32))
    raise TypeError(f"{value!r} is not a (topic, partition) pair")


def partitions_of(partitions: Iterable[object]) -> frozenset[TopicPartition]:
    """Return (topic, partition) pairs as a set of TopicPartitions. Raises the errors of `partition_of`."""
    if isinstance(partitions, str):
        raise TypeError(f"{partitions!r} is a string: give (topic, partition) pairs")
    return frozenset(partition_of(one) for one in partitions)


def positions_of(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return positions to commit, by partition. A plain int becomes an offset without metadata.

    Raises the errors of `partition_of`. Also raises TypeError for a wrong type, IllegalStateError for an offset out of
    range, and ValueError for a leader epoch out of range.
    """
    if not isinstance(offsets, Mapping):
        raise TypeError(
            f"offsets must be a mapping from (topic, partition) to the next offset to read, not {offsets!r}"
        )
    positions: dict[TopicPartition, OffsetAndMetadata] = {}
    for key, at in offsets.items():
        partition = partition_of(key)
        position = at if isinstance(at, OffsetAndMetadata) else OffsetAndMetadata(at)
        offset, metadata, epoch, topic_id = position
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise TypeError(f"offset {offset!r} of {partition} is not a whole number")
        if not isinstance(metadata, str) or not isinstance(epoch, int) or isinstance(epoch, bool):
            raise TypeError(f"{position!r} for {partition}: metadata must be a string, and leader_epoch a whole number")
        if not isinstance(topic_id, bytes) or len(topic_id) != len(NO_UUID):
            raise TypeError(f"{position!r} for {partition}: topic_id must be {len(NO_UUID)} bytes")
        if not 0 <= offset <= MAX_INT64:
            raise IllegalStateError(f"cannot commit offset {offset} for {partition}: it is not between 0 and 2^63 - 1")
        if not -1 <= epoch <= MAX_INT32:
            raise ValueError(f"leader_epoch {epoch} for {partition} is not between -1 and {MAX_INT32}")
        positions[partition] = position
    return positions


def name_of(value: object, what: str) -> str:
    """Return a name; the broker decides which names are valid. `what` names the argument in errors.

    Raises TypeError for another type, and ValueError for a string that no request can carry.
    """
    if not isinstance(value, str):
        hint = f"; decode it: {value!r:.100}.decode()" if isinstance(value, bytes) else ""
        raise TypeError(f"{what} must be a str, not {type(value).__name__}{hint}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} {value!r:.300} cannot be encoded as UTF-8") from None
    if size > MAX_STRING:
        raise ValueError(f"{what} has {size} bytes, but at most {MAX_STRING} are allowed")
    return value


def names_of(names: Iterable[str], what: str) -> list[str]:
    """Return names as a list. Raises TypeError for a single string, which would count as a list of letters."""
    if isinstance(names, str | bytes):
        raise TypeError(f"{what}: {names!r:.300} is one name: give a list of names")
    return [name_of(name, f"each of {what}") for name in names]


def check_callback(callback: object, what: str) -> None:
    """Raise TypeError for a callback that cannot be called, or for a coroutine function, whose body would never run."""
    if not callable(callback):
        raise TypeError(f"{what} must be a function, not {type(callback).__name__}")
    code = getattr(callback, "__code__", None)
    if code is not None and code.co_flags & inspect.CO_COROUTINE:
        raise TypeError(f"{what} is a coroutine function, but it is called and not awaited: give a plain function")
