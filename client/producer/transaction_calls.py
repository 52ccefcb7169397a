"""The conversation with the transaction coordinator, and with the group coordinator on the transaction's behalf.

Owns the requests, their versions, and what each answer's error means: ask again, find the coordinator again, give the
transaction up, or the producer. Every call is bounded by a deadline (max.block.ms). The state it acts on is
`TransactionManager`'s.

A decision whose answer was lost is sent again: the coordinator answers a repeated EndTxn with the result of the first.
Only where that is not possible any more is the result unknown, and then CommitUnknownError says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final, TypeVar

from ...protocol.errors import ErrorCode, KafkaError, error_code
from ...protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ...protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ...protocol.messages.end_txn import EndTxnRequest
from ...protocol.messages.init_producer_id import InitProducerIdRequest
from ...protocol.messages.produce import ProduceRequest
from ...protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ...protocol.schema import Request, Response
from ..backoff import ExponentialBackoff
from ..cluster import Cluster, KeyType
from ..connection import Connection
from ..errors import CommitUnknownError, KafkaTimeoutError, NetworkError, UnsupportedVersionError
from ..values import ConsumerGroupMetadata, OffsetAndMetadata
from .transaction_manager import Partition, TransactionManager
from .transaction_state import State

R = TypeVar("R", bound=Response)

CHANNEL: Final = "coordinator"
"""A socket of its own: an answer to Produce that waits for the disk must not hold up the coordinator's."""

CONCURRENT_BACKOFF_MS: Final = 5
"""First wait after CONCURRENT_TRANSACTIONS: the previous transaction's markers take about as long."""

CLIENT_ADD_PARTITIONS: Final = 3
"""Newest AddPartitionsToTxn for clients; those above are for brokers that verify batches (KIP-890)."""


class Verdict(Enum):
    """What an error in an answer asks for."""

    RETRY = "the same again, after retry.backoff.ms"
    RETRY_SOON = "the same again, after a few milliseconds"
    FIND = "ask for the coordinator again, then the same"
    ABORT = "the transaction can only be aborted"
    FATAL = "the producer is of no more use"


_E, _V = ErrorCode, Verdict
VERDICTS: Final[dict[ErrorCode, Verdict]] = {
    _E.COORDINATOR_NOT_AVAILABLE: _V.FIND,
    _E.NOT_COORDINATOR: _V.FIND,
    _E.COORDINATOR_LOAD_IN_PROGRESS: _V.RETRY,
    _E.CONCURRENT_TRANSACTIONS: _V.RETRY_SOON,
    _E.TRANSACTION_ABORTABLE: _V.ABORT,
    _E.TOPIC_AUTHORIZATION_FAILED: _V.ABORT,
    _E.GROUP_AUTHORIZATION_FAILED: _V.ABORT,
    _E.OPERATION_NOT_ATTEMPTED: _V.ABORT,
    _E.INVALID_TOPIC_EXCEPTION: _V.ABORT,
    _E.FENCED_INSTANCE_ID: _V.ABORT,
    _E.UNKNOWN_MEMBER_ID: _V.ABORT,
    _E.ILLEGAL_GENERATION: _V.ABORT,
    _E.STALE_MEMBER_EPOCH: _V.ABORT,
    _E.OFFSET_METADATA_TOO_LARGE: _V.ABORT,
    _E.INVALID_COMMIT_OFFSET_SIZE: _V.ABORT,
    _E.INVALID_GROUP_ID: _V.ABORT,
}
"""What is not listed: RETRY if the code is retriable, else FATAL."""

