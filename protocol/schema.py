"""Define the language of message definitions.

A definition is a class body. Each field states its wire type, the versions that carry it, the versions in which it may
be null, its tag and its default. A definition is data: none of it runs when a message is decoded. The following are
made from a definition:

* the typed, slotted class that handlers and clients use (this module),
* the `construct` format of each version (`protocol/formats.py`), which is the reference,
* the compiled functions of each version (`protocol/compiler.py`), which encode and decode messages.

Example::

    @struct
    class Coordinator(Struct):
        key: str = string("4+")
        node_id: int = int32("4+")

    @response(key=10, versions="0-6", flexible="3+")
    class FindCoordinatorResponse(Response):
        throttle_time_ms: int = int32("1+", ignorable=True)
        coordinators: list[Coordinator] = array(Coordinator, "4+")

Notation and meaning follow Kafka's message definitions and KIP-482 (tagged fields): "3+" is version 3 and all later
versions, and "0-7" includes both ends. A message read in a version without a field has the field's default. In such a
version, writing a value other than the default is an error unless the field is `ignorable`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar, dataclass_transform

Buffer: TypeAlias = bytes | bytearray | memoryview
"""The input types of decoding. `records` fields are decoded to a memoryview of the input, without a copy."""

UnknownTags: TypeAlias = tuple[tuple[int, bytes], ...]
"""Tagged fields that the definition does not have, as (tag, raw value) in tag order. They are kept and written back."""

NO_UUID: Final = bytes(16)
"""The zero uuid, which Kafka uses for "none". The protocol code represents a uuid as its 16 bytes."""

MAX_VERSION: Final = 32767


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions that includes both ends. The range is empty if `low > high`."""

    low: int
    high: int

    @staticmethod
    @cache
    def parse(text: str) -> Versions:
        """Parse "3", "3+", "0-7" or "none". Raises ValueError for a string that is not a range."""
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return Versions(int(text[:-1]), MAX_VERSION)
        low, _, high = text.partition("-")
        return Versions(int(low), int(high or low))

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.low, self.high + 1))

    def __str__(self) -> str:
        if self.low > self.high:
            return "none"
        if self.high == MAX_VERSION:
            return f"{self.low}+"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


NO_VERSIONS: Final = Versions(0, -1)


class WireType(Enum):
    """The primitive types of the protocol. `STRUCT` is a nested definition."""

    BOOL = "bool"
    INT8 = "int8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT64 = "float64"
    UUID = "uuid"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"
    STRUCT = "struct"


@dataclass(slots=True, eq=False)  # not frozen, which is faster: importing all messages creates 1,300
class FieldSpec:
    """The declaration of one field. It does not change after the class of the message has been created.

    `is_array` says that the value is a list of `wire_type`. `struct` is the class of the elements (or of the value) if
    `wire_type` is STRUCT. `tag` is None for a field that is never tagged, and `tagged` are the versions in which it is
    tagged. `flexible` overrides the message's flexible versions for this field (RequestHeader.ClientId, KIP-482). The
    value of a `secret` field is never in the repr of a message.
    """

    wire_type: WireType
    versions: Versions
    default: Any
    nullable: Versions = NO_VERSIONS
    is_array: bool = False
    struct: type[Struct] | None = None
    tag: int | None = None
    tagged: Versions = NO_VERSIONS
    ignorable: bool = False
    flexible: Versions | None = None
    secret: bool = False
    name: str = ""

    @property
    def factory(self) -> Callable[[], Any] | None:
        """The function that makes the field's default, a list or a struct; None if `default` is the value itself."""
        if self.default is None or not (self.is_array or self.struct is not None):
            return None
        return list if self.is_array or self.struct is None else self.struct


class MessageKind(Enum):
    """The role of a top-level definition, which decides how its bytes are framed."""

    REQUEST = "request"
    RESPONSE = "response"
    HEADER = "header"
    DATA = "data"
    RECORD_KEY = "record_key"
    RECORD_VALUE = "record_value"


@dataclass(frozen=True, slots=True)
class MessageSpec:
    """The declaration of a top-level definition.

    `key` is the API key of a request or response, the record id of a record key or value, else -1. `versions` are those
    that can be encoded and decoded. `stable` are those that may be advertised: all of them, or all but the newest one
    if `latest_unstable` is true.
    """

    kind: MessageKind
    name: str
    key: int
    versions: Versions
    flexible: Versions
    latest_unstable: bool = False

    @property
    def stable(self) -> Versions:
        """The versions that a broker may advertise. Kafka's `latestVersionUnstable` excludes the newest one."""
        return Versions(self.versions.low, self.versions.high - self.latest_unstable)


