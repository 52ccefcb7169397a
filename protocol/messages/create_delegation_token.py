"""Define CreateDelegationTokenRequest and CreateDelegationTokenResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, binary, int16, int32, int64, request, response, string, struct


@response(key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenResponse(Response):
    """The token and its HMAC, which is the secret for authentication. Times are in ms since the epoch."""

    error_code: int = int16("0+")
    principal_type: str = string("0+")
    principal_name: str = string("0+")
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64("0+")
    expiry_timestamp_ms: int = int64("0+")
    max_timestamp_ms: int = int64("0+")
    token_id: str = string("0+")
    hmac: bytes = binary("0+", secret=True)
    throttle_time_ms: int = int32("0+")


@struct
class CreatableRenewers(Struct):
    principal_type: str = string("0+")
    principal_name: str = string("0+")


@request(key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenRequest(Request[CreateDelegationTokenResponse]):
    """Creates a delegation token (KIP-48). `max_lifetime_ms` of -1 means the broker's default. v3 lets a client with
    the permission CREATE_TOKENS create a token for another principal (KIP-373).
    """

    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers, "0+")
    max_lifetime_ms: int = int64("0+")
