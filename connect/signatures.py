"""Signs and checks the requests that workers send each other (KIP-507). Algorithms have their names in Java."""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections.abc import Sequence
from typing import Final

from .errors import BadRequestError, ForbiddenError, NotReadyError

SIGNATURE_HEADER: Final = "X-Connect-Authorization"
ALGORITHM_HEADER: Final = "X-Connect-Request-Signature-Algorithm"

ALGORITHMS: Final = {
    "HmacMD5": "md5",
    "HmacSHA1": "sha1",
    "HmacSHA224": "sha224",
    "HmacSHA256": "sha256",
    "HmacSHA384": "sha384",
    "HmacSHA512": "sha512",
    "HmacSHA3-224": "sha3_224",
    "HmacSHA3-256": "sha3_256",
    "HmacSHA3-384": "sha3_384",
    "HmacSHA3-512": "sha3_512",
}
"""Java's names of key and signature algorithms, with the names of their hashes in Python."""

MIN_KEY_BITS: Final = 40
"""The smallest key size, in bits, that Java generates."""

_LONG_KEYS: Final = frozenset({"HmacMD5", "HmacSHA1"})


def new_key(algorithm: str, bits: int | None) -> bytes:
    """Return a random key of `bits` bits, or of Java's default key size for the algorithm if `bits` is None."""
    return secrets.token_bytes(key_bytes(algorithm, bits))


def key_bytes(algorithm: str, bits: int | None) -> int:
    """Return the size of a key in bytes: `bits` rounded up or, if `bits` is None, Java's default for the algorithm."""
    if bits is not None:
        return (bits + 7) // 8
    return 64 if algorithm in _LONG_KEYS else hmac.new(b"", b"", ALGORITHMS[algorithm]).digest_size


def signed(key: bytes, body: bytes, algorithm: str) -> dict[str, str]:
    """Return the two headers that sign a request's body: the signature and its algorithm."""
    return {SIGNATURE_HEADER: base64.b64encode(_digest(key, body, algorithm)).decode(), ALGORITHM_HEADER: algorithm}


def check_signature(
    key: bytes | None, body: bytes, signature: str | None, algorithm: str | None, allowed: Sequence[str]
) -> None:
    """Check the signature headers of an internal request, in Kafka Connect's order and with its messages.

    Raises BadRequestError for missing or malformed headers and for algorithms that are unknown or not allowed,
    NotReadyError while the worker has no session key, and ForbiddenError if the signature does not match the body.
    """
    if signature is None or algorithm is None:
        raise BadRequestError("Internal request missing required signature")
    if algorithm not in ALGORITHMS:
        raise BadRequestError(f"Algorithm {algorithm} not available")
    try:
        given = base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequestError(f"the header {SIGNATURE_HEADER} is not valid base64: {error}") from error
    if algorithm not in allowed:
        raise BadRequestError(
            f"This worker does not support the '{algorithm}' key signing algorithm used by other workers. This worker "
            f"is currently configured to use: [{', '.join(allowed)}]. Check that all workers' configuration files "
            "permit the same set of signature algorithms, and correct any misconfigured worker and restart it."
        )
    if key is None:
        raise NotReadyError(
            "This worker is still starting up and has not been able to read a session key from the config topic yet"
        )
    if not hmac.compare_digest(given, _digest(key, body, algorithm)):
        raise ForbiddenError("Internal request contained invalid signature.")


def _digest(key: bytes, body: bytes, algorithm: str) -> bytes:
    return hmac.digest(key, body, ALGORITHMS[algorithm])
