"""The decoder of pgoutput, and the types of PostgreSQL."""

from __future__ import annotations

import datetime
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oncelog.connect.connectors.postgres.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    Relation,
    RelationColumn,
    Truncate,
    Update,
    decode,
    lsn_number,
    lsn_text,
)
from oncelog.connect.connectors.postgres.settings import SETTINGS
from oncelog.connect.connectors.postgres.types import column_type
from oncelog.connect.data.struct import check
from oncelog.connect.errors import DataError

ROW = struct.pack("!H", 3) + b"t" + struct.pack("!I", 2) + "é".encode() + b"n" + b"u"
VALUES = ["é".encode(), None, UNCHANGED]
MESSAGES: list[tuple[bytes, Any]] = [
    (b"B" + struct.pack("!QqI", 5, 1_000_000, 9), Begin(5, 946_684_801_000, 9)),
    (b"C" + struct.pack("!BQQq", 0, 5, 8, 0), Commit(5, 8)),
    (
        b"R" + struct.pack("!I", 7) + b"s\0t\0d" + struct.pack("!H", 1) + b"\1id\0" + struct.pack("!Ii", 23, -1),
        Relation(7, "s", "t", "d", (RelationColumn("id", 23, -1, True),)),
    ),
    (b"I" + struct.pack("!I", 7) + b"N" + ROW, Insert(7, VALUES)),
    (b"U" + struct.pack("!I", 7) + b"N" + ROW, Update(7, VALUES, None, None)),
    (b"U" + struct.pack("!I", 7) + b"K" + ROW + b"N" + ROW, Update(7, VALUES, VALUES, None)),
    (b"U" + struct.pack("!I", 7) + b"O" + ROW + b"N" + ROW, Update(7, VALUES, None, VALUES)),
    (b"D" + struct.pack("!I", 7) + b"K" + ROW, Delete(7, VALUES, None)),
    (b"D" + struct.pack("!I", 7) + b"O" + ROW, Delete(7, None, VALUES)),
    (b"T" + struct.pack("!IBII", 2, 0, 7, 8), Truncate((7, 8))),
    (b"Y" + struct.pack("!I", 7) + b"s\0t\0", None),
]


@pytest.mark.parametrize(("data", "message"), MESSAGES)
def test_each_message_is_decoded(data: bytes, message: Any) -> None:
    assert decode(data) == message


@given(st.sampled_from([data for data, message in MESSAGES if message]), st.data())
def test_a_message_that_is_cut_off_is_refused(data: bytes, draw: st.DataObject) -> None:
    end = draw.draw(st.integers(0, len(data) - 1))
    with pytest.raises(ValueError, match=r"cut off|longer|unknown|subsection|should be|expected"):
        decode(data[:end])


@given(st.binary(max_size=60))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    try:
        decode(data)
    except ValueError:
        return


def test_positions_are_written_as_postgres_writes_them() -> None:
    assert lsn_text(0x16B374D848) == "16/B374D848"
    assert lsn_number("16/B374D848") == 0x16B374D848


def read(oid: int, text: str, modifier: int = -1, **settings: str) -> Any:
    given = {"database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
    values = SETTINGS.parse(given | {name.replace("_", "."): value for name, value in settings.items()})
    kind = column_type(oid, modifier, values)
    value = kind.read(text)
    check(kind.schema, value)
    return value


NUMERIC_9_2 = (9 << 16 | 2) + 4


@pytest.mark.parametrize(
    ("oid", "text", "value"),
    [
        (16, "t", True),
        (16, "f", False),
        (17, "\\x00ff", b"\0\xff"),
        (20, "-9223372036854775808", -(2**63)),
        (701, "NaN", None),
        (25, "é", "é"),
        (1082, "1970-01-02", 1),
        (1082, "0044-03-15 BC", -735_160),
        (1082, "infinity", 2**31 - 1),
        (1082, "12345-01-01", 3_789_391),
        (1083, "03:04:05.678901", 11_045_678_901),
        (1114, "1970-01-01 00:00:00.000001", 1),
        (1114, "1969-12-31 23:59:59", -1_000_000),
        (1114, "-infinity", -9_223_372_036_832_400_000),
        (1184, "2020-01-02 03:04:05.678901+00", "2020-01-02T03:04:05.678901Z"),
        (1700, "12345678901234567890.123", "12345678901234567890.123"),
        (1007, "{1,2}", "{1,2}"),
    ],
)
def test_values_are_read_without_loss(oid: int, text: str, value: Any) -> None:
    result = read(oid, text)
    assert result == value if value is not None else result != result


def test_numbers_with_a_scale_are_decimals_and_may_be_texts() -> None:
    assert read(1700, "12.50", NUMERIC_9_2) == Decimal("12.50")
    assert read(1700, "NaN", NUMERIC_9_2, decimal_handling_mode="string") == "NaN"
    assert read(1700, "12.50", NUMERIC_9_2, decimal_handling_mode="double") == 12.5
    with pytest.raises(DataError, match=r"decimal\.handling\.mode"):
        read(1700, "NaN", NUMERIC_9_2)


def test_times_may_be_kafka_connects() -> None:
    mode: Any = {"time_precision_mode": "connect"}
    assert read(1082, "2020-01-02", **mode) == datetime.date(2020, 1, 2)
    assert read(1083, "03:04:05.678", **mode) == datetime.time(3, 4, 5, 678_000)
    at = datetime.datetime(2020, 1, 2, 3, 4, 5, 678_000, datetime.UTC)
    assert read(1114, "2020-01-02 03:04:05.678", **mode) == at
    assert read(1184, "2020-01-02 03:04:05.678+00", **mode) == at
    with pytest.raises(DataError, match=r"time\.precision\.mode=adaptive"):
        read(1114, "infinity", **mode)
