"""Record batches to Arrow and back, held against the record-by-record codec."""

from __future__ import annotations

import random
from typing import Any
from unittest.mock import patch

import pytest

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from oncelog.pipeline.arrow import decoder, encoder, varints  # noqa: E402
from oncelog.pipeline.arrow.decoder import HEADER_TYPE, decode  # noqa: E402
from oncelog.pipeline.arrow.encoder import encode  # noqa: E402
from oncelog.protocol.batch_header import assemble_batch  # noqa: E402
from oncelog.protocol.compression import Compression  # noqa: E402
from oncelog.protocol.errors import KafkaError  # noqa: E402
from oncelog.protocol.records import (  # noqa: E402
    BatchBudgetExceeded,
    Record,
    TimestampType,
    decode_batch,
    encode_batch,
    iter_batches,
    read_batch_header,
)
from support.crooked_batches import packed_batch, with_many_headers  # noqa: E402

INT64 = st.integers(-(2**63), 2**63 - 1)
PART = st.none() | st.binary(max_size=4) | st.integers(60, 8400).map(lambda size: b"%07d" % size * (size // 7))
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)


@given(st.lists(INT64 | st.integers(-200, 200), min_size=1))
def test_varints_come_back(numbers: list[int]) -> None:
    data, lengths = varints.write(np.array(numbers))
    at = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    found, end = varints.read(data, at)
    assert found.tolist() == numbers
    assert end.tolist() == np.cumsum(lengths).tolist()
    assert varints.sizes(np.array(numbers)).tolist() == lengths.tolist()


def rows(columns: object) -> list[tuple[object, ...]]:
    return list(
        zip(
            columns.offset.tolist(),  # type: ignore[attr-defined]
            columns.timestamp.tolist(),  # type: ignore[attr-defined]
            columns.key.to_pylist(),  # type: ignore[attr-defined]
            columns.value.to_pylist(),  # type: ignore[attr-defined]
            [[(h["key"], h["value"]) for h in one or []] for one in columns.headers.to_pylist()],  # type: ignore[attr-defined]
            strict=True,
        )
    )


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[Record]]:
    """A run of batches with gaps between offsets, as a compacted log has them, and its records."""
    offset = draw(st.integers(0, 2**40))
    data, records = b"", []
    for _ in range(draw(st.integers(1, 4))):
        base = offset
        batch = []
        for _ in range(draw(st.integers(1, 8))):
            timestamp = draw(st.integers(-1, 2**41))
            key, value, headers = draw(PART), draw(PART), draw(HEADERS)
            for _ in range(draw(st.sampled_from([1, 1, 1, 12, 150]))):  # runs of one size
                batch.append(Record(offset, timestamp, key, value, headers))
                offset += 1
            offset += draw(st.sampled_from([0, 0, 0, 70, 9000]))
        appended = draw(st.booleans())
        kind = TimestampType.LOG_APPEND_TIME if appended else TimestampType.CREATE_TIME
        data += encode_batch(
            batch, base_offset=base, compression=draw(st.sampled_from(Compression)), timestamp_type=kind
        )
        latest = max(record.timestamp for record in batch)
        records += [
            Record(one.offset, latest if appended else one.timestamp, one.key, one.value, one.headers) for one in batch
        ]
    return data, records


@settings(max_examples=100, deadline=None)
@given(logs(), st.data())
def test_batches_become_the_rows_of_the_record_codec(log: tuple[bytes, list[Record]], data: st.DataObject) -> None:
    raw, records = log
    first, last = records[0].offset, records[-1].offset
    start = data.draw(st.integers(first - 1, last))
    end = data.draw(st.integers(start + 1, last + 2))
    padding = data.draw(st.integers(0, 3))  # an answer's records lie within a larger buffer
    answer = memoryview(bytearray(b"x" * padding + raw))[padding:]
    with (
        patch.object(decoder, "PIECE_BYTES", data.draw(st.sampled_from([1, 100, 10_000, 1 << 20]))),
        patch.object(decoder, "JOINED_BYTES", data.draw(st.sampled_from([1, 100, 10_000, 1 << 20]))),
    ):
        found = [
            row for columns in decode(answer, iter_batches(answer), start, end, headers=True) for row in rows(columns)
        ]
    assert found == [
        (one.offset, one.timestamp, one.key, one.value, one.headers) for one in records if start <= one.offset < end
    ]


