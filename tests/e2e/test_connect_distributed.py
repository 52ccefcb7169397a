"""Distributed connect workers as processes, over TCP: forwarding, rebalances, kills, fencing. With --kafka on Kafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs the extra: pip install 'oncelog[connect]'")
from support.connect_workers import assert_exactly_once, committed, group, owners, states

Names = Callable[[str], str]


def beats(topic: str, tasks: int = 2, **settings: str) -> dict[str, str]:
    """The settings of a connector that counts in each task."""
    return {
        "connector.class": "HeartbeatSource",
        "topic": topic,
        "tasks.max": str(tasks),
        "interval.ms": "2",
        "batch.size": "3",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }


def each_has(count: int, tasks: int) -> Callable[[dict[Any, list[Any]]], bool]:
    return lambda values: len(values) == tasks and all(len(counts) >= count for counts in values.values())


async def test_a_connector_created_through_a_follower_runs_on_both_workers(
    bootstrap: str, fresh_name: Names, tmp_path: Path
) -> None:
    topic, name = fresh_name("beats"), fresh_name("group")
    async with group(bootstrap, name, tmp_path) as workers:
        leader, follower = await workers.add(), await workers.add()
        rest, at_leader = workers.rest(follower), workers.rest(leader)
        status, answer = await rest.settled("POST", "/connectors", {"name": "beats", "config": beats(topic)})
        assert (status, answer["name"], answer["type"]) == (201, "beats", "source")
        known = await rest.until("/connectors/beats/status", states("RUNNING", "RUNNING", "RUNNING"))
        assert set(owners(known).values()) == {leader.worker_id, follower.worker_id}
        assert_exactly_once(await committed(bootstrap, topic, each_has(20, 2)))
        for each in (rest, at_leader):
            assert (await each.settled("GET", "/connectors"))[1] == ["beats"]
            assert len((await each.settled("GET", "/connectors/beats/tasks"))[1]) == 2
