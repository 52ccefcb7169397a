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
    """Chooses the SASL mechanism. After a v1 handshake, the mechanism's messages are sent in SaslAuthenticate requests.
    After a v0 handshake, they are sent on the connection without any request header.
    """

    mechanism: str = string("0+")
