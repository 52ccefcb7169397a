"""Every batch of a session comes a second time, at any later moment: nothing is doubled, torn, or opened by it.

Most telling where the epoch stays (EndTxn v3-4): there only the sequence says that a batch is late.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from oncelog.broker.coordinator.transaction.state import TransactionState
from oncelog.broker.node import BrokerNode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import ProduceRequest
from support.raw_connection import RawConnection, values_in
from support.session_wire import MIXED, NEWER, OLDER, SessionProducer, Speech

PARTITIONS = [("t", 0), ("t", 1), ("t", 2)]
TRANSACTIONS = 12
SEEDS = 6


async def history(seed: int, speech: Speech) -> None:
    draw = Random(seed)
    sent: list[ProduceRequest] = []
    committed: dict[tuple[str, int], int] = dict.fromkeys(PARTITIONS, 0)
    async with BrokerNode(durability="os", logging_level="error") as broker, RawConnection(broker.address) as wire:
        await wire.create_topic("t", len(PARTITIONS))
        producer = SessionProducer(wire, "id", speech)
        await producer.init()
        assert await producer.add(*PARTITIONS) == {ErrorCode.NONE}
        async with RawConnection(broker.address) as old_connection:

            async def come_late() -> None:
                """Requests that were answered long ago, on a connection that was thought dead."""
                while sent and draw.random() < 0.5:
                    await old_connection.call(draw.choice(sent), speech.produce, 1)

            for _ in range(TRANSACTIONS):
                await come_late()
                idle = broker.transaction_coordinator.describe("id")
                assert not sent or idle.state is not TransactionState.ONGOING, "a late batch opened a transaction"
                wrote = set()
                for _ in range(draw.randint(1, 8)):
                    partitions = draw.sample(PARTITIONS, draw.randint(1, 2))
                    sent.append(producer.produce_request(*partitions))
                    assert await producer.produce(*partitions) == {ErrorCode.NONE}
                    wrote.update(partitions)
                    for partition in partitions:
                        committed[partition] += 1
                    await come_late()
                assert await producer.end(*draw.sample(sorted(wrote), draw.randint(0, len(wrote)))) is ErrorCode.NONE
            await come_late()
        for partition in PARTITIONS:
            log = broker.replica_manager.partition(*partition).log
            async with asyncio.timeout(60):
                while log.last_stable_offset != log.log_end_offset:
                    await asyncio.sleep(0.001)
            assert log.producers.open_transactions() == []
            records = b"".join(bytes(batch) for _, batch in log.batches())
            values = values_in(records)
            assert len(values) == len(set(values)) == committed[partition], partition


@pytest.mark.parametrize("speech", [OLDER, MIXED, NEWER], ids=str)
async def test_nothing_is_doubled_torn_or_opened(speech: Speech) -> None:
    for seed in range(SEEDS):
        try:
            await history(seed, speech)
        except BaseException as error:
            error.add_note(f"history {seed}")
            raise
