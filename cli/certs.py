"""Define `oncelog certs`: make a certificate authority for development, and certificates for broker and clients."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from .json_output import json_option, print_json

if TYPE_CHECKING:
    from ..auth.development import DevelopmentAuthority

MAX_COMMON_NAME: Final = 64
"""The longest common name of a certificate (RFC 5280)."""

AUTHORITY, AUTHORITY_KEY = "ca.pem", "ca-key.pem"


@click.command(short_help="Make certificates for development.")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Host name or IP address of the broker; may be repeated.  [default: localhost, 127.0.0.1, ::1]",
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    metavar="NAME",
    help="Make a certificate for a client of this name; may be repeated.  [default: client]",
)
@json_option
def certs(directory: Path, hosts: tuple[str, ...], clients: tuple[str, ...], as_json: bool) -> int:
    """Make certificates for development in DIR, and print the settings that use them.

    The first call makes an authority (ca.pem, ca-key.pem), the broker's certificate (broker.pem) and a client's
    (client.pem, or NAME.pem for each --client). The files of the broker and the clients also contain the private keys.
    Later calls use the same authority, keep broker.pem unless --host is given, and make a new certificate for each
    --client.

    \b
    oncelog certs certs --host localhost --client alice
    oncelog serve --set listeners=SSL://localhost:9093 --set ssl.keystore.location=certs/broker.pem
    """
    try:
        from ..auth.development import DevelopmentAuthority
    except ImportError:
        raise click.ClickException("certificates need the extra: pip install 'oncelog[security]'") from None
    _check_names(clients)
    _check_hosts(hosts)
    directory.mkdir(parents=True, exist_ok=True)
    authority = directory / AUTHORITY
    if authority.exists():
        ca = _authority(authority, directory / AUTHORITY_KEY)
    else:
        ca = DevelopmentAuthority.make()
        _write(directory / AUTHORITY_KEY, ca.key_pem)
        _write(authority, ca.certificate_pem, secret=False)
    broker = directory / "broker.pem"
    made = []
    if hosts or not broker.exists():
        _write(broker, ca.issue("broker", hosts or ("localhost", "127.0.0.1", "::1")))
        made.append(broker)
    for name in clients or ("client",):
        file = directory / f"{name}.pem"
        if clients or not file.exists():
            _write(file, ca.issue(name))
            made.append(file)
    client = directory / f"{(clients or ('client',))[0]}.pem"
    if as_json:
        print_json({"authority": str(authority), "made": [str(file) for file in made]})
    else:
        click.echo(_settings(authority, broker, client, f"{_host_of(broker)}:9093"))
    return 0


def _check_names(clients: Iterable[str]) -> None:
    """Raise BadParameter for a name that is not a file name, is too long, or is the name of another file here."""
    for name in clients:
        if Path(name).name != name or name in ("", "ca", "ca-key", "broker") or len(name) > MAX_COMMON_NAME:
            raise click.BadParameter(
                f"{name!r} cannot be used. Use a name of 1 to {MAX_COMMON_NAME} characters without slashes, other than"
                " ca, ca-key and broker",
                param_hint="--client",
            )


def _check_hosts(hosts: Iterable[str]) -> None:
    """Raise BadParameter for a host that is neither a name nor an address, such as HOST:PORT."""
    from ..auth.development import problem_of_host

    for host in hosts:
        if problem := problem_of_host(host):
            raise click.BadParameter(problem, param_hint="--host")


def _host_of(broker: Path) -> str:
    """Return a host for which the broker's certificate is valid, in brackets if it is an IPv6 address."""
    from ..auth.development import hosts_of

    try:
        hosts = [host for host in hosts_of(broker.read_bytes()) if not host.startswith("*")]
    except (OSError, ValueError) as error:
        raise click.ClickException(
            f"{broker} cannot be used: {error}. Remove the file, or replace it with --host"
        ) from None
    host = hosts[0] if hosts else "localhost"
    return f"[{host}]" if ":" in host else host


def _authority(certificate: Path, key: Path) -> DevelopmentAuthority:
    """Return the authority that an earlier call has made. Raises ClickException if its files cannot be used."""
    from ..auth.development import DevelopmentAuthority

    try:
        return DevelopmentAuthority.load(certificate.read_bytes(), key.read_bytes())
    except (OSError, ValueError) as error:
        raise click.ClickException(
            f"the authority in {certificate} and {key} cannot be used: {error}. Restore the two files, or remove"
            f" {certificate.name} to make a new authority"
        ) from None


def _write(path: Path, content: bytes, *, secret: bool = True) -> None:
    """Write a file as a whole, or not at all. If `secret` is true, other users cannot read it."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    with open(descriptor, "wb") as file:
        file.write(content)
    draft.replace(path)


def _settings(authority: Path, broker: Path, client: Path, address: str) -> str:
    return f"""\
broker (oncelog serve --config broker.toml):
  listeners = "SSL://{address}"
  "ssl.keystore.location" = "{broker}"
  "ssl.truststore.location" = "{authority}"       # only if clients must present a certificate:
  "ssl.client.auth" = "required"

clients on librdkafka (confluent-kafka and others):
  bootstrap.servers={address}
  security.protocol=SSL
  ssl.ca.location={authority}
  ssl.certificate.location={client}
  ssl.key.location={client}

clients in Java:
  bootstrap.servers={address}
  security.protocol=SSL
  ssl.truststore.type=PEM
  ssl.truststore.location={authority}
  ssl.keystore.type=PEM
  ssl.keystore.location={client}"""
