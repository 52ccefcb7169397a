"""Run one Kafka transaction per micro-batch or batch write. The driver begins and ends it, and many tasks write in it.

The order of the steps makes the writes exactly-once:

1. `begin`: InitProducerId fences older producers of this transactional id. Before the response arrives, the transaction
   that they left open is aborted, or completed if EndTxn had already requested its commit or abort. The state is read
   after the response, when no older producer can change it any more.
2. The tasks write with the producer id and epoch of the attempt, one task per Kafka partition (`produce.py`).
3. `commit`: the state is added to the same transaction, as offsets of a group that has no members, and EndTxn commits
   both.
4. `abort`: the markers have a newer epoch, so that tasks that are still running can neither begin another transaction
   nor write to their partitions. With transaction.version 2, EndTxn bumps the epoch. With older versions,
   InitProducerId does it instead, because EndTxn's markers would have the attempt's own epoch. Brokers before 3.6
   accept batches with that epoch outside of a transaction, and would commit them with the next transaction of this
   producer id.

A query's record says "batch n of query q is committed, and run r owns the query". It contains the state, and is stored
as the offset of (state topic, 0) in the group whose id is the transactional id. This works with Kafka 2.5 and newer,
which have stable offsets (KIP-447) and let a producer request a new epoch (KIP-360).

Ownership: each start of a query is a run. `claim` writes the run into the record once, when the query starts, and the
last claim wins. Before each batch, a run reads the record. If the record names another run, the query ends
(SupersededError) before it fences any producer. A replaced driver therefore cannot take the query back. A newer run may
claim the query after the older run has read the record, but before the older run sends InitProducerId. Then the older
run fences the newer run's producer, reads the record again, and ends. The newer run's batch is aborted and runs again.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import time
import uuid
from collections.abc import Callable, Collection
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
    """The last committed batch of a query, or the last committed batch write (`batch_id` 0)."""

    owner: str
    """The query's id, or the name of the batch write."""
    batch_id: int
    plan: str = ""
    """Digest of Spark's plan (`checkpoint.py`), which distinguishes the batch from others with the same number. May be
    empty."""


class Record(NamedTuple):
    """A query's record in Kafka."""

    state: SinkState | None = None
    """None if no batch is committed, or if the state has expired."""
    run: str = ""
    """The run that owns the query. Empty if no run has claimed the query."""


@dataclass(frozen=True)
class Attempt:
    """One attempt at a transaction.

    The process that plans the batch sends it to the tasks. The tasks send it, with their results, to the process that
    commits.
    """

    transactional_id: str
    state_topic: str
    producer_id: int
    producer_epoch: int
    version: int
    """transaction.version: 1 or 2 (KIP-890)."""
    began_at: float
    """When the attempt began, in seconds since the epoch, by the wall clock. Only messages and logs depend on it."""
    state: SinkState | None
    """The state that was committed before this attempt."""
    run: str = ""
    """The start of the query, or of a job's batch write, that this attempt belongs to. Empty for other batch writes."""


class BatchTooSlowError(KafkaError):
    """The transaction was open for longer than its timeout, so the coordinator has aborted it."""

    def __init__(self, attempt: Attempt, timeout_ms: int) -> None:
        super().__init__(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"the batch has taken {time.time() - attempt.began_at:.0f} s, longer than kafka.transaction.timeout.ms = "
            f"{timeout_ms}: the coordinator has aborted its transaction. Raise that option, up to the broker's "
            "transaction.max.timeout.ms. Spark runs this batch again with the same rows, because it is planned: "
            "a lower maxOffsetsPerTrigger at the source makes only later batches smaller",
        )


class TakenOverError(KafkaError):
    """A newer driver, or another query with the same transactional id, has taken over. This query must end."""

    def __init__(self, attempt: Attempt) -> None:
        super().__init__(
            ErrorCode.PRODUCER_FENCED,
            f"transactional id {attempt.transactional_id!r} was taken over: a newer driver of this query is running or "
            "another query has the same transactionalId or checkpointLocation. Nothing of this batch was committed",
        )


