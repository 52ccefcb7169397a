"""Make certificates for development and tests: an authority, and certificates that it signs (RFC 5280).

Keys are on the elliptic curve P-256, in the format PKCS #8, which Java can also read. Needs `cryptography`, which
`oncelog[security]` installs.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 825
"""Days for which a certificate is valid: the highest number that all clients accept."""

_HOST_NAME: Final = re.compile(
    r"(?:\*\.)?(?:[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*"
    r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
)
"""A host name in ASCII. Its first label may be the wildcard of a certificate."""


class DevelopmentAuthority:
    """A certificate authority: its certificate and its private key."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def make(cls, name: str = "oncelog development authority") -> DevelopmentAuthority:
        """Return a new authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        builder = _builder(subject, subject, key, AUTHORITY_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, certificate_pem: bytes, key_pem: bytes) -> DevelopmentAuthority:
        """Return the authority whose certificate and key are given in PEM.

        Raises ValueError if they cannot be read or do not belong together, and if the key is not an elliptic-curve key.
        """
        key = load_pem_private_key(key_pem, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the authority's key is not an elliptic-curve key")
        certificate = x509.load_pem_x509_certificate(certificate_pem)
        if certificate.public_key() != key.public_key():
            raise ValueError("the key does not belong to the authority's certificate")
        return cls(certificate, key)

    @property
    def certificate_pem(self) -> bytes:
        """The authority's certificate in PEM, which brokers and clients must trust."""
        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The authority's private key in PEM, not encrypted."""
        return _key_pem(self._key)

    def issue(self, name: str, hosts: Iterable[str] = ()) -> bytes:
        """Return a new private key, its certificate and the authority's certificate, in PEM.

        The new certificate has the common name `name`, and is valid for `hosts`, which are host names or IP addresses.
        Both brokers and clients can use it. Raises ValueError for a host that is neither.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), self._certificate.subject, key, CERTIFICATE_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(authority, critical=False)
        if names := [_host(host) for host in hosts]:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return _key_pem(key) + certificate.public_bytes(Encoding.PEM) + self.certificate_pem


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def hosts_of(pem: bytes) -> list[str]:
    """Return the host names and addresses for which the first certificate in `pem` is valid.

    Raises ValueError if there is no certificate.
    """
    extensions = x509.load_pem_x509_certificates(pem)[0].extensions
    try:
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in names]


def problem_of_host(host: str) -> str | None:
    """Return why a certificate cannot be made for a host, or None if it can."""
    try:
        _host(host)
    except ValueError as error:
        return str(error)
    return None


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if _HOST_NAME.fullmatch(host) is None:
            raise ValueError(
                f"{host!r} is neither a host name in ASCII nor an IP address. Use the host of the broker's address,"
                " without port"
            ) from None
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(hours=1))  # clocks of clients may be slow
    builder = builder.not_valid_after(now + datetime.timedelta(days=days))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
