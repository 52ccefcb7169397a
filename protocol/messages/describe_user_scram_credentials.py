"""Define DescribeUserScramCredentialsRequest and DescribeUserScramCredentialsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, int8, int16, int32, request, response, string, struct


@struct
class CredentialInfo(Struct):
    mechanism: int = int8("0+")
    iterations: int = int32("0+")


@struct
class DescribeUserScramCredentialsResult(Struct):
    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo, "0+")


@response(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse(Response):
    """The mechanisms and iterations of each user, never salts or passwords."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult, "0+")


@struct
class UserName(Struct):
    name: str = string("0+")


@request(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest(Request[DescribeUserScramCredentialsResponse]):
    """Asks which SCRAM credentials users have (KIP-554). `users` is null for all users."""

    users: list[UserName] | None = array(UserName, "0+", nullable="0+")
