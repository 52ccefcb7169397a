"""`PasswordHash`: the salted hash of a password, and its text form.

The hash is a SCRAM credential. Its text has the form that PostgreSQL stores in `pg_authid`, so other tools can also
make it::

    SCRAM-SHA-256$4096:<salt>$<StoredKey>:<ServerKey>
"""

from __future__ import annotations

import base64
import hmac
import re
from dataclasses import dataclass
from typing import Final, Self

from .scram import MAX_CLIENT_ITERATIONS
from .scram_credentials import SCRAM_MECHANISMS, ScramCredential, ScramMechanism

_BASE64: Final = "([A-Za-z0-9+/]+={0,2})"
_TEXT: Final = re.compile(rf"(SCRAM-SHA-(?:256|512))\$([0-9]{{1,9}}):{_BASE64}\${_BASE64}:{_BASE64}")


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """A SCRAM credential together with its mechanism."""

    mechanism: ScramMechanism
    credential: ScramCredential

    @classmethod
    def of_password(cls, password: str, mechanism: str = "SCRAM-SHA-512") -> Self:
        """Return a new hash, with a random salt. Takes milliseconds. Raises ValueError for an empty password."""
        scram = SCRAM_MECHANISMS[mechanism]
        return cls(scram, ScramCredential.of_password(scram, password))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text form of a hash. Raises ValueError, whose message does not quote the text."""
        parts = _TEXT.fullmatch(text)
        if parts is None:
            raise ValueError("is not a password hash. Make one with `oncelog user hash`")
        mechanism, iterations = SCRAM_MECHANISMS[parts[1]], int(parts[2])
        if not 1 <= iterations <= MAX_CLIENT_ITERATIONS:
            raise ValueError(f"has {iterations} iterations, which is not between 1 and {MAX_CLIENT_ITERATIONS}")
        salt, stored_key, server_key = (base64.b64decode(part, validate=True) for part in parts.groups()[2:])
        return cls(mechanism, ScramCredential(salt, iterations, stored_key, server_key))

    def __str__(self) -> str:
        credential = self.credential
        salt, stored_key, server_key = (
            base64.b64encode(part).decode() for part in (credential.salt, credential.stored_key, credential.server_key)
        )
        return f"{self.mechanism.name}${credential.iterations}:{salt}${stored_key}:{server_key}"

    def matches(self, password: str) -> bool:
        """Return whether this is the hash of `password`. The call takes milliseconds, and releases the GIL."""
        mechanism, credential = self.mechanism, self.credential
        salted = mechanism.salted_password(password, credential.salt, credential.iterations)
        computed = ScramCredential.of_salted_password(
            mechanism, salted, salt=credential.salt, iterations=credential.iterations
        )
        return hmac.compare_digest(computed.stored_key, credential.stored_key)
