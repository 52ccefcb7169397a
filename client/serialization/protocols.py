"""The interfaces `Serializer` and `Deserializer`, and the type variables of the clients that use them.

A (de)serializer is called on the event loop. If it would have to wait there, for example for a schema registry, it
raises `NotReadyError`, which carries the work that must be done in a thread. The clients do that work, and then use its
result or call the (de)serializer again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ..values import BytesLike

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T")
    T_co = TypeVar("T_co", covariant=True)
    T_contra = TypeVar("T_contra", contravariant=True)
    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
    SentK = TypeVar("SentK", default=BytesLike)
    SentV = TypeVar("SentV", default=BytesLike)
else:  # defaults of type variables exist from Python 3.13 on, and only type checkers need them
    from typing import TypeVar

    T, K, V, SentK, SentV = (TypeVar(name) for name in ("T", "K", "V", "SentK", "SentV"))
    T_co, T_contra = TypeVar("T_co", covariant=True), TypeVar("T_contra", contravariant=True)


class Serializer(Protocol[T_contra]):
    """Turns keys or values into bytes. `serialize` may raise any exception: a RetriableError reaches the caller of the
    producer unchanged, and any other exception becomes the cause of a SerializationError.

    None is sent as null without calling `serialize`, unless the serializer has the attribute `handles_null = True`.
    `serialize` must not wait, because it is called on the event loop.
    """

    def serialize(self, topic: str, value: T_contra) -> BytesLike | None:
        """Return the bytes of a key or value that is sent to `topic`; None means null."""


class Deserializer(Protocol[T_co]):
    """Turns the bytes of keys or values into objects. `deserialize` may raise any exception: a RetriableError reaches
    the caller of the consumer unchanged, and any other exception becomes the cause of a DeserializationError.

    Null is read as None without calling `deserialize`, unless the deserializer has the attribute `handles_null = True`.
    `deserialize` must not wait, because it is called on the event loop.
    """

    def deserialize(self, topic: str, data: bytes) -> T_co:
        """Return the object for a key or value that was read from `topic`."""


SerializerLike: TypeAlias = Serializer[T] | Callable[[T], BytesLike | None]
"""A Serializer, or a function (value) → bytes or None, for example `str.encode`."""
DeserializerLike: TypeAlias = Deserializer[T] | Callable[[bytes], T]
"""A Deserializer, or a function (bytes) → value, for example `json.loads`."""


class NotReadyError(Exception):
    """A (de)serializer must do `work`, which blocks, before it can return a result. `work` also returns that result.

    Clients handle this exception, so programs never see it. `record` is the consumer's record that waits; None in a
    producer.
    """

    def __init__(self, work: Callable[[], Any], record: Any = None) -> None:
        super().__init__("has to wait")
        self.work = work
        self.record = record

    async def result(self) -> Any:
        """Do the work in a thread, and return its result or raise its exception."""
        return await asyncio.to_thread(self.work)


def function_of(serde: Any, method: str) -> Callable[[str, Any], Any]:
    """Return a (de)serializer as a function (topic, value) → result. `method` is the name of the method to call."""
    bound: Callable[[str, Any], Any] | None = getattr(serde, method, None)
    return bound if bound is not None else lambda topic, value: serde(value)


def name_of_serde(serde: object) -> str:
    """Return the name of a (de)serializer for error messages."""
    return getattr(serde, "__qualname__", None) or type(serde).__qualname__


def checked(method: str) -> Callable[[object], object]:
    """Return the parser of a setting: it returns None or a (de)serializer unchanged, and raises ValueError otherwise.

    `method` is `serialize` or `deserialize`.
    """

    def parse(value: object) -> object:
        wanted = f"an object with a method {method}(topic, value), or a function of one argument"
        if isinstance(value, type) and hasattr(value, method):
            raise ValueError(f"is a class: give an instance, {value.__name__}(…)")
        if value is None or callable(getattr(value, method, None)) or callable(value):
            return value
        if isinstance(value, str):
            raise ValueError(f"is a string: give {wanted}, for example oncelog's StringSerde()")
        raise ValueError(f"is not {wanted}")

    return parse
