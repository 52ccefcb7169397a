"""Create a PostgresSource connector for a database of a `PostgresServer`, and convert the values of its records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oncelog.connect import Struct
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


def plain(value: Any) -> Any:
    if not isinstance(value, Struct):
        return value
    return {field.name: plain(value.values[field.index]) for field in value.schema.fields}
