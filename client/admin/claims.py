"""Reads and removes the claims of group-aware producers on the input partitions of a consumer group.

The config `transaction.claims` of a resource of type GROUP contains the claims. If they do not fit into one value, the
rest is in `transaction.claims.2`, `transaction.claims.3` and so on. Only brokers with oncelog's transaction extension
have these configs.
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
    """A claimed input partition, and the only producer that may commit the group's offsets of this partition.

    Producers with an older `generation_id`, or without a generation, are refused.
    """

    partition: TopicPartition
    transactional_id: str
    producer_id: int
    generation_id: int


async def group_claims(calls: AdminCalls, group_id: str) -> list[GroupClaim]:
    """Return the group's claims, read with DescribeConfigs. Raises UnsupportedVersionError if the broker does not keep
    claims.
    """
    resource = ConfigResource(ResourceType.GROUP, group_id)
    try:
        configs = (await describe_configs(calls, [resource]))[resource]
    except KafkaError as error:
        if error.code is not ErrorCode.INVALID_REQUEST:
            raise
        configs = {}  # before Kafka 3.9, groups have no configs
    if CONFIG not in configs:
        raise UnsupportedVersionError(
            ErrorCode.UNSUPPORTED_VERSION,
            "the broker does not keep claims of groups: use an oncelog broker with inter.broker.protocol.version 4.1 or"
            " above",
        )
    return sorted(
        GroupClaim(
            TopicPartition(claim["topic"], claim["partition"]),
            claim["transactional_id"],
            claim["producer_id"],
            claim["generation"],
        )
        for name, entry in configs.items()
        if name == CONFIG or name.startswith(f"{CONFIG}.")
        for claim in json.loads(entry.value or "[]")
    )


async def unfence_group(calls: AdminCalls, group_id: str) -> list[GroupClaim]:
    """Delete the group's claims with IncrementalAlterConfigs, and return the deleted claims."""
    claims = await group_claims(calls, group_id)
    if claims:
        resource = ConfigResource(ResourceType.GROUP, group_id)
        outcomes = await alter_configs(calls, {resource: {CONFIG: None}}, validate_only=False)
        error = outcomes[resource]
        if error is not None:
            raise error
    return claims
