"""Random markers from outside against a coordinator: whatever is sent, transactions stay whole and producers get on.

The model is a list of transactions and how each ended. After every history: no transaction is decided differently in
two of its partitions, one that was told committed is committed everywhere, nothing stays open, and each producer
commits once more on every partition.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from oncelog.broker.coordinator.transaction.decisions import ProducerIdentity
from oncelog.broker.coordinator.transaction.events import Cause
from oncelog.broker.coordinator.transaction.state import TransactionVersion
from oncelog.broker.partitions.markers import Marker
from oncelog.protocol.errors import ErrorCode, KafkaError
from support.transaction_ports import CoordinatorWorld, settle
from support.virtual_time import LoopClock, VirtualTimeLoop

PARTITIONS = [("t", 0), ("t", 1), ("u", 0)]
IDS = ("x", "y")
OPERATOR = Cause("WriteTxnMarkers", "operator")


class History:
    """Two producers that always begin anew where they are refused, and an outsider."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.version = self.rng.choice((TransactionVersion.TV_0, TransactionVersion.TV_2))
        # A flush that takes its time leaves decisions under way for markers to meet.
        self.world = CoordinatorWorld(flush_on_ask=self.rng.random() < 0.5, clock=LoopClock())
        self.committed: set[object] = set()
        self.made = 0

    async def run(self) -> None:
        async with self.world:
            disk = asyncio.ensure_future(self._disk())
            workers = [asyncio.ensure_future(self._produce(tid)) for tid in IDS]
            outsider = asyncio.ensure_future(self._interfere())
            await asyncio.gather(*workers)
            outsider.cancel()
            await asyncio.gather(outsider, return_exceptions=True)
            for tid in IDS:
                await self._transaction(tid, PARTITIONS, must=True)
            await asyncio.sleep(1)
            self._check()
            disk.cancel()
            self.world.log.disk.flush()
            self.world.partitions.flush()

    async def _disk(self) -> None:
        while True:
            await asyncio.sleep(self.rng.random() * 0.01)
            self.world.log.disk.flush()
            await asyncio.sleep(self.rng.random() * 0.01)
            self.world.partitions.flush()

    async def _produce(self, tid: str) -> None:
        for _ in range(8):
            chosen = self.rng.sample(PARTITIONS, self.rng.randint(1, 3))
            await self._transaction(tid, chosen)

    async def _transaction(self, tid: str, chosen: list[tuple[str, int]], *, must: bool = False) -> None:
        self.made += 1
        number = self.made
        coordinator = self.world.coordinator
        try:
            who = await self._init(tid)
            await coordinator.registration.add_partitions(tid, *who, chosen, self.version)
            for partition in chosen:
                await asyncio.sleep(self.rng.random() * 0.01)
                assert coordinator.registration.verify(tid, *who, partition) is ErrorCode.NONE or not must
                if coordinator.registration.verify(tid, *who, partition) is ErrorCode.NONE:
                    self.world.partitions.produce(partition, *who, number)
            await asyncio.sleep(self.rng.random() * 0.01)
            commit = must or self.rng.random() < 0.7
            await coordinator.end_txn(tid, *who, commit, self.version)
            if commit:
                self.committed.add(number)
        except KafkaError as error:
            if must or error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                raise  # the id is blocked

    async def _init(self, tid: str) -> ProducerIdentity:
        while True:
            try:
                return await self.world.coordinator.init_producer_id(tid, 60_000)
            except KafkaError as error:
                if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    raise

    async def _interfere(self) -> None:
        rng = self.rng
        while True:
            await asyncio.sleep(rng.random() * 0.02)
            chosen = rng.sample(PARTITIONS, rng.randint(1, 3))
            producer_id, epoch = 1000 + rng.randint(0, 3), rng.choice((0, 1, 2, 3, 500, 32_767))
            known = self.world.partitions.producer(chosen[0], producer_id)
            if known is not None and rng.random() < 0.7:
                epoch = known.producer_epoch + rng.choice((0, 0, 0, 1, -1))
            marker = Marker(producer_id, epoch, rng.choice((0, 0, 0, 5)), rng.random() < 0.5, chosen)
            await self.world.coordinator.write_external_markers([marker], OPERATOR)

    def _check(self) -> None:
        decisions: dict[object, set[bool]] = {}
        for partition, log in self.world.partitions.logs.items():
            assert not log.open_by_producer(), partition
            for transaction, how in log.decisions().items():
                decisions.setdefault(transaction, set()).update(how)
        for transaction, how in decisions.items():
            assert len(how) == 1, f"transaction {transaction} is torn"
            assert how == {True} or transaction not in self.committed


async def history_of(seed: int) -> None:
    await History(seed).run()


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_markers_from_outside_tear_nothing_and_block_nobody(first: int) -> None:
    for seed in range(first, first + 20):
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            try:
                runner.run(history_of(seed))
                runner.run(settle())
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise
