"""`TransactionManager`: a transactional producer's state and identity, its transaction's partitions, and its error.

It owns the producer id and epoch, the state (table in `transaction_state.py`), the partitions that the coordinator
knows as part of the transaction, and the partitions that were written. It also determines the effects of errors. Its
methods never wait: `transaction_calls.py` sends requests, and `sender.py` sends records.

The cluster's finalized feature transaction.version chooses one of two protocols (KIP-890):

* 1: AddPartitionsToTxn adds a partition before the first batch for it, and AddOffsetsToTxn adds offsets. The epoch
  stays the same, so after an error that left a gap in a sequence, the producer gets a new epoch with InitProducerId.
* 2: Produce v12 and TxnOffsetCommit v5 add the partitions that they write to, and EndTxn v5 returns the epoch of the
  next transaction.

With the transaction extension (`extension`, only with version 2), EndTxn names the written partitions. All partitions
that were written, or registered beforehand, stay registered. They are called the session. The producer does not rely on
the broker to keep the session, because a Produce request adds its partition if the session lacks it. EndTxn names a
partition only if its records or offsets were acknowledged. While the outcome of a batch or of offsets is unknown,
EndTxn names no partition, and the coordinator writes markers to every partition that it knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...protocol.errors import CONCURRENT_PRODUCER_COMMIT, ErrorCode, KafkaError
from ..errors import (
    AbortableError,
    AuthorizationError,
    ConcurrentProducerCommitError,
    FatalError,
    IllegalStateError,
    PartitionNotRegisteredError,
    ProducerFencedError,
    copy_of,
    error_for,
)
from ..values import ConsumerGroupMetadata
from .transaction_state import GOES_ON, State, may_follow

Partition = tuple[str, int]

FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_FATAL_IN_PRODUCE: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


class BegunTransaction:
    """A transaction that was begun. The object distinguishes it from the later transactions of its producer."""

    __slots__ = ("is_committed", "may_be_committed")

    def __init__(self) -> None:
        self.is_committed = False
        self.may_be_committed = False
        """Whether a commit was requested whose response has not arrived."""


class TransactionManager:
    """The state of a producer's transaction, and its identity."""

    def __init__(self, transactional_id: str | None) -> None:
        self.transactional_id = transactional_id
        """The transactional id, or None if the broker has yet to assign one."""
        self.group: ConsumerGroupMetadata | None = None
        """The default group and member for which offsets are committed."""
        self.group_aware = False
        """Whether the claims on the group's partitions, made by the last initialisation, are in force."""
        self.state = State.UNINITIALIZED
        self.current = BegunTransaction()
        """The transaction that was begun last. `state` says whether it has ended."""
        self.error: KafkaError | None = None
        self.producer_id = -1
        self.producer_epoch = -1
        self.version = 1
        self.extension = False
        self.allowed: frozenset[Partition] | None = None
        """The partitions to which this transaction may write, or None if it may write to all partitions."""
        self.registered: set[Partition] = set()
        self.unregistered: set[Partition] = set()
        self.sent: set[Partition] = set()
        self.written: set[Partition] = set()
        """The acknowledged partitions among those in `sent`. The outcome of the others is unknown."""
        self.session: frozenset[Partition] = frozenset()
        """The partitions that are believed to be still registered with the coordinator after the last transaction."""
        self.beforehand: frozenset[Partition] = frozenset()
        """The partitions that were registered before they were written, since the session began. They stay registered
        until the session ends.
        """
        self.started = False
        """Whether the coordinator may know the transaction, because a request was sent that begins it there."""
        self.epoch_bump_needed = False
        self.on_error: Callable[[], None] = lambda: None
        """Called when the transaction or the producer has failed, so that waiting batches will not be sent."""

    # -- state

    def become(self, state: State) -> None:
        """Change the state. A change that is not in the table is a bug of this package."""
        assert may_follow(self.state, state), f"{self.state.name} -> {state.name}"
        self.state = state

    def require(self, *states: State, doing: str) -> None:
        """Raise an error unless the producer is in one of these states. `doing` names the refused operation in the
        message.
        """
        if self.state in states:
            return
        if self.error is not None and self.state in (State.ABORTABLE_ERROR, State.FATAL_ERROR):
            raise copy_of(self.error) from self.error
        raise IllegalStateError(
            f"{doing} is not possible: the producer is {self.state.value}{_HINTS.get(self.state, '')}"
        )

    def check_initialize(self) -> None:
        """Raise an error unless the producer may be initialised now, for the first time or again."""
        if self.state is not State.FATAL_ERROR or not isinstance(self.error, _INITIALISED_AFTER):
            self.require(
                State.UNINITIALIZED, State.READY, State.COMMIT_UNKNOWN, State.ABORTABLE_ERROR, doing="init_transactions"
            )

    def initialize(self) -> None:
        """Begin to initialise the producer, and forget the previous transaction and session."""
        self.check_initialize()
        self.become(State.INITIALIZING)
        self.group_aware = False
        self._forget_transaction()
        self.forget_session()

    def begin(self, allowed: frozenset[Partition] | None = None, transaction: BegunTransaction | None = None) -> None:
        """Begin a transaction that may write only to the partitions in `allowed`. No request is sent. `transaction`
        becomes the current one.
        """
        self.require(State.READY, doing="begin_transaction")
        self.become(State.IN_TRANSACTION)
        self.current = transaction or BegunTransaction()
        self.allowed = allowed

    def finished(self) -> None:
        """Record that the transaction was committed or aborted as requested."""
        self.become(State.READY)
        self._forget_transaction()

    def _forget_transaction(self) -> None:
        self.error = None
        self.started = False
        self.allowed = None
        for known in (self.registered, self.unregistered, self.sent, self.written):
            known.clear()

    # -- errors

    def fail_abortable(self, code: int, message: str | None = None, cause: KafkaError | None = None) -> AbortableError:
        """Record that the transaction can only be aborted now, and return the exception for the caller.

        Once EndTxn has been sent, this changes nothing, because only the response to EndTxn shows the outcome.
        """
        error = AbortableError(code, message)
        error.__cause__ = cause
        if self.state in GOES_ON:
            self._only_abort(error)
        return error

    def commit_refused(self, error: AbortableError) -> None:
        """Record that the coordinator has refused EndTxn: the transaction can only be aborted now."""
        if self.state is State.COMMITTING_TRANSACTION:
            self._only_abort(error)

    def _only_abort(self, error: AbortableError) -> None:
        self.become(State.ABORTABLE_ERROR)
        self.error = error
        self.on_error()

    def fail_fatal(self, code: int, message: str | None = None) -> KafkaError:
        """Record that the producer cannot be used any more, and return the exception for the caller."""
        if code in FENCED:
            error: KafkaError = ProducerFencedError(
                ErrorCode.PRODUCER_FENCED,
                f"the epoch of transactional.id {self.transactional_id!r} is no longer this producer's: a newer "
                "producer has taken over, or the transaction was open longer than transaction.timeout.ms",
            )
        elif code == CONCURRENT_PRODUCER_COMMIT:
            error = ConcurrentProducerCommitError(
                code,
                message
                or f"offsets of transactional.id {self.transactional_id!r} were refused: a producer of a newer "
                "generation of the group has taken over partitions of this producer",
            )
        else:
            error = error_for(code, message)
            if not isinstance(error, FatalError | AuthorizationError):
                error = FatalError(code, message)
        self.become(State.FATAL_ERROR)
        self.error = error
        self.on_error()
        return error

    def crashed(self, error: FatalError) -> None:
        """Make the producer unusable in any state, because a part of it has failed."""
        if self.state is not State.FATAL_ERROR:
            self.state = State.FATAL_ERROR
            self.error = error
            self.on_error()

    def batch_failed(self, error: KafkaError, code: ErrorCode | None = None) -> None:
        """Fail the transaction or the producer because of the error with which a batch of the transaction was given up.

        `code` is the error code of the batch's last response, if it differs from the code of `error`.
        """
        code = code or error.code
        if self.state not in (*GOES_ON, State.ABORTABLE_ERROR, State.ABORTING_TRANSACTION):
            return  # no batch of a transaction is under way in other states
        if code in _FATAL_IN_PRODUCE:
            self.fail_fatal(code, error.message)
        else:
            # If a partition refuses the epoch, the producer may still recover; the coordinator decides that (KIP-588).
            self.fail_abortable(code, error.message, error)

    def sequence_lost(self) -> None:
        """Record that a batch was given up after its sequence numbers were used: later batches need a new epoch."""
        if self.version < 2:
            self.epoch_bump_needed = True

    def offsets_in_doubt(self) -> None:
        """Record that offsets already sent may reach the coordinator after the abort.

        Before version 2, the abort then requests a new producer epoch, so that these offsets are refused. With version
        2, every transaction ends with a new epoch.
        """
        if self.version < 2:
            self.epoch_bump_needed = True

    # -- partitions of the transaction

    def may_send(self, partition: Partition) -> bool:
        """Return whether a batch for the partition may be sent now. If not, remember the partition for the next
        AddPartitionsToTxn.
        """
        if self.state not in GOES_ON:
            return False
        if self.version >= 2 or partition in self.registered:
            self.started = True
            self.sent.add(partition)
            return True
        self.unregistered.add(partition)
        return False

    def forget_session(self) -> None:
        """Forget the session, because it may have ended: no partition is known to be registered."""
        self.session = self.beforehand = frozenset()

    def registered_now(self, partitions: set[Partition]) -> None:
        """Record that the coordinator has added these partitions."""
        self.registered |= partitions
        self.unregistered -= partitions

    def check_allowed(self, topic: str, partition: int | None = None) -> None:
        """Raise PartitionNotRegisteredError for a topic or partition to which the transaction may not write."""
        allowed = self.allowed
        if allowed is None:
            return
        mine = [index for name, index in sorted(allowed) if name == topic]
        if mine if partition is None else partition in mine:
            return
        where = f"topic {topic!r}" if partition is None else f"{topic}-{partition}"
        known = f"; of this topic it named {mine}" if mine else ""
        raise PartitionNotRegisteredError(
            f"{where} is not among the {len(allowed)} partitions that begin_transaction(partitions) named{known}: the "
            "record was not sent. Name the partition there, or call begin_transaction() without partitions"
        )

    def check_same(self, transaction: BegunTransaction) -> None:
        """Raise IllegalStateError unless `transaction` is the current one. A late call must not take part in the next
        transaction.
        """
        if transaction is not self.current:
            raise IllegalStateError(
                "the transaction of this call has ended, and another one has begun: nothing was sent"
            )

    def is_open(self, transaction: BegunTransaction) -> bool:
        """Return whether `transaction` is the current one, is open and can be aborted."""
        return transaction is self.current and self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR)

    def wrote(self, partition: Partition) -> None:
        """Record that records or offsets of this transaction were acknowledged in the partition."""
        self.written.add(partition)

    def partitions_for_end_txn(self) -> frozenset[Partition] | None:
        """Return the partitions that EndTxn is to name. Return None if it must not name partitions, because others may
        have been written too, or because the broker does not have the extension.
        """
        if not self.extension or self.sent - self.written:
            return None
        return frozenset(self.written)

    def ended(self, named: frozenset[Partition] | None) -> None:
        """Record that the coordinator has ended the transaction.

        `named`: the partitions that EndTxn listed (the transaction extension). Together with those registered
        beforehand, they are now the session. None: EndTxn had no list of partitions, and the session stays as it is.
        """
        if named is not None:
            self.session = named | self.beforehand


_INITIALISED_AFTER: Final = (ProducerFencedError, ConcurrentProducerCommitError)
"""Fatal errors after which the producer may be initialised again, with a new epoch."""

_HINTS: Final = {
    State.UNINITIALIZED: "; call init_transactions() first, or use producer.transaction()",
    State.READY: "; call begin_transaction() first, or use producer.transaction()",
    State.COMMIT_UNKNOWN: "; call commit_transaction() again, or close the producer",
    State.IN_TRANSACTION: "; commit or abort it first",
}
