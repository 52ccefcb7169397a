"""How much of a Produce request's batches is looked into before others come in between."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from oncelog.broker.api.transactional_produce import ProduceAppend
from oncelog.broker.handlers.produce import SMALL_BATCH_BYTES, _inspect
from oncelog.broker.log.batch_inspection import AT_ONCE_BYTES, Inspection
from oncelog.protocol.batch_header import read_batch_header
from oncelog.protocol.messages.produce import PartitionProduceResponse
from oncelog.protocol.record_walk import DEFAULT_LIMITS
from oncelog.protocol.records import encode_record
from support.crooked_batches import many_records, packed_batch, raw_batch


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
