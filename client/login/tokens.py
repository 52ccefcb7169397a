"""Access tokens for OAUTHBEARER: from a function of the program, or from an OAuth server (client credentials).

A client keeps its token for new connections and new logins, and fetches the next one before the token expires.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import inspect
import json
import logging
import math
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ..config import TokenProvider
from ..errors import AuthenticationError, NetworkError

log = logging.getLogger(__name__)

RENEWAL: Final = 0.8
"""When this share of a token's lifetime has passed, a login fetches the next token, as in Kafka's client."""

MAX_ANSWER_BYTES: Final = 1 << 20
"""Maximum number of bytes that are read from an OAuth server's response."""

_TOKEN: Final = re.compile(r"[-._~+/A-Za-z0-9]+=*")
_SHOWN: Final = 200
"""Maximum number of characters that an error quotes from an OAuth server's response."""


class Token(NamedTuple):
    """An access token, and the seconds for which it is valid."""

    value: str
    lifetime_s: float


class TokenSource:
    """The current token of a client. All connections of the client use the token, on one event loop.

    `fetch` returns a new token, or raises KafkaError. `now` is a monotonic clock in seconds.
    """

    def __init__(self, fetch: Callable[[], Awaitable[Token]], now: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._now = now
        self._value = ""
        self._renew_at = self._ends_at = -math.inf
        self._fetching = asyncio.Lock()

    async def token(self) -> str:
        """Return a valid token. Fetches a token if there is none, or if the current one expires soon. Raises
        KafkaError.

        If the next token cannot be fetched, the current token is used, and fetching is tried again after half of the
        current token's remaining time.
        """
        async with self._fetching:
            if self._now() >= self._renew_at:
                begun = self._now()
                try:
                    self._value, lifetime_s = await self._fetch()
                except KafkaError as error:
                    now = self._now()
                    if now >= self._ends_at:
                        raise
                    self._renew_at = now + (self._ends_at - now) / 2
                    log.warning("the next token could not be fetched; using the current one: %s", error)
                else:
                    self._renew_at, self._ends_at = begun + RENEWAL * lifetime_s, begun + lifetime_s
            return self._value


async def provided(provider: TokenProvider) -> Token:
    """Return the token that the program's function provides. A function that is not async runs in a thread.

    Raises AuthenticationError if the function fails, unless the function raises a KafkaError itself.
    """
    try:
        if inspect.iscoroutinefunction(provider):
            result: Any = await provider()
        else:
            result = await asyncio.to_thread(provider)
            if inspect.isawaitable(result):
                result = await result
    except KafkaError:
        raise
    except Exception as error:
        raise _failed(f"sasl.oauth.token.provider raised {type(error).__name__}") from error
    match result:
        case (str(value), int() | float() as lifetime_s) if not isinstance(lifetime_s, bool):
            return checked(value, lifetime_s, "sasl.oauth.token.provider")
    raise _failed("sasl.oauth.token.provider did not return a token and its lifetime in seconds")


def checked(value: str, lifetime_s: float, origin: str) -> Token:
    """Return the token if it can be sent. Otherwise raise AuthenticationError, which names the token's `origin`."""
    if not _TOKEN.fullmatch(value):
        raise _failed(f"{origin} returned a token with characters that are not allowed in a bearer token (RFC 6750)")
    if not math.isfinite(lifetime_s) or lifetime_s <= 0:
        raise _failed(f"{origin} returned a token with a lifetime of {lifetime_s} s, which must be finite and above 0")
    return Token(value, lifetime_s)


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """Fetches tokens from an OAuth server with the client's own credentials (RFC 6749, section 4.4).

    `timeout_s` bounds each operation on the socket.
    """

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str
    timeout_s: float

    async def fetch(self) -> Token:
        """Return a new token.

        Raises AuthenticationError if the server refuses the credentials or returns no usable token. Raises NetworkError
        if the server cannot be reached, or responds with the status 429 or 5xx.
        """
        return await asyncio.to_thread(self._fetch)

    def _fetch(self) -> Token:
        form = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        credentials = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode("ascii")
        headers = {"Authorization": f"Basic {credentials}", "Accept": "application/json"}
        request = urllib.request.Request(self.url, urllib.parse.urlencode(form).encode(), headers)  # noqa: S310 - checked
        try:
            with _opener.open(request, timeout=self.timeout_s) as response:
                answer = _json(response.read(MAX_ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error.code, _json(error.read(MAX_ANSWER_BYTES))) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise NetworkError(ErrorCode.NETWORK_EXCEPTION, f"{self.url} returned no token: {reason}") from None
        match answer:
            case {"access_token": str(value), "expires_in": int() | float() | str() as lifetime_s}:
                try:
                    return checked(value, float(lifetime_s), self.url)
                except ValueError:
                    pass
        raise _failed(f"the response from {self.url} lacks an access_token or a valid expires_in")

    def _refused(self, status: int, answer: dict[str, Any]) -> KafkaError:
        words = [str(answer[key])[:_SHOWN] for key in ("error", "error_description") if key in answer]
        why = f"{self.url} answered {status}{': ' if words else ''}{', '.join(words)}"
        if status >= 500 or status == 429:
            return NetworkError(ErrorCode.NETWORK_EXCEPTION, why)
        return _failed(why)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which would carry the client's secret to another address."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener: Final = urllib.request.build_opener(_NoRedirect)


def _json(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _failed(why: str) -> AuthenticationError:
    return AuthenticationError(ErrorCode.SASL_AUTHENTICATION_FAILED, why)
