"""`PostgresSourceConnector`: reads tables of a PostgreSQL database as rows and as changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...api.connector import ExactlyOnceSupport, SourceConnector
from ...api.records import SourceOffset, SourcePartition
from ...config import ConfigValue
from ...errors import ConnectError
from ..libraries import require
from ..protection import unsupported_protection
from .settings import SETTINGS
from .task import PostgresSourceTask


class PostgresSourceConnector(SourceConnector):
    """Runs one task, because a replication slot has one reader."""

    settings = SETTINGS
    task_class = PostgresSourceTask

    def validate(self, config: Mapping[str, str]) -> list[ConfigValue]:
        """Return the result of validation for each setting; a missing library is an error of the first setting."""
        outcomes = SETTINGS.validate(config)
        try:
            require("psycopg", "PostgresSource", "connect-postgres")
        except ConnectError as error:
            outcomes[0].errors.append(str(error))
        remedy = "set libpq's environment variables for the worker (PGSSLROOTCERT, PGSSLCERT, PGSSLKEY)"
        return [*outcomes, *unsupported_protection(config, SETTINGS.keys, remedy)]

    def exactly_once_support(self, config: Mapping[str, str]) -> ExactlyOnceSupport:
        """Return SUPPORTED, because the offset identifies a change in the server's log."""
        return ExactlyOnceSupport.SUPPORTED

    async def alter_offsets(
        self, config: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        """Raise ConnectError if an offset is not a position in the server's log; otherwise return True."""
        for partition, offset in offsets:
            if offset is None:
                continue  # any partition may be reset
            if partition.keys() != {"server"}:
                raise ConnectError('a partition must be {"server": NAME}, where NAME is the value of topic.prefix')
            if not (type(offset.get("lsn")) is int and type(offset.get("event", 0)) is int):
                raise ConnectError('an offset must be {"lsn": number, "event": number}; null starts a new snapshot')
        return True
