"""A refused batch leaves none of its decompressed records in memory, even if the garbage collector does not run."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from oncelog.broker.log.batch_inspection import Inspection
from oncelog.protocol.batch_header import BatchHeader
from oncelog.protocol.compression import Compression, compress, expand
from oncelog.protocol.errors import KafkaError
from oncelog.protocol.record_walk import RecordLimits
from oncelog.protocol.records import read_batch_header
from support.crooked_batches import raw_batch
from support.inline_threads import InlineThreads

LIMIT = 8 << 20
LIMITS = RecordLimits(decompressed_bytes=LIMIT)
TOO_LARGE = bytes(LIMIT + 1000)
UNREADABLE = bytes(LIMIT - 1000)


def cut(codec: Compression) -> bytes:
    return compress(codec, UNREADABLE)[:-9]


BATCHES = {
    **{
        f"{codec.name.lower()} beyond the limit": raw_batch(compress(codec, TOO_LARGE), compression=codec)
        for codec in (Compression.GZIP, Compression.LZ4, Compression.ZSTD)
    },
    **{
        f"{codec.name.lower()} with unreadable records": raw_batch(compress(codec, UNREADABLE), compression=codec)
        for codec in Compression
    },
    **{
        f"{codec.name.lower()} that is cut off": raw_batch(cut(codec), compression=codec)
        for codec in (Compression.GZIP, Compression.LZ4, Compression.ZSTD)
    },
}


@pytest.fixture
def traced() -> Iterator[Callable[[], int]]:
    """Return a function that returns the bytes in use; the garbage collector does not run meanwhile."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        gc.enable()


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES.keys())
async def test_an_inspection_keeps_nothing_of_a_refused_batch(batch: bytes, traced: Callable[[], int]) -> None:
    threads, slots = InlineThreads(), asyncio.Semaphore(1)
    refusals: list[KafkaError] = []

    async def inspect(inspection: Inspection) -> None:
        if not inspection.begin():
            await inspection.finish(threads, slots)

    async def refused() -> None:
        inspection = Inspection(bytearray(batch), read_batch_header(batch), LIMITS, "t-0")
        with pytest.raises(KafkaError) as caught:
            await inspect(inspection)
        refusals.append(caught.value)  # a caller may keep the error until it has sent the response

    await refused()
    before = traced()
    for _ in range(3):
        await refused()
    assert traced() - before < LIMIT // 4 + 3 * 2 * len(batch)


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_the_error_of_a_decompression_keeps_no_buffer(codec: Compression, traced: Callable[[], int]) -> None:
    data = compress(codec, TOO_LARGE)
    errors: list[Exception] = []
    before = traced()
    for _ in range(3):
        try:
            expand(codec, data, LIMIT)
        except KafkaError as error:
            errors.append(error)
    assert len(errors) == 3
    assert traced() - before < LIMIT // 4


def test_the_error_of_a_check_without_pauses_keeps_no_records(traced: Callable[[], int]) -> None:
    batch = BATCHES["zstd with unreadable records"]
    header: BatchHeader = read_batch_header(batch)
    errors: list[Exception] = []
    before = traced()
    for _ in range(3):
        try:
            Inspection(batch, header, LIMITS, "t-0").inspect_whole()
        except KafkaError as error:
            errors.append(error)
    assert len(errors) == 3
    assert traced() - before < LIMIT // 4
