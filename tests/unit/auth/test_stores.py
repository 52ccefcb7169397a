"""`auth/stores.py`: keys and certificates in the forms that people have, and errors that say what is missing."""

from __future__ import annotations

import ssl

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from oncelog.auth.development import DevelopmentAuthority
from oncelog.auth.stores import KeyMaterial, StoreError, load_key, load_trusted

AUTHORITY = DevelopmentAuthority.make()
PEM = AUTHORITY.issue("broker", ["localhost"]).decode()
KEY, CHAIN = PEM[: PEM.index("-----BEGIN CERTIFICATE")], PEM[PEM.index("-----BEGIN CERTIFICATE") :]


def context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def encrypted(form: PrivateFormat, password: bytes) -> str:
    key = load_pem_private_key(KEY.encode(), None)
    return key.private_bytes(Encoding.PEM, form, BestAvailableEncryption(password)).decode()


@pytest.mark.parametrize("between", ["\n", " ", "\r\n", "   "])
def test_pem_may_be_on_one_line_as_in_files_of_properties(between: str) -> None:
    load_key(context(), KeyMaterial(PEM.replace("\n", between), ""))
    both = AUTHORITY.certificate_pem.decode() + DevelopmentAuthority.make("another").certificate_pem.decode()
    trusting = context()
    load_trusted(trusting, both.replace("\n", between))
    assert len(trusting.get_ca_certs()) == 2


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_an_encrypted_key_needs_its_password(form: PrivateFormat) -> None:
    pem = encrypted(form, b"hunter2") + CHAIN
    load_key(context(), KeyMaterial(pem, "hunter2"))
    for wrong in ("", "secret7"):
        with pytest.raises(StoreError, match="is encrypted, and cannot be read with the given password") as raised:
            load_key(context(), KeyMaterial(pem, wrong))
        assert "secret7" not in str(raised.value)


@pytest.mark.parametrize(
    ("pem", "words"),
    [
        ("", "there is no private key in PEM"),
        (CHAIN, "there is no private key in PEM"),
        (KEY, "there is no certificate in PEM"),
        (KEY + AUTHORITY.issue("other").decode()[len(KEY) :], "key values mismatch"),
        (KEY.replace("M", "!") + CHAIN, "they are not valid PEM"),
    ],
)
def test_what_is_missing_is_named(pem: str, words: str) -> None:
    with pytest.raises(StoreError, match=words) as raised:
        load_key(context(), KeyMaterial(pem, ""))
    assert "ssl.c" not in str(raised.value)
