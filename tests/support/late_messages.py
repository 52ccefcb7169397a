"""Deliver a request of one transaction late, and determine what this does to the transactions.

`play` lets a producer of one protocol generation run two transactions. It delivers one request of the first only after
that transaction has ended. Either the request was not delivered before, and the producer aborted; or it is the first
copy of a request that the producer repeated successfully before it committed. The records and offsets that can be read
afterwards show the effect. All requests are raw, so that no safeguard of a client helps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnTopic
from oncelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from oncelog.protocol.schema import Request
from support.raw_connection import batch
from support.transaction_wire import RETRIED, TransactionWire, read
from support.wire import Wire, eventually, retry

OFFSETS_TOPIC: Final = "__consumer_offsets"


class Flow(Enum):
    """The protocol generation of a producer. `versions` has the request versions that it uses."""

    FIRST = "Kafka 0.11"
    BEFORE_890 = "Kafka 4.1 with transaction.version 0 or 1"
    BUMPING = "the same, and a new epoch after every abort (KIP-360)"
    TV2 = "transaction.version 2 (KIP-890)"
    SESSION = "transaction session"
    SESSION_OF_OLDER = "transaction session, but the versions before KIP-890"

    @property
    def versions(self) -> Versions:
        """The version of each request that the producer sends."""
        if self is Flow.FIRST:
            return Versions(init=0, add=0, add_offsets=0, produce=3, commit=0, end=0)
        if self in (Flow.BEFORE_890, Flow.BUMPING, Flow.SESSION_OF_OLDER):
            return Versions(init=4, add=3, add_offsets=3, produce=11, commit=4, end=4)
        return Versions(init=5, add=3, add_offsets=4, produce=12, commit=5, end=5)

    @property
    def registers(self) -> bool:
        """Whether the producer adds partitions by separate requests."""
        return self.versions.produce < 12

    @property
    def is_session(self) -> bool:
        """Whether its partitions stay registered from one transaction to the next."""
        return self in (Flow.SESSION, Flow.SESSION_OF_OLDER)


@dataclass(frozen=True)
class Versions:
    """The request versions of a flow."""

    init: int
    add: int
    add_offsets: int
    produce: int
    commit: int
    end: int


class Late(Enum):
    """The request of the first transaction that is late."""

    ADD_PARTITIONS = "AddPartitionsToTxn"
    PRODUCE = "Produce"
    OFFSETS = "TxnOffsetCommit"
    END = "EndTxn"


class Moment(Enum):
    """The time at which the late request arrives."""

    BETWEEN = "before the next transaction"
    OPENED = "when the next one is open and empty"
    DURING = "in the middle of the next one"
    AFTER = "after the next one"


class Effect(Enum):
    """The effect of the late request, the worst first."""

    TORN = "torn"
    """Only a part of a transaction is committed, or a late record or offset is committed."""
    HANGS = "hangs"
    """A transaction is open in a partition after both transactions have ended."""
    FAILS = "fails"
    """The next transaction fails as a whole, and its producer gets an error."""
    GHOST = "ghost"
    """The coordinator has an open transaction of which the producer does not know."""
    NONE = "none"


@dataclass(frozen=True)
class Outcome:
    """The code of the response to the late request, and the request's effect."""

    code: ErrorCode
    effect: Effect


