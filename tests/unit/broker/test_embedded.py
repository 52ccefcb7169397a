"""`oncelog.Broker`: what programs may use of a broker in their process."""

from __future__ import annotations

from pathlib import Path

from oncelog import Broker

PUBLIC = {
    "address",
    "cluster_id",
    "config",
    "data_dir",
    "failure",
    "host",
    "is_open",
    "node_id",
    "port",
    "start",
    "stop",
    "wait_failed",
}


async def test_the_parts_of_a_broker_are_not_shown(tmp_path: Path) -> None:
    async with Broker(tmp_path, node_id=7, logging_level="error") as broker:
        assert {name for name in dir(broker) if not name.startswith("_")} == PUBLIC
        assert broker.address == f"{broker.host}:{broker.port}"
        assert (broker.node_id, broker.data_dir, broker.failure) == (7, str(tmp_path), None)
        assert broker.config.node_id == 7
        first = broker.cluster_id
    async with Broker(tmp_path, logging_level="error", node_id=7) as broker:
        assert broker.cluster_id == first
