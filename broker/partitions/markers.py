"""Define `Marker`, which the transaction coordinator sends to the partitions' leaders when a transaction ends."""

from __future__ import annotations

from dataclasses import dataclass

TopicPartition = tuple[str, int]


@dataclass(slots=True)
class Marker:
    """The decision to commit or abort a producer's transaction, for one leader's partitions.

    A Marker is one entry of WriteTxnMarkers. `transaction_version` 2 means that the decision bumped the producer epoch.
    A log then refuses a marker whose epoch is not higher than the epoch of the open transaction, so that a repeated
    marker cannot end the next transaction. `has_waited`: whether the sender has already waited while too many files
    were open (`ReplicaManager.until_ready`), so that the marker is appended without a further wait.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    partitions: list[TopicPartition]
    transaction_version: int = 0
    has_waited: bool = False
