"""Writes the log lines and metrics of group-aware initialisation: one line per event, and for some events a metric.

Defines the names of the events and the fields of each line: the reason, the client (id and host), the request. Fences
and the transactions that they abort are reported by the coordinators of the fenced transactional ids
(`transaction/events.py`). Never decides anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from heapq import nsmallest
from typing import Any, Final

from ....protocol.errors import KafkaError
from ...observability.metrics import CLAIMED, CLAIMS_DROPPED, CLAIMS_MADE, PARKED_IN_GROUPS, WAITS, Metrics
from ..transaction.decisions import ProducerIdentity
from ..transaction.events import LONG_WAIT_S, Caller, TransactionEvents

_SHOWN: Final = 20
"""How many ids or claims are listed in a log line. A group may have as many producers as partitions."""


class GroupEvents:
    """The writer of the log lines and metrics of group-aware initialisation and claims. Times are in seconds."""

    def __init__(self, transactions: TransactionEvents, metrics: Metrics, logger: Any) -> None:
        self._transactions = transactions
        self._metrics = metrics
        self._logger = logger

    def watch(self, claimed: Any, parked: Any) -> None:
        """Register the gauges: how many partitions are claimed, and how many calls wait for other calls or fences."""
        self._metrics.watch(CLAIMED, claimed)
        self._metrics.watch(PARKED_IN_GROUPS, parked)

    def claimed(
        self,
        group_id: str,
        generation_id: int,
        transactional_id: str,
        partitions: Collection[object],
        victims: Collection[str],
        by: Caller,
    ) -> None:
        """Record that a producer has claimed partitions. The transactional ids in `victims` are now being fenced."""
        self._metrics.count(CLAIMS_MADE)
        self._logger.info(
            "partitions_claimed",
            reason="group-aware initialisation",
            group=group_id,
            generation=generation_id,
            transactional_id=transactional_id,
            partitions=len(partitions),
            fences=_shown(victims),
            count=len(victims),
            **_who(by),
        )

    def dropped(self, group_id: str, reason: str, ids: Collection[str], partitions: int | str) -> None:
        """Record that claims were dropped, on all of the group's partitions or on some of them."""
        self._metrics.count(CLAIMS_DROPPED, reason)
        self._logger.info(
            "claims_dropped",
            reason=reason,
            group=group_id,
            transactional_ids=_shown(ids),
            count=len(ids),
            partitions=partitions,
        )

    def not_dropped(self, group_id: str, error: KafkaError) -> None:
        """Record that claims could not be dropped because the append failed."""
        self._logger.warning("claims_not_dropped", group=group_id, error=str(error))

    def unfenced(self, group_id: str, claims: Sequence[object], by: Caller) -> None:
        """Record that an operator has requested that all claims of a group be dropped."""
        self._logger.warning(
            "claims_unfenced",
            reason="by hand",
            group=group_id,
            claims=[str(claim) for claim in claims[:_SHOWN]],
            count=len(claims),
            **_who(by),
        )

    def unreadable(self, group_id: str, why: str) -> None:
        """Record that a claim of the group cannot be decoded."""
        self._logger.error(
            "claims_unreadable", group=group_id, why=why, remedy="use the broker release that wrote the record"
        )

    def fight(self, group_id: str, generation_id: int, claimant: str, rival: str, by: Caller) -> None:
        """Record that a claim is refused because two producers have taken partitions from each other too often."""
        self._logger.warning(
            "producers_fence_each_other",
            reason="both claim the same partitions in the same generation",
            group=group_id,
            generation=generation_id,
            transactional_ids=sorted((claimant, rival)),
            remedy="assign different partitions to the two producers",
            **_who(by),
        )

    def pending_of_nobody(self, group_id: str, producer_ids: Collection[int], by: Caller) -> None:
        """Record that a claim conflicts with pending offset commits of unknown producers.

        The transactions of these producers are still open, and the request fails until they end.
        """
        self._logger.warning(
            "pending_offsets_of_nobody",
            reason="no transactional id is known for these producer ids",
            group=group_id,
            producer_ids=nsmallest(_SHOWN, producer_ids),
            count=len(producer_ids),
            remedy="wait until the broker has ended these transactions; if they persist, run oncelog txn hanging",
            **_who(by),
        )

    def fence_failed(self, group_id: str, transactional_id: str, error: BaseException) -> None:
        """Record that a conflicting transactional id could not be fenced.

        The next InitProducerId call for the partitions tries to fence the id again.
        """
        self._logger.warning("fence_failed", group=group_id, transactional_id=transactional_id, error=str(error))

    def waited(self, group_id: str, by: Caller, seconds: float, outcome: str, reason: str) -> None:
        """Record that a request waited.

        `outcome` is done (the request could continue), gave_up (the request was answered with an error) or closed (the
        client's connection was closed).
        """
        cause = by.cause
        self._metrics.observe(WAITS, seconds, cause.request, outcome)
        level = "debug" if outcome == "done" and seconds < LONG_WAIT_S else "info"
        getattr(self._logger, level)(
            "request_waited",
            reason=reason,
            group=group_id,
            waited_ms=round(seconds * 1000, 3),
            outcome=outcome,
            **_who(by),
        )

    def refused(
        self, transactional_id: str | None, error: KafkaError, expected: ProducerIdentity | None, by: Caller
    ) -> None:
        """Record a group-aware initialisation that was refused before the transactional id's coordinator was called."""
        self._transactions.refused(transactional_id or "", error.code, by, identity=expected, reason=error.message)


def _shown(ids: Iterable[str]) -> list[str]:
    return nsmallest(_SHOWN, ids)


def _who(by: Caller) -> dict[str, object]:
    cause = by.cause
    return {"request": cause.request, "client_id": cause.client_id, "host": cause.host}
