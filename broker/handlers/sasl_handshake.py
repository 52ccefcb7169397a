"""Handle SaslHandshake: choose the mechanism of a login (KIP-43).

The response to an unknown mechanism lists the enabled mechanisms. Then the connection is closed.
"""

from __future__ import annotations

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ..api.handling import Reply, RequestContext, answer_and_close, handles


@handles(SaslHandshakeRequest)
def handle(context: RequestContext, request: SaslHandshakeRequest) -> Reply:
    login = context.connection.login
    if login is None:
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "This listener does not use SASL. Connect without SASL.")
    mechanisms = list(login.rules.mechanisms)
    if login.choose(request.mechanism, context.api_version):
        return SaslHandshakeResponse(mechanisms=mechanisms)
    refusal = SaslHandshakeResponse(int(ErrorCode.UNSUPPORTED_SASL_MECHANISM), mechanisms)
    return answer_and_close(context.connection, refusal, "the SASL mechanism is not enabled")
