"""Kafka's tools for groups list, describe, reset and delete groups and their offsets."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from support.apache_kafka import java
from support.broker import BrokerProcess

pytestmark = [
    pytest.mark.oncelog_only(reason="starts a broker"),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

CONSUMER_GROUPS = "consumer.group.ConsumerGroupCommand"
RECORDS = 30


def group_of(broker: BrokerProcess, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )


def test_tools_of_kafka_manage_groups_and_offsets(tmp_path: Path) -> None:
    def tool(name: str, *words: str) -> str:
        done = java(f"org.apache.kafka.tools.{name}", "--bootstrap-server", broker.address, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout + done.stderr)

    def groups(*words: str) -> list[list[str]]:
        """Run the tool for consumer groups. Return the words of each line."""
        return [line.split() for line in tool(CONSUMER_GROUPS, *words).splitlines()]

    with BrokerProcess(tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.address})
        for number in range(RECORDS):
            producer.produce("t", b"%d" % number)
        producer.flush()
        with closing(group_of(broker, "simple")) as simple:
            simple.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
        live = group_of(
            broker, "live", **{"group.instance.id": "i1", "partition.assignment.strategy": "cooperative-sticky"}
        )
        with closing(live):
            live.subscribe(["t"])
            deadline = time.monotonic() + 60
            while live.poll(0.1) is None:
                assert time.monotonic() < deadline
            live.commit(offsets=[TopicPartition("t", 0, 20)], asynchronous=False)

            states = groups("--list", "--state")
            assert ["simple", "Empty"] in states
            assert ["live", "Stable"] in states
            assert ["live", "Classic"] in groups("--list", "--type")
            described = groups("--describe", "--all-groups")
            assert ["simple", "t", "0", "7", "30", "23"] in [row[:6] for row in described]
            assert ["live", "t", "0", "20", "30", "10"] in [row[:6] for row in described]
            (state,) = [row for row in groups("--describe", "--group", "live", "--state") if row[:1] == ["live"]]
            assert state[-3:] == ["cooperative-sticky", "Stable", "1"]
            (member,) = [row for row in groups("--describe", "--group", "live", "--members") if row[:1] == ["live"]]
            assert (member[2], member[-1]) == ("i1", "1")
            assert "not found" in tool(CONSUMER_GROUPS, "--describe", "--group", "none")
            assert ["live", "Classic", "consumer"] in [
                row.split() for row in tool("GroupsCommand", "--list").split("\n")
            ]

            topic = ("--topic", "t")
            refused = tool(CONSUMER_GROUPS, "--delete-offsets", "--group", "live", *topic)
            assert "GroupSubscribedToTopicException" in refused
            assert "GroupNotEmptyException" in tool(CONSUMER_GROUPS, "--delete", "--group", "live")
            reset = ("--reset-offsets", "--to-earliest", "--execute")
            refused = tool(CONSUMER_GROUPS, *reset, "--group", "live", *topic)
            assert "the current state is Stable" in refused
        assert ["t", "0", "Successful"] in groups("--delete-offsets", "--group", "simple", "--topic", "t:0")
        assert ["simple", "t", "0", "0"] in groups(*reset, "--group", "simple", *topic)
        deleted = tool(CONSUMER_GROUPS, "--delete", "--group", "simple")
        assert "Deletion of requested consumer groups ('simple') was successful" in deleted
        assert "simple" not in [row[0] for row in groups("--list") if row]
