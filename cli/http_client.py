"""Send HTTP requests for commands, over TLS and with credentials that come from files or the environment."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from .environment import Variable
from .option_files import file_option, option_file

if TYPE_CHECKING:
    import ssl

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: Final = (
    (
        "--ca-file",
        Variable.HTTP_CA_FILE,
        "File in PEM with the certificates of the authorities to trust. Default: those of the system.",
    ),
    ("--cert-file", Variable.HTTP_CERT_FILE, "File in PEM with the private key and certificate of the client."),
    (
        "--user-file",
        Variable.HTTP_USER_FILE,
        f"File with NAME:PASSWORD for HTTP basic authentication. Default: ${Variable.HTTP_USER}.",
    ),
    ("--token-file", Variable.HTTP_TOKEN_FILE, f"File with a bearer token. Default: ${Variable.HTTP_TOKEN}."),
)
_SECRETS: Final = {"user_file": Variable.HTTP_USER, "token_file": Variable.HTTP_TOKEN}
"""The options for credentials, each with the environment variable that holds the credential itself."""


def http_options(command: F) -> F:
    """Add the options `--ca-file`, `--cert-file`, `--user-file` and `--token-file`, which `exchange` uses."""
    for name, variable, text in reversed(_OPTIONS):
        command = file_option(name, variable, text)(command)
    return command


def exchange(
    method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, *, timeout_s: float
) -> tuple[int, bytes]:
    """Send a request with the running command's credentials; return the status and the body of the response.

    Raises OSError or ValueError if there is no HTTP response, and ClickException if the address, the credentials or a
    file of `http_options` cannot be used.
    """
    import http.client
    import urllib.error
    import urllib.request

    if not url.startswith(("http://", "https://")):
        raise click.UsageError(f"--url {url}: the address must begin with http:// or https://")
    request = urllib.request.Request(url, body, dict(headers or {}), method=method)
    if (authorization := _authorization()) is not None:
        request.add_unredirected_header("Authorization", authorization)  # a redirect must not pass it on
    context = _context() if url.startswith("https://") else None
    try:
        with urllib.request.urlopen(request, timeout=timeout_s, context=context) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
    except http.client.HTTPException as error:
        raise OSError(f"the response is not valid HTTP ({type(error).__name__})") from None


def _authorization() -> str | None:
    """Return the value of the header `Authorization`, or None without credentials."""
    secrets = _secrets()
    if len(secrets) > 1:
        raise click.UsageError("a user and a token are both given. Give only one of --user-file and --token-file")
    if user := secrets.get("user_file"):
        if ":" not in user:
            raise click.UsageError(f"the user is not NAME:PASSWORD (--user-file, ${Variable.HTTP_USER})")
        return f"Basic {base64.b64encode(user.encode()).decode()}"
    return f"Bearer {secrets['token_file']}" if secrets else None


def _secrets() -> dict[str, str]:
    """Return the credentials by the names of their options.

    They are those of the command line, else those of the environment, where a file wins over the credential itself.
    """
    files = {name: file for name in _SECRETS if (file := option_file(name)) is not None}
    flags = {name: file for name, file in files.items() if not file.by_variable}
    secrets = {} if flags else {name: text for name, each in _SECRETS.items() if (text := os.environ.get(each))}
    return secrets | {name: _first_line(file.path()) for name, file in (flags or files).items()}


def _first_line(path: Path) -> str:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError):
        raise click.ClickException(
            f"{path} cannot be read as text. Check the path, and who may read the file"
        ) from None
    if not lines or not lines[0].strip():
        raise click.ClickException(f"{path} is empty. Put NAME:PASSWORD or the token on its first line")
    return lines[0].strip()


def _context() -> ssl.SSLContext:
    import ssl

    from ..auth.stores import StoreError, key_from_store, load_key, load_trusted, trusted_from_store

    trusted, certificate = option_file("ca_file"), option_file("cert_file")
    context = ssl.create_default_context() if trusted is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if trusted is not None:
            load_trusted(context, trusted_from_store("PEM", trusted.path(), ""))
        if certificate is not None:
            load_key(context, key_from_store("PEM", certificate.path(), "", ""))
    except StoreError as error:
        raise click.ClickException(str(error)) from None
    return context
