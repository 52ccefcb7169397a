"""`oncelog group`: list and describe consumer groups."""

from __future__ import annotations

import click

from .bootstrap import PATIENCE_MS, bootstrap_option, run


@click.group(short_help="List and describe consumer groups.")
def group() -> None:
    """List and describe consumer groups.

    \b
    oncelog group list
    oncelog group describe billing
    """


@group.command("list")
@bootstrap_option
def list_(bootstrap: str) -> None:
    """Print all groups, one per line: name, state, protocol type."""

    async def work() -> None:
        from ..client.admin import Admin

        async with Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=PATIENCE_MS) as admin:
            for each in sorted(await admin.list_groups(), key=lambda listed: listed.group_id):
                click.echo(f"{each.group_id}\t{each.state or '-'}\t{each.protocol_type or '-'}")

    run(work())


@group.command()
@click.argument("name")
@bootstrap_option
def describe(name: str, bootstrap: str) -> int:
    """Show the group NAME: its members, what each one reads, and how far behind it is.

    Lag is the number of offsets between what the group has committed and the end of the partition.
    """

    async def work() -> int:
        from rich.console import Console
        from rich.table import Table

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
            table = Table(title=f"{name}: {described.state}, {len(described.members)} member(s)")
            for column, justify in (
                ("topic", "left"),
                ("partition", "right"),
                ("committed", "right"),
                ("end", "right"),
            ):
                table.add_column(column, justify="left" if justify == "left" else "right")
            table.add_column("lag", justify="right")
            table.add_column("member")
            for partition in sorted({*committed, *readers}):
                position = committed.get(partition)
                end = ends[partition].offset if partition in ends else None
                lag = None if position is None or end is None else end - position.offset
                table.add_row(
                    partition.topic,
                    str(partition.partition),
                    _number(None if position is None else position.offset),
                    _number(end),
                    _number(lag),
                    readers[partition].member_id if partition in readers else "-",
                )
            Console().print(table)
            return 0

    return run(work())


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
