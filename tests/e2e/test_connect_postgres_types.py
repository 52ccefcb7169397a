"""PostgresSource reads each type of the server alike in its snapshot and in its stream."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, Final

import pytest
from oncelog.connect import ConnectError
from support.postgres import PostgresServer

pytest.importorskip("psycopg", reason="needs the extra: pip install 'oncelog[connect-postgres]'")
from support.postgres_source import plain, source

COLUMNS: Final[list[tuple[str, str, str, Any]]] = [
    ("bool", "true", "BOOLEAN", True),
    ("int2", "-32768", "INT16", -32768),
    ("int8", "9223372036854775807", "INT64", 2**63 - 1),
    ("oid", "4294967295", "INT64", 2**32 - 1),
    ("float4", "1.1", "FLOAT32", 1.1),
    ("float8", "'-Infinity'", "FLOAT64", -math.inf),
    ("numeric", "'NaN'", "STRING", "NaN"),
    ("numeric", "'Infinity'", "STRING", "Infinity"),
    ("numeric", "123456789012345678901234567890.5", "STRING", "123456789012345678901234567890.5"),
    ("numeric(10,2)", "12345678.9", "BYTES", Decimal("12345678.90")),
    ("numeric(3,-2)", "12345", "STRING", "12300"),
    ("text", "E'ä\\n\\\\x'", "STRING", "ä\n\\x"),
    ("char(5)", "'ab'", "STRING", "ab   "),
    ("bytea", "'\\x00ff'", "BYTES", b"\x00\xff"),
    ("bit(3)", "B'101'", "STRING", "101"),
    ("date", "'infinity'", "INT32", 2**31 - 1),
    ("date", "'0044-03-15 BC'", "INT32", -735160),
    ("time", "'24:00:00'", "INT64", 86_400_000_000),
    ("timetz", "'12:00:00+02'", "STRING", "10:00:00Z"),
    ("timetz", "'23:15:00.5-02:30'", "STRING", "01:45:00.5Z"),
    ("timetz", "'00:00:01+01'", "STRING", "23:00:01Z"),
    ("timetz", "'24:00:00+00'", "STRING", "24:00:00Z"),
    ("timestamp", "'infinity'", "INT64", 9_223_372_036_825_200_000),
    ("timestamp", "'2024-02-29 12:34:56.123456'", "INT64", 1_709_210_096_123_456),
    ("timestamptz", "'-infinity'", "STRING", "-infinity"),
    ("timestamptz", "'2024-02-29 12:34:56.5+05:30'", "STRING", "2024-02-29T07:04:56.5Z"),
    ("interval", "'1 year 3 days 04:05:06.7'", "STRING", "1 year 3 days 04:05:06.7"),
    ("uuid", "'A0EEBC999C0B4EF8BB6D6BB9BD380A11'", "STRING", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("json", """'{"a" : 1}'""", "STRING", '{"a" : 1}'),
    ("jsonb", """'{"a" : 1}'""", "STRING", '{"a": 1}'),
    ("inet", "'10.0.0.1/8'", "STRING", "10.0.0.1/8"),
    ("int4range", "'(0,4]'", "STRING", "[1,5)"),
    ("tstzrange", "'[2024-01-01,)'", "STRING", '["2024-01-01 00:00:00+00",)'),
    ("int[]", "'{1,NULL,3}'", "STRING", "{1,NULL,3}"),
    ("int[][]", "'{{1,2},{3,4}}'", "STRING", "{{1,2},{3,4}}"),
    ("text[]", """'{"a b",c}'""", "STRING", '{"a b",c}'),
    ("mood", "'happy'", "STRING", "happy"),
    ("positive", "5", "STRING", "5"),
    ("pair", """'(1,"x y")'""", "STRING", '(1,"x y")'),
]
"""Type, value in SQL, type of the schema, value in the record."""


async def test_types_are_read_alike_in_snapshot_and_stream(postgres: PostgresServer) -> None:
    names = [f"c{number}" for number in range(len(COLUMNS))]
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _, _) in zip(names, COLUMNS, strict=True))
    values = ", ".join(value for _, value, _, _ in COLUMNS)
    insert = f"INSERT INTO t (id, {', '.join(names)}) VALUES"
    postgres.execute("CREATE DATABASE types")
    postgres.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
        "CREATE TYPE pair AS (a int, b text)",
        f"CREATE TABLE t (id int PRIMARY KEY, {columns}, twice int GENERATED ALWAYS AS (id * 2) STORED)",
        f"{insert} (1, {values})",
        database="types",
    )
    reader = source(postgres, "types")
    (row,) = await reader.read(1)
    postgres.execute(f"{insert} (2, {values})", database="types")
    (change,) = await reader.read(1)
    for record in (row, change):
        record.value.check()
        schema = next(field.schema for field in record.value.schema.fields if field.name == "after")
        read = plain(record.value)["after"]
        del read["id"]
        assert read == dict(zip(names, (value for _, _, _, value in COLUMNS), strict=True))
        kinds = {field.name: field.schema.type.name for field in schema.fields if field.name != "id"}
        assert kinds == dict(zip(names, (kind for _, _, kind, _ in COLUMNS), strict=True))


async def test_a_large_number_that_an_update_did_not_change_is_no_null(postgres: PostgresServer) -> None:
    names = [f"n{number}" for number in range(6)]
    columns = ", ".join(f"{name} numeric(1000,0)" for name in names)
    external = ", ".join(f"ALTER {name} SET STORAGE EXTERNAL" for name in names)
    postgres.execute("CREATE DATABASE large")
    postgres.execute(
        f"CREATE TABLE t (id int PRIMARY KEY, small int, {columns})",
        f"ALTER TABLE t {external}",
        f"INSERT INTO t VALUES (1, 1, {', '.join(['7' * 1000] * len(names))})",
        database="large",
    )
    reader = source(postgres, "large")
    (row,) = await reader.read(1)
    assert row.value["after"]["n0"] == Decimal("7" * 1000)
    postgres.execute("UPDATE t SET small = 2", database="large")
    with pytest.raises(ConnectError, match=r"public\.t\.n\d cannot be read: .* set decimal\.handling\.mode=string"):
        await reader.read(1)
    reader.config["decimal.handling.mode"] = "string"
    (change,) = await reader.read(1)
    assert change.value["after"]["small"] == 2
    assert change.value["after"]["n0"] == "__debezium_unavailable_value"
