"""Define ExpireDelegationTokenRequest and ExpireDelegationTokenResponse."""

from __future__ import annotations

from ..schema import Request, Response, binary, int16, int32, int64, request, response


@response(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenResponse(Response):
    """The new expiry time, in ms since the epoch."""

    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")


@request(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenRequest(Request[ExpireDelegationTokenResponse]):
    """Changes a delegation token's expiry time (KIP-48). A negative period, in ms, expires the token at once."""

    hmac: bytes = binary("0+", secret=True)
    expiry_time_period_ms: int = int64("0+")
