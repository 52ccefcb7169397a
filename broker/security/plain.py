"""SASL PLAIN (RFC 4616): the client sends its name and password, which are protected only on a TLS listener.

There are two sources of users: Kafka's JAAS line, whose options `user_<name>="<password>"` contain the passwords, and a
file with a name and a salted hash per line, `alice:SCRAM-SHA-512$4096:...`. The file is read again when it changes.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from ...auth.jaas import parse_jaas
from ...auth.principal import Principal
from .login import LoginRefused, Proof
from .login_checks import LoginChecks

_WRONG: Final = "Authentication failed: Invalid username or password"
_USER: Final = "user_"


class PlainUsers(Protocol):
    """Users and their passwords. The methods block, and may raise OSError and ValueError."""

    def recalls(self, name: str, password: str) -> bool:
        """Return whether the password is already known to be right, in much less time than a hash takes."""

    def verify(self, name: str, password: str) -> bool:
        """Return whether the user exists and has this password."""


class JaasUsers:
    """The users of a JAAS line."""

    def __init__(self, text: str) -> None:
        """Read `PlainLoginModule required user_alice="..." ...;`. Raises a ValueError that does not quote the text."""
        entry = parse_jaas(text)
        if entry.module != "PlainLoginModule":
            raise ValueError(f"names the login module {entry.module}, but PLAIN needs PlainLoginModule")
        options = entry.options.items()
        self._passwords = {name.removeprefix(_USER): value for name, value in options if name.startswith(_USER)}

    def verify(self, name: str, password: str) -> bool:
        """Return whether the user exists and has this password."""
        known = self._passwords.get(name)
        return hmac.compare_digest((known or "").encode(), password.encode()) and known is not None

    recalls = verify  # passwords in clear text need no hashing


class AllUsers:
    """The users of several sources."""

    def __init__(self, sources: Sequence[PlainUsers]) -> None:
        self._sources = sources

    def recalls(self, name: str, password: str) -> bool:
        """Return whether a source knows the password to be right, without hashing it."""
        return any(source.recalls(name, password) for source in self._sources)

    def verify(self, name: str, password: str) -> bool:
        """Return whether one of the sources has this user with this password."""
        return any(source.verify(name, password) for source in self._sources)


class PlainExchange:
    """The broker's side of PLAIN: one message, which is verified in a thread."""

    def __init__(self, users: PlainUsers, checks: LoginChecks, host: str) -> None:
        """`host` is the client's address, by which `checks` decides when it is this login's turn."""
        self.proof: Proof | None = None
        self._users, self._checks, self._host = users, checks, host

    async def answer(self, message: bytes) -> bytes:
        """Take `[authorization id] NUL name NUL password`; return an empty challenge.

        Raises LoginRefused, and LoginNotChecked if too many logins wait.
        """
        try:
            parts = message.decode().split("\0", 3)
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
            known = await self._checks.at_once(partial(self._users.recalls, name, password))
            verified = known or await self._checks.in_turn(self._host, partial(self._users.verify, name, password))
        except (OSError, ValueError) as error:
            raise LoginRefused(_WRONG, f"the users of PLAIN cannot be read: {error}") from error
        if not verified:
            raise LoginRefused(_WRONG, f"wrong user name or password (user name {name!r})")
        self.proof = Proof(Principal("User", name))
        return b""
