"""Handles WriteTxnMarkers requests, whose markers do not come from this broker's own coordinator.

Operators send such markers to end a hanging transaction (KIP-664: `kafka-transactions.sh abort`,
Admin.abortTransaction). Apache Kafka appends any marker that is not older than the partition's state. Such a marker can
end a transaction in one partition against the coordinator's decision, or raise an epoch so far that the rightful
producer or coordinator is fenced. Here an external marker ends exactly the open transaction that it names, or changes
nothing:

=================================================== =========================================================
state of the partition and the coordinator          outcome
=================================================== =========================================================
coordinator epoch is not the recorded one           TRANSACTION_COORDINATOR_FENCED
producer epoch is below the recorded one            INVALID_PRODUCER_EPOCH
the producer has no open transaction there          success, nothing is written
producer epoch is above the open transaction's      INVALID_PRODUCER_EPOCH
the coordinator is ending the transaction           waits; success if the marker has the same decision, else
                                                    INVALID_TXN_STATE
commit                                              INVALID_TXN_STATE: only the coordinator commits
abort of the coordinator's ongoing transaction      the whole transaction is aborted and its producer fenced
abort of a transaction that no coordinator knows    the marker is written: this transaction hangs
=================================================== =========================================================

The recorded coordinator epoch is the epoch of the producer's last marker in the partition, or 0 if the partition has no
marker of the producer. In the latter case -1 is also accepted if the log knows the producer. DescribeProducers shows
the epoch, and the operators' tools send it.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Any, Protocol

from ....protocol.errors import ErrorCode, KafkaError
from ...partitions.markers import Marker
from ...scheduling.slices import in_slices
from .events import Caller
from .fencing import Fencing
from .gateway import PartitionGateway, ProducerInLog
from .metadata import Owner, TransactionMetadata
from .state import TopicPartition, TransactionState

CAUSE = "WriteTxnMarkers"

AT_A_TIME = 20
"""How many partitions or markers are processed before the event loop runs other tasks."""


class Verdict(Enum):
    """The effect of an accepted marker from a WriteTxnMarkers request in one partition."""

    NOTHING = "nothing"
    """Report success without a change."""
    WAIT = "wait"
    """Wait until the coordinator has completed the transaction, then judge the marker again."""
    ABORT_ALL = "abort all"
    """Abort the coordinator's whole transaction."""
    WRITE = "write"
    """Append the marker."""


class MarkerCoordinator(Protocol):
    """The operations that external markers need from the transaction coordinator."""

    def owner_of(self, producer_id: int) -> Owner | None:
        """Return the state of the transactional id with this current or previous producer id; None if there is none.

        Raise KafkaError COORDINATOR_NOT_AVAILABLE (a state partition is unreadable) or COORDINATOR_LOAD_IN_PROGRESS.
        """

    def is_repairing(self, producer_id: int, partition: TopicPartition) -> bool:
        """Whether an earlier transaction of the producer must still be ended in the partition."""

    def wait_deadline(self) -> float:
        """Return the event loop time until which a request that arrives now may wait for an earlier transaction."""

    async def until_settled(self, transactional_id: str, deadline: float, by: Caller) -> None:
        """Wait until the transactional id has no pending transition and no incomplete transaction.

        Raise KafkaError CONCURRENT_TRANSACTIONS if it still has one at `deadline` (event loop time).
        """


def judge(
    marker: Marker,
    partition: TopicPartition,
    known: ProducerInLog | None,
    owner: Owner | None,
) -> Verdict:
    """Return what `marker` may do in `partition`. Raise KafkaError with the response's code if the marker is refused.

    `known` is the producer's state in the partition's log. `owner` is the state of the transactional id that has the
    producer id.
    """
    recorded = 0 if known is None else max(known.coordinator_epoch, 0)
    lowest = recorded if known is None else known.coordinator_epoch
    if not lowest <= marker.coordinator_epoch <= recorded:
        raise KafkaError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"The marker has coordinator epoch {marker.coordinator_epoch}, but the partition has {recorded} for"
            f" producer {marker.producer_id}. Send the coordinator epoch that DescribeProducers returns.",
        )
    if known is None:
        return Verdict.NOTHING
    if marker.producer_epoch < known.producer_epoch or (known.is_open and marker.producer_epoch > known.producer_epoch):
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"The marker has producer epoch {marker.producer_epoch}, but producer {marker.producer_id} has epoch"
            f" {known.producer_epoch} in this partition. Send the producer epoch that DescribeProducers returns.",
        )
    if not known.is_open:
        return Verdict.NOTHING
    if owner is not None and (owner.pending is not None or owner.metadata.state.is_prepare):
        return Verdict.WAIT
    if marker.commit:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"Only the coordinator may commit the open transaction of producer {marker.producer_id}. Let the producer"
            " commit with EndTxn, or send a marker that aborts.",
        )
    if owner is not None and _is_ongoing(owner.metadata, partition, known, marker.producer_id):
        return Verdict.ABORT_ALL
    return Verdict.WRITE


