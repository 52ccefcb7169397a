"""IncrementalAlterConfigsRequest and IncrementalAlterConfigsResponse."""

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
    """Answers per resource; the changes of a resource are made together or not at all."""

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
    """Changes single configs of resources: set (0), delete (1), append to (2) or subtract from (3) a list (KIP-339)."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")
