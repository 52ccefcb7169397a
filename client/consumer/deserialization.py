"""`RecordDeserializer`: turns a record whose key and value are bytes into a record whose key and value are objects."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Self

from ..errors import RetriableError
from ..serialization.part import Part
from ..serialization.protocols import NotReadyError
from .errors import DeserializationError
from .record import ConsumerRecord

_new: Final = partial(tuple.__new__, ConsumerRecord)


class RecordDeserializer:
    """Deserializes the keys and values of records. The given record becomes the `raw` of the new record.

    Raises DeserializationError, which names the record. Raises RetriableError if a deserializer needs a service that is
    not available, and NotReadyError if it first has to wait for the service.
    """

    __slots__ = ("_key", "_value")

    def __init__(self, key: object, value: object) -> None:
        self._key = _Part("key", key, "deserialize")
        self._value = _Part("value", value, "deserialize")

    @classmethod
    def of(cls, key: object, value: object) -> Self | None:
        """Return the deserializer of keys and values, or None if both stay bytes."""
        return None if key is None and value is None else cls(key, value)

    def __call__(self, record: ConsumerRecord) -> ConsumerRecord[Any, Any]:
        """Return the record with objects as key and value."""
        offset, timestamp, key, value, headers, origin = record
        try:
            fields = (offset, timestamp, self._key(record, key), self._value(record, value), headers, origin, record)
        except NotReadyError as pending:
            pending.record = record
            raise
        return _new(fields)

    def several(self, records: Sequence[ConsumerRecord]) -> list[ConsumerRecord[Any, Any]]:
        """Deserialize records until one fails, and return those before it. If the first record fails, raise its
        failure.
        """
        done: list[ConsumerRecord[Any, Any]] = []
        try:
            for record in records:
                done.append(self(record))  # noqa: PERF401 - keeps what was done before an exception
        except Exception:
            if not done:
                raise
        return done

    async def waiting(self, record: ConsumerRecord) -> ConsumerRecord[Any, Any]:
        """Return the record with objects as key and value. Wait for a service if a deserializer needs one."""
        key = await self._key.waiting(record, record[2])
        value = await self._value.waiting(record, record[3])
        return _new((*record[:2], key, value, *record[4:6], record))


class _Part(Part):
    """Deserializes the keys or the values."""

    __slots__ = ()

    def __call__(self, record: ConsumerRecord, data: bytes | None) -> Any:
        if self._call is None or (data is None and not self._nulls):
            return data
        try:
            return self._call(record[5].partition.topic, data)
        except (NotReadyError, RetriableError):
            raise
        except Exception as error:
            raise self._error(record, error) from error

    async def waiting(self, record: ConsumerRecord, data: bytes | None) -> Any:
        try:
            return self(record, data)
        except NotReadyError as pending:
            try:
                return await pending.result()
            except RetriableError:
                raise
            except Exception as error:
                raise self._error(record, error) from error

    def _error(self, record: ConsumerRecord, error: Exception) -> DeserializationError:
        reason = f"cannot be deserialized by {self._name}: {type(error).__name__}: {error}"
        return DeserializationError(record, self._part, reason)
