"""`Events`: turns rows and changes into records: topic, key, and Debezium's envelope or the row alone."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ....client.validation import MAX_TOPIC_NAME
from ....version import VERSION
from ...api.records import Header, SourceOffset, SourceRecord
from ...data.schema import INT64, STRING, Schema, struct
from ...data.struct import Struct
from ...errors import ConnectError, DataError
from .pgoutput import UNCHANGED, Relation, Tuple
from .types import ColumnType, column_type, placeholder_of

_SOURCE: Final = struct(
    {
        "version": STRING,
        "connector": STRING,
        "name": STRING,
        "ts_ms": INT64,
        "snapshot": STRING.as_optional(),
        "db": STRING,
        "schema": STRING,
        "table": STRING,
        "txId": INT64.as_optional(),
        "lsn": INT64.as_optional(),
    },
    name="io.debezium.connector.postgresql.Source",
)

_NOT_IN_TOPICS: Final = re.compile(r"[^a-zA-Z0-9._-]")


class Origin(NamedTuple):
    """The origin of a row or change: its time, log position and transaction, and whether it is part of the snapshot."""

    timestamp_ms: int
    lsn: int
    xid: int | None = None
    snapshot: bool = False


@dataclass(frozen=True)
class TableEvents:
    """A table with its current columns: its topic, key, column types and schemas."""

    relation: Relation
    topic: str
    key_columns: tuple[int, ...]
    types: tuple[ColumnType, ...]
    row_schema: Schema
    key_schema: Schema | None
    envelope: Schema
    current_key: list[list[int]] | None
    """The [number, type OID, collation OID] of each key column; None if the records' key is not the current key."""


