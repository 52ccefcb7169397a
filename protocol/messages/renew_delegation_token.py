"""RenewDelegationTokenRequest and RenewDelegationTokenResponse."""

from __future__ import annotations

from ..schema import Request, Response, binary, int16, int32, int64, request, response


@response(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse(Response):
    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")


@request(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest(Request[RenewDelegationTokenResponse]):
    hmac: bytes = binary("0+")
    renew_period_ms: int = int64("0+")
