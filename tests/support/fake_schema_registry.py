"""A schema registry in this process: REST calls of Confluent's registry, over HTTP on 127.0.0.1."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

TIMEOUT_S = 30.0


class FakeSchemaRegistry:
    """Use it as a context manager. `requests` are the requests so far, as (method, path).

    With `fails_with`, each request gets this status. `on_request` is called in the server's thread before each
    response. `clients` are closed at the end.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.fails_with = 0
        self.on_request: Callable[[], object] = lambda: None
        self.clients = ExitStack()
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer({})

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _answer(self, body: dict[str, Any]) -> None:
                status, answer = registry.answer(self.command, urlsplit(self.path).path, body)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clients.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(TIMEOUT_S)

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        with self._lock:
            self.requests.append((method, path))
        self.on_request()
        if self.fails_with:
            return self.fails_with, {"error_code": self.fails_with, "message": "it fails"}
        with self._lock:
            match (method, *map(unquote, path.strip("/").split("/"))):
                case ("POST", "subjects", subject, "versions"):
                    return 200, self._described(subject, self._register(subject, body))
                case ("POST", "subjects", subject):
                    found = [one for one in self._subjects.get(subject, []) if self._is(one, body)]
                    return (200, self._described(subject, found[0])) if found else (404, missing(40403, "schema"))
                case ("GET", "schemas", "ids", number) if 0 < int(number) <= len(self._schemas):
                    return 200, self._schemas[int(number) - 1]
                case ("GET", "subjects", subject, "versions", version) if subject in self._subjects:
                    known = self._subjects[subject]
                    return 200, self._described(subject, known[-1 if version == "latest" else int(version) - 1])
        return 404, missing(40401, "it")

    def _register(self, subject: str, body: dict[str, Any]) -> int:
        known = [number for number in range(1, len(self._schemas) + 1) if self._is(number, body)]
        if not known:
            self._schemas.append({name: body[name] for name in ("schema", "schemaType", "references") if name in body})
            known = [len(self._schemas)]
        versions = self._subjects.setdefault(subject, [])
        if known[0] not in versions:
            versions.append(known[0])
        return known[0]

    def _is(self, number: int, body: dict[str, Any]) -> bool:
        schema = self._schemas[number - 1]
        return schema["schema"] == body["schema"] and schema.get("references") == body.get("references")

    def _described(self, subject: str, number: int) -> dict[str, Any]:
        version = self._subjects[subject].index(number) + 1
        return {"subject": subject, "id": number, "version": version, **self._schemas[number - 1]}


def missing(code: int, what: str) -> dict[str, Any]:
    return {"error_code": code, "message": f"{what} is not there"}
