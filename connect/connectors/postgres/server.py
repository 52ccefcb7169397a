"""Queries and prepares the server through SQL: tables and their keys, the publication, the slot."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql

from ...config.java_regex import compiled
from ...errors import ConnectError, RetriableError
from .pgoutput import Relation, lsn_number, lsn_text

_OPTIONS: Final = (
    "-c datestyle=ISO,YMD -c timezone=UTC -c intervalstyle=postgres -c bytea_output=hex -c extra_float_digits=1 "
    "-c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 -c row_security=off"
)
"""Session settings that give values the same text form in the snapshot and in the stream, and switch timeouts off.

With row_security=off, a query fails if row-level security hides rows from the user. Otherwise, the server would leave
these rows out silently.
"""


_LOOKS: Final = 20
_LOOK_S: Final = 0.05
"""The seconds between two checks whether the server has released a slot or ended a process."""

_MAX_LSN: Final = (1 << 64) - 1


@dataclass(frozen=True)
class Table:
    """A table; `key` has the columns of its key, in order, and `oid` stays the same if the table is renamed.

    The key is the index of REPLICA IDENTITY USING INDEX, else the primary key.
    """

    schema: str
    name: str
    key: tuple[str, ...]
    oid: int

    @property
    def full_name(self) -> str:
        """The table's name as SCHEMA.TABLE."""
        return f"{self.schema}.{self.name}"

    @property
    def identifier(self) -> sql.Identifier:
        """The table's name as part of a statement."""
        return sql.Identifier(self.schema, self.name)


@dataclass(frozen=True)
class Slot:
    """A slot. The server may discard its log up to `confirmed_lsn`, which is None while the slot is being created."""

    plugin: str
    database: str
    active: bool
    confirmed_lsn: str | None
    lost: bool


def connection_info(settings: Mapping[str, Any], *, replication: bool = False) -> str:
    """Return the connection string for libpq."""
    password = settings["database.password"]
    parameters: dict[str, Any] = {
        "host": settings["database.hostname"],
        "port": settings["database.port"],
        "user": settings["database.user"],
        "password": None if password is None else password.value,
        "dbname": settings["database.dbname"],
        "sslmode": settings["database.sslmode"],
        "options": _OPTIONS,
        "connect_timeout": 10,
        "application_name": f"oncelog {settings['slot.name']}",
        "client_encoding": "UTF8",
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 6,
        "tcp_user_timeout": 90_000,
    }
    if replication:
        parameters["replication"] = "database"
    text: str = psycopg.conninfo.make_conninfo("", **parameters)
    return text


async def connect(settings: Mapping[str, Any], *, replication: bool = False) -> psycopg.AsyncConnection[Any]:
    """Open a connection. Raises RetriableError after a temporary failure, ConnectError after any other."""
    try:
        return await psycopg.AsyncConnection.connect(
            connection_info(settings, replication=replication), autocommit=True
        )
    except psycopg.Error as error:
        raise failure(error, "PostgreSQL cannot be reached") from error


def failure(error: psycopg.Error, what: str) -> ConnectError:
    """Return RetriableError for a temporary error of the server, ConnectError for an error that a person must fix."""
    state = error.sqlstate or ""
    text = f"{what}: {str(error).strip()}"
    # 25P04: a transaction timed out. 55006: the slot is in use. 55P03: a lock is not available. 08: connection error.
    # 40: transaction rollback. 53: insufficient resources. 57: the server shuts down. 72000: the transaction's snapshot
    # is too old. No state: no connection.
    passing = not state or state[:2] in ("08", "57", "53", "40") or state in ("25P04", "55006", "55P03", "72000")
    wrong = any(word in str(error) for word in ("authentication failed", "does not exist", "no pg_hba.conf entry"))
    return ConnectError(text) if wrong or not passing else RetriableError(text)


