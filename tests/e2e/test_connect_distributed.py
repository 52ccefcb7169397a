"""Distributed connect workers: forwarding, rebalances, reconfiguration, fencing, kills. With --kafka on Apache Kafka.

Where nothing is killed, the workers run in the process of the test; they speak over TCP all the same.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from oncelog import Admin, Consumer, NewTopic

pytest.importorskip("aiohttp", reason="needs the extra: pip install 'oncelog[connect]'")
from oncelog.protocol.messages.produce import ProduceRequest
from support.connect_workers import (
    all_committed,
    assert_exactly_once,
    beats,
    committed,
    each_has,
    group,
    owners,
    states,
)
from support.proxy import FaultProxy

Names = Callable[[str], str]


def has(wanted: Mapping[Any, int], values: Mapping[Any, list[Any]]) -> bool:
    return all(len(values.get(key, ())) >= count for key, count in wanted.items())


@pytest.mark.parametrize("protocol", ["sessioned", "compatible", "eager"])
async def test_a_connector_created_through_a_follower_runs_on_both_workers(
    bootstrap: str, fresh_name: Names, tmp_path: Path, protocol: str
) -> None:
    topic, name = fresh_name("beats"), fresh_name("group")
    async with group(bootstrap, name, tmp_path, {"connect.protocol": protocol}) as workers:
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
        assert (await rest("PUT", "/connectors/beats/fence"))[0] == (400 if protocol == "sessioned" else 204)


async def test_the_config_topic_has_the_variables_of_settings_and_no_values(
    bootstrap: str, fresh_name: Names, tmp_path: Path
) -> None:
    topic, name = fresh_name("beats"), fresh_name("group")
    (tmp_path / "values").write_text(f"topic={topic}\n")
    providers = {"config.providers": "file", "config.providers.file.class": "FileConfigProvider"}
    variable = f"${{file:{tmp_path / 'values'}:topic}}"
    async with group(bootstrap, name, tmp_path, providers) as workers:
        await workers.add()
        rest = workers.rest(await workers.add())
        assert (await rest.settled("PUT", "/connectors/beats/config", beats(variable)))[0] == 201
        await rest.until("/connectors/beats/status", states("RUNNING", "RUNNING", "RUNNING"))
        assert_exactly_once(await committed(bootstrap, topic, each_has(20, 2)))
        tasks = (await rest.settled("GET", "/connectors/beats/tasks"))[1]
        assert [task["config"]["topic"] for task in tasks] == [variable] * 2
    async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(f"{name}-config", 0)])
        end = (await consumer.end_offsets([(f"{name}-config", 0)])).popitem()[1]
        stored = b""
        while await consumer.position((f"{name}-config", 0)) < end:
            stored += b"".join(record.value or b"" for record in await consumer.poll(200))
    assert variable.encode() in stored
    assert topic.encode() not in stored


async def test_a_kill_of_the_leader_leaves_no_gap_and_no_duplicate(
    bootstrap: str, fresh_name: Names, tmp_path: Path
) -> None:
    topic, name = fresh_name("beats"), fresh_name("group")
    async with group(bootstrap, name, tmp_path) as workers:
        leader, follower = await asyncio.gather(workers.add_process(), workers.add_process())
        config = beats(topic, 3, transaction_boundary="interval", transaction_boundary_interval_ms="20")
        assert (await workers.rest(leader).settled("PUT", "/connectors/beats/config", config))[0] == 201
        seen = await committed(bootstrap, topic, each_has(30, 3))
        await leader.kill()
        await workers.rest(follower).until("/connectors/beats/status", all_run_on(follower.worker_id, 3))
        await committed(bootstrap, topic, each_has(max(map(len, seen.values())) + 30, 3))
        assert await follower.end() == 0
    assert_exactly_once(await all_committed(bootstrap, topic))


def all_run_on(worker_id: str, tasks: int) -> Callable[[Any], bool]:
    running = states("RUNNING", *["RUNNING"] * tasks)
    return lambda known: running(known) and set(owners(known).values()) == {worker_id}


async def test_reconfiguration_fences_the_earlier_tasks_and_goes_on_behind_them(
    bootstrap: str, fresh_name: Names, tmp_path: Path
) -> None:
    topic, name = fresh_name("beats"), fresh_name("group")
    async with group(bootstrap, name, tmp_path) as workers:
        await workers.add()
        rest = workers.rest(await workers.add())
        seen: dict[Any, list[Any]] = {}
        for tasks in (2, 3, 1, 2):
            status, _ = await rest.settled("PUT", "/connectors/beats/config", beats(topic, tasks))
            assert status == (200 if seen else 201)
            await rest.until("/connectors/beats/status", states("RUNNING", *["RUNNING"] * tasks))
            wanted = {number: len(seen.get(number, ())) + 20 for number in range(tasks)}
            seen = await committed(bootstrap, topic, partial(has, wanted))
            assert_exactly_once(seen)
        known = (await rest.settled("GET", "/connectors/beats"))[1]
        assert [task["task"] for task in known["tasks"]] == [0, 1]


async def test_pause_stop_offsets_restart_and_delete_through_a_follower(
    bootstrap: str, fresh_name: Names, tmp_path: Path
) -> None:
    topic, name = fresh_name("beats"), fresh_name("group")
    async with group(bootstrap, name, tmp_path) as workers:
        leader, follower = await workers.add(), await workers.add()
        rest = workers.rest(follower)
        body = {"name": "beats", "config": beats(topic, 2, limit="5"), "initial_state": "STOPPED"}
        assert (await rest.settled("POST", "/connectors", body))[0] == 201
        await rest.until("/connectors/beats/status", states("STOPPED"))
        wanted = {"offsets": [{"partition": {"task": 1}, "offset": {"count": 2}}]}
        assert (await rest.settled("PATCH", "/connectors/beats/offsets", wanted))[0] == 200
        assert await rest.settled("GET", "/connectors/beats/offsets") == (200, wanted)
        assert await rest("PUT", "/connectors/beats/resume") == (202, None)
        await rest.until("/connectors/beats/status", states("RUNNING", "RUNNING", "RUNNING"))
        seen = await committed(bootstrap, topic, lambda values: [len(values.get(n, ())) for n in (0, 1)] == [5, 3])
        assert seen == {0: [0, 1, 2, 3, 4], 1: [2, 3, 4]}
        assert await rest("PUT", "/connectors/beats/pause") == (202, None)
        await rest.until("/connectors/beats/status", states("PAUSED", "PAUSED", "PAUSED"))
        assert await rest("PUT", "/connectors/beats/resume") == (202, None)
        await rest.until("/connectors/beats/status", states("RUNNING", "RUNNING", "RUNNING"))
        _, metrics = await rest("GET", "/metrics")
        assert "kafka_connect_worker_rebalance_rebalancing 0" in metrics
        assert f'leader_name{{leader_name="{leader.url}/"}} 1' in metrics
        status, answer = await rest.settled("POST", "/connectors/beats/restart?includeTasks=true")
        assert (status, answer["connector"]["state"]) == (202, "RESTARTING")
        await rest.until("/connectors/beats/status", states("RUNNING", "RUNNING", "RUNNING"))
        for number in (0, 1):
            assert await rest.settled("POST", f"/connectors/beats/tasks/{number}/restart") == (204, None)
        assert await rest.settled("POST", "/connectors/beats/restart") == (204, None)
        assert (await rest.settled("DELETE", "/connectors/beats/offsets"))[0] == 400
        assert await rest.settled("PUT", "/connectors/beats/stop") == (204, None)
        await rest.until("/connectors/beats/status", states("STOPPED"))
        assert (await rest.settled("DELETE", "/connectors/beats/offsets"))[0] == 200
        assert await rest.settled("GET", "/connectors/beats/offsets") == (200, {"offsets": []})
        assert await rest("GET", "/connectors/beats/topics") == (200, {"beats": {"topics": [topic]}})
        assert await rest.settled("DELETE", "/connectors/beats") == (204, None)
        await workers.rest(leader).until("/connectors/beats/status", lambda known: known.get("error_code") == 404)
        assert await rest.settled("GET", "/connectors") == (200, [])
        await rest.until("/connectors/beats/topics", lambda known: known == {"beats": {"topics": []}})


@pytest.mark.parametrize(
    ("settings", "code", "text"),
    [
        ({"group.id": None}, 2, 'Missing required configuration "group.id"'),
        ({"connect.protocol": "newest"}, 2, "Invalid value newest for configuration connect.protocol"),
        ({"status.storage.partitions": "5", "config.storage.topic": "two"}, 1, "but found 2 partitions"),
    ],
    ids=["without group", "wrong value", "config topic with two partitions"],
)
async def test_a_worker_that_cannot_start_says_why(
    bootstrap: str, fresh_name: Names, tmp_path: Path, settings: dict[str, str | None], code: int, text: str
) -> None:
    if settings.get("config.storage.topic"):
        settings = {**settings, "config.storage.topic": fresh_name("two")}
        async with Admin(bootstrap_servers=bootstrap) as admin:
            compacted = {"cleanup.policy": "compact"}
            await admin.create_topics([NewTopic(str(settings["config.storage.topic"]), 2, 1, configs=compacted)])
    async with group(bootstrap, fresh_name("group"), tmp_path) as workers:
        file = tmp_path / "worker.toml"
        given = {**workers.settings, **settings}
        file.write_text("".join(f'"{name}" = "{value}"\n' for name, value in given.items() if value is not None))
        command = [sys.executable, "-m", "oncelog.cli", "connect", "distributed", str(file)]
        ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert text in ended.stderr


async def test_a_restart_without_exactly_once_keeps_the_last_offsets_of_an_own_topic(
    bootstrap: str, fresh_name: Names, tmp_path: Path
) -> None:
    """The tasks write their last offsets when they end, before the worker stops reading their topic."""
    topic, name = fresh_name("beats"), fresh_name("group")
    settings = {"exactly.once.source.support": "disabled", "offset.flush.interval.ms": "60000"}
    async with FaultProxy(bootstrap) as proxy, group(proxy.address, name, tmp_path, settings) as workers:
        rest = workers.rest(await workers.add())
        config = beats(topic, 2, offsets_storage_topic=fresh_name("own"))
        assert (await rest.settled("PUT", "/connectors/beats/config", config))[0] == 201
        await committed(bootstrap, topic, each_has(30, 2))
        proxy.hold(ProduceRequest, 0.2, times=5)
        assert (await rest.settled("POST", "/connectors/beats/restart?includeTasks=true"))[0] == 202
        await rest.until("/connectors/beats/status", states("RUNNING", "RUNNING", "RUNNING"))
        seen = await all_committed(bootstrap, topic)
        await committed(bootstrap, topic, each_has(max(map(len, seen.values())) + 10, 2))
    assert_exactly_once(await all_committed(bootstrap, topic))
