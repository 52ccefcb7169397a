"""Define `oncelog acl`: list, add and remove the access rules of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .bootstrap import bootstrap_option, connect_admin, run
from .confirmation import confirm, yes_option
from .json_output import json_option
from .tables import print_items

if TYPE_CHECKING:
    from ..client.admin import Acl

F = TypeVar("F", bound=Callable[..., Any])

COLUMNS = ("permission", "principal", "host", "operation", "kind", "pattern", "name")
_OPERATIONS = (
    *("ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE"),
    *("CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"),
)
_RESOURCES = {"topic": "TOPIC", "group": "GROUP", "transactional_id": "TRANSACTIONAL_ID"}


@click.group(short_help="List, add and remove access rules (ACLs).")
def acl() -> None:
    """List, add and remove access rules (ACLs). The broker needs an authorizer (authorizer.class.name)."""


def resource_options(command: F) -> F:
    """Add the options that name the resource of a rule: --topic, --group, --transactional-id and --cluster."""
    for name in reversed(_RESOURCES):
        option = f"--{name.replace('_', '-')}"
        command = click.option(option, metavar="NAME", help=f"The {name.replace('_', ' ')} NAME; * is every one.")(
            command
        )
    return click.option("--cluster", is_flag=True, help="The cluster itself.")(command)


def _resource(cluster: bool, names: dict[str, str | None]) -> tuple[str | None, str | None]:
    """Return the kind and the name of the chosen resource. Raises UsageError if there is more than one."""
    chosen: list[tuple[str, str]] = [(_RESOURCES[name], value) for name, value in names.items() if value is not None]
    chosen += [("CLUSTER", "kafka-cluster")] if cluster else []
    if len(chosen) > 1:
        raise click.UsageError("give only one of --topic, --group, --transactional-id and --cluster")
    return chosen[0] if chosen else (None, None)


def _print(rules: list[Acl], empty: str, *, as_json: bool) -> None:
    print_items(COLUMNS, [asdict(rule) for rule in rules], empty, as_json=as_json)


@acl.command(name="list", short_help="List access rules.")
@click.option("--principal", metavar="USER", help="Only rules of this principal, for example User:alice.")
@resource_options
@json_option
@bootstrap_option
def list_rules(
    principal: str | None,
    topic: str | None,
    group: str | None,
    transactional_id: str | None,
    cluster: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """List access rules. With a resource, list all rules that apply to it, those with a prefix or * included.

    \b
    oncelog acl list
    oncelog acl list --topic orders
    oncelog acl list --principal User:alice --json
    """
    from ..client.admin import AclFilter

    kind, name = _resource(cluster, {"topic": topic, "group": group, "transactional_id": transactional_id})

    async def work() -> list[Acl]:
        async with connect_admin(bootstrap) as admin:
            return await admin.list_acls(AclFilter(kind, name, principal, applies_to=name is not None))

    _print(run(work()), "There are no such access rules.", as_json=as_json)


def rule_options(command: F) -> F:
    """Add the options that describe one rule besides its resource."""
    for option in (
        click.option("--host", default="*", show_default=True, metavar="IP", help="The address of the client."),
        click.option("--deny", is_flag=True, help="Deny the operations instead of allowing them."),
        click.option("--prefix", is_flag=True, help="The rule applies to all names that begin with NAME."),
        click.option(
            "--operation",
            "operations",
            required=True,
            multiple=True,
            type=click.Choice(_OPERATIONS, case_sensitive=False),
            help="Operation; may be repeated.",
        ),
        click.option(
            "--principal", required=True, metavar="USER", help="For example User:alice; User:* is every user."
        ),
    ):
        command = option(command)
    return command


def _rules(
    principal: str,
    operations: tuple[str, ...],
    prefix: bool,
    deny: bool,
    host: str,
    resource: tuple[str | None, str | None],
) -> list[Acl]:
    from ..client.admin import Acl

    kind, name = resource
    if kind is None or name is None:
        raise click.UsageError("name the resource by --topic, --group, --transactional-id or --cluster")
    permission, pattern = ("DENY" if deny else "ALLOW"), ("PREFIXED" if prefix else "LITERAL")
    return [Acl(kind, name, principal, operation, permission, host, pattern) for operation in operations]


@acl.command(short_help="Add access rules.")
@rule_options
@resource_options
@json_option
@bootstrap_option
def add(
    principal: str,
    operations: tuple[str, ...],
    prefix: bool,
    deny: bool,
    host: str,
    topic: str | None,
    group: str | None,
    transactional_id: str | None,
    cluster: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Add access rules, one for each operation.

    \b
    oncelog acl add --principal User:alice --operation READ --topic orders
    oncelog acl add --principal User:alice --operation READ --group billing- --prefix
    oncelog acl add --principal User:bob --operation WRITE --topic '*' --deny --host 10.0.0.7
    """
    resource = _resource(cluster, {"topic": topic, "group": group, "transactional_id": transactional_id})
    rules = _rules(principal, operations, prefix, deny, host, resource)

    async def work() -> None:
        async with connect_admin(bootstrap) as admin:
            await admin.create_acls(rules)

    run(work())
    _print(rules, "", as_json=as_json)


@acl.command(short_help="Remove access rules.")
@rule_options
@resource_options
@yes_option
@json_option
@bootstrap_option
def remove(
    principal: str,
    operations: tuple[str, ...],
    prefix: bool,
    deny: bool,
    host: str,
    topic: str | None,
    group: str | None,
    transactional_id: str | None,
    cluster: bool,
    yes: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Remove exactly these access rules, and print those that existed.

    \b
    oncelog acl remove --principal User:alice --operation READ --topic orders
    """
    from ..client.admin import AclFilter

    resource = _resource(cluster, {"topic": topic, "group": group, "transactional_id": transactional_id})
    rules = _rules(principal, operations, prefix, deny, host, resource)
    filters = [
        AclFilter(rule.kind, rule.name, rule.principal, rule.operation, rule.permission, rule.host, rule.pattern)
        for rule in rules
    ]
    confirm(f"Remove {len(rules)} access rule(s) of {principal}?", yes=yes)

    async def work() -> list[Acl]:
        async with connect_admin(bootstrap) as admin:
            return await admin.delete_acls(filters)

    _print(run(work()), "There were no such access rules.", as_json=as_json)
