"""Define `oncelog user`: manage the passwords of users who log in with SASL."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..auth.mechanism_names import SCRAM_NUMBERS
from .bootstrap import bootstrap_option, connect_admin, run
from .confirmation import confirm, yes_option
from .json_output import json_option, report
from .tables import print_items

if TYPE_CHECKING:
    from ..client.admin import ScramUser

F = TypeVar("F", bound=Callable[..., Any])


@click.group(short_help="Manage users who log in with SASL.")
def user() -> None:
    """Manage users who log in with SASL."""


def mechanism_option(meaning: str = "The SASL mechanism.") -> Callable[[F], F]:
    """Return a decorator that adds the option `--mechanism` with the help text `meaning`."""
    mechanisms = click.Choice(sorted(SCRAM_NUMBERS, reverse=True))
    return click.option("--mechanism", type=mechanisms, default="SCRAM-SHA-512", show_default=True, help=meaning)


def _password() -> str:
    """Return a password: prompt for it twice on a terminal, else read the first line of stdin."""
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    try:
        password = sys.stdin.readline().rstrip("\n")
        password.encode()  # bytes that are not UTF-8 fail here or, depending on the locale, in the line above
    except UnicodeError:
        raise click.UsageError("the password is not valid UTF-8") from None
    if not password:
        raise click.UsageError("the password is empty. Write it to stdin, followed by a newline")
    return password


@user.command(name="list", short_help="List the users who can log in with SCRAM.")
@json_option
@bootstrap_option
def list_users(as_json: bool, bootstrap: str) -> None:
    """List the users who can log in with SCRAM.

    For each mechanism of a user, the list shows the number of iterations of the password's hash.
    """

    async def work() -> list[ScramUser]:
        async with connect_admin(bootstrap) as admin:
            return await admin.scram_users()

    users = [
        {"user": one.name, "mechanism": mechanism, "iterations": iterations}
        for one in run(work())
        for mechanism, iterations in sorted(one.iterations.items())
    ]
    print_items(("user", "mechanism", "iterations"), users, "There are no users with SCRAM passwords.", as_json=as_json)


@user.command(name="set-password", short_help="Add a user, or change a user's password.")
@click.argument("name")
@mechanism_option()
@json_option
@bootstrap_option
def set_password(name: str, mechanism: str, as_json: bool, bootstrap: str) -> None:
    """Set the password of the user NAME for logins with SCRAM. Only a salted hash of the password is sent.

    The command prompts for the password, or reads it from stdin if stdin is not a terminal.

    \b
    oncelog user set-password alice --bootstrap localhost:9092
    """
    password = _password()

    async def work() -> None:
        async with connect_admin(bootstrap) as admin:
            await admin.set_password(name, password, mechanism=mechanism)

    run(work())
    report(f"Set the {mechanism} password of {name}.", {"user": name, "mechanism": mechanism}, as_json=as_json)


@user.command(short_help="Remove a user's password.")
@click.argument("name")
@mechanism_option()
@yes_option
@json_option
@bootstrap_option
def remove(name: str, mechanism: str, yes: bool, as_json: bool, bootstrap: str) -> None:
    """Remove the password of the user NAME for logins with SCRAM. Open connections stay open."""
    confirm(f"Remove the {mechanism} password of {name}?", yes=yes)

    async def work() -> None:
        async with connect_admin(bootstrap) as admin:
            await admin.delete_password(name, mechanism=mechanism)

    run(work())
    report(f"Removed the {mechanism} password of {name}.", {"user": name, "mechanism": mechanism}, as_json=as_json)


@user.command(name="hash", short_help="Print a line with the name of a user and the salted hash of a password.")
@click.argument("name")
@mechanism_option("The mechanism for which the hash is made. A SCRAM login needs the hash of its own mechanism.")
def hash_password(name: str, mechanism: str) -> int:
    """Read a password, and print the line NAME:HASH.

    Write the line into a file of users (plain.users.location, metrics.users.location or rest.users.location), or pass
    it to the option --add-scram of `oncelog serve`. The password cannot be computed from the hash. The command prompts
    for the password, or reads it from stdin if stdin is not a terminal.

    \b
    oncelog user hash alice >> users
    oncelog serve --add-scram "$(oncelog user hash alice)" ...
    """
    from ..auth.password_hash import PasswordHash

    if not name or any(character in name for character in "\0\r\n") or name.lstrip().startswith("#"):
        raise click.UsageError(f"{name!r} cannot be a user name. Use a name of one line that does not begin with #")
    click.echo(f"{name}:{PasswordHash.of_password(_password(), mechanism)}")
    return 0
