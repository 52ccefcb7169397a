"""A broker in which a test can create hanging transactions: open in a partition, and unknown to every coordinator.

No client can create one on either broker. Apache Kafka allowed it before it verified batches (KIP-890), and still does
if verification is off. On oncelog, the batch is appended to the log directly, without the checks of a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from oncelog.broker.node import BrokerNode
from oncelog.protocol.errors import error_code
from support.raw_connection import RawConnection, batch

Hang = Callable[[str, int, int, int], Awaitable[None]]
"""A function (topic, partition, producer id, epoch) that opens a transaction of this producer in this partition."""


def _late(producer_id: int, epoch: int) -> bytes:
    return batch(b"never ended", producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)


@asynccontextmanager
async def broker_where_transactions_hang(directory: Path, *, kafka: bool) -> AsyncIterator[tuple[str, Hang]]:
    """Yield the address of a broker, and a function that makes a transaction hang there."""
    if not kafka:
        async with BrokerNode(directory, logging_level="error") as broker:

            async def put(topic: str, partition: int, producer_id: int, epoch: int) -> None:
                broker.replica_manager.partition(topic, partition).log.append(_late(producer_id, epoch))

            yield broker.address, put
        return
    from support.apache_kafka import ApacheKafka

    with ApacheKafka(directory, {"transaction.partition.verification.enable": "false"}) as other:

        async def send(topic: str, partition: int, producer_id: int, epoch: int) -> None:
            records = _late(producer_id, epoch)
            async with RawConnection(other.address) as wire, asyncio.timeout(60):
                while True:  # the leader of a new topic may not know the topic yet
                    answer = await wire.produce(topic, records, partition=partition, transactional_id="whoever")
                    if not error_code(answer.error_code).retriable:
                        break
                assert answer.error_code == 0

        yield other.address, send
