"""Define the `oncelog topic` commands that change a topic: alter, add-partitions and trim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from .bootstrap import bootstrap_option, connect_admin, run
from .confirmation import confirm, yes_option
from .json_output import json_option, print_json, report
from .parameters import MAX_INT32, MAX_INT64, Number, config_changes, time_of
from .tables import print_items_table

if TYPE_CHECKING:
    from ..client.admin import Admin
    from ..client.values import TopicPartition


@click.command(short_help="Set and remove configs of a topic.")
@click.argument("name")
@click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE", help="Set a config; may be repeated.")
@click.option(
    "--unset",
    multiple=True,
    metavar="NAME",
    help="Remove a config, so that the broker's value applies; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Let the broker validate the change, and change nothing.")
@json_option
@bootstrap_option
def alter(
    name: str, pairs: tuple[str, ...], unset: tuple[str, ...], dry_run: bool, as_json: bool, bootstrap: str
) -> None:
    """Set and remove configs of the topic NAME. All other configs keep their values.

    \b
    oncelog topic alter orders --set retention.ms=86400000 --set cleanup.policy=delete
    oncelog topic alter orders --unset retention.ms
    """
    changes = config_changes(pairs, unset)

    async def work() -> None:
        from ..client.admin import ConfigResource, ResourceType
        from .configs import alter_configs, outcome

        async with connect_admin(bootstrap) as admin:
            changed = await alter_configs(admin, ConfigResource(ResourceType.TOPIC, name), changes, dry_run=dry_run)
        result = {"topic": name, "changes": changes, "dry_run": dry_run}
        report(outcome(f"topic {name}", changed=changed, dry_run=dry_run), result, as_json=as_json)

    run(work())


@click.command("add-partitions", short_help="Add partitions to a topic.")
@click.argument("name")
@click.option("--num", type=Number(1, MAX_INT32 // 2), help="Number of partitions to add.")
@click.option("--total", type=Number(1), help="Number of partitions that the topic has afterwards.")
@json_option
@bootstrap_option
def add_partitions(name: str, num: int | None, total: int | None, as_json: bool, bootstrap: str) -> None:
    """Add partitions to the topic NAME. They cannot be removed again.

    Existing records stay in their partitions, but new records of a key may go to another partition. A consumer may then
    read old and new records of a key in any order.

    \b
    oncelog topic add-partitions orders --num 2        two more partitions than now
    oncelog topic add-partitions orders --total 6      six partitions in total
    """
    if (num is None) == (total is None):
        raise click.UsageError("give exactly one of --num and --total")

    async def work() -> None:
        async with connect_admin(bootstrap) as admin:
            before = len((await admin.describe_topics([name]))[name].partitions)
            wanted = total if total is not None else before + (num or 0)
            await admin.create_partitions({name: wanted})
        result = {"topic": name, "partitions_before": before, "partitions": wanted}
        report(f"Topic {name} has {wanted} partitions now; it had {before}.", result, as_json=as_json)

    run(work())


@click.command(short_help="Delete the oldest records of a topic.")
@click.argument("name")
@click.option("--before-offset", type=Number(0, MAX_INT64), metavar="OFFSET", help="Delete records below this offset.")
@click.option("--before-time", type=time_of, metavar="TIME", help="Delete records older than this time.")
@click.option("--all", "everything", is_flag=True, help="Delete all records.")
@click.option("--partition", "only", type=Number(), multiple=True, help="Only this partition; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing.")
@yes_option
@json_option
@bootstrap_option
def trim(
    name: str,
    before_offset: int | None,
    before_time: int | None,
    everything: bool,
    only: tuple[int, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Delete the oldest records of the topic NAME, by moving the start of its partitions forward.

    TIME is 2026-03-01T12:30 (local time), 2026-03-01T12:30:00Z, 15m, 2h or 7d (that long ago), or milliseconds since
    1970. With a time, each partition then begins at its first record of that time or later.

    \b
    oncelog topic trim orders --before-time 7d --dry-run
    oncelog topic trim orders --before-offset 1200 --partition 0
    oncelog topic trim orders --all --yes
    """
    if (before_offset is not None) + (before_time is not None) + everything != 1:
        raise click.UsageError("give exactly one of --before-offset, --before-time and --all")

    async def work() -> None:
        async with connect_admin(bootstrap) as admin:
            partitions = await _partitions(admin, name, only)
            starts = await admin.list_offsets(dict.fromkeys(partitions, -2))
            ends = await admin.list_offsets(dict.fromkeys(partitions, -1))
            targets = {partition: ends[partition].offset for partition in partitions}
            if before_offset is not None:
                targets = {each: min(before_offset, end) for each, end in targets.items()}
            elif before_time is not None:
                since = await admin.list_offsets(dict.fromkeys(partitions, before_time))
                targets |= {each: first.offset for each, first in since.items() if first.offset >= 0}
            later = {each: offset for each, offset in targets.items() if offset > starts[each].offset}
            if later and not dry_run:
                confirm(f"Delete records of {len(later)} partition(s) of {name}?", yes=yes)
                later = await admin.delete_records(later)
        items = [
            {
                "partition": partition.partition,
                "old_start": starts[partition].offset,
                "new_start": later.get(partition, starts[partition].offset),
                "end": ends[partition].offset,
            }
            for partition in partitions
        ]
        if as_json:
            print_json({"topic": name, "dry_run": dry_run, "partitions": items})
            return
        verb = "would begin" if dry_run else "begin"
        title = f"{name}: {len(later)} of {len(partitions)} partition(s) {verb} later"
        print_items_table(title, (">partition", ">old_start", ">new_start", ">end"), items)

    run(work())


async def _partitions(admin: Admin, name: str, only: tuple[int, ...]) -> list[TopicPartition]:
    from ..client.values import TopicPartition

    count = len((await admin.describe_topics([name]))[name].partitions)
    for partition in only:
        if partition >= count:
            raise click.ClickException(
                f"topic {name} has no partition {partition}: its number of partitions is {count}"
            )
    return [TopicPartition(name, partition) for partition in sorted(set(only)) or range(count)]


CHANGES: Final = (alter, add_partitions, trim)
