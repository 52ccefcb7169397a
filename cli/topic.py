"""Define `oncelog topic`: create, list, describe and delete topics.

The commands that change a topic are in `topic_changes.py`.
"""

from __future__ import annotations

import click

from .bootstrap import bootstrap_option, connect_admin, run
from .confirmation import confirm, yes_option
from .json_output import json_option, print_json, report
from .parameters import MAX_INT16, Number, name_and_value
from .tables import print_items, print_items_table
from .topic_changes import CHANGES


@click.group(short_help="Create, list, describe, change, trim and delete topics.")
def topic() -> None:
    """Create, list, describe, change, trim and delete topics.

    \b
    oncelog topic create orders --partitions 3 --config retention.ms=86400000
    oncelog topic list
    oncelog topic describe orders
    oncelog topic alter orders --set retention.ms=3600000 --unset cleanup.policy
    oncelog topic add-partitions orders --num 2
    oncelog topic trim orders --before-time 7d
    oncelog topic delete orders
    """


for change in CHANGES:
    topic.add_command(change)


@topic.command()
@click.argument("name")
@click.option("--partitions", type=Number(1), help="Number of partitions.  [default: the broker's]")
@click.option(
    "--replication-factor", type=Number(1, MAX_INT16), help="Replicas per partition.  [default: the broker's]"
)
@click.option(
    "--config", "pairs", multiple=True, metavar="NAME=VALUE", help="Set a config of the topic; may be repeated."
)
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic exists already.")
@json_option
@bootstrap_option
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    pairs: tuple[str, ...],
    if_not_exists: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Create the topic NAME.

    \b
    oncelog topic create orders --partitions 3
    oncelog topic create audit --config retention.ms=-1 --if-not-exists
    """
    configs = dict(name_and_value(pair, "--config") for pair in pairs)

    async def work() -> None:
        from ..client.admin import NewTopic
        from ..protocol.errors import ErrorCode, KafkaError

        async with connect_admin(bootstrap) as admin:
            new = NewTopic(name, partitions or -1, replication_factor or -1, configs)
            created, sentence = True, f"Created topic {name}."
            try:
                await admin.create_topics([new])
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or not if_not_exists:
                    raise
                created, sentence = False, f"Topic {name} exists already."
            report(sentence, {"topic": name, "created": created}, as_json=as_json)

    run(work())


@topic.command("list")
@click.option("--internal", is_flag=True, help="Include internal topics.")
@json_option
@bootstrap_option
def list_(internal: bool, as_json: bool, bootstrap: str) -> None:
    """Print the names of all topics, one per line."""

    async def work() -> None:
        async with connect_admin(bootstrap) as admin:
            names = sorted(await admin.list_topics(internal=internal))
            print_items(["topic"], [{"topic": name} for name in names], "There are no topics.", as_json=as_json)

    run(work())


@topic.command()
@click.argument("name")
@click.option("--configs", "all_configs", is_flag=True, help="Print all configs, not only those set on the topic.")
@json_option
@bootstrap_option
def describe(name: str, all_configs: bool, as_json: bool, bootstrap: str) -> None:
    """Show the topic NAME: its partitions with leaders and offsets, and its configs.

    `start` is the first stored offset, and `end` is the offset of the next record. `stable` is the last stable offset,
    up to which read_committed consumers read. It stays below `end` while a transaction is open. The configs are those
    set on the topic itself. --configs adds those set on the broker, and the defaults. --json always prints all configs.

    If an offset cannot be looked up, because the partition is damaged or has no leader, a line on stderr says why.
    """

    async def work() -> None:
        from ..client.admin import ConfigResource, ResourceType
        from ..client.values import TopicPartition
        from .configs import COLUMNS, TOPIC_CONFIG, config_items
        from .partition_offsets import partition_offsets

        async with connect_admin(bootstrap) as admin:
            metadata = (await admin.describe_topics([name]))[name]
            partitions = [TopicPartition(name, partition.index) for partition in metadata.partitions]
            offsets = await partition_offsets(admin, partitions)
            resource = ConfigResource(ResourceType.TOPIC, name)
            configs = (await admin.describe_configs([resource]))[resource]
        items = [
            {
                "partition": partition.partition,
                "leader": row.leader_id,
                "replicas": list(row.replicas),
                **offsets[partition]._asdict(),
            }
            for partition, row in zip(partitions, metadata.partitions, strict=True)
        ]
        if as_json:
            print_json({"topic": name, "partitions": items, "configs": config_items(configs)})
            return
        columns = (">partition", ">leader", ">start", ">stable", ">end")
        print_items_table(f"{name}: {len(partitions)} partition(s)", columns, items)
        for partition, found in offsets.items():
            if found.error is not None:
                click.echo(f"{partition}: {found.error}", err=True)
        shown = {key: entry for key, entry in configs.items() if all_configs or entry.source == TOPIC_CONFIG}
        if shown:
            click.echo()
            print_items_table(f"{name}: {len(shown)} config(s)", COLUMNS, config_items(shown))

    run(work())


@topic.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="Succeed if a topic does not exist.")
@yes_option
@json_option
@bootstrap_option
def delete(names: tuple[str, ...], if_exists: bool, yes: bool, as_json: bool, bootstrap: str) -> int:
    """Delete the topics NAMES and all of their records.

    \b
    oncelog topic delete orders
    oncelog topic delete old-1 old-2 --yes --if-exists
    """
    confirm(f"Delete {', '.join(names)} with all records?", yes=yes)

    async def work() -> int:
        from ..protocol.errors import ErrorCode
        from .outcomes import print_outcomes

        async with connect_admin(bootstrap) as admin:
            outcomes = await admin.delete_topics(names, raise_errors=False)
        return print_outcomes(
            outcomes,
            "topic",
            done="Deleted topic {}.",
            absent="There is no topic {}.",
            absent_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if if_exists else None,
            as_json=as_json,
        )

    return run(work())
