"""`oncelog group`, as users run it. On our broker and, with --kafka, on Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from oncelog import Admin, Consumer, Producer, TopicPartition
from support.command_line import Run, command_line, done, done_json, failed

Names = Callable[[str], str]


@pytest.fixture
def oncelog(bootstrap: str) -> Run:
    return command_line(bootstrap)


@pytest.fixture
async def topic(bootstrap: str, fresh_name: Names, oncelog: Run) -> str:
    """A topic of two partitions: 10 records in the first, of them five of 2017; 4 in the second. Both begin at 1."""
    name = fresh_name("topic")
    async with Admin(bootstrap_servers=bootstrap) as admin, Producer(bootstrap_servers=bootstrap) as producer:
        await admin.create_topic(name, 2, configs={"retention.ms": "-1"})
        for number in range(14):
            timestamp = 1_500_000_000_000 if 5 <= number < 10 else 1_000_000_000_000
            await producer.send(name, b"%d" % number, partition=int(number >= 10), timestamp_ms=timestamp)
        await admin.delete_records({TopicPartition(name, 0): 1, TopicPartition(name, 1): 1})
    return name


@pytest.fixture
async def group(bootstrap: str, fresh_name: Names, topic: str) -> str:
    """A group that has committed offset 6 in partition 0 and 4, the end, in partition 1."""
    name = fresh_name("group")
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.alter_group_offsets(name, {TopicPartition(topic, 0): 6, TopicPartition(topic, 1): 4})
    return name


async def committed(bootstrap: str, group: str) -> list[int]:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        return [position.offset for _, position in sorted((await admin.group_offsets(group)).items())]


def test_lag_of_groups(oncelog: Run, topic: str, group: str, fresh_name: Names) -> None:
    rows = [[group, topic, "0", "6", "10", "4"], [group, topic, "1", "4", "4", "0"]]
    assert [line.split("\t") for line in done(oncelog("group", "lag", group)).splitlines()] == rows
    every = [line.split("\t") for line in done(oncelog("group", "lag")).splitlines()]
    assert [row for row in every if row[0] == group] == rows
    listed = [line.split("\t") for line in done(oncelog("group", "list", "--lag")).splitlines()]
    assert [row for row in listed if row[0] == group] == [[group, "Empty", "-", "4"]]
    failed(oncelog("group", "lag", fresh_name("nobody")), "there is no group", "oncelog group list")


def test_lag_of_a_topic_that_was_deleted_is_not_known(oncelog: Run, topic: str, group: str) -> None:
    done(oncelog("topic", "delete", topic))
    lags = done_json(oncelog("group", "list", "--lag", "--json"))
    assert [each["lag"] for each in lags if each["group"] == group] in ([], [None]), "some brokers delete the offsets"


@pytest.mark.parametrize(
    ("target", "offsets"),
    [
        (["--to-earliest"], [1, 1]),
        (["--to-latest"], [10, 4]),
        (["--to-offset", "3"], [3, 3]),
        (["--to-offset", "7"], [7, 4]),
        (["--to-time", "2010-01-01"], [5, 4]),
        (["--to-datetime", "2001-01-01T00:00:00Z"], [1, 1]),
        (["--shift-by", "-2"], [4, 2]),
        (["--shift-by", "-100"], [1, 1]),
        (["--shift-by", "3"], [9, 4]),
        (["--to-earliest", "--topic", "TOPIC:1"], [6, 1]),
    ],
    ids=lambda given: "-".join(map(str, given)),
)
async def test_reset_moves_committed_offsets(
    oncelog: Run, bootstrap: str, topic: str, group: str, target: list[str], offsets: list[int]
) -> None:
    target = [each.replace("TOPIC", topic) for each in target]
    moved = done_json(oncelog("group", "reset", group, *target, "--execute", "--json"))["partitions"]
    assert await committed(bootstrap, group) == offsets
    before = {0: 6, 1: 4}
    assert [(each["committed"], each["new_offset"]) for each in moved] == [
        (before[each["partition"]], offsets[each["partition"]]) for each in moved
    ]


async def test_dry_run_of_a_reset_shows_new_offsets_and_sets_none(
    oncelog: Run, bootstrap: str, topic: str, group: str
) -> None:
    planned = done(oncelog("group", "reset", group, "--to-earliest", "--dry-run"))
    assert [line.split("\t") for line in planned.splitlines()] == [
        [f"{group}: would be reset in 2 partition(s)"],
        ["topic", "partition", "committed", "new offset", "lag"],
        [topic, "0", "6", "1", "9"],
        [topic, "1", "4", "1", "3"],
    ]
    assert await committed(bootstrap, group) == [6, 4]


async def test_a_script_resets_nothing_without_execute(oncelog: Run, bootstrap: str, group: str) -> None:
    result = oncelog("group", "reset", group, "--to-earliest")
    assert f"{group}: would be reset in 2 partition(s)" in done(result)
    assert result.stderr == f"Nothing was changed: add --execute to reset the offsets of group {group}.\n"
    assert done_json(oncelog("group", "reset", group, "--to-earliest", "--json"))["dry_run"]
    assert await committed(bootstrap, group) == [6, 4]


@pytest.mark.parametrize(
    ("command", "ours"),
    [
        (["group", "reset", "--group", "billing", "--to-earliest"], "an argument"),
        (["group", "reset", "billing", "--all-topics", "--to-earliest"], "without --topic"),
        (["topic", "alter", "orders", "--add-config", "retention.ms=1"], "--set NAME=VALUE"),
        (["topic", "list", "--bootstrap-server", "127.0.0.1:9092"], "--bootstrap HOST:PORT"),
    ],
)
def test_an_option_of_kafkas_tools_is_answered_with_ours(oncelog: Run, command: list[str], ours: str) -> None:
    failed(oncelog(*command), "It is an option of Kafka's tools. In oncelog, use ", ours, code=2)


async def test_reset_says_which_offsets_are_outside_of_a_partition(oncelog: Run, topic: str, group: str) -> None:
    result = oncelog("group", "reset", group, "--to-offset", "7", "--yes")
    assert f"{topic}-1 has no offset 7: the nearest offset is 4." in result.stderr
    assert f"{topic}-0" not in result.stderr
    assert done(result).endswith(f"Reset 2 offset(s) of group {group}.\n")


async def test_reset_sets_first_offsets_of_a_group_where_topics_are_named(
    oncelog: Run, bootstrap: str, topic: str, fresh_name: Names
) -> None:
    group = fresh_name("new")
    failed(oncelog("group", "reset", group, "--to-earliest"), "has no committed offsets", "--topic")
    failed(oncelog("group", "reset", group, "--shift-by", "1", "--topic", topic), "has no committed offsets")
    failed(oncelog("group", "reset", group, "--to-earliest", "--topic", f"{topic}:2"), "has no partition 2")
    assert await committed(bootstrap, group) == []
    done(oncelog("group", "reset", group, "--to-latest", "--topic", topic, "--execute"))
    assert await committed(bootstrap, group) == [10, 4]
    for wrong in (
        [],
        ["--to-latest", "--dry-run", "--execute"],
        ["--to-earliest", "--to-latest"],
        ["--to-time", "soon"],
        ["--to-latest", "--topic", "a:b"],
    ):
        failed(oncelog("group", "reset", group, *wrong), code=2)


async def test_group_with_members_is_neither_reset_nor_deleted(
    oncelog: Run, bootstrap: str, topic: str, group: str
) -> None:
    settings = {"bootstrap.servers": bootstrap, "enable.auto.commit": False}
    async with Consumer(settings, group_id=group, topics=[topic]) as consumer:
        while not consumer.assignment():
            await consumer.poll(1000)
        failed(
            oncelog("group", "reset", group, "--to-earliest"),
            f"group {group} is Stable with 1 member(s): its offsets cannot be reset. Stop its consumers first.",
        )
        failed(
            oncelog("group", "delete", group),
            f"group {group} cannot be deleted because it has members. Stop its consumers first.",
        )
        failed(oncelog("group", "delete-offsets", group, "--topic", topic), "is subscribed to", "Stop the group's")
        described = done_json(oncelog("group", "describe", group, "--json"))
        (member,) = described["members"]
        assert described["state"] == "Stable"
        assert [each["member"] for each in described["partitions"]] == [member["member"]] * 2
        assert [each["lag"] for each in described["partitions"]] == [4, 0]
    assert await committed(bootstrap, group) == [6, 4]


async def test_offsets_of_some_partitions_are_deleted(oncelog: Run, bootstrap: str, topic: str, group: str) -> None:
    failed(oncelog("group", "delete-offsets", group, "--topic", f"{topic}:7"), "has no committed offsets")
    failed(oncelog("group", "delete-offsets", group), code=2)
    assert done(oncelog("group", "delete-offsets", group, "--topic", f"{topic}:0,7")) == (
        f"Deleted 1 offset(s) of group {group}.\n"
    )
    assert await committed(bootstrap, group) == [4]
    deleted = done_json(oncelog("group", "delete-offsets", group, "--topic", topic, "--json"))
    assert deleted == {"group": group, "deleted": [{"topic": topic, "partition": 1, "committed": 4}]}
    assert await committed(bootstrap, group) == []


def test_groups_are_deleted_with_their_offsets(oncelog: Run, group: str, fresh_name: Names) -> None:
    missing = fresh_name("missing")
    result = oncelog("group", "delete", group, missing)
    assert (result.returncode, result.stdout) == (1, f"Deleted group {group}.\n")
    assert "GROUP_ID_NOT_FOUND" in result.stderr
    assert missing in result.stderr
    gone = oncelog("group", "delete", group, "--if-exists", "--json")
    assert done_json(gone) == [{"group": group, "deleted": False}]
    assert group not in {each["group"] for each in done_json(oncelog("group", "list", "--json"))}
