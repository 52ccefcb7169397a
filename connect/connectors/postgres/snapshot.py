"""`Snapshot`: reads the rows of all tables as of one moment, table by table, each table in the order of its key.

The tables come in the order of their OIDs, because a table that is renamed meanwhile keeps its OID.

In a table with a key, an interrupted snapshot continues after the last row that it read. A table that has no key, or
whose key has changed meanwhile, is read again from its start. The rows are then newer than the slot, whose stream
repeats the changes in between. `passes` finds the changes that the rows already contain.

ALTER TABLE may rewrite a table whose rows were not read yet. The transaction sees none of the new rows, and the stream
does not have them either, so the snapshot is interrupted and continues in a new transaction. The new transaction first
locks the table that it reads next. Therefore, each transaction reads at least one table, even if all tables are
rewritten again and again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql
from psycopg.adapt import Loader

from ...errors import ConnectError, RetriableError
from .passes import Pass
from .pgoutput import Relation, RelationColumn, Tuple, lsn_number
from .server import Table, connect, failure
from .settings import BATCH_BYTES

_BATCH_VALUES: Final = 50_000
"""The number of values after which a batch of rows ends. Turning a batch into records blocks the event loop."""

_NO_TIMEOUT: Final = sql.SQL("SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'transaction_timeout'")
"""Switches off transaction_timeout, which PostgreSQL has since version 17."""

log = logging.getLogger(__name__)


class TableChangedError(RetriableError):
    """A table was changed before the snapshot read it, so the snapshot must continue in a new transaction."""


class SnapshotRows(NamedTuple):
    """Rows of one table, with their `keys` for the offsets. `last` says whether they are the table's last rows.

    An empty table has no rows. `key_columns` has the number, type and collation of each column of the key.
    """

    relation: Relation
    table: Table
    rows: list[Tuple]
    keys: list[str | None]
    key_columns: str
    last: bool


class Snapshot:
    """A read-only transaction that reads tables."""

    def __init__(self, settings: Mapping[str, Any], tables: list[Table]) -> None:
        self._settings = settings
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._tables = sorted(tables, key=lambda table: table.oid)
        self._after: list[str] | None = None
        self._relation: Relation | None = None
        self._key_columns: list[list[int]] = []
        self._rows: AsyncIterator[Tuple] | None = None
        """The rows of the table that is being read. The server sends them only as fast as they are taken."""
        self._ahead: Tuple | None = None
        """The next row; None at the end of the table."""

    async def start(self, exported: str) -> None:
        """Start a transaction that sees the rows of an exported snapshot."""
        await self._begin()
        await self._execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(exported)))

    async def resume(self, oid: int, key: str | None, key_columns: str | None, *, done: bool) -> Pass:
        """Continue after a key of a table, or after the whole table if `done`. `oid` is 0 at the start of the snapshot.

        If `key_columns` are not those of the table's current key, the whole table is read, and the pass has no key.
        Return the `Pass` of the new transaction, which says what the transaction sees and where it starts.
        """
        self._tables = [each for each in self._tables if each.oid > oid or (each.oid == oid and not done)]
        behind = None if key is None or done else json.loads(key)
        columns = None
        await self._begin()
        if self._tables:
            first = self._tables[0]
            await self._execute(sql.SQL("LOCK TABLE ONLY {} IN ACCESS SHARE MODE").format(first.identifier))
            if first.oid == oid and behind is not None:
                columns = _key_columns(first, await self._columns(first))
                if key_columns is not None and columns != json.loads(key_columns):
                    log.info("snapshot: %s is read again, because its key has changed", first.full_name)
                    behind = None
                self._after = behind
        cursor = await self._execute(sql.SQL("SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text"))
        row = await cursor.fetchone()
        assert row is not None
        last = self._tables[-1].oid if self._tables else oid
        return Pass(oid, behind, done, last, row[0], lsn_number(row[1]), columns)

    async def next(self) -> SnapshotRows | None:
        """Return the next rows, at most snapshot.fetch.size; None after the last table.

        Returns fewer rows if they have BATCH_BYTES in total, or about _BATCH_VALUES values.
        """
        if not self._tables:
            return None
        table = self._tables[0]
        if self._relation is None or self._rows is None:
            self._relation = await self._open(table)
            self._rows = self._stream()
            self._ahead = await self._next_row(self._rows)
        rows: list[Tuple] = []
        columns = len(self._relation.columns)
        size, limit = 0, min(self._settings["snapshot.fetch.size"], _BATCH_VALUES // max(columns, 1) + 1)
        while self._ahead is not None and len(rows) < limit and size < BATCH_BYTES:
            rows.append(self._ahead)
            size += sum(len(value) for value in self._ahead if isinstance(value, bytes))
            self._ahead = await self._next_row(self._rows)
        relation, last = self._relation, self._ahead is None
        if last:
            await self._execute(sql.SQL("CLOSE snapshot_rows"))
            self._tables, self._relation, self._rows, self._after = self._tables[1:], None, None, None
        places = [[column.name for column in relation.columns].index(name) for name in table.key]
        keys = [json.dumps([_text(row[place]) for place in places]) if places else None for row in rows]
        return SnapshotRows(relation, table, rows, keys, json.dumps(self._key_columns), last)

    async def close(self) -> None:
        """End the snapshot's transaction."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        rows, self._rows = self._rows, None
        if rows is not None:
            # After the connection was closed. Otherwise, aclose would read the rows that were sent.
            await rows.aclose()  # type: ignore[attr-defined, unused-ignore]

    async def _begin(self) -> None:
        self._connection = await connect(self._settings)
        await self._execute(_NO_TIMEOUT)
        await self._execute(sql.SQL("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"))

    async def _columns(self, table: Table) -> list[tuple[str, int, int, int, int]]:
        """Return the name, type OID, type modifier, number and collation OID of each column."""
        cursor = await self._execute(
            sql.SQL(
                "SELECT attname, atttypid::bigint, atttypmod, attnum, attcollation::bigint FROM pg_attribute "
                "WHERE attrelid = {} AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"
            ).format(sql.Literal(table.oid))
        )
        return await cursor.fetchall()

    async def _open(self, table: Table) -> Relation:
        found = await self._columns(table)
        self._key_columns = _key_columns(table, found)
        columns = [RelationColumn(name, oid, modifier, name in table.key) for name, oid, modifier, _, _ in found]
        names = sql.SQL(", ").join(sql.Identifier(column.name) for column in columns)
        statement = sql.SQL("DECLARE snapshot_rows NO SCROLL CURSOR FOR SELECT {} FROM ONLY {}").format(
            names, table.identifier
        )
        if table.key:
            keys = sql.SQL(", ").join(sql.Identifier(name) for name in table.key)
            if self._after is not None:
                after = sql.SQL(", ").join(sql.Literal(text) for text in self._after)
                statement += sql.SQL(" WHERE ({}) > ({})").format(keys, after)
            statement += sql.SQL(" ORDER BY {}").format(keys)
        await self._execute(statement)
        await self._check_unchanged(table)
        return Relation(table.oid, table.schema, table.name, "d", tuple(columns))

    async def _check_unchanged(self, table: Table) -> None:
        """Raise TableChangedError if the table was rewritten or replaced after the transaction's snapshot was taken.

        The query compares pg_class, as of that snapshot, with functions that return the table's current state. This
        state cannot change before the transaction ends, because the cursor holds a lock.
        """
        cursor = await self._execute(
            sql.SQL(
                "SELECT 1 FROM pg_class WHERE oid = {} AND oid = {}::regclass AND relfilenode = "
                "pg_relation_filenode(oid)"
            ).format(sql.Literal(table.oid), sql.Literal(table.identifier.as_string()))
        )
        if await cursor.fetchone() is None:
            raise TableChangedError(
                f"table {table.full_name} was rewritten or replaced before the snapshot read it; the snapshot "
                "continues with its new rows"
            )

    def _stream(self) -> AsyncIterator[Tuple]:
        """Return an iterator over all rows of the open cursor. Read them all before the next statement."""
        assert self._connection is not None
        cursor = self._connection.cursor(row_factory=lambda _: list)
        for each in (0, *(oid for type_ in cursor.adapters.types for oid in (type_.oid, type_.array_oid))):
            cursor.adapters.register_loader(each, _Unchanged)
        return cursor.stream("FETCH ALL FROM snapshot_rows")

    async def _next_row(self, rows: AsyncIterator[Tuple]) -> Tuple | None:
        with self._errors_mapped():
            return await anext(rows, None)

    async def _execute(self, statement: sql.Composable) -> psycopg.AsyncCursor[Any]:
        assert self._connection is not None
        with self._errors_mapped():
            return await self._connection.execute(statement)  # type: ignore[call-overload, no-any-return, unused-ignore]

    @contextmanager
    def _errors_mapped(self) -> Iterator[None]:
        """Raise TableChangedError, RetriableError or ConnectError in place of psycopg's errors."""
        try:
            yield
        except (
            psycopg.errors.UndefinedTable,
            psycopg.errors.UndefinedColumn,
            psycopg.errors.InvalidSchemaName,
        ) as error:
            what = error.diag.message_primary
            raise TableChangedError(f"the snapshot was interrupted, and continues: {what}") from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise ConnectError(
                f"the snapshot cannot read all rows: {error.diag.message_primary}. The user needs SELECT on the "
                "tables, and BYPASSRLS for tables with row-level security "
                f"(ALTER ROLE {self._settings['database.user']} BYPASSRLS)"
            ) from error
        except psycopg.Error as error:
            raise failure(error, "the snapshot was interrupted") from error


class _Unchanged(Loader):
    """Leaves values of all types as the server sends them."""

    def load(self, data: bytes | bytearray | memoryview) -> bytes:
        """Return the text of a value."""
        return bytes(data)


def _key_columns(table: Table, columns: list[tuple[str, int, int, int, int]]) -> list[list[int]]:
    """Return the [number, type OID, collation OID] of each column of the key that is among the `columns`."""
    known = {name: [number, oid, collation] for name, oid, _, number, collation in columns}
    return [known[name] for name in table.key if name in known]


def _text(value: Any) -> str:
    assert isinstance(value, bytes)  # a key has no nulls
    return value.decode()
