"""Logs and counts what the transaction coordinator does: one log line and one metric per event.

It owns the names of the events, and what each line says: why, who (client id and host), by which request, and the
producer's epochs before and after. It never decides or changes anything.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ....protocol.errors import ErrorCode, extension_name
from ...metrics import ENDED, EXPIRED, FENCES, INITIALISATIONS, OPENED, REFUSED, WAITS, Metrics
from .metadata import TransactionMetadata
from .state import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TransactionState

if TYPE_CHECKING:
    from .decisions import ProducerIdentity
    from .entry import TransactionEntry

LONG_WAIT_S: Final = 0.1
"""A wait up to here is the normal course of things and told at level debug."""


class Cause(NamedTuple):
    """On whose account something happens: a client's request, or the broker's own doing (then nobody else is known)."""

    request: str
    client_id: str | None = None
    host: str | None = None

    @property
    def cause(self) -> Cause:
        """Itself: a Cause is a Caller, too."""
        return self

    def while_waiting(self) -> AbstractAsyncContextManager[None]:
        """Nothing: there is no request that waits."""
        return nullcontext()

    @classmethod
    def own(cls, doing: str) -> Cause:
        """The broker's own doing, in words: "transaction timeout"."""
        return cls(doing)


class Caller(Protocol):
    """Whoever can say on whose account something happens, when asked: a RequestContext, or a Cause."""

    @property
    def cause(self) -> Cause:
        """The cause; made when asked for, so that it costs nothing as long as all goes well."""

    def while_waiting(self) -> AbstractAsyncContextManager[None]:
        """Entered while the caller waits for another's transaction; it may raise KafkaError CONCURRENT_TRANSACTIONS."""


UNKNOWN_CALLER: Final = Cause("unknown")


class TransactionEvents:
    """Logs and counts the events of transactional ids. Times are seconds; `before` and `after` are values of one id."""

    def __init__(self, logger: Any, metrics: Metrics) -> None:
        self._logger = logger
        self._metrics = metrics

    def opened(self) -> None:
        """A transaction began. Too common for a line of its own."""
        self._metrics.count(OPENED)

    def initialised(self, before: TransactionMetadata, after: TransactionMetadata, recovers: bool, by: Caller) -> None:
        """InitProducerId gave out an identity; unless its own holder asked for it, whoever had the id is fenced."""
        self._metrics.count(INITIALISATIONS, "recovered" if recovers else "new")
        if before.producer_epoch == NO_PRODUCER_EPOCH or before.producer_epoch == after.producer_epoch:
            self._say("info", "producer_initialised", "InitProducerId", before, after, by)
        elif recovers:
            self._say("info", "producer_epoch_bumped", "InitProducerId", before, after, by)
        else:
            self.fenced(before, after, "InitProducerId", by)

    def fenced(self, before: TransactionMetadata, after: TransactionMetadata, reason: str, by: Caller) -> None:
        """The holder of the epoch before is locked out."""
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
        """A decision is durable. A commit is too common for a line of its own."""
        commit = after.state.is_commit
        self._metrics.count(ENDED, "commit" if commit else "abort", reason)
        if not commit:
            self._say("info", "transaction_aborted", reason, before, after, by)

    def session_ended(self, before: TransactionMetadata, after: TransactionMetadata, reason: str, by: Caller) -> None:
        """Partitions that were registered beyond a transaction are so no longer."""
        self._say("info", "session_ended", reason, before, after, by, session_partitions=len(before.session_partitions))

    def expired(self, metadata: TransactionMetadata, idle_ms: int) -> None:
        """The id was idle for too long and is forgotten."""
        self._metrics.count(EXPIRED)
        own = Cause.own("transactional id expiration")
        self._say("info", "transactional_id_expired", own.request, metadata, metadata, own, idle_ms=idle_ms)

    def waited(self, metadata: TransactionMetadata, by: Caller, seconds: float, outcome: str, reason: str) -> None:
        """A request was parked; `outcome` is done, gave_up or closed."""
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
        """A request was refused: `identity` is what its sender believes to be, `entry` what the id is."""
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
    """What a log line says of a transactional id, and of a change of it."""
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
