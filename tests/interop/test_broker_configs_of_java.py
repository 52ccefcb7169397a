"""Kafka's own tool changes the settings of our broker while it runs, and shows them (KIP-226)."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.apache_kafka import java
from support.broker import BrokerProcess

pytestmark = pytest.mark.oncelog_only(reason="starts a broker")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kafka_configs_changes_and_shows_settings_of_the_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:

        def configs(*arguments: str) -> str:
            words = ("--bootstrap-server", broker.address, "--entity-type", "brokers", *arguments)
            done = java("kafka.admin.ConfigCommand", *words)
            assert done.returncode == 0, done.stdout + done.stderr
            return str(done.stdout)

        configs("--entity-default", "--alter", "--add-config", "log.retention.ms=7000,max.connection.creation.rate=900")
        configs("--entity-name", "1", "--alter", "--add-config", "log.cleanup.policy=[compact,delete]")
        shown = configs("--entity-default", "--describe")
        assert "log.retention.ms=7000 sensitive=false" in shown
        assert "DYNAMIC_DEFAULT_BROKER_CONFIG:max.connection.creation.rate=900" in shown
        shown = configs("--entity-name", "1", "--describe")
        assert "log.cleanup.policy=compact,delete" in shown
        assert "DYNAMIC_BROKER_CONFIG:log.cleanup.policy=compact,delete" in shown
        configs("--entity-default", "--alter", "--delete-config", "log.retention.ms")
        shown = configs("--entity-name", "1", "--describe", "--all")
        assert "log.retention.ms=null" in shown
        assert "max.connection.creation.rate=900" in shown
        refused = java(
            "kafka.admin.ConfigCommand",
            *("--bootstrap-server", broker.address, "--entity-type", "brokers", "--entity-name", "1"),
            *("--alter", "--add-config", "num.partitions=3"),
        )
        assert refused.returncode == 1
        assert "num.partitions cannot be changed while the broker is running" in refused.stdout + refused.stderr
