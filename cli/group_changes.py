"""Define the `oncelog group` commands that change a group: reset, delete, delete-offsets and unfence."""

from __future__ import annotations

import sys
from typing import Final

import click

from .bootstrap import bootstrap_option, connect_admin, run
from .confirmation import confirm, yes_option
from .json_output import json_option, print_json, report
from .parameters import MAX_INT64, Number, TopicSelection, time_of, topic_selection
from .tables import Item, print_items_table

NO_MEMBERS: Final = ("Empty", "Dead")
"""States in which a group has no members, so that a command may change its offsets."""


@click.command(short_help="Set the committed offsets of a group.")
@click.argument("name")
@click.option("--to-earliest", is_flag=True, help="Move to the first record that is still stored.")
@click.option("--to-latest", is_flag=True, help="Move to the end, so that only new records are read.")
@click.option("--to-offset", type=Number(0, MAX_INT64), metavar="OFFSET", help="Move to this offset.")
@click.option(
    "--to-time",
    "--to-datetime",
    "to_time",
    type=time_of,
    metavar="TIME",
    help="Move to the first record of this time or later.",
)
@click.option("--shift-by", type=int, metavar="N", help="Move N offsets forward, or backward if N is negative.")
@click.option(
    "--topic", "topics", type=topic_selection, multiple=True, metavar="TOPIC[:PARTITION,...]",
    help="Only this topic, or these partitions of it; may be repeated.  [default: all with committed offsets]",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show the new offsets, and change nothing.")
@click.option(
    "--execute",
    "--yes",
    "execute",
    is_flag=True,
    help="Do not ask for confirmation. Required when stdin is not a terminal.",
)
@json_option
@bootstrap_option
def reset(
    name: str,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_time: int | None,
    shift_by: int | None,
    topics: tuple[TopicSelection, ...],
    dry_run: bool,
    execute: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Set the committed offsets of the group NAME. Its consumers then continue from these offsets.

    The group must have no members.

    The command shows the new offsets and asks for confirmation. If stdin is not a terminal, it changes nothing without
    --execute, like Kafka's tool.

    TIME is 2026-03-01T12:30 (local time), 2026-03-01T12:30:00Z, 15m, 2h or 7d (that long ago), or milliseconds since
    1970. An offset outside of a partition is replaced by the nearest offset inside it: the partition's start or end.

    \b
    oncelog group reset billing --to-earliest --dry-run
    oncelog group reset billing --to-time 2h --topic orders
    oncelog group reset billing --to-offset 42 --topic orders:0
    oncelog group reset billing --shift-by -100 --execute
    """
    from .group_reset import Target, plan, selected_partitions, without_offsets

    target = Target(to_earliest, to_latest, to_offset, to_time, shift_by)
    if target.count != 1:
        raise click.UsageError("give exactly one of --to-earliest, --to-latest, --to-offset, --to-time and --shift-by")
    if dry_run and execute:
        raise click.UsageError("--dry-run and --execute cannot be combined")
    only_shown = dry_run or not (execute or sys.stdin.isatty())

    async def work() -> None:
        async with connect_admin(bootstrap) as admin:
            described = (await admin.describe_groups([name]))[name]
            if described.state not in NO_MEMBERS:
                raise click.ClickException(
                    f"group {name} is {described.state} with {len(described.members)} member(s): its offsets cannot be"
                    " reset. Stop its consumers first."
                )
            committed = {each: position.offset for each, position in (await admin.group_offsets(name)).items()}
            partitions = await selected_partitions(admin, committed, topics)
            moves = await plan(admin, committed, partitions, target)
            if not moves:
                raise click.ClickException(without_offsets(name, committed, topics, target))
            items: list[Item] = [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "committed": move.committed,
                    "new_offset": move.new_offset,
                    "lag": move.end - move.new_offset,
                }
                for each, move in moves.items()
            ]
            if not as_json:
                title = f"{name}: {'would be' if only_shown else 'to be'} reset in {len(moves)} partition(s)"
                print_items_table(title, ("topic", ">partition", ">committed", ">new_offset", ">lag"), items)
            for each, move in moves.items():
                if move.clamped:
                    click.echo(
                        f"{each} has no offset {move.wanted}: the nearest offset is {move.new_offset}.", err=True
                    )
            if not only_shown:
                confirm(f"Reset {len(moves)} offset(s) of group {name}?", yes=execute)
                await admin.alter_group_offsets(name, {each: move.new_offset for each, move in moves.items()})
        if as_json:
            print_json({"group": name, "dry_run": only_shown, "partitions": items})
        elif not only_shown:
            click.echo(f"Reset {len(moves)} offset(s) of group {name}.")
        if only_shown and not dry_run:
            click.echo(f"Nothing was changed: add --execute to reset the offsets of group {name}.", err=True)

    run(work())


@click.command(short_help="Delete groups and their committed offsets.")
@click.argument("names", nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="Succeed if a group does not exist.")
@yes_option
@json_option
@bootstrap_option
def delete(names: tuple[str, ...], if_exists: bool, yes: bool, as_json: bool, bootstrap: str) -> int:
    """Delete the groups NAMES and their committed offsets. The broker refuses to delete a group that has members.

    \b
    oncelog group delete billing
    oncelog group delete old-1 old-2 --yes --if-exists
    """
    confirm(f"Delete {', '.join(names)} with all committed offsets?", yes=yes)

    async def work() -> int:
        from ..protocol.errors import ErrorCode, KafkaError
        from .outcomes import print_outcomes

        async with connect_admin(bootstrap) as admin:
            outcomes = await admin.delete_groups(names, raise_errors=False)
        for name, error in outcomes.items():
            if error is not None and error.code is ErrorCode.NON_EMPTY_GROUP:
                problem = f"group {name} cannot be deleted because it has members. Stop its consumers first."
                outcomes[name] = KafkaError(error.code, problem)
        return print_outcomes(
            outcomes,
            "group",
            done="Deleted group {}.",
            absent="There is no group {}.",
            absent_code=ErrorCode.GROUP_ID_NOT_FOUND if if_exists else None,
            as_json=as_json,
        )

    return run(work())


@click.command("delete-offsets", short_help="Delete a group's committed offsets for some topics.")
@click.argument("name")
@click.option(
    "--topic", "topics", type=topic_selection, multiple=True, required=True, metavar="TOPIC[:PARTITION,...]",
    help="This topic, or these partitions of it; may be repeated.",
)  # fmt: skip
@yes_option
@json_option
@bootstrap_option
def delete_offsets(name: str, topics: tuple[TopicSelection, ...], yes: bool, as_json: bool, bootstrap: str) -> None:
    """Delete the committed offsets of the group NAME for some topics.

    No member of the group may be subscribed to these topics.

    \b
    oncelog group delete-offsets billing --topic orders
    oncelog group delete-offsets billing --topic orders:0,1 --topic returns
    """

    async def work() -> None:
        from ..protocol.errors import ErrorCode

        async with connect_admin(bootstrap) as admin:
            committed = await admin.group_offsets(name)
            wanted = [
                each
                for each in sorted(committed)
                if any(
                    each.topic == topic and each.partition in (partitions or (each.partition,))
                    for topic, partitions in topics
                )
            ]
            if not wanted:
                raise click.ClickException(f"group {name} has no committed offsets in these partitions.")
            confirm(f"Delete {len(wanted)} offset(s) of group {name}?", yes=yes)
            outcomes = await admin.delete_group_offsets(name, wanted, raise_errors=False)
        for each, error in outcomes.items():
            if error is not None and error.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
                raise click.ClickException(
                    f"a member of group {name} is subscribed to {each.topic}, so the group's offsets of this topic"
                    " cannot be deleted. Stop the group's consumers first."
                )
            if error is not None:
                raise error
        result = {
            "group": name,
            "deleted": [
                {"topic": each.topic, "partition": each.partition, "committed": committed[each].offset}
                for each in wanted
            ],
        }
        report(f"Deleted {len(wanted)} offset(s) of group {name}.", result, as_json=as_json)

    run(work())


@click.command(short_help="Drop the claims that fence producers of a group.")
@click.argument("name")
@yes_option
@json_option
@bootstrap_option
def unfence(name: str, yes: bool, as_json: bool, bootstrap: str) -> None:
    """Drop the claims of the group NAME, so that any producer may commit the group's offsets in a transaction again.

    With group-aware transactions, a producer claims the input partitions that the group has assigned to its consumer.
    From then on, producers with an older generation, or with none, cannot commit offsets of these partitions. They
    receive CONCURRENT_PRODUCER_COMMIT, or PRODUCER_FENCED if they are not oncelog clients. A claim ends, for
    example, when the group's last member leaves, when the group is deleted, or when the committed offset of the
    partition is deleted. Drop claims by hand when clients that send no generation must take over a group that still
    has claims. Stop the group-aware producers first: without claims, two producers can commit offsets of the same
    partition.
    """

    async def work() -> None:
        async with connect_admin(bootstrap) as admin:
            claims = await admin.group_claims(name)
            if not as_json:
                for claim in claims:
                    click.echo(
                        f"{claim.partition} is claimed by {claim.transactional_id}"
                        f" (producer id {claim.producer_id}, generation {claim.generation_id})"
                    )
            if claims:
                confirm(f"Drop {len(claims)} claim(s) of group {name}?", yes=yes)
                claims = await admin.unfence_group(name)
        result = {
            "group": name,
            "dropped": [
                {
                    "topic": claim.partition.topic,
                    "partition": claim.partition.partition,
                    "transactional_id": claim.transactional_id,
                    "producer_id": claim.producer_id,
                    "generation_id": claim.generation_id,
                }
                for claim in claims
            ],
        }
        sentence = f"Dropped {len(claims)} claim(s) of group {name}." if claims else f"Group {name} has no claims."
        report(sentence, result, as_json=as_json)

    run(work())


CHANGES: Final = (reset, delete, delete_offsets, unfence)
