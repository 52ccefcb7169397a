"""How much of a Produce request's batches is looked into before others come in between."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from oncelog.broker.api.transactional_produce import ProduceAppend
from oncelog.broker.handlers.produce import SMALL_BATCH_BYTES, _inspect
from oncelog.broker.log.batch_inspection import AT_ONCE_BYTES, AT_ONCE_COMPRESSED_BYTES, Inspection
from oncelog.protocol.batch_header import read_batch_header
from oncelog.protocol.compression import Compression
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import PartitionProduceResponse
from oncelog.protocol.record_walk import DEFAULT_LIMITS
from oncelog.protocol.records import encode_record
from support.crooked_batches import many_empty_blocks, many_records, packed_batch, raw_batch
from support.inline_threads import InlineThreads


def appends_of(batch: bytes, count: int) -> list[ProduceAppend]:
    log = SimpleNamespace(inspection_of=lambda it: Inspection(it, read_batch_header(it), DEFAULT_LIMITS, "t-0"))
    appends = [ProduceAppend(PartitionProduceResponse(index), batch) for index in range(count)]
    for append in appends:
        append.partition = cast(Any, SimpleNamespace(log=log))
    return appends


def test_batches_that_expand_count_by_what_they_expand_to() -> None:
    batch = packed_batch(encode_record(0, 0, b"k", bytes(AT_ONCE_BYTES * 2 // 3)))
    appends = appends_of(batch, 10)
    assert len(batch) < 2_000
    assert _inspect(appends) == appends[2:]


def test_a_batch_that_expands_beyond_a_portion_takes_the_whole_portion() -> None:
    appends = appends_of(packed_batch(encode_record(0, 0, b"k", bytes(AT_ONCE_BYTES * 2))), 3)
    assert _inspect(appends) == appends


def test_small_batches_are_left_to_the_log_up_to_a_bound() -> None:
    batch = raw_batch(many_records(700), 700)
    assert len(batch) < SMALL_BATCH_BYTES
    appends = appends_of(batch, 100)
    unfinished = _inspect(appends)
    assert 0 < len(unfinished) < 100
    assert not any(append.inspection for append in appends)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
async def test_many_blocks_that_hold_almost_nothing_are_decompressed_in_a_thread(codec: Compression) -> None:
    blocks = many_empty_blocks(codec, encode_record(0, 0, b"k", b"v"), AT_ONCE_COMPRESSED_BYTES + 1)
    appends = appends_of(raw_batch(blocks, compression=codec), 3)
    assert _inspect(appends) == appends
    assert not any(append.work for append in appends)
    for append in appends:
        # No slot is free: only batches that expand to a large size need one.
        await append.finish_inspection(InlineThreads(), asyncio.Semaphore(0))
        assert append.answer.error_code == ErrorCode.NONE


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
def test_a_portion_of_blocks_that_hold_almost_nothing_is_small(codec: Compression) -> None:
    blocks = many_empty_blocks(codec, encode_record(0, 0, b"k", b"v"), AT_ONCE_COMPRESSED_BYTES // 2)
    appends = appends_of(raw_batch(blocks, compression=codec), 10)
    assert 7 <= len(_inspect(appends)) < 10


@pytest.mark.parametrize("codec", [Compression.SNAPPY, Compression.LZ4])
def test_blocks_that_cannot_be_many_are_decompressed_at_once(codec: Compression) -> None:
    value = random.Random(1).randbytes(AT_ONCE_BYTES // 3)
    appends = appends_of(packed_batch(encode_record(0, 0, b"k", value), codec=codec), 2)
    assert _inspect(appends) == []
