"""Create a PostgresSource connector for a `PostgresServer`, and convert the values of its records."""

from __future__ import annotations

from typing import Any

from oncelog.connect import Struct
from oncelog.connect.connectors.postgres.connector import PostgresSourceConnector

from .postgres import PostgresServer
from .source_tasks import Source


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
