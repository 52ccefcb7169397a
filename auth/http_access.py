"""`HttpAccess`: decides which clients of an HTTP server are admitted, by their `Authorization` header.

A client sends a name and password of a file of users (Basic, RFC 7617) or a token of a file of tokens (Bearer, RFC
6750). A file is read again when it changes.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from .password_hash import PasswordHash
from .token_file import TokenFile
from .user_file import UserFile

RunInThread = Callable[[Callable[[], bool]], "asyncio.Future[bool]"]
"""Runs a function that blocks in a thread."""


class NamedFile(NamedTuple):
    """A file, and the setting that names it; the path is empty if the setting names none."""

    setting: str
    path: str


class HttpAccess:
    """The clients that an HTTP server admits: those with a password of `users`, and those with a token of `tokens`.

    One header is checked at a time, in a thread, because the hash of a password takes milliseconds. The other clients
    wait. The password that a user has sent last is not hashed again.
    """

    def __init__(self, users: UserFile | None, tokens: TokenFile | None, run: RunInThread) -> None:
        self._users = None if users is None else _Passwords(users)
        self._tokens = tokens
        self._run = run
        self._checking: asyncio.Future[bool] | None = None

    @classmethod
    def of_files(
        cls, users: NamedFile, tokens: NamedFile, run: RunInThread, unusable: Callable[[str, str], Exception]
    ) -> HttpAccess:
        """Read the files, of which at least one must be named. Blocks.

        If a file cannot be used, the error that `unusable` makes of its setting and the reason is raised.
        """
        user_file = UserFile(Path(users.path)) if users.path else None
        token_file = TokenFile(Path(tokens.path)) if tokens.path else None
        for setting, file in ((users.setting, user_file), (tokens.setting, token_file)):
            try:
                if file is not None:
                    file.load()
            except (OSError, ValueError) as error:
                raise unusable(setting, str(error)) from None
        return cls(user_file, token_file, run)

    @property
    def challenge(self) -> str:
        """The value of the header `WWW-Authenticate` in a response with status 401."""
        basic = ['Basic realm="oncelog", charset="UTF-8"'] if self._users is not None else []
        return ", ".join([*basic, *(['Bearer realm="oncelog"'] if self._tokens is not None else [])])

    async def admits(self, authorization: str | None) -> bool:
        """Return whether a request with this header, None for none, is admitted.

        Raises OSError and ValueError if a file cannot be used.
        """
        if authorization is None:
            return False
        while self._checking is not None:
            await asyncio.wait([self._checking])
        self._checking = checking = self._run(partial(self._verify, authorization))
        checking.add_done_callback(self._checked)
        await asyncio.wait([checking])  # does not cancel: the check of a client that has gone counts until it ends
        return checking.result()

    def _checked(self, checking: asyncio.Future[bool]) -> None:
        self._checking = None
        if not checking.cancelled():
            checking.exception()  # the client may have gone, so that no task retrieves it

    def _verify(self, authorization: str) -> bool:
        scheme, _, value = authorization.partition(" ")
        value = value.strip()
        if scheme.lower() == "bearer" and self._tokens is not None:
            return self._tokens.verify(value)
        if scheme.lower() == "basic" and self._users is not None:
            try:
                name, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
            except (binascii.Error, ValueError):
                return False
            return bool(colon) and self._users.verify(name, password)
        return False


class _Passwords:
    """Verifies passwords, and remembers a keyed digest of the last one of each user that was right."""

    def __init__(self, file: UserFile) -> None:
        self._file = file
        self._key = secrets.token_bytes(32)
        self._right: dict[str, tuple[PasswordHash, bytes]] = {}

    def verify(self, name: str, password: str) -> bool:
        """Return whether the user exists and has this password. Blocks. Raises OSError and ValueError."""
        known = self._file.load().get(name)
        digest = hmac.digest(self._key, password.encode(), "sha256")
        right = self._right.get(name)
        # After a change of the file, each hash is another object.
        if right is not None and right[0] is known and hmac.compare_digest(right[1], digest):
            return True
        if not self._file.verify(name, password) or known is None:
            return False
        self._right[name] = known, digest
        return True
