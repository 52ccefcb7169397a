"""Nothing is answered, and nothing follows, before what it rests on is on disk.

The broker runs in simulated time on a disk whose flushes take long, so that "too early" is a state to look at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest
from oncelog.broker.api.handling import Deferred, RequestContext
from oncelog.broker.config import BrokerConfig
from oncelog.broker.coordinator.claims.initialisation import GroupInitialisation
from oncelog.broker.coordinator.transaction.decisions import ProducerIdentity, Step
from oncelog.broker.coordinator.transaction.events import Cause
from oncelog.broker.coordinator.transaction.maintenance import LOOK_AGAIN_MS
from oncelog.broker.coordinator.transaction.state import TransactionState, TransactionVersion
from oncelog.broker.handlers import add_offsets_to_txn, add_partitions_to_txn, produce, txn_offset_commit
from oncelog.broker.log import PartitionLog
from oncelog.broker.node import BrokerNode
from oncelog.broker.scheduling.steps import run_in_slices
from oncelog.broker.topic_names import OFFSETS_TOPIC
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from oncelog.protocol.schema import Request, Response
from support.faulty_filesystem import FaultyFileSystem
from support.raw_connection import batch
from support.simulation.broker import Silent, SimulatedBroker, simulated_parts
from support.simulation.threads import Schedule
from support.simulation.world import SETTINGS, SimulationLoop
from support.slices import context_of

CAUSE = Cause("test")
FLUSH_S = 1.0
TV0, TV2 = TransactionVersion.TV_0, TransactionVersion.TV_2
TIMEOUT_MS = 1500
"""A transaction's timeout that passes while its records, the second flush after its begin, are flushed."""

COMMITTED = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


def on_a_slow_disk(
    work: Callable[[BrokerNode], Awaitable[None]], settings: Mapping[str, object] = MappingProxyType({})
) -> None:
    """Run `work` with a broker that has a topic "t" and these settings."""

    async def run() -> None:
        log = Silent()
        slowly = Schedule(lambda: FLUSH_S, pieces=0.0)
        broker = SimulatedBroker(FaultyFileSystem(), BrokerConfig({**SETTINGS, **settings}), Random(1), log, slowly)
        with simulated_parts(log):
            await broker.start()
            await broker.broker.metadata.create_topic("t", 1, {})
            await work(broker.broker)
            await broker.stop()

    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        runner.run(run())


def data_log(broker: BrokerNode, topic: str = "t") -> PartitionLog:
    log = broker.replica_manager.partition(topic, 0).log
    assert isinstance(log, PartitionLog)
    return log


async def open_transaction(broker: BrokerNode, *, flushed: bool = True, timeout_ms: int = 60_000) -> tuple[int, int]:
    """A transaction of "id" with a record in t-0."""
    coordinator = broker.transaction_coordinator
    who = await coordinator.init_producer_id("id", timeout_ms)
    await coordinator.registration.add_partitions("id", *who, [("t", 0)], TV2)
    log = data_log(broker)
    log.append(batch(b"x", producer_id=who[0], producer_epoch=who[1], base_sequence=0, transactional=True))
    coordinator.registration.wrote("id", ("t", 0))
    if flushed:
        await settled(log.flushed(log.log_end_offset))
    return who


async def settled(flush: asyncio.Future[None] | None) -> None:
    if flush is not None:
        await asyncio.shield(flush)


def test_transaction_is_complete_when_all_markers_are_on_disk() -> None:
    async def work(broker: BrokerNode) -> None:
        who = await open_transaction(broker)
        log = data_log(broker)
        await broker.transaction_coordinator.end_txn("id", *who, True, TV2)
        while broker.transaction_coordinator.describe("id").state is TransactionState.PREPARE_COMMIT:
            await asyncio.sleep(FLUSH_S / 10)
        assert broker.transaction_coordinator.describe("id").state is TransactionState.COMPLETE_COMMIT
        assert log.files.flushed_offset == log.log_end_offset == 2

    on_a_slow_disk(work)


