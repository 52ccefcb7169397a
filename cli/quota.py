"""Define `oncelog quota`: list, set and remove quotas of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from .bootstrap import bootstrap_option, connect_admin, run
from .confirmation import confirm, yes_option
from .json_output import json_option, report
from .tables import print_items

if TYPE_CHECKING:
    from ..client.admin import Quota

COLUMNS = ("user", "client-id", "ip", "quota", "value")
KEYS = (
    *("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"),
    "connection_creation_rate",
)
_OWNERS = {"user": "USER", "client-id": "ID", "ip": "ADDRESS"}
_NAMES = {"user": "user", "client-id": "client id", "ip": "IP address"}


@click.group(short_help="List, set and remove quotas.")
def quota() -> None:
    """List, set and remove quotas. A quota limits how much of a broker a user, a client id or an address may use."""


def owner_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name the owner of quotas: --user, --client-id and --ip, or --default-user and so on.

    The command receives the owner as the argument `owner`, for example {"user": "alice", "client-id": None}, where None
    means the default. If none of these options is given, `owner` is empty.
    """

    @wraps(command)
    def with_owner(**given: Any) -> None:
        owner: dict[str, str | None] = {}
        for kind in _OWNERS:
            option = kind.replace("-", "_")
            name, default = given.pop(option), given.pop(f"default_{option}")
            if name is not None and default:
                raise click.UsageError(f"give only one of --{kind} and --default-{kind}")
            if name is not None or default:
                owner[kind] = name
        command(owner=owner, **given)

    decorated: Callable[..., None] = with_owner
    for kind, name in reversed(_OWNERS.items()):
        everyone = f"Owner: every {_NAMES[kind]} without a quota of its own."
        decorated = click.option(f"--default-{kind}", is_flag=True, help=everyone)(decorated)
        decorated = click.option(f"--{kind}", metavar=name, help=f"Owner: the {_NAMES[kind]} {name}.")(decorated)
    return decorated


def _need(owner: dict[str, str | None]) -> None:
    if not owner:
        raise click.UsageError("name the owner with --user, --client-id or --ip, or with one of their --default- forms")


def _row(found: Quota, key: str) -> dict[str, object]:
    names = {kind: ("(default)" if name is None else name) for kind, name in found.owner.items()}
    value = found.values[key]
    return {**dict.fromkeys(_OWNERS, ""), **names, "quota": key, "value": int(value) if value == int(value) else value}


@quota.command(name="list", short_help="List quotas.")
@owner_options
@json_option
@bootstrap_option
def list_quotas(owner: dict[str, str | None], as_json: bool, bootstrap: str) -> None:
    """List all quotas, or those of one owner: a user, a client id, both together, or an address.

    \b
    oncelog quota list
    oncelog quota list --user alice
    """

    async def work() -> list[Quota]:
        async with connect_admin(bootstrap) as admin:
            return await admin.list_quotas(owner or None)

    rows = [_row(found, key) for found in run(work()) for key in sorted(found.values)]
    print_items(COLUMNS, rows, "There are no such quotas.", as_json=as_json)


@quota.command(name="set", short_help="Set quotas of an owner.")
@click.argument("quotas", nargs=-1, required=True, metavar="KEY=VALUE...")
@owner_options
@json_option
@bootstrap_option
def set_quotas(quotas: tuple[str, ...], owner: dict[str, str | None], as_json: bool, bootstrap: str) -> None:
    """Set quotas of an owner: a user, a client id, both together, or an address.

    The keys are producer_byte_rate and consumer_byte_rate (bytes per second), request_percentage (100 means all of the
    event loop's time), controller_mutation_rate (partitions per second), and for --ip connection_creation_rate
    (connections per second).

    \b
    oncelog quota set producer_byte_rate=1048576 --user alice
    oncelog quota set request_percentage=20 --default-client-id
    oncelog quota set connection_creation_rate=10 --ip 10.0.0.7
    """
    _need(owner)
    values: dict[str, float | None] = {}
    for item in quotas:
        key, equals, value = item.partition("=")
        if not equals or key not in KEYS:
            raise click.UsageError(f"{item!r} is not KEY=VALUE with one of the keys {', '.join(KEYS)}")
        try:
            values[key] = float(value)
        except ValueError:
            raise click.UsageError(f"{value!r} is not a number") from None

    async def work() -> None:
        async with connect_admin(bootstrap) as admin:
            await admin.set_quotas(owner, values)

    run(work())
    report(f"Set {len(values)} quota(s).", {"owner": owner, "quotas": values}, as_json=as_json)


@quota.command(short_help="Remove quotas of an owner.")
@click.argument("keys", nargs=-1, required=True, type=click.Choice(KEYS), metavar="KEY...")
@owner_options
@yes_option
@json_option
@bootstrap_option
def remove(keys: tuple[str, ...], owner: dict[str, str | None], yes: bool, as_json: bool, bootstrap: str) -> None:
    """Remove quotas of an owner: a user, a client id, both together, or an address.

    The broker then applies the next most specific quota that matches, for example a default.

    \b
    oncelog quota remove producer_byte_rate --user alice
    """
    _need(owner)
    confirm(f"Remove {', '.join(keys)}?", yes=yes)

    async def work() -> list[str]:
        async with connect_admin(bootstrap) as admin:
            existing = {key for found in await admin.list_quotas(owner) for key in found.values}
            if removed := [key for key in dict.fromkeys(keys) if key in existing]:
                await admin.set_quotas(owner, dict.fromkeys(removed))
            return removed

    removed = run(work())
    text = f"Removed {len(removed)} quota(s)." if removed else "There were no such quotas."
    report(text, {"owner": owner, "removed": removed}, as_json=as_json)
