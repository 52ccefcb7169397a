"""Handle DescribeCluster: return the cluster's id and its brokers."""

from __future__ import annotations

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from ..api.authorization import NOT_ASKED, cluster_operations
from ..api.handling import RequestContext, handles

BROKERS = 1
"""The endpoint type of brokers. Type 2 means controllers. This broker has no separate endpoint for its controller."""


@handles(DescribeClusterRequest)
def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    broker = context.broker
    if request.endpoint_type != BROKERS:
        known = request.endpoint_type == 2
        raise KafkaError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            "This endpoint belongs to a broker, not to a controller. Use endpoint type 1."
            if known
            else f"Endpoint type {request.endpoint_type} does not exist. Use endpoint type 1 (brokers).",
        )
    host, port = broker.endpoint(context.connection)
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[DescribeClusterBroker(broker.node_id, host, port, broker.config.broker_rack or None)],
        cluster_authorized_operations=cluster_operations(context.access) if asked else NOT_ASKED,
        endpoint_type=BROKERS,
    )
