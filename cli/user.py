"""Define `oncelog user`: what a broker stores about users who log in by SASL."""

from __future__ import annotations

import sys

import click


@click.group(short_help="Prepare users who log in by SASL.")
def user() -> None:
    """Prepare users who log in by SASL."""


@user.command(name="hash", short_help="Print a user's line with the salted hash of a password.")
@click.argument("name")
@click.option(
    "--mechanism",
    type=click.Choice(["SCRAM-SHA-512", "SCRAM-SHA-256"]),
    default="SCRAM-SHA-512",
    show_default=True,
    help="The mechanism by which the hash is made. A SCRAM login needs the hash of its own mechanism.",
)
def hash_password(name: str, mechanism: str) -> int:
    """Read a password, and print the line NAME:HASH.

    Write the line into the file of plain.users.location, or pass it to `oncelog serve --add-scram`. The password cannot
    be computed from it. The command prompts for the password, or reads it from stdin if that is not a terminal.

    \b
    oncelog user hash alice >> users
    oncelog serve --add-scram "$(oncelog user hash alice)" ...
    """
    from ..auth.password_hash import PasswordHash

    if not name or any(character in name for character in "\0\r\n") or name.startswith("#"):
        raise click.UsageError(f"{name!r} cannot be a user name. Use a name of one line that does not begin with #")
    if sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise click.UsageError("the password is empty. Write it to stdin, followed by a newline")
    click.echo(f"{name}:{PasswordHash.of_password(password, mechanism)}")
    return 0
