"""`Pipeline`: turns a source record into the bytes to produce, or into None if a transform drops the record.

If a stage fails with a RetriableError, the record passes through all stages again, within errors.retry.timeout. After
this time, or after any other error, errors.tolerance decides whether the record is skipped or the task fails.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from ..api.records import SourceRecord
from ..converters.converter import Converter, HeaderConverter
from ..errors import ConnectError, RetriableError
from ..stores.ids import ConnectorTaskId
from .task_metrics import ErrorMetrics

log = logging.getLogger(__name__)


class ProducerRecord(NamedTuple):
    """A record in the form that the producer takes."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None
    headers: tuple[tuple[str, bytes | None], ...]


class Stage(Protocol):
    """A transform, with an optional predicate."""

    @property
    def name(self) -> str:
        """The stage's name in log and error messages."""

    def apply(self, record: SourceRecord) -> SourceRecord | None:
        """Return the changed record, or None to drop it."""


@dataclass(frozen=True)
class ErrorHandling:
    """The values of the errors.* settings. Times are in milliseconds; a retry timeout of -1 means no limit."""

    retry_timeout_ms: int = 0
    retry_delay_max_ms: int = 60_000
    tolerate: bool = False
    log_errors: bool = False
    log_messages: bool = False


class _StageError(Exception):
    def __init__(self, stage: str, error: Exception) -> None:
        super().__init__(stage)
        self.stage, self.error = stage, error


_FIRST_DELAY_MS: Final = 300
_NO_TIMESTAMP: Final = -1
"""The number that stands for no timestamp in Kafka. As in Kafka Connect, the producer then sets the current time."""


class Pipeline:
    """Transforms and converts the records of one task."""

    def __init__(
        self,
        task: ConnectorTaskId,
        key: Converter,
        value: Converter,
        header: HeaderConverter,
        stages: Sequence[Stage] = (),
        errors: ErrorHandling | None = None,
    ) -> None:
        self._task = task
        self._key, self._value, self._header = key, value, header
        self._stages = tuple(stages)
        self._errors = errors or ErrorHandling()
        self.metrics = ErrorMetrics()

    @property
    def tolerates(self) -> bool:
        """Whether records that fail are skipped (errors.tolerance=all)."""
        return self._errors.tolerate

    def leave_out(self, record: SourceRecord, error: Exception) -> None:
        """Count and log a record that could not be produced and is skipped."""
        self.metrics.failed()
        self._report(record, _StageError("KAFKA_PRODUCE", error), 1)
        self.metrics.skipped += 1

    async def convert(self, record: SourceRecord) -> ProducerRecord | None:
        """Return the record to produce, or None for a dropped or skipped record. Raises ConnectError."""
        try:
            return self._convert(record)
        except _StageError as failure:
            return await self._failed(record, failure)

    def _convert(self, record: SourceRecord) -> ProducerRecord | None:
        stage = ""
        try:
            changed: SourceRecord | None = record
            for each in self._stages:
                stage = each.name
                changed = each.apply(record)
                if changed is None:
                    return None
                record = changed
            topic = record.topic
            headers: tuple[tuple[str, bytes | None], ...] = ()
            if record.headers:
                stage = "HEADER_CONVERTER"
                convert = self._header.header_to_bytes
                headers = tuple((name, convert(topic, name, schema, value)) for name, value, schema in record.headers)
            stage = "KEY_CONVERTER"
            key = self._key.to_bytes(topic, record.key_schema, record.key)
            stage = "VALUE_CONVERTER"
            value = self._value.to_bytes(topic, record.value_schema, record.value)
        except Exception as error:
            raise _StageError(stage, error) from error
        timestamp_ms = None if record.timestamp_ms == _NO_TIMESTAMP else record.timestamp_ms
        return ProducerRecord(topic, record.partition, key, value, timestamp_ms, headers)

    async def _failed(self, record: SourceRecord, failure: _StageError) -> ProducerRecord | None:
        loop, errors, attempt = asyncio.get_running_loop(), self._errors, 1
        self.metrics.failed()
        deadline = loop.time() + errors.retry_timeout_ms / 1000
        while isinstance(failure.error, RetriableError) and (errors.retry_timeout_ms < 0 or loop.time() < deadline):
            delay_ms = min(_FIRST_DELAY_MS << min(attempt - 1, 20), errors.retry_delay_max_ms)
            if delay_ms == errors.retry_delay_max_ms:
                delay_ms = random.randint(0, delay_ms)  # jitter, so that many tasks do not retry at the same time
            wait_s = delay_ms / 1000
            if errors.retry_timeout_ms >= 0:
                wait_s = min(wait_s, deadline - loop.time())
            await asyncio.sleep(max(0, wait_s))
            attempt += 1
            self.metrics.retries += 1
            try:
                return self._convert(record)
            except _StageError as again:
                self.metrics.failed()
                failure = again
        self._report(record, failure, attempt)
        if not errors.tolerate:
            self.metrics.errors += 1
            raise ConnectError(
                f"Tolerance exceeded in error handler: {failure.stage}: {failure.error}"
            ) from failure.error
        self.metrics.skipped += 1
        return None

    def _report(self, record: SourceRecord, failure: _StageError, attempts: int) -> None:
        if self._errors.tolerate and not self._errors.log_errors:
            return
        self.metrics.logged += 1
        log.error(
            "error of task %s in %s, after %d attempts: %s: %s.%s",
            self._task,
            failure.stage,
            attempts,
            type(failure.error).__name__,
            failure.error,
            f" The record: {record!r:.2000}" if self._errors.log_messages else "",
        )
