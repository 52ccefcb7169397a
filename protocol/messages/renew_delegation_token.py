"""Define RenewDelegationTokenRequest and RenewDelegationTokenResponse."""

from __future__ import annotations

from ..schema import Request, Response, binary, int16, int32, int64, request, response


@response(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse(Response):
    """The new expiry time, in ms since the epoch."""

    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")


@request(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest(Request[RenewDelegationTokenResponse]):
    """Extends a delegation token's lifetime by a period in ms (KIP-48)."""

    hmac: bytes = binary("0+", secret=True)
    renew_period_ms: int = int64("0+")
