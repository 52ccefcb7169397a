"""`oncelog group`: list and describe consumer groups, and clear what fences their producers."""

from __future__ import annotations

import sys

import click

from .bootstrap import PATIENCE_MS, bootstrap_option, run
from .tables import print_list, print_table


@click.group(short_help="List, describe and unfence consumer groups.")
def group() -> None:
    """List and describe consumer groups, and clear what fences their producers.

    \b
    oncelog group list
    oncelog group describe billing
    oncelog group unfence billing
    """


@group.command("list")
@bootstrap_option
def list_(bootstrap: str) -> None:
    """Print all groups, one per line: name, state, protocol type."""

    async def work() -> None:
        from ..client.admin import Admin

        async with Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=PATIENCE_MS) as admin:
            groups = sorted(await admin.list_groups(), key=lambda listed: listed.group_id)
            rows = [[each.group_id, each.state or "-", each.protocol_type or "-"] for each in groups]
            print_list(["group", "state", "protocol type"], rows, "There are no groups.")

    run(work())


@group.command()
@click.argument("name")
@bootstrap_option
def describe(name: str, bootstrap: str) -> int:
    """Show the group NAME: its members, what each one reads, and how far behind it is.

    Lag is the number of offsets between what the group has committed and the end of the partition.
    """

    async def work() -> int:
        from ..client.admin import Admin

        async with Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=PATIENCE_MS) as admin:
            described = (await admin.describe_groups([name]))[name]
            committed = await admin.group_offsets(name)
            ends = await admin.list_offsets(dict.fromkeys(committed, -1)) if committed else {}
            readers = {partition: member for member in described.members for partition in member.partitions}
            if not committed and described.state == "Dead":
                click.echo(
                    f"oncelog group describe: there is no group {name}. `oncelog group list` shows all.", err=True
                )
                return 1
            rows = []
            for partition in sorted({*committed, *readers}):
                position = committed.get(partition)
                end = ends[partition].offset if partition in ends else None
                lag = None if position is None or end is None else end - position.offset
                rows.append(
                    [
                        partition.topic,
                        str(partition.partition),
                        _number(None if position is None else position.offset),
                        _number(end),
                        _number(lag),
                        readers[partition].member_id if partition in readers else "-",
                    ]
                )
            title = f"{name}: {described.state}, {len(described.members)} member(s)"
            print_table(title, ("topic", ">partition", ">committed", ">end", ">lag", "member"), rows)
            return 0

    return run(work())


@group.command(short_help="Let any producer commit the group's offsets again.")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask; nobody is asked either when stdin is not a terminal.")
@bootstrap_option
def unfence(name: str, yes: bool, bootstrap: str) -> int:
    """Drop the claims of the group NAME: any producer may commit its offsets in a transaction again.

    A producer that was initialised for the group's assignment (group-aware transactions) claims its input partitions.
    From then on no producer of an older generation, or of none, can commit offsets on them: it gets
    CONCURRENT_PRODUCER_COMMIT, and a stock client PRODUCER_FENCED. Claims go by themselves with the
    last member, the group or its offsets. Clear them by hand when clients without generations are to take over a
    group whose claims are still there. Stop the group-aware producers first: without claims nothing keeps two
    producers from committing on one partition.
    """

    async def work() -> int:
        from ..client.admin import Admin

        async with Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=PATIENCE_MS) as admin:
            claims = await admin.group_claims(name)
            if not claims:
                click.echo(f"Group {name} has no claims.")
                return 0
            for claim in claims:
                click.echo(
                    f"{claim.partition} is claimed by {claim.transactional_id}"
                    f" (producer id {claim.producer_id}, generation {claim.generation_id})"
                )
            if not yes and sys.stdin.isatty():
                click.confirm(f"Drop {len(claims)} claim(s) of group {name}?", abort=True)
            click.echo(f"Dropped {len(await admin.unfence_group(name))} claim(s) of group {name}.")
            return 0

    return run(work())


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
