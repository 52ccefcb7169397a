"""Converters: the bytes are those that Kafka Connect 4.1's own converters write for the same data."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oncelog.connect.config.types import Type, parse
from oncelog.connect.converters.converter import Converter
from oncelog.connect.converters.json_converter import JsonConverter
from oncelog.connect.converters.simple_headers import SimpleHeaderConverter
from oncelog.connect.converters.strings import StringConverter
from oncelog.connect.data import json_text, logical
from oncelog.connect.data.inference import parse_text
from oncelog.connect.data.schema import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    SchemaType,
    array,
    mapping,
    struct,
)
from oncelog.connect.data.struct import Struct
from oncelog.connect.errors import ConfigValueError, ConnectError, DataError
from oncelog.connect.plugins import class_name, load_class

POINT = struct(
    {"x": INT32, "label": OPTIONAL_STRING, "d": Schema(SchemaType.INT64, default=7)},
    name="point",
    version=2,
    doc="a point",
)
UTC = datetime.UTC


def json_converter(**settings: str) -> JsonConverter:
    converter = JsonConverter()
    converter.configure(
        {"converter.type": "value", **{name.replace("_", "."): each for name, each in settings.items()}}
    )
    return converter


LITERAL: list[tuple[Schema | None, Any, str]] = [
    (
        POINT,
        Struct(POINT, x=1),
        (
            '{"schema":{"type":"struct","fields":[{"type":"int32","optional":false,"field":"x"},'
            '{"type":"string","optional":true,"field":"label"},'
            '{"type":"int64","optional":false,"default":7,"field":"d"}],'
            '"optional":false,"name":"point","version":2,"doc":"a point"},"payload":{"x":1,"label":null,"d":7}}'
        ),
    ),
    (
        mapping(INT32, STRING),
        {1: "a"},
        (
            '{"schema":{"type":"map","keys":{"type":"int32","optional":false},'
            '"values":{"type":"string","optional":false},"optional":false},"payload":[[1,"a"]]}'
        ),
    ),
    (
        mapping(STRING, BYTES, optional=True),
        {"a": b"\x01\x02"},
        (
            '{"schema":{"type":"map","keys":{"type":"string","optional":false},'
            '"values":{"type":"bytes","optional":false},"optional":true},"payload":{"a":"AQI="}}'
        ),
    ),
    (
        array(FLOAT64),
        [1.0, 1e10, 1e-5, math.nan, 100000000.25],
        (
            '{"schema":{"type":"array","items":{"type":"double","optional":false},"optional":false},'
            '"payload":[1.0,1.0E10,1.0E-5,"NaN",1.0000000025E8]}'
        ),
    ),
    (
        logical.decimal_schema(2),
        Decimal("1.56"),
        (
            '{"schema":{"type":"bytes","optional":false,"name":"org.apache.kafka.connect.data.Decimal","version":1,'
            '"parameters":{"scale":"2"}},"payload":"AJw="}'
        ),
    ),
    (
        Schema(SchemaType.BYTES, optional=True, name=logical.DECIMAL, version=1, parameters={"scale": "0", "p": "q"}),
        Decimal(-129),
        (
            '{"schema":{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,'
            '"parameters":{"scale":"0","p":"q"}},"payload":"/38="}'
        ),
    ),
    (
        logical.date_schema(),
        datetime.date(1970, 1, 6),
        (
            '{"schema":{"type":"int32","optional":false,"name":"org.apache.kafka.connect.data.Date","version":1},'
            '"payload":5}'
        ),
    ),
    (
        logical.timestamp_schema(),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC),
        (
            '{"schema":{"type":"int64","optional":false,"name":"org.apache.kafka.connect.data.Timestamp","version":1},'
            '"payload":-1}'
        ),
    ),
    (OPTIONAL_STRING, None, '{"schema":{"type":"string","optional":true},"payload":null}'),
    (None, {"b": 1, "a": [True, None, 1.5]}, '{"schema":null,"payload":{"b":1,"a":[true,null,1.5]}}'),
    (BOOLEAN, True, '{"schema":{"type":"boolean","optional":false},"payload":true}'),
]


@pytest.mark.parametrize(("schema", "value", "text"), LITERAL)
def test_json_with_schemas_is_what_kafka_connect_writes(schema: Schema | None, value: Any, text: str) -> None:
    assert json_converter().to_bytes("t", schema, value) == text.encode()


@pytest.mark.parametrize(
    ("schema", "value", "text"), [row for row in LITERAL if row[1] is None or row[2].count("NaN") == 0]
)
def test_json_with_schemas_comes_back(schema: Schema | None, value: Any, text: str) -> None:
    if isinstance(value, Struct):
        value["d"] = 7
    assert json_converter().from_bytes("t", text.encode()) == (schema, value)


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        (POINT, Struct(POINT, x=1), '{"x":1,"label":null,"d":7}'),
        (logical.time_schema(), datetime.time(0, 0, 1, 234_000), "1234"),
        (STRING, 'é"\\/\x01\x1f\x7f\n\t\u2028😀', '"é\\"\\\\/\\u0001\\u001F\x7f\\n\\t\u2028\\uD83D\\uDE00"'),
        (STRING, "\\u001f", '"\\\\u001f"'),
        (None, {1: "x"}, '[[1,"x"]]'),
        (FLOAT32, 0.1, "0.1"),
        (FLOAT64, 3, "3.0"),
    ],
)
def test_json_without_schemas_is_what_kafka_connect_writes(schema: Schema | None, value: Any, text: str) -> None:
    assert json_converter(schemas_enable="false").to_bytes("t", schema, value) == text.encode()


def test_no_value_without_a_schema_is_a_tombstone() -> None:
    assert json_converter().to_bytes("t", None, None) is None
    assert json_converter().from_bytes("t", None) == (None, None)


def test_decimals_may_be_numbers() -> None:
    encoded = json_converter(decimal_format="numeric", schemas_enable="false")
    assert encoded.to_bytes("t", logical.decimal_schema(2), Decimal("1.50")) == b"1.50"


def test_null_for_a_required_field_is_refused_in_kafkas_words() -> None:
    with pytest.raises(DataError, match="null value for field that is required and has no default value"):
        json_converter().to_bytes("t", STRING, None)
    with pytest.raises(DataError, match='requires "schema" and "payload" fields'):
        json_converter().from_bytes("t", b'{"schema":null,"payload":1,"more":2}')
    with pytest.raises(DataError, match="not JSON"):
        json_converter().from_bytes("t", b"{")
    with pytest.raises(DataError, match="needs int"):
        json_converter().to_bytes("t", INT32, "1")


def test_null_is_kept_where_defaults_do_not_replace_it() -> None:
    kept = json_converter(replace_null_with_default="false", schemas_enable="false")
    assert kept.to_bytes("t", Schema(SchemaType.INT64, optional=True, default=7), None) == b"null"


def test_json_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(DataError, match="nested too deeply"):
        json_text.loads(b"[" * 1_000_000)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)


@given(JSON)
def test_any_json_comes_back(value: Any) -> None:
    assert json_text.loads(json_text.dumps(value)) == value


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("ShortConverter", -2, b"\xff\xfe"),
        ("IntegerConverter", 1, b"\0\0\0\1"),
        ("LongConverter", 2**40, b"\0\0\1\0\0\0\0\0"),
        ("FloatConverter", 1.5, b"\x3f\xc0\0\0"),
        ("DoubleConverter", 1.5, b"\x3f\xf8\0\0\0\0\0\0"),
        ("BooleanConverter", True, b"\1"),
        ("ByteArrayConverter", b"ab", b"ab"),
        ("StringConverter", "é", b"\xc3\xa9"),
        ("org.apache.kafka.connect.storage.StringConverter", "a", b"a"),
        ("String", "a", b"a"),
    ],
)
def test_converters_answer_to_javas_names(name: str, value: Any, data: bytes) -> None:
    converter = load_class(name)()
    assert isinstance(converter, Converter)
    converter.configure({"converter.type": "key"})
    assert converter.to_bytes("t", None, value) == data
    assert converter.from_bytes("t", data)[1] == value
    assert converter.to_bytes("t", None, None) is None
    assert converter.header_to_bytes("t", "h", None, value) == data


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ShortConverter", 40000),
        ("IntegerConverter", "1"),
        ("IntegerConverter", True),
        ("FloatConverter", 1e300),
        ("BooleanConverter", 1),
        ("ByteArrayConverter", "text"),
        ("StringConverter", "\ud800"),
        ("StringConverter", b"bytes"),
    ],
)
def test_converters_refuse_what_does_not_fit(name: str, value: Any) -> None:
    with pytest.raises(DataError):
        load_class(name)().to_bytes("t", None, value)


def test_class_names_are_shown_as_javas() -> None:
    assert class_name(JsonConverter) == "org.apache.kafka.connect.json.JsonConverter"
    assert parse("x", "JsonConverter", Type.CLASS) is JsonConverter


def test_string_converter_prints_other_values_as_java_does() -> None:
    converter = StringConverter()
    assert converter.to_bytes("t", POINT, Struct(POINT, x=1)) == b"Struct{x=1}"
    assert converter.to_bytes("t", None, {"b": 1, "a": [True, None, 1.5]}) == b"{b=1, a=[true, null, 1.5]}"
    with pytest.raises(ConfigValueError, match="is not the name of a character set"):
        converter.configure({"converter.type": "key", "converter.encoding": "klingon"})
    converter.configure({"converter.type": "key", "converter.encoding": "ISO-8859-1"})
    assert converter.to_bytes("t", None, "é") == b"\xe9"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('a"b', 'a"b'),
        (['a"b', 1, None], '["a\\"b",1,null]'),
        ({"k": 1.0}, '{"k":1.0}'),
        (b"\1\2\3", "AQID"),
        ([b"\1"], '["AQ=="]'),
        (Decimal("1.50"), "1.50"),
        (Decimal("1E+3"), "1E+3"),
        ([Decimal("0.0000000")], "[0E-7]"),
        (Struct(POINT, x=1), '{"x":1,"label":null,"d":7}'),
        (datetime.datetime(1970, 1, 1, 0, 0, 0, 1000, UTC), "00:00:00.001Z"),
        (datetime.datetime(2020, 1, 2, 3, 4, 5, 678_000, UTC), "2020-01-02T03:04:05.678Z"),
        (datetime.date(1970, 1, 2), "1970-01-02"),
        (datetime.time(0, 1, 1, 1000), "00:01:01.001Z"),
    ],
)
def test_header_text_is_what_kafka_connect_writes(value: Any, text: str) -> None:
    assert SimpleHeaderConverter().header_to_bytes("t", "h", None, value) == text.encode()


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("1", INT8, 1),
        ("128", INT16, 128),
        ("40000", INT32, 40000),
        ("5000000000", INT64, 5000000000),
        ("99999999999999999999", logical.decimal_schema(0), Decimal("99999999999999999999")),
        ("1.5", FLOAT32, 1.5),
        ("1.0", INT8, 1),
        ("0.1", FLOAT32, 0.1),
        (".5", STRING, ".5"),
        ("+.5", FLOAT32, 0.5),
        ("5.", INT8, 5),
        ("1e3", INT16, 1000),
        ("1e40", FLOAT64, 1e40),
        ("-0", INT8, 0),
        ("+5", INT8, 5),
        ("  7", INT8, 7),
        ("abc", STRING, "abc"),
        ("", STRING, ""),
        (" true ", BOOLEAN, True),
        ("true}", STRING, "true}"),
        ("null", None, None),
        ("2020-01-02", logical.date_schema(), datetime.date(2020, 1, 2)),
        ("12:34:56.789Z", logical.time_schema(), datetime.time(12, 34, 56, 789_000)),
        (
            "2020-01-02T03:04:05.678Z",
            logical.timestamp_schema(),
            datetime.datetime(2020, 1, 2, 3, 4, 5, 678_000, UTC),
        ),
        ("[1, 1000]", array(INT16), [1, 1000]),
        ("[1,1.5]", array(FLOAT32), [1.0, 1.5]),
        ('[1,"a"]', None, [1, "a"]),
        ("[]", None, []),
        ("[null]", None, [None]),
        ("[1,2", STRING, "[1,2"),
        ('{"a":1,"b":2}', mapping(STRING, INT8), {"a": 1, "b": 2}),
        ("{a:1}", STRING, "{a:1}"),
        ("1 2", STRING, "1 2"),
        ("0x10", STRING, "0x10"),
        ("NaN", STRING, "NaN"),
        ("[NaN]", STRING, "[NaN]"),
        ('"q"', STRING, '"q"'),
        ('["2020-01-02"]', array(logical.date_schema()), [datetime.date(2020, 1, 2)]),
    ],
)
def test_types_are_inferred_from_text_as_kafka_connect_does(text: str, schema: Schema | None, value: Any) -> None:
    assert parse_text(text) == (schema, value)
    assert SimpleHeaderConverter().header_from_bytes("t", "h", text.encode()) == (schema, value)


@pytest.mark.parametrize("text", ["0.1", "3.14159", "-7.5", "1.0E-5", ".5", "007", "10:30"])
def test_a_literal_of_a_header_is_written_as_kafka_connect_writes_it(text: str) -> None:
    schema, value = parse_text(text)
    written = {"007": b"7"}.get(text, text.encode())
    assert SimpleHeaderConverter().header_to_bytes("t", "h", schema, value) == written


def test_header_bytes_that_are_no_text_stay_bytes() -> None:
    assert SimpleHeaderConverter().header_from_bytes("t", "h", b"\xff") == (BYTES, b"\xff")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.10000000149011612, "0.1"),
        (3.4028234663852886e38, "3.4028235E38"),
        (16777216, "1.6777216E7"),
        (1e300, '"Infinity"'),
        (0.0, "0.0"),
    ],
)
def test_a_float_has_the_digits_that_32_bits_need(value: float, text: str) -> None:
    converter = JsonConverter()
    converter.configure({"converter.type": "value", "schemas.enable": "false"})
    assert converter.to_bytes("t", FLOAT32, value) == text.encode()


@pytest.mark.parametrize(
    ("schema", "value", "header", "text"),
    [
        (FLOAT32, 123456.789, "123456.79", "123456.79"),
        (FLOAT32, 3, "3.0", "3.0"),
        (FLOAT64, 3, "3.0", "3.0"),
        (array(FLOAT32), [0.1234567891], "[0.12345679]", "[0.12345679]"),
        (mapping(STRING, FLOAT64), {"a": 1}, '{"a":1.0}', "{a=1.0}"),
        (
            struct({"f": FLOAT32}),
            Struct(struct({"f": FLOAT32}), f=123456.789),
            '{"f":123456.79}',
            "Struct{f=123456.79}",
        ),
    ],
)
def test_numbers_have_the_text_of_their_schema(schema: Schema, value: Any, header: str, text: str) -> None:
    strings = StringConverter()
    assert SimpleHeaderConverter().header_to_bytes("t", "h", schema, value) == header.encode()
    assert strings.to_bytes("t", schema, value) == text.encode()


def test_a_header_with_half_a_character_is_refused() -> None:
    with pytest.raises(DataError, match="lone surrogate"):
        SimpleHeaderConverter().header_to_bytes("t", "h", STRING, "\ud800")


@pytest.mark.parametrize(("replaced", "element"), [("true", b"7"), ("false", b"null")])
def test_a_null_inside_of_a_default_is_kept_if_defaults_do_not_replace_nulls(replaced: str, element: bytes) -> None:
    number = Schema(SchemaType.INT64, optional=True, default=7)
    schema = array(number, optional=True, default=[None])
    text = json_converter(replace_null_with_default=replaced).to_bytes("t", schema, [])
    assert text == (
        b'{"schema":{"type":"array","items":{"type":"int64","optional":true,"default":7},"optional":true,'
        b'"default":[%b]},"payload":[]}' % element
    )
    back, _ = json_converter(replace_null_with_default="false").from_bytes("t", text)
    assert back is not None
    assert back.default == ([None] if element == b"null" else [7])


@pytest.mark.parametrize(
    ("encoding", "text", "data"),
    [
        ("UTF-16", "aé", b"\xfe\xff\x00a\x00\xe9"),
        ("UTF-16", "", b""),
        ("UTF-32", "a", b"\x00\x00\x00a"),
        ("UTF-16LE", "a", b"a\x00"),
        ("ISO-8859-1", "é", b"\xe9"),
    ],
)
def test_text_has_the_byte_order_of_java(encoding: str, text: str, data: bytes) -> None:
    converter = StringConverter()
    converter.configure({"converter.type": "value", "converter.encoding": encoding})
    assert converter.to_bytes("t", STRING, text) == data
    assert converter.from_bytes("t", data)[1] == text


@pytest.mark.parametrize("encoding", ["nope", "base64", "rot13"])
def test_what_encodes_no_text_is_no_character_set(encoding: str) -> None:
    with pytest.raises(ConfigValueError, match="is not the name of a character set"):
        StringConverter().configure({"converter.type": "value", "converter.encoding": encoding})


def test_the_short_name_of_a_header_converter() -> None:
    assert load_class("Simple") is load_class("SimpleHeaderConverter") is SimpleHeaderConverter
    with pytest.raises(ConnectError):
        load_class("SimpleHeader")
