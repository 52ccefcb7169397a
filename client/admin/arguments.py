"""Checks the arguments of `Admin`: types, and the ranges of the requests' fields.

The broker decides which names and numbers are valid. A value is refused here only if no request can carry it, or if it
would be mistaken for another value: True for 1, or a misspelt isolation level for read_uncommitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ..validation import MAX_INT16, MAX_INT32, MAX_INT64, name_of, partition_of, whole_number
from ..values import ByPartition, TopicPartition
from .transaction_values import AbortTransactionSpec
from .values import ConfigResource, NewTopic, ResourceType

ALL_RECORDS: Final = -1
EARLIEST_SPECIAL_TIME: Final = -5
"""The lowest number that ListOffsets accepts in place of a time (KIP-405, KIP-1005)."""


def topics_to_create(new_topics: Iterable[NewTopic]) -> list[NewTopic]:
    """Return the checked topics to create."""
    if not isinstance(new_topics, Iterable) or isinstance(new_topics, str | bytes | Mapping):
        raise TypeError(f"new_topics must be an iterable of NewTopic, not {type(new_topics).__name__}")
    return [_new_topic(topic) for topic in new_topics]


def _new_topic(topic: object) -> NewTopic:
    if not isinstance(topic, NewTopic):
        raise TypeError(f"new_topics: {topic!r:.100} is not a NewTopic")
    name = name_of(topic.name, "topic")
    return NewTopic(
        name,
        whole_number(topic.partitions, f"partitions of topic {name!r}", MAX_INT32, at_least=-1),
        whole_number(topic.replication_factor, f"replication_factor of topic {name!r}", MAX_INT16, at_least=-1),
        {key: value for key, value in _configs(topic.configs, f"topic {name!r}").items() if value is not None},
    )


def partition_totals(totals: Mapping[str, int]) -> dict[str, int]:
    """Return the checked new number of partitions of each topic."""
    _mapping(totals, "totals", "from topic to the new total of partitions")
    return {
        name_of(topic, "topic"): whole_number(total, f"total of partitions of topic {topic!r}", MAX_INT32, at_least=-1)
        for topic, total in totals.items()
    }


def offsets_to_delete_before(offsets: ByPartition[int]) -> dict[TopicPartition, int]:
    """Check and return, for each partition, the offset below which its records are to be deleted."""
    return _numbers(offsets, "before", "offset", ALL_RECORDS)


def times_to_look_up(times: ByPartition[int]) -> dict[TopicPartition, int]:
    """Return the checked time to look up in each partition."""
    return _numbers(times, "wanted", "time", EARLIEST_SPECIAL_TIME, "; give milliseconds: int(time.time() * 1000)")


def _numbers(value: object, argument: str, what: str, at_least: int, hint: str = "") -> dict[TopicPartition, int]:
    mapping = _mapping(value, argument, f"from (topic, partition) to {what}")
    numbers = {}
    for key, number in mapping.items():
        partition = partition_of(key)
        numbers[partition] = whole_number(number, f"{what} of {partition}", MAX_INT64, hint, at_least=at_least)
    return numbers


def is_read_committed(isolation_level: object) -> bool:
    """Return whether an isolation level is read_committed. Raises ValueError for an unknown level."""
    if isolation_level not in ("read_uncommitted", "read_committed"):
        raise ValueError(f"isolation_level {isolation_level!r:.100} is neither 'read_uncommitted' nor 'read_committed'")
    return isolation_level == "read_committed"


def abort_spec(spec: AbortTransactionSpec) -> AbortTransactionSpec:
    """Return the checked spec of a transaction to abort."""
    if not isinstance(spec, AbortTransactionSpec):
        raise TypeError(f"spec must be an AbortTransactionSpec, not {type(spec).__name__}")
    return AbortTransactionSpec(
        partition_of(spec.partition),
        whole_number(spec.producer_id, "producer_id", MAX_INT64),
        whole_number(spec.producer_epoch, "producer_epoch", MAX_INT16),
        whole_number(spec.coordinator_epoch, "coordinator_epoch", MAX_INT32),
    )


def resources_of(resources: Iterable[ConfigResource]) -> list[ConfigResource]:
    """Return the resources whose configs are to be described, after checking them."""
    if not isinstance(resources, Iterable) or isinstance(resources, str | bytes | ConfigResource):
        raise TypeError(f"resources must be an iterable of ConfigResource, not {type(resources).__name__}")
    return [_resource(resource) for resource in resources]


def config_changes(
    configs_by_resource: Mapping[ConfigResource, Mapping[str, str | None]],
) -> dict[ConfigResource, dict[str, str | None]]:
    """Return the checked configs to set and to remove, by resource."""
    mapping = _mapping(configs_by_resource, "changes", "from ConfigResource to configs")
    changes = {}
    for key, configs in mapping.items():
        resource = _resource(key)
        changes[resource] = _configs(configs, f"{resource.type.name.lower()} {resource.name!r}")
    return changes


def _resource(value: object) -> ConfigResource:
    match value:
        case (kind, name) if isinstance(value, tuple):
            return ConfigResource(_kind(kind), name_of(name, "the name of a ConfigResource"))
    raise TypeError(f"{value!r:.100} is not a ConfigResource")


def _kind(value: object) -> ResourceType:
    number = whole_number(value, "the type of a ConfigResource", MAX_INT16)
    try:
        return ResourceType(number)
    except ValueError:
        known = ", ".join(kind.name for kind in ResourceType)
        raise ValueError(f"the type of a ConfigResource, {number}, is not one of {known}") from None


def _configs(mapping: object, where: str) -> dict[str, str | None]:
    configs: dict[str, str | None] = {}
    for name, value in _mapping(mapping, f"configs of {where}", "from name to value").items():
        key = name_of(name, f"each config name of {where}")
        if not (value is None or isinstance(value, str)):
            hint = "" if isinstance(value, bytes | bytearray) else f": give {str(value).lower()!r:.100}"
            raise TypeError(f"config {key} of {where} must be a str, not {type(value).__name__}{hint}")
        configs[key] = value if value is None else name_of(value, f"config {key} of {where}")
    return configs


def _mapping(value: object, argument: str, shape: str) -> Mapping[object, object]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{argument} must be a mapping {shape}, not {type(value).__name__}")
    return value
