"""SqlSource's types of columns of databases that are not in the tests: MySQL, SQL Server."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from oncelog.connect import ConnectError, Struct
from oncelog.connect.data.logical import DECIMAL, scale_of
from oncelog.connect.stores.offset_records import offset_value

sa = pytest.importorskip("sqlalchemy", reason="needs the extra: pip install 'oncelog[connect-sql]'")
from oncelog.connect.connectors.sql.positions import decode, encode  # noqa: E402
from oncelog.connect.connectors.sql.source import read_columns  # noqa: E402
from oncelog.connect.connectors.sql.types import RowType, column_of  # noqa: E402
from sqlalchemy.dialects import mssql, mysql, oracle  # noqa: E402

UTC = ZoneInfo("UTC")
SERVER: Any = mssql  # its constructors have no types


def row(kind: Any, value: Any, dialect: str = "mysql", decimals: str = "precise") -> Struct:
    struct = RowType("t", [column_of("c", kind, True, dialect, UTC, decimals)], UTC).struct({"c": value})
    struct.check()
    return struct


def read(kind: Any, value: Any, dialect: str = "mysql", decimals: str = "precise") -> tuple[str, Any]:
    struct = row(kind, value, dialect, decimals)
    return struct.schema.fields[0].schema.type.name, struct["c"]


@pytest.mark.parametrize(
    "kind",
    [
        sa.BINARY(2), sa.VARBINARY(2), sa.LargeBinary(), mysql.TINYBLOB(), mysql.MEDIUMBLOB(), mysql.LONGBLOB(),
        SERVER.TIMESTAMP(), SERVER.ROWVERSION(), SERVER.VARBINARY(2), oracle.RAW(2),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [b"\0\xff", bytearray(b"\0\xff"), memoryview(b"\0\xff")])
def test_binary_columns_are_bytes(kind: Any, value: Any) -> None:
    assert read(kind, value) == ("BYTES", b"\0\xff")


@pytest.mark.parametrize("kind", [sa.types.NullType(), sa.String(), mssql.SQL_VARIANT()])
def test_bytes_in_a_column_of_another_type_are_refused(kind: Any) -> None:
    with pytest.raises(ConnectError, match=r"table t, column c: b'\\x00' .*cast it to a binary type in a query"):
        read(kind, b"\0", "mssql")


def test_bytes_of_a_query_are_bytes() -> None:
    for value in (b"\0", bytearray(b"\0"), memoryview(b"\0")):
        struct = RowType(None, None, UTC).struct({"c": value})
        struct.check()
        assert struct["c"] == b"\0"


def test_a_set_has_the_order_of_its_type() -> None:
    kind = mysql.SET("b", "a", "c")
    for value in ({"a", "b"}, {"b", "a"}, "b,a"):
        assert read(kind, value) == ("STRING", "b,a")
    assert read(kind, set()) == ("STRING", "")
    assert read(sa.types.NullType(), {"b", "a", "c"}) == ("STRING", "a,b,c")


@pytest.mark.parametrize(
    ("kind", "value", "schema"),
    [
        (mysql.TINYINT(unsigned=True), 2**8 - 1, "INT32"),
        (mysql.SMALLINT(unsigned=True), 2**16 - 1, "INT32"),
        (mysql.MEDIUMINT(unsigned=True), 2**24 - 1, "INT32"),
        (mysql.INTEGER(unsigned=True), 2**32 - 1, "INT64"),
        (mysql.INTEGER(), 2**31 - 1, "INT32"),
        (mysql.SMALLINT(), 2**15 - 1, "INT16"),
        (mysql.BIGINT(), 2**63 - 1, "INT64"),
    ],
)
def test_unsigned_numbers_fit(kind: Any, value: int, schema: str) -> None:
    assert read(kind, value) == (schema, value)


def test_large_unsigned_numbers_are_decimals() -> None:
    kind = mysql.BIGINT(unsigned=True)
    struct = row(kind, 2**64 - 1)
    schema = struct.schema.fields[0].schema
    assert (schema.name, scale_of(schema), struct["c"]) == (DECIMAL, 0, Decimal(2**64 - 1))
    assert read(kind, 2**64 - 1, decimals="string") == ("STRING", "18446744073709551615")
    assert read(kind, 2**53, decimals="double") == ("FLOAT64", 2.0**53)


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 2**63, 2**64 - 1, -(2**63) - 1])
def test_a_large_number_is_a_position_that_an_offset_holds(number: int) -> None:
    offset = {"incrementing": encode(number)}
    assert json.loads(offset_value(offset) or b"") == offset
    assert decode(offset["incrementing"]) == number


def test_times_of_day_are_exact_or_refused() -> None:
    day = datetime.timedelta(days=1)
    assert read(mysql.TIME(), day - datetime.timedelta(microseconds=1))[1] == datetime.time(23, 59, 59, 999_999)
    assert read(mysql.TIME(), datetime.time(1, 2))[1] == datetime.time(1, 2)
    for value in (day + datetime.timedelta(hours=1), datetime.timedelta(hours=-1), day, "838:59:59x"):
        with pytest.raises(
            ConnectError, match=r"table t, column c: .*00:00:00 to 23:59:59.*cast it to text in a query"
        ):
            read(mysql.TIME(), value)


def test_mysqls_times_are_read_as_the_driver_returns_them() -> None:
    table = sa.Table("t", sa.MetaData(), sa.Column("at", mysql.TIME()), sa.Column("n", sa.Integer()))
    columns = sa.select(*read_columns(table, "mysql")).selected_columns
    assert columns.keys() == ["at", "n"]
    assert columns["at"].type.result_processor(mysql.dialect(), None) is None
    assert read_columns(table, "postgresql") == tuple(table.columns)


def test_a_zero_date_names_its_column() -> None:
    with pytest.raises(ConnectError, match="table t, column c: '0000-00-00 00:00:00' does not fit"):
        read(mysql.DATETIME(), "0000-00-00 00:00:00")


def test_decimals_may_be_texts_or_doubles() -> None:
    kind = sa.Numeric(20, 10)
    assert read(kind, Decimal("1E-10")) == ("BYTES", Decimal("0.0000000001"))
    assert read(kind, Decimal("1E-10"), decimals="string") == ("STRING", "0.0000000001")
    assert read(kind, Decimal("NaN"), decimals="string") == ("STRING", "NaN")
    assert read(kind, Decimal("-Infinity"), decimals="double") == ("FLOAT64", float("-inf"))
    assert read(sa.Numeric(), Decimal("1.5"), decimals="double") == ("FLOAT64", 1.5)
    with pytest.raises(
        ConnectError, match=r"table t, column c: .*NaN.*set decimal\.handling\.mode to string or double"
    ):
        read(kind, Decimal("NaN"))


def test_a_time_with_a_zone_is_in_utc() -> None:
    india = datetime.timezone(datetime.timedelta(hours=5, minutes=30))
    value, wanted = datetime.time(3, 0, 0, 5, tzinfo=india), datetime.time(21, 30, 0, 5)
    assert read(sa.Time(timezone=True), value)[1] == wanted
    assert read(sa.ARRAY(sa.Time(timezone=True)), [value])[1] == [wanted]
    assert RowType(None, None, UTC).struct({"c": value})["c"] == wanted