class _Slotted(type):
    """Turns the fields that a class body declares into slots, and keeps the declarations in `fields`.

    The dataclass decorator does the same at about three times the cost. With it, the messages would account for a sixth
    of the time that importing a client takes.
    """

    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any], **options: Any) -> _Slotted:
        if "__slots__" not in body:  # it is not one of the base classes
            specs = {key: value for key, value in body.items() if type(value) is FieldSpec}
            body = {key: value for key, value in body.items() if key not in specs}
            for key, spec in specs.items():
                spec.name = key
            body["__slots__"] = body["__match_args__"] = (*specs, "unknown_tags")
            body["__doc__"] = body.get("__doc__") or f"Part of a message: {', '.join(specs)}."
            body["fields"] = tuple(specs.values())
            body["_as_tuple"] = attrgetter("unknown_tags", *specs)
        return super().__new__(mcs, name, bases, body, **options)


class Struct(metaclass=_Slotted):
    """Base class of every definition. `unknown_tags` holds tagged fields that a newer peer sent (KIP-482)."""

    __slots__ = ()
    fields: ClassVar[tuple[FieldSpec, ...]] = ()
    _as_tuple: ClassVar[Callable[[Any], tuple[Any, ...]]]
    unknown_tags: UnknownTags

    # The methods are defined here once, and `__init__` is generated when a class is first called. Generating them for
    # each of some 400 classes would take most of the time to import them.
    def __init__(self, *values: Any, **named: Any) -> None:
        """Replace this method by a generated `__init__` of the class, and call that."""
        cls = type(self)
        cls.__init__ = _initializer(cls)  # type: ignore[method-assign]
        cls.__init__(self, *values, **named)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        as_tuple = type(self)._as_tuple
        return bool(as_tuple(self) == as_tuple(other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = [f"{spec.name}={'...' if spec.secret else repr(getattr(self, spec.name))}" for spec in self.fields]
        if self.unknown_tags:
            shown.append(f"unknown_tags={self.unknown_tags!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


class Message(Struct):
    """Base class of every top-level definition. `spec` is its declaration."""

    __slots__ = ()
    spec: ClassVar[MessageSpec]


class Response(Message):
    """Base class of every response."""

    __slots__ = ()


ResponseT = TypeVar("ResponseT", bound=Response)


class Request(Message, Generic[ResponseT]):
    """Base class of every request. Its type parameter is the class of the response, so that calls are typed."""

    __slots__ = ()
    response: ClassVar[type[Response]]


T = TypeVar("T", bound=type[Struct])


@dataclass_transform()
def struct(cls: T) -> T:
    """Check that each annotation in the class body declares a field. The codecs read the class's `fields`."""
    declared = {spec.name for spec in cls.fields}
    for name in cls.__annotations__:
        if name not in declared:
            raise TypeError(f"{cls.__name__}.{name} has no wire type: declare it with string(), int32(), array(), ...")
    return cls


def _initializer(cls: type[Struct]) -> Callable[..., None]:
    """Return a new `__init__` of the class, with a parameter for each field; all have defaults."""
    names: dict[str, Any] = {}
    parameters, lines = ["self"], []
    for spec in cls.fields:
        name, factory = spec.name, spec.factory
        names[f"_default_{name}"] = factory or spec.default
        parameters.append(f"{name}=_default_{name}")
        lines.append(f"  self.{name} = {f'{name}() if {name} is _default_{name} else ' if factory else ''}{name}")
    parameters.append("unknown_tags=()")
    lines.append("  self.unknown_tags = unknown_tags")
    source = [f"def __init__({', '.join(parameters)}):", *lines]
    exec(compile("\n".join(source), f"<{cls.__name__}>", "exec"), names)
    function: Callable[..., None] = names["__init__"]
    function.__qualname__ = f"{cls.__qualname__}.__init__"
    return function


def _message(
    kind: MessageKind, key: int, versions: str, flexible: str, latest_unstable: bool = False
) -> Callable[[T], T]:
    """Return a class decorator that makes the class a message of this kind."""

    def define(cls: T) -> T:
        made = struct(cls)
        if not issubclass(made, Message):
            raise TypeError(f"{made.__name__} must derive from Message")
        made.spec = MessageSpec(
            kind, made.__name__, key, Versions.parse(versions), Versions.parse(flexible), latest_unstable
        )
        return made

    return define


@dataclass_transform()
def request(*, key: int, versions: str, flexible: str, latest_unstable: bool = False) -> Callable[[T], T]:
    """Define the request of API `key`. The class must derive from `Request[ItsResponse]`."""
    define = _message(MessageKind.REQUEST, key, versions, flexible, latest_unstable)

    def with_response(cls: T) -> T:
        made = define(cls)
        (base,) = made.__orig_bases__  # type: ignore[attr-defined]
        (made.response,) = base.__args__  # type: ignore[attr-defined]
        return made

    return with_response


@dataclass_transform()
def response(*, key: int, versions: str, flexible: str) -> Callable[[T], T]:
    """Define the response of API `key`."""
    return _message(MessageKind.RESPONSE, key, versions, flexible)


@dataclass_transform()
def header(*, versions: str, flexible: str) -> Callable[[T], T]:
    """Define a request or response header."""
    return _message(MessageKind.HEADER, -1, versions, flexible)


@dataclass_transform()
def data(*, versions: str, flexible: str) -> Callable[[T], T]:
    """Define data that begins with an int16 version and is part of another message (subscriptions, markers)."""
    return _message(MessageKind.DATA, -1, versions, flexible)


@dataclass_transform()
def record_key(*, id: int, versions: str = "0", flexible: str = "none") -> Callable[[T], T]:
    """Define the key of an internal topic's record. On disk it begins with the int16 `id` instead of a version."""
    return _message(MessageKind.RECORD_KEY, id, versions, flexible)


@dataclass_transform()
def record_value(*, id: int, versions: str, flexible: str) -> Callable[[T], T]:
    """Define the value of an internal topic's record. On disk it begins with its int16 version."""
    return _message(MessageKind.RECORD_VALUE, id, versions, flexible)


def _field(
    wire_type: WireType,
    versions: str,
    default: Any,
    *,
    nullable: str = "none",
    tag: int | None = None,
    tagged: str = "none",
    ignorable: bool = False,
    flexible: str | None = None,
    is_array: bool = False,
    struct: type[Struct] | None = None,
    secret: bool = False,
) -> Any:
    """Return a field's declaration; the class that it belongs to sets its name."""
    return FieldSpec(
        wire_type,
        Versions.parse(versions),
        default,
        Versions.parse(nullable),
        is_array,
        struct,
        tag,
        Versions.parse(tagged),
        ignorable,
        None if flexible is None else Versions.parse(flexible),
        secret,
    )


# Each of the functions below declares one field. `versions` are the versions that carry it. In the versions `tagged` it
# is the tagged field `tag`. `ignorable` allows encoding to drop the value in versions without the field. The functions
# return Any, because the annotation in the class body gives the type.


def boolean(versions: str = "0+", *, default: bool = False, **wire: Any) -> Any:
    """Declare a bool of one byte."""
    return _field(WireType.BOOL, versions, default, **wire)


def int8(versions: str = "0+", *, default: int = 0, **wire: Any) -> Any:
    """Declare a signed 8-bit integer."""
    return _field(WireType.INT8, versions, default, **wire)


def int16(versions: str = "0+", *, default: int = 0, **wire: Any) -> Any:
    """Declare a signed 16-bit integer, big endian."""
    return _field(WireType.INT16, versions, default, **wire)


def uint16(versions: str = "0+", *, default: int = 0, **wire: Any) -> Any:
    """Declare an unsigned 16-bit integer, big endian."""
    return _field(WireType.UINT16, versions, default, **wire)


def int32(versions: str = "0+", *, default: int = 0, **wire: Any) -> Any:
    """Declare a signed 32-bit integer, big endian."""
    return _field(WireType.INT32, versions, default, **wire)


def int64(versions: str = "0+", *, default: int = 0, **wire: Any) -> Any:
    """Declare a signed 64-bit integer, big endian."""
    return _field(WireType.INT64, versions, default, **wire)


def float64(versions: str = "0+", *, default: float = 0.0, **wire: Any) -> Any:
    """Declare an IEEE 754 double, big endian."""
    return _field(WireType.FLOAT64, versions, default, **wire)


def uuid(versions: str = "0+", *, default: bytes = NO_UUID, **wire: Any) -> Any:
    """Declare a uuid, represented as its 16 bytes."""
    return _field(WireType.UUID, versions, default, **wire)


def string(versions: str = "0+", *, default: str | None = "", **wire: Any) -> Any:
    """Declare a UTF-8 string with an int16 length, or an unsigned varint of length + 1 in flexible versions."""
    return _field(WireType.STRING, versions, default if default is None else sys.intern(default), **wire)


def binary(versions: str = "0+", *, default: bytes | None = b"", **wire: Any) -> Any:
    """Declare bytes with an int32 length, or an unsigned varint of length + 1 in flexible versions."""
    return _field(WireType.BYTES, versions, default, **wire)


def record_batches(versions: str = "0+", *, default: bytes | None = b"", **wire: Any) -> Any:
    """Declare opaque record batches. They are decoded to a memoryview of the frame, without a copy."""
    return _field(WireType.RECORDS, versions, default, **wire)


def array(element: type[Struct] | str, versions: str = "0+", **wire: Any) -> Any:
    """Declare a list of a struct class, or of the primitive type that `element` names ("int32", "string", ...)."""
    wire.setdefault("default", [])
    if isinstance(element, str):
        return _field(WireType(element), versions, is_array=True, **wire)
    return _field(WireType.STRUCT, versions, is_array=True, struct=element, **wire)


def nested(element: type[Struct], versions: str = "0+", **wire: Any) -> Any:
    """Declare one struct. A nullable one takes `default=None`."""
    wire.setdefault("default", ...)
    return _field(WireType.STRUCT, versions, struct=element, **wire)
