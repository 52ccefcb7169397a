"""SCRAM, for client and broker: the client proves that it knows a password without sending it (RFC 5802, RFC 7677).

A `ScramClient` and a `ScramServer` exchange four messages. They have no sockets, and do not look up credentials:
between the first two messages, the caller passes the user's credential to the server.

    client.first()           n,,n=user,r=nonce                    server.receive(…) returns the user
    client.respond(…)        r=nonce+more,s=salt,i=4096           server.challenge(credential)
                             c=biws,r=nonce+more,p=proof          server.finish(…) checks the proof
    client.finish(…)         v=signature

User names and passwords are used as they are, encoded in UTF-8. As in Apache Kafka (ScramFormatter.normalize), SASLprep
is not applied, so characters that look alike are different. There is no channel binding.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from .mechanism_names import SCRAM_NUMBERS

MIN_ITERATIONS: Final = 4096
"""The minimum number of iterations of a credential, and the default (RFC 7677)."""

MAX_ITERATIONS: Final = 16_384
"""The maximum number of iterations of a credential that a broker stores, as in Apache Kafka (KIP-554)."""

MAX_CLIENT_ITERATIONS: Final = 1_000_000
"""The maximum number of iterations that a client computes for a broker, about half a second of work. This is above
`MAX_ITERATIONS`, because other brokers may store credentials with more iterations.
"""

MAX_MESSAGE_BYTES: Final = 8192
"""The largest message in bytes that is read."""

TOKEN_EXTENSION: Final = "tokenauth"  # noqa: S105 - a name
"""The extension that is true if name and password are the id and HMAC of a delegation token (KIP-48)."""

_NO_BINDING: Final = b"n,,"
_SALT_BITS: Final = 130

_NAME: Final = "(?:[^=,\0]|=2C|=3D)+"
_NONCE: Final = "[\\x21-\\x2b\\x2d-\\x7e]+"
_BASE64: Final = "[A-Za-z0-9+/]+={0,2}"
_EXTENSIONS: Final = "(?P<extensions>(?:,[A-Za-z]+=[^,\0]+)*)"

_CLIENT_FIRST: Final = re.compile(
    f"(?P<header>(?P<binding>[ny]|p=[A-Za-z0-9.-]+),(?:a=(?P<identity>{_NAME}))?,)"
    f"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
)
_SERVER_FIRST: Final = re.compile(
    f"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}"
)
_CLIENT_FINAL: Final = re.compile(
    f"(?P<unproved>c=(?P<header>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL: Final = re.compile(f"(?:e=(?P<error>[^,\0]+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}")


class ScramError(ValueError):
    """An exchange failed because of a malformed message, or a wrong user name, password or signature.

    The message of this error never contains a password, proof or key.
    """


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


class ScramUser(NamedTuple):
    """The user that a client's first message names, and the message's extensions, name → value."""

    name: str
    extensions: Mapping[str, str]

    @property
    def has_token(self) -> bool:
        """Whether the name and password are the id and HMAC of a delegation token (KIP-48)."""
        return self.extensions.get(TOKEN_EXTENSION, "").lower() == "true"


class ScramServer:
    """The broker's side of one exchange. Call `receive`, `challenge` and `finish` once each, in this order.

    `nonce` is the server's part of the nonce: printable ASCII without commas. By default, it is random.
    """

    def __init__(self, mechanism: ScramMechanism, *, nonce: str | None = None) -> None:
        self._mechanism = mechanism
        self._nonce = nonce or secrets.token_urlsafe(24)
        self._header = self._client_first_bare = self._server_first = ""
        self._credential: ScramCredential | None = None

    def receive(self, client_first: bytes) -> ScramUser:
        """Read the client's first message, and return the user whose credential `challenge` needs.

        Raises ScramError for a malformed message, for channel binding and, as in Kafka, for an authorization identity
        that is not the user's name.
        """
        parts = _parsed(_CLIENT_FIRST, client_first, "the client's first message")
        if parts["binding"].startswith("p="):
            raise ScramError("the client demands channel binding, which this mechanism does not have")
        name = _decoded_name(parts["name"])
        if parts["identity"] and _decoded_name(parts["identity"]) != name:
            raise ScramError("the client requested an authorization id that is different from its user name")
        self._header, self._client_first_bare = parts["header"], parts["bare"]
        self._nonce = parts["nonce"] + self._nonce
        return ScramUser(name, _extensions(parts))

    def challenge(self, credential: ScramCredential) -> bytes:
        """Return the server's first message. For an unknown user, pass a credential of `ScramDecoys`."""
        self._credential = credential
        salt = base64.b64encode(credential.salt).decode("ascii")
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode("ascii")

    def finish(self, client_final: bytes) -> bytes:
        """Check the client's proof, and return the server's final message, which ends a successful exchange.

        Raises ScramError for a wrong password, an unknown user, and a malformed message.
        """
        credential, mechanism = self._credential, self._mechanism
        assert credential is not None, "challenge comes first"
        parts = _parsed(_CLIENT_FINAL, client_final, "the client's final message")
        if _decoded(parts["header"]) != self._header.encode():
            raise ScramError("the client's final message has a different header from the first message")
        if not hmac.compare_digest(parts["nonce"], self._nonce):
            raise ScramError("the client's final message has a different nonce from the server's message")
        signed = f"{self._client_first_bare},{self._server_first},{parts['unproved']}".encode()
        signature = mechanism.hmac(credential.stored_key, signed)
        proof = _decoded(parts["proof"])
        if len(proof) != len(signature):
            raise ScramError("the client's proof does not have the length of this mechanism's hashes")
        client_key = _exclusive_or(proof, signature)
        if not hmac.compare_digest(mechanism.hash(client_key), credential.stored_key):
            raise ScramError("the user name or password is wrong")
        return b"v=" + base64.b64encode(mechanism.hmac(credential.server_key, signed))


