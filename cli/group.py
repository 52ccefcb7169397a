"""Define `oncelog group`: list and describe consumer groups, and print their lag.

The commands that change a group are in `group_changes.py`.
"""

from __future__ import annotations

import click

from .bootstrap import bootstrap_option, connect_admin, run
from .group_changes import CHANGES
from .json_output import json_option, print_json
from .tables import Item, print_items, print_items_table


@click.group(short_help="List, describe, reset and delete consumer groups, and drop the claims that fence producers.")
def group() -> None:
    """List and describe consumer groups, change their offsets, and drop producers' claims to partitions (unfence).

    \b
    oncelog group list --lag                          all groups with their lag
    oncelog group lag                                 the lag of all groups, partition by partition
    oncelog group describe billing                    members, and the partitions that each one reads
    oncelog group reset billing --to-time 2h          read the last two hours again
    oncelog group delete-offsets billing --topic orders
    oncelog group delete billing
    oncelog group unfence billing
    """


for change in CHANGES:
    group.add_command(change)


@group.command("list")
@click.option("--lag", "with_lag", is_flag=True, help="Add the total lag of each group, in offsets.")
@json_option
@bootstrap_option
def list_(with_lag: bool, as_json: bool, bootstrap: str) -> None:
    """Print all groups, one per line: name, state, protocol type."""

    async def work() -> None:
        async with connect_admin(bootstrap) as admin:
            groups = sorted(await admin.list_groups(), key=lambda listed: listed.group_id)
            items: list[dict[str, object]] = [
                {"group": each.group_id, "state": each.state, "protocol_type": each.protocol_type} for each in groups
            ]
            if with_lag:
                from .group_lag import lag_of_groups

                lags = await lag_of_groups(admin, [each.group_id for each in groups])
                for item, each in zip(items, groups, strict=True):
                    known = [partition.lag for partition in lags[each.group_id].values() if partition.lag is not None]
                    item["lag"] = sum(known) if known else None
        columns = ["group", "state", "protocol_type", *([">lag"] if with_lag else [])]
        print_items(columns, items, "There are no groups.", as_json=as_json)

    run(work())


@group.command()
@click.argument("names", nargs=-1)
@json_option
@bootstrap_option
def lag(names: tuple[str, ...], as_json: bool, bootstrap: str) -> int:
    """Print the lag of the groups NAMES, or of all groups, one partition per line.

    Columns: group, topic, partition, committed offset, end of the partition, lag. Partitions without a committed offset
    are left out.

    \b
    oncelog group lag
    oncelog group lag billing | sort -t "$(printf '\\t')" -k6 -n
    """

    async def work() -> int:
        from .group_lag import lag_of_groups

        async with connect_admin(bootstrap) as admin:
            groups = list(names) or sorted(each.group_id for each in await admin.list_groups())
            lags = await lag_of_groups(admin, groups)
            if names:
                for name in [name for name in names if not lags[name]]:
                    if (await admin.describe_groups([name]))[name].state == "Dead":
                        raise click.ClickException(absent(name))
        items = [
            {"group": name, "topic": partition.topic, "partition": partition.partition, **lag._asdict()}
            for name, partitions in lags.items()
            for partition, lag in partitions.items()
        ]
        columns = ["group", "topic", ">partition", ">committed", ">end", ">lag"]
        print_items(columns, items, "No group has committed offsets.", as_json=as_json)
        return 0

    return run(work())


@group.command()
@click.argument("name")
@json_option
@bootstrap_option
def describe(name: str, as_json: bool, bootstrap: str) -> None:
    """Show the group NAME: its members, the partitions that each member reads, and their lag.

    The lag of a partition is the number of offsets between the group's committed offset and the end of the partition.
    """

    async def work() -> None:
        from .group_lag import end_offsets, lag_of_groups

        async with connect_admin(bootstrap) as admin:
            described = (await admin.describe_groups([name]))[name]
            lags = (await lag_of_groups(admin, [name]))[name]
            if not lags and described.state == "Dead":
                raise click.ClickException(absent(name))
            readers = {partition: member for member in described.members for partition in member.partitions}
            ends = await end_offsets(admin, readers.keys() - lags.keys())
        items: list[Item] = []
        for partition in sorted({*lags, *readers}):
            known, member = lags.get(partition), readers.get(partition)
            items.append(
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "committed": known and known.committed,
                    "end": known.end if known else ends.get(partition),
                    "lag": known and known.lag,
                    "member": member and member.member_id,
                    "client_id": member and member.client_id,
                    "host": member and member.client_host,
                }
            )
        if as_json:
            members = [
                {
                    "member": member.member_id,
                    "group_instance_id": member.group_instance_id,
                    "client_id": member.client_id,
                    "host": member.client_host,
                }
                for member in described.members
            ]
            print_json(
                {
                    "group": name,
                    "state": described.state,
                    "protocol_type": described.protocol_type,
                    "protocol": described.protocol,
                    "coordinator": described.coordinator,
                    "members": members,
                    "partitions": items,
                }
            )
            return
        title = f"{name}: {described.state}, {len(described.members)} member(s)"
        print_items_table(title, ("topic", ">partition", ">committed", ">end", ">lag", "member"), items)

    run(work())


def absent(name: str) -> str:
    """Return the error message for a group that does not exist."""
    return f"there is no group {name}. `oncelog group list` prints all groups."
