"""The requests of a transaction: to the coordinator of the transactional id, and to the coordinator of a group.

This module determines the content and the version of each request. `coordinator_client.py` sends the requests and
handles errors. `TransactionManager` holds the state.

An EndTxn whose response was lost is sent again, because the coordinator answers a repeated EndTxn with the result of
the first. If a repetition is no longer possible, the result is unknown, and CommitUnknownError is raised.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.internal_topics import OFFSETS_TOPIC, partition_for_key
from ...protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ...protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ...protocol.messages.end_txn import EndTxnRequest, EndTxnResponse, EndTxnTopic
from ...protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ...protocol.messages.produce import ProduceRequest
from ...protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ...protocol.schema import NO_UUID, Response
from ..cluster import Cluster, KeyType
from ..connection import Connection
from ..errors import AbortableError, CommitUnknownError, IllegalStateError, UnsupportedVersionError
from ..values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from .coordinator_client import CHANNEL, Build, CoordinatorClient, Lost, Refusals, worst
from .transaction_manager import Partition, TransactionManager
from .transaction_state import State

R = TypeVar("R", bound=Response)
log = logging.getLogger(__name__)

CLIENT_ADD_PARTITIONS: Final = 3
"""Newest version of AddPartitionsToTxn for clients. Newer versions are for brokers that verify batches (KIP-890)."""

IMPLICIT_PRODUCE: Final = 12
IMPLICIT_OFFSETS: Final = 5
"""First versions of Produce and TxnOffsetCommit that implicitly add their partitions to the transaction (KIP-890)."""
NEW_EPOCH_END: Final = 5
"""First version of EndTxn that returns the next epoch (KIP-890)."""


class TransactionCalls:
    """The requests of a transactional producer to its coordinators."""

    def __init__(self, cluster: Cluster, manager: TransactionManager, timeout_ms: int, max_block_s: float) -> None:
        self._coordinators = CoordinatorClient(cluster, manager, max_block_s)
        self._cluster = cluster
        self._manager = manager
        self._timeout_ms = timeout_ms
        self._learned_from: Connection | None = None

    # -- the protocol's version

    def learn(self, connection: Connection) -> None:
        """Store which transaction protocol the coordinator's connection offers.

        The stored transaction.version is 2 only if the connection also supports the API versions that version 2 needs.
        The transaction extension needs version 2.
        """
        newest = connection.finalized_features.get("transaction.version", 0)
        speaks = connection.supports(ProduceRequest, IMPLICIT_PRODUCE)
        speaks = speaks and connection.supports(EndTxnRequest, NEW_EPOCH_END)
        self._manager.version = 2 if newest >= 2 and speaks else 1
        self._manager.extension = connection.extension_aware and self._manager.version >= 2
        self._manager.forget_session()
        if not connection.extension_aware:
            self._manager.group_aware = False  # claims kept by a downgraded broker fence no producer
        self._learned_from = connection

    def learn_anew(self) -> None:
        """Learn the protocol again if there is a new connection to the coordinator, because the broker may have been
        upgraded or downgraded.

        May only be called between transactions. It does not connect: without an open connection the protocol stays the
        same.
        """
        transactional_id = self._manager.transactional_id
        assert transactional_id is not None, "the transactional id is known between transactions"
        node_id = self._cluster.known_coordinator(KeyType.TRANSACTION, transactional_id)
        connection = None if node_id is None else self._cluster.open_connection(node_id, CHANNEL)
        if connection is not None and connection is not self._learned_from:
            self.learn(connection)

    # -- calls

    async def init_producer_id(self, bump_epoch: bool = False) -> None:
        """Get a producer id and an epoch that fences every older producer of this transactional id.

        With `bump_epoch`, the producer keeps its id, and gets the next epoch only if no other producer has got it
        (KIP-360).
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
            else:
                self.learn(connection)
            return request, version

        refusals = {} if bump_epoch else {ErrorCode.INVALID_REQUEST: self._id_refused}
        self.initialized(await self._ask(build, lambda answer: answer.error_code, "InitProducerId", refusals=refusals))

    def _id_refused(self, code: ErrorCode) -> KafkaError:
        size = len((self._manager.transactional_id or "").encode())
        return self._manager.fail_fatal(
            code,
            f"the broker refuses a transactional.id of {size} bytes as invalid, because its transactional.id.max.bytes"
            " limits the length: shorten the id",
        )

    def initialized(self, answer: InitProducerIdResponse) -> None:
        """Store the producer id and epoch that the coordinator has assigned."""
        manager = self._manager
        manager.producer_id, manager.producer_epoch = answer.producer_id, answer.producer_epoch
        manager.epoch_bump_needed = False

    async def add_partitions(self, partitions: Iterable[Partition], session: bool = False) -> None:
        """Add partitions to the transaction with AddPartitionsToTxn. With `session` they stay registered for later
        transactions (transaction extension).
        """
        manager = self._manager
        partitions = set(partitions)
        topics = {topic: [index for name, index in sorted(partitions) if name == topic] for topic, _ in partitions}
        assert manager.transactional_id is not None
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=manager.transactional_id,
            v3_and_below_producer_id=manager.producer_id,
            v3_and_below_producer_epoch=manager.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic, topics[topic]) for topic in sorted(topics)],
        )

        def build(connection: Connection) -> tuple[AddPartitionsToTxnRequest, int]:
            request.session = session and connection.extension_aware
            return request, connection.version_of(AddPartitionsToTxnRequest, CLIENT_ADD_PARTITIONS)

        manager.started = True
        await self._ask(
            build,
            lambda answer: _worst_of(_codes_of_partitions(answer), partitions, "AddPartitionsToTxn"),
            "AddPartitionsToTxn",
            missing_in=lambda answer: _missing(_codes_of_partitions(answer)),
        )
        manager.registered_now(partitions)
        if session:
            manager.beforehand |= partitions

    async def add_offsets(self, group_id: str) -> None:
        """Add a group's offsets to the transaction (transaction.version 1)."""
        manager = self._manager
        assert manager.transactional_id is not None
        request = AddOffsetsToTxnRequest(
            manager.transactional_id, manager.producer_id, manager.producer_epoch, group_id
        )
        manager.started = True
        await self._ask(
            lambda connection: (request, connection.version_of(AddOffsetsToTxnRequest)),
            lambda answer: answer.error_code,
            "AddOffsetsToTxn",
        )

    async def commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Write offsets as part of the transaction. They take effect when the transaction is committed."""
        manager = self._manager
        topics: dict[tuple[str, bytes], list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, index), position in sorted(offsets.items()):
            topics.setdefault((topic, position.topic_id), []).append(
                TxnOffsetCommitRequestPartition(index, position.offset, position.leader_epoch, position.metadata)
            )

        def build(connection: Connection) -> tuple[TxnOffsetCommitRequest, int]:
            version = connection.version_of(
                TxnOffsetCommitRequest, IMPLICIT_OFFSETS if manager.version >= 2 else IMPLICIT_OFFSETS - 1
            )
            if version < 3 and group.generation_id >= 0:
                raise UnsupportedVersionError(
                    ErrorCode.UNSUPPORTED_VERSION, "the broker cannot check a member's generation (KIP-447)"
                )
            assert manager.transactional_id is not None
            request = TxnOffsetCommitRequest(
                manager.transactional_id,
                group.group_id,
                manager.producer_id,
                manager.producer_epoch,
                group.generation_id,
                group.member_id,
                group.group_instance_id,
                [
                    TxnOffsetCommitRequestTopic(topic, rows, topic_id if connection.extension_aware else NO_UUID)
                    for (topic, topic_id), rows in topics.items()
                ],
            )
            return request, version

        manager.started = True
        open_fate = (f"{OFFSETS_TOPIC} of {group.group_id}", -1)
        manager.sent.add(open_fate)
        await self._coordinators.ask(
            KeyType.GROUP,
            group.group_id,
            build,
            lambda answer: _worst_of(_codes_of_offsets(answer), offsets, "TxnOffsetCommit"),
            "TxnOffsetCommit",
            refusals=_REFUSED_OFFSETS,
            missing_in=lambda answer: _missing(_codes_of_offsets(answer)),
        )
        if manager.extension:
            where = await self._offsets_partition(group.group_id)
            if where is not None:
                manager.wrote(where)
                manager.sent.discard(open_fate)

    async def _offsets_partition(self, group_id: str) -> Partition | None:
        """Return the partition of the offsets topic that contains the group's offsets, or None if this client cannot
        see the topic.
        """
        if OFFSETS_TOPIC not in self._cluster.metadata.topics:
            try:
                await self._cluster.refresh([OFFSETS_TOPIC])
            except KafkaError as error:
                log.debug("%s: %s", OFFSETS_TOPIC, error)
        known = self._cluster.metadata.topics.get(OFFSETS_TOPIC)
        if known is None or not known.partitions:
            return None
        return OFFSETS_TOPIC, partition_for_key(group_id, len(known.partitions))

    async def end(self, committed: bool, asked_before: bool = False) -> None:
        """Commit or abort the transaction. Afterwards the manager contains the epoch of the next transaction.

        `asked_before`: the response to an earlier EndTxn was lost, so a failure of this call leaves the result unknown.
        Raises CommitUnknownError if a commit was sent and its result cannot be learned now.
        """
        manager = self._manager
        lost = Lost(int(asked_before))
        try:
            named = manager.partitions_for_end_txn()
            try:
                answer = await self._end(committed, named, lost)
            except _NamesRefused as error:
                # Nothing was changed. Without names the coordinator writes markers to every partition that it knows.
                log.warning(
                    "EndTxn is sent again without the written partitions, because the coordinator refused them: %s",
                    error,
                )
                named = None
                answer = await self._end(committed, named, lost)
        except _NotOpen as error:
            if lost.answers:
                manager.fail_fatal(error.code)
                raise CommitUnknownError(error.code, error.message, can_ask_again=False) from error
            refused = AbortableError(error.code, error.message)
            manager.commit_refused(refused)
            raise refused from error
        except asyncio.CancelledError:
            self._undecided(committed, lost)
            raise
        except KafkaError as error:
            if committed and error.code is ErrorCode.TRANSACTION_ABORTABLE and isinstance(error, AbortableError):
                # Only an open transaction is refused so, which means that no earlier EndTxn has ended it.
                manager.current.may_be_committed = False
                manager.commit_refused(error)
                raise
            if committed and lost.answers:
                can_ask = manager.state is not State.FATAL_ERROR and not isinstance(error, IllegalStateError)
                self._undecided(committed, lost)
                raise CommitUnknownError(error.code, error.message, can_ask) from error
            if isinstance(error, AbortableError):
                manager.commit_refused(error)
            self._undecided(committed, lost)
            raise
        if answer.producer_id >= 0:
            manager.producer_id, manager.producer_epoch = answer.producer_id, answer.producer_epoch
        manager.ended(named)

    async def _end(self, committed: bool, named: frozenset[Partition] | None, lost: Lost) -> EndTxnResponse:
        manager = self._manager
        at_most = NEW_EPOCH_END if manager.version >= 2 else NEW_EPOCH_END - 1
        assert manager.transactional_id is not None
        request = EndTxnRequest(manager.transactional_id, manager.producer_id, manager.producer_epoch, committed)
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(named or ()):
            topics.setdefault(topic, []).append(index)

        def build(connection: Connection) -> tuple[EndTxnRequest, int]:
            version = connection.version_of(EndTxnRequest, at_most)
            names = named is not None and connection.extension_aware and version >= NEW_EPOCH_END
            request.topics = [EndTxnTopic(topic, topics[topic]) for topic in topics] if names else None
            return request, version

        refusals: dict[ErrorCode, Callable[[ErrorCode], KafkaError]] = {}
        if named is not None:
            refusals = dict.fromkeys((ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION), _NamesRefused)
        if committed:
            refusals[ErrorCode.INVALID_TXN_STATE] = _not_open
        return await self._ask(build, lambda answer: answer.error_code, "EndTxn", lost, refusals)

    # -- sending

    def _undecided(self, committed: bool, lost: Lost) -> None:
        """Set the state from which EndTxn can be tried again, after a call that is not known to have ended the
        transaction.
        """
        manager = self._manager
        may_be_decided = lost.answers > 0 or lost.waiting
        if committed and may_be_decided:
            manager.current.may_be_committed = True
        if manager.state is State.COMMITTING_TRANSACTION:
            manager.become(State.COMMIT_UNKNOWN if may_be_decided else State.IN_TRANSACTION)
        elif manager.state is State.ABORTING_TRANSACTION:
            manager.become(State.ABORTABLE_ERROR)

    async def _ask(
        self,
        build: Build[R],
        code_of: Callable[[R], int],
        name: str,
        lost: Lost | None = None,
        refusals: Refusals | None = None,
        missing_in: Callable[[R], Iterable[Partition]] | None = None,
    ) -> R:
        transactional_id = self._manager.transactional_id
        assert transactional_id is not None, "only requests to a group's home may lack a transactional id"
        return await self._coordinators.ask(
            KeyType.TRANSACTION,
            transactional_id,
            build,
            code_of,
            name,
            lost=lost,
            refusals=refusals,
            missing_in=missing_in,
        )


class _NamesRefused(KafkaError):
    """The coordinator has refused the partition names in EndTxn, and has changed nothing."""


class _NotOpen(KafkaError):
    """The coordinator has no open transaction to commit."""


def _not_open(code: ErrorCode) -> KafkaError:
    return _NotOpen(
        code,
        "the transaction is not open at the coordinator any more: it was aborted by transaction.timeout.ms, by an "
        "administrator, by a newer producer of this transactional.id, or because the broker was downgraded",
    )


def _topic_recreated(code: ErrorCode) -> KafkaError:
    return KafkaError(
        code,
        "the offsets are not committed, because a topic was deleted and created again after its records were read: in "
        "the new topic, they would skip records",
    )


_REFUSED_OFFSETS: Final[Refusals] = {ErrorCode.UNKNOWN_TOPIC_ID: _topic_recreated}


def _codes_of_partitions(answer: AddPartitionsToTxnResponse) -> Iterator[tuple[Partition, int]]:
    for topic in answer.results_by_topic_v3_and_below:
        for partition in topic.results_by_partition:
            yield (topic.name, partition.partition_index), partition.partition_error_code


def _codes_of_offsets(answer: TxnOffsetCommitResponse) -> Iterator[tuple[Partition, int]]:
    for topic in answer.topics:
        for partition in topic.partitions:
            yield (topic.name, partition.partition_index), partition.error_code


def _worst_of(codes: Iterable[tuple[Partition, int]], asked: Collection[Partition], name: str) -> int:
    """Return the most severe error code. Raises KafkaError UNKNOWN_SERVER_ERROR for a response without errors that
    leaves out a partition, because it is unknown whether the partition or its offset belongs to the transaction.
    """
    answered = dict(codes)
    code = worst(answered.values())
    left_out = set(asked) - answered.keys()
    if left_out and not code:
        topic, index = min(left_out)
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"{name}: the broker's response does not name {topic}-{index}, so the outcome is unknown",
        )
    return code


def _missing(codes: Iterable[tuple[Partition, int]]) -> list[Partition]:
    return [partition for partition, code in codes if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
