"""Log clients in with SASL: check which requests may be sent before a login, and find out who the client is.

The rules are Apache Kafka's:

* A connection of a SASL listener may send one ApiVersions request and then SaslHandshake, which chooses the mechanism.
  An ApiVersions request in an unknown version is not counted, because the client tries again with a lower version.
* The mechanism's messages follow in SaslAuthenticate requests (KIP-152), or without request headers after version 0 of
  SaslHandshake. Any other request closes the connection.
* The response to a refused login is sent after `connection.failed.authentication.delay.ms`, and then the connection is
  closed. A login that could not be checked gets no response (`LoginNotChecked`).
* A session ends with the client's token, or after `connections.max.reauth.ms`. Before that, the client logs in again
  with the same mechanism as the same principal (KIP-368). After the end of a session, only the requests of a login are
  admitted.

The mechanisms are in modules of their own. This module does no I/O.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from ...auth.principal import ANONYMOUS, Principal
from ...protocol.apis import api_name
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.api_versions import ApiVersionsRequest
from ...protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ...protocol.messages.sasl_handshake import SaslHandshakeRequest
from ...protocol.schema import Buffer

REPEATED_LOGIN_S: Final = 1.0
"""The minimum time in seconds between two logins of one connection, as in Kafka."""

_API_VERSIONS: Final = ApiVersionsRequest.spec.key
_HANDSHAKE: Final = SaslHandshakeRequest.spec.key
_AUTHENTICATE: Final = SaslAuthenticateRequest.spec.key


class LoginRefused(Exception):
    """A login that failed. The message is for the client; `detail` says more, for the broker's log only."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail or message


class LoginNotChecked(LoginRefused):
    """A login that was not checked, because too many others wait for their checks.

    The connection is closed without a response, because clients consider a refusal final, but connect again after their
    connection was closed.
    """


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of a mechanism: the client's identity, and for how many ms the proof is valid (None: no limit).

    `token_id` is the id of the delegation token that has proved the identity (KIP-48), or None without a token.
    """

    principal: Principal
    lifetime_ms: int | None = None
    token_id: str | None = None


class Mechanism(Protocol):
    """The broker's side of one exchange of a SASL mechanism."""

    @property
    def proof(self) -> Proof | None:
        """The result of the exchange, or None until it is complete."""

    async def answer(self, message: bytes) -> bytes:
        """Take a message of the client and return the broker's next message. Raises LoginRefused."""


@dataclass(frozen=True)
class LoginRules:
    """The rules for the logins of one listener.

    For each enabled mechanism, `mechanisms` has a function that takes a client address and returns an exchange.
    `session_ms` is the longest session, or 0 for no limit. `failure_delay_s` is the delay before the response to a
    refused login.
    """

    mechanisms: Mapping[str, Callable[[str], Mechanism]]
    session_ms: int
    failure_delay_s: float


class LoginOwner(Protocol):
    """The connection that a login belongs to."""

    @property
    def peer_host(self) -> str:
        """The client's address, without port."""

    def login_begins(self) -> None:
        """Record that the client has chosen a mechanism, in its first or in a repeated login."""

    def logged_in(self, principal: Principal) -> None:
        """Record that the client has proved its identity, in its first or in a repeated login."""

    def login_refused(self, mechanism: str, why: str) -> None:
        """Record that a login has failed. The connection is then closed, after the response if there is one."""