def test_transaction_is_committed_when_its_records_are_on_disk() -> None:
    """A producer that sends its batches with acks=1, or does not wait for their responses, commits earlier."""

    async def work(broker: BrokerNode) -> None:
        who = await open_transaction(broker, flushed=False)
        coordinator, log = broker.transaction_coordinator, data_log(broker)
        entry = coordinator.known("id")
        ending = asyncio.ensure_future(coordinator.end_txn("id", *who, True, TV2))
        while entry.pending is None and entry.metadata.state is TransactionState.ONGOING:
            await asyncio.sleep(FLUSH_S / 100)
        assert log.files.flushed_offset == 1
        await ending

    on_a_slow_disk(work)


@pytest.mark.parametrize(("version", "code"), [(12, CONCURRENT), (11, ErrorCode.INVALID_TXN_STATE)])
def test_no_batch_joins_a_transaction_whose_commit_waits_for_records(version: int, code: ErrorCode) -> None:
    """Otherwise, a producer that writes without pause could keep its own commit waiting."""

    async def work(broker: BrokerNode) -> None:
        who = await open_transaction(broker, flushed=False)
        end_offset = data_log(broker).log_end_offset
        ending = begin_commit(broker, who)
        assert await produced(broker, who, sequence=1, version=version) is code
        assert data_log(broker).log_end_offset == end_offset
        assert not ending.done()
        await ending

    on_a_slow_disk(work)


@pytest.mark.parametrize(("version", "code"), [(11, ErrorCode.NOT_ENOUGH_REPLICAS), (12, CONCURRENT)])
def test_client_sends_a_batch_again_while_the_end_of_its_transaction_is_not_on_disk(
    version: int, code: ErrorCode
) -> None:
    """If the power failed after a final refusal, a program that ignores it could commit without the batch."""

    async def work(broker: BrokerNode) -> None:
        coordinator = broker.transaction_coordinator
        who = await open_transaction(broker)
        entry = coordinator.known("id")
        fencing = asyncio.ensure_future(coordinator.init_producer_id("id", 60_000))
        while entry.pending is None:
            await asyncio.sleep(0)
        assert await produced(broker, who, sequence=1, version=version) is code
        while entry.metadata.producer_epoch == who[1]:
            await asyncio.sleep(FLUSH_S / 10)
        assert await produced(broker, who, sequence=1, version=version) is ErrorCode.INVALID_PRODUCER_EPOCH
        await asyncio.wait([fencing])
        fencing.exception()  # it has waited longer than allowed

    on_a_slow_disk(work)


@pytest.mark.parametrize("version", [4, 5])
def test_client_sends_offsets_again_while_the_end_of_their_transaction_is_not_on_disk(version: int) -> None:
    """Clients below v5 get COORDINATOR_NOT_AVAILABLE in place of this code."""

    async def work(broker: BrokerNode) -> None:
        coordinator = broker.transaction_coordinator
        who = await coordinator.init_producer_id("id", 60_000)
        home = (OFFSETS_TOPIC, broker.group_coordinator.partition_for("g"))
        await coordinator.registration.add_partitions("id", *who, [home], TV0)
        fencing = asyncio.ensure_future(coordinator.init_producer_id("id", 60_000))
        while coordinator.known("id").pending is None:
            await asyncio.sleep(0)
        topics = [TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, 5)])]
        request = TxnOffsetCommitRequest("id", "g", *who, topics=topics)
        with pytest.raises(KafkaError) as refused:
            await cast(Awaitable[Any], txn_offset_commit.handle(context_of(broker, request, version), request))
        assert refused.value.code is CONCURRENT
        await asyncio.wait([fencing])
        fencing.exception()  # it has waited longer than allowed

    on_a_slow_disk(work)


