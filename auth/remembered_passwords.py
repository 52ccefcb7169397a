"""`RememberedPasswords`: compares passwords with the hashes of a file.

The last correct password of each user is remembered, so that only the first check of a password is slow.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping

from .password_hash import PasswordHash
from .user_file import UserFile


class RememberedPasswords:
    """The users of a file. The last correct password of each user is remembered as a keyed digest.

    A remembered password is recognised in microseconds, while any other password costs milliseconds of hashing. This is
    safe for these reasons:

    * Only the right password of an existing user is remembered. A wrong password, or the name of an unknown user, costs
      a full hash every time. So guessing does not become cheaper, and the time of a response does not reveal which
      users exist.
    * The digest is an HMAC-SHA256 with a random key of this process. Both exist only in memory, as do the passwords
      that clients send. The file still contains only salted hashes.
    * The digests are forgotten when the file changes, so a password that was changed or removed is no longer accepted.

    There is at most one digest per user of the file. Only one thread at a time may use an instance.
    """

    def __init__(self, file: UserFile) -> None:
        self._file = file
        self._key = secrets.token_bytes(32)
        self._users: Mapping[str, PasswordHash] = {}
        self._digests: dict[str, bytes] = {}

    def recalls(self, name: str, password: str) -> bool:
        """Return whether this is the remembered password of the user. Raises OSError and ValueError.

        The call takes microseconds, but reads the file if the file has changed. False does not mean that the password
        is wrong.
        """
        self._forget_if_changed()
        digest = self._digests.get(name)
        return digest is not None and hmac.compare_digest(digest, self._digest(password))

    def verify(self, name: str, password: str) -> bool:
        """Return whether the user exists and has this password. Raises OSError and ValueError.

        The call takes milliseconds unless the password is remembered.
        """
        if self.recalls(name, password):
            return True
        users = self._users
        if not self._file.verify(name, password):
            return False
        if self._file.load() is users:  # the file is unchanged, so the password matched a hash in `users`
            self._digests[name] = self._digest(password)
        return True

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode(), "sha256")

    def _forget_if_changed(self) -> None:
        users = self._file.load()
        if users is not self._users:
            self._users, self._digests = users, {}
