"""Read private keys and certificates from files in PEM, PKCS #12 and Java's JKS.

PEM needs no further package. The other formats need `cryptography`, which the extra `oncelog[security]` installs.
Java's keytool has written PKCS #12 since Java 9, even into files named .jks. So, as in Java, the types PKCS12 and JKS
each accept files of both formats. The first bytes of a file show its format.
"""

from __future__ import annotations

import re
import secrets
import ssl
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .jks import MAGIC, read_jks

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")
"""The formats of files with keys and certificates, by Kafka's names. The types PKCS12 and JKS each accept files of both
formats.
"""

_JCEKS: Final = b"\xce\xce\xce\xce"
"""The first bytes of a file in the format JCEKS."""

_CERTIFICATE: Final = re.compile("-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\\s]*-----END CERTIFICATE-----")
"""A certificate in PEM. A file may have comments between its certificates, even ones that are not ASCII."""

_BLOCK: Final = re.compile("[ \\t]*-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\\s]*)-----END \\1-----")
"""A block of PEM without headers. Its base64 may be on one line, as in a file of Java properties."""

_PLACE: Final = re.compile(r"\s*\(_ssl\.c:[0-9]+\)")
"""The end of a TLS error's message, which names a place in Python's C source."""

_LINE: Final = 64
"""The number of characters of base64 in a line of PEM (RFC 7468)."""

MAX_STORE_BYTES: Final = 16 * 1024 * 1024
"""The size above which a file is refused, because it cannot be a file of keys."""


class StoreError(ValueError):
    """A key or certificate cannot be read or used. The message gives the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A private key and its certificate chain in PEM. `password` decrypts the key. It is "" if the key is not
    encrypted.
    """

    pem: str = field(repr=False)
    password: str = field(repr=False)


def key_from_pem(pem: str, key_password: str) -> KeyMaterial:
    """Return the key and chain in `pem`, which contains a private key and certificates in any order."""
    return KeyMaterial(pem, key_password)


def key_from_store(kind: str, path: Path, store_password: str, key_password: str) -> KeyMaterial:
    """Return the private key and chain of a file of the type PEM, PKCS12 or JKS. Raises StoreError.

    `key_password` is the password of a key in PEM or JKS. In a PKCS #12 file, the key has the password of the file. So
    does the key in a JKS file if `key_password` is empty.
    """
    content = _read(path)
    if kind == "PEM":
        return key_from_pem(_text(path, content), key_password)
    return _key_in_store(path, content, store_password, key_password)


def trusted_from_store(kind: str, path: Path, store_password: str) -> str:
    """Return, in PEM, the certificates in a file of the type PEM, PKCS12 or JKS. Raises StoreError."""
    content = _read(path)
    if kind == "PEM":
        text = _text(path, content)
        if "-----BEGIN CERTIFICATE-----" not in text:
            raise StoreError(f"{path} holds no certificate in PEM. Name a file in PEM, or set the type of the store")
        return text
    _, certificates = _opened(path, content, store_password, keys=False)
    found = [_certificate_pem(certificate) for certificate in certificates]
    if not found:
        raise StoreError(f"{path} holds no certificate. Add the authorities' certificates, for example with keytool")
    return "".join(found)


def load_key(context: ssl.SSLContext, material: KeyMaterial) -> None:
    """Load a private key and its chain into a context. Raises StoreError."""
    for what, mark in (("private key", "PRIVATE KEY-----"), ("certificate", "-----BEGIN CERTIFICATE-----")):
        if mark not in material.pem:
            raise StoreError(f"there is no {what} in PEM. Both the private key and its certificate chain are needed")
    try:
        # OpenSSL reads keys by path. The file can be read by this user only, and holds the key as it was given.
        with tempfile.NamedTemporaryFile("w", prefix="oncelog-", suffix=".pem", encoding="utf-8") as file:
            file.write(_in_lines(material.pem))
            file.flush()
            context.load_cert_chain(file.name, password=lambda: material.password)
    except (ssl.SSLError, ValueError, OSError) as error:
        if "ENCRYPTED" in material.pem and not getattr(error, "reason", None):
            problem = "the private key is encrypted, and cannot be read with the given password"
        else:
            problem = (
                f"the private key and its certificates cannot be used: {reason_of(error)}. Check that the private key"
                " belongs to the first certificate"
            )
        raise StoreError(problem) from error


