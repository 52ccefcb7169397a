"""Provide `format("oncelog")` as a sink: Spark's writers for streams and batches. `SinkTransaction` does the work in
Kafka.

Spark runs a writer in several processes. The first one, on the driver's machine, plans a batch: the writer begins the
transaction and is pickled. Then each task writes its rows. A last process, on the driver's machine again, commits or
aborts. For a batch write, this process has the pickled writer. For a stream, it has a new writer and only the tasks'
messages.

A task that cannot write its rows aborts the transaction, and returns the reason in its message instead of raising it.
The commit raises the reason. If the task raised it, Spark would start further attempts of the task, which must not
write, and would report their errors instead.

Invariants: only the first attempt of a task writes. A commit happens only if no task has failed, and if no partition
was written by several tasks. After any failure the transaction is aborted at once.
"""

from __future__ import annotations

import contextlib
import logging
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ...client.errors import ConfigError, IllegalStateError, ProducerFencedError
from ...client.values import TopicPartition
from ...protocol.errors import ErrorCode, KafkaError
from ..arrow.encoder import encode
from ..blocking import BlockingCluster
from ..python_worker import freeze_gc_once
from . import attempts
from .checkpoint import LocalNotes, done_and_pending, local_path, planned_at, recent_plans
from .expiry import state_expires_after_s
from .ownership import FIRST_BATCH, StateError
from .partition_counts import partition_counts
from .produce import TransactionProducer, Written
from .rows import RowError, grouped
from .settings import SinkSettings
from .transaction import Attempt, Record, SinkState, SinkTransaction, SupersededError, TakenOverError

log = logging.getLogger(__name__)

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"

