"""Define IncrementalAlterConfigsRequest and IncrementalAlterConfigsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, boolean, int8, int16, int32, request, response, string, struct


@struct
class AlterConfigsResourceResponse(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")


@response(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse(Response):
    """The result of each resource. All changes of a resource are made, or none."""

    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+")


@struct
class AlterableConfig(Struct):
    name: str = string("0+")
    config_operation: int = int8("0+")
    value: str | None = string("0+", nullable="0+")


@struct
class AlterConfigsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[AlterableConfig] = array(AlterableConfig, "0+")


@request(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest(Request[IncrementalAlterConfigsResponse]):
    """Changes single configs of resources (KIP-339). The operation is to set (0) or delete (1) the config, or to append
    to (2) or subtract from (3) its list.
    """

    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")
