"""Read Java's old key store format JKS, which keytool wrote by default before Java 9.

No maintained Python library reads this format. A file has a header, entries, and a digest of the password, the header
and the entries. An entry is a trusted certificate, or a private key with its certificate chain. The private key is
encrypted with a key stream made of SHA-1 digests of its password, which is weak protection. `keytool -importkeystore`
converts such a file to PKCS #12.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass, field
from typing import Final

MAGIC: Final = b"\xfe\xed\xfe\xed"
"""The first bytes of a file in this format."""

_KEY, _CERTIFICATE = 1, 2
_WHITENER: Final = b"Mighty Aphrodite"
_DIGEST_BYTES: Final = 20
_SALT_BYTES: Final = 20

_PROTECTED: Final = bytes.fromhex("060a2b060104012a02110101")
"""The identifier of Java's own encryption of keys, 1.3.6.1.4.1.42.2.17.1.1, in DER."""

_SEQUENCE, _OCTET_STRING = 0x30, 0x04


class JksError(ValueError):
    """A file is not in the format JKS, is damaged, or needs another password."""


@dataclass(slots=True)
class JksStore:
    """The content of a file: certificates and keys in DER.

    `key` is the first private key in unencrypted PKCS #8, or None if there is no key. `chain` is the key's certificate
    chain, which begins with the key's own certificate. `trusted` contains the certificates that Java trusts: those
    without a key, and the first certificate of each chain.
    """

    key: bytes | None = field(default=None, repr=False)
    chain: list[bytes] = field(default_factory=list)
    trusted: list[bytes] = field(default_factory=list)


def read_jks(content: bytes, password: str, key_password: str = "", *, keys: bool = True) -> JksStore:
    """Return the content of a file.

    `key_password` is the password of the key, if it differs from `password`. If `keys` is false, private keys are
    skipped. If `password` is empty, the digest is not checked, as in Java. Raises JksError.
    """
    if content[:4] != MAGIC:
        raise JksError("its first bytes are not those of a JKS file")
    if len(content) < 12 + _DIGEST_BYTES:
        raise JksError("it is cut off")
    body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if password and not hmac.compare_digest(_sha1(_encoded(password), _WHITENER, body), digest):
        raise JksError("the password is wrong, or the file is damaged")
    reader = _Reader(body, 4)
    version, count = reader.number(">I"), reader.number(">I")
    if version not in (1, 2):
        raise JksError(f"its version is {version}. Only versions 1 and 2 are supported")
    store = JksStore()
    for _ in range(count):
        kind = reader.number(">I")
        reader.text()  # the alias
        reader.take(8)  # the time of the entry
        if kind == _KEY:
            encrypted = reader.take(reader.number(">I"))
            chain = [reader.certificate(version) for _ in range(reader.number(">I"))]
            store.trusted += chain[:1]
            if keys and store.key is None:
                store.key, store.chain = _decrypted(encrypted, key_password or password), chain
        elif kind == _CERTIFICATE:
            store.trusted.append(reader.certificate(version))
        else:
            raise JksError(f"an entry has the kind {kind}, which is not known")
    return store


class _Reader:
    """Reads numbers, strings and certificates one after the other."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data, self._position = data, position

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise JksError("it is cut off, or damaged")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def number(self, form: str) -> int:
        (number,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return int(number)

    def text(self) -> bytes:
        return self.take(self.number(">H"))

    def certificate(self, version: int) -> bytes:
        if version == 2 and (kind := self.text()) != b"X.509":
            raise JksError(f"it has a certificate of the type {kind!r:.50}. Only X.509 is supported")
        return self.take(self.number(">I"))


def _decrypted(encrypted: bytes, password: str) -> bytes:
    """Return the decrypted key of an EncryptedPrivateKeyInfo (PKCS #8) that Java has encrypted with its own method."""
    info = _element(encrypted, 0, _SEQUENCE)[0]
    algorithm, after = _element(info, 0, _SEQUENCE)
    if not algorithm.startswith(_PROTECTED):
        raise JksError("its private key is encrypted in an unknown way")
    data = _element(info, after, _OCTET_STRING)[0]
    if len(data) < _SALT_BYTES + _DIGEST_BYTES:
        raise JksError("its private key is cut off")
    salt, hidden, digest = data[:_SALT_BYTES], data[_SALT_BYTES:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    secret, stream, block = _encoded(password), bytearray(), salt
    while len(stream) < len(hidden):
        block = _sha1(secret, block)
        stream += block
    key = bytes(one ^ other for one, other in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(_sha1(secret, key), digest):
        raise JksError("the password of its private key is wrong")
    return key


def _element(data: bytes, position: int, tag: int) -> tuple[bytes, int]:
    """Return the content of a DER element with this tag, and the position after it."""
    head = data[position : position + 2]
    if len(head) < 2 or head[0] != tag:
        raise JksError("its private key is not in the expected form")
    size, begin = head[1], position + 2
    if size & 0x80:  # the low bits are the number of bytes that hold the size
        begin += size & 0x7F
        size = int.from_bytes(data[position + 2 : begin], "big")
    if begin + size > len(data):
        raise JksError("its private key is cut off")
    return data[begin : begin + size], begin + size


def _encoded(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


def _sha1(*parts: bytes) -> bytes:
    digest = hashlib.sha1(usedforsecurity=False)
    for part in parts:
        digest.update(part)
    return digest.digest()
