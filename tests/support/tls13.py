"""A client of TLS 1.3 that encrypts its records itself, because Python's `ssl` sends no KeyUpdate (RFC 8446, 4.6.3)."""

from __future__ import annotations

import asyncio
import hmac
import socket
import ssl
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_CIPHERS = {"TLS_AES_128_GCM_SHA256": (16, "sha256"), "TLS_AES_256_GCM_SHA384": (32, "sha384")}
"""The length of the key in bytes, and the hash function, of each cipher suite that is supported here."""

_DATA, _HANDSHAKE = b"\x17", b"\x16"
_KEY_UPDATE = b"\x18\x00\x00\x01\x00"


class Tls13:
    """A connection whose handshake has ended. What `data` and `key_updates` return has to be sent in this order."""

    def __init__(self, tls: ssl.SSLObject, incoming: ssl.MemoryBIO, secret: bytes) -> None:
        cipher = tls.cipher()
        assert cipher is not None
        self._tls, self._incoming = tls, incoming
        self._key_bytes, self._hash = _CIPHERS[cipher[0]]
        self._use(secret)

    @classmethod
    async def connect(cls, sock: socket.socket) -> Tls13:
        """Do the handshake on a connected socket that does not block."""
        loop = asyncio.get_running_loop()
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        with tempfile.TemporaryDirectory() as directory:
            secrets = Path(directory, "secrets")
            context.keylog_filename = str(secrets)
            tls = context.wrap_bio(incoming, outgoing)
            done = False
            while not done:
                try:
                    tls.do_handshake()
                    done = True
                except ssl.SSLWantReadError:
                    pass
                await loop.sock_sendall(sock, outgoing.read())
                if not done:
                    incoming.write(await loop.sock_recv(sock, 65_536))
            lines = dict.fromkeys(secrets.read_text().splitlines())
        (secret,) = [line.split()[2] for line in lines if line.startswith("CLIENT_TRAFFIC_SECRET_0 ")]
        return cls(tls, incoming, bytes.fromhex(secret))

    def data(self, content: bytes) -> bytes:
        """Return one record with application data."""
        return self._record(content + _DATA)

    def key_updates(self, count: int) -> bytes:
        """Return `count` records, each of which changes the client's key."""
        records = []
        for _ in range(count):
            records.append(self._record(_KEY_UPDATE + _HANDSHAKE))
            self._use(self._expanded(b"traffic upd", len(self._secret)))
        return b"".join(records)

    def received(self, arrived: bytes) -> bytes:
        """Return the application data in the bytes that have arrived."""
        self._incoming.write(arrived)
        try:
            return self._tls.read()
        except ssl.SSLWantReadError:
            return b""

    def _use(self, secret: bytes) -> None:
        self._secret, self._sequence = secret, 0
        self._key = AESGCM(self._expanded(b"key", self._key_bytes))
        self._iv = int.from_bytes(self._expanded(b"iv", 12))

    def _expanded(self, label: bytes, length: int) -> bytes:
        """Do HKDF-Expand-Label with the current secret (RFC 8446, section 7.1), for at most one block."""
        name = b"tls13 " + label
        info = length.to_bytes(2) + bytes([len(name)]) + name + b"\0"
        return hmac.digest(self._secret, info + b"\x01", self._hash)[:length]

    def _record(self, content: bytes) -> bytes:
        header = b"\x17\x03\x03" + (len(content) + 16).to_bytes(2)
        nonce = (self._iv ^ self._sequence).to_bytes(12)
        self._sequence += 1
        return header + self._key.encrypt(nonce, content, header)
