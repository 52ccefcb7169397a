"""Convert the configs of topics and brokers to the rows that commands print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from ..client.admin import Admin, ConfigEntry, ConfigResource
    from .tables import Item

COLUMNS: Final = ("name", "value", "source")

DEFAULT_CONFIG: Final = 5
TOPIC_CONFIG: Final = 1
BROKER_CONFIG: Final = 2
ALL_BROKERS_CONFIG: Final = 3
_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
"""Kafka's names of the places in which a config can be set, by code (DescribeConfigsResponse.ConfigSource)."""


def config_items(entries: Mapping[str, ConfigEntry]) -> list[Item]:
    """Return configs as table items, sorted by name. The value of a sensitive config is None."""
    return [
        {
            "name": name,
            "value": entry.value,
            "source": _SOURCES.get(entry.source, str(entry.source)),
            "read_only": entry.read_only,
            "sensitive": entry.sensitive,
        }
        for name, entry in sorted(entries.items())
    ]


async def alter_configs(
    admin: Admin, resource: ConfigResource, changes: Mapping[str, str | None], *, dry_run: bool
) -> bool:
    """Set configs of a topic, a broker or all brokers, and remove those with the value None.

    Return whether there is anything to change. Print on stderr the configs that cannot be removed because they are not
    set. Raises ClickException, and changes nothing, if a config that is to be removed does not exist.
    """
    removed = [name for name, value in changes.items() if value is None]
    not_set = await _not_set(admin, resource, removed) if removed else []
    await admin.alter_configs({resource: changes}, validate_only=dry_run)
    for name in not_set:
        click.echo(f"{name} was not set.", err=True)
    return len(not_set) < len(changes)


def outcome(what: str, *, changed: bool, dry_run: bool) -> str:
    """Return the sentence that reports the result of `alter_configs` for a topic, a broker or all brokers."""
    if not changed:
        return f"Nothing to change in {what}."
    return f"The broker accepts these configs of {what}." if dry_run else f"Altered {what}."


async def _not_set(admin: Admin, resource: ConfigResource, names: Iterable[str]) -> list[str]:
    """Return the configs that are not set on the resource. Raises ClickException for a config that does not exist."""
    from ..client.admin import ResourceType

    described = known = (await admin.describe_configs([resource]))[resource]
    source = TOPIC_CONFIG if resource.type is ResourceType.TOPIC else BROKER_CONFIG
    if not resource.name:  # the description of all brokers contains only the configs that are set
        broker = resource._replace(name=str((await admin.describe_cluster()).brokers[0].id))
        known = (await admin.describe_configs([broker]))[broker]
        source = ALL_BROKERS_CONFIG
    not_set = [name for name in names if name not in described or described[name].source != source]
    for name in not_set:
        if name not in known:
            raise click.ClickException(f"--unset {name}: the broker has no config of this name")
    return not_set