class _Play:
    def __init__(self, wire: Wire, flow: Flow, transactional_id: str, topic: str, group: str) -> None:
        self.wire = wire
        self.flow = flow
        self.versions = flow.versions
        self.txn = TransactionWire(wire, transactional_id)
        self.topic = topic
        self.group = group
        self.written: set[tuple[str, int]] = set()
        self.session: set[tuple[str, int]] = set()

    # -- what a producer of this flow does

    def init(self, again: bool = False) -> None:
        identity = (self.txn.producer_id, self.txn.epoch) if again else (-1, -1)
        assert self.txn.init(self.versions.init, believed=identity).error_code == 0
        self.session.clear()

    def open(self) -> int:
        """Register the partitions to be written, if the flow does so before writing. Return the error code."""
        if self.session or not (self.flow.registers or self.flow.is_session):
            return 0
        code = self.call(self.add_partitions(0))
        if self.flow.is_session:
            self.session.add((self.topic, 0))
        return code or (self.call(self.add_offsets()) if self.flow.registers else 0)

    def write(self, value: bytes) -> int:
        self.written.add((self.topic, 0))
        return self.txn.produce(self.topic, value, version=self.versions.produce)

    def commit_offset(self, offset: int) -> int:
        self.written.add((OFFSETS_TOPIC, 0))
        return self.call(self.offsets(offset))

    def end(self, commit: bool) -> int:
        request = self.end_txn(commit)
        answer = retry(lambda: self.wire.call(request, self.versions.end), lambda got: got.error_code, *RETRIED)
        if self.versions.end >= 5 and answer.error_code == 0:
            self.txn.producer_id, self.txn.epoch = answer.producer_id, answer.producer_epoch
            self.txn.sequences.clear()
        if not commit and self.versions.end < 5:
            self.session.clear()
        self.written.clear()
        self.until_complete()
        return answer.error_code

    # -- its requests, as they are now

    def add_partitions(self, partition: int) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.txn.tid,
            v3_and_below_producer_id=self.txn.producer_id,
            v3_and_below_producer_epoch=self.txn.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(self.topic, [partition])],
            session=self.flow.is_session,
        )

    def add_offsets(self) -> AddOffsetsToTxnRequest:
        return AddOffsetsToTxnRequest(self.txn.tid, self.txn.producer_id, self.txn.epoch, self.group)

    def offsets(self, offset: int) -> TxnOffsetCommitRequest:
        partition = TxnOffsetCommitRequestPartition(0, offset, committed_metadata="")
        topics = [TxnOffsetCommitRequestTopic(self.topic, [partition])]
        return TxnOffsetCommitRequest(
            self.txn.tid, self.group, self.txn.producer_id, self.txn.epoch, -1, "", None, topics
        )

    def produce(self, value: bytes) -> ProduceRequest:
        records = batch(
            value,
            producer_id=self.txn.producer_id,
            producer_epoch=self.txn.epoch,
            base_sequence=self.txn.sequences.get((self.topic, 0), 0),
            transactional=True,
        )
        data = TopicProduceData(name=self.topic, partition_data=[PartitionProduceData(0, records)])
        return ProduceRequest(self.txn.tid, -1, 30_000, [data])

    def end_txn(self, commit: bool) -> EndTxnRequest:
        request = EndTxnRequest(self.txn.tid, self.txn.producer_id, self.txn.epoch, commit)
        if self.flow.is_session:
            # The offsets topic is not named: the broker knows from its own state which of its partitions were written.
            request.topics = [
                EndTxnTopic(topic, [index]) for topic, index in sorted(self.written) if topic == self.topic
            ]
        return request

    def call(self, request: Request[Any]) -> int:
        """Send a request, and repeat it on retriable errors as a client does. Return the error code."""
        return retry(lambda: self.send(request), lambda code: code, *RETRIED)

    def send(self, request: Request[Any]) -> int:
        """Send a request once, and return the error code."""
        return _code(self.wire.call(request, self.version_of(request)))

    def version_of(self, request: Request[Any]) -> int:
        versions = self.versions
        return {
            AddPartitionsToTxnRequest: versions.add,
            AddOffsetsToTxnRequest: versions.add_offsets,
            ProduceRequest: versions.produce,
            TxnOffsetCommitRequest: versions.commit,
            EndTxnRequest: versions.end,
        }[type(request)]

    # -- what there is to see

    @property
    def state(self) -> str:
        (found,) = self.wire.call(DescribeTransactionsRequest([self.txn.tid]), 0).transaction_states
        return str(found.transaction_state)

    def until_complete(self) -> None:
        eventually(lambda: not self.state.startswith("Prepare"))

    def committed_offset(self, stable: bool) -> int:
        topics = [OffsetFetchRequestTopic(self.topic, [0])]
        request = OffsetFetchRequest(self.group, topics, require_stable=stable)
        answer = retry(
            lambda: self.wire.call(request, 7).topics[0].partitions[0],
            lambda got: got.error_code,
            ErrorCode.UNSTABLE_OFFSET_COMMIT,
            timeout_s=5,
        )
        return int(answer.committed_offset) if not answer.error_code else -2

    def is_stable(self) -> bool:
        seen = read(self.wire, self.topic)
        return seen.last_stable_offset == seen.high_watermark


