"""What the end of a transaction is, between the coordinator that decides it and the partitions that record it."""

from __future__ import annotations

from dataclasses import dataclass

TopicPartition = tuple[str, int]


@dataclass(slots=True)
class Marker:
    """The end of one transaction, for the partitions of it that one leader holds (one WriteTxnMarkers entry).

    `transaction_version` 2 says that the decision bumped the epoch: a log then refuses a marker that is not above the
    epoch of the transaction it would end, so that a repeated marker cannot end the next one.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    partitions: list[TopicPartition]
    transaction_version: int = 0