def load_trusted(context: ssl.SSLContext, pem: str) -> None:
    """Make a context trust the certificates in `pem`. Raises StoreError.

    As in Java, each of them is trusted on its own, even without the certificate of its issuer.
    """
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=_in_lines("\n".join(_CERTIFICATE.findall(pem))))
    except (ssl.SSLError, ValueError, TypeError) as error:
        raise StoreError(f"there is no usable certificate: {reason_of(error)}. Use certificates in PEM") from error


def reason_of(error: Exception) -> str:
    """Return the reason of a TLS error in words, for example "certificate verify failed"."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    words = _PLACE.sub("", str(reason)).replace("_", " ").lower()
    return "they are not valid PEM" if words == "[ssl] pem lib" else words or type(error).__name__


def _in_lines(pem: str) -> str:
    """Return `pem` with its base64 broken into lines, because OpenSSL cannot read it otherwise."""

    def wrapped(block: re.Match[str]) -> str:
        base64 = "".join(block[2].split())
        lines = [base64[start : start + _LINE] for start in range(0, len(base64), _LINE)]
        return "\n".join([f"-----BEGIN {block[1]}-----", *lines, f"-----END {block[1]}-----\n"])

    return _BLOCK.sub(wrapped, pem)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_STORE_BYTES + 1)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}. Check the path and who may read the file") from None
    if len(content) > MAX_STORE_BYTES:
        raise StoreError(f"{path} is larger than {MAX_STORE_BYTES} bytes, so it holds no keys. Check the path")
    return content


def _text(path: Path, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise StoreError(
            f"{path} is a binary file, so it is not PEM. Set the type of the store to PKCS12 or JKS"
        ) from None


# ---- PKCS #12 and JKS


def _opened(
    path: Path, content: bytes, password: str, key_password: str = "", *, keys: bool = True
) -> tuple[PrivateKeyTypes | None, list[Any]]:
    """Return (the key or None, the certificates). The key's own certificate comes first. Raises StoreError.

    In a JKS file, the certificates are the chain of the key, or, if `keys` is false, the trusted certificates.
    """
    if content[:4] == _JCEKS:
        raise StoreError(
            f"{path} has Java's old format JCEKS, which is not supported. Convert it: keytool -importkeystore"
            f" -srckeystore {path} -destkeystore {path.with_suffix('.p12')} -deststoretype pkcs12"
        )
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
    except ImportError:
        raise StoreError(f"{path}: a file of this type needs the extra: pip install 'oncelog[security]'") from None
    form = "JKS" if content[:4] == MAGIC else "PKCS12"
    try:
        return _jks(content, password, key_password, keys=keys) if form == "JKS" else _pkcs12(content, password)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise StoreError(f"{path} cannot be read as {form}: {error}. Check the file and its password") from error


def _jks(content: bytes, password: str, key_password: str, *, keys: bool) -> tuple[PrivateKeyTypes | None, list[Any]]:
    from cryptography.hazmat.primitives.serialization import load_der_private_key
    from cryptography.x509 import load_der_x509_certificate

    store = read_jks(content, password, key_password, keys=keys)
    key = None if store.key is None else load_der_private_key(store.key, None)
    return key, [load_der_x509_certificate(each) for each in (store.chain if keys else store.trusted)]


def _pkcs12(content: bytes, password: str) -> tuple[PrivateKeyTypes | None, list[Any]]:
    from cryptography.hazmat.primitives.serialization import pkcs12

    store = pkcs12.load_pkcs12(content, password.encode() if password else None)
    own = [store.cert] if store.cert is not None else []
    return store.key, [entry.certificate for entry in (*own, *store.additional_certs)]


def _key_in_store(path: Path, content: bytes, password: str, key_password: str) -> KeyMaterial:
    key, certificates = _opened(path, content, password, key_password)
    if key is None or not certificates:
        raise StoreError(f"{path} holds no private key with a certificate. Export both into the file")
    from cryptography.hazmat.primitives import serialization

    phrase = secrets.token_urlsafe(24)  # the key is never written unencrypted, not even to a private file
    encoded = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(phrase.encode()),
    ).decode()
    return KeyMaterial(encoded + "".join(map(_certificate_pem, _chain(certificates))), phrase)


def _chain(certificates: list[Any]) -> Iterable[Any]:
    """Yield the first certificate and those of its issuers, in order; unrelated certificates are left out."""
    by_subject = {certificate.subject: certificate for certificate in reversed(certificates)}
    current, seen = certificates[0], set()
    while current is not None and current.subject not in seen:
        yield current
        seen.add(current.subject)
        current = by_subject.get(current.issuer)


def _certificate_pem(certificate: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    encoded: bytes = certificate.public_bytes(Encoding.PEM)
    return encoded.decode()
