"""Define `oncelog acl`: list, add and remove the access rules of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from .bootstrap import bootstrap_option, connect_admin, run
from .confirmation import confirm, yes_option
from .json_output import json_option
from .parameters import principal_of
from .tables import print_items

if TYPE_CHECKING:
    from ..client.admin import Acl

COLUMNS = ("permission", "principal", "host", "operation", "kind", "pattern", "name")
_OPERATIONS = (
    *("ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE"),
    *("CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS"),
)
_RESOURCES = {
    "topic": "TOPIC",
    "group": "GROUP",
    "transactional_id": "TRANSACTIONAL_ID",
    "user": "USER",
    "delegation_token": "DELEGATION_TOKEN",
}
_OPTIONS = ", ".join(f"--{name.replace('_', '-')}" for name in _RESOURCES)


@click.group(short_help="List, add and remove access rules (ACLs).")
def acl() -> None:
    """List, add and remove access rules (ACLs). The broker needs an authorizer (authorizer.class.name)."""


def resource_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name the resource of a rule, such as --topic and --cluster.

    The command receives the kind and the name of the resource as the argument `resource`; both are None without these
    options. Raises UsageError if more than one of these options is given.
    """

    @wraps(command)
    def with_resource(*, cluster: bool, **given: Any) -> None:
        names = {kind: given.pop(option) for option, kind in _RESOURCES.items()}
        chosen = [(kind, name) for kind, name in names.items() if name is not None]
        chosen += [("CLUSTER", "kafka-cluster")] if cluster else []
        if len(chosen) > 1:
            raise click.UsageError(f"give only one of {_OPTIONS} and --cluster")
        command(resource=chosen[0] if chosen else (None, None), **given)

    for name in reversed(_RESOURCES):
        option = click.option(
            f"--{name.replace('_', '-')}", metavar="NAME", help=f"The {name.replace('_', ' ')} NAME; * matches all."
        )
        with_resource = option(with_resource)
    return click.option("--cluster", is_flag=True, help="The cluster itself.")(with_resource)


def _print(rules: list[Acl], empty: str, *, as_json: bool) -> None:
    print_items(COLUMNS, [asdict(rule) for rule in rules], empty, as_json=as_json)


@acl.command(name="list", short_help="List access rules.")
@click.option(
    "--principal", type=principal_of, metavar="USER", help="Only rules of this principal, for example User:alice."
)
@resource_options
@json_option
@bootstrap_option
def list_rules(principal: str | None, resource: tuple[str | None, str | None], as_json: bool, bootstrap: str) -> None:
    """List access rules. With a resource, list all rules that apply to it, including rules with a prefix or *.

    \b
    oncelog acl list
    oncelog acl list --topic orders
    oncelog acl list --principal User:alice --json
    """
    from ..client.admin import AclFilter

    kind, name = resource

    async def work() -> list[Acl]:
        async with connect_admin(bootstrap) as admin:
            return await admin.list_acls(AclFilter(kind, name, principal, applies_to=name is not None))

    _print(run(work()), "There are no such access rules.", as_json=as_json)


def rule_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that describe rules and their resource.

    The command receives the rules, one for each operation, as the argument `rules`. Raises UsageError if no resource is
    named.
    """

    @wraps(command)
    def with_rules(
        *,
        principal: str,
        operations: tuple[str, ...],
        prefix: bool,
        deny: bool,
        host: str,
        resource: tuple[str | None, str | None],
        **others: Any,
    ) -> None:
        from ..client.admin import Acl

        kind, name = resource
        if kind is None or name is None:
            raise click.UsageError(f"name the resource with {_OPTIONS} or --cluster")
        permission, pattern = ("DENY" if deny else "ALLOW"), ("PREFIXED" if prefix else "LITERAL")
        rules = [Acl(kind, name, principal, operation, permission, host, pattern) for operation in operations]
        command(rules=rules, **others)

    decorated = resource_options(with_rules)
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
            "--principal",
            required=True,
            type=principal_of,
            metavar="USER",
            help="For example User:alice; User:* is every user.",
        ),
    ):
        decorated = option(decorated)
    return decorated


@acl.command(short_help="Add access rules.")
@rule_options
@json_option
@bootstrap_option
def add(rules: list[Acl], as_json: bool, bootstrap: str) -> None:
    """Add access rules, one for each operation.

    \b
    oncelog acl add --principal User:alice --operation READ --topic orders
    oncelog acl add --principal User:alice --operation READ --group billing- --prefix
    oncelog acl add --principal User:bob --operation WRITE --topic '*' --deny --host 10.0.0.7
    oncelog acl add --principal User:carol --operation CREATE_TOKENS --user User:alice
    """
    _refuse_without_effect(rules)

    async def work() -> None:
        async with connect_admin(bootstrap) as admin:
            await admin.create_acls(rules)

    run(work())
    _print(rules, "", as_json=as_json)


def _refuse_without_effect(rules: list[Acl]) -> None:
    """Raise UsageError for a rule that no request can match, although a broker accepts such a rule."""
    from ..broker.acls.authorizer import OPERATIONS
    from ..broker.security.client_host import is_address, spelled_as_in_kafka
    from ..protocol.access_rules import AclResourceType

    for rule in rules:
        known = {"ALL"} | {operation.name for operation in OPERATIONS[AclResourceType[rule.kind]]}
        if rule.operation not in known:
            raise click.UsageError(
                f"{rule.operation} on a {rule.kind} has no effect: no request needs it. Use"
                f" {', '.join(operation for operation in _OPERATIONS if operation in known)}"
            )
        if rule.pattern == "PREFIXED" and rule.name == "*":
            raise click.UsageError(
                "with --prefix, the name * matches only names that begin with *. To match all names, leave out --prefix"
            )
        if rule.host != "*" and not is_address(rule.host):
            raise click.UsageError(f"--host {rule.host} has no effect: name the client's IP address")
        if rule.host != (spelling := spelled_as_in_kafka(rule.host)):
            raise click.UsageError(f"--host {rule.host} has no effect: write this address as {spelling}, as Kafka does")


@acl.command(short_help="Remove access rules.")
@rule_options
@yes_option
@json_option
@bootstrap_option
def remove(rules: list[Acl], yes: bool, as_json: bool, bootstrap: str) -> None:
    """Remove exactly these access rules, and print those that existed.

    \b
    oncelog acl remove --principal User:alice --operation READ --topic orders
    """
    from ..client.admin import AclFilter

    filters = [
        AclFilter(rule.kind, rule.name, rule.principal, rule.operation, rule.permission, rule.host, rule.pattern)
        for rule in rules
    ]
    confirm(f"Remove {len(rules)} access rule(s) of {rules[0].principal}?", yes=yes)

    async def work() -> list[Acl]:
        async with connect_admin(bootstrap) as admin:
            return await admin.delete_acls(filters)

    _print(run(work()), "There were no such access rules.", as_json=as_json)
