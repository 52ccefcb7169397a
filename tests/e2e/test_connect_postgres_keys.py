"""PostgresSource's keys: replica identities, tables without a key, keys that the server does not send."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from oncelog.connect import ConnectError, RetriableError, SourceRecord
from support.postgres import PostgresServer
from support.source_tasks import RunningTask

pytest.importorskip("psycopg", reason="needs the extra: pip install 'oncelog[connect-postgres]'")
from support.postgres_source import plain, read_to_end, replayed, source, table_rows


def changes(records: list[SourceRecord]) -> list[Any]:
    """Return (op, key) of each record, and None for each tombstone."""
    return [None if record.value is None else (record.value["op"], plain(record.key)) for record in records]


async def test_a_table_identified_by_an_index_has_the_columns_of_the_index_as_its_key(
    postgres: PostgresServer, database: str
) -> None:
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL, name text, part int NOT NULL)",
        "CREATE UNIQUE INDEX by_code ON t (part, code)",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX by_code",
        "INSERT INTO t VALUES (1, 'x', 'a', 7), (2, 'y', 'b', 7)",
        database=database,
    )
    new = source(postgres, database)
    x, y, z = ({"part": 7, "code": code} for code in "xyz")
    rows = await new.read(2)
    assert changes(rows) == [("r", x), ("r", y)]
    assert list(plain(rows[0].key)) == ["part", "code"]
    postgres.execute(
        "UPDATE t SET id = 3 WHERE id = 1",
        "UPDATE t SET code = 'z' WHERE code = 'y'",
        "DELETE FROM t WHERE id = 3",
        database=database,
    )
    records = await new.read(6)
    assert changes(records) == [("u", x), ("d", y), None, ("c", z), ("d", x), None]
    assert list(plain(records[0].key)) == ["part", "code"]
    for record in records:
        if record.value is not None:
            record.value.check()


async def test_an_interrupted_snapshot_of_a_table_identified_by_an_index_goes_on_behind_the_last_row(
    postgres: PostgresServer, database: str
) -> None:
    postgres.execute(
        "CREATE TABLE t (code text NOT NULL UNIQUE)",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX t_code_key",
        "INSERT INTO t VALUES ('c'), ('a'), ('b')",
        database=database,
    )
    new = source(postgres, database, snapshot_fetch_size="1")
    read = await new.read(2, keep=2) + await new.read(1)
    assert changes(read) == [("r", {"code": code}) for code in "abc"]
    await new.nothing(1)


@pytest.mark.parametrize("exactly_once", [False, True], ids=["at-least-once", "exactly-once"])
@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("ALTER TABLE t ALTER id TYPE text", "id"),
        ("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (code)", "code"),
        ("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (code, id)", "code, id"),
        ("CREATE UNIQUE INDEX by_code ON t (code); ALTER TABLE t REPLICA IDENTITY USING INDEX by_code", "code"),
        ('ALTER TABLE t ALTER name TYPE text COLLATE "C"', "name"),
        ("ALTER TABLE t DROP COLUMN id, ADD COLUMN id serial PRIMARY KEY", "id"),
    ],
)
async def test_a_table_is_read_again_if_its_key_changed_while_its_snapshot_was_interrupted(
    postgres: PostgresServer, database: str, change: str, key: str, exactly_once: bool
) -> None:
    postgres.execute(
        'CREATE TABLE t (id int PRIMARY KEY, code int NOT NULL, name text COLLATE "und-x-icu" NOT NULL UNIQUE)',
        "INSERT INTO t SELECT n, n * 7 % 31, chr(65 + n / 2 + n % 2 * 32) FROM generate_series(1, 30) n",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX t_name_key" if key == "name" else "SELECT",
        database=database,
    )
    new = source(postgres, database, snapshot_fetch_size="4")
    new.exactly_once = exactly_once
    topic = await new.read(15, keep=15)
    postgres.execute(change, database=database)
    topic += await read_to_end(postgres, database, new)
    rows = table_rows(postgres, database, "t", key)
    read = replayed((plain(record.key), plain(record.value)) for record in topic)
    assert {each: read.get(each) for each in rows} == rows


async def test_a_row_with_the_earlier_key_is_deleted_if_the_key_changed_while_a_snapshot_was_interrupted(
    postgres: PostgresServer, database: str
) -> None:
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, code int NOT NULL)",
        "INSERT INTO t SELECT n, n + 10 FROM generate_series(1, 4) n", database=database,
    )  # fmt: skip
    new = source(postgres, database, snapshot_fetch_size="1", tombstones_on_delete="false")
    new.exactly_once = True
    assert changes(await new.read(2, keep=2)) == [("r", {"id": 1}), ("r", {"id": 2})]
    postgres.execute(
        "DELETE FROM t WHERE id = 1", "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (code)", database=database
    )
    read = changes(await read_to_end(postgres, database, new))
    assert read == [("r", {"code": 12}), ("r", {"code": 13}), ("r", {"code": 14}), ("d", {"id": 1})]


@pytest.mark.parametrize(
    "later",
    [
        "DROP TABLE t",
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (code)",
        "ALTER TABLE t REPLICA IDENTITY FULL; ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (code)",
    ],
)
@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
async def test_a_change_of_a_row_that_was_read_before_it_follows_although_the_key_is_gone(
    postgres: PostgresServer, database: str, identity: str, later: str
) -> None:
    postgres.execute(
        "CREATE TABLE t (id int, code int NOT NULL, part int, name text, PRIMARY KEY (part, id))",
        f"ALTER TABLE t REPLICA IDENTITY {identity}",
        "INSERT INTO t VALUES (9, 0, 1), (1, 10, 2), (2, 11, 2)", "CREATE TABLE u (id int PRIMARY KEY)",
        database=database,
    )  # fmt: skip
    new = source(postgres, database, snapshot_fetch_size="1")
    new.exactly_once = True
    await new.read(1, keep=1)
    postgres.execute("UPDATE t SET name = 'x' WHERE id = 9", database=database)
    await new.read(1, keep=1)  # this pass has seen the update of a row before its first
    postgres.execute(later, database=database)
    read = await read_to_end(postgres, database, new)
    updated = [plain(record.value)["after"] for record in read if record.value and record.value["op"] == "u"]
    assert updated == [{"id": 9, "code": 0, "part": 1, "name": "x"}]


async def test_changes_before_a_table_was_renamed_have_its_key(postgres: PostgresServer, database: str) -> None:
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, name text)", "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t VALUES (1, 'a')", database=database,
    )  # fmt: skip
    new = source(postgres, database)
    await new.read(1)
    postgres.execute("DELETE FROM t", "ALTER TABLE t RENAME TO later", database=database)
    assert changes(await new.read(2)) == [("d", {"id": 1}), None]


@pytest.mark.parametrize("identity", ["FULL", "DEFAULT"])
async def test_changes_before_columns_of_the_key_were_renamed_have_the_earlier_names(
    postgres: PostgresServer, database: str, identity: str
) -> None:
    postgres.execute(
        "CREATE TABLE t (id int, name text, part int, PRIMARY KEY (part, id))",
        f"ALTER TABLE t REPLICA IDENTITY {identity}", "INSERT INTO t VALUES (1, 'a', 2)", database=database,
    )  # fmt: skip
    new = source(postgres, database)
    await new.read(1)
    postgres.execute(
        "DELETE FROM t", "ALTER TABLE t ADD COLUMN more int", "ALTER TABLE t RENAME id TO ident",
        "ALTER TABLE t RENAME part TO shard", "INSERT INTO t VALUES (3, 'b', 4, 5)", database=database,
    )  # fmt: skip
    read = await new.read(3)
    assert changes(read) == [("d", {"part": 2, "id": 1}), None, ("c", {"shard": 4, "ident": 3})]
    assert list(plain(read[0].key)) == ["part", "id"]


@pytest.mark.parametrize("identity", ["FULL", "DEFAULT"])
async def test_changes_before_columns_exchanged_their_names_have_the_earlier_key(
    postgres: PostgresServer, database: str, identity: str
) -> None:
    postgres.execute(
        "CREATE TABLE t (a int PRIMARY KEY, b int)", f"ALTER TABLE t REPLICA IDENTITY {identity}",
        "INSERT INTO t VALUES (1, 10)", database=database,
    )  # fmt: skip
    new = source(postgres, database)
    await new.read(1)
    postgres.execute(
        "INSERT INTO t VALUES (2, 20)", "ALTER TABLE t RENAME a TO x", "ALTER TABLE t RENAME b TO a",
        "ALTER TABLE t RENAME x TO b", "INSERT INTO t VALUES (3, 30)", database=database,
    )  # fmt: skip
    assert changes(await new.read(2)) == [("c", {"a": 2}), ("c", {"b": 3})]


async def test_changes_whose_key_is_unknown_are_refused(postgres: PostgresServer, database: str) -> None:
    postgres.execute(
        "CREATE TABLE t (gone int, id int PRIMARY KEY, name text)", "ALTER TABLE t REPLICA IDENTITY FULL",
        "ALTER TABLE t DROP COLUMN gone", "INSERT INTO t VALUES (1, 'a')", database=database,
    )  # fmt: skip
    new = source(postgres, database)
    await new.read(1)
    postgres.execute("DELETE FROM t", "ALTER TABLE t RENAME id TO ident", database=database)
    async with await new.task() as task:
        with pytest.raises(ConnectError, match=r"public\.t has unread changes without column ident") as failure:
            await polled_forever(task)
    assert not isinstance(failure.value, RetriableError)
    postgres.execute("ALTER TABLE t RENAME ident TO id", database=database)
    assert changes(await new.read(2)) == [("d", {"id": 1}), None]


async def test_changes_before_a_primary_key_was_replaced_have_the_earlier_key(
    postgres: PostgresServer, database: str
) -> None:
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, other int NOT NULL)", "INSERT INTO t VALUES (1, 2)", database=database
    )
    new = source(postgres, database)
    await new.read(1)
    postgres.execute(
        "DELETE FROM t", "ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (other)",
        "INSERT INTO t VALUES (3, 4)", database=database,
    )  # fmt: skip
    assert changes(await new.read(3)) == [("d", {"id": 1}), None, ("c", {"other": 4})]


async def test_a_large_key_that_an_update_did_not_change_stays_the_key(postgres: PostgresServer, database: str) -> None:
    key = "k" * 2400
    postgres.execute(
        "CREATE TABLE t (id text PRIMARY KEY, name text, large text)",
        "ALTER TABLE t ALTER id SET STORAGE EXTERNAL, ALTER large SET STORAGE EXTERNAL",
        f"INSERT INTO t VALUES ('{key}', 'a', repeat('x', 9000))",
        database=database,
    )
    new = source(postgres, database)
    await new.read(1)
    postgres.execute("UPDATE t SET name = 'b'", database=database)
    (change,) = await new.read(1)
    assert (change.value["op"], plain(change.key)) == ("u", {"id": key})
    assert plain(change.value)["after"] == {"id": key, "name": "b", "large": "__debezium_unavailable_value"}


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
@pytest.mark.parametrize("value_format", ["envelope", "row"])
async def test_the_records_of_a_changed_key_have_the_other_key_in_a_header(
    postgres: PostgresServer, database: str, identity: str, value_format: str
) -> None:
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, large text)", "ALTER TABLE t ALTER large SET STORAGE EXTERNAL",
        f"ALTER TABLE t REPLICA IDENTITY {identity}", "INSERT INTO t VALUES (1, repeat('x', 9000))", database=database,
    )  # fmt: skip
    new = source(postgres, database, value_format=value_format)
    await new.read(1)
    postgres.execute("UPDATE t SET id = 2", database=database)
    *deleted, created = await new.read(3 if value_format == "envelope" else 2)
    for record in deleted:
        assert plain(record.key) == {"id": 1}
        assert [(name, plain(value), schema) for name, value, schema in record.headers] == [
            ("__debezium.newkey", {"id": 2}, record.key_schema)
        ]
    assert plain(created.key) == {"id": 2}
    assert [(name, plain(value), schema) for name, value, schema in created.headers] == [
        ("__debezium.oldkey", {"id": 1}, created.key_schema)
    ]
    value = plain(created.value)
    if value_format == "envelope":
        assert (value["op"], value["before"]) == ("c", None)
        value = value["after"]
    assert value == {"id": 2, "large": "x" * 9000 if identity == "FULL" else "__debezium_unavailable_value"}


async def test_rows_without_a_replica_identity_have_the_primary_key(postgres: PostgresServer, database: str) -> None:
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY)", "ALTER TABLE t REPLICA IDENTITY NOTHING", "INSERT INTO t VALUES (1)",
        database=database,
    )  # fmt: skip
    new = source(postgres, database)
    assert changes(await new.read(1)) == [("r", {"id": 1})]
    postgres.execute("INSERT INTO t VALUES (2)", "TRUNCATE t", database=database)
    assert changes(await new.read(2)) == [("c", {"id": 2}), ("t", None)]


async def test_a_table_without_any_key_has_records_without_keys(postgres: PostgresServer, database: str) -> None:
    postgres.execute(
        "CREATE TABLE t (name text)", "ALTER TABLE t REPLICA IDENTITY FULL", "INSERT INTO t VALUES ('a')",
        database=database,
    )  # fmt: skip
    new = source(postgres, database)
    assert changes(await new.read(1)) == [("r", None)]
    postgres.execute("UPDATE t SET name = 'b'", "DELETE FROM t", database=database)
    records = await new.read(2)
    assert changes(records) == [("u", None), ("d", None)]
    assert plain(records[1].value)["before"] == {"name": "b"}


async def polled_forever(task: RunningTask) -> None:
    while True:
        assert await task.poll() == []


async def refused(postgres: PostgresServer, database: str, message: str, **settings: str) -> None:
    async with await source(postgres, database, **settings).task() as task:
        with pytest.raises(ConnectError, match=message) as failure:
            await task.poll()
    assert not isinstance(failure.value, RetriableError)


async def test_a_key_with_a_generated_column_is_refused(postgres: PostgresServer, database: str) -> None:
    postgres.execute(
        "CREATE TABLE t (a int, twice int GENERATED ALWAYS AS (a * 2) STORED, code int NOT NULL UNIQUE, "
        "PRIMARY KEY (a, twice))",
        database=database,
    )
    await refused(
        postgres, database, r"public\.t has the generated column twice in its key.* REPLICA IDENTITY USING INDEX"
    )
    postgres.execute("ALTER TABLE t REPLICA IDENTITY USING INDEX t_code_key", "INSERT INTO t VALUES (1, DEFAULT, 5)",
                     database=database)  # fmt: skip
    assert changes(await source(postgres, database).read(1)) == [("r", {"code": 5})]


async def test_tables_with_the_same_topic_are_refused(postgres: PostgresServer, database: str) -> None:
    postgres.execute(
        'CREATE TABLE "a b" (id int PRIMARY KEY)', "CREATE TABLE a_b (id int PRIMARY KEY)",
        'INSERT INTO "a b" VALUES (1)', database=database,
    )  # fmt: skip
    message = r"tables public\.a b and public\.a_b have the same topic, shop\.public\.a_b: change table\.include\.list"
    await refused(postgres, database, message)
    new = source(postgres, database, table_include_list=r"public\.a b")
    (row,) = await new.read(1)
    assert (row.topic, row.key_schema and row.key_schema.name) == ("shop.public.a_b", "shop.public.a_b.Key")
    postgres.execute('UPDATE "a b" SET id = id', database=database)
    (change,) = await new.read(1)
    assert (change.topic, plain(change.value)["source"]["table"]) == ("shop.public.a_b", "a b")


async def test_a_partitioned_table_without_its_partitions_is_refused(postgres: PostgresServer, database: str) -> None:
    postgres.execute(
        "CREATE TABLE other (id int PRIMARY KEY)",
        "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "INSERT INTO t VALUES (1)",
        database=database,
    )
    message = r"public\.t is partitioned, and table\.include\.list matches none of its partitions"
    await refused(postgres, database, message, table_include_list=r"public\.t,public\.other")
    new = source(postgres, database)
    (row,) = await new.read(1)
    assert (row.topic, changes([row])) == ("shop.public.t_1", [("r", {"id": 1})])
    postgres.execute("DELETE FROM t", database=database)
    assert changes(await new.read(2)) == [("d", {"id": 1}), None]


@pytest.mark.parametrize("mode", ["disabled", "filtered"])
@pytest.mark.parametrize("listed", ["public.t", "public.t_1"])
async def test_a_publication_via_the_partition_root_is_refused_for_a_snapshot(
    postgres: PostgresServer, database: str, mode: str, listed: str
) -> None:
    postgres.execute(
        "CREATE TABLE a (id int PRIMARY KEY)",
        "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "INSERT INTO t VALUES (1)",
        "CREATE PUBLICATION oncelog FOR TABLE a, t WITH (publish_via_partition_root)",
        database=database,
    )
    partitions = "public.t_1" if mode == "filtered" else listed
    settings = {"publication_autocreate_mode": mode, "table_include_list": f"public.a,{listed},{partitions}"}
    async with await source(postgres, database, **settings).task() as task:
        for _ in range(2):
            with pytest.raises(
                ConnectError, match=r"oncelog publishes .* as changes of public\.t, .* SET \(publish_via"
            ):
                await task.poll()
    only_changes = source(
        postgres, database, snapshot_mode="never", publication_autocreate_mode="disabled", table_include_list="public.t"
    )
    async with await only_changes.task() as task, asyncio.timeout(60):
        await task.poll()
        postgres.execute("INSERT INTO t VALUES (2)", database=database)
        while not (records := await task.poll()):
            pass
    assert [record.topic for record in records] == ["shop.public.t"]
