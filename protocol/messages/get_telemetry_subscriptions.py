"""Define GetTelemetrySubscriptionsRequest and GetTelemetrySubscriptionsResponse."""

from __future__ import annotations

from ..schema import Request, Response, array, boolean, int16, int32, request, response, uuid


@response(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse(Response):
    """The name prefixes of the metrics that the broker wants, the interval in ms at which to push them, and the maximum
    size of a push in bytes.
    """

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    client_instance_id: bytes = uuid("0+")
    subscription_id: int = int32("0+")
    accepted_compression_types: list[int] = array("int8", "0+")
    push_interval_ms: int = int32("0+")
    telemetry_max_bytes: int = int32("0+")
    delta_temporality: bool = boolean("0+")
    requested_metrics: list[str] = array("string", "0+")


@request(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest(Request[GetTelemetrySubscriptionsResponse]):
    """Asks which of the client's metrics the broker wants (KIP-714). A client without an instance id sends zeros and
    gets an id.
    """

    client_instance_id: bytes = uuid("0+")
