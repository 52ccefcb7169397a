"""Checks the arguments of `Admin`: types, and the ranges of the requests' fields.

The broker decides which names and numbers are valid. A value is refused here only if no request can carry it, or if it
would be mistaken for another value: True for 1, a misspelt isolation level for read_uncommitted.
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


def topics_to_create(given: Iterable[NewTopic]) -> list[NewTopic]:
    """Return the checked topics to create."""
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        raise TypeError(f"new_topics must be an iterable of NewTopic, not {type(given).__name__}")
    return [_new_topic(topic) for topic in given]


def _new_topic(given: object) -> NewTopic:
    if not isinstance(given, NewTopic):
        raise TypeError(f"new_topics: {given!r:.100} is not a NewTopic")
    name = name_of(given.name, "topic")
    return NewTopic(
        name,
        whole_number(given.partitions, f"partitions of topic {name!r}", MAX_INT32, at_least=-1),
        whole_number(given.replication_factor, f"replication_factor of topic {name!r}", MAX_INT16, at_least=-1),
        {key: value for key, value in _configs(given.configs, f"topic {name!r}").items() if value is not None},
    )


def partition_totals(given: Mapping[str, int]) -> dict[str, int]:
    """Return the checked new totals of partitions, by topic."""
    _mapping(given, "totals", "from topic to the new total of partitions")
    return {
        name_of(topic, "topic"): whole_number(total, f"total of partitions of topic {topic!r}", MAX_INT32, at_least=-1)
        for topic, total in given.items()
    }


def offsets_to_delete_before(given: ByPartition[int]) -> dict[TopicPartition, int]:
    """Return, by partition, the checked offset before which the records are to be deleted."""
    return _numbers(given, "before", "offset", ALL_RECORDS)


def times_to_look_up(given: ByPartition[int]) -> dict[TopicPartition, int]:
    """Return the checked time to look up in each partition."""
    return _numbers(given, "wanted", "time", EARLIEST_SPECIAL_TIME, "; in milliseconds: int(time.time() * 1000)")


def _numbers(given: object, argument: str, what: str, at_least: int, hint: str = "") -> dict[TopicPartition, int]:
    mapping = _mapping(given, argument, f"from (topic, partition) to {what}")
    numbers = {}
    for key, number in mapping.items():
        partition = partition_of(key)
        numbers[partition] = whole_number(number, f"{what} of {partition}", MAX_INT64, hint, at_least=at_least)
    return numbers


def is_read_committed(given: object) -> bool:
    """Return whether an isolation level is read_committed; raises ValueError for an unknown level."""
    if given not in ("read_uncommitted", "read_committed"):
        raise ValueError(f"isolation_level {given!r:.100} is neither 'read_uncommitted' nor 'read_committed'")
    return given == "read_committed"


def abort_spec(given: AbortTransactionSpec) -> AbortTransactionSpec:
    """Return the checked spec of a transaction to abort."""
    if not isinstance(given, AbortTransactionSpec):
        raise TypeError(f"spec must be an AbortTransactionSpec, not {type(given).__name__}")
    return AbortTransactionSpec(
        partition_of(given.partition),
        whole_number(given.producer_id, "producer_id", MAX_INT64),
        whole_number(given.producer_epoch, "producer_epoch", MAX_INT16),
        whole_number(given.coordinator_epoch, "coordinator_epoch", MAX_INT32),
    )


def resources_of(given: Iterable[ConfigResource]) -> list[ConfigResource]:
    """Return the checked resources whose configs are to be described."""
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | ConfigResource):
        raise TypeError(f"resources must be an iterable of ConfigResource, not {type(given).__name__}")
    return [_resource(resource) for resource in given]


def config_changes(
    given: Mapping[ConfigResource, Mapping[str, str | None]],
) -> dict[ConfigResource, dict[str, str | None]]:
    """Return the checked configs to set and to remove, by resource."""
    mapping = _mapping(given, "changes", "from ConfigResource to configs")
    changes = {}
    for key, configs in mapping.items():
        resource = _resource(key)
        changes[resource] = _configs(configs, f"{resource.type.name.lower()} {resource.name!r}")
    return changes


def _resource(given: object) -> ConfigResource:
    match given:
        case (kind, name) if isinstance(given, tuple):
            return ConfigResource(_kind(kind), name_of(name, "the name of a ConfigResource"))
    raise TypeError(f"{given!r:.100} is not a ConfigResource")


def _kind(given: object) -> ResourceType:
    number = whole_number(given, "the type of a ConfigResource", MAX_INT16)
    try:
        return ResourceType(number)
    except ValueError:
        known = ", ".join(kind.name for kind in ResourceType)
        raise ValueError(f"the type of a ConfigResource, {number}, is not one of {known}") from None


def _configs(given: object, where: str) -> dict[str, str | None]:
    configs: dict[str, str | None] = {}
    for name, value in _mapping(given, f"configs of {where}", "from name to value").items():
        key = name_of(name, f"each config name of {where}")
        if not (value is None or isinstance(value, str)):
            hint = "" if isinstance(value, bytes | bytearray) else f": give {str(value).lower()!r:.100}"
            raise TypeError(f"config {key} of {where} must be a str, not {type(value).__name__}{hint}")
        configs[key] = value if value is None else name_of(value, f"config {key} of {where}")
    return configs


def _mapping(given: object, argument: str, shape: str) -> Mapping[object, object]:
    if not isinstance(given, Mapping):
        raise TypeError(f"{argument} must be a mapping {shape}, not {type(given).__name__}")
    return given
