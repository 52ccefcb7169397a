"""Find out how long Kafka keeps a query's state after the query's last commit: `state_expires_after_s`."""

from __future__ import annotations

from typing import Final

from ...client.cluster import Cluster
from ...protocol.errors import KafkaError
from ...protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

SETTING: Final = "offsets.retention.minutes"
DEFAULT_MINUTES: Final = 10_080
"""Kafka's default of offsets.retention.minutes: one week."""

_BROKER: Final = 4


async def state_expires_after_s(cluster: Cluster) -> float:
    """Return how many seconds after the last commit the brokers drop a group's offsets, which store the sink's state.

    Ask one broker for its `offsets.retention.minutes`. Return Kafka's default if the broker does not report this
    config, for instance because the client lacks the permission.
    """
    try:
        await cluster.refresh()
        node_id = next(iter(cluster.metadata.brokers))
        request = DescribeConfigsRequest([DescribeConfigsResource(_BROKER, str(node_id), [SETTING])])
        answer = await cluster.call(node_id, request)
    except KafkaError:
        return DEFAULT_MINUTES * 60
    values = [config.value for result in answer.results for config in result.configs if config.name == SETTING]
    return 60 * int(values[0] or DEFAULT_MINUTES) if values else DEFAULT_MINUTES * 60
