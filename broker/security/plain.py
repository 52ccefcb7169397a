"""SASL PLAIN (RFC 4616): the client sends its name and password, which only a TLS listener protects.

The users are those of Kafka's JAAS line, whose options `user_<name>="<password>"` contain the passwords, and those of a
file with a name and a salted hash per line, `alice:SCRAM-SHA-512$4096:...`. The file is read again when it changes.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final, Protocol

from ...auth.jaas import parse_jaas
from ...auth.principal import Principal
from ..system.ports import Lane, Threads
from .login import LoginRefused, Proof

_WRONG: Final = "Authentication failed: Invalid username or password"
_USER: Final = "user_"


class PlainUsers(Protocol):
    """Users and their passwords."""

    def verify(self, name: str, password: str) -> bool:
        """Return whether the user exists and has this password. Blocks. Raises OSError and ValueError."""


class JaasUsers:
    """The users of a JAAS line."""

    def __init__(self, text: str) -> None:
        """Read `PlainLoginModule required user_alice="..." ...;`. Raises ValueError without the text itself."""
        entry = parse_jaas(text)
        if entry.module != "PlainLoginModule":
            raise ValueError(f"has the module {entry.module}. PLAIN needs PlainLoginModule")
        options = entry.options.items()
        self._passwords = {name.removeprefix(_USER): value for name, value in options if name.startswith(_USER)}

    def verify(self, name: str, password: str) -> bool:
        """Return whether the user exists and has this password."""
        known = self._passwords.get(name)
        return hmac.compare_digest((known or "").encode(), password.encode()) and known is not None


class PlainExchange:
    """The broker's side of PLAIN: one message, which is verified in a thread."""

    def __init__(self, users: Callable[[str, str], bool], threads: Threads) -> None:
        """`users` verifies a name and a password; it may block, and may raise OSError and ValueError."""
        self.proof: Proof | None = None
        self._verify, self._threads = users, threads

    async def answer(self, message: bytes) -> bytes:
        """Take `[authorization id] NUL name NUL password`; return an empty challenge. Raises LoginRefused."""
        try:
            parts = message.decode().split("\0")
        except UnicodeDecodeError:
            parts = []
        if len(parts) != 3:
            raise LoginRefused("Authentication failed: Invalid SASL/PLAIN response")
        identity, name, password = parts
        if not name or not password:
            what = "password" if name else "username"
            raise LoginRefused(f"Authentication failed: {what} not specified")
        if identity not in ("", name):
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        try:
            verified = await self._threads.run(Lane.LOGIN, lambda: self._verify(name, password))
        except (OSError, ValueError) as error:
            raise LoginRefused(_WRONG, f"the users of PLAIN cannot be read: {error}") from error
        if not verified:
            raise LoginRefused(_WRONG, f"wrong name or password of user {name!r}")
        self.proof = Proof(Principal("User", name))
        return b""
