"""`SourceRecord`: a record that a source task returns, with the position in the source that follows the record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..data.schema import Schema

SourcePartition = Mapping[str, Any]
"""A part of the source, such as {"filename": "a.txt"}: a mapping from names to JSON values."""

SourceOffset = Mapping[str, Any]
"""A position in a source partition, such as {"position": 17}: a mapping from names to JSON values."""


class Header(NamedTuple):
    """A header of a record: its name, its value and the value's schema."""

    key: str
    value: Any
    schema: Schema | None = None


@dataclass(slots=True, kw_only=True)  # not frozen, because that triples the time to create a record
class SourceRecord:
    """One record for a topic. Do not change it after `poll` has returned it; transforms use `replace`.

    `timestamp_ms` is in milliseconds since the epoch; if it is None, the producer sets the current time. If `partition`
    is None, the hash of the key chooses the partition. A value without a schema is plain Python data. `source_offset`
    is the position after this record: a restarted task continues there. The offset is committed only when all records
    of the batch that have the same source partition and offset have been produced.
    """

    source_partition: SourcePartition | None = None
    source_offset: SourceOffset | None = None
    topic: str
    partition: int | None = None
    key_schema: Schema | None = None
    key: Any = None
    value_schema: Schema | None = None
    value: Any = None
    timestamp_ms: int | None = None
    headers: tuple[Header, ...] = ()

    def replace(self, **changes: Any) -> SourceRecord:
        """Return a copy of the record with these attributes changed."""
        return replace(self, **changes)