def test_no_partition_joins_a_transaction_whose_commit_waits_for_records() -> None:
    async def work(broker: BrokerNode) -> None:
        who = await open_transaction(broker, flushed=False)
        ending = begin_commit(broker, who)
        with pytest.raises(KafkaError) as refused:
            await broker.transaction_coordinator.registration.add_partitions("id", *who, [("u", 0)], TV2)
        assert refused.value.code is CONCURRENT
        await ending

    on_a_slow_disk(work)


def test_a_commit_that_was_given_up_while_it_waited_for_records_keeps_no_batches_out() -> None:
    async def work(broker: BrokerNode) -> None:
        who = await open_transaction(broker, flushed=False)
        ending = begin_commit(broker, who)
        await asyncio.sleep(0)  # the request begins to wait
        assert await produced(broker, who, sequence=1, version=12) is CONCURRENT
        ending.cancel()
        await asyncio.wait([ending])
        assert await produced(broker, who, sequence=1, version=12) is ErrorCode.NONE
        await begin_commit(broker, who)

    on_a_slow_disk(work)


def test_batch_joins_the_next_transaction_after_a_commit_has_waited_for_records() -> None:
    async def work(broker: BrokerNode) -> None:
        who = await open_transaction(broker, flushed=False)
        identity = await begin_commit(broker, who)
        assert await produced(broker, identity, sequence=0, version=12) is ErrorCode.NONE

    on_a_slow_disk(work, {"transaction.pending.wait.max.ms": "60000"})


def test_commit_that_arrived_in_time_is_not_aborted_while_it_waits_for_records() -> None:
    async def work(broker: BrokerNode) -> None:
        who = await open_transaction(broker, flushed=False, timeout_ms=TIMEOUT_MS)
        ending = begin_commit(broker, who)
        await timed_out(broker)
        assert not ending.done()
        assert (await ending).producer_epoch == who[1] + 1
        assert broker.transaction_coordinator.describe("id").state in COMMITTED

    on_a_slow_disk(work)


def test_commit_that_is_repeated_on_a_new_connection_waits_after_the_old_one_is_closed() -> None:
    async def work(broker: BrokerNode) -> None:
        who = await open_transaction(broker, flushed=False, timeout_ms=TIMEOUT_MS)
        ending, repeated = begin_commit(broker, who), begin_commit(broker, who)
        await asyncio.sleep(0)  # both requests begin to wait
        ending.cancel()
        await asyncio.wait([ending])
        assert await produced(broker, who, sequence=1, version=12) is CONCURRENT
        await timed_out(broker)
        assert (await repeated).producer_epoch == who[1] + 1
        assert broker.transaction_coordinator.describe("id").state in COMMITTED

    on_a_slow_disk(work)


def test_commit_that_arrived_in_time_can_be_repeated_after_the_timeout() -> None:
    async def work(broker: BrokerNode) -> None:
        who = await open_transaction(broker, flushed=False, timeout_ms=TIMEOUT_MS)
        ending = begin_commit(broker, who)
        await timed_out(broker)
        ending.cancel()
        await asyncio.sleep(1.5 * LOOK_AGAIN_MS / 1000)
        identity = await broker.transaction_coordinator.end_txn("id", *who, True, TV2)
        assert identity.producer_epoch == who[1] + 1
        assert broker.transaction_coordinator.describe("id").state in COMMITTED

    on_a_slow_disk(work)


def test_transaction_whose_commit_was_given_up_is_aborted_after_its_timeout() -> None:
    async def work(broker: BrokerNode) -> None:
        who = await open_transaction(broker, flushed=False, timeout_ms=TIMEOUT_MS)
        ending = begin_commit(broker, who)
        await timed_out(broker)
        ending.cancel()
        await until_state(broker, TransactionState.PREPARE_ABORT)

    on_a_slow_disk(work)


def test_transaction_whose_commit_never_waits_for_its_records_is_aborted() -> None:
    """The connection was closed before the request began to wait."""

    async def work(broker: BrokerNode) -> None:
        who = await open_transaction(broker, flushed=False, timeout_ms=TIMEOUT_MS)
        assert broker.transaction_coordinator.end_txn_now("id", *who, True, TV2) is Step.NEEDS_RECORDS
        await until_state(broker, TransactionState.PREPARE_ABORT)

    on_a_slow_disk(work)