class SupersededError(KafkaError):
    """A newer start of the query owns it. This query ends and must not restart itself."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(
            ErrorCode.PRODUCER_FENCED,
            f"superseded: a newer driver of this query has started (transactional id {transactional_id!r}), or another "
            "query with the same transactionalId or checkpointLocation. This driver ends, and has committed nothing "
            "since then",
        )


class UnclaimedPartitionsError(KafkaError):
    """The transaction has partitions to which only failed tasks have written, so it is not committed."""

    def __init__(self, partitions: Collection[TopicPartition]) -> None:
        names = ", ".join(str(one) for one in sorted(partitions))
        super().__init__(
            ErrorCode.INVALID_TXN_STATE,
            f"a failed task had written to {names}, but the task that replaced it has not: the query returns "
            "different rows when it runs again. The batch is aborted: restart the query",
        )


class SinkTransaction:
    """The operations of a driver on a query's transactions. All methods raise KafkaError."""

    def __init__(self, cluster: Cluster, config: ProducerConfig) -> None:
        self._cluster = cluster
        self._config = config
        self._max_block_s = config.max_block_ms / 1000

    def _admin_calls(self) -> AdminCalls:
        """Return the client for admin requests, each with a limit of max.block.ms."""
        return AdminCalls(self._cluster, self._max_block_s)

    async def claim(
        self,
        transactional_id: str,
        state_topic: str,
        previous: str = "",
        allow: Callable[[Record], None] = lambda record: None,
    ) -> str:
        """Make a new run the owner of the query, fence the producers of all older runs, and return the new run.

        `previous` is an earlier run of the same driver. If another run has taken over the query since then, this method
        raises SupersededError. If the record already names the other run, the error is raised before any producer is
        fenced. `allow` is called with the record when no older producer can change it any more. If `allow` raises, the
        record stays as it was.
        """
        run = uuid.uuid4().hex
        if previous:
            self._check_owner(
                transactional_id, await self._record(transactional_id, state_topic, stable=False), previous
            )
        deadline = time.monotonic() + self._max_block_s
        for tries in itertools.count():
            attempt, record = await self._initialized(transactional_id, state_topic, run)
            if previous:
                self._check_owner(transactional_id, record, previous)
            allow(record)
            try:
                await self._write(attempt, record.state)
            except (ProducerFencedError, AbortableError) as error:
                # Another driver starts at the same time. The last one to write the record owns the query. Until Apache
                # Kafka has aborted the transaction of a fenced producer, it refuses the commit with INVALID_TXN_STATE.
                fenced = isinstance(error, ProducerFencedError) or error.code is ErrorCode.INVALID_TXN_STATE
                if not fenced or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(self._cluster.retry_backoff(tries))
            else:
                # The response to EndTxn arrives before the markers are written. Wait for the markers, because the first
                # batch looks for its run in the record.
                await self._record(transactional_id, state_topic, stable=True)
                return run
        raise AssertionError("unreachable")

    async def begin(self, transactional_id: str, state_topic: str, run: str = "") -> Attempt:
        """Fence older producers of the transactional id, and read the state that they left.

        If `run` is given and another run owns the query, raise SupersededError before any producer is fenced.
        """
        if run:
            self._check_owner(transactional_id, await self._record(transactional_id, state_topic, stable=False), run)
        attempt, record = await self._initialized(transactional_id, state_topic, run)
        if run:
            self._check_owner(transactional_id, record, run)
        return attempt

    async def renew(self, attempt: Attempt, state: SinkState) -> Attempt:
        """Write a run's expired record again, and begin a new attempt. Raises the errors of `begin` and `commit`."""
        try:
            await self._write(attempt, state)
        except ProducerFencedError as error:
            raise self.explained(attempt) from error
        return await self.begin(attempt.transactional_id, attempt.state_topic, attempt.run)

    async def commit(self, attempt: Attempt, written: Collection[TopicPartition], state: SinkState) -> None:
        """Commit the tasks' records together with the state.

        Raises CommitUnknownError if the outcome is unknown, and BatchTooSlowError or TakenOverError if the attempt is
        fenced. Raises UnclaimedPartitionsError before the commit: the transaction is then still open.
        """
        manager = self._manager(attempt)
        calls = self._calls(manager)
        try:
            await self._check_nothing_else(attempt, written)
            await self._decide(attempt, manager, calls, state)
        except ProducerFencedError as error:
            raise self.explained(attempt) from error

    async def abort(self, attempt: Attempt) -> None:
        """Abort the attempt if it is still the newest and has not ended, and fence its tasks."""
        manager = self._manager(attempt)
        calls = self._calls(manager)
        try:
            if manager.version >= 2:
                manager.become(State.ABORTING_TRANSACTION)
                await calls.end(committed=False)
            else:
                # InitProducerId would also abort a newer driver's transaction. AddOffsetsToTxn does not: it is refused
                # if there is a newer driver.
                await calls.add_offsets(attempt.transactional_id)
                await calls.init_producer_id(bump_epoch=True)
        except ProducerFencedError:
            # InitProducerId also raises this after it has aborted, because the epoch in the request is no longer
            # current.
            log.info("%s: the transaction is no longer open", attempt.transactional_id)
        except (FatalError, AbortableError) as error:
            if error.code not in (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
                raise
            log.info("%s: there is no transaction to abort: %s", attempt.transactional_id, error)

    def explained(self, attempt: Attempt) -> KafkaError:
        """Return why the attempt is fenced: its timeout has passed, or a newer producer has begun."""
        timeout_ms = self._config.transaction_timeout_ms
        if (time.time() - attempt.began_at) * 1000 >= timeout_ms:
            return BatchTooSlowError(attempt, timeout_ms)
        return TakenOverError(attempt)

    # -- inside

    async def _initialized(self, transactional_id: str, state_topic: str, run: str) -> tuple[Attempt, Record]:
        """Send InitProducerId. Return the attempt, and the record, which no other producer can change any more."""
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
                "lower the option, or raise the broker's setting",
            ) from error
        record = await self._record(transactional_id, state_topic, stable=True)
        attempt = Attempt(
            transactional_id,
            state_topic,
            manager.producer_id,
            manager.producer_epoch,
            manager.version,
            began_at,
            record.state,
            run,
        )
        return attempt, record

    async def _record(self, transactional_id: str, state_topic: str, *, stable: bool) -> Record:
        """Return the record. If `stable` is true, wait for pending transactional commits, else ignore them."""
        offsets = await group_offsets(self._admin_calls(), transactional_id, require_stable=stable)
        return _record_of(offsets.get(TopicPartition(state_topic, 0)))

    @staticmethod
    def _check_owner(transactional_id: str, record: Record, run: str) -> None:
        """Raise SupersededError if the record names another run.

        An expired record names no run. Neither does the record of a batch write outside of a job.
        """
        if record.run not in ("", run):
            raise SupersededError(transactional_id)

    async def _write(self, attempt: Attempt, state: SinkState | None) -> None:
        """Write the record in a separate transaction."""
        manager = self._manager(attempt)
        await self._decide(attempt, manager, self._calls(manager), state)

    @staticmethod
    async def _decide(
        attempt: Attempt, manager: TransactionManager, calls: TransactionCalls, state: SinkState | None
    ) -> None:
        """Add the record to the transaction, and commit the transaction."""
        if manager.version < 2:
            await calls.add_offsets(attempt.transactional_id)
        await calls.commit_offsets(
            {TopicPartition(attempt.state_topic, 0): _position_of(Record(state, attempt.run))},
            ConsumerGroupMetadata(attempt.transactional_id),
        )
        manager.become(State.COMMITTING_TRANSACTION)
        await calls.end(committed=True)

    def _calls(self, manager: TransactionManager) -> TransactionCalls:
        return TransactionCalls(self._cluster, manager, self._config.transaction_timeout_ms, self._max_block_s)

    @staticmethod
    def _manager(attempt: Attempt) -> TransactionManager:
        return resumed(attempt)

    async def _check_nothing_else(self, attempt: Attempt, written: Collection[TopicPartition]) -> None:
        """Raise UnclaimedPartitionsError if the transaction has a partition that is not in `written`.

        Only failed tasks have written to such a partition.

        This needs DescribeTransactions (KIP-664, Kafka 3.0 and newer). Older brokers are not checked.
        """
        try:
            described = await describe_transactions(self._admin_calls(), [attempt.transactional_id])
        except UnsupportedVersionError:
            return
        found = described[attempt.transactional_id]
        if isinstance(found, KafkaError):
            raise found
        if (found.producer_id, found.producer_epoch) != (attempt.producer_id, attempt.producer_epoch):
            raise self.explained(attempt)
        other = {one for one in found.partitions if one.topic != OFFSETS_TOPIC} - set(written)
        if other:
            raise UnclaimedPartitionsError(other)

    async def _require_state_topic(self, name: str) -> None:
        """Create the state topic if it is missing: offsets can only be committed for a topic that exists."""
        metadata = await self._cluster.refresh([name])
        known = metadata.topics.get(name)
        if known is None or known.error_code:
            (outcome,) = (await create_topics(self._admin_calls(), [NewTopic(name, 1)], validate_only=False)).values()
            if outcome is not None and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                outcome.add_note(
                    "The sink's state is committed as offsets of this empty topic. Create it with one partition, "
                    'or name an existing topic: .option("stateTopic", "...")'
                )
                raise outcome
            await self._cluster.topic(name, self._max_block_s)


