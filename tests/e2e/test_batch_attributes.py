"""Attribute bits that a client has no business to set: what is stored, and what is refused, is what Kafka does.

A client's batch is kept as it came, so a bit that means something to the log itself must not get in by this way. The
delete horizon is one that Apache Kafka lets through: there it makes compaction drop tombstones that nobody has read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from oncelog.protocol.batch_header import DELETE_HORIZON, LOG_APPEND_TIME
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records import Record, decode_batch, encode_batch, iter_batches, verify_crc
from support.logs import with_attributes
from support.raw_connection import RawConnection

UNKNOWN = 0x0080
TOPICS: dict[str, dict[str, str]] = {
    "create": {},
    "append": {"message_timestamp_type": "LogAppendTime"},
    "compacted": {"cleanup_policy": "compact"},
}


@pytest.mark.parametrize(
    ("bits", "kind", "code"),
    [
        (0, "create", ErrorCode.NONE),
        (DELETE_HORIZON, "create", ErrorCode.NONE),
        (DELETE_HORIZON, "compacted", ErrorCode.NONE),
        (DELETE_HORIZON, "append", ErrorCode.NONE),
        (LOG_APPEND_TIME, "create", ErrorCode.NONE),
        (LOG_APPEND_TIME, "append", ErrorCode.INVALID_TIMESTAMP),
        (UNKNOWN, "create", ErrorCode.NONE),
        (UNKNOWN, "append", ErrorCode.NONE),
        (LOG_APPEND_TIME | DELETE_HORIZON | UNKNOWN, "create", ErrorCode.NONE),
    ],
)
async def test_bits_of_a_client(
    bootstrap: str, fresh_name: Callable[[str], str], bits: int, kind: str, code: ErrorCode
) -> None:
    topic, now = fresh_name("bits"), int(time.time() * 1000)
    async with RawConnection(bootstrap) as wire:
        configs: dict[str, Any] = TOPICS[kind]
        await wire.create_topic(topic, **configs)
        sent = encode_batch([Record(i, now + i, b"k", b"v%d" % i, []) for i in range(3)])
        answer = await wire.produce(topic, bytes(with_attributes(sent, bits)))
        assert ErrorCode(answer.error_code) is code
        fetched = (await wire.fetch(topic)).responses[0].partitions[0].records or b""
    if code is not ErrorCode.NONE:
        assert fetched == b""
        return
    ((position, header),) = iter_batches(fetched)
    assert verify_crc(fetched, position, header)
    assert header.timestamp_type.value == (kind == "append"), "the topic says, whatever the batch said"
    records = decode_batch(fetched, position, header)
    assert [record.value for record in records] == [b"v0", b"v1", b"v2"]
    if kind != "append":
        assert [record.timestamp for record in records] == [now, now + 1, now + 2]
