"""examples/graceful_consumer.py: SIGTERM in the middle of its work loses nothing and repeats nothing."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient
from support.broker import BrokerProcess
from support.example_programs import EXAMPLES, WAIT_S, Program, fill
from support.reading import committed_offset, make_topic

PROGRAM = str(EXAMPLES / "graceful_consumer.py")
RECORDS = 1000
PARTITIONS = 3


def committed(broker: BrokerProcess) -> int:
    offsets = [committed_offset(broker.address, "delivery", "parcels", number) for number in range(PARTITIONS)]
    return sum(offset for offset in offsets if offset > 0)


def test_sigterm_loses_nothing_repeats_nothing_and_leaves_the_group(broker: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker.address, "parcels", PARTITIONS)
    fill(broker.address, "parcels", map(str, range(RECORDS)))
    with Program(broker.address, tmp_path, PROGRAM) as first:
        for _ in range(10):
            first.line()
        assert first.terminate() == 0, first.output
    assert 10 <= len(first.output) < RECORDS
    assert committed(broker) == len(first.output)
    admin = AdminClient({"bootstrap.servers": broker.address})
    group = admin.describe_consumer_groups(["delivery"])["delivery"].result(WAIT_S)
    assert group.state is ConsumerGroupState.EMPTY

    with Program(broker.address, tmp_path, PROGRAM) as second:
        while len(first.output) + len(second.output) < RECORDS:
            second.line()
        assert second.terminate() == 0, second.output
    assert sorted(first.output + second.output) == sorted(map(str, range(RECORDS)))
    assert committed(broker) == RECORDS


def test_sigterm_ends_a_poll_that_waits(broker: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker.address, "parcels")
    fill(broker.address, "parcels", ["the only one"])
    with Program(broker.address, tmp_path, PROGRAM) as program:
        assert program.line() == "the only one"
        assert program.terminate() == 0  # and not only after the poll's 60 seconds
    assert committed_offset(broker.address, "delivery", "parcels", 0) == 1
