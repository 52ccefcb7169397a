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
import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Final, NamedTuple

from .scram_credentials import MIN_ITERATIONS, ScramCredential, ScramMechanism

MAX_CLIENT_ITERATIONS: Final = 1_000_000
"""The maximum number of iterations that a client computes for a broker, about half a second of work. This is above
`MAX_ITERATIONS`, because other brokers may store credentials with more iterations.
"""

MAX_MESSAGE_BYTES: Final = 8192
"""The largest message in bytes that is read."""

TOKEN_EXTENSION: Final = "tokenauth"  # noqa: S105 - a name
"""The extension that is true if name and password are the id and HMAC of a delegation token (KIP-48)."""

_NO_BINDING: Final = b"n,,"

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
