"""A broker with a transaction that hangs: open in a partition, and no coordinator knows of it.

Neither broker lets a client make one. Apache Kafka did before it verified batches (KIP-890), and does with that turned
off; in ours the batch is put into the log past everything that guards it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from oncelog import Broker
from support.raw_connection import RawConnection, batch

PRODUCER_ID = 4_711_000
STAMP = b"never ended"


@asynccontextmanager
async def broker_with_hanging_transaction(directory: Path, topic: str, *, kafka: bool) -> AsyncIterator[str]:
    """The address of a broker where producer PRODUCER_ID, epoch 3, hangs in partition 1 of `topic` from offset 1 on."""
    late = batch(STAMP, producer_id=PRODUCER_ID, producer_epoch=3, base_sequence=0, transactional=True)
    if not kafka:
        async with Broker(directory, logging_level="error") as broker:
            async with RawConnection(broker.address) as wire:
                await wire.create_topic(topic, 2)
                assert (await wire.produce(topic, batch(b"before"), partition=1)).error_code == 0
            broker.replica_manager.partition(topic, 1).log.append(late)
            yield broker.address
        return
    from support.apache_kafka import ApacheKafka

    with ApacheKafka(directory, {"transaction.partition.verification.enable": "false"}) as other:
        async with RawConnection(other.address) as wire:
            await wire.create_topic(topic, 2)
            assert (await wire.produce(topic, batch(b"before"), partition=1)).error_code == 0
            answer = await wire.produce(topic, late, partition=1, transactional_id="nobody")
            assert answer.error_code == 0
        yield other.address
