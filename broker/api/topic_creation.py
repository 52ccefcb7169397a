"""Check whether a topic may be created or changed as requested: its name, size, assignments and settings.

CreateTopics, CreatePartitions and automatic creation share these rules. This module changes nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ...settings import ConfigError
from ..metadata.topic_config import TopicConfig, topic_config
from ..topic_names import METADATA_TOPIC, name_problem
from .services import BrokerServices

_SHOWN_BROKERS: Final = 10
"""The maximum number of brokers shown in the error message for a refused assignment."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The checked properties of a topic that may be created."""

    name: str
    partitions: int
    configs: Mapping[str, str]
    effective: TopicConfig


def plan_topic(
    broker: BrokerServices,
    name: str,
    partitions: int = -1,
    replication_factor: int = -1,
    assignments: Mapping[int, Sequence[int]] | None = None,
    configs: Mapping[str, str | None] | None = None,
) -> TopicPlan:
    """Check a new topic and return its plan.

    A `partitions` or `replication_factor` of -1 means the broker's default. Raises KafkaError with the error code of
    the CreateTopics response.
    """
    if (problem := name_problem(name)) is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name == METADATA_TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Creation of internal topic {METADATA_TOPIC} is prohibited. Use another name.",
        )
    broker.metadata.check_new(name)
    if broker.replica_manager.is_stray(name):
        raise KafkaError(
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"The data directory has partitions of an unknown topic {name!r}. Move their directories away first, then"
            " restart the broker.",
        )
    if assignments:
        partitions = _assigned(broker, partitions, replication_factor, assignments)
    else:
        partitions = _counted(broker, partitions, replication_factor)
    own: dict[str, str] = {}
    for key, value in (configs or {}).items():
        if value is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"The topic setting {key} cannot be null. Give it a value or omit it."
            )
        own[key] = value
        if len(own) > len(TopicConfig.rows):
            break  # more settings than exist: at least one is unknown and is refused below, so the rest is not read
    return TopicPlan(name, partitions, own, checked_config(broker, own, {}))


def checked_config(broker: BrokerServices, own: Mapping[str, str], stored: Mapping[str, str]) -> TopicConfig:
    """Return the effective settings of a topic whose own settings change from `stored` to `own`.

    A list is checked for too many, empty or repeated items only if it changes, because a release without these checks
    may have stored it.

    Raises KafkaError INVALID_CONFIG, which names the invalid setting or the two settings that contradict each other.
    """
    try:
        for name, text in own.items():
            if name in TopicConfig.rows and stored.get(name) != text:
                TopicConfig.rows[name].check_items(text)
        config = topic_config(broker.config, own)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"min.compaction.lag.ms ({config.min_compaction_lag_ms}) is greater than max.compaction.lag.ms"
            f" ({config.max_compaction_lag_ms}). Lower the former or raise the latter.",
        )
    return config


def _counted(broker: BrokerServices, partitions: int, replication_factor: int) -> int:
    if replication_factor != -1 and replication_factor < 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor {replication_factor} is not possible. Use 1, or -1 for the default.",
        )
    if partitions != -1 and partitions < 1:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"A topic cannot have {partitions} partitions. Use 1 or more, or -1 for the default.",
        )
    if replication_factor > 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {replication_factor} exceeds the number of brokers (1). Use 1 or -1.",
        )
    count = broker.config.num_partitions if partitions == -1 else partitions
    check_partition_limit(broker, count)
    return count


def check_partition_limit(broker: BrokerServices, partitions: int, *, current: int = 0) -> None:
    """Check that a topic may grow from `current` to `partitions` partitions.

    Raises KafkaError INVALID_PARTITIONS if the topic would exceed `topic.max.partitions`, and POLICY_VIOLATION if all
    topics together would exceed `max.partitions`.
    """
    limit = broker.config.topic_max_partitions
    if partitions > limit:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} partitions are more than topic.max.partitions = {limit}. Use fewer partitions.",
        )
    limit, known = broker.config.max_partitions, broker.metadata.partition_count
    if known + partitions - current > limit:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"All topics together have {known} partitions; adding {partitions - current} would exceed"
            f" max.partitions = {limit}. Delete topics, or raise the limit.",
        )


def check_new_partitions(broker: BrokerServices, partitions: int) -> None:
    """Raise KafkaError POLICY_VIOLATION, as Kafka does, if a request would create too many partitions.

    The limit is `request.max.new.partitions`.
    """
    limit = broker.config.request_max_new_partitions
    if partitions > limit:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"The request would create {partitions} partitions, more than request.max.new.partitions = {limit}."
            " Create them with several requests.",
        )


def _assigned(
    broker: BrokerServices, partitions: int, replication_factor: int, assignments: Mapping[int, Sequence[int]]
) -> int:
    if replication_factor != -1 or partitions != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "With manual assignments, the number of partitions and the replication factor must both be -1.",
        )
    if sorted(assignments) != list(range(len(assignments))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The assigned partitions must be numbered 0, 1, 2, ... without gaps."
        )
    check_partition_limit(broker, len(assignments))
    for index, brokers in assignments.items():
        check_assignment(broker, index, brokers)
    return len(assignments)


def check_assignment(broker: BrokerServices, index: int, brokers: Sequence[int]) -> None:
    """Raise KafkaError INVALID_REPLICA_ASSIGNMENT unless the partition is assigned to this broker alone."""
    if list(brokers) != [broker.node_id]:
        shown = ", ".join(map(str, brokers[:_SHOWN_BROKERS])) + (", ..." if len(brokers) > _SHOWN_BROKERS else "")
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Partition {index} is assigned to brokers [{shown}]. Assign it to the only broker, {broker.node_id}.",
        )
