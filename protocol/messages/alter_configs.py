"""Define AlterConfigsRequest and AlterConfigsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, boolean, int8, int16, int32, request, response, string, struct


@struct
class AlterConfigsResourceResponse(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")


@response(key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse(Response):
    """The result of each resource. All configs of a resource are changed, or none."""

    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+")


@struct
class AlterableConfig(Struct):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


@struct
class AlterConfigsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[AlterableConfig] = array(AlterableConfig, "0+")


@request(key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest(Request[AlterConfigsResponse]):
    """Replaces all dynamic configs of each resource. A config that the request does not name gets its default again.
    Superseded by IncrementalAlterConfigs (KIP-339), which changes single configs.
    """

    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")
