"""`Passes`: finds the changes in the stream that the rows of an interrupted snapshot already contain.

An interrupted snapshot continues after its last row, in another transaction. Each of these transactions is a pass: its
rows range from its own starting row to the starting row of the next pass. The stream begins at the slot, which is as
old as the first pass, so the stream repeats changes that later passes have seen. A pass has seen a change if the
change's transaction was visible to the pass. This is determined exactly, by the pass's pg_current_snapshot and the
transaction id in the stream. No transaction that was committed after the log position at the start of a pass was
visible to the pass.

If this module cannot compare the keys, for example strings with a collation, a change is treated as not seen and is
repeated. A reader that applies all changes in order still ends up with the correct table. The same holds after a
TRUNCATE that only some passes have seen, and if the key of the table has changed.

Without exactly-once, an earlier worker may have produced rows after the row at which a pass starts. If the pass has
seen the deletion of such a row, the deletion must still be produced. Therefore, all changes are repeated unless all
records so far were produced with exactly-once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from .events import TableEvents
from .pgoutput import Begin, Tuple

_INTEGERS: Final = (20, 21, 23)
_UUID: Final = 2950


class Pass(NamedTuple):
    """A pass: one transaction that reads tables in the order of their OIDs, from `table` to `last`.

    An interrupted pass ends earlier. In `table`, a pass reads the rows after `key`, all rows if `key` is None, or no
    rows if `done` is true.
    """

    table: int
    key: list[str] | None
    done: bool
    last: int
    snapshot: str
    """The result of pg_current_snapshot: xmin:xmax:xip,xip,…"""
    until_lsn: int
    """All transactions that the pass has seen were committed before this log position."""
    key_columns: list[list[int]] | None = None
    """The [number, type OID, collation OID] of each column of `key`; None if they are unknown."""

    def saw(self, begin: Begin) -> bool:
        """Return whether a transaction of the stream was visible to the pass."""
        if begin.commit_lsn > self.until_lsn:
            return False
        first, end, running = self.snapshot.split(":")
        xmax = int(end)
        xid = xmax - ((xmax - begin.xid + (1 << 31)) % (1 << 32) - (1 << 31))  # the stream has only the lower 32 bits
        return xid < xmax and (xid < int(first) or str(xid) not in running.split(","))

    def reads_all(self, table: int) -> bool:
        """Return whether all rows of a table are read in this pass and the passes after it."""
        return self.reads_some(table) and (self.table < table or self.key is None)

    def reads_some(self, table: int) -> bool:
        """Return whether some rows of a table are read in this pass or the passes after it."""
        return table <= self.last and (self.table < table or (self.table == table and not self.done))


class Passes:
    """The passes after the first pass.

    The rows of the first pass are as old as the slot, so they contain no change of the stream.
    """

    def __init__(self, offset: Mapping[str, Any] | None = None, *, exactly_once: bool) -> None:
        """Restore the passes from a source offset, or begin without passes if there is none.

        `exactly_once` says whether the records of this worker and their offsets are committed in one transaction.
        """
        text = None if offset is None else offset.get("passes")
        passes, new = json.loads(text) if text else ([], [])
        self._exactly_once = exactly_once and (offset is None or offset.get("exactly_once") is True)
        """Whether all records so far were produced with exactly-once. If not, all changes are repeated."""
        self._passes = [Pass(*each) for each in passes]
        self._new = set(new)
        """The OIDs of the tables for which `contain_no_more` was called."""

    @property
    def until_lsn(self) -> int:
        """The log position after which the rows of the passes contain no change."""
        return max((each.until_lsn for each in self._passes), default=0)

    def offset(self) -> dict[str, Any]:
        """Return the part of the source offset from which the passes can be restored."""
        marker = {"exactly_once": True} if self._exactly_once else {}
        text = json.dumps([self._passes, sorted(self._new)], separators=(",", ":"))
        return {**marker, "passes": text} if self._passes else marker

    def add(self, new: Pass) -> None:
        """Add a pass. If the previous pass has the same starting row, it has read no row and is replaced."""
        if self._passes and self._passes[-1][:3] == new[:3]:
            self._passes.pop()
        self._passes.append(new)

    def contain(self, begin: Begin, table: TableEvents, row: Tuple) -> bool:
        """Return whether the snapshot contains a change of a row; `row` must contain at least the key columns."""
        oid = table.relation.oid
        if not self._exactly_once or begin.commit_lsn > self.until_lsn or oid in self._new:
            return False
        for each in reversed(self._passes):
            if not each.reads_some(oid):
                continue
            behind = each.reads_all(oid) or _is_behind(table, row, each)
            if behind is None:
                return False
            if behind:
                return each.saw(begin)
        return False

    def contain_truncate(self, begin: Begin, table: TableEvents) -> bool:
        """Return whether all rows that the snapshot read from a table are newer than a TRUNCATE."""
        oid = table.relation.oid
        if not self._exactly_once:
            return False
        for each in reversed(self._passes):
            if each.reads_some(oid):
                if not each.saw(begin):
                    return False
                if each.reads_all(oid):
                    return oid not in self._new
        return False

    def contain_no_more(self, table: int) -> None:
        """Treat all further changes of a table as not contained in the snapshot.

        This is correct after a TRUNCATE has been produced, because readers then remove all rows that the passes have
        read. It is also correct if the table is read again because its key has changed: rows with the earlier key are
        not read again.
        """
        self._new.add(table)


def _is_behind(table: TableEvents, row: Tuple, start: Pass) -> bool | None:
    """Return whether a row comes after the key at which a pass starts; None if the keys cannot be compared.

    They can be compared if the columns of the key are the same at the change, at the start of the pass, and now.
    """
    if start.key is None or start.key_columns is None or table.current_key != start.key_columns:
        return None
    own, other = [], []
    for index, text, (_, oid, _) in zip(table.key_columns, start.key, start.key_columns, strict=True):
        value = row[index]
        if not isinstance(value, bytes) or (oid not in _INTEGERS and oid != _UUID):
            return None
        if table.relation.columns[index].type_oid != oid:
            return None
        own.append(int(value) if oid in _INTEGERS else value.decode())
        other.append(int(text) if oid in _INTEGERS else text)
    return own > other
