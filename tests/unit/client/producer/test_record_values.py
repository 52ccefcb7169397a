"""What `send` and `enqueue` take: every wrong value fails the call, and nothing that a record is made of changes."""

from __future__ import annotations

import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oncelog.client.producer.record_values import record_of

WRONG_TYPES = [
    ("timestamp_ms", 1.7e9),
    ("timestamp_ms", True),
    ("timestamp_ms", "0"),
    ("partition", "0"),
    ("partition", 0.0),
    ("partition", True),
    ("partition", b"0"),
    ("value", "text"),
    ("value", 5),
    ("value", array.array("i", [1, 2])),
    ("key", "text"),
    ("key", ["k"]),
    ("headers", [("name", "text")]),
    ("headers", [(b"name", b"")]),
    ("headers", [("one",)]),
    ("headers", ["ab"]),
    ("headers", 5),
    ("headers", None),
]

OUT_OF_RANGE = [
    ("timestamp_ms", -1),
    ("timestamp_ms", 2**63),
    ("timestamp_ms", 2**70),
    ("partition", -1),
    ("partition", 2**31),
    ("headers", [("\ud800", b"")]),
]


def record(**given: Any) -> Any:
    return record_of(**{"value": b"", "key": None, "partition": None, "timestamp_ms": None, "headers": (), **given})


@pytest.mark.parametrize(("name", "wrong"), WRONG_TYPES)
def test_a_wrong_type_is_a_type_error_that_names_the_argument(name: str, wrong: object) -> None:
    with pytest.raises(TypeError, match=name):
        record(**{name: wrong})


@pytest.mark.parametrize(("name", "wrong"), OUT_OF_RANGE)
def test_a_number_out_of_range_is_a_value_error(name: str, wrong: object) -> None:
    with pytest.raises(ValueError, match=name.removesuffix("s")):
        record(**{name: wrong})


def test_a_buffer_is_copied() -> None:
    buffer = bytearray(b"before")
    made = record(value=buffer, key=memoryview(buffer)[:3])
    buffer[:] = b"after!"
    assert (made.value, made.key) == (b"before", b"bef")


@pytest.mark.parametrize("view", [memoryview(array.array("i", [1, 2])), memoryview(b"abcdef")[::2]])
def test_a_view_of_anything_is_taken_as_its_bytes(view: memoryview) -> None:
    assert record(value=view).value == view.tobytes()


def test_headers_are_read_once_and_kept() -> None:
    pairs: list[tuple[str, bytes | None]] = [("a", b"1"), ("b", None)]
    for headers in (pairs, iter(pairs), dict(pairs), tuple(pairs)):
        assert record(headers=headers).headers == (("a", b"1"), ("b", None))


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1))
def test_every_number_in_range_is_taken_as_it_is(timestamp: int, partition: int) -> None:
    made = record(timestamp_ms=timestamp, partition=partition)
    assert (made.timestamp, made.partition) == (timestamp, partition)
