"""Send requests to a connect worker's REST interface, and turn its errors into messages for the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote

import click

from .environment import Variable
from .http_client import exchange, http_options
from .waiting import Waiting

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_URL = "http://127.0.0.1:8083"
TIMEOUT_S = 90
"""The longest time, in seconds, that a worker may take for a request, including forwarding to another worker."""


def worker_options(command: F) -> F:
    """Add the options `--url` and `--json` to a command, which receives them as the arguments `url` and `as_json`.

    This also adds the options of `http_options`, for TLS and credentials. The default URL is the value of the
    environment variable ONCELOG_CONNECT_URL, or http://127.0.0.1:8083 if the variable is not set.
    """
    command = http_options(command)
    command = click.option("--json", "as_json", is_flag=True, help="Print the worker's response as JSON.")(command)
    return click.option(
        "--url",
        envvar=Variable.CONNECT_URL,
        default=DEFAULT_URL,
        show_default=True,
        show_envvar=True,
        help="Address of a worker's REST interface.",
    )(command)


class RequestError(click.ClickException):
    """A worker has refused a request, or has not answered it. `may_pass`: the same request may succeed later."""

    def __init__(self, message: str, *, may_pass: bool) -> None:
        super().__init__(message)
        self.may_pass = may_pass


def path(*parts: str | int) -> str:
    """Return the URL path that consists of these parts, each one percent-encoded."""
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)


def request(url: str, method: str, where: str, body: Any = None, *, timeout_s: float = TIMEOUT_S) -> Any:
    """Send a request to a worker, and return its response: the decoded JSON, or None if the body is empty.

    Raise RequestError with a remedy if the request fails.
    """
    data = None if body is None else json.dumps(body).encode()
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    try:
        with Waiting(f"waiting for the worker at {url}"):
            status, text = exchange(method, url.rstrip("/") + where, data, headers, timeout_s=timeout_s)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise RequestError(
            f"no worker answers at {url}: {getattr(reason, 'strerror', None) or reason}. Start one with `oncelog "
            "connect standalone` or `distributed`, or give another address with --url"
            f"{' or other authorities with --ca-file' if url.startswith('https') else ''}",
            may_pass=True,
        ) from None
    if status >= 400:
        raise _refusal(status, text)
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError:
        raise RequestError(
            f"{url} is not a connect worker: it answers {text[:80]!r}. Check --url", may_pass=False
        ) from None


def _refusal(status: int, body: bytes) -> RequestError:
    try:
        message = str(json.loads(body)["message"]).strip()
    except (ValueError, KeyError, TypeError):
        message = body[:200].decode("utf-8", "replace") or "no message"
    remedy = ""
    if status == 401:
        remedy = "\nGive credentials with --user-file or --token-file."
    elif status == 404 and "onnector" in message:
        remedy = "\n`oncelog connect list` prints the connectors."
    elif status == 409 and "already exists" in message:
        remedy = "\n`oncelog connect update` changes it."
    elif status == 409 or status == 503:
        remedy = "\nThe workers are rebalancing or starting: try again in a moment."
    elif "STOPPED state" in message:
        remedy = "\n`oncelog connect stop NAME` stops it."
    return RequestError(f"{message}{remedy}", may_pass=status in (404, 409) or status >= 500)