class Login:
    """The state of one connection's logins."""

    def __init__(self, rules: LoginRules, owner: LoginOwner, now: Callable[[], float]) -> None:
        """`now` returns the time in seconds of a monotonic clock."""
        self.rules = rules
        self.principal = ANONYMOUS
        self.token_id: str | None = None
        """The id of the delegation token with which the client has logged in, or None without a token."""
        self.mechanism = ""
        """The name of the chosen mechanism."""
        self.admits_until = -math.inf
        """Until this time, every request is admitted. Afterwards, `problem` decides whether a request is admitted."""
        self.takes_bare_messages = False
        """Whether the next frame is a message of the mechanism without a request header."""
        self._owner, self._now = owner, now
        self._exchange: Mechanism | None = None
        self._versions_known = False
        self._is_over = False
        self._succeeded_at: float | None = None

    @property
    def left_s(self) -> float:
        """The seconds until the session ends; infinite for a session without end."""
        return self.admits_until - self._now()

    def problem(self, api_key: int, api_version: int) -> str | None:
        """Return why a request with this key and version is not admitted now, or None if it is admitted."""
        if self._is_over:
            return "a request arrived after a login that was refused"
        if self._exchange is not None:
            admitted = api_key == _AUTHENTICATE
        elif api_key == _API_VERSIONS:
            admitted = not self._versions_known
            self._versions_known = api_version <= ApiVersionsRequest.spec.stable.high
        else:
            admitted = api_key == _HANDSHAKE
        if admitted:
            return None
        when = "before the client has logged in" if self._succeeded_at is None else "when the client must log in again"
        return f"{api_name(api_key)} arrived {when}"

    def choose(self, mechanism: str, version: int) -> bool:
        """Begin a login with a mechanism, in a SaslHandshake of this version; return whether the mechanism is allowed.

        It must be enabled and, in a repeated login, the same as in the first login. Raises KafkaError
        ILLEGAL_SASL_STATE if the client has already logged in and may not log in again now.
        """
        if self._succeeded_at is not None:
            if version == 0:
                raise KafkaError(
                    ErrorCode.ILLEGAL_SASL_STATE,
                    "A repeated login needs version 1 of SaslHandshake: after version 0, messages have no request"
                    " headers, so they cannot be distinguished from requests.",
                )
            if self.admits_until == math.inf:
                raise KafkaError(
                    ErrorCode.ILLEGAL_SASL_STATE,
                    "The client has already logged in, and its session does not expire (connections.max.reauth.ms).",
                )
            if self._now() - self._succeeded_at < REPEATED_LOGIN_S:
                raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "The client logged in less than a second ago.")
        make = self.rules.mechanisms.get(mechanism)
        if make is None or (self._succeeded_at is not None and mechanism != self.mechanism):
            self._owner.login_refused(
                mechanism[:100], "the mechanism is not enabled, or differs from that of the first login"
            )
            self._is_over = True
            self.admits_until = -math.inf
            return False
        self.mechanism, self._exchange = mechanism, make(self._owner.peer_host)
        self.takes_bare_messages = version == 0
        self.admits_until = -math.inf
        self._owner.login_begins()
        return True

    async def answer(self, message: Buffer) -> tuple[bytes, int]:
        """Take a message of the mechanism; return the broker's next message and the length of the session in ms.

        The length is 0 if the session has no limit or the exchange is incomplete. Raises LoginRefused, after the delay
        for failures. Raises KafkaError ILLEGAL_SASL_STATE if no mechanism was chosen.
        """
        if self._exchange is None:
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "Choose a mechanism with SaslHandshake first.")
        try:
            challenge = await self._exchange.answer(bytes(message))
            proof = self._exchange.proof
            if proof is None:
                return challenge, 0
            if self._succeeded_at is not None and proof.principal != self.principal:
                raise LoginRefused(
                    "Cannot change principals during re-authentication",
                    f"{self.principal} has logged in again as {proof.principal}",
                )
        except LoginRefused as error:
            self._owner.login_refused(self.mechanism, error.detail[:300])
            self._is_over = True
            del message
            await asyncio.sleep(self.rules.failure_delay_s)
            raise
        return challenge, self._succeed(proof)

    def _succeed(self, proof: Proof) -> int:
        limits = [limit for limit in (proof.lifetime_ms, self.rules.session_ms or None) if limit is not None]
        session_ms = max(1, min(limits)) if limits else 0
        now = self._succeeded_at = self._now()
        self.admits_until = now + session_ms / 1000 if session_ms else math.inf
        self._exchange, self.takes_bare_messages = None, False
        self.principal, self.token_id = proof.principal, proof.token_id
        self._owner.logged_in(proof.principal)
        return session_ms
