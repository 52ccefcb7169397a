"""`Worker`: a worker of a processor, with a consumer and producers. It determines the order of their steps.

* After every rebalance the producers are initialised first, which ends open transactions of other producers on these
  partitions. Then the worker reads the committed offsets, and waits for transactions that commit offsets and have not
  ended. Only then is the first fetch sent. Records of earlier fetches are dropped.
* A batch is gathered before its transaction begins. Partitions are given up only while a batch is gathered, so no
  transaction is open then. Gathered records of these partitions are dropped.
* A rebalance that begins while an async function runs cancels the function and aborts the transaction, because the
  group does not wait for the function. A rebalance that begins later, or while a plain function runs, does not stop
  the commit. If the member is outdated by then, the coordinator refuses its offsets, and with them the whole
  transaction (KIP-447).
* After a transaction that is not known to be committed, the positions go back to the committed offsets, and buffered
  records are dropped. A producer that is not known to be clean aborts its open transaction. If that fails, the producer
  is initialised again, which ends the transaction as well.

Temporary failures (brokers restarting, rebalances, aborts) are retried without limit. An output topic or partition that
does not exist is waited for, for max.block.ms. An exception in the function ends `run()`, unless the processor has a
dead-letter topic.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Coroutine
from typing import Any, Final

from ...protocol.errors import ErrorCode, KafkaError
from ..backoff import ExponentialBackoff
from ..cancellation import ClosingBound, grace_s, is_cancelling
from ..config import ProducerConfig
from ..consumer import Consumer, ConsumerRecord, RebalanceInProgressError, RebalanceListener
from ..errors import (
    AbortableError,
    CommitUnknownError,
    IllegalGenerationError,
    IllegalStateError,
    RecordTooLargeError,
    UnknownTopicError,
)
from ..producer import Producer
from ..values import ConsumerAssignment, ConsumerGroupMetadata, TopicPartition
from .batch import Batch
from .dead_letters import Isolation, is_poison, is_too_large
from .failures import MAX_HOPELESS, FailurePolicy
from .initial_offsets import InitialOffsets
from .metrics import Metrics
from .options import Process, ProcessorOptions
from .owned_producer import OwnedProducer
from .producers import GroupAwareProducer, PartitionProducers, WorkerProducers
from .transaction import ProcessorTransaction

log = logging.getLogger(__name__)

IDLE_POLL_MS: Final = 1000


class _Poisoned(Exception):
    """A record of the aborted batch is at fault; the worker now searches for this record."""


class Worker(RebalanceListener):
    """One worker of a processor. Call `start`, `run` and `close`, in this order. `run` may be called again after a
    failure.
    """

    def __init__(self, options: ProcessorOptions, metrics: Metrics) -> None:
        self._options = options
        self._consumer = Consumer(
            options.consumer_settings, topics=options.topics, pattern=options.pattern, listener=self
        )
        kind = GroupAwareProducer if options.group_aware else PartitionProducers
        self._producers: WorkerProducers = kind(options, metrics)
        self._initial_offsets = InitialOffsets(self._consumer)
        self._isolation = Isolation(options.max_batch_records)
        self._failures = FailurePolicy(ProducerConfig.of(options.producer_settings).max_block_ms / 1000)
        self._backoff = ExponentialBackoff(self._consumer.config.retry_backoff_ms, 1000)
        self._batch = Batch()
        self._owned: ConsumerAssignment | None = None
        """The assignment for which the producers were initialised. Offsets are committed with its generation."""
        self._dirty = True
        """Whether `_recover` must run before records are processed."""
        self._outdated = False
        """Whether the current assignment was refused, so that a new assignment is needed."""
        self._stopping = asyncio.Event()
        self._metrics = metrics

    async def start(self) -> None:
        """Connect to the cluster. Raises KafkaTimeoutError if that takes too long."""
        try:
            await self._producers.start()
            await self._consumer.start()
        except BaseException:
            await self._producers.close()
            raise

    async def close(self, error: BaseException | None = None) -> None:
        """Abort open transactions, then give up the partitions and leave the group.

        If `error` is a cancellation, or if closing is cancelled, wait for the broker for cancel.grace.ms at most.
        """
        bound = ClosingBound(self._consumer.config, grace_s(self._consumer.config, error))
        try:
            with bound:
                await self._producers.close(bound.left_s())
        finally:
            await self._consumer.close(commit=False, timeout_s=bound.left_s())

    def stop(self) -> None:
        """Finish the open transaction and make `run()` return."""
        self._stopping.set()
        self._consumer.wakeup()

    async def run(self) -> None:
        """Process records until `stop()`; see Processor.run."""
        failures = 0
        try:
            while not self._stopping.is_set():
                try:
                    if self._dirty:
                        assignment = self._assignment()
                        if assignment is not None and not await self._unless_stopped(self._recover(assignment)):
                            break
                    await self._gather()
                    if self._batch.records:
                        await self._transact()
                    failures = 0
                except _Poisoned as found:
                    log.warning(
                        "a record of a batch cannot be processed: %r. The batch is processed again in smaller parts, to"
                        " find this record",
                        found.__cause__,
                    )
                    self._go_back()
                except KafkaError as error:
                    now = asyncio.get_running_loop().time()
                    self._failures.judge(error, now, producers_clean=self._producers.clean)
                    log.warning("the current transaction is given up; going back to the committed offsets: %s", error)
                    self._go_back()
                    await self._unless_stopped(asyncio.sleep(self._backoff(failures)))
                    failures += 1
        except BaseException as error:
            # Another run() starts from the committed offsets: gathered records and open transactions may be incomplete.
            self._go_back()
            if isinstance(error, asyncio.CancelledError) and not is_cancelling():
                raise RuntimeError("a step of the processor was cancelled, although run() was not") from error
            raise

    def _go_back(self) -> None:
        self._batch, self._dirty = Batch(), True

    # -- gathering

    async def _gather(self) -> None:
        """Fill the batch. It stays empty if no records arrive for some time, or if a rebalance ends meanwhile."""
        consumer, batch, isolation = self._consumer, self._batch, self._isolation
        loop = asyncio.get_running_loop()
        end: float | None = None
        while not self._stopping.is_set() and len(batch.records) < isolation.limit:
            wait_ms = IDLE_POLL_MS if end is None else (end - loop.time()) * 1000
            if wait_ms < 0:
                break
            only = isolation.partitions
            arrived = await consumer.getmany(wait_ms, isolation.limit - len(batch.records), only)
            if self._dirty:
                self._batch = Batch()  # the records were read before the producers were initialised
                return
            if self._batch is not batch:
                raise AssertionError("the batch was replaced while it was filled")
            for partition, records in arrived.items():
                batch.add(partition, records, consumer.consumed_offset(partition))
            await self._initial_offsets.commit(arrived)
            if end is None:
                if not arrived:
                    if only:
                        isolation.waited([one for one in only if await self._is_read(one)])
                    break
                end = loop.time() + self._options.max_batch_s

    async def _is_read(self, partition: TopicPartition) -> bool:
        """Return whether all records of a partition that can be read now have been gathered."""
        try:
            self._consumer.consumed_offset(partition)
            return not await self._consumer.lag(partition)
        except (IllegalStateError, UnknownTopicError):  # its position is still being looked up, or it was deleted
            return False

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        self._metrics.rebalances += 1
        self._dirty, self._outdated = True, False
        self._consumer.wakeup()

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        self._batch.drop(partitions)
        self._isolation.drop(partitions)
        self._initial_offsets.drop(partitions)

    # -- the transactions

    async def _transact(self) -> None:
        """Process and commit the batch: in one transaction, or in one per partition, all at the same time."""
        batch, assignment = self._batch, self._owned
        if assignment is None or self._assignment() != assignment:
            raise AbortableError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                "the assignment has changed: the records that are not committed are dropped",
            )
        # A concurrent rebalance drops gathered records and their offsets. If the records were committed without the
        # offsets, they would be processed twice.
        batch = batch.copy()
        group = assignment.metadata
        rebalance = asyncio.ensure_future(self._consumer.until_rebalance())
        tasks = [
            asyncio.ensure_future(self._transact_share(owned, part, group, rebalance))
            for owned, part in self._producers.shares(batch)
        ]
        try:
            await asyncio.wait(tasks)
        finally:
            for task in (rebalance, *tasks):
                task.cancel()
            outcomes = await asyncio.gather(rebalance, *tasks, return_exceptions=True)
        failures = [outcome for outcome in outcomes[1:] if isinstance(outcome, BaseException)]
        # Errors that end run() come first; going back to the committed offsets corrects the others.
        for kind in (asyncio.CancelledError, Exception):
            for failure in failures:
                if isinstance(failure, kind) and not isinstance(failure, KafkaError | _Poisoned):
                    raise failure
        if failures:
            raise failures[0]
        self._batch = Batch()

    async def _transact_share(
        self, owned: OwnedProducer, batch: Batch, group: ConsumerGroupMetadata, rebalance: asyncio.Future[None]
    ) -> None:
        try:
            await self._one_transaction(owned, batch, group, rebalance, self._options.process)
        except Exception as error:
            if self._options.dead_letter_topic is None or not is_poison(error):
                raise
            if not owned.clean:
                await owned.abort()
            if not owned.clean or len(batch.records) > 1:
                self._isolation.failed(batch)
                raise _Poisoned from error
            await self._bury(owned, batch, group, rebalance, error)
        if self._options.on_progress is not None:  # outside of the try block: its errors are not caused by records
            self._options.on_progress(self._metrics)

    async def _bury(
        self,
        owned: OwnedProducer,
        batch: Batch,
        group: ConsumerGroupMetadata,
        rebalance: asyncio.Future[None],
        culprit: Exception,
    ) -> None:
        """Send the batch's only record to the dead-letter topic. If the topic's limit refuses the record, send it
        again without headers about the error.

        Raises RecordTooLargeError if the topic refuses that as well, because skipping the record would lose it.
        """

        async def attempt(brief: bool) -> None:
            def bury(records: list[ConsumerRecord], transaction: ProcessorTransaction[Any, Any]) -> None:
                transaction.dead_letter(records[0], culprit, brief=brief)

            await self._one_transaction(owned, batch, group, rebalance, bury)

        try:
            return await attempt(brief=False)
        except KafkaError as error:
            if not is_too_large(error):
                raise
            await owned.abort()
            if not owned.clean:
                self._isolation.failed(batch)
                raise _Poisoned from culprit
        try:
            await attempt(brief=True)
        except KafkaError as error:
            if not is_too_large(error):
                raise
            record = batch.records[0]
            raise RecordTooLargeError(
                error.code,
                f"the dead letter of {record.topic_partition} at offset {record.offset} exceeds max.request.size of the"
                f" producer or max.message.bytes of topic {self._options.dead_letter_topic!r}, even without headers "
                f"about the error: {error.message}",
            ) from error

    async def _one_transaction(
        self,
        owned: OwnedProducer,
        batch: Batch,
        group: ConsumerGroupMetadata,
        rebalance: asyncio.Future[None],
        process: Process[Any, Any, Any, Any],
    ) -> None:
        """Run the function, and commit the records that it sends and the batch's offsets in one transaction."""
        producer = owned.producer
        await producer.begin_transaction()
        owned.clean = False
        transaction = ProcessorTransaction[Any, Any](producer, self._options.dead_letter_topic, self._options.serialize)
        try:
            await self._call(process, batch, transaction, rebalance)
            await transaction.finish()
        except KafkaError:
            raise
        except BaseException as error:
            await owned.abort(error)
            raise
        finally:
            transaction.close()
        await self._commit(owned, batch, group)
        owned.clean = True
        self._isolation.passed(batch)
        self._failures.succeeded()
        metrics = self._metrics
        metrics.commits += 1
        metrics.records_in += len(batch.records)
        metrics.records_out += transaction.records - transaction.dead_letters
        metrics.dead_letters += transaction.dead_letters

    async def _call(
        self,
        process: Process[Any, Any, Any, Any],
        batch: Batch,
        transaction: ProcessorTransaction[Any, Any],
        rebalance: asyncio.Future[None],
    ) -> None:
        """Run the function. If it is async, cancel it when the group rebalances."""
        try:
            await self._run_function(process, batch, transaction, rebalance)
        except KafkaError:
            raise
        except Exception as error:
            error.add_note(f"while processing {batch.describe()}")
            raise

    async def _run_function(
        self,
        process: Process[Any, Any, Any, Any],
        batch: Batch,
        transaction: ProcessorTransaction[Any, Any],
        rebalance: asyncio.Future[None],
    ) -> None:
        try:
            # A copy, because the function may change its list.
            result = process(list(batch.records), transaction)
            if not inspect.isawaitable(result):
                return _require_run(process, result)
            running = asyncio.ensure_future(result)
            try:
                await asyncio.wait({running, rebalance}, return_when=asyncio.FIRST_COMPLETED)
                if running.done():
                    return _require_run(process, running.result())
            finally:
                if not running.done():
                    running.cancel()
                    await asyncio.gather(running, return_exceptions=True)
        except asyncio.CancelledError as error:
            if is_cancelling():
                raise
            raise RuntimeError("the function raised CancelledError, although run() was not cancelled") from error
        raise AbortableError(ErrorCode.REBALANCE_IN_PROGRESS, "the group rebalances in the middle of the transaction")

    async def _commit(self, owned: OwnedProducer, batch: Batch, group: ConsumerGroupMetadata) -> None:
        self._check_topics(batch)
        producer = owned.producer
        try:
            await producer.send_offsets_to_transaction(dict(batch.offsets), group)
            await self._commit_known(producer)
        except asyncio.CancelledError as cancelled:
            await owned.abort(cancelled)
            raise

    def _check_topics(self, batch: Batch) -> None:
        """Raise AbortableError if a topic of the batch is known to have been deleted and created again.

        In the new topic, the batch's offsets would skip records. oncelog's coordinator refuses such offsets, but Apache
        Kafka's does not.
        """
        for partition, position in batch.offsets.items():
            if self._consumer.is_recreated(partition.topic, position.topic_id):
                raise AbortableError(
                    ErrorCode.UNKNOWN_TOPIC_ID,
                    f"topic {partition.topic} was deleted and created again while its records were processed",
                )

    async def _commit_known(self, producer: Producer) -> None:
        attempt = 0
        while True:
            try:
                return await producer.commit_transaction()
            except CommitUnknownError as error:
                # Only the coordinator knows the result. A new initialisation would end the transaction, too.
                if attempt >= MAX_HOPELESS:
                    raise
                log.warning("the result of a commit is not known yet; asking again: %s", error.message)
                await asyncio.sleep(self._backoff(attempt))
                attempt += 1

    # -- after a failure, and after a rebalance

    def _assignment(self) -> ConsumerAssignment | None:
        """Return the group's current assignment, or None if the consumer must first poll to get a new one."""
        if self._outdated:
            return None
        try:
            return self._consumer.group_assignment()
        except RebalanceInProgressError:
            return None

    async def _recover(self, assignment: ConsumerAssignment) -> None:
        """Make the producers own the assignment, and set the positions to the committed offsets."""
        try:
            if assignment == self._owned:
                await self._producers.recover(assignment)
            else:
                self._owned = None
                await self._producers.initialise(assignment)
                self._owned = assignment
        except IllegalGenerationError:
            self._outdated = True
            self._consumer.enforce_rebalance("the assignment's generation has ended")
            raise
        self._batch = Batch()
        self._consumer.forget_positions()
        self._initial_offsets.restore()
        self._dirty = False

    async def _unless_stopped(self, work: Coroutine[None, None, None]) -> bool:
        """Await work that may take long while brokers are unavailable. Return False if `stop` ended it."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                return False
            task.result()
            return True
        finally:
            task.cancel()
            stopped.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)


def _require_run(process: Process[Any, Any, Any, Any], result: object) -> None:
    """Raise TypeError for a generator, whose body would never run although its records would count as processed."""
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        if inspect.isgenerator(result):
            result.close()
        raise TypeError(
            f"process function {process!r:.100} returned a generator, whose body would never run: send with "
            "transaction.send, without yield; or pass a function of one record as transform"
        )
