"""Builds and parses the records of the offsets topic.

A key is the compact JSON of [connector, partition]. A value is the compact JSON of the offset. In the worker's topic, a
tombstone deletes an offset. In a connector's own topic, the value `null` deletes it, because this record remains when
the topic is compacted: a copy of the deleted offset that reaches the worker's topic later must be ignored (see
`StoredOffsets`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ..api.records import SourceOffset, SourcePartition
from ..data import json_text
from ..data.java_maps import hash_order
from ..errors import DataError

DELETED: Final = b"null"
"""The value of a deleted offset in a connector's own topic."""

_PLAIN = (str, bool, int, float, type(None))


def offset_key(connector: str, partition: SourcePartition) -> bytes:
    """Return the key of a source partition, byte for byte as a Java worker writes it.

    Raises DataError for invalid data.
    """
    _check(partition, "partition")
    return json_text.dumps([connector, dict(partition)])


def sorted_key(connector: str, partition: SourcePartition) -> bytes:
    """Return the key with the partition's names sorted, so that the order of the names makes no difference.

    Raises DataError for data that JSON in UTF-8 cannot represent.
    """
    return json_text.dumps([connector, {name: partition[name] for name in sorted(partition)}])


def hashed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy in HashMap order, the order in which Kafka Connect writes the offsets that a user sets."""
    return {name: values[name] for name in hash_order(values)}


def offset_value(offset: SourceOffset | None) -> bytes | None:
    """Return the record value of an offset; None stays None, a tombstone. Raises DataError for invalid data."""
    if offset is None:
        return None
    _check(offset, "offset")
    return json_text.dumps(dict(offset))


def without_tombstones(pairs: Iterable[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes | None]]:
    """Return the records for a connector's own topic, with DELETED instead of tombstones."""
    return [(key, DELETED if value is None else value) for key, value in pairs]


def parse_key(key: bytes) -> tuple[str, dict[str, Any]]:
    """Return (connector, partition). Raises DataError for a key that does not have Kafka Connect's format."""
    match json_text.loads(key):
        case [str(connector), dict(partition)]:
            return connector, partition
    raise DataError("the key does not name a connector and a source partition")


def parse_value(value: bytes | None) -> dict[str, Any] | None:
    """Return the offset in a record's value, or None if the offset was deleted. Raises DataError for invalid JSON."""
    if value is None:
        return None
    offset = json_text.loads(value)
    if offset is not None and not isinstance(offset, dict):
        raise DataError(f"an offset must be a JSON object, not {type(offset).__name__}")
    return offset


def _check(data: Any, what: str) -> None:
    """Raise DataError unless `data` is a mapping from strings to plain values; Kafka Connect allows nothing else."""
    if not isinstance(data, dict) and not hasattr(data, "keys"):
        raise DataError(f"a source {what} must be a mapping, not {type(data).__name__}")
    for name, value in data.items():
        if not isinstance(name, str):
            raise DataError(f"a source {what} has the key {name!r}: keys must be text")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise DataError(f"a source {what} has {value} under {name!r}: whole numbers must fit into 64 bits")
        if not isinstance(value, _PLAIN):
            raise DataError(
                f"a source {what} has {type(value).__name__} under {name!r}: only text, numbers, booleans and null are "
                "allowed"
            )
