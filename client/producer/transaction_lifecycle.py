"""`Transactions`: carries out initialisation, begin, commit and abort of a transactional producer.

It determines the order of these steps. All records are sent and acknowledged before EndTxn is sent. No new batch is
sent while a transaction is being committed or aborted. An abort or a new initialisation waits for the batches in
flight. The states are those of `TransactionManager`; `TransactionCalls` and `Initialisation` send the requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import warnings
from collections.abc import Callable, Collection, Coroutine, Iterator
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ..cluster import Cluster
from ..config import ProducerConfig
from ..errors import AbortableError, ConcurrentProducerCommitError, ConfigError, RetriableError, UnknownPartitionError
from ..validation import partitions_of, positions_of
from ..values import ConsumerAssignment, ConsumerGroupMetadata, GroupAssignment, Offsets
from .accumulator import RecordAccumulator
from .coordinator_client import CoordinatorClient
from .initialisation import SETTING, Initialisation
from .sender import Sender
from .transaction_calls import TransactionCalls
from .transaction_manager import BegunTransaction, Partition, TransactionManager
from .transaction_state import GOES_ON, State

log = logging.getLogger(__name__)


class Transactions:
    """The transactions of a producer, one at a time.

    A call that does not fit the state raises IllegalStateError or, after a failure, the error of the transaction or of
    the producer.
    """

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        accumulator: RecordAccumulator,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self.manager = TransactionManager(config.transactional_id)
        max_block_s = config.max_block_ms / 1000
        coordinators = CoordinatorClient(cluster, self.manager, max_block_s)
        self._calls = TransactionCalls(cluster, self.manager, config.transaction_timeout_ms, max_block_s)
        self._initialisation = Initialisation(config, coordinators, self._calls, self.manager)
        self._config = config
        self._cluster = cluster
        self._accumulator = accumulator
        self._spawn = spawn
        self._sender: Sender
        self.initialises_itself = True
        """Whether an `async with` block may initialise the producer. False once the caller has passed an assignment or
        a group.
        """
        self._registering: asyncio.Task[None] | None = None
        self._sending_offsets: set[asyncio.Future[None]] = set()
        self._deciding: set[asyncio.Future[None]] = set()
        self._aborting: asyncio.Task[None] | None = None
        """An abort that continues without its caller; see `abort_soon`."""
        self._left_behind = False
        """Whether the caller of `abort_soon` has stopped waiting, or other code has cancelled the abort. Then `begin`
        makes sure that the abort succeeds.
        """

    def use(self, sender: Sender) -> None:
        """Set the sender that sends the transaction's batches."""
        self._sender = sender
        sender.on_unregistered = self._register

    def check_send(self, topic: str) -> None:
        """Raise an error unless a record may be sent to the topic now."""
        if self.manager.state is not State.IN_TRANSACTION:
            self.manager.require(State.IN_TRANSACTION, doing="sending")
        if self.manager.allowed is not None:
            self.manager.check_allowed(topic)

    async def init(self, assignment: GroupAssignment | None = None, group_id: str | None = None) -> None:
        """Initialise the producer; implements Producer.init_transactions."""
        manager = self.manager
        plan = self._initialisation.plan(assignment, group_id)
        await self._abort_in_background_is_over()
        manager.check_initialize()
        self.initialises_itself = assignment is None and group_id is None
        await self._decided()
        manager.check_initialize()  # the next transaction may have begun meanwhile
        await self._settle()
        manager.initialize()
        self._forget_records()
        try:
            await self._initialisation.run(plan)
            manager.require(State.INITIALIZING, doing="init_transactions")
            manager.become(State.READY)
        finally:
            if manager.state is State.INITIALIZING:
                manager.become(State.UNINITIALIZED)

    async def begin(
        self, partitions: Collection[tuple[str, int]] | None = None, transaction: BegunTransaction | None = None
    ) -> None:
        """Begin a transaction; implements Producer.begin_transaction.

        `transaction` becomes the manager's current transaction. So the caller can see, after an error, whether its
        transaction was begun.
        """
        manager = self.manager
        await self._abort_in_background_is_over()
        if self._left_behind and manager.state is State.ABORTABLE_ERROR:
            await self.abort()
        self._left_behind = False
        manager.require(State.READY, doing="begin_transaction")
        self._calls.learn_anew()
        if partitions is None:
            manager.begin(None, transaction)
            return
        allowed = partitions_of(partitions)
        await self._know(allowed)
        manager.begin(allowed, transaction)
        self._accumulator.restrict(allowed)
        if manager.version >= 2 and (not manager.extension or allowed <= manager.session):
            return  # batches add their partitions themselves, or the session has them already
        if not allowed:
            return
        try:
            await self._calls.add_partitions(allowed, session=manager.extension)
        except KafkaError as error:
            if manager.state is State.IN_TRANSACTION:
                raise manager.fail_abortable(error.code, error.message) from error
            raise
        except asyncio.CancelledError:
            manager.fail_abortable(ErrorCode.REQUEST_TIMED_OUT, "registering the partitions was cancelled")
            raise

    async def _know(self, partitions: Collection[Partition]) -> None:
        """Load the topics' metadata, so that a record's partition can be chosen and checked when the record is handed
        over.
        """
        max_block_s = self._config.max_block_ms / 1000
        for name in sorted({topic for topic, _ in partitions}):
            highest = max(index for one, index in partitions if one == name)
            topic = await self._cluster.topic(name, max_block_s)
            if highest >= len(topic.partitions):
                with contextlib.suppress(RetriableError):  # then the known metadata decides
                    await self._cluster.refresh([name])  # partitions may have been added
                topic = await self._cluster.topic(name, max_block_s)
            self._accumulator.use_topic(topic)
            if highest >= (count := len(topic.partitions)):
                raise UnknownPartitionError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {name!r} has only partitions 0 to {count - 1}, not {highest}",
                )

    def _group(self, group: ConsumerGroupMetadata | ConsumerAssignment | str | None) -> ConsumerGroupMetadata:
        """Return the group and member for which offsets are committed: the given ones, else those of the last
        initialisation.
        """
        if isinstance(group, str):
            warnings.warn(
                "send_offsets with a group id alone fences no other producer, so a record may be processed twice: pass "
                "consumer.group_metadata(), or set transactional_group_id and pass no group",
                DeprecationWarning,
                stacklevel=4,  # of Producer.send_offsets or Transaction.send_offsets
            )
            return ConsumerGroupMetadata(group)
        if isinstance(group, ConsumerAssignment):
            return group.metadata
        if isinstance(group, ConsumerGroupMetadata):
            return group
        if group is not None:
            raise TypeError(f"{group!r} is not a consumer's group_metadata() or group_assignment()")
        manager = self.manager
        if manager.group is None:
            raise ConfigError(
                "transactional.group.id",
                "send_offsets(offsets) needs the group: set it, or pass the consumer's group_metadata()",
            )
        if not manager.group.member_id and not manager.group_aware:
            aware = manager.extension and self._config.consumer_group_aware_transaction is not False
            if not aware:
                raise ConfigError(
                    "transactional.group.id",
                    "send_offsets(offsets) needs a member id here, because it fences by member and generation"
                    " (KIP-447): call init_transactions(consumer.group_assignment()), or pass the consumer's "
                    "group_metadata() to send_offsets",
                    SETTING,
                )
        return manager.group

    async def send_offsets(
        self,
        offsets: Offsets,
        group_metadata: ConsumerGroupMetadata | ConsumerAssignment | str | None = None,
    ) -> None:
        """Commit offsets in the transaction; implements Producer.send_offsets."""
        manager = self.manager
        manager.require(State.IN_TRANSACTION, doing="send_offsets")
        group, positions = self._group(group_metadata), positions_of(offsets)
        if not positions:
            return
        self._accumulator.close_open_batches()  # the records can be sent at the same time as the offsets
        under_way: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sending_offsets.add(under_way)
        try:
            if manager.version < 2:
                await self._calls.add_offsets(group.group_id)
            await self._calls.commit_offsets(positions, group)
        except KafkaError as error:
            # It is unknown what was written, even after a timeout: the transaction can only be aborted.
            if manager.state in GOES_ON:
                manager.offsets_in_doubt()
                raise manager.fail_abortable(error.code, error.message) from error
            raise
        except asyncio.CancelledError:
            manager.offsets_in_doubt()
            manager.fail_abortable(ErrorCode.REQUEST_TIMED_OUT, "sending offsets was cancelled; they may have arrived")
            raise
        finally:
            self._sending_offsets.discard(under_way)
            under_way.set_result(None)

    async def commit(self) -> None:
        """Commit the transaction; implements Producer.commit_transaction."""
        manager = self.manager
        manager.require(State.IN_TRANSACTION, State.COMMIT_UNKNOWN, doing="commit_transaction")
        transaction, asked_before = manager.current, manager.state is State.COMMIT_UNKNOWN
        with self._decision():
            if not asked_before:
                await self._flush_for_commit()
            manager.become(State.COMMITTING_TRANSACTION)
            if manager.started:
                await self._calls.end(committed=True, asked_before=asked_before)
            transaction.is_committed = True
            if manager.state is State.COMMITTING_TRANSACTION:  # the producer has not failed meanwhile
                self._finish()

    async def _flush_for_commit(self) -> None:
        """Send the last records of the transaction, and wait until its records and offsets are acknowledged."""
        manager, transaction = self.manager, self.manager.current
        manager.become(State.FLUSHING)
        try:
            await self._accumulator.flush()
            await self._offsets_sent()
        except asyncio.CancelledError:
            if manager.current is transaction and manager.state is State.FLUSHING:
                manager.become(State.IN_TRANSACTION)
            raise
        manager.check_same(transaction)  # another task may have aborted it after a failure
        manager.require(State.FLUSHING, doing="commit_transaction")

    async def abort(self) -> None:
        """Abort the transaction; implements Producer.abort_transaction."""
        if self._aborting is not None:
            await self._abort_in_background_is_over()
            if self.manager.state is State.READY:
                return
        self._begin_abort()
        await self._carry_out_abort()

    def abort_soon(self) -> asyncio.Task[None]:
        """Start a task that aborts the transaction, and continues if the caller is cancelled. Return the task. The next
        operation waits for it.
        """
        if self._aborting is None:
            self._begin_abort()
            self._aborting = self._spawn(self._carry_out_abort(), "abort a transaction")
            self._aborting.add_done_callback(self._aborted_in_background)
        return self._aborting

    def leave_abort_behind(self) -> None:
        """Record that no caller waits for `abort_soon`. A failure of the abort is logged, and `begin` aborts again."""
        self._left_behind = True

    @property
    def cancel_grace_ms(self) -> int:
        """Milliseconds for which a cancelled block waits for its abort."""
        return self._config.cancel_grace_ms

    def _aborted_in_background(self, task: asyncio.Task[None]) -> None:
        self._aborting = None
        if task.cancelled():  # by other code
            self._left_behind = True
            if self.manager.state is State.ABORTING_TRANSACTION:  # the task has never run
                self.manager.become(State.ABORTABLE_ERROR)
        elif (failure := task.exception()) is not None and self._left_behind:
            log.warning(
                "a transaction could not be aborted; the abort is repeated before the next transaction: %s", failure
            )

    async def _abort_in_background_is_over(self) -> None:
        if self._aborting is not None:
            await asyncio.wait({self._aborting})

    def _begin_abort(self) -> None:
        self.manager.require(State.IN_TRANSACTION, State.ABORTABLE_ERROR, doing="abort_transaction")
        self.manager.become(State.ABORTING_TRANSACTION)

    async def _carry_out_abort(self) -> None:
        manager = self.manager
        with self._decision():
            try:
                await self._settle()
                if manager.started and manager.state is State.ABORTING_TRANSACTION:
                    await self._calls.end(committed=False)
                    manager.started = False  # so that a second abort sends no EndTxn: the old epoch may be fenced
                if manager.epoch_bump_needed and manager.state is State.ABORTING_TRANSACTION:
                    await self._calls.init_producer_id(bump_epoch=True)
            except BaseException:
                if manager.state is State.ABORTING_TRANSACTION:
                    manager.become(State.ABORTABLE_ERROR)
                raise
            manager.require(State.ABORTING_TRANSACTION, doing="abort_transaction")
            self._finish()

    async def abandon(self, timeout_s: float | None = None) -> None:
        """Wait for a commit or abort under way, then abort an open transaction, because the producer is being closed.

        Does as much as possible within the timeout, and raises nothing.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._abort_in_background_is_over()
                await self._decided()
                if self.manager.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
                    await self.abort()
                elif isinstance(self.manager.error, ConcurrentProducerCommitError) and self.manager.started:
                    # Its offsets were refused, but the producer may not be fenced: then only this producer ends its
                    # transaction.
                    await self._settle()
                    await self._calls.end(committed=False)
        except (KafkaError, TimeoutError) as error:
            why = str(error) or "no time is left"
            log.warning("the open transaction could not be aborted; its timeout will abort it: %s", why)
        self._give_up_records()

    @contextlib.contextmanager
    def _decision(self) -> Iterator[None]:
        """Mark the block as a commit or abort under way, for which `_decided` waits."""
        under_way: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deciding.add(under_way)
        try:
            yield
        finally:
            self._deciding.discard(under_way)
            under_way.set_result(None)

    async def _decided(self) -> None:
        """Wait until no commit or abort is under way. The state does not show this, because the producer may fail
        during EndTxn.
        """
        while self._deciding:
            await asyncio.wait(set(self._deciding))

    async def _settle(self) -> None:
        """Give up unsent records, and wait for everything that was sent."""
        self._give_up_records()
        await self._accumulator.flush()
        await self._sender.drain()  # even given-up batches: if written later, they would outlive the transaction
        if self._registering is not None:
            await asyncio.wait({self._registering})
        await self._offsets_sent()

    async def _offsets_sent(self) -> None:
        """Wait for offsets that another task is sending, because the commit or abort applies to them as well."""
        while self._sending_offsets:
            await asyncio.wait(set(self._sending_offsets))

    def _finish(self) -> None:
        self.manager.finished()
        self._forget_records()

    def _forget_records(self) -> None:
        self._accumulator.restrict(None)
        self._accumulator.unobserved_failures.clear()  # their transaction was aborted, and the caller knows that

    def _give_up_records(self) -> None:
        error = AbortableError(
            ErrorCode.TRANSACTION_ABORTABLE, "the transaction was aborted before the record was sent"
        )
        if self._accumulator.drop_all_unplaced(error):
            self.manager.batch_failed(error)
        self._sender.abort_unsent(error)

    # -- adding partitions (transaction.version 1)

    def _register(self) -> None:
        # After a failure of the transaction, unregistered partitions stay as they are until the abort.
        if self._registering is None and self.manager.state in GOES_ON:
            self._registering = self._spawn(self._add_partitions(), "add partitions to the transaction")
            self._registering.add_done_callback(self._registered)

    def _registered(self, task: asyncio.Task[None]) -> None:
        """Record that a registration has ended. This is a done callback of the registration's task, because a task that
        is cancelled early never runs its own code.
        """
        self._registering = None
        self._sender.wake()

    async def _add_partitions(self) -> None:
        manager = self.manager
        try:
            while manager.unregistered and manager.state in GOES_ON:
                await self._calls.add_partitions(set(manager.unregistered))
                self._sender.wake()
        except KafkaError as error:
            if manager.state in GOES_ON:
                manager.fail_abortable(error.code, error.message)
