"""PostgresSource against a real server: snapshot, changes, restarts at every record, kills of the server."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
from typing import Any

import pytest
from oncelog.connect import ConnectError, RetriableError, SourceRecord
from oncelog.connect.connectors.postgres import server
from oncelog.connect.connectors.postgres import task as postgres_task
from oncelog.connect.connectors.postgres.pgoutput import Relation
from oncelog.connect.connectors.postgres.replication import NewSlot, Replication
from oncelog.connect.connectors.postgres.settings import SETTINGS
from support.postgres import PostgresServer
from support.source_tasks import RunningTask, Source

pytest.importorskip("psycopg", reason="needs the extra: pip install 'oncelog[connect-postgres]'")
from support.postgres_source import plain, replayed, source


def seen(records: list[SourceRecord]) -> list[tuple[Any, Any]]:
    return [(plain(record.key), plain(record.value)) for record in records]


def ops(records: list[SourceRecord]) -> list[Any]:
    return [None if value is None else (value["op"], key and key["id"]) for key, value in seen(records)]


async def started(new: Source) -> None:
    """Let the connector make its slot, and read nothing."""
    async with await new.task() as task:
        await task.poll()


async def test_rows_come_first_and_then_changes(
    postgres: PostgresServer, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, name text, price numeric(9,2))",
        "INSERT INTO t VALUES (1, 'a', 1.5), (2, NULL, NULL)",
        database=database,
    )
    new = source(postgres, database)
    rows = await new.read(2)
    assert ops(rows) == [("r", 1), ("r", 2)]
    assert "the snapshot reads 1 table(s)" in caplog.text
    assert "snapshot: public.t is read, 2 rows in all so far" in caplog.text
    assert (rows[0].topic, rows[0].source_partition) == ("shop.public.t", {"server": "shop"})
    assert rows[0].value_schema is not None
    assert (rows[0].value_schema.name, rows[0].key_schema and rows[0].key_schema.name) == (
        "shop.public.t.Envelope",
        "shop.public.t.Key",
    )
    postgres.execute(
        "INSERT INTO t VALUES (3, 'c', 3)",
        "UPDATE t SET name = 'b' WHERE id = 2",
        "DELETE FROM t WHERE id = 1",
        "UPDATE t SET id = 4 WHERE id = 3",
        database=database,
    )
    changes = await new.read(7)
    assert ops(changes) == [("c", 3), ("u", 2), ("d", 1), None, ("d", 3), None, ("c", 4)]
    source_of = plain(changes[0].value)["source"]
    assert (source_of["db"], source_of["schema"], source_of["table"]) == (database, "public", "t")
    ((system,),) = postgres.execute("SELECT system_identifier::text FROM pg_control_system()")
    assert changes[0].source_offset == {"lsn": source_of["lsn"], "event": 1, "system": system, "timeline": 1}
    for record in changes:
        if record.value is not None:
            record.value.check()
    assert set(replayed(seen(rows + changes))) == {(2,), (4,)}


@pytest.mark.parametrize("batch", ["1", "100"])
async def test_a_task_goes_on_behind_any_change(postgres: PostgresServer, database: str, batch: str) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY, name text)", database=database)
    for keep in (1, 4, 6):
        new = source(postgres, database, max_batch_size=batch, tombstones_on_delete="false")
        new.config["slot.name"] = f"{database}_{keep}"
        new.config["snapshot.mode"] = "never"
        await started(new)
        postgres.execute(
            "BEGIN; INSERT INTO t SELECT n, 'x' FROM generate_series(1, 4) n; UPDATE t SET name = 'y' WHERE id = 2; "
            "DELETE FROM t WHERE id = 3; COMMIT",
            "TRUNCATE t",
            database=database,
        )
        first = await new.read(keep, keep=keep)
        read = ops(first + await new.read(7 - keep))
        assert read == [("c", 1), ("c", 2), ("c", 3), ("c", 4), ("u", 2), ("d", 3), ("t", None)]
        await new.nothing(1)


async def test_a_change_of_several_records_is_read_again_unless_the_last_is_committed(
    postgres: PostgresServer, database: str
) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)", database=database)
    changes = "INSERT INTO t VALUES (1)", "UPDATE t SET id = 2", "TRUNCATE t, u"
    for keep, first in ((1, 1), (2, 1), (3, 1), (4, 4), (5, 4), (6, 6)):
        new = source(postgres, database, snapshot_mode="never")
        new.config["slot.name"] = f"{database}_{keep}"
        await started(new)
        postgres.execute("BEGIN; " + "; ".join(changes) + "; COMMIT", database=database)
        read = ops(await new.read(6, keep=keep))
        wanted = [("c", 1), ("d", 1), None, ("c", 2), ("t", None), ("t", None)]
        assert read == wanted[:keep]
        assert ops(await new.read(6 - first)) == wanted[first:]
        await new.nothing(1)


async def test_an_interrupted_snapshot_goes_on_behind_the_last_row(postgres: PostgresServer, database: str) -> None:
    postgres.execute(
        "CREATE TABLE a (id int, part text, PRIMARY KEY (part, id))",
        "INSERT INTO a SELECT n, 'p' || n % 2 FROM generate_series(1, 5) n",
        "CREATE TABLE b (id int PRIMARY KEY)",
        "CREATE TABLE c (id int PRIMARY KEY)",
        "INSERT INTO c SELECT n FROM generate_series(1, 4) n",
        database=database,
    )
    for keep in (1, 4, 5, 7):
        new = source(postgres, database, snapshot_fetch_size="2")
        new.config["slot.name"] = f"{database}_{keep}"
        read = await new.read(9, keep=keep)
        # Rows that were not read change; those that were read are deleted: both must show in the end.
        postgres.execute(
            "INSERT INTO c VALUES (7); DELETE FROM a WHERE part = 'p0' AND id = 2; UPDATE c SET id = 8 WHERE id = 4",
            database=database,
        )
        async with await new.task() as task:
            wanted = {("a", *row) for row in postgres.execute("SELECT part, id FROM a", database=database)} | {
                ("c", *row) for row in postgres.execute("SELECT id FROM c", database=database)
            }
            async with asyncio.timeout(60):
                while wanted != {
                    (topic, *key)
                    for topic in ("a", "c")
                    for key in replayed(seen([each for each in read if each.topic.endswith(topic)]))
                }:
                    read += await task.poll()
        postgres.execute(
            "DELETE FROM c WHERE id = 7; UPDATE c SET id = 4 WHERE id = 8; INSERT INTO a VALUES (2, 'p0')",
            database=database,
        )


@pytest.mark.parametrize("kind", ["bigint", "uuid"])
async def test_an_interrupted_snapshot_repeats_no_change_that_its_rows_contain(
    postgres: PostgresServer, database: str, kind: str
) -> None:
    def key(number: int) -> str:
        return str(number) if kind == "bigint" else f"'00000000-0000-0000-0000-{number:012}'"

    rows = ", ".join(f"({key(number)}, 'old')" for number in (1, 2, 8, 9))
    postgres.execute(
        *(f"CREATE TABLE {name} (id {kind} PRIMARY KEY, name text)" for name in "abc"),
        "CREATE TABLE d (name text)",
        *(f"INSERT INTO {name} VALUES {rows}" for name in "abc"),
        "INSERT INTO d VALUES ('x')",
        database=database,
    )
    new = source(postgres, database, snapshot_fetch_size="1", tombstones_on_delete="false", max_batch_size="1")
    new.exactly_once = True
    read = await new.read(6, keep=6)  # all of a, the first two rows of b

    def change(name: str) -> str:
        return (
            f"INSERT INTO {name} VALUES ({key(3)}, 'new'); UPDATE {name} SET name = 'new' WHERE id = {key(9)}; "
            f"DELETE FROM {name} WHERE id = {key(8)}; UPDATE {name} SET id = {key(7)} WHERE id = {key(2)}; "
            f"UPDATE {name} SET name = 'new' WHERE id = {key(1)}"
        )

    postgres.execute(
        *(change(name) for name in "abc"), "TRUNCATE c", f"INSERT INTO c VALUES ({key(5)}, 'new')",
        "INSERT INTO d VALUES ('y')", database=database,
    )  # fmt: skip
    read += await new.read(4, keep=4)  # the rest of b: 3, 7, 9; the only row of c
    postgres.execute(
        f"UPDATE c SET name = 'newer'; UPDATE b SET name = 'newer' WHERE id = {key(9)}",
        "INSERT INTO d VALUES ('z')",
        database=database,
    )
    read += await new.read(3, keep=3)  # d
    for _ in range(9):  # a restart behind each change
        read += await new.read(1)
    await new.nothing(1)

    def of(name: str) -> list[Any]:
        envelopes = [plain(record.value) for record in read if record.topic.endswith(f".{name}")]
        shown = [(each["op"], each["after"] or each["before"]) for each in envelopes]
        return [(op, int(str(row["id"])[-3:].lstrip("0"))) for op, row in shown]

    assert of("a") == [("r", n) for n in (1, 2, 8, 9)] + [("c", 3), ("u", 9), ("d", 8), ("d", 2), ("c", 7), ("u", 1)]
    assert of("b") == [("r", n) for n in (1, 2, 3, 7, 9)] + [("d", 2), ("u", 1), ("u", 9)]
    assert of("c") == [("r", 5), ("u", 5)]
    names = [plain(record.value)["after"]["name"] for record in read if record.topic.endswith(".d")]
    assert names == ["x", "y", "z"]


@pytest.mark.parametrize(
    "rewrite",
    [
        "ALTER TABLE b ALTER name TYPE bigint USING 7",
        "ALTER TABLE b ADD COLUMN at timestamptz DEFAULT clock_timestamp()",
        "CREATE TABLE c (LIKE b INCLUDING ALL); INSERT INTO c TABLE b; DROP TABLE b; ALTER TABLE c RENAME TO b",
        "VACUUM FULL b",
        "TRUNCATE b",
    ],
)
async def test_a_table_that_is_rewritten_before_the_snapshot_reads_it_keeps_its_rows(
    postgres: PostgresServer, database: str, rewrite: str
) -> None:
    postgres.execute(
        "CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a SELECT generate_series(1, 4)",
        "CREATE TABLE b (id int PRIMARY KEY, name text)", "INSERT INTO b SELECT n, 'x' FROM generate_series(1, 4) n",
        database=database,
    )  # fmt: skip
    new = source(postgres, database, snapshot_fetch_size="2")
    async with await new.task() as task, asyncio.timeout(60):
        read = await task.poll()
        postgres.execute(rewrite, "ALTER PUBLICATION oncelog SET TABLE a, b", "INSERT INTO b (id) VALUES (5)",
                         database=database)  # fmt: skip
        while ("c", 5) not in ops(read) and ("r", 5) not in ops(read):
            read += await polled(task)
    rows = {(id_,) for (id_,) in postgres.execute("SELECT id FROM b", database=database)}
    assert set(replayed(seen([record for record in read if record.topic == "shop.public.b"]))) == rows
    assert ops(read).count(("r", 1)) == (1 if rewrite == "TRUNCATE b" else 2)  # of a, and of b


@pytest.mark.parametrize("restart", [False, True])
async def test_tables_that_are_renamed_before_the_snapshot_reads_them_keep_their_rows(
    postgres: PostgresServer, database: str, restart: bool
) -> None:
    postgres.execute(
        *(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in "bcd"),
        "INSERT INTO b SELECT generate_series(1, 4)", "INSERT INTO c SELECT generate_series(11, 14)",
        "INSERT INTO d SELECT generate_series(21, 24)", database=database,
    )  # fmt: skip
    new = source(postgres, database, snapshot_fetch_size="2")
    read = await new.read(2, keep=2) if restart else []
    async with await new.task() as task, asyncio.timeout(60):
        if not restart:
            read += await task.poll()
        postgres.execute("ALTER TABLE c RENAME TO a", "ALTER TABLE d RENAME TO c", database=database)
        while len(read) < 12:
            read += await polled(task)
    rows = {(record.topic, plain(record.key)["id"]) for record in read}
    ranges = {"b": range(1, 5), "a": range(11, 15), "c": range(21, 25)}
    assert rows == {(f"shop.public.{name}", id_) for name, ids in ranges.items() for id_ in ids}


@pytest.mark.parametrize("between", ["SELECT", "CREATE TABLE b (id int PRIMARY KEY)"], ids=["alone", "empty-table"])
async def test_a_table_that_is_rewritten_again_and_again_is_read(
    postgres: PostgresServer, database: str, between: str
) -> None:
    postgres.execute(
        "CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a SELECT generate_series(1, 4)",
        between, "CREATE TABLE c (id int PRIMARY KEY)", "INSERT INTO c VALUES (11)", database=database,
    )  # fmt: skip
    waiting = "SELECT 1 FROM pg_locks l JOIN pg_class c ON c.oid = l.relation WHERE c.relname = 'c' AND NOT l.granted"
    new = source(postgres, database, snapshot_fetch_size="2", connection_attempts="1")
    read: list[SourceRecord] = []
    async with await new.task() as task, asyncio.timeout(60):
        read += await task.poll()
        interruptions = 0
        while ("r", 11) not in ops(read):
            with postgres.connect(database) as connection, connection.transaction():
                connection.execute("TRUNCATE c")
                connection.execute("INSERT INTO c VALUES (11)")
                polling = asyncio.create_task(task.poll())
                while not polling.done() and not postgres.execute(waiting, database=database):
                    await asyncio.sleep(0.01)
            try:
                read += await polling
            except RetriableError:
                interruptions += 1
    assert interruptions == 1
    assert ops(read) == [("r", id_) for id_ in (1, 2, 3, 4, 11)]


async def test_a_task_that_stops_while_it_waits_for_a_lock_closes_its_connections(
    postgres: PostgresServer, database: str
) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)", database=database)
    new = source(postgres, database, snapshot_fetch_size="1")
    await new.read(1, keep=1)
    waiting = "SELECT 1 FROM pg_locks l JOIN pg_class c ON c.oid = l.relation WHERE c.relname = 't' AND NOT l.granted"
    kind, opened = pytest.importorskip("psycopg").AsyncConnection, []
    async with await new.task() as task, asyncio.timeout(60):
        with postgres.connect(database) as connection, connection.transaction():
            connection.execute("LOCK TABLE t")
            polling = asyncio.create_task(task.poll())
            while not postgres.execute(waiting, database=database):
                await asyncio.sleep(0.01)
            opened += [each for each in gc.get_objects() if isinstance(each, kind)]
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
    assert len(opened) >= 2
    assert [each.closed for each in opened] == [True] * len(opened)


@pytest.mark.parametrize("small", [0, 40])
async def test_batches_of_large_rows_are_small(postgres: PostgresServer, database: str, small: int) -> None:
    rows = "SELECT n, repeat('x', 1 << {}) FROM generate_series({}, {}) n"
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, text text)", f"INSERT INTO t {rows.format(0, 1, small)}",
        f"INSERT INTO t {rows.format(20, small + 1, 80)}", database=database,
    )  # fmt: skip
    new = source(postgres, database)
    batches: list[list[SourceRecord]] = []
    async with await new.task() as task, asyncio.timeout(60):
        while sum(map(len, batches)) < 80:
            batches.append(await task.poll())
        postgres.execute(f"INSERT INTO t {rows.format(20, 81, 100)}", database=database)
        while sum(map(len, batches)) < 100:
            batches.append(await task.poll())
    assert all(sum(record.value["after"]["id"] > small for record in batch) <= 4 for batch in batches)
    assert ops([record for batch in batches for record in batch]) == [
        *(("r", id_) for id_ in range(1, 81)), *(("c", id_) for id_ in range(81, 101))
    ]  # fmt: skip


async def test_the_server_keeps_what_is_not_committed_in_kafka(postgres: PostgresServer, database: str) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", database=database)
    new = source(postgres, database, snapshot_mode="never")
    await started(new)

    def confirmed() -> bool:
        """Return whether the server may forget all of the log."""
        position = f"SELECT confirmed_flush_lsn >= '{end}' FROM pg_replication_slots WHERE slot_name = '{database}'"
        return bool(postgres.execute(position)[0][0])

    async with await new.task() as task:
        await task.poll()
        postgres.execute("INSERT INTO t VALUES (1); DELETE FROM t", database=database)
        end = postgres.execute("SELECT pg_current_wal_insert_lsn()")[0][0]
        records: list[SourceRecord] = []
        while len(records) < 3:
            records += await task.poll()
        for count in range(3):  # of the deletion, only the last record says that it is done
            await task.commit(records[:count])
            for _ in range(3):
                assert await task.poll() == []  # reports go out meanwhile
            assert not confirmed()
        await task.commit(records)
        async with asyncio.timeout(60):
            while not confirmed():
                await task.poll()


async def test_the_server_may_forget_what_has_no_records(postgres: PostgresServer, database: str) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE other (id int)", database=database)
    new = source(postgres, database, table_include_list="public.t")
    postgres.execute("INSERT INTO t VALUES (1)", database=database)
    await new.read(1)
    async with await new.task() as task:
        postgres.execute("INSERT INTO other SELECT generate_series(1, 1000)", database=database)
        end = postgres.execute("SELECT pg_current_wal_insert_lsn()")[0][0]
        query = f"SELECT confirmed_flush_lsn >= '{end}' FROM pg_replication_slots WHERE slot_name = '{database}'"
        async with asyncio.timeout(60):
            while not postgres.execute(query)[0][0]:
                assert await task.poll() == []


async def test_connectors_may_share_a_publication(postgres: PostgresServer, database: str) -> None:
    postgres.execute(
        "CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)",
        "INSERT INTO b VALUES (2)", database=database,
    )  # fmt: skip
    both, one = source(postgres, database), source(postgres, database, table_include_list=r"public\.a")
    one.config["slot.name"] = f"{database}_one"
    assert ops(await both.read(2)) == [("r", 1), ("r", 2)]
    assert ops(await one.read(1)) == [("r", 1)]
    postgres.execute("INSERT INTO b VALUES (3)", "INSERT INTO a VALUES (4)", "TRUNCATE a, b", database=database)
    assert ops(await both.read(4)) == [("c", 3), ("c", 4), ("t", None), ("t", None)]
    assert ops(await one.read(2)) == [("c", 4), ("t", None)]


async def test_large_values_that_did_not_change(postgres: PostgresServer, database: str) -> None:
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, name text, large text)",
        "ALTER TABLE t ALTER large SET STORAGE EXTERNAL",
        "INSERT INTO t VALUES (1, 'a', repeat('x', 10000))",
        database=database,
    )
    new = source(postgres, database)
    await new.read(1)
    postgres.execute("UPDATE t SET name = 'b'", database=database)
    (change,) = await new.read(1)
    assert plain(change.value)["after"] == {"id": 1, "name": "b", "large": "__debezium_unavailable_value"}
    postgres.execute("ALTER TABLE t REPLICA IDENTITY FULL", "UPDATE t SET name = 'c'", database=database)
    (change,) = await new.read(1)
    value = plain(change.value)
    assert (value["before"]["name"], value["after"]) == ("b", {"id": 1, "name": "c", "large": "x" * 10000})
    postgres.execute("DELETE FROM t", database=database)
    (change, tombstone) = await new.read(2)
    assert plain(change.value)["before"]["large"] == "x" * 10000
    assert (plain(tombstone.key), tombstone.value) == ({"id": 1}, None)


async def test_columns_may_come_and_go(postgres: PostgresServer, database: str) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY, name text)", database=database)
    new = source(postgres, database, snapshot_mode="never")
    await started(new)
    postgres.execute(
        "INSERT INTO t VALUES (1, 'a')",
        "ALTER TABLE t ADD COLUMN more int DEFAULT 7",
        "INSERT INTO t VALUES (2, 'b')",
        "ALTER TABLE t DROP COLUMN name",
        "ALTER TABLE t ALTER more TYPE bigint",
        f"INSERT INTO t VALUES (3, {2**40})",
        database=database,
    )
    after = [plain(record.value)["after"] for record in await new.read(3)]
    assert after == [{"id": 1, "name": "a"}, {"id": 2, "name": "b", "more": 7}, {"id": 3, "more": 2**40}]


async def test_rows_alone_in_place_of_the_envelope(postgres: PostgresServer, database: str) -> None:
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, name text)", "INSERT INTO t VALUES (1, 'a')", database=database
    )
    new = source(postgres, database, value_format="row")
    assert seen(await new.read(1)) == [({"id": 1}, {"id": 1, "name": "a"})]
    postgres.execute("DELETE FROM t", database=database)
    assert seen(await new.read(1)) == [({"id": 1}, None)]
    postgres.execute("TRUNCATE t", database=database)
    async with await new.task() as task:
        with pytest.raises(ConnectError, match=r"public\.t was truncated, which value\.format=row cannot express"):
            await polled_forever(task)
    new.config["truncate.handling.mode"] = "skip"
    postgres.execute("INSERT INTO t VALUES (2, 'b')", database=database)
    assert seen(await new.read(1)) == [({"id": 2}, {"id": 2, "name": "b"})]


async def test_a_killed_server_is_connected_again(postgres: PostgresServer, database: str) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (0)", database=database)
    new = source(postgres, database)
    read: list[SourceRecord] = []
    async with await new.task() as task:
        for count in range(1, 3):
            postgres.execute(f"INSERT INTO t VALUES ({count})", database=database)
            postgres.kill9()
            postgres.start()
            async with asyncio.timeout(60):
                while len(read) < count:
                    read += await polled(task)
    assert [key["id"] for key, _ in seen(read)] == [0, 1, 2][: len(read)]


async def test_a_server_that_was_killed_between_two_polls_is_connected_again(
    postgres: PostgresServer, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (0)", database=database)
    new = source(postgres, database)
    await new.read(1)
    async with await new.task() as task, asyncio.timeout(60):
        assert await task.poll() == []  # the stream has begun
        await asyncio.to_thread(postgres.kill9)
        while "the replication connection was lost" not in caplog.text:  # the task is paused
            await asyncio.sleep(0.01)
        await asyncio.to_thread(postgres.start)
        postgres.execute("INSERT INTO t VALUES (1)", database=database)
        with pytest.raises(RetriableError, match="the replication connection was lost"):
            await task.poll()
        read: list[SourceRecord] = []
        while not read:
            read += await polled(task)
    assert ops(read) == [("c", 1)]


async def test_a_wait_for_data_does_not_touch_the_descriptor_of_another_socket(
    postgres: PostgresServer, database: str
) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", database=database)
    replication = Replication(SETTINGS.parse(source(postgres, database).config))
    await replication.connect()
    descriptor = replication._pgconn().socket
    waiting = asyncio.create_task(replication.receive(60))
    await asyncio.sleep(0)
    first, second = socket.socketpair()
    await replication.close()  # as libpq does when the connection is lost
    os.dup2(first.fileno(), descriptor)  # another socket gets the number
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=descriptor))
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    second.send(b"x")
    async with asyncio.timeout(60):
        assert await reader.read(1) == b"x"
    writer.close()
    await writer.wait_closed()
    first.close()
    second.close()


async def test_a_batch_of_a_wide_table_has_few_rows(postgres: PostgresServer, database: str) -> None:
    columns = ", ".join(f"c{number} int" for number in range(400))
    postgres.execute(
        f"CREATE TABLE t (id int PRIMARY KEY, {columns})",
        "INSERT INTO t SELECT n FROM generate_series(1, 500) n",
        database=database,
    )
    async with await source(postgres, database).task() as task, asyncio.timeout(60):
        sizes: list[int] = []
        while sum(sizes) < 500:
            sizes.append(len(await task.poll()))
    assert max(sizes) * 401 < 51_000


@pytest.mark.parametrize("call", ["dup", "add_reader"])
async def test_a_wait_for_data_without_a_free_descriptor_is_tried_again(
    postgres: PostgresServer, database: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", database=database)
    new = source(postgres, database, snapshot_mode="never")
    async with await new.task() as task, asyncio.timeout(60):
        await task.poll()
        before = len(os.listdir("/proc/self/fd"))

        def failing(*arguments: object) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

        with monkeypatch.context() as patched:
            patched.setattr(os if call == "dup" else asyncio.get_running_loop(), call, failing)
            with pytest.raises(RetriableError, match="connection cannot be read: Too many open files"):
                await task.poll()
        assert len(os.listdir("/proc/self/fd")) < before  # the connection is closed
        postgres.execute("INSERT INTO t VALUES (1)", database=database)
        while not (read := await task.poll()):
            pass
    assert ops(read) == [("c", 1)]


async def test_a_server_that_goes_away_while_a_key_is_looked_up_is_connected_again(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", database=database)
    new, real = source(postgres, database), server.current_key
    ended: list[int] = []

    async def current_key(connection: Any, relation: Relation) -> server.Key:
        if not ended:
            ended.append(connection.info.backend_pid)
            postgres.execute(f"SELECT pg_terminate_backend({ended[0]}, 10000)")
        return await real(connection, relation)

    monkeypatch.setattr(server, "current_key", current_key)
    read: list[SourceRecord] = []
    async with await new.task() as task, asyncio.timeout(60):
        assert await task.poll() == []
        postgres.execute("INSERT INTO t VALUES (1)", database=database)
        while not read:
            read += await polled(task)
    assert ended
    assert [key["id"] for key, _ in seen(read)] == [1]


@pytest.mark.parametrize("replication", [False, True])
async def test_a_connection_without_a_peer_ends_after_two_minutes(
    postgres: PostgresServer, database: str, replication: bool
) -> None:
    settings = SETTINGS.parse(source(postgres, database).config)
    connection = await server.connect(settings, replication=replication)
    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as peer:
            idle, interval, count, unacknowledged_ms = (
                peer.getsockopt(socket.IPPROTO_TCP, option)
                for option in (
                    socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT,
                )
            )  # fmt: skip
    finally:
        await connection.close()
    assert 0 < idle + interval * count <= 120
    assert 0 < unacknowledged_ms <= 120_000


def test_a_snapshot_that_transaction_timeout_has_ended_is_tried_again() -> None:
    error = pytest.importorskip("psycopg").errors.lookup("25P04")("terminating connection due to transaction timeout")
    assert isinstance(server.failure(error, "the snapshot was interrupted"), RetriableError)


async def polled(task: RunningTask) -> list[SourceRecord]:
    try:
        return await task.poll()
    except RetriableError:
        return []


async def polled_forever(task: RunningTask) -> None:
    while True:
        assert await task.poll() == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"table_include_list": "nope"}, "table.include.list matches no table"),
        ({"publication_autocreate_mode": "disabled"}, "publication oncelog does not exist"),
        ({"database_dbname": "nope"}, 'database "nope" does not exist'),
    ],
)
async def test_what_is_missing_is_named(
    postgres: PostgresServer, database: str, settings: dict[str, str], message: str
) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", database=database)
    async with await source(postgres, database, **settings).task() as task:
        with pytest.raises(ConnectError, match=message) as failure:
            await task.poll()
    assert not isinstance(failure.value, RetriableError)


@pytest.mark.parametrize(
    ("before", "meanwhile"),
    [
        ("SELECT", "CREATE PUBLICATION oncelog FOR TABLE a"),
        ("CREATE PUBLICATION oncelog", "ALTER PUBLICATION oncelog ADD TABLE a"),
        ("CREATE PUBLICATION oncelog", "ALTER PUBLICATION oncelog ADD TABLE b"),
        ("SELECT", "DROP TABLE a"),
        ("CREATE PUBLICATION oncelog", "DROP TABLE a"),
        ("CREATE PUBLICATION oncelog", "DROP PUBLICATION oncelog"),
    ],
)
async def test_a_publication_that_is_changed_at_the_same_time_is_tried_again(
    postgres: PostgresServer, database: str, before: str, meanwhile: str
) -> None:
    postgres.execute(
        "CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)", "INSERT INTO b VALUES (1)",
        before, database=database,
    )  # fmt: skip
    waiting = f"SELECT 1 FROM pg_stat_activity WHERE datname = '{database}' AND wait_event_type = 'Lock'"
    new = source(postgres, database)
    async with await new.task() as task, asyncio.timeout(60):
        with postgres.connect(database) as connection, connection.transaction():
            connection.execute(meanwhile)
            polling = asyncio.create_task(polled(task))
            while not polling.done() and not postgres.execute(waiting):
                await asyncio.sleep(0.01)
        read = await polling
        while ("r", 1) not in ops(read):
            read += await polled(task)
    tables = "SELECT tablename FROM pg_publication_tables WHERE pubname = 'oncelog' ORDER BY 1"
    remaining = [("b",)] if "DROP TABLE" in meanwhile else [("a",), ("b",)]
    assert postgres.execute(tables, database=database) == remaining


@pytest.mark.parametrize("before", ["SELECT", "CREATE PUBLICATION oncelog"])
@pytest.mark.parametrize("meanwhile", ["DROP SCHEMA s CASCADE", "ALTER SCHEMA s RENAME TO other"])
async def test_a_schema_that_goes_away_before_the_publication_is_changed_is_no_failure(
    postgres: PostgresServer, database: str, before: str, meanwhile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.execute(
        "CREATE SCHEMA s", "CREATE TABLE s.a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)",
        "INSERT INTO b VALUES (1)", before, database=database,
    )  # fmt: skip
    changing_after_tables(postgres, database, monkeypatch, meanwhile)
    async with await source(postgres, database, table_include_list=r".*\..*").task() as task, asyncio.timeout(60):
        with pytest.raises(RetriableError, match='changed at the same time: schema "s" does not exist'):
            await task.poll()
        while ("r", 1) not in ops(await task.poll()):
            pass


async def test_a_schema_that_is_renamed_before_a_snapshot_continues_keeps_its_rows(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.execute(
        "CREATE SCHEMA s", "CREATE TABLE s.a (id int PRIMARY KEY)", "INSERT INTO s.a VALUES (1), (2)",
        database=database,
    )  # fmt: skip
    new = source(postgres, database, table_include_list=r".*\..*", snapshot_fetch_size="1")
    assert ops(await new.read(1, keep=1)) == [("r", 1)]
    new.config["publication.autocreate.mode"] = "disabled"
    changing_after_tables(postgres, database, monkeypatch, "ALTER SCHEMA s RENAME TO other")
    async with await new.task() as task, asyncio.timeout(60):
        with pytest.raises(RetriableError, match='snapshot was interrupted, and continues: schema "s" does not exist'):
            await task.poll()
        (row,) = await task.poll()
    assert (row.topic, ops([row])) == ("shop.other.a", [("r", 2)])


def changing_after_tables(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """Execute a statement once, after the connector has listed its tables."""
    real, statements = server.included_tables, [statement]

    async def included_tables(*arguments: Any) -> list[server.Table]:
        tables = await real(*arguments)
        while statements:
            postgres.execute(statements.pop(), database=database)
        return tables

    monkeypatch.setattr(server, "included_tables", included_tables)


@pytest.mark.parametrize(
    "hidden",
    [
        "REVOKE SELECT ON t FROM {role}",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY few ON t USING (id = 1)",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY every ON t USING (true)",
    ],
)
async def test_a_snapshot_that_may_not_see_all_rows_is_refused(
    postgres: PostgresServer, database: str, hidden: str
) -> None:
    role = f"{database}_role"
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)",
        "CREATE PUBLICATION oncelog FOR TABLE t",
        f"CREATE ROLE {role} LOGIN REPLICATION", f"GRANT SELECT ON t TO {role}", hidden.format(role=role),
        database=database,
    )  # fmt: skip
    new = source(postgres, database, database_user=role, publication_autocreate_mode="disabled")
    async with await new.task() as task:
        with pytest.raises(
            ConnectError, match="needs SELECT on the tables, and BYPASSRLS for tables with row-level secu"
        ):
            await task.poll()
    assert slots(postgres, database) == []
    postgres.execute(f"GRANT SELECT ON t TO {role}", f"ALTER ROLE {role} BYPASSRLS", database=database)
    assert ops(await new.read(2)) == [("r", 1), ("r", 2)]
    postgres.execute(f"DROP OWNED BY {role}; DROP ROLE {role}", database=database)


async def test_a_lost_slot_is_said(postgres: PostgresServer, database: str) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=database)
    new = source(postgres, database)
    await new.read(1)
    postgres.execute(f"SELECT pg_drop_replication_slot('{database}')")
    async with await new.task() as task:
        with pytest.raises(ConnectError, match=f"slot {database} was dropped or invalidated, so the changes after"):
            await task.poll()


async def test_a_slot_of_another_connector_is_refused(postgres: PostgresServer, database: str) -> None:
    postgres.execute(
        "CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)",
        "INSERT INTO b VALUES (1)", database=database,
    )  # fmt: skip
    first = source(postgres, database, topic_prefix="first", table_include_list=r"public\.a")
    assert ops(await first.read(1)) == [("r", 1)]
    postgres.execute("INSERT INTO a VALUES (2)", database=database)
    async with await source(postgres, database, topic_prefix="second", table_include_list=r"public\.b").task() as task:
        for _ in range(9):  # the slot may belong to an earlier instance that is about to drop it
            with pytest.raises(RetriableError, match=f"slot {database} exists"):
                await task.poll()
        with pytest.raises(ConnectError, match=f"slot {database} exists, .* drop the slot.* set slot.name") as failure:
            await task.poll()
        assert "without exactly-once, also empty the connector's topics" in str(failure.value)
    assert not isinstance(failure.value, RetriableError)
    assert ops(await first.read(1)) == [("c", 2)]


async def test_a_task_that_stops_before_a_record_is_committed_begins_anew(
    postgres: PostgresServer, database: str
) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", database=database)
    new = source(postgres, database)
    await started(new)
    assert slots(postgres, database) == []
    postgres.execute("INSERT INTO t VALUES (1)", database=database)
    async with await new.task() as task, asyncio.timeout(60):
        assert ops(await task.poll()) == [("r", 1)]  # not committed
    assert ops(await new.read(1)) == [("r", 1)]
    assert slots(postgres, database) == [(database,)]
    postgres.execute("INSERT INTO t VALUES (2)", database=database)
    assert ops(await new.read(1)) == [("c", 2)]


@pytest.mark.parametrize("exactly_once", [True, False])
async def test_a_task_that_drops_its_slot_warns_of_records_that_are_still_to_arrive(
    postgres: PostgresServer, database: str, exactly_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=database)
    new = source(postgres, database)
    new.exactly_once = exactly_once
    async with await new.task() as task:
        assert ops(await task.poll()) == [("r", 1)]
    assert slots(postgres, database) == []
    assert ("may have rows of this snapshot" in caplog.text) is not exactly_once


async def test_a_task_that_stops_while_its_slot_is_created_leaves_no_slot(
    postgres: PostgresServer, database: str
) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", database=database)
    creating = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'CREATE_REPLICATION_SLOT%' AND state = 'active'"
    with postgres.connect(database) as connection, connection.transaction():
        connection.execute("INSERT INTO t VALUES (1)")  # the server waits for the end of this transaction
        async with await source(postgres, database).task() as task, asyncio.timeout(60):
            polling = asyncio.create_task(task.poll())
            while not slots(postgres, database):
                await asyncio.sleep(0.01)
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
    async with asyncio.timeout(60):
        while postgres.execute(creating):
            await asyncio.sleep(0.01)
    assert slots(postgres, database) == []


async def test_a_task_that_stops_when_its_slot_was_created_unnoticed_leaves_no_slot(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=database)
    real, created = Replication.create_slot, asyncio.Event()

    async def create_slot(replication: Replication) -> NewSlot:
        slot = await real(replication)
        created.set()
        await asyncio.Event().wait()  # the answer is still on its way
        return slot

    with monkeypatch.context() as patched:
        patched.setattr(Replication, "create_slot", create_slot)
        async with await source(postgres, database).task() as task, asyncio.timeout(60):
            polling = asyncio.create_task(task.poll())
            await created.wait()
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
    assert slots(postgres, database) == []


async def test_a_slot_is_kept_if_an_offset_was_committed_unnoticed(postgres: PostgresServer, database: str) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)", database=database)
    new = source(postgres, database, snapshot_fetch_size="1")
    async with await new.task() as task:
        new.offsets.commit(await task.poll())  # the worker lost the response
    assert slots(postgres, database) == [(database,)]
    assert ops(await new.read(1)) == [("r", 2)]


@pytest.mark.parametrize("answer", ["error", "none"])
async def test_a_slot_is_kept_if_it_is_not_certain_that_no_offset_is_committed(
    postgres: PostgresServer, database: str, answer: str, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    async def offset(partition: object) -> None:
        if answer == "error":
            raise ConnectError("Kafka cannot be reached")
        await asyncio.Event().wait()

    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=database)
    new = source(postgres, database)
    monkeypatch.setattr(postgres_task, "_DROP_S", 0.1)
    async with await new.task() as task:
        assert ops(await task.poll()) == [("r", 1)]
        monkeypatch.setattr(new.offsets, "offset", offset)
    assert slots(postgres, database) == [(database,)]
    assert f"slot {database} is kept, because it is not certain" in caplog.text


async def test_a_task_does_not_drop_the_slot_that_its_successor_created(
    postgres: PostgresServer, database: str
) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=database)
    new = source(postgres, database)
    first = await new.task()
    async with first:
        await first.poll()
        postgres.execute(f"SELECT pg_drop_replication_slot('{database}')")
        second = await new.task()
        await second.__aenter__()
        assert ops(await second.poll()) == [("r", 1)]
    assert slots(postgres, database) == [(database,)]
    await second.__aexit__()
    assert slots(postgres, database) == []


async def test_a_task_waits_until_its_predecessor_drops_its_slot(postgres: PostgresServer, database: str) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=database)
    new = source(postgres, database)
    first, second = await new.task(), await new.task()
    async with second:
        async with first:
            await first.poll()
            with pytest.raises(RetriableError, match=f"slot {database} exists"):
                await second.poll()
        assert ops(await second.poll()) == [("r", 1)]


def slots(postgres: PostgresServer, database: str) -> list[tuple[Any, ...]]:
    return postgres.execute(f"SELECT slot_name FROM pg_replication_slots WHERE database = '{database}'")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"system": "1"}, "the offset belongs to the database cluster 1, but the server belongs to"),
        ({"lsn": 1 << 60}, "the offset is at 10000000/0, but the server's log ends at"),
    ],
)
async def test_an_offset_of_another_server_is_refused(
    postgres: PostgresServer, database: str, other: dict[str, Any], message: str
) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=database)
    new = source(postgres, database)
    (row,) = await new.read(1)
    await assert_offset_refused(new, row, other, message)


async def assert_offset_refused(new: Source, record: SourceRecord, other: dict[str, Any], message: str) -> None:
    """Commit the offset of a record with `other` values, and check that the task fails for good with this message."""
    new.offsets.commit([record.replace(source_offset={**(record.source_offset or {}), **other})])
    async with await new.task() as task:
        with pytest.raises(ConnectError, match=message) as failure:
            await task.poll()
    assert not isinstance(failure.value, RetriableError)


LOST_TIMELINE = "of timeline 1, but the server has this timeline only"


async def test_an_offset_in_a_lost_part_of_the_log_is_refused() -> None:
    with PostgresServer() as restored:
        restored.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        new = source(restored, "postgres")
        await new.read(1)
        restored.begin_timeline()
        restored.execute("INSERT INTO t VALUES (2)")
        (change,) = await new.read(1)
        assert (ops([change]), (change.source_offset or {})["timeline"]) == ([("c", 2)], 2)
        await assert_offset_refused(new, change, {"timeline": 1}, LOST_TIMELINE)


async def test_a_pass_of_the_snapshot_in_a_lost_part_of_the_log_is_refused() -> None:
    with PostgresServer() as restored:
        restored.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 4)")
        new = source(restored, "postgres", snapshot_fetch_size="1")
        await new.read(1, keep=1)
        restored.begin_timeline()
        restored.execute("INSERT INTO t VALUES (5)")
        (row,) = await new.read(1, keep=1)  # its pass saw the insertion, its slot is older than the timeline
        await assert_offset_refused(new, row, {"timeline": 1}, LOST_TIMELINE)


async def test_a_pass_of_the_snapshot_contains_no_change_after_a_crash() -> None:
    with PostgresServer() as crashed:
        crashed.execute("ALTER SYSTEM SET wal_writer_delay = '10s'", "SELECT pg_reload_conf()")
        crashed.execute(
            "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 4)",
            "CREATE TABLE other (id int)",
        )  # fmt: skip
        new = source(crashed, "postgres", table_include_list="public.t", snapshot_fetch_size="1")
        await new.read(1)
        crashed.execute("CHECKPOINT")
        with crashed.connect() as connection:
            for _ in range(30):  # ids of transactions that are not on disk
                connection.execute("BEGIN")
                connection.execute("INSERT INTO other SELECT generate_series(1, 50)")
                connection.execute("ROLLBACK")
            await new.read(3)
            crashed.kill9()
        crashed.start()
        crashed.execute(*(f"INSERT INTO t VALUES ({number})" for number in range(5, 15)))
        assert ops(await new.read(10)) == [("c", number) for number in range(5, 15)]


async def test_a_slot_in_use_is_waited_for(postgres: PostgresServer, database: str) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=database)
    new = source(postgres, database)
    await new.read(1)
    async with await new.task() as first, await new.task() as second:
        await first.poll()
        with pytest.raises(RetriableError, match="is in use"):
            await second.poll()
