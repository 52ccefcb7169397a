"""`oncelog topic`: create, list, describe, delete."""

from __future__ import annotations

import sys

import click

from .bootstrap import PATIENCE_MS, bootstrap_option, run
from .tables import print_list, print_table


@click.group(short_help="Create, list, describe and delete topics.")
def topic() -> None:
    """Create, list, describe and delete topics.

    \b
    oncelog topic create orders --partitions 3 --config retention.ms=86400000
    oncelog topic list
    oncelog topic describe orders
    oncelog topic delete orders
    """


def _settings(pairs: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--config")
        settings[name] = value
    return settings


@topic.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), help="How many.  [default: the broker's num.partitions]")
@click.option("--replication-factor", type=click.IntRange(1), help="[default: the broker's]")
@click.option("--config", "pairs", multiple=True, metavar="NAME=VALUE", help="A setting of the topic; may be repeated.")
@click.option("--if-not-exists", is_flag=True, help="It is fine if the topic is there already.")
@bootstrap_option
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    pairs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
) -> None:
    """Create the topic NAME.

    \b
    oncelog topic create orders --partitions 3
    oncelog topic create audit --config retention.ms=-1 --if-not-exists
    """
    configs = _settings(pairs)

    async def work() -> None:
        from ..client.admin import Admin, NewTopic
        from ..protocol.errors import ErrorCode, KafkaError

        async with Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=PATIENCE_MS) as admin:
            new = NewTopic(name, partitions or -1, replication_factor or -1, configs)
            try:
                await admin.create_topics([new])
            except KafkaError as error:
                if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and if_not_exists:
                    click.echo(f"Topic {name} is there already.")
                    return
                raise
            click.echo(f"Created topic {name}.")

    run(work())


@topic.command("list")
@click.option("--internal", is_flag=True, help="With the broker's own topics.")
@bootstrap_option
def list_(internal: bool, bootstrap: str) -> None:
    """Print the names of all topics, one per line."""

    async def work() -> None:
        from ..client.admin import Admin

        async with Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=PATIENCE_MS) as admin:
            names = sorted(await admin.list_topics(internal=internal))
            print_list(["topic"], [[name] for name in names], "There are no topics.")

    run(work())


@topic.command()
@click.argument("name")
@bootstrap_option
def describe(name: str, bootstrap: str) -> None:
    """Show the topic NAME: partitions, their leaders, the offsets that are in them.

    Offsets: `start` is the first that is still there; `end` is the next to be written; a read_committed reader gets up
    to `stable`, which stays behind `end` while a transaction is open.
    """

    async def work() -> None:
        from ..client.admin import Admin
        from ..client.values import TopicPartition

        async with Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=PATIENCE_MS) as admin:
            metadata = (await admin.describe_topics([name]))[name]
            partitions = [TopicPartition(name, partition.index) for partition in metadata.partitions]
            start = await admin.list_offsets(dict.fromkeys(partitions, -2))
            end = await admin.list_offsets(dict.fromkeys(partitions, -1))
            stable = await admin.list_offsets(dict.fromkeys(partitions, -1), isolation_level="read_committed")
            rows = []
            for partition, row in zip(partitions, metadata.partitions, strict=True):
                offsets = (start[partition].offset, stable[partition].offset, end[partition].offset)
                rows.append([str(partition.partition), str(row.leader_id), *map(str, offsets)])
            columns = (">partition", ">leader", ">start", ">stable", ">end")
            print_table(f"{name}: {len(partitions)} partition(s)", columns, rows)

    run(work())


@topic.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="It is fine if a topic is not there.")
@click.option("--yes", is_flag=True, help="Do not ask; nobody is asked either when stdin is not a terminal.")
@bootstrap_option
def delete(names: tuple[str, ...], if_exists: bool, yes: bool, bootstrap: str) -> int:
    """Delete the topics NAMES with all of their records.

    \b
    oncelog topic delete orders
    oncelog topic delete old-1 old-2 --yes --if-exists
    """
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {', '.join(names)} with all records?", abort=True)

    async def work() -> int:
        from ..client.admin import Admin
        from ..protocol.errors import ErrorCode

        failed = 0
        async with Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=PATIENCE_MS) as admin:
            for name, error in (await admin.delete_topics(list(names), raise_errors=False)).items():
                if error is None:
                    click.echo(f"Deleted topic {name}.")
                elif if_exists and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    click.echo(f"There is no topic {name}.")
                else:
                    click.echo(f"oncelog topic delete {name}: {error}", err=True)
                    failed += 1
        return 1 if failed else 0

    return run(work())
