"""Decodes the messages of pgoutput, version 1 (PostgreSQL: Logical Replication Message Formats), as pure functions.

A tuple is a list with one entry per column: bytes (the value as text), None for null, or UNCHANGED for a large value
that the update did not change. Log positions (LSN) are numbers; `lsn_text` writes them as PostgreSQL does.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final


class Unchanged(Enum):
    """The value of a column that the server did not send."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED
Tuple = list[bytes | Unchanged | None]

_EPOCH_MS: Final = 946_684_800_000
"""The time 2000-01-01 in milliseconds since 1970. PostgreSQL's times are in microseconds since 2000-01-01."""


@dataclass(frozen=True)
class Begin:
    """The start of a committed transaction. `commit_lsn` identifies it; later transactions have higher values."""

    commit_lsn: int
    timestamp_ms: int
    xid: int


@dataclass(frozen=True)
class Commit:
    """The end of a transaction; the next transaction begins at `end_lsn` or later."""

    commit_lsn: int
    end_lsn: int


@dataclass(frozen=True)
class RelationColumn:
    """A column of the following tuples. `is_key` says whether it is part of the replica identity."""

    name: str
    type_oid: int
    type_modifier: int
    is_key: bool


@dataclass(frozen=True)
class Relation:
    """A table with the columns that it has in the following messages."""

    oid: int
    schema: str
    table: str
    replica_identity: str
    columns: tuple[RelationColumn, ...]

    @property
    def full_name(self) -> str:
        """The table's name as SCHEMA.TABLE."""
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True)
class Insert:
    """A new row, as the server streams it."""

    relation: int
    new: Tuple


@dataclass(frozen=True)
class Update:
    """A changed row. The server sends `old_key` if the key changed, and `old` with REPLICA IDENTITY FULL."""

    relation: int
    new: Tuple
    old_key: Tuple | None
    old: Tuple | None


@dataclass(frozen=True)
class Delete:
    """A deleted row: its key, or with REPLICA IDENTITY FULL the whole row."""

    relation: int
    old_key: Tuple | None
    old: Tuple | None


@dataclass(frozen=True)
class Truncate:
    """Truncated tables."""

    relations: tuple[int, ...]


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def numbers(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"!{layout}", self._data, self._at)
        self._at += struct.calcsize(f"!{layout}")
        return values

    def letter(self) -> str:
        (value,) = self.numbers("c")
        return str(value.decode("ascii"))

    def text(self) -> str:
        end = self._data.index(b"\0", self._at)
        value = self._data[self._at : end].decode()
        self._at = end + 1
        return value


_UINT16: Final = struct.Struct("!H").unpack_from
_UINT32: Final = struct.Struct("!I").unpack_from
_NULL, _UNCHANGED, _TEXT = b"nut"


def _tuple(data: bytes, at: int) -> tuple[Tuple, int]:
    """Return the tuple at an offset in the data, and the offset after it."""
    (count,) = _UINT16(data, at)
    at += 2
    values: Tuple = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == _TEXT:
            start = at + 4
            at = start + _UINT32(data, at)[0]
            values.append(data[start:at])
        elif kind == _NULL:
            values.append(None)
        elif kind == _UNCHANGED:
            values.append(UNCHANGED)
        else:
            raise ValueError(f"a value of unknown kind {chr(kind)!r}")
    if at > len(data):
        raise ValueError("a value is longer than its message")
    return values, at


def decode(data: bytes) -> Message | None:
    """Decode a message; return None for types, origins and logical messages. Raises ValueError for invalid data."""
    try:
        return _decode(data)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"a message of {len(data)} bytes is cut off: {error}") from error


def _decode(data: bytes) -> Message | None:
    match data[:1]:
        case b"I":
            _expect(data, 5, b"N")
            return Insert(_UINT32(data, 1)[0], _tuple(data, 6)[0])
        case b"U":
            return _update(data)
        case b"D":
            kind, values = data[5:6], _tuple(data, 6)[0]
            if kind not in (b"K", b"O"):
                raise ValueError(f"a deletion has {kind!r} instead of the old row")
            return Delete(_UINT32(data, 1)[0], values if kind == b"K" else None, values if kind == b"O" else None)
        case b"Y" | b"O" | b"M":
            return None
    reader = _Reader(data)
    match reader.letter():
        case "B":
            commit_lsn, at, xid = reader.numbers("QqI")
            return Begin(commit_lsn, at // 1000 + _EPOCH_MS, xid)
        case "C":
            _, commit_lsn, end_lsn, _ = reader.numbers("BQQq")
            return Commit(commit_lsn, end_lsn)
        case "R":
            return _relation(reader)
        case "T":
            count, _ = reader.numbers("IB")
            return Truncate(reader.numbers(f"{count}I"))
        case letter:
            raise ValueError(f"a message of unknown kind {letter!r}")


def _relation(reader: _Reader) -> Relation:
    (oid,) = reader.numbers("I")
    schema, table, identity = reader.text() or "pg_catalog", reader.text(), reader.letter()
    (count,) = reader.numbers("H")
    columns = []
    for _ in range(count):
        (flags,) = reader.numbers("B")
        name = reader.text()
        type_oid, modifier = reader.numbers("Ii")
        columns.append(RelationColumn(name, type_oid, modifier, bool(flags & 1)))
    return Relation(oid, schema, table, identity, tuple(columns))


def _update(data: bytes) -> Update:
    old_key = old = None
    at, kind = 5, data[5:6]
    if kind == b"K":
        old_key, at = _tuple(data, 6)
    elif kind == b"O":
        old, at = _tuple(data, 6)
    _expect(data, at, b"N")
    return Update(_UINT32(data, 1)[0], _tuple(data, at + 1)[0], old_key, old)


def _expect(data: bytes, at: int, letter: bytes) -> None:
    if data[at : at + 1] != letter:
        raise ValueError(f"found {data[at : at + 1]!r}, expected {letter!r}")


def lsn_text(lsn: int) -> str:
    """Return a position in the log as PostgreSQL writes it: 16/B374D848."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """Return the number of a log position in PostgreSQL's notation, such as 16/B374D848."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)
