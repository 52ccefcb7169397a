"""Formats and templates of `oncelog consume`."""

from __future__ import annotations

import json

import click
import pytest
from oncelog import ConsumerRecord, TimestampType, TopicPartition
from oncelog.cli.record_formats import record_format
from oncelog.client.consumer.record import BatchOrigin

ORIGIN = BatchOrigin(TopicPartition("orders", 2), 0, TimestampType.CREATE_TIME)
RECORD = ConsumerRecord(ORIGIN, 7, 1_000, b"k\xff", b"value", [("a", b"1"), ("b", None)])
TOMBSTONE = ConsumerRecord(ORIGIN, 8, 1_001, None, None, [])


@pytest.mark.parametrize(
    ("template", "full", "empty"),
    [
        ("%t-%p@%o %T\\n", b"orders-2@7 1000\n", b"orders-2@8 1001\n"),
        ("%k=%s", b"k\xff=value", b"="),
        ("%K %S", b"2 5", b"-1 -1"),
        ("%R", b"\x00\x00\x00\x05", b"\xff\xff\xff\xff"),
        ("[%h]", b"[a=1,b=NULL]", b"[]"),
        ("100%%%%\\t\\r\\0\\\\\\x41%o", b"100%%\t\r\0\\A7", b"100%%\t\r\0\\A8"),
        ("é\n%o", "é\n7".encode(), "é\n8".encode()),
        ("value", b"value\n", b"<tombstone>\n"),
        ("key-value", b"k\xff\tvalue\n", b"null\t<tombstone>\n"),
    ],
)
def test_format(template: str, full: bytes, empty: bytes) -> None:
    assert record_format(template)(RECORD) == full
    assert record_format(template)(TOMBSTONE) == empty


def test_json_is_one_line_with_everything() -> None:
    line = record_format("json")(RECORD)
    assert line.endswith(b"\n")
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 2,
        "offset": 7,
        "timestamp": 1_000,
        "key_base64": "a/8=",
        "value": "value",
        "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": None}],
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [("xml", "neither value, key-value or json"), ("%o %q", "%q is not one of"), ("%", "% is"), ("%o\\q", "is not")],
)
def test_unknown_format_is_refused(text: str, problem: str) -> None:
    with pytest.raises(click.BadParameter, match=problem):
        record_format(text)
