"""A data directory of every release so far opens, and what was in it is still there."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from support.broker import BrokerProcess
from support.kill_workload import read_all
from support.release_fixture import (
    COMMITTED,
    COMMITTED_OFFSET,
    COMPACTED,
    FIXTURES,
    GROUP,
    PLAIN,
    TIMEOUT_S,
    TOPIC,
    TRANSACTIONAL_ID,
)

RELEASES = sorted(path.name for path in FIXTURES.glob("data-directory-*.tar.gz"))
pytestmark = pytest.mark.oncelog_only(reason="reads data directories of oncelog's releases")


def test_there_is_a_directory_to_open() -> None:
    assert RELEASES


@pytest.mark.parametrize("name", RELEASES)
def test_everything_is_still_there(tmp_path: Path, name: str) -> None:
    with tarfile.open(FIXTURES / name) as packed:
        packed.extractall(tmp_path, filter="data")
    with BrokerProcess(tmp_path) as broker:
        client: dict[str, Any] = {"bootstrap.servers": broker.address}
        # Its producer's next life ends the transaction that was open, so a transactional reader comes to the end.
        producer = Producer({**client, "transactional.id": TRANSACTIONAL_ID})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(TOPIC, b"new")
        producer.commit_transaction(TIMEOUT_S)
        values = [value for _, value in read_all(broker.address, TOPIC, 1, "read_committed")[0]]
        assert values == [*PLAIN, *COMMITTED, b"new"]

        consumer = Consumer({**client, "group.id": GROUP, "enable.auto.commit": False})
        (committed,) = consumer.committed([TopicPartition(TOPIC, 0)], TIMEOUT_S)
        consumer.close()
        assert committed.offset == COMMITTED_OFFSET

        resource = ConfigResource(ResourceType.TOPIC, COMPACTED)
        admin = AdminClient(client)
        settings = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        assert settings["cleanup.policy"].value == "compact"