@settings(max_examples=60, deadline=None)
@given(logs(), st.integers(0, 2**31))
def test_damage_is_an_error_of_the_log_or_harmless(log: tuple[bytes, list[Record]], seed: int) -> None:
    raw, _ = log
    chance = random.Random(seed)
    batches = list(iter_batches(raw))
    damaged = bytearray(raw)
    for _ in range(3):
        damaged[chance.randrange(61, len(raw))] = chance.randrange(256)
    headers = []
    for position, header in batches:  # damage behind the headers: those are read, and believed, before
        damaged[position : position + 61] = raw[position : position + 61]
        headers.append((position, header))
    try:
        found = sum(len(columns) for columns in decode(bytes(damaged), headers, 0, 2**62, headers=True))
    except KafkaError:
        return
    assert found == sum(header.record_count for _, header in batches)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(PART, PART, st.none() | HEADERS), min_size=1, max_size=20),
    st.integers(1, 20_000),
    st.integers(1, 40_000),
)
def test_rows_become_batches_that_the_record_codec_reads(
    wanted: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]], max_bytes: int, at_once: int
) -> None:
    key, value, headers = zip(*wanted, strict=True)
    structs = [None if one is None else [{"key": k, "value": v} for k, v in one] for one in headers]
    padding = pa.array([b"x"], pa.binary())  # a slice of a larger array, as a group of rows is
    keys = pa.concat_arrays([padding, pa.array(key, pa.binary())]).slice(1)
    values = pa.concat_arrays([padding, pa.array(value, pa.binary())]).slice(1)
    found = []
    with patch.object(encoder, "_AT_ONCE", at_once):
        payloads = list(encode(keys, values, pa.array(structs, HEADER_TYPE), max_bytes))
    for payload in payloads:
        batch = assemble_batch(
            payload.records,
            base_offset=0,
            leader_epoch=-1,
            attributes=0,
            last_offset_delta=payload.record_count - 1,
            base_timestamp=77,
            max_timestamp=77,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=payload.record_count,
        )
        assert payload.record_count == 1 or len(payload.records) <= max_bytes
        records = decode_batch(batch, 0, read_batch_header(batch))
        assert [record.offset for record in records] == list(range(payload.record_count))
        assert {record.timestamp for record in records} == {77}
        found += [(record.key, record.value, record.headers) for record in records]
    assert found == [(k, v, h or []) for k, v, h in wanted]


def test_batches_are_as_full_as_they_may_be() -> None:
    value = pa.array([b"v" * 79] * 1000, pa.binary())
    with patch.object(encoder, "_AT_ONCE", 3000):
        payloads = list(encode(pa.nulls(1000, pa.binary()), value, None, 1000))
    assert [payload.record_count for payload in payloads] == [10] * 100


def test_each_way_of_not_filling_a_batch_is_seen() -> None:
    """The loop that finds the records believes their lengths; what is wrong with them is seen afterwards."""
    records = [Record(number, 77, b"k", b"v" * 90, []) for number in range(5)]
    one = encode_batch(records)
    two = encode_batch([Record(5, 77, b"k", b"v" * 90, [])], base_offset=5)
    header = read_batch_header(one)
    batches = [(0, header), (len(one), read_batch_header(two))]
    assert sum(len(some) for some in decode(one + two, batches, 0, 10, headers=False)) == 6
    for count in (4, 6, 7, 2**31 - 1):  # fewer than there are; some of the next batch; beyond all
        wrong = header._replace(record_count=count, last_offset_delta=count - 1)
        with pytest.raises(KafkaError):
            list(decode(one + two, [(0, wrong), batches[1]], 0, 10, headers=False))
    for length in (b"\xc9\x01", b"\xca\x81\x00", b"\xff\xff\xff\xff\xff\x01", b"\x01", b"\x00"):
        damaged = one[:61] + length + one[61 + len(length) :]
        with pytest.raises(KafkaError):
            list(decode(damaged, [(0, header)], 0, 10, headers=False))


@pytest.mark.parametrize("size", [10, 63 + 64, 9000, 20_000])
def test_a_run_of_one_size_ends_where_the_next_record_is_longer_by_any_byte_of_its_length(size: int) -> None:
    sizes = [size] * 100 + [size + 64] * 100 + [size] * 100 + [size + 8192] * 40 + [size, size + 1] * 40
    records = [Record(offset, 0, None, b"x" * size, []) for offset, size in enumerate(sizes)]
    raw = encode_batch(records, base_offset=0)
    found = [row for columns in decode(raw, iter_batches(raw), 0, 2**62, headers=True) for row in rows(columns)]
    values: list[Any] = [value for _, _, _, value, _ in found]
    assert [len(value or b"") for value in values] == sizes


@pytest.mark.parametrize(
    "data",
    [packed_batch(with_many_headers(1_000_001)), packed_batch(bytes(7_000_007), 1_000_001)],
    ids=["headers", "records"],
)
def test_a_batch_of_too_many_objects_is_refused_before_they_are_made(data: bytes) -> None:
    with pytest.raises(BatchBudgetExceeded):
        list(decode(data, iter_batches(data), 0, 1 << 60, headers=True))