def play(
    wire: Wire, flow: Flow, late: Late, moment: Moment, ends: tuple[bool, bool], names: tuple[str, str, str]
) -> Outcome:
    """Run two transactions, and deliver one request of the first late.

    `ends` says for each transaction whether it commits. `names` are the transactional id, the topic and the group.
    """
    first_commits, second_commits = ends
    producer = _Play(wire, flow, *names)
    producer.init()
    for code in (producer.open(), producer.write(b"a"), producer.commit_offset(10)):
        assert code == 0, code
    requests: dict[Late, Callable[[], Request[Any]]] = {
        Late.ADD_PARTITIONS: lambda: producer.add_partitions(1),
        Late.PRODUCE: lambda: producer.produce(b"late"),
        Late.OFFSETS: lambda: producer.offsets(11),
        Late.END: lambda: producer.end_txn(first_commits),
    }
    delayed = requests[late]()
    first_values, first_offset = [b"a"], 10
    if first_commits and late is not Late.END:
        # A producer commits only after a response, so the late request is the first copy of one that it repeated.
        assert producer.call(delayed) == 0
        if late is Late.PRODUCE:
            producer.txn.sequences[producer.topic, 0] += 1
            first_values.append(b"late")
        elif late is Late.OFFSETS:
            first_offset = 11
    assert producer.end(first_commits) == 0
    if flow is Flow.BUMPING and not first_commits:
        producer.init(again=True)

    got: list[int] = []

    def deliver(now: Moment) -> None:
        if now is moment:
            got.append(producer.send(delayed))
            producer.until_complete()

    deliver(Moment.BETWEEN)
    codes = [producer.open()]
    deliver(Moment.OPENED)
    codes += [producer.write(b"b1"), producer.commit_offset(20)]
    deliver(Moment.DURING)
    codes += [producer.write(b"b2")]
    if any(codes):  # an error reports that the transaction cannot be committed, so the producer aborts
        second_commits = False
    ended = producer.end(second_commits)
    deliver(Moment.AFTER)

    values = first_values * first_commits + [b"b1", b"b2"] * second_commits
    offset = 20 if second_commits else first_offset if first_commits else -1
    effect = _effect(producer, values, offset, told=any(codes) or ended != 0)
    # After any of these effects, a new instance can use the id.
    producer.init()
    for code in (producer.open(), producer.write(b"c"), producer.end(True)):
        assert code == 0, code
    eventually(producer.is_stable)
    assert read(wire, producer.topic).values[-1:] == [b"c"]
    return Outcome(ErrorCode(got[0]), effect)


def _effect(producer: _Play, values: list[bytes], offset: int, *, told: bool) -> Effect:
    ghost = producer.state == "Ongoing"
    hangs = not ghost and not _soon(producer.is_stable)
    stable = not ghost and not hangs
    if read(producer.wire, producer.topic).values != values or producer.committed_offset(stable) != offset:
        return Effect.TORN
    if hangs:
        return Effect.HANGS
    if told:
        return Effect.FAILS
    return Effect.GHOST if ghost else Effect.NONE


def _soon(holds: Any) -> bool:
    try:
        eventually(holds, timeout_s=10)
    except AssertionError:
        return False
    return True


def _code(answer: Any) -> int:
    if hasattr(answer, "results_by_topic_v3_and_below"):
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
    if hasattr(answer, "responses"):
        return int(answer.responses[0].partition_responses[0].error_code)
    if hasattr(answer, "topics"):
        return int(answer.topics[0].partitions[0].error_code)
    return int(answer.error_code)
