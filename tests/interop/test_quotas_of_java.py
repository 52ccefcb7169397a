"""Kafka's own tools set quotas on our broker and list them, and its producer is throttled and loses nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from oncelog import Admin, Consumer, NewTopic, Quota
from support.apache_kafka import java
from support.broker import BrokerProcess

pytestmark = pytest.mark.oncelog_only(reason="starts a broker")


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_kafka_configs_sets_quotas_that_hold_for_kafkas_producer(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:

        async def configs(*arguments: str) -> str:
            words = ("--bootstrap-server", broker.address, *arguments)
            done = await asyncio.to_thread(java, "kafka.admin.ConfigCommand", *words)
            assert done.returncode == 0, done.stderr
            return str(done.stdout)

        users = ("--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-default")
        await configs("--alter", "--add-config", "producer_byte_rate=1024,request_percentage=12.5", *users)
        clients = ("--entity-type", "clients", "--entity-name", "perf-producer-client")
        await configs("--alter", "--add-config", "producer_byte_rate=500000", *clients)
        addresses = ("--entity-type", "ips", "--entity-name", "10.0.0.7")
        await configs("--alter", "--add-config", "connection_creation_rate=5", *addresses)
        shown = await configs("--describe", *users)
        assert "producer_byte_rate=1024.0" in shown
        assert "request_percentage=12.5" in shown
        assert "connection_creation_rate=5.0" in await configs("--describe", *addresses)
        await configs("--alter", "--delete-config", "producer_byte_rate", *users)
        async with Admin(bootstrap_servers=broker.address) as admin:
            assert await admin.list_quotas({"user": "alice", "client-id": None}) == [
                Quota({"client-id": None, "user": "alice"}, {"request_percentage": 12.5})
            ]
            await admin.create_topics([NewTopic("t", 1)])
        produced = await asyncio.to_thread(
            java,
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", "t", "--num-records", "8000", "--record-size", "1000", "--throughput", "-1"),
            *("--producer-props", f"bootstrap.servers={broker.address}", "--print-metrics"),
        )
        assert produced.returncode == 0, produced.stderr
        throttled = [line for line in produced.stdout.splitlines() if "produce-throttle-time-max" in line]
        assert float(throttled[0].split(":")[-1]) > 0
        async with Consumer(
            bootstrap_servers=broker.address, group_id="g", auto_offset_reset="earliest", topics=["t"]
        ) as consumer:
            count = 0
            async with asyncio.timeout(60):
                while count < 8000:
                    count += len(await consumer.poll())
        assert count == 8000
