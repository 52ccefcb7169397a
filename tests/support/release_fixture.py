"""Write a small data directory of the current release, which every later release must be able to open.

`python -m support.release_fixture 0.1.0` (in tests/) writes `fixtures/data-directory-0.1.0.tar.gz`. It is written once
per release and then never changed. Its content is defined here, for the writer and for the test that reads it.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.broker import BrokerProcess

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
TIMEOUT_S = 60.0
TOPIC, COMPACTED, GROUP, TRANSACTIONAL_ID = "kept", "kept-compacted", "kept-group", "kept-id"
PLAIN = [f"plain-{n}".encode() for n in range(10)]
COMMITTED = [f"committed-{n}".encode() for n in range(5)]
COMMITTED_OFFSET = 7


def make(release: str) -> Path:
    """Write the fixture: plain records, a committed, an aborted and an open transaction, a group, topic configs."""
    target = FIXTURES / f"data-directory-{release}.tar.gz"
    with tempfile.TemporaryDirectory() as directory:
        with BrokerProcess(Path(directory)) as broker:
            client: dict[str, str | int | float | bool] = {"bootstrap.servers": broker.address}
            admin = AdminClient(client)
            topics = [NewTopic(TOPIC, 1, 1), NewTopic(COMPACTED, 2, 1, config={"cleanup.policy": "compact"})]
            for created in admin.create_topics(topics).values():
                created.result(TIMEOUT_S)
            plain = Producer(client)
            for value in PLAIN:
                plain.produce(TOPIC, value, key=b"k")
            assert plain.flush(TIMEOUT_S) == 0
            transactional = Producer({**client, "transactional.id": TRANSACTIONAL_ID})
            transactional.init_transactions(TIMEOUT_S)
            for outcome in ("commit", "abort", "leave open"):
                transactional.begin_transaction()
                for value in COMMITTED if outcome == "commit" else [b"never seen"]:
                    transactional.produce(TOPIC, value)
                assert transactional.flush(TIMEOUT_S) == 0
                if outcome == "commit":
                    transactional.commit_transaction(TIMEOUT_S)
                elif outcome == "abort":
                    transactional.abort_transaction(TIMEOUT_S)
            consumer = Consumer({**client, "group.id": GROUP, "enable.auto.commit": False})
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, COMMITTED_OFFSET)], asynchronous=False)
            consumer.close()
            broker.kill9()  # as a crash leaves it: no clean shutdown marker, a transaction open
        with tarfile.open(target, "w:gz") as packed:
            packed.add(Path(directory) / "data", "data")
    return target


if __name__ == "__main__":
    print(make(sys.argv[1]))