def resumed(attempt: Attempt) -> TransactionManager:
    """Return a transaction manager with the state of a producer in the middle of the attempt's transaction."""
    manager = TransactionManager(attempt.transactional_id)
    manager.state = State.IN_TRANSACTION
    manager.producer_id, manager.producer_epoch = attempt.producer_id, attempt.producer_epoch
    manager.version = attempt.version
    manager.started = True
    return manager


def _position_of(record: Record) -> OffsetAndMetadata:
    """Return a record as the group offset that stores it: the batch number, with owner, plan and run as metadata."""
    state = record.state
    fields = {} if state is None else {"owner": state.owner} | ({"plan": state.plan} if state.plan else {})
    if record.run:
        fields["run"] = record.run
    return OffsetAndMetadata(0 if state is None else state.batch_id, json.dumps(fields))


def _record_of(position: OffsetAndMetadata | None) -> Record:
    """Return the record that a group offset stores, or an empty record for no offset."""
    if position is None:
        return Record()
    try:
        fields = json.loads(position.metadata)
        run = str(fields.get("run", ""))
        if run and "owner" not in fields:
            return Record(None, run)
        return Record(SinkState(str(fields["owner"]), position.offset, str(fields.get("plan", ""))), run)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Record(SinkState(position.metadata, position.offset))
