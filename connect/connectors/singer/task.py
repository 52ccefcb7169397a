"""`SingerSourceTask`: turns the messages of a Singer tap into records.

The source partition is {"tap": name}, and the offset is {"state": the JSON of the tap's last state message}. A state
message says that all records before it are complete. Therefore, the records between two states form one batch or, with
transaction.boundary=connector, one transaction of one or more batches. The transaction is committed together with the
second state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from ...api.records import SourceRecord
from ...api.task import SourceTask
from ...data import json_text
from ...errors import ConnectError, DataError
from .process import Tap
from .settings import SETTINGS, tap_name

log = logging.getLogger(__name__)


class SingerSourceTask(SourceTask):
    """The only task of the connector. Values are JSON without a schema; keys contain the key properties."""

    def __init__(self) -> None:
        self._tap: Tap | None = None
        self._keys: dict[str, list[str]] = {}
        self._pending: list[dict[str, Any]] = []
        """The record messages since the last state that were not returned yet."""
        self._handed_over = 0
        """The number of records since the last state that are in the open transaction."""
        self._next_run = 0.0
        self._failures = 0

    async def start(self, config: Mapping[str, str]) -> None:
        """Read the settings and the state to continue from."""
        self._settings = SETTINGS.parse(config)
        self._partition = {"tap": tap_name(self._settings)}
        offset = await self.context.offsets.offset(self._partition)
        self._state: str | None = None if offset is None else offset.get("state")

    async def poll(self) -> list[SourceRecord] | None:
        """Return the records up to the next state, or None if a run of the tap ended without further records.

        With transaction.boundary=connector, a poll may return only a part of these records.
        """
        transactions = self.context.transactions
        tap = self._tap or await self._started()
        while (line := await tap.line()) is not None:
            message = _message(line)
            match message["type"]:
                case "RECORD":
                    self._pending.append(message)
                case "SCHEMA":
                    self._keys[message["stream"]] = list(message.get("key_properties") or ())
                case "STATE":
                    self._state = json_text.dumps(message["value"]).decode()
                    if self._pending or self._handed_over:
                        return self._batch()
            if transactions is not None and len(self._pending) >= self._settings["batch.size"]:
                return self._part()
            if len(self._pending) > self._settings["max.records.per.state"]:
                raise ConnectError(
                    f"the tap has sent more than {self._settings['max.records.per.state']} records without a state: "
                    "use transaction.boundary=connector, which needs no memory for them, or raise max.records.per.state"
                )
        return await self._ended(tap)

    async def stop(self) -> None:
        """End the process of the tap."""
        tap, self._tap = self._tap, None
        if tap is not None:
            await tap.stop()

    async def _started(self) -> Tap:
        wait_s = self._next_run - asyncio.get_running_loop().time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        tap = Tap(self._settings)
        self._pending, self._handed_over = [], 0
        try:
            await tap.start(self._state)
        except BaseException:
            await tap.stop()
            raise
        self._tap = tap
        return tap

    async def _ended(self, tap: Tap) -> list[SourceRecord] | None:
        """Return the records after the last state if the run succeeded; None if it failed and will be repeated."""
        failure = await tap.failure()
        await self.stop()
        self._next_run = asyncio.get_running_loop().time() + self._settings["poll.interval.ms"] / 1000
        if failure is None:
            self._failures = 0
            return self._batch() if self._pending or self._handed_over else None
        self._failures += 1
        if self._failures >= self._settings["tap.attempts"]:
            raise ConnectError(f"the tap has failed {self._failures} times, most recently with {failure}")
        log.warning("the tap has failed, and will run again from its last state: %s", failure)
        if self._handed_over and self.context.transactions is not None:
            self.context.transactions.abort_transaction()
        self._pending, self._handed_over = [], 0
        return None

    def _batch(self) -> list[SourceRecord]:
        offset = None if self._state is None else {"state": self._state}
        records = [self._record(message, offset) for message in self._pending]
        self._pending, self._handed_over = [], 0
        if self.context.transactions is not None:
            self.context.transactions.commit_transaction()
        return records

    def _part(self) -> list[SourceRecord]:
        """Return the pending records except the last, which is kept and returned together with the next state."""
        messages, self._pending = self._pending[:-1], self._pending[-1:]
        self._handed_over += len(messages)
        return [self._record(message, None) for message in messages]

    def _record(self, message: dict[str, Any], offset: Mapping[str, Any] | None) -> SourceRecord:
        stream, value = message["stream"], message["record"]
        keys = self._keys.get(stream)
        return SourceRecord(
            source_partition=None if offset is None else self._partition,
            source_offset=offset,
            topic=f"{self._settings['topic.prefix']}{stream}",
            key={name: value.get(name) for name in keys} if keys else None,
            value=value,
        )


def _message(line: bytes) -> dict[str, Any]:
    try:
        message = json_text.loads_exact(line)
        kind = message["type"]
        if kind == "RECORD":
            _ = message["stream"] + "", message["record"].keys()
        elif kind == "SCHEMA":
            _ = message["stream"] + ""
        elif kind == "STATE":
            _ = message["value"]
    except DataError as error:
        raise _no_message(line, f": {error}") from None
    except (KeyError, TypeError, AttributeError):
        raise _no_message(line) from None
    if kind == "BATCH":  # an extension of Singer's SDKs
        raise ConnectError(
            f"the tap writes the records of {message.get('stream')} to files, and sends only the names of the files "
            "(BATCH): remove batch_config from tap.config"
        )
    return dict(message)


def _no_message(line: bytes, reason: str = "") -> ConnectError:
    return ConnectError(
        f"the tap has written a line that is not a Singer message: {line[:200]!r}{reason}; a tap must write only "
        "messages, in valid JSON, to stdout"
    )
