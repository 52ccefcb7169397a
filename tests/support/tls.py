"""Certificates for tests, and brokers with a TLS listener beside a plaintext one."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from oncelog.auth.development import DevelopmentAuthority
from oncelog.broker.node import BrokerNode
from oncelog.broker.security import alerts

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


@contextmanager
def rounds_of_steps() -> Iterator[Callable[[], Counter[int]]]:
    """Count, by round of the event loop, the steps of handshakes for which bytes have arrived."""
    round_, steps, begun, loop = 0, Counter[int](), set[int](), asyncio.get_running_loop()
    do_handshake = alerts.AlertingObject.do_handshake
    handle: asyncio.Handle | None = None

    def next_round() -> None:
        nonlocal round_, handle
        round_ += 1
        handle = loop.call_soon(next_round)

    def counted(connection: alerts.AlertingObject) -> None:
        if id(connection) in begun:
            steps[round_] += 1
        begun.add(id(connection))  # the first call is made before bytes arrive
        do_handshake(connection)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alerts.AlertingObject, "do_handshake", counted)
        next_round()
        try:
            yield lambda: steps
        finally:
            assert handle is not None
            handle.cancel()
