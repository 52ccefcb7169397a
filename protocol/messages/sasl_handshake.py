"""Define SaslHandshakeRequest and SaslHandshakeResponse."""

from __future__ import annotations

from ..schema import Request, Response, array, int16, request, response, string


@response(key=17, versions="0-1", flexible="none")
class SaslHandshakeResponse(Response):
    """Tells whether the mechanism is enabled, and lists the enabled mechanisms."""

    error_code: int = int16("0+")
    mechanisms: list[str] = array("string", "0+")


@request(key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    """Chooses the SASL mechanism. After v1 the mechanism's messages are sent in SaslAuthenticate requests, after v0
    without any header on the connection.
    """

    mechanism: str = string("0+")
