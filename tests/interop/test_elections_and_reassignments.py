"""Kafka's tools for leaders and replicas work on the only broker: nothing needs an election, nothing can be moved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.apache_kafka import java
from support.broker import BrokerProcess

pytestmark = [
    pytest.mark.oncelog_only(reason="starts a broker"),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

TOOLS = "org.apache.kafka.tools"


def test_tools_of_kafka_elect_leaders_and_move_replicas(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}))
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2]}]}))
    with BrokerProcess(tmp_path / "data") as broker:

        def tool(name: str, *words: str, fails: bool = False) -> str:
            done = java(f"{TOOLS}.{name}", "--bootstrap-server", broker.address, *words)
            assert bool(done.returncode) == fails, done.stdout + done.stderr
            return str(done.stdout + done.stderr)

        def elect(*words: str, fails: bool = False) -> str:
            return tool("LeaderElectionCommand", *words, fails=fails)

        def reassign(*words: str, fails: bool = False) -> str:
            return tool("reassign.ReassignPartitionsCommand", *words, fails=fails)

        tool("TopicCommand", "--create", "--topic", "t", "--partitions", "2")
        elect("--election-type", "preferred", "--all-topic-partitions")
        one = ("--election-type", "unclean", "--partition", "1", "--topic")
        assert "Valid replica already elected for partitions t-1" in elect(*one, "t")
        assert "UnknownTopicOrPartition" in elect(*one, "none", fails=True)
        assert "Successfully started" in reassign("--reassignment-json-file", str(plan), "--execute")
        assert "is completed" in reassign("--reassignment-json-file", str(plan), "--verify")
        assert "No partition reassignments found" in reassign("--list")
        reassign("--reassignment-json-file", str(elsewhere), "--execute", fails=True)