_NOT_OPEN: Final = (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
"""The codes with which brokers refuse a batch after the end of the transaction, with transaction.version 1."""


class RetriedTaskError(RuntimeError):
    """Spark is running a task for the second time. The records of the first attempt cannot be removed separately."""


class TaskFailedError(RuntimeError):
    """A task could not write its rows. The message ends with the error of the task, as Python prints it."""

    def __init__(self, task: int, failure: str) -> None:
        super().__init__(f"task {task} has failed, and the batch is aborted:\n{failure}")


class PartitionConflictError(KafkaError):
    """Several tasks wrote to one Kafka partition."""

    def __init__(self, partition: TopicPartition, tasks: Sequence[int]) -> None:
        numbers = [str(task) for task in sorted(set(tasks))]
        who = f"tasks {' and '.join(numbers)}" if len(numbers) > 1 else f"task {numbers[0]} and an earlier attempt"
        super().__init__(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"{partition} was written by {who}: within a transaction, one task must write all of a Kafka partition. "
            "Use oncelog.pipeline.write_stream(df, options) or write(df, options), which repartition for you, or give "
            "the frame one task: df.coalesce(1). The batch is aborted",
        )


class _BatchCounts:
    """The number of partitions of each topic in a batch. A topic that was created later is looked up."""

    def __init__(self, decided: Mapping[str, int], kafka: BlockingCluster) -> None:
        self._decided = decided
        self._kafka = kafka

    def __call__(self, topic: str) -> int:
        """Return the number of partitions among which rows without a partition are distributed."""
        return self._decided.get(topic) or self._known(topic)

    def existing(self, topic: str, named: int) -> int:
        """Return the topic's number of partitions. If the partition `named` is not known, ask the cluster again."""
        if named >= self._known(topic):
            self._kafka.run(self._kafka.cluster.refresh([topic]))
        return self._known(topic)

    def _known(self, topic: str) -> int:
        return len(self._kafka.run(self._kafka.cluster.topic(topic, self._kafka.timeout_s)).partitions)


@dataclass
class TaskWritten(WriterCommitMessage):
    """The message that a task sends to the commit."""

    attempt: Attempt
    task: int
    owner: str
    batch_id: int
    plan: str = ""
    skipped: bool = False
    written: dict[TopicPartition, Written] = field(default_factory=dict)
    failure: str = ""
    """Why the task has failed: its error and traceback, as text. Empty if the task has succeeded."""
    transaction_ended: bool = False
    """Whether the task has failed because another task's abort, or another producer, had ended the transaction."""


class _Writer:
    """Base class of the batch writer and the streaming writer."""

    def __init__(self, settings: SinkSettings) -> None:
        self.settings = settings
        self.attempt: Attempt | None = None
        self.counts: dict[str, int] = {}
        """The number of partitions of each topic when the batch began. All tasks distribute rows by these numbers."""
        self.plans: dict[int, str] = {}
        """Digests of the newest plans, by batch."""

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles a writer several times in a row when it sends the writer to the tasks. A batch begins when the
        # writer is pickled for the first time.
        if self.attempt is None:
            settings = self.settings
            with settings.open() as kafka:
                attempt = self._begun(kafka)
                self.counts = kafka.run(partition_counts(kafka.cluster, settings.topic, kafka.timeout_s))
            attempts.remember(attempt)
            if settings.plan and settings.batch_id is not None:
                self.plans = {settings.batch_id: settings.plan}
            else:
                self.plans = {plan.batch_id: plan.digest for plan in recent_plans(settings.checkpoint)}
            self.attempt = attempt
        return self.__dict__

    def _begun(self, kafka: BlockingCluster) -> Attempt:
        """Begin the transaction of a batch as the owner of the query. Raises KafkaError."""
        settings = self.settings
        name, topic = settings.transactional_id, settings.state_topic
        transaction = SinkTransaction(kafka.cluster, settings.config)
        if not settings.streaming:
            return kafka.run(transaction.begin(name, topic, settings.run))
        mine = attempts.last_run(name)
        # Without `write_stream`, the driver has one run, which begins with its first batch.
        run = settings.run or mine or self._claimed(kafka, transaction)
        try:
            attempt = kafka.run(transaction.begin(name, topic, run))
            if attempt.state is None and run == mine and (state := attempts.last_decided(name)) is not None:
                # The state expired because nothing was written for long, but this run knows what it has committed.
                attempt = kafka.run(transaction.renew(attempt, state))
        except SupersededError:
            attempts.forget(name)
            raise
        return attempt

    def _claimed(self, kafka: BlockingCluster, transaction: SinkTransaction) -> str:
        """Make this driver the owner of the query, and return the new run.

        Raises StateError if Kafka has no record of the query, although its first batch may have been committed.
        """
        uncertain = self._may_have_expired(kafka)

        def allow(record: Record) -> None:
            if uncertain and record == Record():
                raise StateError(FIRST_BATCH)

        return kafka.run(transaction.claim(self.settings.transactional_id, self.settings.state_topic, allow=allow))

    def _may_have_expired(self, kafka: BlockingCluster) -> bool:
        """Return whether an earlier driver planned batch 0 so long ago that the state of its commit may have expired.

        A plan that this driver made does not count. Every new query has one, because Spark plans batch 0 before it asks
        for a writer.
        """
        path = local_path(self.settings.checkpoint)
        if self.settings.adopt or path is None:
            return False
        notes = LocalNotes(path)
        try:
            if done_and_pending(notes) != (None, 0):
                return False
            planned, started = planned_at(notes, 0), attempts.driver_started_at()
        except OSError as error:
            raise ConfigError("checkpointLocation", str(error)) from error
        if planned is None or started is None or planned >= started:
            return False
        return time.time() - planned >= kafka.run(state_expires_after_s(kafka.cluster))

    # -- in a task

    def plan_of(self, batch_id: int) -> str:
        """Return the digest that distinguishes this batch's plan from other plans of the same number, or "" if it is
        unknown.
        """
        return self.plans.get(batch_id, "")

    def is_committed(self, query: str, batch_id: int) -> bool:
        """Return whether an earlier driver has committed the batch already. Raises StateError if that is unknown.

        An earlier driver may have died before Spark noted the batch as done.
        """
        assert self.attempt is not None
        state, plan = self.attempt.state, self.plan_of(batch_id)
        if not plan:
            raise StateError(
                f"Spark's plan of batch {batch_id} in {self.settings.checkpoint}/offsets cannot be read from the "
                "process that plans the batch. Without the plan, the sink cannot distinguish a batch that Spark plans "
                "again from the committed one. Use oncelog.pipeline.write_stream(df, options), which reads the plan "
                "through Spark's file system, or a checkpointLocation on the driver's disk"
            )
        if state is not None and state.owner == query:
            if state.batch_id > batch_id or (state.batch_id == batch_id and plan != state.plan):
                raise StateError(self._contradiction(batch_id, state))
            if state.batch_id == batch_id:
                return True
        if self._is_new(query, batch_id) or self.settings.adopt:
            return False
        if state is not None and state.owner == query:
            raise StateError(
                f"batch {batch_id} is to be written, but the last batch committed with this transactional id is "
                f"{state.batch_id}: the batches between them were written by another sink, or with another "
                "transactionalId, and it is unknown whether this batch was written as well. Check what was written "
                "last. To write the batch, set adoptQuery=true for one start, and remove the option afterwards"
            )
        found = "" if state is None else f", only of query {state.owner}"
        raise StateError(
            f"the checkpoint is at batch {batch_id}, but Kafka has no state of this query{found}, so it is "
            "unknown whether that batch is committed. Either the query was stopped for longer than the broker's "
            "offsets.retention.minutes, and its state has expired, or the checkpoint belonged to another sink. Check "
            "what was written last. To write the batch, set adoptQuery=true for one start, and remove the option "
            "afterwards"
        )

    def _is_new(self, query: str, batch_id: int) -> bool:
        """Return whether it is certain that no earlier driver has committed the batch."""
        assert self.attempt is not None
        state = self.attempt.state
        if state is not None and state.owner != query:
            return batch_id == 0
        if state is not None and state.batch_id == batch_id - 1:
            return True
        # If `done` is set, all planned batches were done when the driver started, so the batch after `done` was planned
        # later.
        return batch_id == 0 if self.settings.done is None else batch_id == self.settings.done + 1

    @staticmethod
    def _contradiction(batch_id: int, state: SinkState) -> str:
        """Return the message for a batch that contradicts the committed state."""
        if state.batch_id == batch_id and not state.plan:
            return (
                f"batch {batch_id} is to be written, but a batch with this number is committed, and it is unknown "
                "whether it has the same rows. Check what was written last, then use a new checkpoint with "
                "startingOffsets"
            )
        which = "another batch" if state.batch_id == batch_id else "batch"
        return (
            f"batch {batch_id} is to be written, but {which} {state.batch_id} of this query is committed: the "
            "checkpoint is older than what was written. It may be a restored copy, or its disk lost data. Use "
            "the newest checkpoint, or a new one with startingOffsets. If another driver of this query ran while this "
            "one started, start this one again"
        )

    def write_rows(self, batches: Iterator[pa.RecordBatch], owner: str, batch_id: int) -> TaskWritten:
        """Write the rows of one task, unless the batch is committed, and return the task's message for the commit.

        A KafkaError or RowError is returned as the message's failure. Raises the errors of `batches`, and
        RetriedTaskError if this is not the task's first attempt.
        """
        attempt, context = self.attempt, TaskContext.get()
        assert attempt is not None
        assert context is not None
        message = TaskWritten(attempt, context.partitionId(), owner, batch_id, self.plan_of(batch_id))
        try:
            message.skipped = self.is_committed(owner, batch_id)
            if not message.skipped:
                self._check_first_attempt(context)
                message.written = self._produce(batches, attempt, context.partitionId())
        except (KafkaError, RowError) as error:
            taken_over = isinstance(error, TakenOverError)
            message.failure = traceback.format_exc()
            message.transaction_ended = taken_over or (isinstance(error, KafkaError) and error.code in _NOT_OPEN)
            if not taken_over:
                self._stop_other_tasks(attempt)
        return message

    @staticmethod
    def _check_first_attempt(context: TaskContext) -> None:
        """Raise RetriedTaskError if Spark is running the task again."""
        if context.attemptNumber():
            raise RetriedTaskError(
                f"Task {context.partitionId()}: Spark has started attempt {context.attemptNumber()}, because attempt 0 "
                "has failed or is still running (spark.speculation must be false). The records of attempt 0 cannot be "
                "removed separately, so the batch is aborted. The log of attempt 0 has the reason. Restart the query: "
                "it continues with this batch"
            )

    def _stop_other_tasks(self, attempt: Attempt) -> None:
        """Abort the transaction, which fences the other tasks. If the abort fails, the driver repeats it later."""
        with contextlib.suppress(KafkaError), self.settings.open() as kafka:
            kafka.run(SinkTransaction(kafka.cluster, self.settings.config).abort(attempt))

    def _produce(self, batches: Iterator[pa.RecordBatch], attempt: Attempt, task: int) -> dict[TopicPartition, Written]:
        """Write the rows of one task within the attempt's transaction. Return what was written to each partition."""
        settings = self.settings
        freeze_gc_once()
        first = next(batches, None)
        if first is None:
            return {}
        with settings.open() as kafka:
            producer = TransactionProducer(kafka.cluster, attempt, settings.config, lambda: int(time.time() * 1000))

            counts = _BatchCounts(self.counts, kafka)
            try:
                batch: pa.RecordBatch | None = first
                while batch is not None:
                    rows = list(grouped(batch, settings.topic, settings.headers, counts, task))
                    payloads = (
                        (one.partition, payload)
                        for one in rows
                        for payload in encode(one.key, one.value, one.headers, settings.config.batch_size)
                    )
                    kafka.run(producer.open(one.partition for one in rows))
                    kafka.run(producer.write(payloads))
                    batch = next(batches, None)
                return kafka.run(producer.finish())
            except ProducerFencedError as error:
                raise SinkTransaction(kafka.cluster, settings.config).explained(attempt) from error
            finally:
                kafka.run(producer.close())

    # -- in the driver's Python process

    def decide(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Commit the batch. If this method raises, Spark calls `abort`."""
        done = [one for one in messages if isinstance(one, TaskWritten)]
        if failed := sorted((one for one in done if one.failure), key=lambda one: one.transaction_ended):
            raise TaskFailedError(failed[0].task, failed[0].failure)
        wanted = (done[0].attempt, batch_id, done[0].skipped) if done else None
        if len(done) != len(messages) or any((one.attempt, one.batch_id, one.skipped) != wanted for one in done):
            raise IllegalStateError(f"batch {batch_id}: Spark returned messages of another attempt: restart the query")
        if not done or done[0].skipped:
            self._decided(done[0].attempt.state if done else None)
            return
        first = done[0]
        state = SinkState(first.owner, batch_id, first.plan)
        written = _by_partition(done)
        with self.settings.open() as kafka:
            transaction = SinkTransaction(kafka.cluster, self.settings.config)
            kafka.run(transaction.commit(first.attempt, written, state))
        self._decided(state)

    def give_up(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort the transaction at once, because readers wait for it."""
        known = [one.attempt for one in messages if isinstance(one, TaskWritten)]
        attempt = known[0] if known else self.attempt or attempts.recall(self.settings.transactional_id)
        if attempt is None:
            log.warning(
                "%s: it is not known which transaction the batch has begun, so none is aborted. If one is open, readers"
                " wait until its timeout; `oncelog txn fence %s` ends it now",
                self.settings.transactional_id,
                self.settings.transactional_id,
            )
            return
        with self.settings.open() as kafka:
            kafka.run(SinkTransaction(kafka.cluster, self.settings.config).abort(attempt))
        self._decided(None)

    def _decided(self, state: SinkState | None) -> None:
        """Store that the attempt has ended. `state` is the committed state, or None if it has not changed."""
        if self.settings.streaming:
            attempts.decided(self.settings.transactional_id, state)
        else:
            attempts.forget(self.settings.transactional_id)


def _by_partition(done: Sequence[TaskWritten]) -> dict[TopicPartition, int]:
    """Return the task that wrote each partition. Raises PartitionConflictError."""
    writers: dict[TopicPartition, list[int]] = {}
    for one in done:
        for partition in one.written:
            writers.setdefault(partition, []).append(one.task)
    for partition, tasks in sorted(writers.items()):
        if len(tasks) > 1 or any(one.written[partition].conflict for one in done if partition in one.written):
            raise PartitionConflictError(partition, tasks)
    return {partition: tasks[0] for partition, tasks in writers.items()}


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """A writer with one transaction per micro-batch."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        context = TaskContext.get()
        assert context is not None
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        assert query is not None
        assert batch is not None
        return self.write_rows(iterator, query, int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the batch and its number."""
        self.decide(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort the batch."""
        self.give_up(messages)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """A writer with one transaction for the whole write."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        settings = self.settings
        if settings.query and settings.batch_id is not None:
            return self.write_rows(iterator, settings.query, settings.batch_id)
        return self.write_rows(iterator, settings.write, 0)

    def is_committed(self, query: str, batch_id: int) -> bool:
        """Return whether the batch of a stream, or a write with the same writeId, has been committed already."""
        if self.settings.query:
            return super().is_committed(query, batch_id)
        assert self.attempt is not None
        state = self.attempt.state
        return bool(self.settings.write_id) and state is not None and state.owner == query

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the write."""
        self.decide(messages, self.settings.batch_id or 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the write."""
        self.give_up(messages)
