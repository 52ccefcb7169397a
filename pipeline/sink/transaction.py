"""One Kafka transaction per micro-batch (or batch write): begun and decided beside the driver, written by many tasks.

Owns the order that makes it exactly-once:

1. `begin`: InitProducerId. Whoever wrote under this transactional id before is fenced, and what they left open is
   aborted, or completed if it was decided, before the answer comes. Only then the state is read: nobody can change it
   any more but this attempt.
2. The tasks write with the id and epoch of the attempt, each Kafka partition by one task (`produce.py`).
3. `commit`: the state goes into the same transaction, as offsets of a group that nobody joins, and EndTxn decides both.
4. `abort`: the markers have a newer epoch, so that tasks which still run can neither begin another transaction nor add
   to their partitions. With transaction.version 2 EndTxn does so; before, InitProducerId, for EndTxn's markers have the
   attempt's own epoch, under which brokers before 3.6 take batches without a transaction: they would be committed with
   the next one of this producer id.

The state is "batch n of query q is committed". It lies under (state topic, 0) of the group that is named like the
transactional id. Works with Kafka 2.5 and newer: KIP-447 for stable offsets, KIP-360 for the new epoch.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from ...client.admin.calls import AdminCalls
from ...client.admin.groups import group_offsets
from ...client.admin.topics import create_topics
from ...client.admin.transactions import describe_transactions
from ...client.admin.values import NewTopic
from ...client.cluster import Cluster
from ...client.config import ProducerConfig
from ...client.errors import AbortableError, ConfigError, FatalError, ProducerFencedError, UnsupportedVersionError
from ...client.producer.transaction_calls import TransactionCalls
from ...client.producer.transaction_manager import TransactionManager
from ...client.producer.transaction_state import State
from ...client.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from ...protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

OFFSETS_TOPIC: Final = "__consumer_offsets"


class SinkState(NamedTuple):
    """The last thing that was committed: a batch of a query, or a batch write (`batch_id` 0)."""

    owner: str
    """The query's id, or the write's."""
    batch_id: int
    plan: str = ""
    """Tells the batch from others that were planned with its number (`plans.py`); empty where that is not known."""


@dataclass(frozen=True)
class Attempt:
    """One attempt at a transaction; travels from the planner to the tasks, and with their results to the commit."""

    transactional_id: str
    state_topic: str
    producer_id: int
    producer_epoch: int
    version: int
    """transaction.version: 1 or 2 (KIP-890)."""
    began_at: float
    """Wall clock, in seconds since the epoch: only for what is told to people."""
    state: SinkState | None
    """What was committed before."""


class BatchTooSlowError(KafkaError):
    """The transaction was open for longer than its timeout: the coordinator has aborted it."""

    def __init__(self, attempt: Attempt, timeout_ms: int) -> None:
        super().__init__(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"the batch has taken {time.time() - attempt.began_at:.0f} s, longer than kafka.transaction.timeout.ms = "
            f"{timeout_ms}: the coordinator has aborted its transaction. Raise that option (the broker's limit is "
            "transaction.max.timeout.ms), or make batches smaller, with maxOffsetsPerTrigger at the source",
        )


class TakenOverError(KafkaError):
    """A newer driver, or another query with the same transactional id, has begun: this one is to end."""

    def __init__(self, attempt: Attempt) -> None:
        super().__init__(
            ErrorCode.PRODUCER_FENCED,
            f"transactional id {attempt.transactional_id!r} was taken over: a newer driver of this query runs, or "
            "another query has the same transactionalId or checkpointLocation. Nothing of this batch was committed",
        )


class UnclaimedPartitionsError(KafkaError):
    """The transaction holds records that none of the successful tasks has written."""

    def __init__(self, partitions: Collection[TopicPartition]) -> None:
        names = ", ".join(str(one) for one in sorted(partitions))
        super().__init__(
            ErrorCode.INVALID_TXN_STATE,
            f"a task that failed had written to {names}, and the one that ran instead of it has not: the query gives "
            "other rows when it is run again. The batch is aborted; restart the query",
        )


class SinkTransaction:
    """The driver's side of attempts. All methods raise KafkaError."""

    def __init__(self, cluster: Cluster, config: ProducerConfig) -> None:
        self._cluster = cluster
        self._config = config
        self._max_block_s = config.max_block_ms / 1000
        self._admin = AdminCalls(cluster, self._max_block_s)

    async def begin(self, transactional_id: str, state_topic: str) -> Attempt:
        """Fence whoever was before, and read the state that they left."""
        await self._require_state_topic(state_topic)
        manager = TransactionManager(transactional_id)
        manager.become(State.INITIALIZING)
        began_at = time.time()
        try:
            await self._calls(manager).init_producer_id()
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise
            raise ConfigError(
                "kafka.transaction.timeout.ms",
                f"{self._config.transaction_timeout_ms} is more than the broker's transaction.max.timeout.ms allows: "
                "lower the one, or raise the other",
            ) from error
        offsets = await group_offsets(self._admin, transactional_id, require_stable=True)
        return Attempt(
            transactional_id,
            state_topic,
            manager.producer_id,
            manager.producer_epoch,
            manager.version,
            began_at,
            _state_of(offsets.get(TopicPartition(state_topic, 0))),
        )

    async def commit(self, attempt: Attempt, written: Collection[TopicPartition], state: SinkState) -> None:
        """Commit what the tasks have written, and the state with it.

        Raises UnclaimedPartitionsError (nothing is decided then) and CommitUnknownError.
        """
        manager = self._manager(attempt)
        calls = self._calls(manager)
        try:
            await self._check_nothing_else(attempt, written)
            if manager.version < 2:
                await calls.add_offsets(attempt.transactional_id)
            told = {"owner": state.owner} | ({"plan": state.plan} if state.plan else {})
            position = OffsetAndMetadata(state.batch_id, json.dumps(told))
            await calls.commit_offsets(
                {TopicPartition(attempt.state_topic, 0): position}, ConsumerGroupMetadata(attempt.transactional_id)
            )
            manager.become(State.COMMITTING_TRANSACTION)
            await calls.end(committed=True)
        except ProducerFencedError as error:
            raise self.explained(attempt) from error

    async def abort(self, attempt: Attempt) -> None:
        """Abort the attempt, if it is still the newest and not decided, and shut out its tasks."""
        manager = self._manager(attempt)
        calls = self._calls(manager)
        try:
            if manager.version >= 2:
                manager.become(State.ABORTING_TRANSACTION)
                await calls.end(committed=False)
            else:
                # InitProducerId would abort a newer driver's transaction, too: this is refused if there is one.
                await calls.add_offsets(attempt.transactional_id)
                await calls.init_producer_id(bump_epoch=True)
        except ProducerFencedError:
            # Also what InitProducerId says after it has aborted: the epoch that it knew is over.
            log.info("%s: the attempt is over", attempt.transactional_id)
        except (FatalError, AbortableError) as error:
            if error.code not in (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
                raise
            log.info("%s: nothing to abort: %s", attempt.transactional_id, error)

    def explained(self, attempt: Attempt) -> KafkaError:
        """Why the attempt is fenced: its time was up, or somebody newer has begun."""
        timeout_ms = self._config.transaction_timeout_ms
        if (time.time() - attempt.began_at) * 1000 >= timeout_ms:
            return BatchTooSlowError(attempt, timeout_ms)
        return TakenOverError(attempt)

    # -- inside

    def _calls(self, manager: TransactionManager) -> TransactionCalls:
        return TransactionCalls(self._cluster, manager, self._config.transaction_timeout_ms, self._max_block_s)

    @staticmethod
    def _manager(attempt: Attempt) -> TransactionManager:
        return resumed(attempt)

    async def _check_nothing_else(self, attempt: Attempt, written: Collection[TopicPartition]) -> None:
        """A task that died may have left records where no other has written (KIP-664; Kafka 3.0 and newer tell)."""
        try:
            told = await describe_transactions(self._admin, [attempt.transactional_id])
        except UnsupportedVersionError:
            return
        found = told[attempt.transactional_id]
        if isinstance(found, KafkaError):
            raise found
        if (found.producer_id, found.producer_epoch) != (attempt.producer_id, attempt.producer_epoch):
            raise self.explained(attempt)
        other = {one for one in found.partitions if one.topic != OFFSETS_TOPIC} - set(written)
        if other:
            raise UnclaimedPartitionsError(other)

    async def _require_state_topic(self, name: str) -> None:
        """Offsets can be committed only for a topic that exists."""
        metadata = await self._cluster.refresh([name])
        known = metadata.topics.get(name)
        if known is None or known.error_code:
            (outcome,) = (await create_topics(self._admin, [NewTopic(name, 1)], validate_only=False)).values()
            if outcome is not None and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                outcome.add_note(
                    "The sink refers its state to this topic; nothing is written to it. Create it with one partition, "
                    'or name one that exists: .option("stateTopic", "...")'
                )
                raise outcome
            await self._cluster.topic(name, self._max_block_s)


def resumed(attempt: Attempt) -> TransactionManager:
    """What a producer in the middle of the attempt's transaction knows."""
    manager = TransactionManager(attempt.transactional_id)
    manager.state = State.IN_TRANSACTION
    manager.producer_id, manager.producer_epoch = attempt.producer_id, attempt.producer_epoch
    manager.version = attempt.version
    manager.started = True
    return manager


def _state_of(position: OffsetAndMetadata | None) -> SinkState | None:
    if position is None:
        return None
    try:
        told = json.loads(position.metadata)
        return SinkState(str(told["owner"]), position.offset, str(told.get("plan", "")))
    except (ValueError, KeyError, TypeError, AttributeError):
        return SinkState(position.metadata, position.offset)
