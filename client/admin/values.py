"""Values of the admin client: its arguments and results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from ..metadata import Node
from ..values import TopicPartition


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. The number -1 means the broker's default; `configs` uses Kafka's dotted names."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


class ResourceType(IntEnum):
    """The kind of a resource that has configs (Kafka's numbers)."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigResource(NamedTuple):
    """A topic, broker or group that has configs; a broker's name is its id."""

    type: ResourceType
    name: str


class ConfigEntry(NamedTuple):
    """A config. `source` is Kafka's number for the origin of its value: 1 the topic's own config, 2 and 3 a dynamic
    broker config, 4 the broker's file, 5 the default.
    """

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
    """A listed group; `state` and `type` are empty where the broker does not send them."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class GroupMember(NamedTuple):
    """A member of a group. If the member is a consumer, `partitions` is its assignment."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]


class GroupDescription(NamedTuple):
    """A group. `state` is Kafka's name: Empty, PreparingRebalance, CompletingRebalance, Stable or Dead."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[GroupMember, ...]
