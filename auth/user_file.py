"""`UserFile`: users and the salted hashes of their passwords, one `name:hash` per line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .parsed_file import ParsedFile
from .password_hash import PasswordHash
from .scram_users import parse_scram_user


class UserFile:
    """The users of a file, one `name:hash` per line. Empty lines and lines that begin with # are ignored.

    The file is read again when it changes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._users = ParsedFile(path, lambda text: _parse_users(text, str(path)))
        self._decoy = PasswordHash.of_password("decoy")

    def load(self) -> Mapping[str, PasswordHash]:
        """Return the hash of each user's password. Blocks.

        Raises OSError if the file cannot be read, and ValueError if its content is invalid. The message about an
        invalid line names the line.
        """
        return self._users.get()

    def verify(self, name: str, password: str) -> bool:
        """Return whether the user exists and has this password.

        The call takes milliseconds, even for a user that does not exist. Raises OSError and ValueError as `load` does.
        """
        known = self.load().get(name)
        return (known or self._decoy).matches(password) and known is not None


def _parse_users(text: str, path: str) -> dict[str, PasswordHash]:
    hashes: dict[str, PasswordHash] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            name, hashed = parse_scram_user(line)
            if name in hashes:
                raise ValueError("names a user twice")
            hashes[name] = hashed
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    return hashes
