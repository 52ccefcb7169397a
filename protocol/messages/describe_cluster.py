"""Define DescribeClusterRequest and DescribeClusterResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, boolean, int8, int16, int32, request, response, string, struct


@struct
class DescribeClusterBroker(Struct):
    broker_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("0+", default=None, nullable="0+")
    is_fenced: bool = boolean("2+")


@response(key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse(Response):
    """The cluster's id, its controller, and its brokers with their addresses."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string("0+")
    controller_id: int = int32("0+", default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker, "0+")
    cluster_authorized_operations: int = int32("0+", default=-2_147_483_648)


@request(key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest(Request[DescribeClusterResponse]):
    """Asks for the cluster's id, controller and brokers, without topics (KIP-700). v1 can ask for the controllers'
    endpoints (KIP-919), v2 for fenced brokers (KIP-1073).
    """

    include_cluster_authorized_operations: bool = boolean("0+")
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")
