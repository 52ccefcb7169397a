"""SqlSource on a real SQLite file: modes, batches, restarts at every row, late rows, nulls, types."""

from __future__ import annotations

import datetime
import sqlite3
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from oncelog.connect import ConnectError, RetriableError, SourceRecord
from oncelog.connect.connectors.sql.connector import SqlSourceConnector
from oncelog.connect.data.logical import DECIMAL, TIMESTAMP
from oncelog.connect.task.boundaries import ConnectorBoundary, End
from oncelog.connect.worker.task_context import TaskContext
from support.source_tasks import RunningTask, Source

sa = pytest.importorskip("sqlalchemy", reason="needs the extra: pip install 'oncelog[connect-sql]'")
from oncelog.connect.connectors.sql import source as sql_source  # noqa: E402
from oncelog.connect.connectors.sql.cursors import Batch, BulkCursor  # noqa: E402

OLD = "2020-01-01 00:00:00"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "data.db", isolation_level=None)
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY NOT NULL, at TIMESTAMP NOT NULL, name TEXT)")
    connection.execute("CREATE TABLE plain (at TIMESTAMP NOT NULL, name TEXT)")
    connection.execute("CREATE TABLE open (id INTEGER PRIMARY KEY NOT NULL, at TIMESTAMP, name TEXT)")
    yield connection
    connection.close()


