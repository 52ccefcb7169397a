"""Writes the log lines and metrics of the transaction coordinator.

Defines the names of the events and the fields of each line: the reason, the client (id and host), the request, and the
producer's epochs before and after. Most events write one line and increment one metric. Never decides or changes
anything.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ....protocol.errors import ErrorCode, extension_name
from ...observability.metrics import ENDED, EXPIRED, FENCES, INITIALISATIONS, OPENED, REFUSED, WAITS, Metrics
from .metadata import TransactionMetadata
from .state import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TransactionState

if TYPE_CHECKING:
    from .decisions import ProducerIdentity
    from .entry import TransactionEntry

LONG_WAIT_S: Final = 0.1
"""The shortest wait, in seconds, that is logged at level info.

A shorter wait is normal and is logged at level debug.
"""


class Cause(NamedTuple):
    """The origin of an event: a client's request, or an action of the broker (client id and host are then None)."""

    request: str
    client_id: str | None = None
    host: str | None = None

    @property
    def cause(self) -> Cause:
        """This Cause itself, because a Cause is also a Caller."""
        return self

    def while_waiting(self) -> AbstractAsyncContextManager[None]:
        """Return a context that does nothing, because an action of the broker has no request that could wait."""
        return nullcontext()

    @classmethod
    def own(cls, doing: str) -> Cause:
        """Return the cause of an action of the broker. `doing` describes the action, such as "transaction timeout"."""
        return cls(doing)


class Caller(Protocol):
    """The source of a Cause: a RequestContext, or a Cause itself."""

    @property
    def cause(self) -> Cause:
        """The cause of the events that the caller triggers.

        It is created on access, so that it costs nothing unless an event is logged.
        """

    def while_waiting(self) -> AbstractAsyncContextManager[None]:
        """Return the context in which a request waits for another transaction.

        Entering the context may raise KafkaError CONCURRENT_TRANSACTIONS.
        """


UNKNOWN_CALLER: Final = Cause("unknown")


class TransactionEvents:
    """The writer of the log lines and metrics of transactional ids.

    `seconds` is a duration. `before` and `after` are the states of one id before and after the event.
    """

    def __init__(self, logger: Any, metrics: Metrics) -> None:
        self._logger = logger
        self._metrics = metrics

    def opened(self) -> None:
        """Count the start of a transaction. Starts are too frequent to log."""
        self._metrics.count(OPENED)

    def initialised(self, before: TransactionMetadata, after: TransactionMetadata, recovers: bool, by: Caller) -> None:
        """Record a completed InitProducerId: a first one, an epoch bump by the holder, or a takeover that fences the
        holder.
        """
        self._metrics.count(INITIALISATIONS, "recovered" if recovers else "new")
        if before.producer_epoch == NO_PRODUCER_EPOCH or before.producer_epoch == after.producer_epoch:
            self._say("info", "producer_initialised", "InitProducerId", before, after, by)
        elif recovers:
            self._say("info", "producer_epoch_bumped", "InitProducerId", before, after, by)
        else:
            self.fenced(before, after, "InitProducerId", by)

    def fenced(self, before: TransactionMetadata, after: TransactionMetadata, reason: str, by: Caller) -> None:
        """Record that the holder of the previous epoch is fenced."""
        self._metrics.count(FENCES, reason)
        self._say(
            "warning" if before.state is TransactionState.ONGOING else "info",
            "producer_fenced",
            reason,
            before,
            after,
            by,
        )

    def ended(self, before: TransactionMetadata, after: TransactionMetadata, reason: str, by: Caller) -> None:
        """Record a durable commit or abort. Commits are too frequent to log and are only counted."""
        commit = after.state.is_commit
        self._metrics.count(ENDED, "commit" if commit else "abort", reason)
        if not commit:
            self._say("info", "transaction_aborted", reason, before, after, by)

    def session_ended(self, before: TransactionMetadata, after: TransactionMetadata, reason: str, by: Caller) -> None:
        """Record that a session ended: its partitions no longer stay registered from one transaction to the next."""
        self._say("info", "session_ended", reason, before, after, by, session_partitions=len(before.session_partitions))

    def expired(self, metadata: TransactionMetadata, idle_ms: int) -> None:
        """Record that an idle transactional id has expired."""
        self._metrics.count(EXPIRED)
        own = Cause.own("transactional id expiration")
        self._say("info", "transactional_id_expired", own.request, metadata, metadata, own, idle_ms=idle_ms)

    def waited(self, metadata: TransactionMetadata, by: Caller, seconds: float, outcome: str, reason: str) -> None:
        """Record that a request waited for an earlier transaction.

        `outcome` is done (the transaction is complete), gave_up (the request was answered with an error) or closed (its
        connection was closed).
        """
        cause = by.cause
        self._metrics.observe(WAITS, seconds, cause.request, outcome)
        level = "debug" if outcome == "done" and seconds < LONG_WAIT_S else "info"
        self._say(
            level,
            "request_waited",
            reason,
            metadata,
            metadata,
            cause,
            waited_ms=round(seconds * 1000, 3),
            outcome=outcome,
        )

    def refused(
        self,
        transactional_id: str,
        code: ErrorCode,
        by: Caller,
        *,
        identity: ProducerIdentity | None = None,
        entry: TransactionEntry | None = None,
        reason: str = "",
    ) -> None:
        """Record a refused request.

        `identity` is the producer's identity in the request, `entry` the transactional id's state.
        """
        metadata = None if entry is None else entry.metadata
        cause = by.cause
        self._metrics.count(REFUSED, cause.request, extension_name(code))
        self._logger.info(
            "request_refused",
            reason=reason or code.text,
            code=extension_name(code),
            request=cause.request,
            client_id=cause.client_id,
            host=cause.host,
            transactional_id=transactional_id,
            producer_id=NO_PRODUCER_ID if identity is None else identity[0],
            epoch_before=NO_PRODUCER_EPOCH if identity is None else identity[1],
            epoch_after=NO_PRODUCER_EPOCH if metadata is None else metadata.producer_epoch,
            state=None if metadata is None else metadata.state.label,
        )

    def _say(
        self,
        level: str,
        event: str,
        reason: str,
        before: TransactionMetadata,
        after: TransactionMetadata,
        by: Caller,
        **more: object,
    ) -> None:
        cause = by.cause
        getattr(self._logger, level)(
            event,
            reason=reason,
            request=cause.request,
            client_id=cause.client_id,
            host=cause.host,
            **described(before, after),
            **more,
        )


def described(before: TransactionMetadata, after: TransactionMetadata | None = None) -> dict[str, object]:
    """Return the log fields of a transactional id, and of its change from `before` to `after` if there is one."""
    after = before if after is None else after
    return {
        "transactional_id": before.transactional_id,
        "producer_id": before.producer_id,
        "producer_id_after": after.producer_id,
        "epoch_before": before.producer_epoch,
        "epoch_after": after.producer_epoch,
        "state_before": before.state.label,
        "state": after.state.label,
        "partitions": len(before.topic_partitions),
        "timeout_ms": before.timeout_ms,
    }
