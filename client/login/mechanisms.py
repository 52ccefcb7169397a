"""The SASL mechanisms: which messages a client sends, and how it checks those of the broker.

A mechanism never logs what it sends, and no repr or error message contains a secret.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from ...auth.mechanism_names import OAUTHBEARER, PLAIN
from ...auth.scram import TOKEN_EXTENSION, ScramClient
from ...auth.scram_credentials import SCRAM_MECHANISMS
from ...protocol.errors import ErrorCode
from ..errors import AuthenticationError

if TYPE_CHECKING:
    from .tokens import TokenSource

Ask: TypeAlias = Callable[[bytes], Awaitable[bytes]]
"""Sends a message of the mechanism to the broker, and returns the broker's message."""

TOKEN_REMEDY: Final = f'set sasl.jaas.config with {TOKEN_EXTENSION}="true" instead of sasl.username and sasl.password'
"""How to log in with a delegation token (KIP-48)."""

_TOKEN_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}|[0-9a-f]{32}")
"""The id of a delegation token: a UUID, which Kafka writes in base64 and oncelog in hexadecimal."""


class Mechanism(Protocol):
    """A SASL mechanism with a client's credentials. All connections of the client use it, possibly at the same time."""

    @property
    def name(self) -> str:
        """The registered name of the mechanism, such as PLAIN."""

    @property
    def remedy(self) -> str:
        """A hint to append to the error if the broker refuses the credentials: `; if ...`, or an empty string."""

    async def authenticate(self, ask: Ask) -> None:
        """Exchange the messages of one login.

        Raises ScramError if the broker does not know the credential. Raises KafkaError if there is no access token, or
        if the broker refuses the login.
        """


@dataclass(frozen=True, slots=True)
class Plain:
    """PLAIN sends user name and password as they are (RFC 4616). Only TLS hides them."""

    username: str
    password: str = field(repr=False)
    name: str = PLAIN
    remedy: str = ""

    async def authenticate(self, ask: Ask) -> None:
        """Send PLAIN's only message."""
        await ask(f"\0{self.username}\0{self.password}".encode())


@dataclass(frozen=True, slots=True)
class Scram:
    """SCRAM proves the password without sending it. `name` is one of SCRAM_MECHANISMS.

    `extensions` are sent in the first message, such as {"tokenauth": "true"} for a delegation token (KIP-48).
    """

    name: str
    username: str
    password: str = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)

    @property
    def remedy(self) -> str:
        """How to log in with a delegation token, if the user name looks like the id of one."""
        if self.extensions or not _TOKEN_ID.fullmatch(self.username):
            return ""
        return f"; if the user name is the id of a delegation token, {TOKEN_REMEDY}"

    async def authenticate(self, ask: Ask) -> None:
        """Send both messages, and check that the broker knows the user's credential. Raises ScramError if the login
        fails.
        """
        exchange = ScramClient(SCRAM_MECHANISMS[self.name], self.username, self.password, extensions=self.extensions)
        challenge = await ask(exchange.first())
        # The broker chooses the number of iterations, so this may take long and must not block the event loop.
        proof = await asyncio.to_thread(exchange.respond, challenge)
        exchange.finish(await ask(proof))


class OAuthBearer:
    """OAUTHBEARER sends an access token (RFC 7628, KIP-255). Only TLS hides it.

    `extensions` are sent with the token.
    """

    name: Final = OAUTHBEARER
    remedy: Final = ""

    def __init__(self, tokens: TokenSource, extensions: Mapping[str, str]) -> None:
        self._tokens = tokens
        self._extensions = "".join(f"{name}={value}\1" for name, value in extensions.items())

    async def authenticate(self, ask: Ask) -> None:
        """Send the token. Raises the errors of the token source, and AuthenticationError if the broker refuses the
        token.
        """
        token = await self._tokens.token()
        refused = await ask(f"n,,\1auth=Bearer {token}\1{self._extensions}\1".encode())
        if refused:
            await ask(b"\1")  # the broker refuses the login only in response to this message (RFC 7628, section 3.2.3)
            raise AuthenticationError(
                ErrorCode.SASL_AUTHENTICATION_FAILED, f"the broker refused the token: {bytes(refused[:200])!r}"
            )
