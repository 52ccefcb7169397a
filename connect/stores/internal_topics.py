"""Creates internal topics, and chooses the partitions of their records.

A topic that would lose records is refused: cleanup.policy must be `compact` alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from ...client.admin import Admin, ConfigResource, NewTopic
from ...client.admin.values import ResourceType
from ...client.errors import KafkaError
from ...client.producer import Delivery, Producer
from ...client.producer.partitioner import partition_for_key
from ...protocol.errors import ErrorCode
from ..errors import ConnectError

log = logging.getLogger(__name__)

_POLICY: Final = "cleanup.policy"
_FORBIDDEN: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


async def prepare(admin: Admin, topic: NewTopic, setting: str, purpose: str) -> None:
    """Create a topic unless it exists. Raise KafkaError, and ConnectError if an existing topic is not compacted.

    A worker that is not authorised to create the topic expects it to exist. If it is not authorised to describe the
    topic's configs, compaction is not checked.
    """
    outcome = (await admin.create_topics([topic], raise_errors=False))[topic.name]
    if outcome is None:
        log.info("created the internal topic %s", topic.name)
        return
    if outcome.code in _FORBIDDEN:
        log.info("not authorised to create the internal topic %s: assuming that it exists", topic.name)
    elif outcome.code != ErrorCode.TOPIC_ALREADY_EXISTS:
        raise outcome
    await _require_compaction(admin, topic.name, setting, purpose)


async def enqueue(
    producer: Producer[Any, Any], topic: str, key: bytes, value: bytes | None, places: Mapping[int, int]
) -> list[Delivery]:
    """Hand a record of an internal topic to a producer. Raises KafkaError.

    The key determines the partition, whatever partitioner the producer has, because compaction keeps the last record of
    a key in each partition. A deletion also goes to all other partitions in `places`, which have older records of the
    key: otherwise, these records would be valid again once compaction has removed the deletion. In such a partition,
    the deletion has the timestamp of the older records, so that no reader considers the deletion newer than a later
    record of the key.
    """
    home = partition_for_key(key, await producer.partitions_for(topic))
    others = [] if value is not None else [(number, at) for number, at in places.items() if number != home]
    return [
        await producer.enqueue(topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms)
        for partition, timestamp_ms in [(home, None), *others]
    ]


async def _require_compaction(admin: Admin, topic: str, setting: str, purpose: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        entry = (await admin.describe_configs([resource]))[resource].get(_POLICY)
    except KafkaError as error:
        log.info("could not verify that the internal topic %s is compacted: %s", topic, error)
        return
    policies = sorted(policy.strip().lower() for policy in (entry.value or "").split(",")) if entry else ["compact"]
    if policies != ["compact"]:
        raise ConnectError(
            f"Topic '{topic}' supplied via the '{setting}' property is required to have '{_POLICY}=compact' to "
            f"guarantee consistency and durability of {purpose}, but found the topic currently has "
            f"'{_POLICY}={','.join(policies)}'. Continuing would likely result in eventually losing {purpose} and "
            f"problems restarting this Connect cluster in the future. Change the '{setting}' property in the Connect "
            f"worker configurations to use a topic with '{_POLICY}=compact'."
        )
