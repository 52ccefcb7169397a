"""An identity provider: keys, signed tokens, and a key set as a file or from an HTTP server."""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from jwt.algorithms import ECAlgorithm

ISSUER = "https://issuer.example"


class IdentityProvider:
    """Signs tokens with keys, whose ids are a prefix and a number: k1, k2, ..."""

    def __init__(self, prefix: str = "k") -> None:
        self._prefix = prefix
        self._keys: dict[str, Any] = {}
        self.add_key()

    def add_key(self) -> None:
        self.newest = f"{self._prefix}{len(self._keys) + 1}"
        self._keys[self.newest] = generate_private_key(SECP256R1())

    def key_set(self) -> bytes:
        rows = [
            {**json.loads(ECAlgorithm.to_jwk(key.public_key())), "kid": key_id, "alg": "ES256", "use": "sig"}
            for key_id, key in self._keys.items()
        ]
        return json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "symmetric"}, *rows]}).encode()

    def write_keys(self, path: Path) -> str:
        """Write the key set to a file, and return its address."""
        path.write_bytes(self.key_set())
        return path.as_uri()

    def token(self, user: str = "alice", *, lifetime_s: float = 3600, key_id: str = "", **claims: Any) -> str:
        """Return a token; a claim that is None is left out."""
        key_id = key_id or self.newest
        given = {"sub": user, "iss": ISSUER, "aud": ["oncelog"], "exp": int(time.time() + lifetime_s), **claims}
        payload = {name: value for name, value in given.items() if value is not None}
        return jwt.encode(payload, self._keys[key_id], "ES256", {"kid": key_id})


class KeyServer:
    """Serves a key set on a free port, with a status that tests set, and counts the requests.

    No request is answered while `answers` is cleared.
    """

    def __init__(self, provider: IdentityProvider) -> None:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests += 1
                server.answers.wait()
                content = provider.key_set()
                self.send_response(server.status)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.requests, self.status = 0, 200
        self.answers = Event()
        self.answers.set()
        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/keys"
        self._thread = Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> KeyServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
