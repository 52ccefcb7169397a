"""Define `oncelog token`: delegation tokens, with which other processes log in as a user (KIP-48)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from .bootstrap import bootstrap_option, connect_admin, run
from .confirmation import confirm, yes_option
from .json_output import json_option, print_json, report
from .parameters import duration_of, principal_of
from .tables import print_items
from .times import moment

if TYPE_CHECKING:
    from ..client.admin import Admin, DelegationToken

_COLUMNS = ("id", "owner", "requester", "renewers", "expires", "ends")


@click.group(short_help="Manage delegation tokens, with which other processes log in as a user.")
def token() -> None:
    """Manage delegation tokens, with which other processes log in as a user without the user's password.

    The commands need a client that logs in (--client-config), but not with a token. The broker needs the setting
    delegation.token.secret.key.
    """


def _item(one: DelegationToken) -> dict[str, object]:
    """Return the attributes of a token that are printed: all except its secret."""
    return {
        "id": one.token_id,
        "owner": one.owner,
        "requester": one.requester,
        "renewers": list(one.renewers),
        "issued_ms": one.issue_timestamp,
        "expires_ms": one.expiry_timestamp,
        "ends_ms": one.max_timestamp,
    }


def _moment(at_ms: int) -> str:
    return moment(at_ms, round(time.time() * 1000))


@token.command(short_help="Create a delegation token, and print its secret.")
@click.option(
    "--owner",
    type=principal_of,
    metavar="USER",
    help="The owner, such as User:bob. By default the user who is logged in.",
)
@click.option(
    "--renewer",
    "renewers",
    type=principal_of,
    metavar="USER",
    multiple=True,
    help="A user who may renew the token; may be repeated.",
)
@click.option(
    "--lifetime",
    type=duration_of,
    metavar="DURATION",
    help="Maximum lifetime of the token, such as 7d. The token cannot be renewed beyond it.",
)
@json_option
@bootstrap_option
def create(owner: str | None, renewers: tuple[str, ...], lifetime: int | None, as_json: bool, bootstrap: str) -> None:
    """Create a delegation token, and print it as settings of a client. They contain the secret of the token.

    \b
    oncelog token create --client-config alice.properties > token.properties
    oncelog token create --owner User:bob --renewer User:scheduler --lifetime 12h
    """

    async def work() -> DelegationToken:
        async with connect_admin(bootstrap) as admin:
            return await admin.create_delegation_token(owner=owner, renewers=renewers, max_lifetime_ms=lifetime)

    made = run(work())
    if as_json:
        print_json({**_item(made), "password": made.password})
        return
    click.echo(f"# delegation token {made.token_id} of {made.owner}, valid until {_moment(made.expiry_timestamp)}")
    click.echo("sasl.mechanism=SCRAM-SHA-512")
    click.echo(f"sasl.jaas.config={made.jaas_config}")


@token.command(name="list", short_help="List delegation tokens.")
@click.option(
    "--owner",
    "owners",
    type=principal_of,
    metavar="USER",
    multiple=True,
    help="Only tokens that this user owns, has requested or may renew; may be repeated.",
)
@json_option
@bootstrap_option
def list_tokens(owners: tuple[str, ...], as_json: bool, bootstrap: str) -> None:
    """List the delegation tokens that the logged-in user owns, has requested or may renew.

    The list also contains the tokens that ACLs let this user see. With --owner, it contains only the tokens that the
    given user owns, has requested or may renew. Secrets are never shown.
    """

    async def work() -> list[DelegationToken]:
        async with connect_admin(bootstrap) as admin:
            return await admin.describe_delegation_tokens(owners or None)

    tokens = run(work())
    items = [_item(one) for one in tokens]
    if not as_json:
        for item, one in zip(items, tokens, strict=True):
            item["renewers"] = ", ".join(one.renewers)
            item |= {"expires": _moment(one.expiry_timestamp), "ends": _moment(one.max_timestamp)}
    print_items(_COLUMNS, items, "There are no delegation tokens.", as_json=as_json)


async def _secret_of(admin: Admin, token_id: str) -> bytes:
    """Return the secret of a token, by which requests identify the token. Raise ClickException for an unknown token."""
    for one in await admin.describe_delegation_tokens():
        if one.token_id == token_id:
            return one.hmac
    raise click.ClickException(f"there is no delegation token {token_id!r}, or you may not see it")


@token.command(short_help="Renew a delegation token.")
@click.argument("token_id")
@click.option(
    "--period",
    type=duration_of,
    metavar="DURATION",
    help="Time for which the renewed token is valid, such as 12h. By default, as long as the broker allows.",
)
@json_option
@bootstrap_option
def renew(token_id: str, period: int | None, as_json: bool, bootstrap: str) -> None:
    """Renew the delegation token TOKEN_ID. Only its owner and its renewers may renew it."""

    async def work() -> int:
        async with connect_admin(bootstrap) as admin:
            return await admin.renew_delegation_token(await _secret_of(admin, token_id), period_ms=period)

    expiry = run(work())
    report(f"The token is valid until {_moment(expiry)}.", {"id": token_id, "expires_ms": expiry}, as_json=as_json)


@token.command(short_help="Let a delegation token expire, by default at once.")
@click.argument("token_id")
@click.option("--after", type=duration_of, metavar="DURATION", help="Let the token expire after this time, such as 1h.")
@yes_option
@json_option
@bootstrap_option
def expire(token_id: str, after: int | None, yes: bool, as_json: bool, bootstrap: str) -> None:
    """Remove the delegation token TOKEN_ID or, with --after, change when it expires. Open connections stay open.

    Only the token's owner and renewers may do so.
    """
    if after is None:
        confirm(f"Remove the delegation token {token_id}?", yes=yes)

    async def work() -> int:
        async with connect_admin(bootstrap) as admin:
            return await admin.expire_delegation_token(await _secret_of(admin, token_id), period_ms=after)

    expiry = run(work())
    sentence = f"Removed the token {token_id}." if after is None else f"The token is valid until {_moment(expiry)}."
    report(sentence, {"id": token_id, "expires_ms": expiry}, as_json=as_json)
