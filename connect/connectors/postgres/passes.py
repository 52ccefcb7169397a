"""`Passes`: which changes the rows of an interrupted snapshot contain already.

A snapshot that is interrupted goes on in another transaction, behind the last row. Each transaction is a pass: it reads
the rows from where it began up to where the next one did. The stream begins at the slot, which is as old as the first
pass; it repeats what later passes have seen. A pass has seen a change when its transaction was visible to it
(pg_current_snapshot), which the id in the stream decides exactly; by the LSN at its begin all of these are committed.

Where keys cannot be compared here, as for texts with a collation, a change counts as not seen: it is repeated, and a
reader that applies all in order ends with the table. So it does behind TRUNCATE, which only some passes have seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, NamedTuple

from .events import TableEvents
from .pgoutput import Begin, Tuple

_INTEGERS: Final = (20, 21, 23)
_UUID: Final = 2950


class Pass(NamedTuple):
    """One transaction that reads rows behind `key` of `table` (None: all of it), or behind the whole table (`done`)."""

    table: str
    key: list[str] | None
    done: bool
    snapshot: str
    """What pg_current_snapshot returned: xmin:xmax:xip,xip,…"""
    until_lsn: int
    """What it has seen is committed before this position of the log."""

    def saw(self, begin: Begin) -> bool:
        """Return whether a transaction of the stream was visible."""
        if begin.commit_lsn > self.until_lsn:
            return False
        first, end, running = self.snapshot.split(":")
        xmax = int(end)
        xid = xmax - ((xmax - begin.xid + (1 << 31)) % (1 << 32) - (1 << 31))  # the stream has the lower 32 bits
        return xid < xmax and (xid < int(first) or str(xid) not in running.split(","))

    def reads_all(self, table: str) -> bool:
        """Return whether it, or a later pass, reads all rows of a table."""
        return self.table < table or (self.table == table and self.key is None and not self.done)

    def reads_some(self, table: str) -> bool:
        """Return whether it, or a later pass, reads rows of a table."""
        return self.table < table or (self.table == table and not self.done)


class Passes:
    """The passes behind the first one, whose rows are as old as the slot."""

    def __init__(self, text: str | None = None) -> None:
        """Take what `text` returned."""
        passes, truncated = json.loads(text) if text else ([], [])
        self._passes = [Pass(*each) for each in passes]
        self._truncated = set(truncated)
        """Tables that were emptied since: all their changes are new."""

    @property
    def until_lsn(self) -> int:
        """Behind this position of the log all changes are new."""
        return max((each.until_lsn for each in self._passes), default=0)

    def text(self) -> str:
        """Return all as text for the offset."""
        return json.dumps([self._passes, sorted(self._truncated)], separators=(",", ":"))

    def add(self, new: Pass) -> None:
        """Add a pass; one that begins where the last one did replaces it, as that has read nothing."""
        if self._passes and self._passes[-1][:3] == new[:3]:
            self._passes.pop()
        self._passes.append(new)

    def contain(self, begin: Begin, table: TableEvents, row: Tuple) -> bool:
        """Return whether the snapshot shows a change of a row; `row` has at least the columns of the key."""
        name = _name(table)
        if begin.commit_lsn > self.until_lsn or name in self._truncated:
            return False
        for each in reversed(self._passes):
            if not each.reads_some(name):
                continue
            behind = each.reads_all(name) or _is_behind(table, row, each.key or [])
            if behind is None:
                return False
            if behind:
                return each.saw(begin)
        return False

    def contain_truncate(self, begin: Begin, table: TableEvents) -> bool:
        """Return whether all of the snapshot's rows of a table are younger than a TRUNCATE."""
        name = _name(table)
        for each in reversed(self._passes):
            if each.reads_some(name):
                if not each.saw(begin):
                    return False
                if each.reads_all(name):
                    return name not in self._truncated
        return False

    def truncated(self, table: TableEvents) -> None:
        """Note that a TRUNCATE became a record, which takes the rows of all passes away."""
        self._truncated.add(_name(table))


def _name(table: TableEvents) -> str:
    return f"{table.relation.schema}.{table.relation.table}"


def _is_behind(table: TableEvents, row: Tuple, key: Iterable[str]) -> bool | None:
    """Return whether a row comes behind a key in the order of the primary key, None where that is not known."""
    own, other = [], []
    for index, text in zip(table.key_columns, key, strict=False):
        oid, value = table.relation.columns[index].type_oid, row[index]
        if not isinstance(value, bytes) or (oid not in _INTEGERS and oid != _UUID):
            return None
        own.append(int(value) if oid in _INTEGERS else value.decode())
        other.append(int(text) if oid in _INTEGERS else text)
    return own > other if own and len(own) == len(table.key_columns) else None