class ScramClient:
    """The client's side of one exchange. Call `first`, `respond` and `finish` once each, in this order.

    `extensions` are sent in the first message, for example {"tokenauth": "true"}. `nonce` is printable ASCII without
    commas. By default, it is random.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        name: str,
        password: str,
        *,
        extensions: Mapping[str, str] | None = None,
        nonce: str | None = None,
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce or secrets.token_urlsafe(24)
        more = "".join(f",{key}={value}" for key, value in (extensions or {}).items())
        self._first_bare = f"n={_encoded_name(name)},r={self._nonce}{more}"
        self._server_signature = b""

    def first(self) -> bytes:
        """Return the client's first message."""
        return _NO_BINDING + self._first_bare.encode()

    def respond(self, server_first: bytes) -> bytes:
        """Return the client's final message, which proves the password.

        The call takes milliseconds, or up to half a second if the credential has `MAX_CLIENT_ITERATIONS`. Raises
        ScramError for a malformed message, a wrong nonce, and for too few or too many iterations.
        """
        mechanism = self._mechanism
        parts = _parsed(_SERVER_FIRST, server_first, "the server's first message")
        nonce, iterations = parts["nonce"], int(parts["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the server's first message does not continue the client's nonce")
        if not MIN_ITERATIONS <= iterations <= MAX_CLIENT_ITERATIONS:
            raise ScramError(
                f"the server asks for {iterations} iterations, which is not between {MIN_ITERATIONS} and "
                f"{MAX_CLIENT_ITERATIONS}"
            )
        salted = mechanism.salted_password(self._password, _decoded(parts["salt"]), iterations)
        unproved = f"c={base64.b64encode(_NO_BINDING).decode('ascii')},r={nonce}"
        signed = f"{self._first_bare},{server_first.decode()},{unproved}".encode()
        client_key = mechanism.hmac(salted, b"Client Key")
        proof = _exclusive_or(client_key, mechanism.hmac(mechanism.hash(client_key), signed))
        self._server_signature = mechanism.hmac(mechanism.hmac(salted, b"Server Key"), signed)
        return f"{unproved},p={base64.b64encode(proof).decode('ascii')}".encode()

    def finish(self, server_final: bytes) -> None:
        """Check that the server knows the user's credential. Raises ScramError if it does not."""
        assert self._server_signature, "respond comes first"
        parts = _parsed(_SERVER_FINAL, server_final, "the server's final message")
        if parts["error"]:
            raise ScramError(f"the server ended the exchange: {parts['error'][:100]!r}")
        if not hmac.compare_digest(_decoded(parts["signature"]), self._server_signature):
            raise ScramError("the server's signature is wrong, so it does not know the user's credential")


def _parsed(pattern: re.Pattern[str], message: bytes, what: str) -> dict[str, str]:
    """Return the parts of a message by the names of the pattern's groups. A part that is absent is ""."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise ScramError(f"{what} has {len(message)} bytes, but at most {MAX_MESSAGE_BYTES} are allowed")
    try:
        matched = pattern.fullmatch(message.decode())
    except UnicodeDecodeError:
        matched = None
    if matched is None:
        raise ScramError(f"{what} is malformed")
    return matched.groupdict("")


def _extensions(parts: Mapping[str, str]) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in parts["extensions"].split(",")[1:])
    return {name: value for name, _, value in pairs}


def _encoded_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _decoded_name(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ScramError("a message has a part that is not base64") from None


def _exclusive_or(left: bytes, right: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(left, right, strict=True))


def _salt_of(number: int) -> bytes:
    """Return a salt of the form that Kafka's tools use: the digits of a number of 130 bits in base 36."""
    digits = bytearray()
    while number:
        number, digit = divmod(number, 36)
        digits.append(b"0123456789abcdefghijklmnopqrstuvwxyz"[digit])
    return bytes(reversed(digits)) or b"0"
