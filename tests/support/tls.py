"""Certificates for tests, and brokers with a TLS listener beside a plaintext one."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from oncelog.auth.development import DevelopmentAuthority
from oncelog.broker.node import BrokerNode

HOST = "localhost"


class Authority:
    """A certificate authority, and files of certificates that it signs."""

    def __init__(self, directory: Path) -> None:
        self.ca = DevelopmentAuthority.make()
        self.directory = directory
        self.trusted = directory / "ca.pem"
        self.trusted.write_bytes(self.ca.certificate_pem)

    def certificate(self, name: str, *hosts: str) -> Path:
        path = self.directory / f"{name}.pem"
        path.write_bytes(self.ca.issue(name, hosts))
        return path

    def context(self, certificate: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.trusted))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context


@asynccontextmanager
async def broker_with_tls(authority: Authority, **settings: Any) -> AsyncIterator[BrokerNode]:
    """A broker with a plaintext listener and one with TLS, on free ports of localhost."""
    if not any("keystore" in name for name in settings):
        settings["ssl.keystore.location"] = str(authority.certificate("broker", HOST))
    config = {"listeners": f"PLAINTEXT://127.0.0.1:0,SSL://{HOST}:0", "logging.level": "error", **settings}
    async with BrokerNode(config=config) as broker:
        yield broker


def tls_port(broker: BrokerNode) -> int:
    assert broker._listeners is not None
    return broker._listeners.named("SSL").port


def pkcs12_store(authority: Authority, path: Path, password: str) -> None:
    pem = authority.certificate("broker", HOST).read_bytes()
    key = load_pem_private_key(pem, None)
    assert isinstance(key, EllipticCurvePrivateKey)
    first, *others = x509.load_pem_x509_certificates(pem)
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(b"broker", key, first, others, BestAvailableEncryption(password.encode()))
    )
