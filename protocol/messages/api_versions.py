"""Define ApiVersionsRequest and ApiVersionsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, boolean, int16, int32, int64, request, response, string, struct


@struct
class ApiVersion(Struct):
    api_key: int = int16("0+")
    min_version: int = int16("0+")
    max_version: int = int16("0+")


@struct
class SupportedFeatureKey(Struct):
    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


@struct
class FinalizedFeatureKey(Struct):
    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


@response(key=18, versions="0-4", flexible="3+")
class ApiVersionsResponse(Response):
    """The range of versions of each API, and from v3 the features that the broker supports and the cluster has
    finalized (KIP-584). The response's header is always v0, because the client does not know yet which versions the
    broker understands. Up to v3 a supported feature whose minimum is 0 must be left out, because old versions of
    Kafka's Java client fail on it. v4 includes it.
    """

    error_code: int = int16("0+")
    api_keys: list[ApiVersion] = array(ApiVersion, "0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0, tagged="3+", ignorable=True)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1, tagged="3+", ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2, tagged="3+", ignorable=True)
    zk_migration_ready: bool = boolean("3+", tag=3, tagged="3+", ignorable=True)


@request(key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """Asks which APIs and versions the broker supports. It is the first request on a connection. v3 adds the name and
    version of the client's software (KIP-511) and is flexible. A broker that does not know the request's version
    answers with v0 and UNSUPPORTED_VERSION, so that the client can retry with a lower version.
    """

    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)
