"""Handle SaslAuthenticate: exchange the messages of a SASL mechanism (KIP-152) and begin a session (KIP-368).

A refused login is answered with SASL_AUTHENTICATION_FAILED, and the connection is closed. A login that could not be
checked gets no response.
"""

from __future__ import annotations

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ..api.handling import Reply, RequestContext, answer_and_close, handles
from ..security.login import LoginNotChecked, LoginRefused


@handles(SaslAuthenticateRequest)
async def handle(context: RequestContext, request: SaslAuthenticateRequest) -> Reply:
    login = context.connection.login
    if login is None:
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "This listener does not use SASL. Connect without SASL.")
    answering = login.answer(request.auth_bytes)
    request.auth_bytes = b""  # so that a large message does not stay in memory while its refusal is delayed
    try:
        challenge, session_ms = await answering
    except LoginNotChecked as error:
        context.connection.close(str(error))
        return None
    except LoginRefused as error:
        refusal = SaslAuthenticateResponse(int(ErrorCode.SASL_AUTHENTICATION_FAILED), str(error))
        return answer_and_close(context.connection, refusal, "the login was refused")
    return SaslAuthenticateResponse(auth_bytes=challenge, session_lifetime_ms=session_ms)
