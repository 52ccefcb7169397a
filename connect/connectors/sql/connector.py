"""`SqlSourceConnector`: polls the tables of a database, or one query."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from ...api.connector import ConnectorTransactionBoundaries, ExactlyOnceSupport, SourceConnector
from ...api.records import SourceOffset, SourcePartition
from ...config import ConfigValue
from ...errors import ConfigValueError, ConnectError
from ..libraries import require
from ..protection import unsupported_protection
from .settings import SETTINGS, check_mode
from .task import TABLES, SqlSourceTask

log = logging.getLogger(__name__)


class SqlSourceConnector(SourceConnector):
    """Divides tables among tasks, and divides them again when tables are created or dropped."""

    settings = SETTINGS
    task_class = SqlSourceTask

    def validate(self, config: Mapping[str, str]) -> list[ConfigValue]:
        """Return the result of validation for each setting, and errors for settings that contradict each other."""
        outcomes = {outcome.name: outcome for outcome in SETTINGS.validate(config)}
        for name, problem in check_mode({name: outcome.value for name, outcome in outcomes.items()}).items():
            error = ConfigValueError(name, outcomes[name].value, problem)
            outcomes[name].errors.append(str(error))
        remedy = "add the options of the database's driver to connection.url"
        outcomes.update({outcome.name: outcome for outcome in unsupported_protection(config, SETTINGS.keys, remedy)})
        try:
            require("sqlalchemy", "SqlSource", "connect-sql")
        except ConnectError as error:
            outcomes["connection.url"].errors.append(str(error))
        return list(outcomes.values())

    def start(self, config: Mapping[str, str]) -> None:
        """Check the settings. If they name neither tables nor a query, watch for tables. Raises ConnectError."""
        require("sqlalchemy", "SqlSource", "connect-sql")
        from .database import open_engine

        super().start(config)
        values = SETTINGS.parse(config)
        for name, problem in check_mode(values).items():
            raise ConfigValueError(name, values[name], problem)
        self._values: Mapping[str, Any] = values
        self._stopped = threading.Event()
        self._known: list[str] | None = None
        self._engine = open_engine(values)
        if not values["query"] and not values["table.whitelist"]:
            threading.Thread(target=self._watch, name="tables", daemon=True).start()

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """Return the settings of tasks with about the same number of tables each, or of a single task for a query."""
        if self._values["query"]:
            return [dict(self.config)]
        tables = self._tables()
        self._known = tables
        count = min(max_tasks, len(tables))
        return [{**self.config, TABLES: ",".join(tables[number::count])} for number in range(count)]

    def stop(self) -> None:
        """Stop watching for tables, and disconnect."""
        self._stopped.set()
        self._engine.dispose()

    def exactly_once_support(self, config: Mapping[str, str]) -> ExactlyOnceSupport:
        """Return SUPPORTED, because the offset is the position of a row."""
        return ExactlyOnceSupport.SUPPORTED

    def can_define_transaction_boundaries(self, config: Mapping[str, str]) -> ConnectorTransactionBoundaries:
        """Return SUPPORTED: a transaction ends after a batch, or after a whole pass over rows without an order."""
        return ConnectorTransactionBoundaries.SUPPORTED

    def alter_offsets(
        self, config: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        """Raise ConnectError if an offset is not the position of a row; otherwise return True."""
        for partition, offset in offsets:
            if offset is None:
                continue  # any partition may be reset
            match {"timestamp": "null", **partition}:
                case {"table": str(), "timestamp": "null", **others} if not others:
                    pass
                case {"query": "query", "timestamp": "null", **others} if not others:
                    pass
                case _:
                    raise ConnectError(
                        'a partition must be {"table": name} or {"query": "query"}, and may also have "timestamp": '
                        '"null" for the rows without a timestamp'
                    )
            _check_offset(offset)
        return True

    def _tables(self) -> list[str]:
        from .database import tables_of

        listed: list[str] = self._values["table.whitelist"]
        return list(dict.fromkeys(listed)) or tables_of(self._engine, self._values["schema.pattern"])

    def _watch(self) -> None:
        while not self._stopped.wait(self._values["table.poll.interval.ms"] / 1000):
            try:
                if self._known is not None and self._tables() != self._known:
                    self.context.request_task_reconfiguration()
            except ConnectError as error:
                log.warning("%s; the tasks continue with the known tables", error)


def _check_offset(offset: SourceOffset) -> None:
    """Raise ConnectError if no mode has such an offset, or if one of its values is malformed."""
    from .positions import decode

    rows = offset.keys() - {"key"}
    if rows - {"complete"} != {"pass"} and (not rows or not rows <= {"timestamp", "incrementing"}):
        raise ConnectError(
            "an offset must have timestamp, incrementing or both, and may have key. In mode bulk, it must have pass, "
            "and may have key and complete. Write the values as GET offsets shows them"
        )
    if type(offset.get("pass", 0)) is not int:
        raise ConnectError(f'"pass" in the offset {dict(offset)} must be a number')
    try:
        key = json.loads(offset.get("key", "[]"))
    except (TypeError, ValueError):
        key = None
    if not isinstance(key, list):
        raise ConnectError(f'"key" in the offset {dict(offset)} must be the JSON of a list')
    for value in key:
        decode(value)
    for name in rows & {"timestamp", "incrementing"}:
        if isinstance(offset[name], bool):  # only a column of a key may be boolean
            raise ConnectError(f'"{name}" in the offset {dict(offset)} must not be true or false')
        decode(offset[name])
