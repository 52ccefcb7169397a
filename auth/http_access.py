"""`HttpAccess`: decides which clients of an HTTP server are admitted, by their `Authorization` header.

A client sends a user's name and password (Basic, RFC 7617) or a token (Bearer, RFC 6750). The users are in one file,
and the tokens in another. Each file is read again when it changes.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from .remembered_passwords import RememberedPasswords
from .token_file import TokenFile
from .user_file import UserFile

RunInThread = Callable[[Callable[[], bool]], "asyncio.Future[bool]"]
"""Runs a blocking function in a thread, and returns the future of its result."""


class NamedFile(NamedTuple):
    """A file, and the setting that names it. `path` is empty if the setting names no file."""

    setting: str
    path: str


class HttpAccess:
    """The clients that an HTTP server admits: those with a password from `users`, and those with a token from `tokens`.

    Headers are checked one at a time, in a thread, because hashing a password takes milliseconds. The last correct
    password of each user is not hashed again.
    """

    def __init__(self, users: UserFile | None, tokens: TokenFile | None, run: RunInThread) -> None:
        self._users = None if users is None else RememberedPasswords(users)
        self._tokens = tokens
        self._run = run
        self._checking: asyncio.Future[bool] | None = None

    @classmethod
    def of_files(
        cls, users: NamedFile, tokens: NamedFile, run: RunInThread, unusable: Callable[[str, str], Exception]
    ) -> HttpAccess:
        """Read the files. At least one of them must be named. Blocks.

        If a file cannot be used, raises the exception that `unusable(setting, reason)` returns.
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
        """Return whether a request with this `Authorization` header is admitted. None means no header.

        Raises OSError and ValueError if a file cannot be used.
        """
        if authorization is None:
            return False
        while self._checking is not None:
            await asyncio.wait([self._checking])
        self._checking = checking = self._run(partial(self._verify, authorization))
        checking.add_done_callback(self._checked)
        await asyncio.wait([checking])  # if this task is cancelled, the check continues, and other tasks wait for it
        return checking.result()

    def _checked(self, checking: asyncio.Future[bool]) -> None:
        self._checking = None
        if not checking.cancelled():
            checking.exception()  # if the client is gone, no other task retrieves the exception

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
