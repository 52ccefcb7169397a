"""Handle SaslHandshake: choose the mechanism of a login (KIP-43).

An unknown mechanism is answered with the enabled ones, and the connection is closed.
"""

from __future__ import annotations

import asyncio

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ..handling import Deferred, Reply, RequestContext, handles


@handles(SaslHandshakeRequest)
def handle(context: RequestContext, request: SaslHandshakeRequest) -> Reply:
    login = context.connection.login
    if login is None:
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "The listener has no SASL.")
    if login.choose(request.mechanism, context.api_version):
        return SaslHandshakeResponse(mechanisms=list(login.rules.names))

    def refuse(_: None) -> SaslHandshakeResponse:
        asyncio.get_running_loop().call_soon(context.connection.close, "the SASL mechanism is not enabled")
        return SaslHandshakeResponse(int(ErrorCode.UNSUPPORTED_SASL_MECHANISM), list(login.rules.names))

    return Deferred(None, refuse)
