"""`SourceRecord`: what a source task hands over, with the position in the source that follows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..data.schema import Schema

SourcePartition = Mapping[str, Any]
"""Where in the source a record comes from, such as {"filename": "a.txt"}: JSON values under names."""

SourceOffset = Mapping[str, Any]
"""A position in a source partition, such as {"position": 17}: JSON values under names."""


class Header(NamedTuple):
    """A header of a record: its name, its value and the value's schema."""

    key: str
    value: Any
    schema: Schema | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """One record for a topic. `timestamp_ms` is milliseconds since the epoch; without one the producer's clock counts.

    Without `partition` the key's hash chooses it. A value without a schema is plain Python data. `source_offset` is
    the position behind this record: a task that starts again goes on there.
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
        """Return a record with these attributes changed."""
        return replace(self, **changes)
