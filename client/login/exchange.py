"""Logs in on a connection: SaslHandshake chooses the mechanism, and SaslAuthenticate carries its messages (KIP-152)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from ...auth.scram import ScramError
from ...protocol.errors import ErrorCode
from ...protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ...protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ...protocol.schema import Request
from ..errors import AuthenticationError, UnsupportedVersionError
from ..versions import ApiVersionTable
from .mechanisms import Mechanism

Call: TypeAlias = Callable[[Request[Any], int], Awaitable[Any]]
"""Sends a request in the given version, and returns its response."""


async def log_in(mechanism: Mechanism, address: str, versions: ApiVersionTable, call: Call) -> float:
    """Log in, and return the lifetime of the session in seconds, or 0 if the session does not end (KIP-368).

    Raises AuthenticationError, UnsupportedVersionError for a broker without SASL, and the exceptions of `call`.
    """
    try:
        version = versions.version_of(SaslAuthenticateRequest)
        handshake_version = versions.version_of(SaslHandshakeRequest)
    except UnsupportedVersionError as error:
        raise UnsupportedVersionError(error.code, f"{address} does not support SASL: {error.message}") from None
    lifetime_ms = 0

    async def ask(message: bytes) -> bytes:
        nonlocal lifetime_ms
        response: SaslAuthenticateResponse = await call(SaslAuthenticateRequest(message), version)
        if response.error_code:
            reason = response.error_message or "it gave no reason"
            raise AuthenticationError(
                response.error_code, f"{address} refused the login with {mechanism.name}: {reason}{mechanism.remedy}"
            )
        lifetime_ms = response.session_lifetime_ms
        return bytes(response.auth_bytes)

    handshake: SaslHandshakeResponse = await call(SaslHandshakeRequest(mechanism.name), handshake_version)
    if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(handshake.mechanisms) or "none"
        raise AuthenticationError(
            handshake.error_code,
            f"{address} does not offer the SASL mechanism {mechanism.name}; its mechanisms are: {offered}",
        )
    if handshake.error_code:
        raise AuthenticationError(
            handshake.error_code, f"{address} refused SaslHandshake: is that a listener with SASL?"
        )
    try:
        await mechanism.authenticate(ask)
    except ScramError as error:
        raise AuthenticationError(
            ErrorCode.SASL_AUTHENTICATION_FAILED, f"the login at {address} with {mechanism.name} failed: {error}"
        ) from None
    return lifetime_ms / 1000
