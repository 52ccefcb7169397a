"""What a broker stores of passwords for SCRAM, and the two mechanisms. `scram.py` has the exchange of messages.

A broker imports this module at the first change of a credential, within a request. So it does little when it is
imported: it compiles no regular expression.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from .mechanism_names import SCRAM_NUMBERS

MIN_ITERATIONS: Final = 4096
"""The minimum number of iterations of a credential, and the default (RFC 7677)."""

MAX_ITERATIONS: Final = 16_384
"""The maximum number of iterations of a credential that a broker stores, as in Apache Kafka (KIP-554)."""

_SALT_BITS: Final = 130


@dataclass(frozen=True, slots=True)
class ScramMechanism:
    """A SASL mechanism of the SCRAM family; `hash_name` is hashlib's name of its hash function."""

    name: str
    hash_name: str

    def hash(self, data: bytes) -> bytes:
        """Return the hash of `data`, H(data) in RFC 5802."""
        return hashlib.new(self.hash_name, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        """Return the keyed hash of `data`, HMAC(key, data) in RFC 5802."""
        return hmac.digest(key, data, self.hash_name)

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Return Hi(password, salt, iterations) of RFC 5802. The call takes milliseconds, and releases the GIL."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)


SCRAM_MECHANISMS: Final[Mapping[str, ScramMechanism]] = {
    name: ScramMechanism(name, hash_name) for name, hash_name in zip(SCRAM_NUMBERS, ("sha256", "sha512"), strict=True)
}
"""The mechanisms by their names."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a broker stores instead of a password.

    The password cannot be computed from the credential. But with the credential, an attacker can check guesses of a
    weak password.
    """

    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def of_password(
        cls, mechanism: ScramMechanism, password: str, *, iterations: int = MIN_ITERATIONS, salt: bytes | None = None
    ) -> Self:
        """Return the credential of a password. Without `salt`, the salt is random.

        Raises ValueError for an empty password, and for `iterations` below MIN_ITERATIONS or above MAX_ITERATIONS.
        """
        if not password:
            raise ValueError("the password is empty")
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise ValueError(f"iterations {iterations} is not between {MIN_ITERATIONS} and {MAX_ITERATIONS}")
        if salt is None:
            salt = _salt_of(secrets.randbits(_SALT_BITS))
        return cls.of_salted_password(
            mechanism, mechanism.salted_password(password, salt, iterations), salt=salt, iterations=iterations
        )

    @classmethod
    def of_salted_password(
        cls, mechanism: ScramMechanism, salted_password: bytes, *, salt: bytes, iterations: int
    ) -> Self:
        """Return the credential of a password that was already salted, as AlterUserScramCredentials carries it."""
        client_key = mechanism.hmac(salted_password, b"Client Key")
        return cls(salt, iterations, mechanism.hash(client_key), mechanism.hmac(salted_password, b"Server Key"))


NO_CREDENTIALS: Final[Mapping[int, int]] = {}
"""The argument `iterations` of `ScramDecoys.credential` if there are no credentials."""


class ScramDecoys:
    """Credentials for users that do not exist, so that a challenge does not reveal which users exist.

    A user's decoy stays the same until the process ends. Only its number of iterations may change, when the cluster's
    credentials change. No password matches a decoy.
    """

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secrets.token_bytes(64) if secret is None else secret

    def credential(
        self, mechanism: ScramMechanism, name: str, iterations: Mapping[int, int] = NO_CREDENTIALS
    ) -> ScramCredential:
        """Return the decoy of the user `name`.

        `iterations` maps each number of iterations to how many of the mechanism's credentials have it. Each number of
        iterations is as frequent among decoys as among the credentials. If there are no credentials, decoys have
        MIN_ITERATIONS.
        """
        salt, stored_key, server_key, place = (
            mechanism.hmac(self._secret, f"{mechanism.name} {purpose} {name}".encode())
            for purpose in ("salt", "stored key", "server key", "iterations")
        )
        number = int.from_bytes(salt, "big") % 2**_SALT_BITS
        return ScramCredential(_salt_of(number), _at(place, iterations), stored_key, server_key)


def _at(place: bytes, iterations: Mapping[int, int]) -> int:
    """Sort the credentials by their number of iterations, and return that number for the credential at `place`.

    `place` is a fraction from 0 to 1, as the binary digits after the point: the share of the credentials that come
    before this one. Return MIN_ITERATIONS if there are no credentials.
    """
    left = (int.from_bytes(place) * sum(iterations.values())) >> 8 * len(place)
    for number in sorted(iterations):
        left -= iterations[number]
        if left < 0:
            return number
    return MIN_ITERATIONS


def _salt_of(number: int) -> bytes:
    """Return a salt of the form that Kafka's tools use: the digits of a number of 130 bits in base 36."""
    digits = bytearray()
    while number:
        number, digit = divmod(number, 36)
        digits.append(b"0123456789abcdefghijklmnopqrstuvwxyz"[digit])
    return bytes(reversed(digits)) or b"0"
