"""SaslHandshakeRequest and SaslHandshakeResponse."""

from __future__ import annotations

from ..schema import Request, Response, array, int16, request, response, string


@response(key=17, versions="0-1", flexible="none")
class SaslHandshakeResponse(Response):
    error_code: int = int16("0+")
    mechanisms: list[str] = array("string", "0+")


@request(key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    mechanism: str = string("0+")