def source(tmp_path: Path, mode: str, **settings: str) -> Source:
    config = {
        "connection.url": f"sqlite:///{tmp_path / 'data.db'}",
        "mode": mode,
        "topic.prefix": "db-",
        "table.whitelist": "t",
        "poll.interval.ms": "1",
        "connection.backoff.ms": "0",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    if mode in ("incrementing", "timestamp+incrementing"):
        config["incrementing.column.name"] = "id"
    if "timestamp" in mode:
        config.setdefault("timestamp.column.name", "at")
    return Source(SqlSourceConnector, config)


def names(records: list[SourceRecord]) -> list[str]:
    return [record.value["name"] for record in records]


def rows(database: sqlite3.Connection, table: str, *values: tuple[Any, ...]) -> None:
    places = ", ".join("?" * len(values[0]))
    database.executemany(f"INSERT INTO {table} VALUES ({places})", values)


async def test_a_table_that_is_listed_twice_is_read_once(database: sqlite3.Connection, tmp_path: Path) -> None:
    new = source(tmp_path, "incrementing", table_whitelist="t,plain,t")
    assert [config["tables"] for config in await new.task_configs(3)] == ["t", "plain"]


async def test_incrementing_reads_new_rows_behind_the_last_one(database: sqlite3.Connection, tmp_path: Path) -> None:
    rows(database, "t", *((number, OLD, f"r{number}") for number in range(1, 8)))
    new = source(tmp_path, "incrementing", batch_max_rows="3")
    records = await new.read(7)
    assert names(records) == [f"r{number}" for number in range(1, 8)]
    assert (records[0].topic, records[0].source_partition, records[0].source_offset) == (
        "db-t",
        {"table": "t"},
        {"incrementing": 1},
    )
    rows(database, "t", (20, OLD, "new"))
    assert names(await new.read(1)) == ["new"]
    await new.nothing()


async def test_the_number_of_a_row_of_sqlite_is_never_null(database: sqlite3.Connection, tmp_path: Path) -> None:
    database.execute("CREATE TABLE numbered (id INTEGER PRIMARY KEY, name TEXT)")
    rows(database, "numbered", (1, "a"), (2, "b"))
    records = await source(tmp_path, "incrementing", table_whitelist="numbered").read(2)
    assert names(records) == ["a", "b"]
    schema = records[0].value_schema
    assert schema is not None
    assert [field.schema.optional for field in schema.fields] == [False, True]


@pytest.mark.parametrize("key", ["INT PRIMARY KEY", "TEXT PRIMARY KEY", "INTEGER PRIMARY KEY DESC"])
async def test_other_keys_of_sqlite_can_be_null(database: sqlite3.Connection, tmp_path: Path, key: str) -> None:
    database.execute(f"CREATE TABLE keyed (id {key}, name TEXT)")
    rows(database, "keyed", (None, "no key"))
    with pytest.raises(ConnectError, match=r"incrementing\.column\.name of table keyed: id can be null"):
        await source(tmp_path, "incrementing", table_whitelist="keyed").read(1)


@pytest.mark.parametrize("mode", ["incrementing", "timestamp", "timestamp+incrementing", "bulk"])
@pytest.mark.parametrize("batch", ["1", "3", "100"])
async def test_a_task_goes_on_behind_any_row(
    database: sqlite3.Connection, tmp_path: Path, mode: str, batch: str
) -> None:
    stamps = [OLD, OLD, OLD, "2020-01-02 00:00:00.5", "2020-01-03", "2020-01-03", "2020-01-03", "2020-01-03"]
    rows(database, "t", *((number, at, f"r{number}") for number, at in enumerate(stamps)))
    for keep in range(1, 8):
        new = source(tmp_path, mode, batch_max_rows=batch)
        first = await new.read(8, keep=keep)
        assert names(first + await new.read(8 - keep))[:8] == [f"r{number}" for number in range(8)]


async def test_timestamps_return_a_row_again_when_it_changes(database: sqlite3.Connection, tmp_path: Path) -> None:
    rows(database, "t", (1, OLD, "a"), (2, OLD, "b"))
    for mode in ("timestamp", "timestamp+incrementing"):
        new = source(tmp_path, mode)
        assert names(await new.read(2)) == ["a", "b"]
        await new.nothing()
        database.execute("UPDATE t SET at = '2020-02-01 00:00:00' WHERE id = 1")
        assert names(await new.read(1)) == ["a"]
        await new.nothing()
        database.execute("UPDATE t SET at = ?", (OLD,))


async def test_equal_timestamps_without_a_key_make_one_batch(database: sqlite3.Connection, tmp_path: Path) -> None:
    rows(database, "plain", ("2020-01-01", "a"), *(("2020-01-02", f"b{number}") for number in range(5)))
    rows(database, "plain", ("2020-01-03", "c"), ("2020-01-03", "d"))
    new = source(tmp_path, "timestamp", table_whitelist="plain", batch_max_rows="2")
    async with await new.task() as task:
        batches = [sorted(names(await task.poll())) for _ in range(3)]
    assert batches == [["a"], [f"b{number}" for number in range(5)], ["c", "d"]]
    new = source(tmp_path, "timestamp", table_whitelist="plain", batch_max_rows="2", equal_timestamps_max_rows="4")
    async with await new.task() as task:
        await task.poll()
        with pytest.raises(ConnectError, match="more than 4 rows have the timestamp 2020-01-02"):
            await task.poll()


@pytest.mark.parametrize(("change", "left"), [("UPDATE plain SET at = '2020-01-02'", 3), ("DELETE FROM plain", 0)])
async def test_rows_that_change_before_their_group_is_read_are_polled_again(
    database: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, left: int
) -> None:
    rows(database, "plain", *(("2020-01-01", f"r{number}") for number in range(3)))
    changes = [change]
    monkeypatch.setattr(sql_source.Source, "rows", _after_changes(tmp_path, changes))
    new = source(tmp_path, "timestamp", table_whitelist="plain", batch_max_rows="2")
    async with await new.task() as task:
        assert await task.poll() == []
        assert not changes
        assert sorted(names(await task.poll())) == [f"r{number}" for number in range(left)]


async def test_a_timestamp_that_never_equals_itself_is_refused(
    database: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows(database, "plain", *(("2020-01-01", f"r{number}") for number in range(3)))
    monkeypatch.setattr(sql_source, "_equal", lambda order, position: sa.false())
    new = source(tmp_path, "timestamp", table_whitelist="plain", batch_max_rows="2")
    async with await new.task() as task:
        assert await task.poll() == []
        with pytest.raises(ConnectError, match="no row is found by the timestamp 2020-01-01"):
            await task.poll()


def _after_changes(tmp_path: Path, changes: list[str]) -> Any:
    """Return a `Source.rows` that makes the changes before it first reads a group of rows with equal positions."""
    read = sql_source.Source.rows

    def changed(*arguments: Any, equal: bool = False) -> list[sql_source.Row]:
        if equal and changes:
            connection = sqlite3.connect(tmp_path / "data.db", isolation_level=None)
            connection.execute(changes.pop())
            connection.close()
        return read(*arguments, equal=equal)

    return changed


async def test_rows_wait_until_the_delay_is_over(database: sqlite3.Connection, tmp_path: Path) -> None:
    rows(database, "t", (1, OLD, "old"))
    database.execute("INSERT INTO t SELECT 2, strftime('%Y-%m-%d %H:%M:%f', 'now', '-5 minutes'), 'young'")
    database.execute("INSERT INTO t SELECT 3, strftime('%Y-%m-%d %H:%M:%f', 'now', '+5 minutes'), 'future'")
    new = source(tmp_path, "timestamp+incrementing", timestamp_delay_interval_ms="600000")
    assert names(await new.read(1)) == ["old"]
    await new.nothing()
    # A row of a transaction that took long: it appears behind others that are younger, within the delay.
    database.execute("INSERT INTO t SELECT 4, strftime('%Y-%m-%d %H:%M:%f', 'now', '-6 minutes'), 'late'")
    new.config["timestamp.delay.interval.ms"] = "0"
    assert names(await new.read(2)) == ["late", "young"]
    await new.nothing()


@pytest.mark.parametrize("query", ["", "SELECT * FROM t"])
async def test_rows_wait_by_the_time_of_the_databases_zone(
    database: sqlite3.Connection, tmp_path: Path, query: str
) -> None:
    stamps = {"Pacific/Honolulu": -600, "Asia/Tokyo": 540}
    for zone, minutes in stamps.items():
        database.execute("DELETE FROM t")
        for number, (name, more) in enumerate({"young": minutes + 60, "old": minutes - 1}.items()):
            stamp = f"strftime('%Y-%m-%d %H:%M:%f', 'now', '{more:+} minutes')"
            database.execute(f"INSERT INTO t SELECT {number}, {stamp}, '{name}'")
        new = source(tmp_path, "timestamp", query=query, table_whitelist="" if query else "t", db_timezone=zone)
        assert names(await new.read(1)) == ["old"]
        await new.nothing()


async def test_null_timestamps_are_refused_or_read_by_the_incrementing_column(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    rows(database, "open", (1, None, "a"), (2, OLD, "b"), (3, None, "c"))
    refused = source(tmp_path, "timestamp", table_whitelist="open")
    async with await refused.task() as task:
        with pytest.raises(ConnectError, match=r"timestamp\.column\.name of table open: at can be null.*NOT NULL"):
            await task.poll()
    both = source(tmp_path, "timestamp+incrementing", table_whitelist="open", validate_non_null="false")
    first = await both.read(3)
    assert sorted(names(first)) == ["a", "b", "c"]
    await both.nothing(4)
    rows(database, "open", (4, None, "d"))
    database.execute("UPDATE open SET at = '2020-03-01' WHERE id = 1")
    assert sorted(names(await both.read(2))) == ["a", "d"]
    await both.nothing(4)
    later = source(tmp_path, "timestamp", table_whitelist="open", validate_non_null="false")
    assert names(await later.read(2)) == ["b", "a"]
    await later.nothing()


async def test_the_first_timestamp_that_is_not_null_counts(database: sqlite3.Connection, tmp_path: Path) -> None:
    database.execute("CREATE TABLE two (id INTEGER PRIMARY KEY, changed TIMESTAMP, made TIMESTAMP NOT NULL, name TEXT)")
    rows(database, "two", (1, None, "2020-01-03", "c"), (2, "2020-01-02", "2020-01-01", "b"))
    settings = {"timestamp.column.name": "changed,made"}
    new = source(tmp_path, "timestamp", table_whitelist="two", **settings)
    assert names(await new.read(2)) == ["b", "c"]
    database.execute("UPDATE two SET changed = '2020-01-04' WHERE id = 1")
    assert names(await new.read(1)) == ["c"]


async def test_bulk_returns_all_rows_in_each_pass(database: sqlite3.Connection, tmp_path: Path) -> None:
    for table, with_id in (("t", True), ("plain", False)):
        values = [(OLD, "a"), (OLD, "b"), (OLD, "c")]
        rows(database, table, *((index, *each) if with_id else each for index, each in enumerate(values)))
        new = source(tmp_path, "bulk", table_whitelist=table, batch_max_rows="2")
        records = await new.read(6)
        assert names(records)[:6] == ["a", "b", "c", "a", "b", "c"]
        assert [records[index].source_offset for index in (2, 5)] == [
            {"pass": 1, "complete": True},
            {"pass": 2, "complete": True},
        ]


async def test_a_pass_that_begins_again_aborts_the_transaction_with_its_first_rows(
    database: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows(database, "plain", (OLD, "a"), (OLD, "b"), (OLD, "c"))
    new = source(tmp_path, "bulk", table_whitelist="plain", batch_max_rows="2")
    running, boundary = await new.task(), ConnectorBoundary()
    running.task.context = TaskContext(running.config, new.offsets, boundary, True)
    async with running as task:
        assert names(await task.poll()) == ["a", "b"]
        assert boundary.after_batch() is None
        with monkeypatch.context() as patched:
            patched.setattr(BulkCursor, "fetch", _disconnected)
            with pytest.raises(RetriableError):
                await task.poll()
        assert boundary.after_batch() is End.ABORT
        again = await task.poll()
        assert (names(again), boundary.after_batch()) == (["a", "b"], None)
        (last,) = await task.poll()
        assert boundary.after_record(last) is End.COMMIT


def _disconnected(cursor: BulkCursor, engine: Any) -> Batch:
    raise sa.exc.OperationalError("SELECT", None, Exception("server closed the connection"))


async def test_a_query_is_read_like_a_table(database: sqlite3.Connection, tmp_path: Path) -> None:
    rows(database, "t", *((number, OLD, f"r{number}%:x") for number in range(5)))
    query = "SELECT id, at, name, id * 1.5 AS half, NULL AS unknown FROM t WHERE name LIKE 'r%:x' AND id > 0;"
    new = source(tmp_path, "timestamp+incrementing", table_whitelist="", query=query, batch_max_rows="2")
    records = await new.read(4)
    assert names(records) == [f"r{number}%:x" for number in range(1, 5)]
    assert {record.topic for record in records} == {"db-"}
    assert records[0].source_partition == {"query": "query"}
    assert records[0].value_schema is not None
    types = {field.name: field.schema.type.value for field in records[0].value_schema.fields}
    assert types == {"id": "int64", "at": "string", "name": "string", "half": "double", "unknown": "string"}
    rows(database, "t", (9, OLD, "r9%:x"))
    assert names(await new.read(1)) == ["r9%:x"]


async def test_columns_have_types(database: sqlite3.Connection, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE typed (id INTEGER PRIMARY KEY NOT NULL, flag BOOLEAN, small SMALLINT, price DECIMAL(9,2), "
        "real REAL, day DATE, at TIMESTAMP, data BLOB, name VARCHAR(9))"
    )
    rows(database, "typed", (2**40, 1, 3, 12.5, 1.5, "2020-01-02", "2020-01-02 03:04:05.678", b"\1", "x"))
    rows(database, "typed", (2**40 + 1, *[None] * 8))
    full, empty = await source(tmp_path, "incrementing", table_whitelist="typed").read(2)
    value, schema = full.value, full.value_schema
    assert schema is not None
    assert (schema.name, value.schema) == ("typed", schema)
    assert value.values == [
        2**40,
        True,
        3,
        Decimal("12.50"),
        1.5,
        datetime.date(2020, 1, 2),
        datetime.datetime(2020, 1, 2, 3, 4, 5, 678_000, datetime.UTC),
        b"\1",
        "x",
    ]
    kinds = {field.name: (field.schema.name or field.schema.type.value) for field in schema.fields}
    assert (kinds["price"], kinds["at"], kinds["id"]) == (DECIMAL, TIMESTAMP, "int64")
    assert [field.schema.optional for field in schema.fields] == [False] + [True] * 8
    assert empty.value.values[1:] == [None] * 8


async def test_json_is_the_text_that_the_database_has(database: sqlite3.Connection, tmp_path: Path) -> None:
    documents = ['{"n": 12345678901234567.891, "e": 1e400,"n":2}', "[1.10]", "null", '"text"', "5"]
    database.execute("CREATE TABLE documents (id INTEGER PRIMARY KEY NOT NULL, j JSON)")
    rows(database, "documents", *enumerate(documents))
    for read in (
        {"table_whitelist": "documents"},
        {"table_whitelist": "", "query": "SELECT id, j||'' AS j FROM documents"},
    ):
        records = await source(tmp_path, "incrementing", **read).read(5)
        assert [record.value["j"] for record in records] == documents


async def test_decimals_of_sqlite_have_all_stored_digits(database: sqlite3.Connection, tmp_path: Path) -> None:
    database.execute("CREATE TABLE d (id INTEGER PRIMARY KEY NOT NULL, fixed DECIMAL(30,2), free NUMERIC)")
    rows(database, "d", (1, 2**62 + 1, 2**62 + 1), (2, 0.1, 0.1), (3, "123456789012.25", 1e-9), (4, 0.1 + 0.2, 1e22))
    records = await source(tmp_path, "incrementing", table_whitelist="d").read(4)
    exact = ["4611686018427387905.00", "0.10", "123456789012.25", "0.30"]
    assert [str(record.value["fixed"]) for record in records] == exact
    free = ["4611686018427387905", "0.1", "0.000000001", "10000000000000000000000"]
    assert [record.value["free"] for record in records] == free


async def test_decimals_of_sqlite_beyond_their_scale_are_refused(database: sqlite3.Connection, tmp_path: Path) -> None:
    database.execute("CREATE TABLE d (id INTEGER PRIMARY KEY NOT NULL, fixed DECIMAL(9,2))")
    rows(database, "d", (1, 1.239))
    texts = await source(tmp_path, "incrementing", table_whitelist="d", decimal_handling_mode="string").read(1)
    assert texts[0].value["fixed"] == "1.239"
    with pytest.raises(ConnectError, match=r"table d, column fixed: 1\.239 .*set decimal\.handling\.mode to string"):
        await source(tmp_path, "incrementing", table_whitelist="d").read(1)


async def test_a_decimal_of_sqlite_is_an_exact_position(database: sqlite3.Connection, tmp_path: Path) -> None:
    database.execute("CREATE TABLE d (id NUMERIC NOT NULL PRIMARY KEY, name TEXT)")
    numbers = [2**53, 2**53 + 1, 2**53 + 2, 2**53 + 3]
    rows(database, "d", *((number, str(number)) for number in numbers))
    for mode in ("incrementing", "bulk"):
        new = source(tmp_path, mode, table_whitelist="d", batch_max_rows="1")
        assert names(await new.read(4)) == [str(number) for number in numbers]
    new = source(tmp_path, "incrementing", table_whitelist="d")
    new.offsets.known['{"table": "d"}'] = f'{{"incrementing": "decimal({numbers[1]}.00)"}}'
    assert names(await new.read(2)) == [str(number) for number in numbers[2:]]


async def test_an_integer_column_of_sqlite_with_a_fraction_is_refused(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE i (id INTEGER PRIMARY KEY NOT NULL, n INTEGER)")
    rows(database, "i", (1, 1.5))
    with pytest.raises(ConnectError, match=r"table i, column n: 1\.5 does not fit its type: it is not a whole number"):
        await source(tmp_path, "incrementing", table_whitelist="i").read(1)


async def test_new_columns_are_seen_after_a_while(database: sqlite3.Connection, tmp_path: Path) -> None:
    rows(database, "t", (1, OLD, "a"))
    new = source(tmp_path, "incrementing", table_poll_interval_ms="1")
    async with await new.task() as task:
        (first,) = await task.poll()
        database.execute("ALTER TABLE t ADD COLUMN more TEXT")
        rows(database, "t", (2, OLD, "b", "x"))
        records: list[SourceRecord] = []
        while not records:
            records = await task.poll()
    assert first.value_schema is not None
    assert "more" not in [field.name for field in first.value_schema.fields]
    assert records[0].value["more"] == "x"


async def test_tables_are_divided_among_tasks_and_new_ones_found(database: sqlite3.Connection, tmp_path: Path) -> None:
    new = source(tmp_path, "bulk", table_whitelist="")
    assert [config["tables"] for config in await new.task_configs(2)] == ["open,t", "plain"]
    assert [config["tables"] for config in await new.task_configs(9)] == ["open", "plain", "t"]
    rows(database, "t", (1, OLD, "a"))
    rows(database, "plain", (OLD, "b"))
    read = await new.read(8)
    assert {"db-t", "db-plain"} == {record.topic for record in read}


async def test_a_busy_table_does_not_starve_the_others(database: sqlite3.Connection, tmp_path: Path) -> None:
    rows(database, "t", *((number, OLD, "t") for number in range(50)))
    rows(database, "open", (1, OLD, "open"))
    new = source(tmp_path, "incrementing", table_whitelist="t,open", batch_max_rows="1")
    assert "open" in names(await new.read(5))


async def nothing_forever(task: RunningTask) -> None:
    while True:
        assert await task.poll() == []


async def test_a_database_that_does_not_answer_is_asked_again_within_bounds(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    rows(database, "t", (1, OLD, "a"))
    new = source(tmp_path, "incrementing")
    new.config["connection.url"] += "?timeout=0"
    async with await new.task() as task:
        database.execute("BEGIN EXCLUSIVE")
        with pytest.raises(RetriableError, match="table t cannot be read now: database is locked"):
            await task.poll()
        database.execute("COMMIT")
        assert names(await task.poll()) == ["a"]
        database.execute("BEGIN EXCLUSIVE")
        for _ in range(2):
            with pytest.raises(RetriableError):
                await nothing_forever(task)
        with pytest.raises(ConnectError, match="after 3 attempts") as failure:
            await nothing_forever(task)
        assert not isinstance(failure.value, RetriableError)
        database.execute("COMMIT")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"table_whitelist": "none"}, "table none does not exist"),
        ({"incrementing.column.name": "nope"}, "table t has no column nope; it has id, at, name"),
    ],
)
async def test_what_is_not_there_is_named(
    database: sqlite3.Connection, tmp_path: Path, settings: dict[str, str], message: str
) -> None:
    new = source(tmp_path, "incrementing", **settings)
    new.config |= {name: value for name, value in settings.items() if "." in name}
    async with await new.task() as task:
        with pytest.raises(ConnectError, match=message):
            await task.poll()


async def test_a_timestamp_column_that_is_a_number_is_refused(database: sqlite3.Connection, tmp_path: Path) -> None:
    new = source(tmp_path, "timestamp", **{"timestamp.column.name": "id"})
    async with await new.task() as task:
        with pytest.raises(ConnectError, match="column id of table t is of type INTEGER, which is not a timestamp"):
            await task.poll()


async def test_an_offset_of_another_mode_is_refused(database: sqlite3.Connection, tmp_path: Path) -> None:
    rows(database, "t", (1, OLD, "a"))
    new = source(tmp_path, "incrementing")
    await new.read(1)
    other = source(tmp_path, "timestamp")
    other.offsets = new.offsets
    async with await other.task() as task:
        with pytest.raises(ConnectError, match=r"another mode or key\. This mode needs timestamp, key"):
            await task.poll()


async def test_a_pass_without_a_number_is_refused(database: sqlite3.Connection, tmp_path: Path) -> None:
    rows(database, "t", (1, OLD, "a"))
    new = source(tmp_path, "bulk")
    (record,) = await new.read(1)
    new.offsets.commit([record.replace(source_offset={"pass": True})])
    async with await new.task() as task:
        with pytest.raises(ConnectError, match='lacks the number "pass"'):
            await task.poll()


@pytest.mark.parametrize(
    ("partition", "offset"),
    [
        ({"table": "t"}, {"incrementing": 5}),
        ({"table": "t", "timestamp": "null"}, {"incrementing": 5}),
        ({"query": "query", "timestamp": "null"}, {"incrementing": 5}),
        ({"query": "query"}, {"timestamp": "datetime(2026-01-02T03:04:05)", "incrementing": 5}),
        ({"table": "t"}, {"timestamp": "2026-01-02", "key": '[1,"uuid(12345678-1234-5678-1234-567812345678)"]'}),
        ({"table": "t"}, {"pass": 3, "complete": True}),
        ({"table": "t"}, {"pass": 3, "key": "[7]"}),
        ({"table": "t"}, {"pass": 3, "key": "[true]"}),
        ({"table": "t", "of": "another connector"}, None),
    ],
)
def test_the_offsets_that_a_task_can_read_can_be_set(partition: dict[str, Any], offset: dict[str, Any] | None) -> None:
    assert SqlSourceConnector().alter_offsets({}, [(partition, offset)])


@pytest.mark.parametrize(
    ("partition", "offset", "message"),
    [
        ({"table": "t", "query": "query"}, {"incrementing": 5}, "a partition must be"),
        ({"table": "t", "of": "another connector"}, {"incrementing": 5}, "a partition must be"),
        ({"table": 5}, {"incrementing": 5}, "a partition must be"),
        ({"query": "SELECT 1"}, {"incrementing": 5}, "a partition must be"),
        ({"query": "query", "timestamp": 5}, {"incrementing": 5}, r'may also have "timestamp": "null"'),
        ({"table": "t"}, {"incremental": 5}, "an offset must have"),
        ({"table": "t"}, {"incrementing": 5, "more": 5}, "an offset must have"),
        ({"table": "t"}, {}, "an offset must have"),
        ({"table": "t"}, {"key": "[7]"}, "an offset must have"),
        ({"table": "t"}, {"pass": 3, "incrementing": 5}, "an offset must have"),
        ({"table": "t"}, {"timestamp": "datetime(never)"}, "is not a position"),
        ({"table": "t"}, {"pass": "3"}, '"pass" .* must be a number'),
        ({"table": "t"}, {"pass": True}, '"pass" .* must be a number'),
        ({"table": "t"}, {"incrementing": True}, '"incrementing" .* must not be true or false'),
        ({"table": "t"}, {"timestamp": False, "key": "[7]"}, '"timestamp" .* must not be true or false'),
        ({"table": "t"}, {"pass": 3, "key": 7}, '"key" .* must be the JSON of a list'),
        ({"table": "t"}, {"pass": 3, "key": "7"}, '"key" .* must be the JSON of a list'),
        ({"table": "t"}, {"timestamp": "2026-01-02", "key": "[7"}, '"key" .* must be the JSON of a list'),
        ({"table": "t"}, {"timestamp": "2026-01-02", "key": '["uuid(7)"]'}, "is not a position"),
    ],
)
def test_offsets_that_no_task_can_read_are_refused(
    partition: dict[str, Any], offset: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConnectError, match=message):
        SqlSourceConnector().alter_offsets({}, [(partition, offset)])


def test_validation_says_what_contradicts_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def errors(**changes: str) -> list[str]:
        config = {"connection.url": "sqlite:///x", "mode": "incrementing", "topic.prefix": "p", **changes}
        return [error for outcome in SqlSourceConnector().validate(config) for error in outcome.errors]

    assert errors(**{"incrementing.column.name": "id"}) == []
    assert errors() == [
        "Invalid value  for configuration incrementing.column.name: must name a column in mode incrementing"
    ]
    assert "table.whitelist" in errors(**{"incrementing.column.name": "id", "table.whitelist": "t", "query": "q"})[0]
    assert "time zone" in errors(**{"incrementing.column.name": "id", "db.timezone": "Mars"})[0]
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    assert errors(**{"incrementing.column.name": "id"}) == [
        "SqlSource needs sqlalchemy: pip install 'oncelog[connect-sql]'"
    ]
