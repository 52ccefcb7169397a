"""examples/declare_topics.py: what it would do, what it does, that it does it once, and what it cannot do."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import AdminClient, ConfigResource
from support.broker import BrokerProcess
from support.example_programs import EXAMPLES, WAIT_S, run
from support.reading import make_topic

PROGRAM = str(EXAMPLES / "declare_topics.py")


def test_topics_are_created_and_changed_to_their_declaration_once(broker: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker.address, "orders", 2, {"retention.ms": "1000"})
    changes = [
        "orders: retention.ms set to 2592000000, grown from 2 to 6 partitions",
        "invoices: created with 6 partitions",
        "customers: created with 3 partitions",
    ]
    assert run(broker.address, tmp_path, PROGRAM, "--dry-run") == [f"{change} (dry run)" for change in changes]
    assert run(broker.address, tmp_path, PROGRAM) == changes
    names = ["orders", "invoices", "customers"]
    assert run(broker.address, tmp_path, PROGRAM) == [f"{name}: nothing to do" for name in names]

    admin = AdminClient({"bootstrap.servers": broker.address})
    topics = admin.list_topics(timeout=WAIT_S).topics
    assert [len(topics[name].partitions) for name in names] == [6, 6, 3]
    resource = ConfigResource(ConfigResource.Type.TOPIC, "orders")
    (configs,) = admin.describe_configs([resource]).values()
    assert configs.result(WAIT_S)["retention.ms"].value == "2592000000"


def test_a_topic_that_cannot_be_declared_fails_and_the_others_are_done(broker: BrokerProcess, tmp_path: Path) -> None:
    program = tmp_path / "declare_topics.py"
    text = (EXAMPLES / "declare_topics.py").read_text()
    program.write_text(text.replace('"retention.ms": "-1"', '"retention.ms": "forever"'))
    output = run(broker.address, tmp_path, str(program), code=1)
    assert output[0] == "orders: created with 6 partitions"
    assert output[1].startswith("invoices: ")
    assert "forever" in output[1]
    assert output[2] == "customers: created with 3 partitions"