UNCERTAIN: Final = frozenset(
    {
        _E.UNKNOWN_SERVER_ERROR,
        _E.REQUEST_TIMED_OUT,
        _E.COORDINATOR_NOT_AVAILABLE,
        _E.NOT_COORDINATOR,
        _E.KAFKA_STORAGE_ERROR,
        _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
"""Errors after which a decision may have been written nevertheless: the coordinator failed, or moved, while writing."""


def verdict(code: ErrorCode) -> Verdict:
    """Return what an error code of a coordinator asks for."""
    return VERDICTS.get(code) or (Verdict.RETRY if code.retriable else Verdict.FATAL)


class TransactionCalls:
    """See the module's docstring."""

    def __init__(self, cluster: Cluster, manager: TransactionManager, timeout_ms: int, max_block_s: float) -> None:
        self._cluster = cluster
        self._manager = manager
        self._timeout_ms = timeout_ms
        self._max_block_s = max_block_s
        self._soon = ExponentialBackoff(CONCURRENT_BACKOFF_MS, max(cluster.config.retry_backoff_ms, 1))

    # -- calls

    async def init_producer_id(self, bump_epoch: bool = False) -> None:
        """Get a producer id and an epoch that fences every older producer of this transactional id.

        `bump_epoch`: keep the id, and take the next epoch only if nobody else has taken it (KIP-360).
        """
        manager = self._manager

        def build(connection: Connection) -> tuple[InitProducerIdRequest, int]:
            request = InitProducerIdRequest(manager.transactional_id, self._timeout_ms)
            version = connection.version_of(InitProducerIdRequest)
            if bump_epoch:
                if version < 3:
                    raise UnsupportedVersionError(
                        ErrorCode.UNSUPPORTED_VERSION, "the broker cannot give a producer a new epoch (KIP-360)"
                    )
                request.producer_id, request.producer_epoch = manager.producer_id, manager.producer_epoch
            return request, version

        answer = await self._ask_transaction_coordinator(build, lambda answer: answer.error_code, "InitProducerId")
        manager.producer_id, manager.producer_epoch = answer.producer_id, answer.producer_epoch
        manager.epoch_bump_needed = False

    async def add_partitions(self, partitions: set[Partition]) -> None:
        """Add partitions to the transaction (transaction.version 1)."""
        manager = self._manager
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(partitions):
            topics.setdefault(topic, []).append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=manager.transactional_id,
            v3_and_below_producer_id=manager.producer_id,
            v3_and_below_producer_epoch=manager.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in topics.items()],
        )
        manager.started = True
        await self._ask_transaction_coordinator(
            lambda connection: (request, connection.version_of(AddPartitionsToTxnRequest, CLIENT_ADD_PARTITIONS)),
            _worst_of_partitions,
            "AddPartitionsToTxn",
        )
        manager.registered_now(partitions)

    async def add_offsets(self, group_id: str) -> None:
        """Add a group's offsets to the transaction (transaction.version 1)."""
        manager = self._manager
        request = AddOffsetsToTxnRequest(
            manager.transactional_id, manager.producer_id, manager.producer_epoch, group_id
        )
        manager.started = True
        await self._ask_transaction_coordinator(
            lambda connection: (request, connection.version_of(AddOffsetsToTxnRequest)),
            lambda answer: answer.error_code,
            "AddOffsetsToTxn",
        )

    async def commit_offsets(
        self, offsets: Mapping[Partition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Write offsets as part of the transaction: they count when it commits."""
        manager = self._manager
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, index), position in sorted(offsets.items()):
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(index, position.offset, position.leader_epoch, position.metadata)
            )

        def build(connection: Connection) -> tuple[TxnOffsetCommitRequest, int]:
            version = connection.version_of(TxnOffsetCommitRequest, 5 if manager.version >= 2 else 4)
            if version < 3 and group.generation_id >= 0:
                raise UnsupportedVersionError(
                    ErrorCode.UNSUPPORTED_VERSION, "the broker cannot check a member's generation (KIP-447)"
                )
            request = TxnOffsetCommitRequest(
                manager.transactional_id,
                group.group_id,
                manager.producer_id,
                manager.producer_epoch,
                group.generation_id,
                group.member_id,
                group.group_instance_id,
                [TxnOffsetCommitRequestTopic(topic, partitions) for topic, partitions in topics.items()],
            )
            return request, version

        manager.started = True
        await self._ask(KeyType.GROUP, group.group_id, build, _worst_of_offsets, "TxnOffsetCommit")

    async def end(self, committed: bool, asked_before: bool = False) -> None:
        """Decide the transaction; afterwards the manager has the epoch of the next one.

        `asked_before`: the answer to an earlier call was lost, so that a failure of this one decides nothing.

        Raises CommitUnknownError where a commit was sent and its result cannot be learned now.
        """
        manager = self._manager
        request = EndTxnRequest(
            manager.transactional_id, manager.producer_id, manager.producer_epoch, committed=committed
        )
        at_most = 5 if manager.version >= 2 else 4
        lost = _Lost()
        lost.answers = int(asked_before)
        try:
            answer = await self._ask_transaction_coordinator(
                lambda connection: (request, connection.version_of(EndTxnRequest, at_most)),
                lambda answer: answer.error_code,
                "EndTxn",
                lost,
            )
        except asyncio.CancelledError:
            self._undecided(committed, lost)
            raise
        except KafkaError as error:
            if committed and lost.answers:
                can_ask = manager.state is not State.FATAL_ERROR
                self._undecided(committed, lost)
                raise CommitUnknownError(error.code, error.message, can_ask) from error
            self._undecided(committed, lost)
            raise
        if answer.producer_id >= 0:
            manager.producer_id, manager.producer_epoch = answer.producer_id, answer.producer_epoch

    def learn_version(self, connection: Connection) -> None:
        """Take over the cluster's transaction.version, if the connection speaks what version 2 needs."""
        newest = connection.finalized_features.get("transaction.version", 0)
        speaks = connection.supports(ProduceRequest, 12) and connection.supports(EndTxnRequest, 5)
        self._manager.version = 2 if newest >= 2 and speaks else 1

    # -- how a call goes

    def _undecided(self, committed: bool, lost: _Lost) -> None:
        """EndTxn did not come to its end: the state from which it can be tried again."""
        manager = self._manager
        if manager.state is State.COMMITTING_TRANSACTION:
            manager.become(State.COMMIT_UNKNOWN if lost.answers or lost.waiting else State.IN_TRANSACTION)
        elif manager.state is State.ABORTING_TRANSACTION:
            manager.become(State.ABORTABLE_ERROR)

    async def _ask_transaction_coordinator(
        self,
        build: Callable[[Connection], tuple[Request[R], int]],
        code_of: Callable[[R], int],
        name: str,
        lost: _Lost | None = None,
    ) -> R:
        return await self._ask(KeyType.TRANSACTION, self._manager.transactional_id, build, code_of, name, lost)

    async def _ask(
        self,
        key_type: KeyType,
        key: str,
        build: Callable[[Connection], tuple[Request[R], int]],
        code_of: Callable[[R], int],
        name: str,
        lost: _Lost | None = None,
    ) -> R:
        lost = lost or _Lost()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._max_block_s
        attempt = 0
        while True:
            remaining = deadline - loop.time()
            try:
                if remaining <= 0:
                    raise self._too_late(name, lost)
                answer = await self._once(key_type, key, build, remaining, lost)
                code = error_code(code_of(answer))
                if code in UNCERTAIN:
                    lost.answers += 1
            except (NetworkError, KafkaTimeoutError) as error:
                if deadline - loop.time() <= 0:
                    raise self._too_late(name, lost) from error
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
                lost.last = error
            if code is ErrorCode.NONE:
                return answer
            what = verdict(code)
            if what is Verdict.FATAL:
                raise self._manager.fail_fatal(code)
            if what is Verdict.ABORT:
                raise self._manager.fail_abortable(code)
            if what is Verdict.FIND:
                self._cluster.forget_coordinator(key_type, key)
            backoff = self._soon if what is Verdict.RETRY_SOON else self._cluster.retry_backoff
            await asyncio.sleep(min(backoff(attempt), max(deadline - loop.time(), 0)))
            attempt += 1

    async def _once(
        self,
        key_type: KeyType,
        key: str,
        build: Callable[[Connection], tuple[Request[R], int]],
        timeout_s: float,
        lost: _Lost,
    ) -> R:
        node_id = await self._cluster.coordinator(key_type, key, timeout_s)
        connection = await self._cluster.connection(node_id, CHANNEL)
        if key_type is KeyType.TRANSACTION and self._manager.state in (State.INITIALIZING, State.READY):
            self.learn_version(connection)
        request, version = build(connection)
        future = connection.send(request, version, min(timeout_s, connection.options.request_timeout_s))
        lost.waiting = True
        try:
            answer = await future
        except KafkaError:
            lost.answers += 1
            lost.waiting = False
            raise
        lost.waiting = False
        return answer

    def _too_late(self, name: str, lost: _Lost) -> KafkaTimeoutError:
        why = f": {lost.last.message}" if lost.last is not None else ""
        return KafkaTimeoutError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"the coordinator did not answer {name} within max.block.ms = {self._max_block_s * 1000:.0f}{why}",
        )


class _Lost:
    """What became of the attempts of one call: a request whose answer did not come may have run."""

    __slots__ = ("answers", "last", "waiting")

    def __init__(self) -> None:
        self.answers = 0
        self.waiting = False
        self.last: KafkaError | None = None


def _worst_of_partitions(answer: AddPartitionsToTxnResponse) -> int:
    return _worst(
        partition.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    )


def _worst_of_offsets(answer: TxnOffsetCommitResponse) -> int:
    return _worst(partition.error_code for topic in answer.topics for partition in topic.partitions)


def _worst(codes: Iterable[int]) -> int:
    """The error that decides for a request with several: what is fatal before what aborts before what is retried."""
    severity = {Verdict.FATAL: 3, Verdict.ABORT: 2}
    found = [error_code(code) for code in codes if code]
    # "Not attempted" only says that another one failed.
    cause = [code for code in found if code is not ErrorCode.OPERATION_NOT_ATTEMPTED] or found
    return max(cause, key=lambda code: severity.get(verdict(code), 1), default=ErrorCode.NONE)
