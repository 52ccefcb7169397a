"""`SqlSourceTask`: polls the tables of one task in turn, in a thread, because database drivers block.

The source partition is {"table": name} or {"query": "query"}. If mode timestamp+incrementing reads rows without a
timestamp (validate.non.null=false), their partition also has "timestamp": "null". The offset is the position of the row
in the order that the setting mode defines. In mode bulk, the offset also has the number of the pass.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ...api.records import SourceRecord
from ...api.task import SourceTask
from ...errors import ConnectError, RetriableError
from ..libraries import require
from .settings import BOTH, BULK, SETTINGS

TABLES = "tables"
"""The name of the setting that lists the tables of a task."""


class SqlSourceTask(SourceTask):
    """Reads the tables that are assigned to this task, or the query."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._engine: Any = None
        self._readings: list[Reading] = []
        self._failures = 0
        """The number of consecutive attempts that the database did not answer."""

    def start(self, config: Mapping[str, str]) -> None:
        """Read the settings, and the offsets to continue from. Raises ConnectError."""
        require("sqlalchemy", "SqlSource", "connect-sql")
        from .database import open_engine

        self._settings = SETTINGS.parse(config)
        self._engine = open_engine(self._settings)
        tables: list[str | None] = [name for name in config.get(TABLES, "").split(",") if name]
        self._readings = [reading for table in tables or [None] for reading in self._of(table)]

    def poll(self) -> list[SourceRecord] | None:
        """Return the next rows of the table whose poll is due. If no poll is due, wait and return None."""
        import sqlalchemy as sa

        now = time.monotonic()
        reading = min(self._readings, key=lambda each: each.due)
        if reading.due > now:
            self._stopped.wait(min(reading.due - now, 1.0))
            return None
        try:
            records = list(reading.poll(self._engine))
        except (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.TimeoutError) as error:
            raise self._failed(reading, error) from error
        except (sa.exc.SQLAlchemyError, ValueError) as error:  # a driver raises ValueError if it cannot read a value
            raise ConnectError(f"{reading.name} cannot be read: {_reason(error)}") from error
        self._failures = 0
        transactions = self.context.transactions
        if transactions is not None and records and reading.whole:
            transactions.commit_transaction(records[-1])
        return records

    def stop(self) -> None:
        """Wake a waiting poll, and disconnect."""
        self._stopped.set()
        for reading in self._readings:
            reading.close()
        if self._engine is not None:
            self._engine.dispose()

    def _of(self, table: str | None) -> Iterator[Reading]:
        partition = {"query": "query"} if table is None else {"table": table}
        yield Reading(self, table, partition, null_timestamps=False)
        if self._settings["mode"] == BOTH and not self._settings["validate.non.null"]:
            yield Reading(self, table, {**partition, "timestamp": "null"}, null_timestamps=True)

    def _failed(self, reading: Reading, error: Exception) -> ConnectError:
        if self.context.transactions is not None and not reading.whole:
            self.context.transactions.abort_transaction()  # the pass is read again from its start
        reading.forget()
        self._failures += 1
        if self._failures >= self._settings["connection.attempts"]:
            return ConnectError(
                f"{reading.name} cannot be read, after {self._failures} attempts: {_reason(error)}. Check "
                "connection.url and the database, then restart the task"
            )
        self._stopped.wait(self._settings["connection.backoff.ms"] / 1000)
        return RetriableError(f"{reading.name} cannot be read now: {_reason(error)}")


class Reading:
    """One table, or the query, with the time of its next poll."""

    def __init__(
        self, task: SqlSourceTask, table: str | None, partition: Mapping[str, Any], *, null_timestamps: bool
    ) -> None:
        from .cursors import CURSORS, Cursor

        self._settings: Mapping[str, Any] = task._settings
        self._table, self._partition, self._null_timestamps = table, partition, null_timestamps
        prefix: str = self._settings["topic.prefix"]
        self._topic = prefix if table is None else prefix + table.rpartition(".")[2]
        self.name = "the query" if table is None else f"table {table}"
        self._make = CURSORS[self._settings["mode"] == BULK]
        self._offset: Mapping[str, Any] | None = task.context.offsets.offset_blocking(partition)
        self._cursor: Cursor | None = None
        self._query: Any = None
        self._reflect_at = 0.0
        self.due = 0.0
        self.whole = True

    def poll(self, engine: Any) -> Iterator[SourceRecord]:
        """Yield the table's next records, and set the time of its next poll."""
        now = time.monotonic()
        if self._cursor is None or (self.whole and now >= self._reflect_at):
            self._cursor = self._make(self._source(engine), self._offset, self._settings)
            self._reflect_at = now + self._settings["table.poll.interval.ms"] / 1000
        rows, more, self.whole = self._cursor.fetch(engine)
        row_type = self._cursor.source.row_type
        for row, offset in rows:
            value = row_type.struct(row.values)
            yield SourceRecord(
                source_partition=self._partition,
                source_offset=offset,
                topic=self._topic,
                value_schema=row_type.schema,
                value=value,
            )
        if rows:
            self._offset = rows[-1][1]
        wait_s = 0 if more else self._settings["poll.interval.ms"] / 1000
        self.due = time.monotonic() + wait_s if self.whole else 0.0  # a pass without an order is read to its end

    def forget(self) -> None:
        """Restart reading after the last row that was returned."""
        self.close()
        self._cursor = None

    def close(self) -> None:
        """Release open resources."""
        if self._cursor is not None:
            self._cursor.close()

    def _source(self, engine: Any) -> Any:
        from .source import query_source, table_source

        if self._table is None:
            if self._query is None:  # kept, because it learns the types of its columns
                self._query = query_source(self._settings["query"], self._settings, self._null_timestamps)
            return self._query
        schema, _, name = self._table.rpartition(".")
        return table_source(
            engine,
            schema or self._settings["schema.pattern"],
            name,
            self._settings,
            self._null_timestamps,
        )


def _reason(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).strip()
