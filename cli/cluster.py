"""Define `oncelog cluster`: show the cluster's brokers, and show and change their configs."""

from __future__ import annotations

import click

from .bootstrap import bootstrap_option, connect_admin, run
from .json_output import json_option, print_json, report
from .parameters import Number, config_changes
from .tables import print_items, print_items_table


@click.group(short_help="Describe the cluster; show and change the configs of its brokers.")
def cluster() -> None:
    """Describe the cluster, and print and change the configs of its brokers.

    \b
    oncelog cluster describe
    oncelog cluster config                             configs that were set explicitly
    oncelog cluster config --all                       all configs, with the defaults
    oncelog cluster config log.retention.ms
    oncelog cluster alter --set log.retention.ms=86400000
    """


@cluster.command()
@json_option
@bootstrap_option
def describe(as_json: bool, bootstrap: str) -> None:
    """Show the cluster's id and its brokers, and which broker is the controller."""

    async def work() -> None:
        async with connect_admin(bootstrap) as admin:
            described = await admin.describe_cluster()
        items = [
            {
                "id": broker.id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "controller": broker.id == described.controller_id,
            }
            for broker in sorted(described.brokers)
        ]
        if as_json:
            print_json({"cluster_id": described.cluster_id, "controller_id": described.controller_id, "brokers": items})
            return
        title = f"cluster {described.cluster_id}: {len(items)} broker(s)"
        print_items_table(title, (">id", "host", ">port", "rack", "controller"), items)

    run(work())


@cluster.command()
@click.argument("names", nargs=-1)
@click.option("--broker", type=Number(), metavar="ID", help="Id of the broker.  [default: the controller]")
@click.option("--all", "everything", is_flag=True, help="Print configs with default values as well.")
@json_option
@bootstrap_option
def config(names: tuple[str, ...], broker: int | None, everything: bool, as_json: bool, bootstrap: str) -> None:
    """Print a broker's configs, one per line: name, value, source.

    With NAMES, print these configs. Without NAMES, print the configs that were set explicitly: in the broker's
    configuration when it started, or with `oncelog cluster alter` since then.
    """

    async def work() -> None:
        from ..client.admin import ConfigResource, ResourceType
        from .configs import COLUMNS, DEFAULT_CONFIG, config_items

        async with connect_admin(bootstrap) as admin:
            described = await admin.describe_cluster()
            node = described.controller_id if broker is None else broker
            ids = sorted(each.id for each in described.brokers)
            if node not in ids:
                raise click.ClickException(f"broker {node} does not exist: the brokers are {', '.join(map(str, ids))}")
            resource = ConfigResource(ResourceType.BROKER, str(node))
            configs = (await admin.describe_configs([resource]))[resource]
        for name in names:
            if name not in configs:
                raise click.ClickException(f"broker {node} has no config {name}: --all prints all of its configs")
        shown = {
            name: entry
            for name, entry in configs.items()
            if (name in names if names else everything or entry.source != DEFAULT_CONFIG)
        }
        empty = f"No config of broker {node} was set explicitly. --all prints the defaults."
        print_items(COLUMNS, config_items(shown), empty, as_json=as_json)

    run(work())


@cluster.command(short_help="Set and remove configs of running brokers.")
@click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE", help="Set a config; may be repeated.")
@click.option(
    "--unset",
    multiple=True,
    metavar="NAME",
    help="Remove a config that was set with --set, so that the broker's configuration applies; may be repeated.",
)
@click.option("--broker", type=Number(), metavar="ID", help="Only the broker with this id.  [default: all brokers]")
@click.option("--dry-run", is_flag=True, help="Let the broker validate the change, and change nothing.")
@json_option
@bootstrap_option
def alter(
    pairs: tuple[str, ...], unset: tuple[str, ...], broker: int | None, dry_run: bool, as_json: bool, bootstrap: str
) -> None:
    """Set and remove configs of brokers while they run. All other configs keep their values.

    The values take precedence over those in the brokers' configuration, and are kept when a broker restarts. A value
    for one broker takes precedence over a value for all brokers.

    \b
    oncelog cluster alter --set log.retention.ms=86400000 --set max.connections=5000
    oncelog cluster alter --unset log.retention.ms
    """
    changes = config_changes(pairs, unset)

    async def work() -> None:
        from ..client.admin import ConfigResource, ResourceType
        from .configs import alter_configs, outcome

        resource = ConfigResource(ResourceType.BROKER, "" if broker is None else str(broker))
        async with connect_admin(bootstrap) as admin:
            changed = await alter_configs(admin, resource, changes, dry_run=dry_run)
        which = "all brokers" if broker is None else f"broker {broker}"
        result = {"broker": broker, "changes": changes, "dry_run": dry_run}
        report(outcome(which, changed=changed, dry_run=dry_run), result, as_json=as_json)

    run(work())
