"""A transactional producer's knowledge of its transaction: state, identity, members, and the error that ended it.

It owns the producer id and epoch, the state (a table in `transaction_state.py`), the partitions that the coordinator
knows to be part of the transaction, those that were written, and what an error means. Its methods never wait: requests
are made in `transaction_calls.py`, records sent in `sender.py`.

Two protocols (KIP-890), chosen by the cluster's finalized feature transaction.version:

* 1: a partition is added by AddPartitionsToTxn before the first batch for it, offsets by AddOffsetsToTxn. The epoch
  stays, so after an error that left a sequence open, the producer gets a new epoch by InitProducerId.
* 2: Produce v12 and TxnOffsetCommit v5 add what they touch, and EndTxn v5 returns the epoch of the next transaction.

With the transaction extension (`extension`, only with version 2) EndTxn names the partitions that were written, and
partitions written or registered beforehand stay registered: the session. Nothing here relies on the broker keeping it:
a partition that is not in the session is added by the Produce request itself. So EndTxn names only what was
acknowledged. While the outcome of a batch is unknown it names nothing, and the coordinator marks every partition that
it knows.
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
from .transaction_state import State, may_follow

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


class TransactionManager:
    """The state of a producer's transaction, and its identity."""

    def __init__(self, transactional_id: str | None) -> None:
        self.transactional_id = transactional_id
        """None until the broker has assigned one."""
        self.group: ConsumerGroupMetadata | None = None
        """Who offsets are committed for unless the caller says otherwise."""
        self.group_aware = False
        """Whether claims on the group's partitions, made by the last initialisation, are in force."""
        self.state = State.UNINITIALIZED
        self.number = 0
        """How many transactions were begun: tells one from the next."""
        self.error: KafkaError | None = None
        self.producer_id = -1
        self.producer_epoch = -1
        self.version = 1
        self.extension = False
        self.allowed: frozenset[Partition] | None = None
        """The only partitions that this transaction may write to; None: any."""
        self.registered: set[Partition] = set()
        self.unregistered: set[Partition] = set()
        self.sent: set[Partition] = set()
        self.written: set[Partition] = set()
        """Of those in `sent`, whose fate is open until then, the ones that were acknowledged."""
        self.session: frozenset[Partition] = frozenset()
        """What the coordinator kept registered, as far as is known, after the last transaction."""
        self.beforehand: frozenset[Partition] = frozenset()
        """What was registered beforehand since the session began: it stays until the session ends."""
        self.started = False
        """Whether the coordinator may know of the transaction: something was sent that begins it there."""
        self.epoch_bump_needed = False
        self.on_error: Callable[[], None] = lambda: None
        """Called when the transaction, or the producer, has failed: what waits to be sent will not be."""

    # -- state

    def become(self, state: State) -> None:
        """Change the state; a change that is not in the table is a bug of this package."""
        assert may_follow(self.state, state), f"{self.state.name} -> {state.name}"
        self.state = state

    def require(self, *states: State, doing: str) -> None:
        """Raise what stands in the way of `doing`, unless the producer is in one of the states."""
        if self.state in states:
            return
        if self.error is not None and self.state in (State.ABORTABLE_ERROR, State.FATAL_ERROR):
            raise copy_of(self.error) from self.error
        raise IllegalStateError(
            f"{doing} is not possible: the producer is {self.state.value}{_HINTS.get(self.state, '')}"
        )

    def check_initialize(self) -> None:
        """Raise unless the producer may be initialised now, for the first time or again."""
        if self.state is not State.FATAL_ERROR or not isinstance(self.error, _INITIALISED_AFTER):
            self.require(
                State.UNINITIALIZED, State.READY, State.COMMIT_UNKNOWN, State.ABORTABLE_ERROR, doing="init_transactions"
            )

    def initialize(self) -> None:
        """Begin to initialise: what was known of a transaction is over."""
        self.check_initialize()
        self.become(State.INITIALIZING)
        self.group_aware = False
        self._forget_transaction()
        self.forget_session()

    def begin(self, allowed: frozenset[Partition] | None = None) -> None:
        """Begin a transaction, in which only `allowed` is written to; nothing is sent for it."""
        self.require(State.READY, doing="begin_transaction")
        self.become(State.IN_TRANSACTION)
        self.number += 1
        self.allowed = allowed

    def finished(self) -> None:
        """The transaction is decided, as it was meant to be."""
        self.become(State.READY)
        self._forget_transaction()

    def _forget_transaction(self) -> None:
        self.error = None
        self.started = False
        self.allowed = None
        for known in (self.registered, self.unregistered, self.sent, self.written):
            known.clear()

    # -- errors

    def fail_abortable(self, code: int, message: str | None = None) -> AbortableError:
        """The transaction can only be aborted now; returns the exception that says so."""
        error = AbortableError(code, message)
        if self.state in (State.IN_TRANSACTION, State.COMMITTING_TRANSACTION):
            self.become(State.ABORTABLE_ERROR)
            self.error = error
            self.on_error()
        return error

    def fail_fatal(self, code: int, message: str | None = None) -> KafkaError:
        """The producer is of no more use; returns the exception that says so."""
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
                "generation of the group has taken over partitions of this one",
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
        """A part of the producer has failed: whatever the state, it is of no more use."""
        if self.state is not State.FATAL_ERROR:
            self.state = State.FATAL_ERROR
            self.error = error
            self.on_error()

    def batch_failed(self, code: ErrorCode, message: str | None) -> None:
        """A batch of the transaction will not be written: what that means for the transaction."""
        if self.state in (State.FATAL_ERROR, State.INITIALIZING):
            return
        if code in _FATAL_IN_PRODUCE:
            self.fail_fatal(code, message)
        else:
            # An epoch that a partition refuses may be recovered from; whether it can, the coordinator says (KIP-588).
            self.fail_abortable(code, message)

    def sequence_lost(self) -> None:
        """A batch was given up whose sequence number is spent: only a new epoch can number the next ones."""
        if self.version < 2:
            self.epoch_bump_needed = True

    def offsets_in_doubt(self) -> None:
        """Offsets were sent, and may be written later than the abort: only a new epoch keeps them out."""
        if self.version < 2:
            self.epoch_bump_needed = True

    # -- members

    def may_send(self, partition: Partition) -> bool:
        """Whether a batch for the partition may leave now; if not, it is noted for AddPartitionsToTxn."""
        if self.state not in (State.IN_TRANSACTION, State.COMMITTING_TRANSACTION):
            return False
        if self.version >= 2 or partition in self.registered:
            self.started = True
            self.sent.add(partition)
            return True
        self.unregistered.add(partition)
        return False

    def forget_session(self) -> None:
        """The session is over, or may be: nothing is known to be registered."""
        self.session = self.beforehand = frozenset()

    def registered_now(self, partitions: set[Partition]) -> None:
        """The coordinator has added these partitions."""
        self.registered |= partitions
        self.unregistered -= partitions

    def check_allowed(self, topic: str, partition: int | None = None) -> None:
        """Raise PartitionNotRegisteredError for a topic, or partition, that the transaction may not write to."""
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

    def check_same(self, number: int) -> None:
        """Raise IllegalStateError for a straggler of another transaction than the present one."""
        if number != self.number:
            raise IllegalStateError(
                "the transaction that this was for is over, and another one has begun: nothing was sent"
            )

    def wrote(self, partition: Partition) -> None:
        """The partition has something of this transaction."""
        self.written.add(partition)

    def to_name(self) -> frozenset[Partition] | None:
        """What EndTxn is to name as written; None: nothing, because more may have been written than is known."""
        if not self.extension or self.sent - self.written:
            return None
        return frozenset(self.written)

    def ended(self, named: frozenset[Partition] | None) -> None:
        """The coordinator has decided the transaction, of which this was named."""
        if named is not None:
            self.session = named | self.beforehand


_INITIALISED_AFTER: Final = (ProducerFencedError, ConcurrentProducerCommitError)
"""Fatal errors after which the producer may be initialised again, which takes a new epoch."""

_HINTS: Final = {
    State.UNINITIALIZED: "; call init_transactions() first, or use `async with producer.transaction()`",
    State.READY: "; call begin_transaction() first, or use `async with producer.transaction()`",
    State.COMMIT_UNKNOWN: "; call commit_transaction() again, or close the producer",
    State.IN_TRANSACTION: "; commit or abort it first",
}
