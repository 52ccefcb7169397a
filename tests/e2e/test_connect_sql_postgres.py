"""SqlSource on a real PostgreSQL server: modes, restarts at every row, types, names, nulls, time zones."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from oncelog.connect import ConnectError, SourceRecord, Struct
from support.postgres import PostgresServer
from support.source_tasks import Source

pytest.importorskip("psycopg", reason="needs the extra: pip install 'oncelog[connect-postgres]'")
pytest.importorskip("sqlalchemy", reason="needs the extra: pip install 'oncelog[connect-sql]'")
from oncelog.connect.connectors.sql.connector import SqlSourceConnector
from oncelog.connect.converters.json_converter import JsonConverter

Names = Callable[[str], str]
OLD = "2020-01-01 00:00:00"


@pytest.fixture
def database(postgres: PostgresServer, fresh_name: Names) -> Iterator[str]:
    name = fresh_name("d").replace("-", "_")
    postgres.execute(f"CREATE DATABASE {name}", f"ALTER DATABASE {name} SET timezone = 'America/New_York'")
    yield name
    postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")


def source(postgres: PostgresServer, database: str, mode: str, **settings: str) -> Source:
    config = {
        "connection.url": f"postgresql+psycopg://postgres@{postgres.host}:{postgres.port}/{database}",
        "mode": mode,
        "topic.prefix": "db-",
        "poll.interval.ms": "1",
        "connection.backoff.ms": "0",
    }
    if mode in ("incrementing", "timestamp+incrementing"):
        config["incrementing.column.name"] = "id"
    if "timestamp" in mode:
        config["timestamp.column.name"] = "at"
    if "query" not in settings:
        config["table.whitelist"] = "t"
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Source(SqlSourceConnector, {**config, **given})


def plain(value: Any) -> Any:
    return {field.name: value.values[field.index] for field in value.schema.fields}


def names(records: list[SourceRecord]) -> list[str]:
    return [record.value["name"] for record in records]


@pytest.mark.parametrize("mode", ["incrementing", "timestamp", "timestamp+incrementing", "bulk"])
@pytest.mark.parametrize(("kind", "key"), [("timestamptz", "uuid"), ("timestamp", "text"), ("timestamptz", None)])
async def test_a_task_goes_on_behind_any_row(
    postgres: PostgresServer, database: str, mode: str, kind: str, key: str | None
) -> None:
    keyed = f"k {key} PRIMARY KEY, " if key else ""
    postgres.execute(f"CREATE TABLE t ({keyed}id bigint NOT NULL, at {kind} NOT NULL, name text)", database=database)
    stamps = [OLD, OLD, OLD, "2020-01-02 00:00:00.123456", "2020-01-02 00:00:00.123457", OLD, "2020-03-08 02:30:00"]
    for number, stamp in enumerate(stamps, 1):
        made = {"uuid": f"'00000000-0000-0000-0000-{number:012}', ", "text": f"'K{number}ä', ", None: ""}[key]
        postgres.execute(f"INSERT INTO t VALUES ({made}{number}, '{stamp}', 'r{number}')", database=database)
    whole = key is None and mode in ("timestamp", "bulk")  # nothing orders the rows: groups of equal ones, or all
    ordered = ["r1", "r2", "r3", "r6", "r4", "r5", "r7"] if "timestamp" in mode else [f"r{n}" for n in range(1, 8)]
    for keep in (1, 4, 6) if not whole else (7,):
        new = source(postgres, database, mode, batch_max_rows="2", equal_timestamps_max_rows="10")
        first = await new.read(keep, keep=None if whole else keep)
        rest = await new.read(7 - len(first)) if len(first) < 7 else []
        assert names(first + rest) == ordered
    if mode != "bulk":
        await new.nothing()


@pytest.mark.parametrize("mode", ["timestamp", "timestamp+incrementing"])
async def test_updates_are_read_even_within_one_timestamp(postgres: PostgresServer, database: str, mode: str) -> None:
    postgres.execute("CREATE TABLE t (id bigint PRIMARY KEY, at timestamptz NOT NULL, name text)", database=database)
    postgres.execute(f"INSERT INTO t SELECT n, '{OLD}', 'a' FROM generate_series(1, 5) n", database=database)
    new = source(postgres, database, mode, batch_max_rows="2")
    assert names(await new.read(5)) == ["a"] * 5
    postgres.execute(
        "BEGIN; UPDATE t SET name = 'b', at = now() WHERE id IN (4, 2); INSERT INTO t VALUES (6, now(), 'c'); COMMIT",
        database=database,
    )
    assert sorted(names(await new.read(3))) == ["b", "b", "c"]
    await new.nothing()


async def test_timestamps_have_their_time_zone(postgres: PostgresServer, database: str) -> None:
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, at timestamptz NOT NULL, naive timestamp)",
        "INSERT INTO t VALUES (1, '2020-06-01 12:00:00.5+02', '2020-06-01 12:00:00.5')",
        database=database,
    )
    new = source(postgres, database, "timestamp", db_timezone="Europe/Berlin")
    (record,) = await new.read(1)
    instant = datetime.datetime(2020, 6, 1, 10, 0, 0, 500_000, datetime.UTC)
    assert [record.value["at"], record.value["naive"]] == [instant, instant]
    postgres.execute("INSERT INTO t VALUES (2, '2020-06-01 10:00:00.5+00', NULL)", database=database)
    (record,) = await new.read(1)
    assert record.value["id"] == 2


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Honolulu"])
@pytest.mark.parametrize(("kind", "now"), [("timestamp", "now() AT TIME ZONE '{}'"), ("timestamptz", "now()")])
@pytest.mark.parametrize("query", ["", "SELECT * FROM t"])
async def test_rows_of_the_future_wait_in_any_time_zone(
    postgres: PostgresServer, database: str, zone: str, kind: str, now: str, query: str
) -> None:
    at = now.format(zone)
    postgres.execute(f"CREATE TABLE t (id bigint PRIMARY KEY, at {kind} NOT NULL, name text)", database=database)
    given = {"query": query} if query else {}
    new = source(postgres, database, "timestamp+incrementing", db_timezone=zone, **given)
    await new.nothing()
    postgres.execute(
        f"INSERT INTO t VALUES (1, {at} + interval '1 hour', 'future'), (2, {at} - interval '1 minute', 'past')",
        database=database,
    )
    assert names(await new.read(1)) == ["past"]
    await new.nothing()
    postgres.execute(f"INSERT INTO t VALUES (3, {at} - interval '30 seconds', 'late')", database=database)
    assert names(await new.read(1)) == ["late"]


async def test_types(postgres: PostgresServer, database: str) -> None:
    columns = {
        "i2 smallint": ("7", 7),
        "i8 bigint": (str(2**62), 2**62),
        "f4 real": ("1.5", 1.5),
        "b boolean": ("true", True),
        "d numeric(12,3)": ("1234.5", Decimal("1234.500")),
        "n numeric": ("1e30", "1" + "0" * 30),
        "raw bytea": (r"'\x00ff'", b"\x00\xff"),
        "u uuid": ("'00000000-0000-0000-0000-00000000000a'", "00000000-0000-0000-0000-00000000000a"),
        "j json": ("""'{"a": [1, null]}'""", '{"a": [1, null]}'),
        "jb jsonb": ("""'"text"'""", '"text"'),
        "jbs jsonb[]": ("""ARRAY['{"a": 1}'::jsonb]""", ['{"a": 1}']),
        "exact json": ("""'{"n": 12345678901234567.890,"e":1e400}'""", '{"n": 12345678901234567.890,"e":1e400}'),
        "jnull jsonb": ("'null'", "null"),
        "ints int[]": ("'{1,NULL,3}'", [1, None, 3]),
        "texts text[]": ("""'{a,"b c"}'""", ["a", "b c"]),
        "uuids uuid[]": (
            "'{00000000-0000-0000-0000-00000000000a}'::uuid[]",
            ["00000000-0000-0000-0000-00000000000a"],
        ),
        "day date": ("'2020-02-29'", datetime.date(2020, 2, 29)),
        "hour time": ("'12:30:00.5'", datetime.time(12, 30, 0, 500_000)),
        "mood mood": ("'sad'", "sad"),
        "small positive": ("5", 5),
        "ip inet": ("'10.0.0.1'", "10.0.0.1"),
        "span int4range": ("'[1,5)'", "[1,5)"),
        "c char(3)": ("'ab'", "ab "),
    }
    listed = ", ".join(columns)
    values = ", ".join(text for text, _ in columns.values())
    postgres.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
        f"CREATE TABLE t (id int PRIMARY KEY, {listed})",
        f"INSERT INTO t VALUES (1, {values})",
        "INSERT INTO t VALUES (2)",
        database=database,
    )
    first, second = await source(postgres, database, "incrementing").read(2)
    assert isinstance(first.value, Struct)
    assert plain(first.value) == {"id": 1, **{name.split()[0]: value for name, (_, value) in columns.items()}}
    assert set(list(plain(second.value).values())[1:]) == {None}
    first.value.check("row")


async def test_json_of_a_query_has_all_digits(postgres: PostgresServer, database: str) -> None:
    query = "SELECT 1 AS id, j, ARRAY[j, j] AS js FROM (SELECT '[12345678901234567.890]'::jsonb AS j) AS t"
    (record,) = await source(postgres, database, "incrementing", table_whitelist="", query=query).read(1)
    assert plain(record.value) == {
        "id": 1, "j": "[12345678901234567.890]", "js": "[[12345678901234567.890], [12345678901234567.890]]"
    }  # fmt: skip


async def test_arrays_of_arrays_have_the_depth_of_the_values(postgres: PostgresServer, database: str) -> None:
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, m int[][], days date[])",
        "INSERT INTO t VALUES (1, NULL, NULL), (2, '{}', '{}'), (3, '{{1,2},{3,NULL}}', '{{2020-02-29}}'),"
        " (4, '{{{5}}}', NULL), (5, '{}', NULL)",
        database=database,
    )
    new = source(postgres, database, "incrementing")
    records = await new.read(5)
    assert [record.value["m"] for record in records] == [None, [], [[1, 2], [3, None]], [[[5]]], []]
    assert records[2].value["days"] == [[datetime.date(2020, 2, 29)]]
    for record in records:
        record.value.check("row")
    postgres.execute("INSERT INTO t VALUES (6, '{{1}}', NULL), (7, '{1}', NULL)", database=database)
    with pytest.raises(
        ConnectError, match=r"column m: .* an array of 1 dimension follows arrays of 2 dimensions: cast it"
    ):
        await new.read(1)


async def test_infinite_dates_are_the_first_and_the_last(postgres: PostgresServer, database: str) -> None:
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, day date, at timestamp, zoned timestamptz, days date[])",
        "INSERT INTO t VALUES (1, 'infinity', 'infinity', 'infinity', '{infinity}')",
        "INSERT INTO t VALUES (2, '-infinity', '-infinity', '-infinity', '{-infinity}')",
        database=database,
    )
    last, first = await source(postgres, database, "incrementing").read(2)
    latest = datetime.datetime.max.replace(tzinfo=datetime.UTC)
    earliest = datetime.datetime.min.replace(tzinfo=datetime.UTC)
    days = datetime.date.max, datetime.date.min
    assert [last.value[name] for name in ("day", "at", "zoned", "days")] == [days[0], latest, latest, [days[0]]]
    assert [first.value[name] for name in ("day", "at", "zoned", "days")] == [days[1], earliest, earliest, [days[1]]]
    for record in (last, first):
        json.loads(JsonConverter().to_bytes("t", record.value_schema, record.value) or b"")


async def test_a_row_with_an_infinite_timestamp_is_read_once(postgres: PostgresServer, database: str) -> None:
    postgres.execute(
        "CREATE TABLE t (id bigint PRIMARY KEY, at timestamptz NOT NULL, name text)",
        f"INSERT INTO t VALUES (1, '-infinity', 'always'), (2, '{OLD}', 'once'), (3, 'infinity', 'never')",
        database=database,
    )
    new = source(postgres, database, "timestamp", batch_max_rows="1")
    assert names(await new.read(1)) + names(await new.read(1)) == ["always", "once"]
    await new.nothing()


async def test_a_number_that_a_decimal_cannot_hold_says_what_to_do(postgres: PostgresServer, database: str) -> None:
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, d numeric(6,2), n numeric)",
        "INSERT INTO t VALUES (1, 1.5, 'NaN'), (2, 'NaN', 'Infinity')",
        database=database,
    )
    with pytest.raises(
        ConnectError, match=r"table t, column d: .* NaN is not .*: set decimal\.handling\.mode to string or double"
    ):
        await source(postgres, database, "incrementing", batch_max_rows="1").read(2)
    for mode, values in (("string", ["1.50", "NaN"]), ("double", [1.5, math.nan])):
        records = await source(postgres, database, "incrementing", decimal_handling_mode=mode).read(2)
        assert str([record.value["d"] for record in records]) == str(values)
        for record in records:
            record.value.check()
    query = "SELECT id, d::float8 AS d, n FROM t"
    first, second = await source(postgres, database, "incrementing", query=query).read(2)
    assert (first.value["d"], first.value["n"]) == (1.5, "NaN")
    assert (math.isnan(second.value["d"]), second.value["n"]) == (True, "Infinity")


async def test_names_with_schemas_and_capital_letters(postgres: PostgresServer, database: str) -> None:
    postgres.execute(
        'CREATE SCHEMA "Sales"',
        'CREATE TABLE "Sales"."Order Lines" ("Id" int PRIMARY KEY, name text)',
        """INSERT INTO "Sales"."Order Lines" VALUES (1, 'a')""",
        database=database,
    )
    own = {"incrementing_column_name": "Id"}
    by_pattern = source(
        postgres, database, "incrementing", schema_pattern="Sales", table_whitelist="Order Lines", **own
    )
    (record,) = await by_pattern.read(1)
    assert (record.topic, names([record])) == ("db-Order Lines", ["a"])
    qualified = source(postgres, database, "incrementing", table_whitelist="Sales.Order Lines", **own)
    (record,) = await qualified.read(1)
    assert (record.topic, names([record])) == ("db-Order Lines", ["a"])
    query = source(
        postgres, database, "incrementing", query='SELECT * FROM "Sales"."Order Lines" WHERE name LIKE \'%a%\'',
        incrementing_column_name='"Id"',
    )  # fmt: skip
    assert names(await query.read(1)) == ["a"]
    await query.nothing()


async def test_nulls_where_the_mode_needs_values(postgres: PostgresServer, database: str) -> None:
    postgres.execute(
        "CREATE TABLE t (k int PRIMARY KEY, id int, at timestamptz, name text)",
        f"INSERT INTO t VALUES (1, NULL, '{OLD}', 'no id'), (2, 1, NULL, 'no time'), (3, 2, '{OLD}', 'both')",
        database=database,
    )
    with pytest.raises(ConnectError, match="id can be null"):
        await source(postgres, database, "incrementing").read(1)
    for mode, read in (
        ("incrementing", ["no time", "both"]),
        ("timestamp", ["no id", "both"]),
        ("timestamp+incrementing", ["both", "no time"]),
    ):
        new = source(postgres, database, mode, validate_non_null="false")
        assert sorted(names(await new.read(2))) == sorted(read), mode
        await new.nothing()


async def test_views_and_queries_are_read(postgres: PostgresServer, database: str) -> None:
    postgres.execute(
        "CREATE TABLE base (id int PRIMARY KEY, at timestamptz NOT NULL, name text)",
        f"INSERT INTO base VALUES (1, '{OLD}', 'a'), (2, '{OLD}', 'b')",
        "CREATE VIEW t AS SELECT * FROM base WHERE id > 1",
        database=database,
    )
    assert names(await source(postgres, database, "incrementing", validate_non_null="false").read(1)) == ["b"]
    joined = "SELECT b.id::bigint AS id, b.at, b.name FROM base b JOIN base o USING (id)"
    assert names(await source(postgres, database, "timestamp+incrementing", query=joined).read(2)) == ["a", "b"]
