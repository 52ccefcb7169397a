"""`TokenFile`: the bearer tokens of a service, one per line."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .parsed_file import ParsedFile

MIN_CHARACTERS: Final = 16
"""Minimum length of a token. A shorter token could be guessed, because clients may try as often as they like."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""A bearer token in a header (RFC 6750, section 2.1)."""


class TokenFile:
    """The tokens of a file, one per line. Only their digests are kept. The file is read again when it changes.

    Empty lines and lines that begin with # are ignored. To replace a token without an interruption, keep both the old
    and the new one in the file until all clients use the new one.
    """

    def __init__(self, path: Path) -> None:
        self._digests = ParsedFile(path, lambda text: _parse_tokens(text, str(path)))

    def load(self) -> None:
        """Read the file if it has changed. Blocks.

        Raises OSError if the file cannot be read, and ValueError if its content is invalid. The message about an
        invalid token names its line.
        """
        self._digests.get()

    def verify(self, token: str) -> bool:
        """Return whether the file contains this token. Blocks. Raises OSError and ValueError as `load` does."""
        presented = _digest(token)
        return sum(hmac.compare_digest(presented, digest) for digest in self._digests.get()) > 0


def _parse_tokens(text: str, path: str) -> Sequence[bytes]:
    digests: list[bytes] = []
    for number, line in enumerate(text.splitlines(), 1):
        token = line.strip()
        if not token or token.startswith("#"):
            continue
        if len(token) < MIN_CHARACTERS or not _TOKEN.fullmatch(token):
            raise ValueError(
                f"{path}, line {number}: is not a token of at least {MIN_CHARACTERS} characters (letters, digits and"
                " . _ ~ + / -). `openssl rand -hex 32` makes one"
            )
        digests.append(_digest(token))
    if not digests:
        raise ValueError(f"{path} has no token. Write one per line; `openssl rand -hex 32` makes one")
    return digests


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
