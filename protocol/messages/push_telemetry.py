"""Define PushTelemetryRequest and PushTelemetryResponse."""

from __future__ import annotations

from ..schema import Request, Response, binary, boolean, int8, int16, int32, request, response, uuid


@response(key=72, versions="0", flexible="0+")
class PushTelemetryResponse(Response):
    """Tells whether the broker accepted the metrics."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")


@request(key=72, versions="0", flexible="0+")
class PushTelemetryRequest(Request[PushTelemetryResponse]):
    """Sends the metrics to which the broker has subscribed, as a compressed OTLP message (KIP-714)."""

    client_instance_id: bytes = uuid("0+")
    subscription_id: int = int32("0+")
    terminating: bool = boolean("0+")
    compression_type: int = int8("0+")
    metrics: bytes = binary("0+")
