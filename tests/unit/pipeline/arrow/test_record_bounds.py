"""Where records begin: guesses over many bytes give what a walk from record to record gives, and never more."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from unittest.mock import patch  # noqa: E402

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from oncelog.pipeline.arrow import record_bounds as bounds  # noqa: E402
from oncelog.pipeline.arrow.record_bounds import record_bounds  # noqa: E402
from oncelog.protocol.record_varint import encode_varint, read_varint  # noqa: E402
from oncelog.protocol.records import CorruptBatch  # noqa: E402


def record(offset_delta: int, key: bytes, value: bytes, timestamp_delta: int = 0) -> bytes:
    body = b"\0" + encode_varint(timestamp_delta) + encode_varint(offset_delta)
    body += encode_varint(len(key)) + key + encode_varint(len(value)) + value + b"\0"
    return encode_varint(len(body)) + body


def batch(values: list[bytes]) -> bytes:
    return b"".join(record(number, b"%d" % number, value) for number, value in enumerate(values))


LOOKS_LIKE_A_BOUNDARY = record(1, b"k", b"value")
VALUES = st.lists(
    st.binary(max_size=300)
    | st.text(max_size=100).map(str.encode)
    | st.integers(0, 400).map(bytes)
    | st.integers(0, 40).map(lambda count: LOOKS_LIKE_A_BOUNDARY * count)
    | st.integers(0, 9000).map(lambda size: b"x" * size),
    min_size=1,
    max_size=120,
)
FEW = st.sampled_from([1, 2, 8])


def walked(data: bytes, at: int, count: int) -> list[int]:
    begins = []
    for _ in range(count):
        begins.append(at)
        length, at = read_varint(data, at)
        at += length >> 1
    assert at == len(data)
    return begins


@given(VALUES, st.integers(1, 20), FEW, st.sampled_from([40, 300, 5000, 128 * 1024]), st.integers(0, 3))
def test_guesses_lead_where_the_lengths_do(
    values: list[bytes], repeated: int, mixed: int, window: int, padding: int
) -> None:
    data = b"\0" * padding + batch(values * repeated)
    count = len(values) * repeated
    with patch.object(bounds, "_MIXED", mixed), patch.object(bounds, "_WINDOW", window):
        begin, body, end = record_bounds(memoryview(data), [(padding, len(data), count)])
    assert begin.tolist() == walked(data, padding, count)
    assert end.tolist() == [*begin.tolist()[1:], len(data)]
    assert body.tolist() == [read_varint(data, at)[1] for at in begin.tolist()]


@given(VALUES, st.data())
def test_damage_is_told_or_harmless(values: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(batch(values * 3))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([0, 0, 1, 7]))
    damaged = memoryview(whole)[: len(whole) - cut]
    count = len(values) * 3 + data.draw(st.sampled_from([0, 0, -1, 1]))
    with patch.object(bounds, "_MIXED", 1):
        try:
            begin, _, end = record_bounds(damaged, [(0, len(damaged), max(count, 1))])
        except CorruptBatch:
            return
    assert begin.tolist() == walked(bytes(damaged), 0, max(count, 1))
    assert int(end[-1]) == len(damaged)


def test_records_of_mixed_sizes_take_few_steps() -> None:
    values = [b"text " * (3 + number * 7919 % 30) for number in range(5000)]
    data = batch(values)
    begins, behind = bounds._guessed(np.frombuffer(data, np.uint8), 0, len(data), len(values))
    assert begins.tolist() == walked(data, 0, len(values))
    assert behind == len(data)


def test_values_full_of_zeros_do_not_cost_a_step_per_byte() -> None:
    data = batch([bytes(200)] * 50 + [b"\0\x20\0" * 60] * 50)
    begins, behind = bounds._guessed(np.frombuffer(data, np.uint8), 0, len(data), 100)
    assert begins.tolist() == walked(data, 0, 100)[: len(begins)]
    assert behind == ([*walked(data, 0, 100), len(data)])[len(begins)]
