"""Define DescribeDelegationTokenRequest and DescribeDelegationTokenResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, binary, int16, int32, int64, request, response, string, struct


@struct
class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = string("0+")
    principal_name: str = string("0+")


@struct
class DescribedDelegationToken(Struct):
    principal_type: str = string("0+")
    principal_name: str = string("0+")
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp: int = int64("0+")
    expiry_timestamp: int = int64("0+")
    max_timestamp: int = int64("0+")
    token_id: str = string("0+")
    hmac: bytes = binary("0+", secret=True)
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer, "0+")


@response(key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenResponse(Response):
    """The tokens with their HMACs and renewers. Times are in ms since the epoch."""

    error_code: int = int16("0+")
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken, "0+")
    throttle_time_ms: int = int32("0+")


@struct
class DescribeDelegationTokenOwner(Struct):
    principal_type: str = string("0+")
    principal_name: str = string("0+")


@request(key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenRequest(Request[DescribeDelegationTokenResponse]):
    """Asks for the delegation tokens of some or (with null) all owners, as far as the caller may see them (KIP-48)."""

    owners: list[DescribeDelegationTokenOwner] | None = array(DescribeDelegationTokenOwner, "0+", nullable="0+")