_KEY: Final = sql.SQL(
    "SELECT a.attname, a.attnum, a.atttypid, a.attcollation, a.attgenerated <> '' AS generated, k.place "
    "FROM pg_index i, unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY k(number, place), pg_attribute a "
    "WHERE i.indrelid = c.oid AND a.attrelid = c.oid AND a.attnum = k.number AND CASE WHEN c.relreplident = 'i' AND "
    "EXISTS (SELECT 1 FROM pg_index WHERE indrelid = c.oid AND indisreplident) THEN i.indisreplident "
    "ELSE i.indisprimary END"
)
"""Selects the columns of the key of the table `c`, a row of pg_class."""


async def included_tables(connection: psycopg.AsyncConnection[Any], settings: Mapping[str, Any]) -> list[Table]:
    """Return the tables that match table.include.list, sorted by full name, with their keys.

    Raises ConnectError for a key with a generated column, whose values the server does not stream. Also raises
    ConnectError if a partitioned table matches but none of its partitions does, unless publication.autocreate.mode is
    disabled.
    """
    rows = await (
        await connection.execute(
            sql.SQL(
                "SELECT n.nspname, c.relname, array(SELECT attname FROM ({key}) k ORDER BY place)::text[], "
                "array(SELECT attname FROM ({key}) k WHERE generated ORDER BY place)::text[], c.oid::bigint "
                "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                "WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND n.nspname NOT LIKE 'pg\\_%' "
                "AND n.nspname <> 'information_schema'"
            ).format(key=_KEY)
        )
    ).fetchall()
    included = [(Table(schema, name, tuple(key), oid), generated) for schema, name, key, generated, oid in rows]
    included = [each for each in included if is_included(each[0].full_name, settings)]
    for table, generated in included:
        if generated:
            raise ConnectError(
                f"table {table.full_name} has the generated column {generated[0]} in its key, and the server does not "
                f'stream generated columns. Either run "ALTER TABLE {table.full_name} REPLICA IDENTITY USING INDEX …" '
                "with a unique index of other columns, or change table.include.list so that it does not match the table"
            )
    if settings["publication.autocreate.mode"] != "disabled":  # else the publication may use publish_via_partition_root
        await _check_partitions(connection, settings)
    return sorted((table for table, _ in included), key=lambda table: table.full_name)


_PARTITIONS: Final = (
    "array(SELECT pn.nspname || '.' || p.relname FROM pg_partition_tree(c.oid) t JOIN pg_class p ON p.oid = t.relid "
    "JOIN pg_namespace pn ON pn.oid = p.relnamespace WHERE t.isleaf AND p.relkind = 'r')"
)
"""Selects the partitions of the partitioned table `c`, a row of pg_class, as SCHEMA.TABLE."""


async def _check_partitions(connection: psycopg.AsyncConnection[Any], settings: Mapping[str, Any]) -> None:
    rows = await (
        await connection.execute(
            "SELECT n.nspname || '.' || c.relname, " + _PARTITIONS + " "
            "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'p'"
        )
    ).fetchall()
    for name, partitions in rows:
        matched = [each for each in partitions if is_included(each, settings)]
        if is_included(name, settings) and partitions and not matched:
            raise ConnectError(
                f"table {name} is partitioned, and table.include.list matches none of its partitions: list the "
                f"partitions, such as {partitions[0]}"
            )


def is_included(full_name: str, settings: Mapping[str, Any]) -> bool:
    """Return whether a table, as SCHEMA.TABLE, matches table.include.list."""
    return any(compiled(text).fullmatch(full_name) for text in settings["table.include.list"])


async def check(connection: psycopg.AsyncConnection[Any]) -> None:
    """Raise ConnectError if the server is not set up for logical replication."""
    level = await _value(connection, "SELECT current_setting('wal_level')")
    if level != "logical":
        raise ConnectError(
            f"the server's wal_level is {level}: set wal_level=logical in postgresql.conf, and restart the server"
        )


