"""Define the protocol's wire types as `construct` classes, where construct itself has none that fits.

The types are boolean, string, bytes, array, nullable struct and the section of tagged fields (KIP-482), in their plain
(fixed-size length) and compact (varint of length + 1) forms. Numbers are construct's own `Int16sb` and so on. Each
class is a working codec, which is the slow reference. It is also a node of the tree that `compiler.py` translates, and
stores what the translation needs in plain attributes. Messages and versions are known only to `formats.py`.

Invariants: a count or length is compared with the remaining input before anything is allocated for it. A null where the
type is not nullable, a varint out of range, and tags out of order are refused. Every refusal, in reading or building,
is a `construct.ConstructError`.
"""

from __future__ import annotations

import io
from typing import Any, Final

from construct import (  # type: ignore[import-untyped]
    Bytes,
    Construct,
    ConstructError,
    FormatField,
    Renamed,
    Struct,
    Subconstruct,
)
from construct.core import stream_read, stream_write  # type: ignore[import-untyped]

MAX_STRING_BYTES: Final = 0x7FFF
"""The longest string in UTF-8 bytes: the limit of an int16 length, which KIP-482 keeps for compact strings."""

MAX_LENGTH: Final = 0x7FFF_FFFF
"""The largest length, count or tag, because peers read them as int32."""


class FormatError(ConstructError):  # type: ignore[misc]
    """The input, or the value to be built, breaks the format."""


def read_uvarint(stream: Any, path: str) -> int:
    """Read an unsigned varint of at most 32 bits: seven bits per byte, lowest first. The last byte has top bit 0."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = stream_read(stream, 1, path)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFF_FFFF:
                break
            return int(value)
    raise FormatError("varint of more than 32 bits", path=path)


def uvarint(value: int) -> bytes:
    """Encode `value` (0 to 2^32 - 1) as an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _remaining(stream: Any) -> int:
    """Return the number of bytes that are left in a stream."""
    return int(stream.getbuffer().nbytes - stream.tell())


def unnamed(format: Construct) -> Construct:
    """Return the format without the name that it has as a field of a struct."""
    while isinstance(format, Renamed):
        format = format.subcon
    return format


def min_size(format: Construct) -> int:
    """Return the fewest bytes that a value of this format can take. This number limits the count of an array."""
    format = unnamed(format)
    if isinstance(format, (FormatField, Bytes)):
        return int(format.sizeof())
    if isinstance(format, (Boolean, TaggedFields, Nullable)):
        return 1
    if isinstance(format, (Text, Binary, Sequence)):
        return 1 if format.compact else format.plain_lead
    if isinstance(format, Absent):
        return 0
    if isinstance(format, Entity):
        return sum(min_size(field) for field in format.subcon.subcons)
    raise AssertionError(f"no minimum size for {format!r}")


class Boolean(Construct):  # type: ignore[misc]
    """A bool of one byte, zero for false. Building accepts only True and False."""

    def _parse(self, stream: Any, context: Any, path: str) -> bool:
        return bool(stream_read(stream, 1, path) != b"\0")

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if obj is not True and obj is not False:
            raise FormatError(f"expected a bool, got {obj!r}", path=path)
        stream_write(stream, b"\1" if obj else b"\0", 1, path)
        return obj


class _Sized(Construct):  # type: ignore[misc]
    """Base class of strings, bytes and arrays.

    Each begins with a length or count, plain or compact, which can also encode null.
    """

    plain_lead = 4

    def __init__(self, *, compact: bool, nullable: bool) -> None:
        super().__init__()
        self.compact = compact
        self.nullable = nullable

    def _read_length(self, stream: Any, path: str) -> int | None:
        """Read a length or count, None for null. Raises FormatError."""
        if self.compact:
            length = read_uvarint(stream, path) - 1
        else:
            length = int.from_bytes(stream_read(stream, self.plain_lead, path), "big", signed=True)
        if length >= 0:
            return length
        if length < -1:
            raise FormatError(f"negative length {length}", path=path)
        if not self.nullable:
            raise FormatError("null where no null is allowed", path=path)
        return None

    def _write_length(self, length: int | None, stream: Any, path: str) -> None:
        """Write a length or count, None for null. Raises FormatError."""
        if length is None:
            if not self.nullable:
                raise FormatError("null where no null is allowed", path=path)
            length = -1
        limit = MAX_STRING_BYTES if self.plain_lead == 2 else MAX_LENGTH
        if length > limit:
            raise FormatError(f"length {length} is over {limit}", path=path)
        lead = uvarint(length + 1) if self.compact else length.to_bytes(self.plain_lead, "big", signed=True)
        stream_write(stream, lead, len(lead), path)


