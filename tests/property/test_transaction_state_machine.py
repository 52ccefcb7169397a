"""Random interleavings of producers, timeouts, disk flushes, failing partitions and crashes against one coordinator.

Invariants, whatever happens:

1. one transaction gets one decision: no partition ends it both ways, and no two partitions end it differently;
2. who was told "committed" (or "aborted") finds every durable batch of that transaction so decided in the end;
3. an identity that a later InitProducerId fenced never registers, produces or ends anything again;
4. in the end, when disks and partitions work and timeouts have passed, nothing is in PREPARE_* and no log has an open
   transaction;
5. with a session, whatever its producer names or forgets to name at the end, and whatever was fenced meanwhile.

Time is virtual: nothing sleeps, and a wait that can't end shows as a deadlock.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from oncelog.broker.coordinator.transaction.decisions import ProducerIdentity
from oncelog.broker.coordinator.transaction.events import Cause
from oncelog.broker.coordinator.transaction.state import TopicPartition, TransactionVersion
from oncelog.protocol.errors import ErrorCode, KafkaError
from support.transaction_ports import CoordinatorWorld, settle
from support.virtual_time import LoopClock, VirtualTimeLoop

PARTITIONS: list[TopicPartition] = [("t", 0), ("t", 1), ("u", 0)]
PRODUCERS = 7
OPERATOR = Cause("FenceProducers", "admin")
TIMEOUT_MS = 5_000
SEEDS = 60


@dataclass(eq=False)
class Transaction:
    """One transaction as its producer sees it; `wish` is what it asked for, `told` what it was answered."""

    number: int
    durable: set[TopicPartition] = field(default_factory=set)
    wish: bool | None = None
    told: bool | None = None

    def __repr__(self) -> str:
        return f"<txn {self.number} wish={self.wish} told={self.told}>"


class Producer:
    """A well-behaved client of one transactional id: what it does follows from the answers it got."""

    def __init__(self, run: Run, transactional_id: str, version: TransactionVersion) -> None:
        self.run = run
        self.tid = transactional_id
        self.version = version
        self.who: ProducerIdentity | None = None
        self.transaction: Transaction | None = None
        self.registered: set[TopicPartition] = set()
        self.busy: asyncio.Task[None] | None = None
        self.last: tuple[ProducerIdentity, bool] | None = None

    def start(self, call: Coroutine[Any, Any, None]) -> None:
        """One request at a time; others are left out while it is under way."""
        if self.busy is not None and not self.busy.done():
            call.close()
            return
        self.busy = asyncio.ensure_future(self._guarded(call))

    async def _guarded(self, call: Coroutine[Any, Any, None]) -> None:
        try:
            await call
        except KafkaError as error:
            if error.code not in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR):
                self.who = None  # fatal or abortable: this model's producer starts anew

    async def init(self) -> None:
        began = self.run.order()
        who = await self.run.coordinator.init_producer_id(self.tid, TIMEOUT_MS)
        self.run.fenced(self, who, began)
        self.who, self.transaction, self.registered = who, None, set()

    async def produce(self, partition: TopicPartition) -> None:
        who = self.who
        if who is None or (self.transaction is not None and self.transaction.wish is not None):
            return
        began = self.run.order()
        if self.transaction is None:
            self.transaction = self.run.new_transaction()
        transaction = self.transaction
        coordinator = self.run.coordinator
        if self.version is TransactionVersion.TV_2:
            await coordinator.registration.add_partitions(self.tid, *who, [partition], self.version)
            code = coordinator.registration.verify(self.tid, *who, partition)
        else:
            if partition not in self.registered:
                await coordinator.registration.add_partitions(self.tid, *who, [partition])
                self.run.succeeded(self, who, began)
                self.registered.add(partition)
                await asyncio.sleep(0)
            code = coordinator.registration.verify(self.tid, *who, partition)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        self.run.world.partitions.produce(partition, *who, transaction)
        self.run.succeeded(self, who, began)
        await asyncio.sleep(0)
        log = self.run.world.partitions.logs[partition]
        log.durable = max(log.durable, 1 + max(n for n, e in enumerate(log.events) if e.transaction is transaction))
        transaction.durable.add(partition)

    async def end(self, commit: bool) -> None:
        who, transaction = self.who, self.transaction
        if who is None or transaction is None:
            return
        began = self.run.order()
        if transaction.wish is None:
            transaction.wish = commit
        wish = transaction.wish  # a retry asks for the same
        answer = await self.run.coordinator.end_txn(self.tid, *who, wish, self.version)
        self.run.succeeded(self, who, began)
        transaction.told = wish
        self.transaction, self.registered = None, set()
        self.last = who, wish
        if self.version is TransactionVersion.TV_2:
            self.run.bumped(who, answer)
            self.who = answer

    async def fence(self) -> None:
        """Somebody else locks the holder out; here the holder notices when it is refused."""
        began = self.run.order()
        outcome = await self.run.coordinator.fencing.fence(self.tid, cause=OPERATOR, reason="operator")
        if outcome is not None:
            self.run.fenced_by_operator(self.tid, began)

    async def come_late(self) -> None:
        """Requests for the transaction that just ended, sent again with another wish: none may have any effect."""
        if self.last is None or self.transaction is not None:
            return
        who, wish = self.last
        assert self.run.coordinator.registration.verify(self.tid, *who, PARTITIONS[0]) is not ErrorCode.NONE
        try:
            await self.run.coordinator.end_txn(self.tid, *who, not wish, self.version)
        except KafkaError:
            return
        raise AssertionError(f"{who} was told the opposite of {wish} as well")


class SessionProducer(Producer):
    """Registers nothing but what begins a session: batches open transactions, and the end names what it remembers."""

    def __init__(self, run: Run, transactional_id: str, version: TransactionVersion) -> None:
        super().__init__(run, transactional_id, version)
        self.in_session = False

    async def init(self) -> None:
        await super().init()
        self.in_session = False

    async def produce(self, partition: TopicPartition) -> None:
        who = self.who
        if who is None or (self.transaction is not None and self.transaction.wish is not None):
            return
        began = self.run.order()
        coordinator = self.run.coordinator
        if not self.in_session:
            # A newer client's other partitions register by being produced to, in the middle of the transaction.
            first = PARTITIONS[:1] if self.version.supports_epoch_bump else PARTITIONS
            await coordinator.registration.add_partitions(self.tid, *who, first, self.version, session=True)
            self.run.succeeded(self, who, began)
            self.in_session = True
        if self.transaction is None:
            self.transaction = self.run.new_transaction()
        transaction = self.transaction
        deadline = coordinator.wait_deadline()
        while True:
            admitted = coordinator.registration.admit_now(
                self.tid, *who, partition, registers=self.version.supports_epoch_bump
            )
            if admitted is None:
                break
            if isinstance(admitted, asyncio.Future):
                await asyncio.shield(admitted)
            else:
                await coordinator.until_settled(self.tid, deadline, OPERATOR)
        self.run.world.partitions.produce(partition, *who, transaction)
        coordinator.registration.wrote(self.tid, partition)
        self.run.succeeded(self, who, began)
        await asyncio.sleep(0)
        log = self.run.world.partitions.logs[partition]
        log.durable = max(log.durable, 1 + max(n for n, e in enumerate(log.events) if e.transaction is transaction))
        transaction.durable.add(partition)

    async def end(self, commit: bool) -> None:
        who, transaction = self.who, self.transaction
        if who is None or transaction is None:
            return
        began = self.run.order()
        if transaction.wish is None:
            transaction.wish = commit
        wish = transaction.wish
        remembered = frozenset(sorted(transaction.durable)[: self.run.order() % 3])
        answer = await self.run.coordinator.end_txn(
            self.tid, *who, wish, self.version, written=remembered, keeps_session=True
        )
        self.run.succeeded(self, who, began)
        transaction.told = wish
        self.transaction = None
        self.last = who, wish
        self.in_session = wish or self.version.supports_epoch_bump
        if self.version.supports_epoch_bump:
            self.run.bumped(who, answer)
            self.who = answer

    async def come_late(self) -> None:
        """A batch of a transaction that had an epoch of its own is refused; without that, sequences tell (the log)."""
        if self.version.supports_epoch_bump:
            await super().come_late()


class Run:
    """One random history."""

    def __init__(self, world: CoordinatorWorld) -> None:
        self.world = world
        self.transactions: list[Transaction] = []
        self.producers: list[Producer] = []
        self.fences: list[asyncio.Task[None]] = []
        self._order = 0
        self._fenced_at: dict[str, list[tuple[int, Producer | None]]] = {}
        self._line: dict[ProducerIdentity, Producer | None] = {}

    @property
    def coordinator(self) -> Any:
        return self.world.coordinator

    def order(self) -> int:
        self._order += 1
        return self._order

    def new_transaction(self) -> Transaction:
        made = Transaction(len(self.transactions))
        self.transactions.append(made)
        return made

    def fenced(self, by: Producer, who: ProducerIdentity, began: int) -> None:
        """InitProducerId was answered: from now on every other holder of the id is fenced."""
        assert who not in self._line, "an identity is handed out once"
        self._line[who] = by
        self._fenced_at.setdefault(by.tid, []).append((self.order(), by))

    def fenced_by_operator(self, tid: str, began: int) -> None:
        """Whoever holds the id is locked out, unless an initialisation was answered meanwhile."""
        if not any(at > began for at, _ in self._fenced_at.get(tid, [])):
            self._fenced_at.setdefault(tid, []).append((self.order(), None))

    def bumped(self, before: ProducerIdentity, after: ProducerIdentity) -> None:
        assert after == before or after not in self._line
        self._line[after] = self._line.get(before)

    def succeeded(self, producer: Producer, who: ProducerIdentity, began: int) -> None:
        """A request under `who` that began at `began` was accepted: nobody may have fenced it before that."""
        fencers = [by for at, by in self._fenced_at.get(producer.tid, []) if at < began]
        assert not fencers or fencers[-1] is producer, f"{who} was fenced and still succeeds"

    async def guarded_fence(self, producer: Producer) -> None:
        with contextlib.suppress(KafkaError):
            await producer.fence()

    def crash(self) -> None:
        for fence in self.fences:
            fence.cancel()
        for producer in self.producers:
            if producer.busy is not None:
                producer.busy.cancel()

    def check(self, *, final: bool) -> None:
        for producer in self.producers:
            if producer.busy is not None and producer.busy.done() and not producer.busy.cancelled():
                producer.busy.result()
        decided: dict[Transaction, dict[TopicPartition, set[bool]]] = {}
        for partition, log in self.world.partitions.logs.items():
            for transaction, decisions in log.decisions().items():
                assert isinstance(transaction, Transaction)
                decided.setdefault(transaction, {})[partition] = decisions
            if final:
                assert log.open_by_producer() == {}, f"{partition} is left with an open transaction"
        for transaction in self.transactions:
            by_partition = decided.get(transaction, {})
            outcomes = {outcome for decisions in by_partition.values() for outcome in decisions}
            assert len(outcomes) <= 1, f"{transaction} is decided both ways: {by_partition}"
            if final and transaction.told is not None:
                for partition in transaction.durable:
                    assert by_partition.get(partition) == {transaction.told}, (transaction, partition, by_partition)
            if final and transaction.durable and outcomes == {True}:
                assert transaction.wish is True, "nobody asked for this commit"
        if final:
            prepared = [e.metadata for e in self.coordinator.state.entries() if e.metadata.state.is_prepare]
            assert prepared == []


WEIGHTS = {
    "init": 5,
    "produce": 24,
    "end": 14,
    "come late": 4,
    "fence": 1,
    "turn": 20,
    "flush state": 30,
    "flush partitions": 20,
    "pass time": 2,
    "break": 1,
    "heal": 4,
    "crash": 2,
}
STEPS = 700


def operations(seed: int) -> Iterator[tuple[Any, ...]]:
    """A random history; the seed is all there is to it."""
    draw = Random(seed)
    for name in draw.choices(list(WEIGHTS), list(WEIGHTS.values()), k=STEPS):
        if name in ("init", "come late", "fence"):
            yield name, draw.randrange(PRODUCERS)
        elif name == "produce":
            yield name, draw.randrange(PRODUCERS), draw.choice(PARTITIONS)
        elif name == "end":
            yield name, draw.randrange(PRODUCERS), draw.random() < 0.7
        elif name == "turn":
            yield name, draw.randint(1, 6)
        elif name == "pass time":
            yield name, draw.choice([10, 10, 900, TIMEOUT_MS + 10])
        elif name == "break":
            yield name, draw.choice(PARTITIONS)
        elif name == "crash":
            yield name, draw.randrange(3), draw.randrange(3)
        else:
            yield (name,)


async def history(seed: int, level: int) -> list[bool | None]:
    """Run it, check everything, and return what the transactions were told."""
    world = CoordinatorWorld(
        transaction_version=level, flush_on_ask=False, clock=LoopClock(), **{"transactional.id.expiration.ms": 10**9}
    )
    world.metadata.block = 2
    run = Run(world)
    version = TransactionVersion.TV_2 if level == 2 else TransactionVersion.TV_0
    # Three instances fight for one id; the others speak the older protocol, or whatever the level allows, each with
    # and without a session.
    run.producers = [
        Producer(run, "contested", version),
        Producer(run, "contested", version),
        Producer(run, "older", TransactionVersion.TV_0),
        Producer(run, "newer", version),
        SessionProducer(run, "contested", version),
        SessionProducer(run, "session", version),
        SessionProducer(run, "older session", TransactionVersion.TV_0),
    ]
    assert len(run.producers) == PRODUCERS
    await world.coordinator.start()
    try:
        for name, *arguments in operations(seed):
            await perform(run, name, arguments)
            run.check(final=False)
        await finish(run)
        run.check(final=True)
        return [transaction.told for transaction in run.transactions]
    finally:
        run.crash()
        await world.coordinator.stop()


async def perform(run: Run, name: str, arguments: list[Any]) -> None:
    world = run.world
    if name == "init":
        producer = run.producers[arguments[0]]
        producer.start(producer.init())
    elif name == "produce":
        producer = run.producers[arguments[0]]
        producer.start(producer.produce(arguments[1]))
    elif name == "end":
        producer = run.producers[arguments[0]]
        producer.start(producer.end(arguments[1]))
    elif name == "fence":
        producer = run.producers[arguments[0]]
        run.fences.append(asyncio.ensure_future(run.guarded_fence(producer)))
    elif name == "come late":
        producer = run.producers[arguments[0]]
        producer.start(producer.come_late())
    elif name == "turn":
        for _ in range(arguments[0]):
            await asyncio.sleep(0)
        return
    elif name == "flush state":
        world.log.disk.flush()
    elif name == "flush partitions":
        world.partitions.flush()
    elif name == "pass time":
        await asyncio.sleep(arguments[0] / 1000)
    elif name == "break":
        world.partitions.fail[arguments[0]] = ErrorCode.KAFKA_STORAGE_ERROR
    elif name == "heal":
        world.partitions.fail.clear()
    elif name == "crash":
        run.crash()
        await world.crash(*arguments)
    await asyncio.sleep(0)


async def finish(run: Run) -> None:
    """Everything works again, and time passes until every timeout has struck."""
    run.world.partitions.fail.clear()
    for _ in range(60):
        await settle()
        run.world.log.disk.flush()
        run.world.partitions.flush()
        await asyncio.sleep(1)


@pytest.mark.parametrize("level", [0, 2])
def test_any_interleaving_keeps_the_promises(level: int) -> None:
    told: Counter[bool | None] = Counter()
    for seed in range(SEEDS):
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            try:
                told.update(runner.run(history(seed, level)))
            except BaseException as error:
                error.add_note(f"history {seed} at level {level}")
                raise
    assert min(told[True], told[False], told[None]) > SEEDS, f"the histories reach too little: {told}"