async def timed_out(broker: BrokerNode) -> None:
    """Wait until the transaction of "id", which must still be open, is past its timeout and was examined."""
    coordinator = broker.transaction_coordinator
    now_ms = coordinator.clock.now_ms
    transaction = coordinator.describe("id")
    assert transaction.deadline_ms > now_ms()
    await asyncio.sleep((transaction.deadline_ms + LOOK_AGAIN_MS - now_ms()) / 1000)
    assert coordinator.describe("id") is transaction
    assert coordinator.known("id").pending is None


async def until_state(broker: BrokerNode, state: TransactionState) -> None:
    while broker.transaction_coordinator.describe("id").state is not state:
        await asyncio.sleep(FLUSH_S / 10)


@pytest.mark.parametrize("verifies", [True, False])
def test_a_batch_during_the_examination_of_many_partitions_is_not_committed_before_it_is_on_disk(
    verifies: bool,
) -> None:
    """They are examined in slices. The batch arrives between two of them, for a partition that was examined already."""

    async def work(broker: BrokerNode) -> None:
        await broker.metadata.create_topic("many", 2500, {})
        coordinator = broker.transaction_coordinator
        who = await coordinator.init_producer_id("id", 60_000)
        await coordinator.registration.add_partitions("id", *who, [("many", index) for index in range(2500)], TV0)
        entry = coordinator.known("id")
        topic, index = next(iter(entry.metadata.topic_partitions))
        partition = broker.replica_manager.partition(topic, index)
        await run_in_slices(partition.open())
        ending = begin_commit(broker, who, TV0)
        await asyncio.sleep(0)
        assert entry.pending is None
        code = await produced(broker, who, (topic, index), sequence=0, version=11)
        assert (code is ErrorCode.NONE) is not verifies
        while entry.pending is None and entry.metadata.state is TransactionState.ONGOING:
            await asyncio.sleep(0 if verifies else FLUSH_S / 100)
        assert isinstance(partition.log, PartitionLog)
        assert partition.log.files.flushed_offset == partition.log.log_end_offset
        await ending

    on_a_slow_disk(work, {"transaction.partition.verification.enable": str(verifies).lower()})


def test_records_of_a_topic_that_is_deleted_meanwhile_are_not_needed_for_a_commit() -> None:
    async def work(broker: BrokerNode) -> None:
        coordinator = broker.transaction_coordinator
        who = await open_transaction(broker)
        topic = broker.metadata.topic("t")
        assert topic is not None
        deletion = broker.metadata.delete_topic(topic)
        await asyncio.sleep(FLUSH_S / 2)  # so that the records' flush ends later than the deletion begins
        assert await produced(broker, who, sequence=1, version=12) is ErrorCode.NONE
        ending = begin_commit(broker, who)
        assert (await ending).producer_epoch == who[1] + 1
        await deletion
        await coordinator.until_settled("id", asyncio.get_running_loop().time() + 60, CAUSE)
        assert coordinator.describe("id").state is TransactionState.COMPLETE_COMMIT

    on_a_slow_disk(work)


def test_commit_that_waits_for_the_records_of_a_closed_log_can_be_repeated() -> None:
    """The client then sends it to the broker again, after the broker's restart."""

    async def work(broker: BrokerNode) -> None:
        who = await open_transaction(broker, flushed=False)
        ending = begin_commit(broker, who)
        await asyncio.sleep(0)
        data_log(broker).close(clean=False)
        with pytest.raises(KafkaError) as refused:
            await ending
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    on_a_slow_disk(work)


