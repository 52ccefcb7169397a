"""`oncelog topic` and `oncelog cluster`, as users run them. On our broker and, with --kafka, on Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from oncelog import Producer
from support.command_line import Run, command_line, done, done_json, failed

Names = Callable[[str], str]
DAY_MS = 86_400_000


@pytest.fixture
def oncelog(bootstrap: str) -> Run:
    return command_line(bootstrap)


@pytest.fixture
async def topic(bootstrap: str, fresh_name: Names, oncelog: Run) -> str:
    """A topic with records of 2001-09-09 at offsets 0 to 4 and of 2017-07-14 from 5 to 9 in partition 0 of two."""
    name = fresh_name("topic")
    done(oncelog("topic", "create", name, "--partitions", "2", "--config", "retention.ms=-1"))
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(10):
            timestamp = 1_000_000_000_000 if number < 5 else 1_500_000_000_000
            await producer.send(name, b"%d" % number, partition=0, timestamp_ms=timestamp)
    return name


def own_configs(oncelog: Run, topic: str) -> dict[str, str]:
    configs = done_json(oncelog("topic", "describe", topic, "--json"))["configs"]
    return {each["name"]: each["value"] for each in configs if each["source"] == "DYNAMIC_TOPIC_CONFIG"}


def test_alter_sets_and_removes_configs_and_leaves_the_others(oncelog: Run, fresh_name: Names) -> None:
    topic = fresh_name("topic")
    done(oncelog("topic", "create", topic, "--config", "retention.ms=1000", "--config", "segment.bytes=2000000"))
    changed = oncelog("topic", "alter", topic, "--set", "cleanup.policy=compact", "--unset", "retention.ms")
    assert done(changed) == f"Altered topic {topic}.\n"
    assert own_configs(oncelog, topic) == {"cleanup.policy": "compact", "segment.bytes": "2000000"}


def test_configs_that_are_not_set_cannot_be_removed(oncelog: Run, fresh_name: Names) -> None:
    topic = fresh_name("topic")
    done(oncelog("topic", "create", topic, "--config", "segment.bytes=2000000"))
    for target, alter in ((f"topic {topic}", ("topic", "alter", topic)), ("all brokers", ("cluster", "alter"))):
        unset = oncelog(*alter, "--unset", "retention.ms" if topic in alter else "max.connections")
        assert done(unset) == f"Nothing to change in {target}.\n"
        assert "was not set" in unset.stderr
        failed(oncelog(*alter, "--unset", "no.such"), "no.such", "has no config of this name")
    some = oncelog("topic", "alter", topic, "--unset", "retention.ms", "--unset", "segment.bytes")
    assert (done(some), some.stderr) == (f"Altered topic {topic}.\n", "retention.ms was not set.\n")
    assert own_configs(oncelog, topic) == {}
    failed(oncelog("topic", "alter", topic, "--set", "retention.ms=1", "--unset", "no.such"), "no.such")
    assert own_configs(oncelog, topic) == {}


def test_alter_changes_nothing_in_a_dry_run_nor_when_it_fails(oncelog: Run, fresh_name: Names) -> None:
    topic = fresh_name("topic")
    done(oncelog("topic", "create", topic))
    done(oncelog("topic", "alter", topic, "--set", "retention.ms=1000", "--dry-run"))
    failed(oncelog("topic", "alter", topic, "--set", "retention.ms=soon"), "INVALID_CONFIG", "retention.ms")
    failed(oncelog("topic", "alter", fresh_name("missing"), "--set", "retention.ms=1"), "UNKNOWN_TOPIC_OR_PARTITION")
    assert own_configs(oncelog, topic) == {}
    for wrong in ([], ["--set", "retention.ms"], ["--set", "retention.ms=1", "--unset", "retention.ms"]):
        failed(oncelog("topic", "alter", topic, *wrong), code=2)


def test_describe_shows_the_configs_that_were_set_and_on_request_all(oncelog: Run, fresh_name: Names) -> None:
    topic = fresh_name("topic")
    done(oncelog("topic", "create", topic))
    assert "config" not in done(oncelog("topic", "describe", topic))
    done(oncelog("topic", "alter", topic, "--set", f"retention.ms={DAY_MS}"))
    described = done(oncelog("topic", "describe", topic)).splitlines()
    assert described[-3:] == [
        f"{topic}: 1 config(s)",
        "name\tvalue\tsource",
        f"retention.ms\t{DAY_MS}\tDYNAMIC_TOPIC_CONFIG",
    ]
    assert "segment.bytes\t" in done(oncelog("topic", "describe", topic, "--configs"))


def test_partitions_are_added_by_number_or_up_to_a_total(oncelog: Run, topic: str) -> None:
    assert done_json(oncelog("topic", "add-partitions", topic, "--num", "2", "--json")) == {
        "topic": topic,
        "partitions_before": 2,
        "partitions": 4,
    }
    assert "has 5 partitions now; it had 4" in done(oncelog("topic", "add-partitions", topic, "--total", "5"))
    failed(oncelog("topic", "add-partitions", topic, "--total", "3"), "INVALID_PARTITIONS")
    for wrong in ([], ["--num", "1", "--total", "9"], ["--num", "0"]):
        failed(oncelog("topic", "add-partitions", topic, *wrong), code=2)


@pytest.mark.parametrize(
    ("before", "start"),
    [
        (["--before-offset", "3"], 3),
        (["--before-offset", "100"], 10),
        (["--before-time", "2010-01-01"], 5),
        (["--before-time", "1000000000000"], 0),
        (["--before-time", "2040-01-01T00:00:00Z"], 10),
        (["--all"], 10),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_trim_moves_the_start_of_a_partition(oncelog: Run, topic: str, before: list[str], start: int) -> None:
    assert done_json(oncelog("topic", "trim", topic, *before, "--json"))["partitions"] == [
        {"partition": 0, "old_start": 0, "new_start": start, "end": 10},
        {"partition": 1, "old_start": 0, "new_start": 0, "end": 0},
    ]
    read = done(oncelog("consume", topic, "--from-beginning", "--until-end"))
    assert read.split() == [str(number) for number in range(start, 10)]


def test_dry_run_of_a_trim_deletes_nothing(oncelog: Run, topic: str) -> None:
    planned = done(oncelog("topic", "trim", topic, "--all", "--dry-run"))
    assert [line.split("\t") for line in planned.splitlines()] == [
        [f"{topic}: 1 of 2 partition(s) would begin later"],
        ["partition", "old start", "new start", "end"],
        ["0", "0", "10", "10"],
        ["1", "0", "0", "0"],
    ]
    assert done_json(oncelog("topic", "describe", topic, "--json"))["partitions"][0]["start"] == 0


def test_trim_leaves_other_partitions_alone(oncelog: Run, topic: str) -> None:
    title, _, row = done(oncelog("topic", "trim", topic, "--all", "--partition", "1")).splitlines()
    assert (title, row) == (f"{topic}: 0 of 1 partition(s) begin later", "1\t0\t0\t0")
    assert done_json(oncelog("topic", "describe", topic, "--json"))["partitions"][0]["start"] == 0
    failed(oncelog("topic", "trim", topic, "--all", "--partition", "2"), "has no partition 2")
    for wrong in ([], ["--all", "--before-offset", "1"], ["--before-time", "yesterday"]):
        failed(oncelog("topic", "trim", topic, *wrong), code=2)


def test_results_of_topics_are_printed_as_json(oncelog: Run, fresh_name: Names) -> None:
    topic, missing = fresh_name("topic"), fresh_name("missing")
    assert done_json(oncelog("topic", "create", topic, "--json")) == {"topic": topic, "created": True}
    again = oncelog("topic", "create", topic, "--if-not-exists", "--json")
    assert done_json(again) == {"topic": topic, "created": False}
    assert {"topic": topic} in done_json(oncelog("topic", "list", "--json"))
    deleted = oncelog("topic", "delete", topic, missing, "--if-exists", "--json")
    assert done_json(deleted) == [{"topic": topic, "deleted": True}, {"topic": missing, "deleted": False}]
    failed(oncelog("topic", "delete", missing, "--json"), "UNKNOWN_TOPIC_OR_PARTITION")


def test_the_cluster_and_its_configs_are_described(oncelog: Run, bootstrap: str) -> None:
    described = done_json(oncelog("cluster", "describe", "--json"))
    (broker,) = described["brokers"]
    assert f"{broker['host']}:{broker['port']}" == bootstrap
    assert broker["controller"] is True
    title, columns, row = done(oncelog("cluster", "describe")).splitlines()
    assert title == f"cluster {described['cluster_id']}: 1 broker(s)"
    assert columns.split("\t") == ["id", "host", "port", "rack", "controller"]
    assert row.split("\t") == [str(broker["id"]), broker["host"], str(broker["port"]), "-", "yes"]

    set_configs = {line.split("\t")[0] for line in done(oncelog("cluster", "config")).splitlines()}
    assert "listeners" in set_configs
    assert "log.segment.bytes" not in set_configs
    (line,) = done(oncelog("cluster", "config", "log.segment.bytes")).splitlines()
    assert line.split("\t") == ["log.segment.bytes", "1073741824", "DEFAULT_CONFIG"]
    every = {each["name"] for each in done_json(oncelog("cluster", "config", "--all", "--json"))}
    assert set_configs < every
    failed(oncelog("cluster", "config", "no.such.config"), "no config no.such.config", "--all")
    failed(oncelog("cluster", "config", "--broker", "77"), "broker 77 does not exist", str(broker["id"]))


def test_configs_of_running_brokers_are_set_and_removed(oncelog: Run) -> None:
    def shown() -> list[list[str]]:
        lines = done(oncelog("cluster", "config", "log.roll.ms", "max.connections.per.ip")).splitlines()
        return [line.split("\t")[1:3] for line in lines]

    unset = [["-", "DEFAULT_CONFIG"], ["2147483647", "DEFAULT_CONFIG"]]
    assert shown() == unset
    per_ip = "max.connections.per.ip=5000"
    assert "accepts these configs of all brokers" in done(oncelog("cluster", "alter", "--set", per_ip, "--dry-run"))
    assert shown() == unset
    assert done(oncelog("cluster", "alter", "--set", per_ip)) == "Altered all brokers.\n"
    roll = done_json(oncelog("cluster", "alter", "--broker", "1", "--set", "log.roll.ms=99000", "--json"))
    assert roll == {"broker": 1, "changes": {"log.roll.ms": "99000"}, "dry_run": False}
    expected = [["99000", "DYNAMIC_BROKER_CONFIG"], ["5000", "DYNAMIC_DEFAULT_BROKER_CONFIG"]]
    deadline = time.monotonic() + 20
    while shown() != expected:  # Apache Kafka puts changes in effect after its answer
        assert time.monotonic() < deadline, shown()
    done(oncelog("cluster", "alter", "--unset", "max.connections.per.ip"))
    done(oncelog("cluster", "alter", "--broker", "1", "--unset", "log.roll.ms"))
    while shown() != unset:
        assert time.monotonic() < deadline, shown()
    failed(oncelog("cluster", "alter", "--set", "num.partitions=3"), "num.partitions")
    failed(oncelog("cluster", "alter", "--broker", "7", "--set", per_ip), "7")
    failed(oncelog("cluster", "alter"), "nothing to change", code=2)


def test_an_address_that_is_none_is_wrong_usage(oncelog: Run) -> None:
    failed(oncelog("topic", "list", "--bootstrap", "nonsense"), "bootstrap.servers", "nonsense", code=2)
