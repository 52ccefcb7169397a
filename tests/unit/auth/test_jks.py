"""`auth/jks.py`: files that Java's keytool has written, and files that nobody has written.

The fixtures were made with keytool of Java 17 (`-storetype JKS`): broker.jks has a key, trusted.jks two certificates.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509 import load_pem_x509_certificates
from hypothesis import given
from hypothesis import strategies as st
from oncelog.auth.jks import JksError, read_jks
from oncelog.auth.stores import StoreError, key_from_store, load_key, trusted_from_store

FIXTURES = Path(__file__).parents[2] / "fixtures" / "jks"
BROKER, TRUSTED = FIXTURES / "broker.jks", FIXTURES / "trusted.jks"
STORE, KEY = "hunter2", "secret7"


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])  # as in Java, each of the types reads both formats
def test_a_key_that_keytool_has_made_is_used(kind: str) -> None:
    load_key(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), key_from_store(kind, BROKER, STORE, KEY))


@pytest.mark.parametrize("password", [STORE, ""])
def test_certificates_that_keytool_has_imported_are_trusted(password: str) -> None:
    certificates = load_pem_x509_certificates(trusted_from_store("JKS", TRUSTED, password).encode())
    assert len({certificate.fingerprint(certificate.signature_hash_algorithm) for certificate in certificates}) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "passwords", "words"),
    [
        (BROKER, ("secret8", KEY), "the password is wrong, or the file is damaged"),
        (BROKER, (STORE, "secret8"), "the password of its private key is wrong"),
        (BROKER, (STORE, ""), "the password of its private key is wrong"),
        (TRUSTED, (STORE, ""), "holds no private key with a certificate"),
    ],
)
def test_what_is_wrong_is_named_without_the_password(path: Path, passwords: tuple[str, str], words: str) -> None:
    with pytest.raises(StoreError, match=words) as raised:
        key_from_store("JKS", path, *passwords)
    assert str(path) in str(raised.value)
    assert "secret8" not in str(raised.value)


def test_the_certificate_of_a_key_is_trusted_as_in_java() -> None:
    assert len(load_pem_x509_certificates(trusted_from_store("JKS", BROKER, STORE).encode())) == 1


@pytest.mark.parametrize("error", [UnsupportedAlgorithm("no such algorithm"), TypeError("the key is encrypted")])
def test_a_key_that_no_library_reads_is_named(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("cryptography.hazmat.primitives.serialization.load_der_private_key", fail)
    with pytest.raises(StoreError, match=r"broker\.jks cannot be read as JKS"):
        key_from_store("JKS", BROKER, STORE, KEY)


@given(st.sampled_from((BROKER, TRUSTED)), st.integers(4, 2000), st.binary(min_size=1, max_size=4), st.integers(0, 900))
def test_damaged_files_are_read_or_refused(path: Path, position: int, piece: bytes, cut: int) -> None:
    content = bytearray(path.read_bytes())
    position %= len(content)
    content[position : position + len(piece)] = piece
    damaged = bytes(content[: len(content) - cut])
    for password in ("", STORE):
        with suppress(JksError):
            read_jks(damaged, password, KEY)


def test_every_damage_is_noticed_with_the_password() -> None:
    content = BROKER.read_bytes()
    for position in range(0, len(content), 7):
        damaged = content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]
        with pytest.raises(JksError):
            read_jks(damaged, STORE, KEY)
