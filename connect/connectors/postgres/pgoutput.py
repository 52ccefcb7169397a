"""Decodes the messages of pgoutput, version 1 (PostgreSQL: Logical Replication Message Formats). Pure functions.

A tuple is a list with one entry per column: bytes (the text of the value), None for null, or UNCHANGED for a large
value that the update did not touch. Positions in the log (LSN) are numbers; `lsn_text` writes them as PostgreSQL does.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final


class Unchanged(Enum):
    """The value of a column that is not sent."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED
Tuple = list[bytes | Unchanged | None]

_EPOCH_MS: Final = 946_684_800_000
"""2000-01-01 as milliseconds since 1970: PostgreSQL's times count from there, in microseconds."""


@dataclass(frozen=True)
class Begin:
    """A transaction, which is sent when it has committed. `commit_lsn` identifies it; later ones have higher ones."""

    commit_lsn: int
    timestamp_ms: int
    xid: int


@dataclass(frozen=True)
class Commit:
    """The end of a transaction; the next one begins at `end_lsn` or behind."""

    commit_lsn: int
    end_lsn: int


@dataclass(frozen=True)
class RelationColumn:
    """A column, as the following tuples have it. `is_key`: part of the replica identity."""

    name: str
    type_oid: int
    type_modifier: int
    is_key: bool


@dataclass(frozen=True)
class Relation:
    """A table as it is from here on."""

    oid: int
    schema: str
    table: str
    replica_identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True)
class Insert:
    """A new row."""

    relation: int
    new: Tuple


@dataclass(frozen=True)
class Update:
    """A changed row. `old_key` is sent where the key has changed, `old` with REPLICA IDENTITY FULL."""

    relation: int
    new: Tuple
    old_key: Tuple | None
    old: Tuple | None


@dataclass(frozen=True)
class Delete:
    """A deleted row: its key, or with REPLICA IDENTITY FULL the whole."""

    relation: int
    old_key: Tuple | None
    old: Tuple | None


@dataclass(frozen=True)
class Truncate:
    """Tables that were emptied."""

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

    def tuple(self) -> Tuple:
        (count,) = self.numbers("H")
        values: Tuple = []
        for _ in range(count):
            kind = self._data[self._at]
            self._at += 1
            if kind == 116:  # t
                (size,) = self.numbers("I")
                if self._at + size > len(self._data):
                    raise ValueError("a value is longer than its message")
                values.append(self._data[self._at : self._at + size])
                self._at += size
            elif kind == 110:  # n
                values.append(None)
            elif kind == 117:  # u
                values.append(UNCHANGED)
            else:
                raise ValueError(f"a value of unknown kind {chr(kind)!r}")
        return values


def decode(data: bytes) -> Message | None:
    """Return a message; None for one without meaning here (types, origins). Raises ValueError for other bytes."""
    try:
        return _decode(_Reader(data))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"a message of {len(data)} bytes is cut off: {error}") from error


def _decode(reader: _Reader) -> Message | None:
    match reader.letter():
        case "B":
            commit_lsn, at, xid = reader.numbers("QqI")
            return Begin(commit_lsn, at // 1000 + _EPOCH_MS, xid)
        case "C":
            _, commit_lsn, end_lsn, _ = reader.numbers("BQQq")
            return Commit(commit_lsn, end_lsn)
        case "R":
            return _relation(reader)
        case "I":
            (relation,) = reader.numbers("I")
            _expect(reader, "N")
            return Insert(relation, reader.tuple())
        case "U":
            return _update(reader)
        case "D":
            (relation,) = reader.numbers("I")
            kind, values = reader.letter(), reader.tuple()
            return Delete(relation, values if kind == "K" else None, values if kind == "O" else None)
        case "T":
            count, _ = reader.numbers("IB")
            return Truncate(reader.numbers(f"{count}I"))
        case "Y" | "O" | "M":
            return None
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


def _update(reader: _Reader) -> Update:
    (relation,) = reader.numbers("I")
    old_key = old = None
    kind = reader.letter()
    if kind == "K":
        old_key, kind = reader.tuple(), reader.letter()
    elif kind == "O":
        old, kind = reader.tuple(), reader.letter()
    if kind != "N":
        raise ValueError(f"an update has {kind!r} where the new row should be")
    return Update(relation, reader.tuple(), old_key, old)


def _expect(reader: _Reader, letter: str) -> None:
    found = reader.letter()
    if found != letter:
        raise ValueError(f"{found!r} where {letter!r} should be")


def lsn_text(lsn: int) -> str:
    """Return a position in the log as PostgreSQL writes it: 16/B374D848."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """Return the number of a position in the log."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)