async def prepare_publication(
    connection: psycopg.AsyncConnection[Any], settings: Mapping[str, Any], tables: list[Table]
) -> None:
    """Create the publication, or add missing tables to it.

    With publication.autocreate.mode=disabled, only check that the publication exists. Raises ConnectError if it does
    not, or if `tables` is empty in the other mode. Raises RetriableError if the publication, one of the tables or its
    schema is changed at the same time.
    """
    name = settings["publication.name"]
    exists = await _value(connection, "SELECT 1 FROM pg_publication WHERE pubname = %s", name)
    if settings["publication.autocreate.mode"] == "disabled":
        if not exists:
            raise ConnectError(
                f'publication {name} does not exist. Either run "CREATE PUBLICATION {name} FOR TABLE …", or set '
                "publication.autocreate.mode=filtered"
            )
        return
    if not tables:
        raise ConnectError(
            "table.include.list matches no table. Its regular expressions must match names of the form SCHEMA.TABLE"
        )
    listed = sql.SQL(", ").join(table.identifier for table in tables)
    if not exists:
        await _change_publication(
            connection, sql.SQL("CREATE PUBLICATION {} FOR TABLE {}").format(sql.Identifier(name), listed)
        )
        return
    rows = await (
        await connection.execute("SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s", (name,))
    ).fetchall()
    missing = [table.identifier for table in tables if (table.schema, table.name) not in set(rows)]
    if missing:  # keep other tables, because another connector may need them
        added = sql.SQL(", ").join(missing)
        await _change_publication(
            connection, sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(sql.Identifier(name), added)
        )


async def _change_publication(connection: psycopg.AsyncConnection[Any], statement: sql.Composed) -> None:
    try:
        await connection.execute(statement)
    except (
        psycopg.errors.DuplicateObject,
        psycopg.errors.UniqueViolation,
        psycopg.errors.UndefinedObject,
        psycopg.errors.UndefinedTable,
        psycopg.errors.InvalidSchemaName,
        psycopg.errors.InternalError_,  # "tuple concurrently updated"
    ) as error:
        what = error.diag.message_primary
        raise RetriableError(f"the publication or a table was changed at the same time: {what}") from error


async def check_partition_roots(connection: psycopg.AsyncConnection[Any], settings: Mapping[str, Any]) -> None:
    """Raise ConnectError if the publication hides the changes of partitions that are to be read.

    With publish_via_partition_root, the publication publishes the changes of partitions as changes of their partitioned
    table. The snapshot reads partitions, so only snapshot.mode=never may read a partitioned table.
    """
    name = settings["publication.name"]
    rows = await (
        await connection.execute(
            "SELECT n.nspname || '.' || c.relname, " + _PARTITIONS + " "
            "FROM pg_publication_tables t JOIN pg_namespace n ON n.nspname = t.schemaname "
            "JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename "
            "WHERE t.pubname = %s AND c.relkind = 'p'",
            (name,),
        )
    ).fetchall()
    for root, partitions in rows:
        streamed = is_included(root, settings)
        if streamed and settings["snapshot.mode"] == "never":
            continue
        if streamed or any(is_included(each, settings) for each in partitions):
            raise ConnectError(
                f"publication {name} publishes the changes of the partitions of {root} as changes of {root}, but the "
                f'snapshot reads partitions. Either run "ALTER PUBLICATION {name} SET (publish_via_partition_root = '
                f'false)" and list the partitions in table.include.list, or set snapshot.mode=never and list {root} '
                "instead of the partitions"
            )


async def slot_of(connection: psycopg.AsyncConnection[Any], settings: Mapping[str, Any]) -> Slot | None:
    """Return the slot, or None if it does not exist. Raises ConnectError if its database or plugin differs."""
    name = settings["slot.name"]
    row = await (
        await connection.execute(
            "SELECT plugin, database, active, confirmed_flush_lsn::text, coalesce(wal_status = 'lost', false) "
            "FROM pg_replication_slots WHERE slot_name = %s",
            (name,),
        )
    ).fetchone()
    if row is None:
        return None
    slot = Slot(*row)
    if slot.plugin != "pgoutput" or slot.database != settings["database.dbname"]:
        raise ConnectError(
            f"slot {name} has plugin {slot.plugin} and database {slot.database}: name another slot in slot.name"
        )
    return slot


async def free_slot(connection: psycopg.AsyncConnection[Any], settings: Mapping[str, Any]) -> Slot | None:
    """Wait until the slot is not in use, and return it; None if it does not exist. Raises RetriableError on timeout."""
    for _ in range(_LOOKS):
        slot = await slot_of(connection, settings)
        if slot is None or not slot.active:
            return slot
        await asyncio.sleep(_LOOK_S)
    raise RetriableError(
        f"slot {settings['slot.name']} is in use by another connector, or by a connector that has just ended"
    )


