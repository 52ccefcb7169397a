"""SASL OAUTHBEARER (RFC 7628, KIP-255, KIP-768): clients log in with a signed token (JWT) of an identity provider.

A token is accepted if one of the provider's keys has signed it, if it has not expired, and if its issuer and audience
are the expected ones. Unlike Apache Kafka's default, an unsigned token is never accepted.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from ...auth.principal import Principal
from .login import LoginNotChecked, LoginRefused, Proof
from .login_checks import LoginChecks
from .token_keys import ALGORITHMS, TokenKeys

T = TypeVar("T")

MAX_LIFETIME_MS: Final = 10 * 365 * 24 * 3_600_000
"""The longest session of a token in ms: ten years."""

CHECKED_AT_ONCE_BYTES: Final = 8192
"""The largest message in bytes that is checked on the event loop. A check of 48 KB takes 3 to 5 ms."""

_MESSAGE: Final = re.compile(rb"[ny],(?:a=([^,]*))?,\x01((?:[A-Za-z]+=[\x20-\x7e\r\n\t]*\x01)*)\x01", re.DOTALL)
_TOKEN: Final = re.compile(rb"[Bb]earer +([A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+) *")
_REFUSAL: Final = b'{"status":"invalid_token"}'


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must contain. The claim `name_claim` is the principal's name.

    If `audiences` or `issuer` is empty, any value is accepted.
    """

    issuer: str
    audiences: Sequence[str]
    skew_s: int
    name_claim: str


class OAuthExchange:
    """The broker's side of one login. The client sends its token, and confirms a refusal with a second message."""

    def __init__(
        self,
        keys: TokenKeys,
        rules: TokenRules,
        checks: LoginChecks,
        host: str,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`host` is the client's address, by which `checks` decides when it is this login's turn.

        `now_s` returns the seconds since the epoch.
        """
        self.proof: Proof | None = None
        self._keys, self._rules, self._now_s = keys, rules, now_s
        self._checks, self._host = checks, host
        self._problem: str | None = None

    async def answer(self, message: bytes) -> bytes:
        """Take the client's message and return the broker's.

        If the client's token is refused, the returned message reports the refusal, and the next call raises
        LoginRefused. Raises LoginNotChecked if too many logins wait.
        """
        if self._problem is not None:
            raise LoginRefused(_REFUSAL.decode(), self._problem)
        try:
            self.proof = await self._verified(message)
        except LoginNotChecked:
            raise
        except LoginRefused as error:
            self._problem = error.detail
            return _REFUSAL
        return b""

    async def _checked(self, size: int, check: Callable[[], T]) -> T:
        """Run the check of a message of `size` bytes and return its result. Large messages wait for their turn."""
        return check() if size <= CHECKED_AT_ONCE_BYTES else await self._checks.in_turn(self._host, check)

    async def _verified(self, message: bytes) -> Proof:
        from jwt import PyJWK, decode, get_unverified_header
        from jwt.exceptions import PyJWTError

        def parsed() -> tuple[str, str, dict[str, Any]]:
            identity, token = _parsed(message)
            return identity, token, get_unverified_header(token)

        def claims_of(token: str, key: PyJWK) -> dict[str, Any]:
            claims: dict[str, Any] = decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=list(rules.audiences) or None,
                issuer=rules.issuer or None,
                leeway=rules.skew_s,
                options={"require": ["exp", rules.name_claim], "verify_aud": bool(rules.audiences)},
            )
            return claims

        rules = self._rules
        try:
            identity, token, header = await self._checked(len(message), parsed)
            key = await self._keys.key(header.get("kid"))
            if key is None:
                raise LoginRefused("", "no key of the identity provider has signed the token")
            claims = await self._checked(len(message), partial(claims_of, token, key))
        except (PyJWTError, RecursionError) as error:
            raise LoginRefused("", f"the token is not valid: {error}") from error
        name = claims[rules.name_claim]
        if not isinstance(name, str) or not name or identity not in ("", name):
            raise LoginRefused(
                "",
                f"the claim {rules.name_claim} is not a name, or differs from the user name that the client sent",
            )
        lifetime_ms = int(claims["exp"]) * 1000 - int(self._now_s() * 1000)
        if lifetime_ms <= 0:  # the token was accepted because clocks may differ; the session must not end at once
            lifetime_ms += rules.skew_s * 1000
        return Proof(Principal("User", name), min(max(0, lifetime_ms), MAX_LIFETIME_MS))


def _parsed(message: bytes) -> tuple[str, str]:
    """Return the authorization id and the token of a client's first message. Raises LoginRefused."""
    found = _MESSAGE.fullmatch(message)
    if found is None:
        raise LoginRefused("", "the message is not a valid OAUTHBEARER message (RFC 7628)")
    pairs = dict(pair.split(b"=", 1) for pair in found[2].split(b"\x01") if pair)
    token = _TOKEN.fullmatch(pairs.get(b"auth", b""))
    if token is None:
        raise LoginRefused("", "the message contains no signed token (auth=Bearer, then a JWT)")
    try:
        return (found[1] or b"").decode(), token[1].decode("ascii")
    except UnicodeDecodeError:
        raise LoginRefused("", "the authorization id is not UTF-8") from None
