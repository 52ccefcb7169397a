"""Define SaslAuthenticateRequest and SaslAuthenticateResponse."""

from __future__ import annotations

from ..schema import Request, Response, binary, int16, int64, request, response, string


@response(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse(Response):
    """Carries the server's next message of the SASL mechanism. v1 adds the session's lifetime in ms, after which the
    client must authenticate again (KIP-368).
    """

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = binary("0+", secret=True)
    session_lifetime_ms: int = int64("1+", ignorable=True)


@request(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest(Request[SaslAuthenticateResponse]):
    """Carries one message of the SASL mechanism from the client (KIP-152)."""

    auth_bytes: bytes = binary("0+", secret=True)
