"""`RecordSerializer`: turns a record's key and value into bytes, before the producer buffers the record."""

from __future__ import annotations

from typing import Any, Self

from ..errors import RetriableError, SerializationError
from ..serialization.part import Part
from ..serialization.protocols import NotReadyError


class RecordSerializer:
    """Serializes keys and values. Raises SerializationError if that fails, and RetriableError if a serializer needs a
    service that is not available.
    """

    __slots__ = ("_key", "_value")

    def __init__(self, key: object, value: object) -> None:
        self._key = _Part("key", key, "serialize")
        self._value = _Part("value", value, "serialize")

    @classmethod
    def of(cls, key: object, value: object) -> Self | None:
        """Return the serializer of keys and values, or None if both are bytes."""
        return None if key is None and value is None else cls(key, value)

    def __call__(self, topic: str, key: Any, value: Any) -> tuple[Any, Any]:
        """Return key and value as bytes. Raises NotReadyError if a serializer first has to wait for a service."""
        return self._key(topic, key), self._value(topic, value)

    def at_once(self, topic: str, key: Any, value: Any) -> tuple[Any, Any]:
        """Return key and value as bytes. Raises SerializationError if a serializer would first have to wait."""
        try:
            return self(topic, key, value)
        except NotReadyError:
            raise SerializationError(
                topic,
                "key or value",
                "cannot be serialized without waiting, because its schema is not known yet: use `await enqueue(…)`, "
                "which waits, for the first record of each topic",
            ) from None

    async def waiting(self, topic: str, key: Any, value: Any) -> tuple[Any, Any]:
        """Return key and value as bytes. Wait for a service if a serializer needs one."""
        return await self._key.waiting(topic, key), await self._value.waiting(topic, value)


class _Part(Part):
    """Serializes the keys or the values."""

    __slots__ = ()

    def __call__(self, topic: str, value: Any) -> Any:
        if self._call is None or (value is None and not self._nulls):
            return value
        try:
            return self._checked(topic, value, self._call(topic, value))
        except (NotReadyError, RetriableError, SerializationError):
            raise
        except Exception as error:
            raise self._error(topic, value, error) from error

    async def waiting(self, topic: str, value: Any) -> Any:
        try:
            return self(topic, value)
        except NotReadyError as pending:
            try:
                data = await pending.result()
            except RetriableError:
                raise
            except Exception as error:
                raise self._error(topic, value, error) from error
            return self._checked(topic, value, data)

    def _checked(self, topic: str, value: object, data: object) -> object:
        if data is None or isinstance(data, bytes | bytearray | memoryview):
            return data
        wrong = f"is serialized by {self._name} to {type(data).__name__}: the serializer must return bytes or None"
        raise SerializationError(topic, self._part, wrong)

    def _error(self, topic: str, value: object, error: Exception) -> SerializationError:
        return SerializationError(
            topic,
            self._part,
            f"cannot be serialized by {self._name}: {type(error).__name__}: {error}; it is of type "
            f"{type(value).__name__}: send a value that the serializer accepts, or correct the serializer",
        )
