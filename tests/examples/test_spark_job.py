"""examples/spark_job.py as users run it, in a driver of its own: it sums what is in the topic, and ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from oncelog.pipeline.requirements import RequirementError, java_problem, require_spark
from support.broker import BrokerProcess
from support.example_programs import EXAMPLES, fill, run
from support.reading import make_topic, read_topic

try:
    require_spark()
    problem = java_problem()
except RequirementError as error:
    problem = str(error)

pytestmark = [pytest.mark.skipif(problem is not None, reason=str(problem)), pytest.mark.timeout(600)]

ORDERS = [
    {"customer": "alice", "cents": 100},
    {"customer": "bob", "cents": 20},
    {"customer": "alice", "cents": 3},
]


@pytest.mark.slow
def test_the_job_sums_the_orders_of_each_customer_and_ends(broker: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker.address, "orders", 3)
    fill(broker.address, "orders", ORDERS)
    run(broker.address, tmp_path, str(EXAMPLES / "spark_job.py"), "checkpoint")
    written = [message for messages in read_topic(broker.address, "spending").values() for message in messages]
    assert {message.key(): json.loads(message.value() or b"") for message in written} == {
        b"alice": {"customer": "alice", "cents": 103, "orders": 2},
        b"bob": {"customer": "bob", "cents": 20, "orders": 1},
    }
    assert len(written) == 2
