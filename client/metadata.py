"""Metadata of the cluster: brokers, topics, leaders. Snapshots are immutable: an update returns a new snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..protocol.errors import ErrorCode, error_code
from ..protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from ..protocol.schema import NO_UUID
from .values import TopicPartition


class Node(NamedTuple):
    """A broker's address. An id below 0 stands for a bootstrap address, whose real id is not known yet."""

    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition. `leader_id` is -1 without a leader; `leader_epoch` is -1 where the broker does not send it."""

    index: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    in_sync_replicas: tuple[int, ...] = ()
    error_code: ErrorCode = ErrorCode.NONE


class TopicMetadata(NamedTuple):
    """A topic with its partitions by index. `topic_id` is all zeros with brokers before Kafka 2.8.

    If a response leaves out a partition or lists one twice, `partitions` is empty and `error_code` is
    UNKNOWN_SERVER_ERROR.
    """

    name: str
    topic_id: bytes
    error_code: ErrorCode
    is_internal: bool
    partitions: tuple[PartitionMetadata, ...]


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """A snapshot of the cluster. `topics` contains all requested topics, with an error_code if they do not exist."""

    brokers: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    cluster_id: str | None = None
    controller_id: int = -1
    names_by_id: Mapping[bytes, str] = field(default_factory=dict)
    leaders: Mapping[TopicPartition, int] = field(default_factory=dict)

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic by its id, or None."""
        return self.names_by_id.get(topic_id)

    def is_recreated(self, topic: str, topic_id: bytes) -> bool:
        """Return whether the topic is known to have another id now, because it was deleted and created again."""
        known = self.topics.get(topic)
        return known is not None and known.topic_id != topic_id and NO_UUID not in (known.topic_id, topic_id)

    def leader_of(self, partition: tuple[str, int]) -> int | None:
        """Return the id of the partition's leader, or None if the partition has no leader or is unknown."""
        return self.leaders.get(partition)  # type: ignore[call-overload, no-any-return]  # a plain tuple matches too

    def updated(self, response: MetadataResponse, keep: Iterable[str] | None) -> ClusterMetadata:
        """Return a new snapshot: the response's brokers and topics, and the known topics that are in `keep`.

        If `keep` is None, the response contains all topics of the cluster, so known topics that it does not contain are
        dropped. A leader is ignored if its leader epoch is older than that of the known leader, because brokers learn
        of changes at different times.
        """
        topics = {} if keep is None else {name: self.topics[name] for name in keep if name in self.topics}
        for topic in response.topics:
            if topic.name is not None:
                topics[topic.name] = _merge(self.topics.get(topic.name), topic)
        return ClusterMetadata(
            brokers={b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers if b.node_id >= 0},
            topics=topics,
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            names_by_id={topic.topic_id: name for name, topic in topics.items() if topic.topic_id != NO_UUID},
            leaders={
                TopicPartition(name, partition.index): partition.leader_id
                for name, topic in topics.items()
                for partition in topic.partitions
                if partition.leader_id >= 0
            },
        )


def _merge(known: TopicMetadata | None, topic: MetadataResponseTopic) -> TopicMetadata:
    assert topic.name is not None
    if sorted(partition.partition_index for partition in topic.partitions) != list(range(len(topic.partitions))):
        # From here on a partition's index is its place in a list, so a response with gaps or duplicates must not be
        # used.
        return TopicMetadata(topic.name, topic.topic_id, ErrorCode.UNKNOWN_SERVER_ERROR, topic.is_internal, ())
    before: dict[int, PartitionMetadata] = {}
    if known is not None and known.topic_id == topic.topic_id:
        before = {partition.index: partition for partition in known.partitions}
    partitions = []
    for new in sorted(topic.partitions, key=lambda partition: partition.partition_index):
        old = before.get(new.partition_index)
        if old is not None and new.leader_epoch < old.leader_epoch and new.leader_epoch >= 0:
            partitions.append(old)
            continue
        partitions.append(
            PartitionMetadata(
                new.partition_index,
                new.leader_id,
                new.leader_epoch,
                tuple(new.replica_nodes),
                tuple(new.isr_nodes),
                error_code(new.error_code),
            )
        )
    return TopicMetadata(topic.name, topic.topic_id, error_code(topic.error_code), topic.is_internal, tuple(partitions))
