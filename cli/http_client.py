"""Send HTTP requests for commands, over TLS and with credentials that come from files or the environment."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    import ssl

F = TypeVar("F", bound=Callable[..., Any])

_FILES = f"{__name__}.files"
_OPTIONS = {
    "ca_file": "File in PEM with the certificates of the authorities to trust. Default: those of the system.",
    "cert_file": "File in PEM with the private key and certificate of the client.",
    "user_file": "File with NAME:PASSWORD for HTTP basic authentication. Default: $ONCELOG_HTTP_USER.",
    "token_file": "File with a bearer token. Default: $ONCELOG_HTTP_TOKEN.",
}


def http_options(command: F) -> F:
    """Add the options `--ca-file`, `--cert-file`, `--user-file` and `--token-file`, which `exchange` uses."""
    for name, text in reversed(_OPTIONS.items()):
        command = click.option(
            f"--{name.replace('_', '-')}",
            envvar=f"ONCELOG_HTTP_{name.upper()}",
            type=click.Path(path_type=Path, dir_okay=False, exists=True),
            metavar="FILE",
            show_envvar=True,
            expose_value=False,
            callback=_remember,
            help=text,
        )(command)
    return command


def _remember(context: click.Context, option: click.Parameter, file: Path | None) -> None:
    if file is not None:
        context.meta.setdefault(_FILES, {})[option.name] = file


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


def _file(name: str) -> Path | None:
    files: dict[str, Path] = click.get_current_context().meta.get(_FILES, {})
    return files.get(name)


def _authorization() -> str | None:
    """Return the value of the header `Authorization`, or None without credentials."""
    user, token = _secret("user_file", "ONCELOG_HTTP_USER"), _secret("token_file", "ONCELOG_HTTP_TOKEN")
    if user and token:
        raise click.UsageError("a user and a token are both given. Give only one of --user-file and --token-file")
    if user:
        if ":" not in user:
            raise click.UsageError("the user is not NAME:PASSWORD (--user-file, $ONCELOG_HTTP_USER)")
        return f"Basic {base64.b64encode(user.encode()).decode()}"
    return f"Bearer {token}" if token else None


def _secret(option: str, variable: str) -> str:
    """Return the first line of the option's file, else the value of the environment variable, else an empty string."""
    if (path := _file(option)) is None:
        return os.environ.get(variable, "")
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

    trusted, certificate = _file("ca_file"), _file("cert_file")
    context = ssl.create_default_context() if trusted is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if trusted is not None:
            load_trusted(context, trusted_from_store("PEM", trusted, ""))
        if certificate is not None:
            load_key(context, key_from_store("PEM", certificate, "", ""))
    except StoreError as error:
        raise click.ClickException(str(error)) from None
    return context