def test_transaction_whose_records_may_be_lost_can_only_be_aborted() -> None:
    """A sync has failed. Until the broker is started again, the partition gets no marker, so the producer waits."""

    async def run() -> None:
        log, fs = Silent(), FaultyFileSystem()
        simulated = SimulatedBroker(fs, BrokerConfig(SETTINGS), Random(1), log)
        with simulated_parts(log):
            await simulated.start()
            broker = simulated.broker
            await asyncio.gather(*[broker.metadata.create_topic(topic, 1, {}) for topic in "tu"])
            who = await open_transaction(broker, flushed=False)
            fs.fail("fdatasync")
            for _ in range(2):
                with pytest.raises(KafkaError) as refused:
                    await begin_commit(broker, who)
                assert refused.value.code is ErrorCode.TRANSACTION_ABORTABLE
            identity = await broker.transaction_coordinator.end_txn("id", *who, False, TV2)
            assert await produced(broker, identity, ("u", 0), sequence=0, version=12) is CONCURRENT
            await simulated.stop()
            await simulated.start()
            broker = simulated.broker
            assert await produced(broker, identity, sequence=0, version=12) is ErrorCode.NONE
            await broker.transaction_coordinator.end_txn("id", *identity, True, TV2)
            await simulated.stop()

    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        runner.run(run())


def test_commit_whose_records_are_lost_after_an_abort_gets_the_answer_to_the_abort() -> None:
    async def work(broker: BrokerNode) -> None:
        coordinator = broker.transaction_coordinator
        who = await open_transaction(broker, flushed=False)

        async def aborted_meanwhile(metadata: object) -> None:
            await coordinator.end_txn("id", *who, False, TV2)
            raise KafkaError(ErrorCode.TRANSACTION_ABORTABLE)

        coordinator._until_durable = aborted_meanwhile  # type: ignore[method-assign]
        with pytest.raises(KafkaError) as refused:
            await begin_commit(broker, who)
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE

    on_a_slow_disk(work)


def begin_commit(
    broker: BrokerNode, who: tuple[int, int], version: TransactionVersion = TV2
) -> asyncio.Future[ProducerIdentity]:
    """Send an EndTxn(commit) that has to wait for the records of the transaction."""
    coordinator = broker.transaction_coordinator
    assert coordinator.end_txn_now("id", *who, True, version) is Step.NEEDS_RECORDS
    return asyncio.ensure_future(coordinator.end_txn("id", *who, True, version))


async def produced(
    broker: BrokerNode, who: tuple[int, int], partition: tuple[str, int] = ("t", 0), *, sequence: int, version: int
) -> ErrorCode:
    """Send a batch with acks=1 and return the error code in its response."""
    records = batch(b"y", producer_id=who[0], producer_epoch=who[1], base_sequence=sequence, transactional=True)
    topic = TopicProduceData(name=partition[0], partition_data=[PartitionProduceData(partition[1], records)])
    request = ProduceRequest("id", 1, 30_000, [topic])
    answer: Any = produce.handle(context_of(broker, request, version), request)
    while not isinstance(answer, ProduceResponse):
        assert not isinstance(answer, Deferred)
        answer = await answer
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def test_transaction_is_aborted_although_its_records_are_not_on_disk() -> None:
    async def work(broker: BrokerNode) -> None:
        who = await open_transaction(broker, flushed=False)
        outcome = broker.transaction_coordinator.end_txn_now("id", *who, False, TV2)
        assert not isinstance(outcome, Step)
        await settled(outcome[1])

    on_a_slow_disk(work)


def test_first_claim_of_a_group_is_answered_when_it_is_on_disk() -> None:
    async def work(broker: BrokerNode) -> None:
        request = GroupInitialisation("g", 1, frozenset({("t", 0)}), "id", 60_000, None)
        home = broker.group_initialiser
        taken: dict[str, Any] = {}
        claim = home._claims.claim

        def noted(*arguments: Any) -> Any:
            taken["durable"] = claim(*arguments)
            return taken["durable"]

        home._claims.claim = noted  # type: ignore[method-assign, assignment]
        initialise = home._homes.initialise

        async def after_the_claim(*arguments: Any, **options: Any) -> Any:
            assert taken["durable"] is not None
            assert taken["durable"].done(), "the epoch is bumped for a claim that a crash takes back"
            return await initialise(*arguments, **options)

        home._homes.initialise = after_the_claim  # type: ignore[method-assign]
        await home.initialise(request, CAUSE)

    on_a_slow_disk(work)


