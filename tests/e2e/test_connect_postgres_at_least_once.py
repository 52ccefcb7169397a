"""PostgresSource without exactly-once: rows that were produced after the committed offset follow the table, too."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from oncelog.connect import SourceRecord
from support.postgres import PostgresServer
from support.source_tasks import Source

pytest.importorskip("psycopg", reason="needs the extra: pip install 'oncelog[connect-postgres]'")
from support.postgres_source import plain, read_to_end, replayed, source, table_rows


def rows_of(records: Sequence[SourceRecord], table: str) -> dict[Any, Any]:
    """Return the rows that a reader of the topic of a table has in the end, by their keys."""
    return replayed((plain(each.key), plain(each.value)) for each in records if each.topic == f"shop.public.{table}")


async def killed(new: Source, count: int, *, committed: int) -> list[SourceRecord]:
    """Return the next `count` records, which are in the topic. Commit only the first offsets, as a killed worker."""
    records: list[SourceRecord] = []
    async with await new.task() as task:
        while len(records) < count:
            batch = await task.poll()
            for record in batch:
                await task.task.commit_record(record, None)  # type: ignore[misc]
            records += batch
            if len(records) >= committed:
                new.offsets.commit(records[:committed])
    return records


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM t WHERE id BETWEEN 6 AND 8",
        "UPDATE t SET id = 100 WHERE id = 7",
        "TRUNCATE t",
        "DELETE FROM t WHERE id = 7; INSERT INTO t VALUES (7, 'again'); DELETE FROM t WHERE id = 8",
    ],
)
async def test_rows_that_are_gone_before_a_killed_snapshot_continues_are_deleted(
    postgres: PostgresServer, database: str, change: str
) -> None:
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, name text)", "INSERT INTO t SELECT n, 'x' FROM generate_series(1, 10) n",
        "CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO u VALUES (1)", database=database,
    )  # fmt: skip
    new = source(postgres, database, snapshot_fetch_size="1")
    topic = await killed(new, 11, committed=3)
    postgres.execute(change, database=database)
    topic += await read_to_end(postgres, database, new)
    assert rows_of(topic, "t") == table_rows(postgres, database, "t")
    assert rows_of(topic, "u") == {(1,): {"id": 1}}


async def test_rows_that_are_gone_are_deleted_after_exactly_once_was_enabled(
    postgres: PostgresServer, database: str
) -> None:
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 10)", database=database
    )
    new = source(postgres, database, snapshot_fetch_size="1")
    topic = await killed(new, 9, committed=3)
    postgres.execute("DELETE FROM t WHERE id = 7", database=database)
    new.exactly_once = True
    topic += await new.read(2, keep=2)
    postgres.execute("DELETE FROM t WHERE id = 8", database=database)
    topic += await read_to_end(postgres, database, new)
    assert rows_of(topic, "t") == table_rows(postgres, database, "t")


KEYS = {"a": "id", "b": "code", "c": "part, id"}
TABLES = (
    "CREATE TABLE a (id int PRIMARY KEY, name text)",
    "CREATE TABLE b (code text PRIMARY KEY, name text)",
    "CREATE TABLE c (id int, name text, part int, PRIMARY KEY (part, id))",
)

MORE = "INSERT INTO a SELECT (SELECT coalesce(max(id), 0) FROM a) + n, 'y' FROM generate_series(1, 20) n"


def random_change(numbers: random.Random) -> str:
    table, id_, name = numbers.choice("abc"), numbers.randint(1, 20), numbers.randint(1000, 1_000_000)
    part = id_ % 3
    key = {"a": "id", "b": "code", "c": "id"}[table]
    row = {"a": f"{id_}, {name}", "b": f"'{id_}', {name}", "c": f"{id_}, {name}, {part}"}[table]
    match numbers.randint(0, 9):
        case 0 | 1 | 2:
            return f"INSERT INTO {table} VALUES ({row}) ON CONFLICT DO NOTHING"
        case 3 | 4 | 5:
            return f"UPDATE {table} SET name = {name} WHERE {key}::int = {id_}"
        case 6 | 7:
            return f"UPDATE {table} SET {key} = '{name}' WHERE {key}::int = {id_}"
        case 8:
            return f"DELETE FROM {table} WHERE {key}::int % 5 = {id_ % 5}"
        case _:
            return f"TRUNCATE {table}"


@pytest.mark.parametrize("exactly_once", [False, True], ids=["at-least-once", "exactly-once"])
@pytest.mark.parametrize("seed", range(4))
async def test_the_replayed_topic_equals_the_tables_wherever_the_worker_is_killed(
    postgres: PostgresServer, database: str, exactly_once: bool, seed: int
) -> None:
    numbers = random.Random(seed)
    postgres.execute(
        *TABLES, "INSERT INTO a SELECT n, 'x' FROM generate_series(1, 20) n",
        "INSERT INTO b SELECT n, 'x' FROM generate_series(1, 20) n",
        "INSERT INTO c SELECT n, 'x', n % 3 FROM generate_series(1, 20) n", database=database,
    )  # fmt: skip
    new = source(postgres, database, snapshot_fetch_size="2", max_batch_size="3")
    new.exactly_once = exactly_once
    topic: list[SourceRecord] = []
    for _ in range(8):
        produced = numbers.randint(4, 16)
        committed = numbers.randint(1, 4)
        records = await killed(new, produced, committed=committed)
        topic += records[:committed] if exactly_once else records
        changes = [random_change(numbers) for _ in range(numbers.randint(1, 6))]
        postgres.execute(*changes, MORE, database=database)
    topic += await read_to_end(postgres, database, new)
    for table, key in KEYS.items():
        assert rows_of(topic, table) == table_rows(postgres, database, table, key)