class Text(_Sized):
    """A UTF-8 string: int16 length, or varint of length + 1."""

    plain_lead = 2

    def _parse(self, stream: Any, context: Any, path: str) -> str | None:
        length = self._read_length(stream, path)
        if length is None:
            return None
        if length > MAX_STRING_BYTES:
            raise FormatError(f"a string of {length} bytes is too long", path=path)
        try:
            return str(stream_read(stream, length, path), "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"not UTF-8: {error.reason}", path=path) from error

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if obj is None:
            self._write_length(None, stream, path)
            return obj
        if not isinstance(obj, str):
            raise FormatError(f"expected a str, got {type(obj).__name__}", path=path)
        try:
            raw = obj.encode()
        except UnicodeEncodeError as error:
            raise FormatError(f"the string cannot be encoded in UTF-8: {error.reason}", path=path) from error
        self._write_length(len(raw), stream, path)
        stream_write(stream, raw, len(raw), path)
        return obj


class Binary(_Sized):
    """Bytes: int32 length, or varint of length + 1. `is_view` marks records, which the compiled code does not copy."""

    def __init__(self, *, compact: bool, nullable: bool, is_view: bool = False) -> None:
        super().__init__(compact=compact, nullable=nullable)
        self.is_view = is_view

    def _parse(self, stream: Any, context: Any, path: str) -> bytes | None:
        length = self._read_length(stream, path)
        if length is None:
            return None
        if length > _remaining(stream):
            raise FormatError(f"{length} bytes announced, but fewer are left", path=path)
        return bytes(stream_read(stream, length, path))

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if obj is None:
            self._write_length(None, stream, path)
            return obj
        if not isinstance(obj, (bytes, bytearray, memoryview)):
            raise FormatError(f"expected bytes, got {type(obj).__name__}", path=path)
        raw = bytes(obj)
        self._write_length(len(raw), stream, path)
        stream_write(stream, raw, len(raw), path)
        return obj


class Sequence(_Sized):
    """An array: int32 count, or varint of count + 1, then the elements."""

    def __init__(self, element: Construct, *, compact: bool, nullable: bool) -> None:
        super().__init__(compact=compact, nullable=nullable)
        self.element = element
        self.element_min_size = min_size(element)
        if self.element_min_size < 1:
            raise TypeError(
                f"array elements must take at least one byte, so that their count can be checked: {element!r}"
            )

    def _parse(self, stream: Any, context: Any, path: str) -> list[Any] | None:
        count = self._read_length(stream, path)
        if count is None:
            return None
        if count * self.element_min_size > _remaining(stream):
            raise FormatError(f"{count} elements announced, but too few bytes are left", path=path)
        return [self.element._parsereport(stream, context, path) for _ in range(count)]

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if obj is None:
            self._write_length(None, stream, path)
            return obj
        if not isinstance(obj, (list, tuple)):
            raise FormatError(f"expected a list, got {type(obj).__name__}", path=path)
        self._write_length(len(obj), stream, path)
        for value in obj:
            self.element._build(value, stream, context, path)
        return obj


class Nullable(Subconstruct):  # type: ignore[misc]
    """A struct that may be null: int8 -1 for null, 1 before a value."""

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        lead = stream_read(stream, 1, path)
        if lead == b"\xff":
            return None
        if lead != b"\x01":
            raise FormatError(f"nullable struct begins with {lead!r}, neither -1 nor 1", path=path)
        return self.subcon._parsereport(stream, context, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        stream_write(stream, b"\xff" if obj is None else b"\x01", 1, path)
        if obj is not None:
            self.subcon._build(obj, stream, context, path)
        return obj


class Absent(Construct):  # type: ignore[misc]
    """A field that this version does not have. It takes no bytes, is read as its default, and accepts only its default.

    `ignorable` makes it drop other values silently. `default` is a `formats.Default`.
    """

    def __init__(self, default: Any, *, ignorable: bool) -> None:
        super().__init__()
        self.default = default
        self.ignorable = ignorable

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        return self.default.make()

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if not self.ignorable and obj != self.default.value:
            raise FormatError(f"this version cannot carry {obj!r}", path=path)
        return obj


class TaggedFields(Construct):  # type: ignore[misc]
    """The section of tagged fields at the end of a flexible struct: count, then tag, size and value of each.

    `known` maps a tag to (field name, format, default). A known field is written only if it differs from its default.
    Unknown fields are kept raw, as (tag, bytes), and written back in their place. The section is read as, and built
    from, a dict of the known fields and "unknown_tags".
    """

    def __init__(self, known: dict[int, tuple[str, Construct, Any]]) -> None:
        super().__init__()
        self.known = dict(sorted(known.items()))

    def _parse(self, stream: Any, context: Any, path: str) -> dict[str, Any]:
        values: dict[str, Any] = {name: default.make() for name, _, default in self.known.values()}
        unknown = []
        last = -1
        for _ in range(read_uvarint(stream, path)):
            tag, size = read_uvarint(stream, path), read_uvarint(stream, path)
            if tag <= last or tag > MAX_LENGTH:
                raise FormatError(f"tag {tag} is out of order after tag {last}", path=path)
            if size > _remaining(stream):
                raise FormatError(f"tag {tag}: {size} bytes announced, but fewer are left", path=path)
            raw = stream_read(stream, size, path)
            last = tag
            if tag not in self.known:
                unknown.append((tag, raw))
                continue
            name, format, _default = self.known[tag]
            inner = io.BytesIO(raw)
            values[name] = format._parsereport(inner, context, path)
            if inner.tell() != size:
                raise FormatError(f"tag {tag}: {size - inner.tell()} bytes are left after its value", path=path)
        values["unknown_tags"] = tuple(unknown)
        return values

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        present = list(obj["unknown_tags"])
        for tag, (name, format, default) in self.known.items():
            if obj[name] != default.value:
                inner = io.BytesIO()
                format._build(obj[name], inner, context, path)
                present.append((tag, inner.getvalue()))
        present.sort()
        last = -1
        raw = uvarint(len(present))
        for tag, value in present:
            if not last < tag <= MAX_LENGTH:
                raise FormatError(f"tag {tag} is repeated or out of range", path=path)
            last = tag
            raw += uvarint(tag) + uvarint(len(value)) + value
        stream_write(stream, raw, len(raw), path)
        return obj


class Entity(Subconstruct):  # type: ignore[misc]
    """A definition's class in one version: a construct `Struct` of its fields, read as and built from an instance.

    The struct's fields are in wire order. In flexible versions, the last one has no name and is the `TaggedFields`.
    """

    def __init__(self, cls: type[Any], fields: Struct) -> None:
        super().__init__(fields)
        self.cls = cls

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        values = {}
        for field in self.subcon.subcons:
            value = field._parsereport(stream, context, path)
            if isinstance(unnamed(field), TaggedFields):
                values.update(value)
            else:
                values[field.name] = value
        return self.cls(**values)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if not isinstance(obj, self.cls):
            raise FormatError(f"expected a {self.cls.__name__}, got {type(obj).__name__}", path=path)
        for field in self.subcon.subcons:
            wire = unnamed(field)
            if isinstance(wire, TaggedFields):
                names = [name for name, _, _ in wire.known.values()]
                value: Any = {name: getattr(obj, name) for name in (*names, "unknown_tags")}
            else:
                value = getattr(obj, field.name)
            field._build(value, stream, context, path)
        return obj
