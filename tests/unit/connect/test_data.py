"""Schemas, structs and logical types."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oncelog.connect.data import json_text, logical
from oncelog.connect.data.schema import (
    BOOLEAN,
    FLOAT64,
    INT8,
    INT32,
    OPTIONAL_STRING,
    STRING,
    Schema,
    SchemaType,
    array,
    mapping,
    struct,
)
from oncelog.connect.data.struct import Struct, check
from oncelog.connect.errors import DataError, SchemaError

POINT = struct({"x": INT32, "label": OPTIONAL_STRING}, name="point", version=1)


def test_schemas_of_equal_content_are_equal_and_hash_alike() -> None:
    again = struct({"x": Schema(SchemaType.INT32), "label": OPTIONAL_STRING}, name="point", version=1)
    assert again == POINT
    assert len({again, POINT}) == 1
    assert struct({"x": INT32, "label": OPTIONAL_STRING}, name="point", version=2) != POINT


def test_a_schema_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(SchemaError, match="array needs a value_schema"):
        Schema(SchemaType.ARRAY)
    with pytest.raises(SchemaError, match="map needs a key_schema"):
        Schema(SchemaType.MAP, value_schema=STRING)
    with pytest.raises(SchemaError, match="has a field twice: a, a"):
        struct([("a", STRING), ("a", STRING)])


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INT8, 128),
        (INT8, True),
        (INT8, None),
        (BOOLEAN, 1),
        (FLOAT64, True),
        (STRING, b"a"),
        (array(INT8), [1, 1000]),
        (mapping(STRING, INT8), {"a": "b"}),
        (mapping(STRING, INT8), {1: 1}),
        (POINT, {"x": 1}),
        (logical.date_schema(), 5),
    ],
)
def test_a_value_that_does_not_fit_is_refused(schema: Schema, value: object) -> None:
    with pytest.raises(DataError):
        check(schema, value)


def test_the_message_names_the_place() -> None:
    with pytest.raises(DataError, match=r"value\[1\] is 1000, which does not fit into int8"):
        check(array(INT8), [1, 1000])


def test_struct_checks_names_values_and_missing_fields() -> None:
    point = Struct(POINT, x=1)
    assert (point["x"], point["label"]) == (1, None)
    with pytest.raises(DataError, match="y is not a valid field name"):
        point["y"] = 1
    with pytest.raises(DataError, match="x is a str"):
        point["x"] = "1"
    with pytest.raises(DataError, match=r"struct.x is null"):
        Struct(POINT).check()
    with pytest.raises(DataError, match="schema differs"):
        check(struct({"x": INT32}), point)


def test_a_missing_field_reads_as_its_default() -> None:
    assert Struct(struct({"a": Schema(SchemaType.INT32, default=7)}))["a"] == 7


@pytest.mark.parametrize(
    ("value", "scale", "encoded"),
    [
        ("1.56", 2, b"\x00\x9c"),
        ("-1.56", 2, b"\xff\x64"),
        ("0", 0, b"\x00"),
        ("1.27", 2, b"\x7f"),
        ("-1.28", 2, b"\x80"),
    ],
)
def test_decimals_are_the_bytes_of_javas_big_integer(value: str, scale: int, encoded: bytes) -> None:
    schema = logical.decimal_schema(scale)
    assert logical.encode(schema, Decimal(value)) == encoded
    assert logical.decode(schema, encoded) == Decimal(value)


def test_a_decimal_of_another_scale_is_refused() -> None:
    with pytest.raises(DataError, match="mismatching scale"):
        logical.encode(logical.decimal_schema(2), Decimal("1.5"))


@given(
    st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30)).map(
        lambda at: at.replace(tzinfo=datetime.UTC)
    )
)
def test_points_in_time_come_back_to_the_millisecond(at: datetime.datetime) -> None:
    whole = at.replace(microsecond=at.microsecond // 1000 * 1000)
    schema = logical.timestamp_schema()
    assert logical.decode(schema, logical.encode(schema, at)) == whole
    day, time = logical.date_schema(), logical.time_schema()
    assert logical.decode(day, logical.encode(day, at.date())) == at.date()
    assert logical.decode(time, logical.encode(time, at.time())) == whole.time()


def test_before_1970_milliseconds_are_negative() -> None:
    at = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=datetime.UTC)
    assert logical.encode(logical.timestamp_schema(), at) == -1
    assert logical.encode(logical.date_schema(), datetime.date(1969, 12, 31)) == -1


@given(st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True))
def test_exact_numbers_are_written_as_the_same_number(text: str) -> None:
    assert Decimal(json_text.dumps(json_text.loads_exact(text.encode())).decode()) == Decimal(text)


@pytest.mark.parametrize("text", ["NaN", "[-Infinity]", "1e4300", "1.5e-4300", "1e99999999999999999999", "[1", "\xff"])
def test_numbers_that_json_has_not_or_that_are_too_large_are_refused(text: str) -> None:
    with pytest.raises(DataError):
        json_text.loads_exact(text.encode("latin-1"))
