"""Define DescribeConfigsRequest and DescribeConfigsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, boolean, int8, int16, int32, request, response, string, struct


@struct
class DescribeConfigsSynonym(Struct):
    name: str = string("1+")
    value: str | None = string("1+", nullable="0+")
    source: int = int8("1+")


@struct
class DescribeConfigsResourceResult(Struct):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")
    read_only: bool = boolean("0+")
    config_source: int = int8("1+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("0+")
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+", ignorable=True)
    config_type: int = int8("3+", ignorable=True)
    documentation: str | None = string("3+", nullable="0+", ignorable=True)


@struct
class DescribeConfigsResult(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult, "0+")


@response(key=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse(Response):
    """The configs of each resource, with value (null if sensitive), source and flags. Sources and types are Kafka's
    numbers.
    """

    throttle_time_ms: int = int32("0+")
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult, "0+")


@struct
class DescribeConfigsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configuration_keys: list[str] | None = array("string", "0+", nullable="0+")


@request(key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    """Asks for configs of topics, brokers and other resources: all of them, or only the named ones. v1 adds synonyms
    (KIP-226), v3 documentation and type (KIP-569).
    """

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource, "0+")
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")
