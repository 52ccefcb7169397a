"""The cluster's own task ends when it is told to, whatever it is doing."""

from __future__ import annotations

import asyncio

import pytest
from oncelog.client.cluster import Cluster
from oncelog.client.config import AdminConfig


@pytest.mark.parametrize("steps", range(6))
async def test_closing_meets_a_wish_for_a_refresh(steps: int) -> None:
    """At whatever moment between the wish and the refresh."""
    cluster = Cluster(AdminConfig.of(bootstrap_servers="127.0.0.1:1"))
    maintenance = asyncio.create_task(cluster._maintain())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    cluster.request_refresh()
    for _ in range(steps):
        await asyncio.sleep(0)
    maintenance.cancel()
    done, _ = await asyncio.wait([maintenance], timeout=10)
    assert done, "it goes on"
    await cluster.close()