def _is_ongoing(
    metadata: TransactionMetadata, partition: TopicPartition, known: ProducerInLog, producer_id: int
) -> bool:
    return (
        metadata.state is TransactionState.ONGOING
        and (metadata.producer_id, metadata.producer_epoch) == (producer_id, known.producer_epoch)
        and partition in metadata.topic_partitions
    )


class ExternalMarkers:
    """The executor of WriteTxnMarkers requests."""

    def __init__(
        self, coordinator: MarkerCoordinator, fencing: Fencing, gateway: PartitionGateway, logger: Any
    ) -> None:
        self._coordinator = coordinator
        self._fencing = fencing
        self._gateway = gateway
        self._logger = logger

    async def write(self, markers: list[Marker], by: Caller) -> list[dict[TopicPartition, ErrorCode]]:
        """Apply each marker as far as the rules allow. Return, for each marker, the error code of each partition.

        All appended markers are durable when this method returns.
        """
        deadline = self._coordinator.wait_deadline()
        results: list[dict[TopicPartition, ErrorCode]] = []
        async for marker in in_slices(markers, AT_A_TIME):
            codes: dict[TopicPartition, ErrorCode] = {}
            results.append(codes)
            async for partition in in_slices(marker.partitions, AT_A_TIME):
                try:
                    await self._write(marker, partition, deadline, by)
                    codes[partition] = ErrorCode.NONE
                except KafkaError as error:
                    codes[partition] = error.code
                    self._refused(marker, partition, error, by)
        return results

    async def _write(self, marker: Marker, partition: TopicPartition, deadline: float, by: Caller) -> None:
        coordinator = self._coordinator
        decided: bool | None = None
        has_waited = False
        while True:
            known = self._gateway.producer(partition, marker.producer_id)
            owner = coordinator.owner_of(marker.producer_id) if known is not None and known.is_open else None
            if decided is not None and (known is None or known.producer_epoch > marker.producer_epoch):
                break  # the transaction that the marker names was completed meanwhile
            verdict = judge(marker, partition, known, owner)
            if verdict is Verdict.NOTHING:
                break
            if coordinator.is_repairing(marker.producer_id, partition):
                raise KafkaError(
                    ErrorCode.CONCURRENT_TRANSACTIONS, "The coordinator is about to end this transaction. Retry."
                )
            if verdict is Verdict.WRITE:
                if not self._gateway.is_ready(partition, has_waited=has_waited):
                    await self._gateway.until_ready(partition)
                    has_waited = True
                    continue  # other requests may have run meanwhile: judge again
                # No await runs between the judgement and the append.
                one = replace(marker, partitions=[partition], has_waited=has_waited)
                (codes,) = await self._gateway.write_markers([one])
                if codes[partition] is not ErrorCode.NONE:
                    raise KafkaError(codes[partition])
                self._logger.warning("hanging_transaction_aborted", **_described(marker, partition, by))
                return
            assert owner is not None
            transactional_id = owner.metadata.transactional_id
            if verdict is Verdict.ABORT_ALL:
                self._logger.warning(
                    "transaction_aborted_by_marker",
                    transactional_id=transactional_id,
                    **_described(marker, partition, by),
                )
                await self._fencing.fence(transactional_id, cause=by, reason=CAUSE, deadline=deadline)
                return
            under_way = (owner.pending or owner.metadata).state
            if under_way.is_prepare:
                decided = under_way.is_commit
            await coordinator.until_settled(transactional_id, deadline, by)
        if decided is not None and decided is not marker.commit:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"The coordinator has already decided to {'commit' if decided else 'abort'} the transaction.",
            )

    def _refused(self, marker: Marker, partition: TopicPartition, error: KafkaError, by: Caller) -> None:
        self._logger.info(
            "marker_refused", code=error.code.name, reason=error.message, **_described(marker, partition, by)
        )


def _described(marker: Marker, partition: TopicPartition, by: Caller) -> dict[str, object]:
    cause = by.cause
    return {
        "partition": f"{partition[0]}-{partition[1]}",
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "coordinator_epoch": marker.coordinator_epoch,
        "commit": marker.commit,
        "client_id": cause.client_id,
        "host": cause.host,
    }
