"""What the admin client takes and gives. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from ..metadata import Node
from ..values import TopicPartition


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 stands for the broker's default. `configs` by Kafka's dotted names."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


class ResourceType(IntEnum):
    """What a config belongs to (Kafka's numbers)."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigResource(NamedTuple):
    """A topic, broker or group whose configs are meant; a broker is named by its id."""

    type: ResourceType
    name: str


class ConfigEntry(NamedTuple):
    """One config. `source` is Kafka's number: 1 the topic's own, 2, 3 dynamic, 4 the broker's file, 5 the default."""

    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool


class ClusterDescription(NamedTuple):
    """The cluster's id, its controller and its brokers."""

    cluster_id: str
    controller_id: int
    brokers: tuple[Node, ...]


class GroupListing(NamedTuple):
    """A group as it is listed; `state` and `type` are empty where the broker does not say."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class GroupMember(NamedTuple):
    """A member of a group; its partitions, where it is a consumer."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]


class GroupDescription(NamedTuple):
    """A group: Kafka's state names (Empty, PreparingRebalance, CompletingRebalance, Stable, Dead)."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[GroupMember, ...]