async def drop_slot(settings: Mapping[str, Any], *, creator: int | None = None, until_lsn: int = _MAX_LSN) -> bool:
    """Wait until the slot is not in use, then drop it. Return whether it was dropped.

    The slot stays if its confirmed position is greater than `until_lsn`. `creator` is the server's process that may
    still be creating the slot; it is ended first. Raises RetriableError, ConnectError.
    """
    name, connection = settings["slot.name"], await connect(settings)
    try:
        if creator is not None:
            await _end_process(connection, creator)
        slot = await slot_of(connection, settings)
        if slot is None or (slot.confirmed_lsn is not None and lsn_number(slot.confirmed_lsn) > until_lsn):
            return False
        await free_slot(connection, settings)
        statement = (
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            "WHERE slot_name = %s AND confirmed_flush_lsn <= %s::pg_lsn"
        )
        return (await connection.execute(statement, (name, lsn_text(until_lsn)))).rowcount > 0
    except psycopg.Error as error:
        raise failure(error, f"slot {name} cannot be dropped") from error
    finally:
        await connection.close()


async def _end_process(connection: psycopg.AsyncConnection[Any], process: int) -> None:
    statement = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND backend_type = 'walsender'"
    for _ in range(_LOOKS):
        if await _value(connection, statement, process) is None:
            return
        await asyncio.sleep(_LOOK_S)
    raise RetriableError(f"the replication process {process} of the server has not ended after it was terminated")


async def flush_log(connection: psycopg.AsyncConnection[Any]) -> None:
    """Wait until the server's log up to now is on disk.

    A crash of the server loses the part of the log that is not on disk, even if the server has already reported a later
    position or snapshot. The restarted server would use the transaction ids in the lost part for other transactions.
    """
    async with connection.transaction():
        await connection.execute("SET LOCAL synchronous_commit = local")
        await connection.execute("SELECT pg_logical_emit_message(true, 'oncelog', '')")  # so the commit has a record


class Key(NamedTuple):
    """A key: the names of its columns, in order, and the [number, type OID, collation OID] of each of them."""

    names: list[str]
    columns: list[list[int]]


async def current_key(connection: psycopg.AsyncConnection[Any], relation: Relation) -> Key:
    """Return the current key of a table (see `Table`); a key without columns if the table is gone.

    If columns of the key were renamed since the server streamed `relation`, return their earlier names: `relation` has
    them at the same positions. If a column was added or dropped, the positions may have shifted. In this case, return
    the key's current names if a column outside the key has another name than `relation` has at its position.
    """
    row = await (
        await connection.execute(
            sql.SQL(
                "SELECT array(SELECT attname FROM ({key}) k ORDER BY place)::text[], "
                "array(SELECT ARRAY[attnum, atttypid::bigint, attcollation::bigint] FROM ({key}) k ORDER BY place), "
                "array(SELECT CASE WHEN attisdropped THEN '' ELSE attname END FROM pg_attribute "
                "WHERE attrelid = c.oid AND attnum > 0 AND attgenerated = '' ORDER BY attnum)::text[] "
                "FROM pg_class c WHERE c.oid = {oid}"
            ).format(key=_KEY, oid=sql.Literal(relation.oid))
        )
    ).fetchone()
    if row is None:
        return Key([], [])
    key, key_columns, columns = row
    earlier = [column.name for column in relation.columns]
    pairs = list(zip(columns, earlier, strict=False))
    same = "" not in columns and len(columns) == len(earlier)  # no column was added or dropped since
    if len(pairs) < len(earlier) or (not same and any(now != name and now not in key for now, name in pairs)):
        return Key(key, key_columns)
    names = dict(pairs)
    return Key([names.get(name, name) for name in key], key_columns)


async def _value(connection: psycopg.AsyncConnection[Any], statement: str, *parameters: Any) -> Any:
    row = await (await connection.execute(statement, parameters)).fetchone()
    return None if row is None else row[0]