class Events:
    """Builds the records of one connector."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._prefix: str = settings["topic.prefix"]
        self._enveloped = settings["value.format"] == "envelope"
        self._placeholder: str = settings["unavailable.value.placeholder"]
        self.partition = {"server": self._prefix}

    def check_topics(self, tables: Iterable[str]) -> None:
        """Raise ConnectError if two tables, given as SCHEMA.TABLE, have the same topic."""
        owners: dict[str, str] = {}
        for name in tables:
            topic = self._topic(name)
            if topic in owners:
                raise ConnectError(
                    f"tables {owners[topic]} and {name} have the same topic, {topic}: change table.include.list so "
                    "that it matches only one of them, and read the other with another connector and topic.prefix"
                )
            owners[topic] = name

    def table(self, relation: Relation, key: Sequence[str], key_columns: list[list[int]] | None = None) -> TableEvents:
        """Return what the records of a table need: topic, key, types and schemas.

        `key` is the table's current key (see server.py), and `key_columns` has the number, type OID and collation OID
        of each of its columns. The records' key has the columns of the replica identity, because for a deleted row the
        server sends only these. If `key` has the same columns, the records' key has them in the order of `key`. If the
        replica identity is FULL or has no columns (NOTHING, or DEFAULT without a primary key), the records' key is
        `key`. In this case, raises ConnectError if the relation lacks a column of `key`.
        """
        topic = self._topic(relation.full_name)
        names = [column.name for column in relation.columns]
        identity = [column.name for column in relation.columns if column.is_key and relation.replica_identity != "f"]
        missing = [name for name in key if name not in names]
        if missing and not identity:
            raise ConnectError(
                f"table {relation.full_name} has unread changes without column {', '.join(missing)}, which is now part "
                "of its primary key, so their key is unknown. Until the task has read them, give the column its "
                "earlier name, or drop the primary key. Or start with a new slot and a new snapshot"
            )
        is_current = not identity or set(key) == set(identity)
        wanted = list(key) if is_current else identity
        keys = tuple(names.index(name) for name in wanted)
        types = tuple(column_type(column.type_oid, column.type_modifier, self._settings) for column in relation.columns)
        fields = [
            (name, kind.schema if index in keys else kind.schema.as_optional())
            for index, (name, kind) in enumerate(zip(names, types, strict=True))
        ]
        row_schema = struct(fields, name=f"{topic}.Value", optional=self._enveloped)
        key_schema = struct([(names[index], types[index].schema) for index in keys], name=f"{topic}.Key")
        optional = row_schema.as_optional()
        envelope = struct(
            {"before": optional, "after": optional, "source": _SOURCE, "op": STRING, "ts_ms": INT64.as_optional()},
            name=f"{topic}.Envelope",
        )
        current = key_columns if is_current else None
        return TableEvents(relation, topic, keys, types, row_schema, key_schema if keys else None, envelope, current)

    def upsert(
        self, table: TableEvents, op: str, new: Tuple, old: Tuple | None, origin: Origin, offset: SourceOffset
    ) -> SourceRecord:
        """Return the record of a row that was read (op r), created (c) or updated (u)."""
        row = self._row(table, new)
        before = None if old is None else self._row(table, old)
        return self._record(table, self._key(table, row), op, before, row, origin, offset)

    def delete(self, table: TableEvents, old: Tuple, origin: Origin, offset: SourceOffset) -> list[SourceRecord]:
        """Return the records of a deleted row: the deletion and its tombstone, as the settings say."""
        row = self._row(table, old)
        key = self._key(table, row)
        if not self._enveloped:
            return [] if key is None else [self._tombstone(table, key, origin, offset)]
        record = self._record(table, key, "d", row, None, origin, offset)
        if key is None or not self._settings["tombstones.on.delete"]:
            return [record]
        return [record, self._tombstone(table, key, origin, offset)]

    def key_change(
        self, table: TableEvents, old: Tuple, new: Tuple, origin: Origin, offset: SourceOffset
    ) -> tuple[list[SourceRecord], SourceRecord]:
        """Return the records of a row whose key has changed: its deletion, and its creation with the new key.

        As in Debezium, a header of each record contains the key of the other. With this key, a reader can find the
        values that the server did not send.
        """
        deleted = self.delete(table, old, origin, offset)
        created = self.upsert(table, "c", new, None, origin, offset)
        old_key = Header("__debezium.oldkey", deleted[0].key, table.key_schema)
        new_key = Header("__debezium.newkey", created.key, table.key_schema)
        return [record.replace(headers=(new_key,)) for record in deleted], created.replace(headers=(old_key,))

    def truncate(self, table: TableEvents, origin: Origin, offset: SourceOffset) -> SourceRecord | None:
        """Return the record of a truncated table, or None if truncations are skipped. Raises ConnectError."""
        if self._settings["truncate.handling.mode"] == "skip":
            return None
        if not self._enveloped:
            raise ConnectError(
                f"table {table.relation.full_name} was truncated, which value.format=row cannot express: "
                "use value.format=envelope, or truncate.handling.mode=skip and empty the topic"
            )
        return self._record(table, None, "t", None, None, origin, offset)

    def _topic(self, table: str) -> str:
        """Return the topic of SCHEMA.TABLE. As in Debezium, _ replaces each UTF-16 unit that is not allowed."""
        name = _NOT_IN_TOPICS.sub(lambda match: "_" if match[0] <= "\uffff" else "__", f"{self._prefix}.{table}")
        return name[:MAX_TOPIC_NAME]

    def _record(
        self,
        table: TableEvents,
        key: Struct | None,
        op: str,
        before: Struct | None,
        after: Struct | None,
        origin: Origin,
        offset: SourceOffset,
    ) -> SourceRecord:
        schema, value = table.row_schema, after
        if self._enveloped:
            schema = table.envelope
            value = Struct(schema)
            value.values = [before, after, self._source(table, origin), op, int(time.time() * 1000)]
        return SourceRecord(
            source_partition=self.partition,
            source_offset=offset,
            topic=table.topic,
            key_schema=None if key is None else table.key_schema,
            key=key,
            value_schema=schema,
            value=value,
            timestamp_ms=origin.timestamp_ms,
        )

    def _tombstone(self, table: TableEvents, key: Struct, origin: Origin, offset: SourceOffset) -> SourceRecord:
        return SourceRecord(
            source_partition=self.partition,
            source_offset=offset,
            topic=table.topic,
            key_schema=table.key_schema,
            key=key,
            timestamp_ms=origin.timestamp_ms,
        )

    def _source(self, table: TableEvents, origin: Origin) -> Struct:
        source = Struct(_SOURCE)
        source.values = [
            VERSION,
            "postgresql",
            self._prefix,
            origin.timestamp_ms,
            "true" if origin.snapshot else "false",
            self._settings["database.dbname"],
            table.relation.schema,
            table.relation.table,
            origin.xid,
            origin.lsn,
        ]
        return source

    def _row(self, table: TableEvents, values: Tuple) -> Struct:
        row, index = Struct(table.row_schema), 0
        try:
            for index, (value, kind) in enumerate(zip(values, table.types, strict=True)):
                if value is UNCHANGED:
                    row.values[index] = placeholder_of(kind.schema, self._placeholder)
                elif value is not None:
                    row.values[index] = kind.read(value.decode())
        except (DataError, ValueError, ArithmeticError) as error:
            name = f"{table.relation.full_name}.{table.relation.columns[index].name}"
            raise ConnectError(f"column {name} cannot be read: {error}") from error
        return row

    def _key(self, table: TableEvents, row: Struct) -> Struct | None:
        if table.key_schema is None:
            return None
        key = Struct(table.key_schema)
        key.values = [row.values[index] for index in table.key_columns]
        return key
