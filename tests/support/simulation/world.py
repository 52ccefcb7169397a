"""Run one history from its beginning until everything is at rest, and keep all that the checks need to know."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any, TypeVar
from unittest import mock

from oncelog.broker.config import BrokerConfig
from oncelog.broker.coordinator.group import offsets
from oncelog.broker.coordinator.state_log import partition_for_key
from oncelog.broker.log import PartitionLog
from oncelog.broker.metadata import Topic
from oncelog.broker.topic_names import OFFSETS_TOPIC
from oncelog.protocol.batch_header import BatchHeader
from oncelog.protocol.errors import PENDING_TRANSACTION, ErrorCode
from oncelog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.delete_groups import DeleteGroupsRequest
from oncelog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from oncelog.protocol.schema import Request, Response
from support.faulty_filesystem import FaultyFileSystem
from support.virtual_time import Deadlock, JumpingSelector, VirtualTimeLoop

from . import checks
from .alone import ALONE, LoneProducer, be_careless
from .broker import AMPLE, Memory, PowerCut, Silent, SimulatedBroker, copy_of, new_disk, simulated_parts
from .client import Unexpected
from .compaction import kept
from .keyed import KEYED
from .kinds import AWARE, Kind
from .levels import Level, drawn
from .lost_files import Loss, remove_indexes
from .network import Disconnected, Link, Network, Weather
from .producer import EXTRA, GROUPS, INPUT, OUTPUT, Transaction
from .readers import Consumer, Readers
from .retention import CHECK_MS, Retention, may_go, observed
from .scenario import Event, Scenario
from .threads import Schedule
from .worker import Worker, WorkerPlan

R = TypeVar("R", bound=Response)

RESERVE = 64 * 1024
INPUTS = 3
OUTPUTS = 2
SETTLE_S = 9.5
"""Longer than every timeout: transactions (4 s), sessions (3 s), late frames (5 s), pending waits (1 s)."""
FENCE_TIMEOUT_S = 60
"""The transaction timeout in the request of an operator who fences a producer."""

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "2",
    "log.reserve.bytes": str(RESERVE),
    "max.open.files": "16",
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.enable": "false",
}
BROKERS = {
    "plain": SETTINGS,
    "compacting": SETTINGS
    | {
        "log.cleaner.enable": "true",
        "log.cleaner.backoff.ms": "200",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "offsets.topic.segment.bytes": "1024",
        "transaction.state.log.segment.bytes": "1024",
    },
    "spread": SETTINGS | {"offsets.topic.num.partitions": "3"},
    "os": SETTINGS | {"durability": "os"},
    "forgetful": SETTINGS
    | {
        "transactional.id.expiration.ms": "1500",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    },
}
"""Settings of the broker. A forgetful one lets ids expire that were idle for a moment."""

SMALL = {
    "log.segment.bytes": "1024",
    "log.index.interval.bytes": "100",
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "150",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.delete.retention.ms": "500",
}
"""Additional settings for small segments, and for readers that have little time to see a tombstone."""

JOURNALS = ((0,), (8 << 10,), (8 << 10,), (64 << 10,), (0, 8 << 10))
"""The sizes of the journal's files in a history; one of them is drawn for each start of the broker. 0: no journal. The
smallest files are full after a few batches."""

LITTLE = Memory(key_bytes=900, index_bytes=100)
"""The memory with small segments: for two or three keys, and for the indexes of the segment that was used last."""


END_S = 100_000.0
"""Simulated seconds after which a history counts as one that never ends."""

FENCES_TRIED = 50
"""Attempts, a tenth of a second apart, after which an id that cannot be initialised counts as blocked."""

TURN_S = 1e-6
"""Seconds that one turn of the event loop takes, so that a loop that polls a job sees it end."""


class _BlindSelector(JumpingSelector):
    """A selector without sockets, and without threads except for the simulated ones."""

    def select(self, timeout: float | None = None) -> Any:
        self.jump(timeout if timeout is None else max(timeout, TURN_S))
        if self.now > END_S:
            raise Deadlock(f"{END_S:,.0f} simulated seconds have passed, and the history has not ended")
        return []


class SimulationLoop(VirtualTimeLoop):
    """An event loop in simulated time, in which only the simulation runs."""

    selector = _BlindSelector

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        raise AssertionError(f"{func} would run in a thread that the seed does not schedule")


@cache
def _prepared(broker: str, small: bool, alone: bool, retention: Retention | None) -> FaultyFileSystem:
    """Return a disk with the topics."""
    config = _config(broker, small, retention is not None)
    topics = {INPUT: INPUTS, OUTPUT: OUTPUTS, EXTRA: 1} | ({KEYED: 1} if small else {}) | ({ALONE: 2} if alone else {})
    configs = {KEYED: {"cleanup.policy": "compact"}}
    if retention is not None:
        configs |= {OUTPUT: retention.topic, ALONE: retention.lone_topic}
    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        return runner.run(new_disk(config, topics, configs))


@cache
def _config(
    broker: str, small: bool, retains: bool, level: Level | None = None, journal_bytes: int = 0
) -> BrokerConfig:
    of_retention = {"log.retention.check.interval.ms": str(CHECK_MS)} if retains else {}
    of_level = {} if level is None else level.settings
    of_journal = {"log.journal.bytes": str(journal_bytes)}
    return BrokerConfig(BROKERS[broker] | (SMALL if small else {}) | of_retention | of_level | of_journal)


class World:
    """One history, and all of its parts."""

    def __init__(self, scenario: Scenario, *, tracing: bool = False) -> None:
        self.scenario = scenario
        self.rng = Random(scenario.seed)
        self.inputs = scenario.inputs
        self.outputs = scenario.outputs
        self.tracing = tracing
        self.trace: list[str] = []
        self.log = Silent()
        self._time: Callable[[], float] = float
        self.weather = Weather(Random(self.rng.getrandbits(32)))
        self.retention = self._retention()
        self._journals = Random(f"journal of {scenario.seed}")
        self._journal_sizes = self._journals.choice(JOURNALS)
        self._level: Level | None = None
        self.had_lower_level = False
        """Whether the broker has run below transaction.version 2, where transactions share an epoch."""
        disk = _prepared(scenario.broker, scenario.small, self.has_lone_producers, self.retention)
        config = self._config()
        self.broker = SimulatedBroker(
            copy_of(disk),
            config,
            Random(self.rng.getrandbits(32)),
            self.log,
            self._schedule(),
            self.note,
            LITTLE if scenario.small else AMPLE,
        )
        self._levels = Random(f"levels of {scenario.seed}")
        if scenario.leveled:
            self._level = drawn(self._levels)
        if scenario.leveled or len(self._journal_sizes) > 1:
            self.broker.next_config = self._next_config
        self.further_rng = Random(f"further choices of {scenario.seed}")
        self.network = Network(self.broker, self.weather)
        self.transactions: list[Transaction] = []
        self.workers: dict[int, Worker] = {}
        self.seen: dict[int, list[tuple[int, bytes]]] = {}
        self.refusals: list[str] = []
        self.deleted_records = False
        self.broken: list[AssertionError] = []
        self.readers = Readers(self)
        self.naming = Random(f"names of {scenario.seed}")
        self.carelessness = Random(f"carelessness of {scenario.seed}")
        self.consumer = Consumer(self) if scenario.consumed and not scenario.may_lose else None
        self.lives_of_work = 0
        """The number of starts of the broker until the work was over."""
        self._compacted: dict[int, list[tuple[BatchHeader, bytes]]] = {}
        """The batches of the offsets topic as they were before their compaction, by partition."""
        self.lone_gone: dict[bytes, tuple[int, int]] = {}
        self.lone_producers = [LoneProducer(self, number) for number in range(scenario.lone_producers)]
        self._careless = itertools.count()
        self.keyed_last: dict[bytes, int] = {}
        self._partitions = {INPUT: INPUTS, OUTPUT: OUTPUTS}
        self._incarnations = 0
        self._steady: Worker | None = None
        self._disk = Random(self.rng.getrandbits(32))
        self._tasks: set[asyncio.Task[Any]] = set()
        self._consuming: asyncio.Task[None] | None = None
        self._lone_tasks: list[asyncio.Task[Any]] = []
        self._ending = False
        self._crashing = False
        self._crash_when_told: dict[str, float] = {}
        self._offsets_pending = asyncio.Event()
        self._disk_is_slow_until = 0.0

    def _schedule(self) -> Schedule:
        """Return how the broker's threads are scheduled."""
        rng, sync_s = Random(self.rng.getrandbits(32)), self.scenario.sync_s

        def latency() -> float:
            is_slow = self._time() < self._disk_is_slow_until
            return sync_s * rng.random() * (50 if is_slow else 2)

        return Schedule(
            latency,
            pieces=rng.choice((0.3, 1.0)),
            pauses=rng.choice((0.0, 0.2, 0.5)),
            delay_s=rng.choice((0.0, 0.02, 0.5)),
        )

    def _next_config(self) -> BrokerConfig:
        """Return the settings of the broker's next start.

        At the end of the history the levels stay the same, because a restart must change nothing then.
        """
        if not self._ending and self._level is not None:
            level = drawn(self._levels)
            # A new transaction.version is recorded at the start, which fails if the disk fails.
            kept = self._level.transaction_version if self.disk_may_fail else level.transaction_version
            self._level = replace(level, transaction_version=kept)
        if self._level is not None and self._level.transaction_version < 2:
            self.had_lower_level = True
        self.note(f"the broker starts with {self._level}")
        return self._config()

    def _config(self) -> BrokerConfig:
        """Return the settings of the broker's next start. The journal may have another size each time."""
        journal_bytes = self._journals.choice(self._journal_sizes)
        self.note(f"journal of {journal_bytes} bytes")
        return _config(
            self.scenario.broker, self.scenario.small, self.retention is not None, self._level, journal_bytes
        )

    def _retention(self) -> Retention | None:
        """Return the scenario's retention, but None if producer snapshots are lost.

        Without snapshots, nobody knows the next sequence of a producer whose records are deleted. This is so in Kafka,
        too.
        """
        lost = any(event.what == "files lost" and event.target == 1 for event in self.scenario.events)
        return None if lost else self.scenario.retention

    def _observed(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self.retention is None else observed(self)

    def before_deletion(self, log: PartitionLog, offset: int) -> None:
        """Record what readers could have received, before retention deletes the records below `offset`."""
        try:
            may_go(log, offset)
            checks.look_before_deletion(self, log, offset)
        except AssertionError as error:
            self.broken.append(error)
        self.deleted_records = True
        self.note(f"retention deletes {log.name} up to {offset}")

    def before_compaction(self, log: PartitionLog, offset: int) -> None:
        """Keep the batches of the offsets topic below `offset`, which are about to be compacted. All are on disk."""
        batches = self._compacted.setdefault(log.partition, [])
        start = batches[-1][0].next_offset if batches else log.log_start_offset
        batches += [(header, bytes(batch)) for header, batch in log.batches(start) if header.next_offset <= offset]

    def uncompacted(self, log: PartitionLog) -> Iterator[tuple[BatchHeader, bytes | memoryview]]:
        """Yield all batches of a partition of the offsets topic as they were before any compaction."""
        batches = self._compacted.get(log.partition, [])
        yield from batches
        yield from log.batches(batches[-1][0].next_offset if batches else log.log_start_offset)

    # ---- for workers

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        if self.tracing:
            self.trace.append(f"{self._time() - 1000:8.3f} {text}")

    def begin(self, worker: Worker, transactional_id: str, inputs: dict[int, tuple[int, int]]) -> Transaction:
        """Create the transaction that a worker begins, and return it."""
        made = Transaction(
            len(self.transactions),
            worker.name,
            worker.kind.name,
            transactional_id,
            worker.generation,
            worker.group,
            inputs,
        )
        self.transactions.append(made)
        self.note(f"{worker.name} ({worker.kind.name}) begins {made.number} on {inputs} as {transactional_id}")
        return made

    def group_of(self, slot: int) -> str:
        """Return the group of the workers in a slot."""
        return GROUPS[slot % 2 if self.scenario.two_groups else 0]

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that have workers."""
        return tuple(sorted({self.group_of(slot) for slot in range(len(self.scenario.workers))}))

    def home_of(self, group: str) -> int:
        """Return the partition of the offsets topic that has the group's offsets."""
        return partition_for_key(group, self.offsets_partitions)

    @property
    def offsets_partitions(self) -> int:
        """The number of partitions of the offsets topic."""
        return int(BROKERS[self.scenario.broker]["offsets.topic.num.partitions"])

    def told(self, transaction: Transaction) -> None:
        """Record that a worker has learned how its transaction ended."""
        self.note(f"{transaction.worker} is told {transaction.told} of {transaction.number}")
        self.acknowledged("end")

    def refused(self, worker: str, response: str, codes: set[ErrorCode]) -> None:
        """Record that a request of a worker was refused permanently."""
        self.refusals.append(f"{worker}: {response} {sorted(code.name for code in codes)}")

    def acknowledged(self, what: str) -> None:
        """Record that a client has just learned that its records, offsets or decision are safe."""
        if what == "offsets":
            self._offsets_pending.set()
            self._offsets_pending.clear()
        down_s = self._crash_when_told.pop(what, None)
        if down_s is not None:
            self._spawn(self.restart_broker(power=True, down_s=down_s))

    def stir(self) -> None:
        """Sometimes let a worker ask for another assignment, so that a halted worker loses its own."""
        if self.rng.random() < 0.7:
            self.rng.choice(list(self.workers.values())).wishes += 1

    def fetch_codes(self, kind: Kind) -> set[ErrorCode]:
        """Return the error codes that an OffsetFetch of this kind may get."""
        loading = {
            ErrorCode.NONE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
        }
        if kind.extension:
            return loading | {PENDING_TRANSACTION, ErrorCode.UNSTABLE_OFFSET_COMMIT}
        return loading | {ErrorCode.UNSTABLE_OFFSET_COMMIT} if kind.require_stable else loading

    # ---- the history

    async def run(self) -> None:
        """Run the whole history. Raises AssertionError for a broken promise."""
        self._time = asyncio.get_running_loop().time
        with simulated_parts(self.log, self.scenario.max_epoch), self._observed(), kept(self):
            try:
                await self.broker.start()
                await self._play()
                if self.scenario.calm:
                    checks.nothing_was_refused(self)
                await self._end_work()
                self.lives_of_work = self.broker.lives
                await checks.memory_is_what_the_log_says(self)
                await asyncio.sleep(SETTLE_S + self._inherited_timeout_s)
                checks.at_rest(self)
                if self.scenario.seed % 4 == 0:  # these checks take a while
                    await checks.memory_is_what_the_log_says(self)
                    checks.at_rest(self)
                elif self.scenario.seed % 4 == 1:
                    await self._go_on()
                    checks.at_rest(self)
            finally:
                for worker in self._all_workers():
                    worker.kill()
                if self._consuming is not None:
                    self._consuming.cancel()
                self.network.break_all()
                await self.broker.stop()
        self._raise_failures()
        what_happened = {event.what for event in self.scenario.events}
        if not ({"full", "sync fails"} & what_happened or self.scenario.may_lose):
            assert not self.log.alarms, self.log.alarms

    async def _play(self) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        for slot in range(len(self.scenario.workers)):
            self._start(slot)
        if self.scenario.steady:
            plan = WorkerPlan("aware, static", session_ms=60_000, rebalance_ms=150, idle=True)
            self._steady = Worker(self, len(self.workers), plan, 0)
            self._run(self._steady)
        if self.consumer is not None:
            self._consuming = self._spawn(self.consumer.run())
        for producer in self.lone_producers:
            self._lone_tasks.append(self._spawn(producer.run()))
        for event in self.scenario.events:
            await asyncio.sleep(max(0.0, start + event.at - loop.time()))
            self.note(f"-- {event.what} {event.target} for {event.for_s}")
            self._spawn(self._happen(event))
        await asyncio.sleep(max(0.0, start + self.scenario.length_s - loop.time()))

    def _all_workers(self) -> list[Worker]:
        return [*self.workers.values(), *([] if self._steady is None else [self._steady])]

    def _spawn(self, call: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(call)
        self._tasks.add(task)
        return task

    def _start(self, slot: int) -> None:
        if self._ending:
            return
        self._incarnations += 1
        worker = Worker(self, slot, self.scenario.workers[slot], self._incarnations)
        self.workers[slot] = worker
        self._run(worker)

    def _run(self, worker: Worker) -> None:
        worker.start()
        assert worker.task is not None
        self._tasks.add(worker.task)

    async def _happen(self, event: Event) -> None:
        slot = event.target % len(self.workers)
        worker = self.workers[slot]
        weather = self.weather
        if event.what in ("crash", "kill"):
            await self.restart_broker(power=event.what == "crash", down_s=event.for_s)
        elif event.what == "stop" and self.broker.up and not self._crashing:
            checks.look(self)
            await self.broker.stop()
            self.network.break_all()
            await asyncio.sleep(event.for_s)
            await self.broker.start()
        elif event.what == "crash told":
            self._crash_when_told[("end", "offsets", "records")[event.target]] = event.for_s
        elif event.what == "die":
            worker.kill()
            await asyncio.sleep(event.for_s)
            if self.workers[slot] is worker:
                self._start(slot)
        elif event.what == "leave":
            await worker.leave()
            await asyncio.sleep(event.for_s)
            if self.workers[slot] is worker:
                self._start(slot)
        elif event.what == "rejoin":
            worker.wishes += 1
        elif event.what == "halt":
            worker.process.halt()
            await asyncio.sleep(event.for_s)
            worker.process.go_on()
        elif event.what == "storm":
            weather.breaks += 0.15
            await asyncio.sleep(event.for_s)
            weather.breaks -= 0.15
        elif event.what == "mire":
            weather.slow += 0.08
            await asyncio.sleep(event.for_s)
            weather.slow -= 0.08
        elif event.what == "full":
            await self._fill_disk(RESERVE - 1000 if event.target else 0, event.for_s)
        elif event.what == "crash at start":
            await self.restart_broker(power=True, down_s=0.1, again_after=self._disk.randrange(200))
        elif event.what == "slow disk":
            self._disk_is_slow_until = asyncio.get_running_loop().time() + event.for_s
        elif event.what == "clock":
            self.broker.clock.ahead_ms += (2000, 3_600_000, -1000)[event.target]
        elif event.what == "delete records":
            await self._delete_records(event.target % self.outputs)
        elif event.what == "marker":
            await self._send_marker()
        elif event.what == "partitions":
            await self._add_partition(INPUT if event.target == 2 else OUTPUT)
        elif event.what == "delete group":
            await self._delete_group(worker.group, event.target)
        elif event.what == "topic":
            await self._ask(DeleteTopicsRequest(topic_names=[EXTRA], timeout_ms=1000), 5)
            await asyncio.sleep(event.for_s)
            await self._ask(CreateTopicsRequest([CreatableTopic(EXTRA, 1, 1)], timeout_ms=1000), 5)
        elif event.what == "files lost":
            deletes = self._deletes_topics or self._deletes_records
            loss = Loss(self.broker.fs, self.further_rng, event.target, may_be_older=not deletes)
            await asyncio.sleep(event.for_s)
            power = self.scenario.broker != "os" and self.further_rng.random() < 0.4
            if not self._ending:
                await self.restart_broker(power=power, down_s=0.1, meanwhile=loss.happen)
        elif event.what == "indexes vanish":
            remove_indexes(self.broker.fs, self.further_rng)
        elif event.what == "careless":
            await be_careless(self, next(self._careless))
        elif event.what == "sync fails":
            self.broker.fs.fail("fdatasync")
            await asyncio.sleep(event.for_s)
            if self._is_offline():
                await self.restart_broker(power=event.target == 0, down_s=0.1)
        elif event.what == "fence":
            await self._fence(
                f"{worker.group}-app-{event.target % self.inputs}" if worker.kind.per_partition else f"w{slot}"
            )

    async def _fence(self, transactional_id: str, *, must_do: bool = False) -> None:
        """Fence a producer. With `must_do`, repeat the request while its transaction is being ended, as clients do."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=FENCE_TIMEOUT_S * 1000
        )
        answer = await self._ask(request, 4)
        for _ in range(FENCES_TRIED if must_do else 0):
            if answer is None or answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            await asyncio.sleep(0.1)
            answer = await self._ask(request, 4)
        assert not (must_do and answer is not None and answer.error_code), f"{transactional_id} is blocked: {answer}"

    async def _send_marker(self) -> None:
        """Send a marker from outside for some producer. Its epochs are right, too low or too high."""
        rng = self._disk
        if not self.transactions:
            return
        producer_id, epoch = rng.choice(self.transactions).identity
        topic, partition = rng.choice(
            [(OUTPUT, rng.randrange(self.outputs)), (OFFSETS_TOPIC, rng.randrange(self.offsets_partitions)), (EXTRA, 0)]
        )
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=max(0, epoch + rng.choice((-1, 0, 0, 0, 1, 2, 100))),
            transaction_result=rng.random() < 0.5,
            topics=[WritableTxnMarkerTopic(topic, [partition])],
            coordinator_epoch=rng.choice((-1, 0, 0, 0, 5)),
        )
        await self._ask(WriteTxnMarkersRequest([marker]), 1)

    async def _delete_records(self, partition: int) -> None:
        """Delete only records that were checked before."""
        if not self.broker.up:
            return
        checks.look(self)
        log = self.broker.broker.log_manager.get(OUTPUT, partition)
        if log is not None:
            wanted = DeleteRecordsPartition(partition, log.last_stable_offset)
            await self._ask(DeleteRecordsRequest([DeleteRecordsTopic(OUTPUT, [wanted])], 1000), 2)
            self.deleted_records = True

    async def _add_partition(self, topic: str) -> None:
        """Add a partition to a topic, and use it as soon as the broker says that it exists."""
        count = self._partitions[topic] + 1
        wanted = CreatePartitionsTopic(topic, count, assignments=None)
        answer = await self._ask(CreatePartitionsRequest([wanted], timeout_ms=1000), 3)
        code = None if answer is None else answer.results[0].error_code
        if code == ErrorCode.INVALID_PARTITIONS and self.broker.up:
            # The count is not larger if an earlier request was executed whose response was lost or is under way.
            there = self.broker.broker.metadata.topic(topic)
            code = ErrorCode.NONE if there is not None and there.partitions >= count else code
        if code == ErrorCode.NONE:
            self._partitions[topic] = count
            if topic == OUTPUT:
                self.outputs = count
            else:
                self.inputs = count

    async def _delete_group(self, group: str, how: int) -> None:
        """Delete a group as soon as it is empty, even if open transactions have its offsets, and let it begin again.

        This needs commits that name a member in all workers: nothing else refuses a worker that slept while its group
        was deleted.
        """
        workers = {slot: worker for slot, worker in self.workers.items() if worker.group == group}
        if self.scenario.broker == "compacting" or not all(
            worker.kind.generation and worker.kind.member_id for worker in workers.values()
        ):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._offsets_pending.wait()  # the transaction is open, and its end was not requested yet
        for worker in workers.values():
            if how == 0:
                worker.kill()
            elif how == 1:
                await worker.leave()
            else:
                worker.process.halt()
        for _ in range(40):
            answer = await self._ask(DeleteGroupsRequest([group]), 2)
            if self._ending or (answer is not None and answer.results[0].error_code != ErrorCode.NON_EMPTY_GROUP):
                self.note(f"group {group} is deleted: {answer}")
                break
            await asyncio.sleep(0.1)
        for slot, worker in workers.items():
            if how == 2 and not self._ending:
                worker.process.go_on()
            elif how != 2 and self.workers[slot] is worker:
                self._start(slot)

    async def _ask(self, request: Request[R], version: int) -> R | None:
        """Send a request of an operator once. Return None if there is no response."""
        try:
            link = Link(self.network, "operator", late=False)
            answer = await link.send(request, version)
            link.close()
        except Disconnected:
            return None
        return answer

    def _is_offline(self) -> bool:
        """Return whether the disk has failed in such a way that an operator restarts the broker."""
        if not self.broker.up:
            return False
        manager = self.broker.broker.log_manager
        has_failed = any(log.failure is not None for log in manager.logs())
        return manager.failed is not None or bool(manager.offline) or has_failed

    async def _fill_disk(self, left: int, for_s: float) -> None:
        fs = self.broker.fs
        fs.capacity = fs.used() + left
        await asyncio.sleep(for_s)
        fs.capacity = None

    @property
    def has_lone_producers(self) -> bool:
        """Whether there are producers without transactions."""
        return self.scenario.lone_producers > 0 or self._has_events("careless")

    @property
    def disk_may_fail(self) -> bool:
        """Whether a request may be refused because of the disk."""
        return self._has_events("full", "sync fails")

    @property
    def loses_unsynced(self) -> bool:
        """Whether data whose response waited for no sync may be lost."""
        return self._has_events("crash", "crash told", "crash at start", "sync fails", "files lost")

    @property
    def _inherited_timeout_s(self) -> float:
        """Return how long a late message's transaction may last under an epoch that was lost and assigned again.

        With durability "os", a power failure takes back epochs. The next client that fences assigns the lost epoch
        again, with its own timeout.
        """
        return FENCE_TIMEOUT_S if self.scenario.may_lose and self._has_events("fence") else 0.0

    def _has_events(self, *kinds: str) -> bool:
        return any(event.what in kinds for event in self.scenario.events)

    @property
    def _deletes_topics(self) -> bool:
        return self._has_events("topic")

    def topic(self, name: str) -> Topic:
        """Return a topic, which must exist."""
        topic = self.broker.broker.metadata.topic(name)
        assert topic is not None, name
        return topic

    @property
    def keeps_no_sessions(self) -> bool:
        """Whether sessions end with each start of the broker, because records of level 0 cannot hold them."""
        return self._level is not None and self._level.transaction_version == 0

    @property
    def may_lose_the_beginning(self) -> bool:
        """Whether the outputs may lose their oldest records."""
        return self.retention is not None or self._has_events("delete records")

    @property
    def _deletes_records(self) -> bool:
        """Whether records are deleted, by a request or by retention."""
        return self._has_events("delete records") or self.scenario.broker == "forgetful" or self.retention is not None

    async def restart_broker(
        self,
        *,
        power: bool,
        down_s: float,
        again_after: int | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Crash the broker and start it again, unless a restart is already under way.

        If `again_after` is given, the power fails once more, at this operation of the start on the disk. `meanwhile` is
        called while the broker is down.
        """
        if not self.broker.up or self._crashing:
            return
        self._crashing = True
        checks.look(self)
        crash = asyncio.ensure_future(self.broker.crash(power=power))
        await asyncio.sleep(0)
        self.network.break_all()
        await crash
        if again_after is not None:
            await self.broker.start_and_crash(again_after)
        meanwhile()
        self._crashing = False
        await asyncio.sleep(down_s)
        await self.broker.start()
        checks.look(self)

    async def _end_work(self) -> None:
        """End all faults and all work. Everything under way arrives, and everything appended becomes durable."""
        self._ending = True
        self._crash_when_told.clear()
        self.weather.breaks = self.weather.slow = 0.0
        for worker in self._all_workers():
            worker.process.halt()
            worker.kill()
        for task in self._lone_tasks:
            task.cancel()
        self.broker.fs.capacity = None
        self._disk_is_slow_until = 0.0
        self.broker.clock.ahead_ms += 10_000  # back where it was, if it went back
        while not self.broker.up:
            await asyncio.sleep(0.05)
        await asyncio.sleep(self.rng.choice((0.3, 0.3, 3.5)))
        self.broker.fs.heal()
        await self._flushed()
        if self._is_offline():
            await self.restart_broker(power=False, down_s=0.1)
        self._raise_failures()

    async def _flushed(self) -> None:
        """Wait until a running broker has flushed everything. Only then is a failed sync reported."""
        flusher = None
        while not self.broker.up or self.broker.broker.log_manager._flusher is not flusher:
            if self.broker.up:
                flusher = self.broker.broker.log_manager._flusher
                if flusher is not None:
                    await flusher.drain()
            else:
                await asyncio.sleep(0.05)

    async def _go_on(self) -> None:
        """Check that a new worker can take over and make progress, and that no transactional id is blocked."""
        done = len(self.transactions)
        with_claims = any(plan.kind in AWARE for plan in self.scenario.workers)
        plan = WorkerPlan("aware" if with_claims else "tv2", timeout_ms=8000, session_ms=8000, aborts=0.0)
        worker = self.workers[99] = Worker(self, 99, plan, self._incarnations + 1)
        self._run(worker)
        for _ in range(100):
            await asyncio.sleep(0.1)
            told = [transaction for transaction in self.transactions[done:] if transaction.told]
            if {partition for transaction in told for partition in transaction.inputs} == set(range(self.inputs)):
                break
        else:
            raise AssertionError(f"a new worker gets no further than {self.transactions[done:]}")
        worker.kill()
        for transactional_id in sorted({transaction.transactional_id for transaction in self.transactions}):
            await self._fence(transactional_id, must_do=True)
        await asyncio.sleep(SETTLE_S + 2.0)

    def _raise_failures(self) -> None:
        if self.broken:
            raise self.broken[0]
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error


def _unless_the_power_failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report an error of the event loop, unless it comes from a task during which the power failed."""
    if not isinstance(context.get("exception"), PowerCut):
        loop.default_exception_handler(context)


def history(scenario: Scenario, *, tracing: bool = False) -> World:
    """Run a scenario, and return its world.

    An AssertionError has the scenario, and with `tracing` the trace, in its notes.
    """
    world = World(scenario, tracing=tracing)
    moved_at_once = 0 if scenario.seed % 3 == 0 else offsets.MOVED_AT_ONCE  # 0: every transaction counts as large
    with (
        mock.patch.object(offsets, "MOVED_AT_ONCE", moved_at_once),
        asyncio.Runner(loop_factory=SimulationLoop) as runner,
    ):
        runner.get_loop().set_exception_handler(_unless_the_power_failed)
        try:
            runner.run(world.run())
        except BaseException as error:
            error.add_note(f"history of {scenario}")
            if tracing:
                error.add_note("\n".join(world.trace))
            raise
    return world


__all__ = ["Unexpected", "World", "history"]
