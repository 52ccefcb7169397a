"""Define `oncelog cluster`: show the cluster's brokers and their configs."""

from __future__ import annotations

import click

from .bootstrap import bootstrap_option, connect_admin, run
from .json_output import json_option, print_json
from .parameters import Number
from .tables import print_items, print_items_table


@click.group(short_help="Describe the cluster and the configs of its brokers.")
def cluster() -> None:
    """Describe the cluster, and print the configs of its brokers.

    \b
    oncelog cluster describe
    oncelog cluster config                             configs that were set explicitly
    oncelog cluster config --all                       all configs, with the defaults
    oncelog cluster config log.retention.ms
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

    With NAMES, print these configs. Without NAMES, print the configs that were set explicitly. An oncelog broker reads
    its configs from its configuration file, its environment and its flags when it starts.
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
