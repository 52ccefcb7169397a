"""Reads rows from an offset on: `IncrementalCursor` reads new rows in order, `BulkCursor` reads all rows repeatedly."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from ...errors import ConnectError
from .positions import decode, encode
from .source import Row, Source, before_now, has_time_zone


class Batch(NamedTuple):
    """Rows, each with the source offset after it. If `more` is true, the next fetch follows immediately.

    `whole` says whether a transaction may end after the batch.
    """

    rows: list[tuple[Row, dict[str, Any]]]
    more: bool
    whole: bool = True


class Cursor(Protocol):
    """The current position in a source."""

    source: Source

    def fetch(self, engine: sa.Engine) -> Batch:
        """Return the next rows, and move the position past them."""

    def close(self) -> None:
        """Release open resources."""


class IncrementalCursor:
    """Reads new rows, and also changed rows in the modes with a timestamp."""

    def __init__(self, source: Source, offset: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> None:
        self.source = source
        self._limit = settings["batch.max.rows"]
        self._delay_ms = settings["timestamp.delay.interval.ms"]
        self._zone = ZoneInfo(settings["db.timezone"])
        self._equal_limit = settings["equal.timestamps.max.rows"]
        self._after = None if offset is None else _position(source, offset)
        self._zoned: bool | None = None
        """Whether timestamps have a time zone; None until there is a timestamp."""
        self._vanished: tuple[Any, ...] | None = None
        """The position of the last group of which no row was found again."""

    def fetch(self, engine: sa.Engine) -> Batch:
        """Return the next new or changed rows, in order."""
        source = self.source
        with engine.connect() as connection:
            before = None
            if source.timestamp is not None and not source.null_timestamps:
                if self._zoned is None:
                    self._zoned = has_time_zone(connection, source)
                if self._zoned is None:
                    return Batch([], False)
                before = before_now(connection, source.timestamp, self._delay_ms, self._zone, zoned=self._zoned)
            rows = source.rows(connection, self._after, before, self._limit + 1)
            more = len(rows) > self._limit
            whole = not more or source.unique
            rows = rows[: self._limit] if whole else self._whole_groups(connection, rows, before)
        if rows:
            self._after = rows[-1].position
        return Batch([(row, _offset(source, row.position)) for row in rows], more)

    def close(self) -> None:
        """Do nothing, because no resource stays open."""

    def _whole_groups(self, connection: sa.Connection, rows: list[Row], before: Any) -> list[Row]:
        """Return a batch that does not end between rows with equal positions.

        The last group of rows with equal positions may be incomplete. The batch consists of the rows before this group.
        If there are none, the whole group is read and forms the batch. If all rows of the group were changed or deleted
        in the meantime, the batch is empty, and the next poll reads again. Raises ConnectError if the group is too
        large, or if no row is found by the same position again.
        """
        last = rows[-1].position
        earlier = [row for row in rows if row.position != last]
        if earlier:
            return earlier
        group = self.source.rows(connection, last, before, self._equal_limit + 1, equal=True)
        if not group and last == self._vanished:
            raise ConnectError(
                f"no row is found by the timestamp {last[0]}, although the database has returned it twice: name "
                "another column in timestamp.column.name, or use mode incrementing"
            )
        self._vanished = None if group else last
        if len(group) > self._equal_limit:
            raise ConnectError(
                f"more than {self._equal_limit} rows have the timestamp {last[0]}, and no other column orders them: "
                "use mode timestamp+incrementing or a table with a primary key, or raise equal.timestamps.max.rows"
            )
        return group


class BulkCursor:
    """Reads all rows in each pass.

    With a primary key, a restarted task continues the pass after the last row; without it, the pass starts again.
    """

    def __init__(self, source: Source, offset: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> None:
        self.source = source
        self._limit = settings["batch.max.rows"]
        known = offset or {"pass": 0, "complete": True}
        if type(known.get("pass")) is not int:
            raise ConnectError(f'the offset {dict(known)} of a bulk pass lacks the number "pass": delete the offset')
        self._pass = known["pass"]
        self._complete = bool(known.get("complete"))
        self._after = _position(source, known) if source.order and not self._complete else None
        self._reading: Iterator[list[Row]] | None = None
        self._ahead: list[Row] | None = None

    def fetch(self, engine: sa.Engine) -> Batch:
        """Return the next rows of the pass, or the first rows of the next pass."""
        if self._complete:
            self._pass, self._complete, self._after = self._pass + 1, False, None
        return self._in_order(engine) if self.source.order else self._streamed(engine)

    def close(self) -> None:
        """Abandon the pass."""
        self._reading = self._ahead = None

    def _in_order(self, engine: sa.Engine) -> Batch:
        with engine.connect() as connection:
            rows = self.source.rows(connection, self._after, None, self._limit + 1)
        more, rows = len(rows) > self._limit, rows[: self._limit]
        self._complete = not more
        if rows:
            self._after = rows[-1].position
        batch = [(row, {"pass": self._pass, **_offset(self.source, row.position)}) for row in rows]
        return self._ended(batch, more)

    def _streamed(self, engine: sa.Engine) -> Batch:
        if self._reading is None:
            self._reading = _partitions(engine, self.source, self._limit)
            self._ahead = next(self._reading, None)
        rows, self._ahead = self._ahead or [], next(self._reading, None)
        more = self._ahead is not None
        if not more:
            self._complete, self._reading = True, None
        return self._ended([(row, {"pass": self._pass}) for row in rows], more)

    def _ended(self, batch: list[tuple[Row, dict[str, Any]]], more: bool) -> Batch:
        if batch and not more:
            batch[-1] = batch[-1][0], {"pass": self._pass, "complete": True}
        return Batch(batch, more, whole=not more or bool(self.source.order))


def _partitions(engine: sa.Engine, source: Source, size: int) -> Iterator[list[Row]]:
    with engine.connect() as connection:
        result = connection.execution_options(stream_results=True, max_row_buffer=size).execute(source.select())
        while rows := result.mappings().fetchmany(size):
            yield [source.row(row) for row in rows]


def _offset(source: Source, position: tuple[Any, ...]) -> dict[str, Any]:
    offset = {name: encode(value) for name, value in zip(source.names, position, strict=True) if name != "key"}
    key = [encode(value) for name, value in zip(source.names, position, strict=True) if name == "key"]
    return {**offset, "key": json.dumps(key, ensure_ascii=False)} if key else offset


def _position(source: Source, offset: Mapping[str, Any]) -> tuple[Any, ...]:
    try:
        keys = iter(json.loads(offset.get("key") or "[]"))
        position = tuple(decode(next(keys) if name == "key" else offset[name]) for name in source.names)
    except (KeyError, StopIteration, TypeError, ValueError):
        wanted = ", ".join(dict.fromkeys(source.names))
        raise ConnectError(
            f"the offset {dict(offset)} belongs to another mode or key. This mode needs {wanted}. Stop the connector, "
            "and delete or alter its offsets"
        ) from None
    return position


CURSORS: Final[dict[bool, Callable[[Source, Mapping[str, Any] | None, Mapping[str, Any]], Cursor]]] = {
    True: BulkCursor,
    False: IncrementalCursor,
}
