"""Define ListConfigResourcesRequest and ListConfigResourcesResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int8, int16, int32, request, response, string, struct


@struct
class ConfigResource(Struct):
    resource_name: str = string("0+")
    resource_type: int = int8("1+", default=16, ignorable=True)


@response(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse(Response):
    """The names of the resources, and from v1 their types."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    config_resources: list[ConfigResource] = array(ConfigResource, "0+")


@request(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest(Request[ListConfigResourcesResponse]):
    """Asks for the names of resources that have configs, by type (KIP-1142). v0 lists only client metrics resources."""

    resource_types: list[int] = array("int8", "1+")
