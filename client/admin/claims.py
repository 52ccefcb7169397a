"""Claims of group-aware producers on the input partitions of a consumer group: read, and removed by hand.

They are the config `transaction.claims` of a resource of type GROUP. A broker without the transaction extension does
not have that config.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ..errors import UnsupportedVersionError
from ..values import TopicPartition
from .calls import AdminCalls
from .topics import alter_configs, describe_configs
from .values import ConfigResource, ResourceType

CONFIG: Final = "transaction.claims"


class GroupClaim(NamedTuple):
    """A claimed input partition, and the producer that alone may commit the group's offsets on it.

    Producers with an older `generation_id`, or without one, are refused.
    """

    partition: TopicPartition
    transactional_id: str
    producer_id: int
    generation_id: int


async def group_claims(calls: AdminCalls, group_id: str) -> list[GroupClaim]:
    """DescribeConfigs of the group; raises UnsupportedVersionError where the broker has no claims."""
    resource = ConfigResource(ResourceType.GROUP, group_id)
    try:
        entry = (await describe_configs(calls, [resource]))[resource].get(CONFIG)
    except KafkaError as error:
        if error.code is not ErrorCode.INVALID_REQUEST:
            raise
        entry = None  # before Kafka 3.9 there are no configs of groups
    if entry is None:
        raise UnsupportedVersionError(
            ErrorCode.UNSUPPORTED_VERSION,
            "the broker keeps no claims of groups: that needs oncelog at inter.broker.protocol.version 4.1 or above",
        )
    return sorted(
        GroupClaim(
            TopicPartition(claim["topic"], claim["partition"]),
            claim["transactional_id"],
            claim["producer_id"],
            claim["generation"],
        )
        for claim in json.loads(entry.value or "[]")
    )


async def unfence_group(calls: AdminCalls, group_id: str) -> list[GroupClaim]:
    """Delete the claims with IncrementalAlterConfigs, and return those that were deleted."""
    claims = await group_claims(calls, group_id)
    if claims:
        resource = ConfigResource(ResourceType.GROUP, group_id)
        outcomes = await alter_configs(calls, {resource: {CONFIG: None}}, validate_only=False)
        error = outcomes[resource]
        if error is not None:
            raise error
    return claims
