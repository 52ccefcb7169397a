"""Define AlterUserScramCredentialsRequest and AlterUserScramCredentialsResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, binary, int8, int16, int32, request, response, string, struct


@struct
class AlterUserScramCredentialsResult(Struct):
    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


@response(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse(Response):
    """The result of each user. All changes of a user are made, or none."""

    throttle_time_ms: int = int32("0+")
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult, "0+")


@struct
class ScramCredentialDeletion(Struct):
    name: str = string("0+")
    mechanism: int = int8("0+")


@struct
class ScramCredentialUpsertion(Struct):
    name: str = string("0+")
    mechanism: int = int8("0+")
    iterations: int = int32("0+")
    salt: bytes = binary("0+")
    salted_password: bytes = binary("0+", secret=True)


@request(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest(Request[AlterUserScramCredentialsResponse]):
    """Sets and removes SCRAM credentials (KIP-554). A client sends salt and salted password, never the password."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion, "0+")
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion, "0+")