def test_offsets_in_a_transaction_are_answered_when_they_are_on_disk() -> None:
    async def work(broker: BrokerNode) -> None:
        who = await open_transaction(broker)
        home = (OFFSETS_TOPIC, broker.group_coordinator.partition_for("g"))
        await broker.transaction_coordinator.registration.add_partitions("id", *who, [home], TV2)
        connection: Any = SimpleNamespace(peer_host="here")
        context = RequestContext(cast(Any, broker), connection, 28, 3, 1, "client", -1)
        offset = TxnOffsetCommitRequestPartition(0, 5)
        topics = [TxnOffsetCommitRequestTopic("t", [offset])]
        request = TxnOffsetCommitRequest("id", "g", *who, topics=topics)
        answer = txn_offset_commit.handle(context, request)
        log = data_log(broker, home[0])
        assert log.files.flushed_offset < log.log_end_offset
        assert isinstance(answer, Deferred)
        assert isinstance(answer.awaitable, asyncio.Future)
        await answer.awaitable
        assert log.files.flushed_offset == log.log_end_offset

    on_a_slow_disk(work)


@pytest.mark.parametrize("version", [3, 4])
def test_added_partitions_are_answered_when_they_are_on_disk(version: int) -> None:
    """Otherwise, a loss of power would take them back, and the commit that follows would pass for a repeated one."""

    async def work(broker: BrokerNode) -> None:
        who = await broker.transaction_coordinator.init_producer_id("id", 60_000)
        topics = [AddPartitionsToTxnTopic("t", [0])]
        request = AddPartitionsToTxnRequest([], "id", *who, topics)
        if version >= add_partitions_to_txn.FIRST_BATCHED_VERSION:
            request = AddPartitionsToTxnRequest([AddPartitionsToTxnTransaction("id", *who, topics=topics)])
        await is_answered_when_durable(broker, add_partitions_to_txn.handle, request, version)

    on_a_slow_disk(work)


def test_added_offsets_are_answered_when_they_are_on_disk() -> None:
    async def work(broker: BrokerNode) -> None:
        who = await broker.transaction_coordinator.init_producer_id("id", 60_000)
        await is_answered_when_durable(broker, add_offsets_to_txn.handle, AddOffsetsToTxnRequest("id", *who, "g"), 3)

    on_a_slow_disk(work)


async def is_answered_when_durable(
    broker: BrokerNode, handle: Callable[..., Any], request: Request[Any], version: int
) -> None:
    """Check that the record which the request writes to `__transaction_state` is on disk when it is answered."""
    entry = broker.transaction_coordinator.state.get("id")
    assert entry is not None
    log = broker.replica_manager.partition("__transaction_state", entry.partition).log
    before = log.log_end_offset
    answer = handle(context_of(broker, request, version), request)
    assert not isinstance(answer, Response)
    if isinstance(answer, Deferred):
        assert isinstance(answer.awaitable, asyncio.Future)
        await answer.awaitable
    else:
        await answer
    assert before < log.log_end_offset == log.high_watermark


def test_producer_ids_are_never_handed_out_twice() -> None:
    async def run() -> None:
        log = Silent()
        broker = SimulatedBroker(FaultyFileSystem(), BrokerConfig(SETTINGS), Random(1), log)
        handed_out: list[int] = []
        with simulated_parts(log):
            for power in (True, False, True, None):
                await broker.start()
                ids = [await broker.broker.transaction_coordinator.init_producer_id(None, 1) for _ in range(3)]
                handed_out += [identity.producer_id for identity in ids]
                if power is None:
                    await broker.stop()
                else:
                    await broker.crash(power=power)
        assert len(set(handed_out)) == len(handed_out) == 12
        assert handed_out == sorted(handed_out)

    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        runner.run(run())
