"""Create a PostgresSource connector for a database of a `PostgresServer`, and convert the values of its records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from oncelog.connect import RetriableError, SourceRecord, Struct
from oncelog.connect.connectors.postgres.connector import PostgresSourceConnector

from .postgres import PostgresServer
from .source_tasks import Source


@contextmanager
def temporary_database(postgres: PostgresServer, name: str) -> Iterator[str]:
    """Create a database, and drop it with its slots."""
    postgres.execute(f"CREATE DATABASE {name}")
    yield name
    slots = f"FROM pg_replication_slots WHERE database = '{name}'"
    postgres.execute(f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}'")
    postgres.execute(f"SELECT pg_drop_replication_slot(slot_name) {slots}", f"DROP DATABASE {name} WITH (FORCE)")


def source(postgres: PostgresServer, database: str, **settings: str) -> Source:
    config = {
        "database.hostname": postgres.host,
        "database.port": str(postgres.port),
        "database.user": "postgres",
        "database.dbname": database,
        "topic.prefix": "shop",
        "slot.name": database,
        "status.update.interval.ms": "20",
        "poll.interval.ms": "20",
    }
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Source(PostgresSourceConnector, {**config, **given})


async def read_to_end(postgres: PostgresServer, database: str, new: Source) -> list[SourceRecord]:
    """Return all records of a new task instance up to the end of the server's log, and commit them."""
    ((end,),) = postgres.execute("SELECT pg_current_wal_lsn()::text")
    confirmed = f"SELECT 1 FROM pg_replication_slots WHERE database = '{database}' AND confirmed_flush_lsn >= '{end}'"
    records: list[SourceRecord] = []
    async with await new.task() as task, asyncio.timeout(60):
        while not records or not postgres.execute(confirmed):
            try:
                batch = await task.poll()
            except RetriableError:
                continue
            records += batch
            new.offsets.commit(batch)
            await task.commit(batch)
    return records


def replayed(records: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return the rows that a reader of (key, envelope) has in the end, by their keys."""
    rows: dict[Any, Any] = {}
    for key, value in records:
        if value is None:
            continue
        if value["op"] == "t":
            rows.clear()
        elif value["op"] == "d":
            rows.pop(tuple(key.values()), None)
        else:
            rows[tuple(key.values())] = value["after"]
    return rows


def table_rows(postgres: PostgresServer, database: str, table: str, key: str = "id") -> dict[Any, Any]:
    """Return the rows of a table, by their keys, to be compared with those of `replayed`."""
    rows = postgres.execute(f"SELECT {key}, to_jsonb(t) FROM {table} t", database=database)
    return {tuple(row[:-1]): row[-1] for row in rows}


def plain(value: Any) -> Any:
    if not isinstance(value, Struct):
        return value
    return {field.name: plain(value.values[field.index]) for field in value.schema.fields}
