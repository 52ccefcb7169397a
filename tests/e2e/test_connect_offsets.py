"""Where a connector's offsets are kept, and which earlier tasks are fenced. With --kafka on Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
from oncelog import Consumer, Producer

pytest.importorskip("aiohttp", reason="needs the extra: pip install 'oncelog[connect]'")
from oncelog.connect.stores.config_records import TargetState
from oncelog.connect.stores.offset_records import offset_key
from support.broker import BrokerProcess
from support.connect_alone import exactly_once, until, worker

Names = Callable[[str], str]


async def values(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """Return the first committed values of a topic."""
    found: list[bytes | None] = []
    settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    async with Consumer(settings, bootstrap_servers=bootstrap) as consumer, asyncio.timeout(60):
        consumer.assign([(topic, 0)])
        while len(found) < count:
            found += [record.value for record in await consumer.poll(200)]
    return found


@pytest.mark.parametrize("of_connector", [True, False])
async def test_a_connector_that_writes_to_another_cluster_continues_there(
    bootstrap: str, fresh_name: Names, tmp_path: Path, of_connector: bool
) -> None:
    topic, group, source = fresh_name("lines"), fresh_name("alone"), tmp_path / "source.txt"
    source.write_text("a\nb\n")
    with BrokerProcess(tmp_path / "other") as other:
        elsewhere = other.address
        config = {
            "name": "lines", "connector.class": "FileStreamSource", "topic": topic, "file": str(source),
            "value.converter": "StringConverter",
        }  # fmt: skip
        settings = exactly_once(group)
        if of_connector:
            config["producer.override.bootstrap.servers"] = elsewhere
        else:
            settings["producer.bootstrap.servers"] = elsewhere
        for lines, position in (([b"a", b"b"], 4), ([b"a", b"b", b"c"], 6)):
            wanted = {"offsets": [{"partition": {"filename": str(source)}, "offset": {"position": position}}]}
            async with worker(bootstrap, **settings) as herder:
                await herder.put_connector("lines", config, None, replace=True)
                await until(partial(herder.offsets, "lines"), partial(eq, wanted))
                assert await values(elsewhere, topic, len(lines)) == lines
            with source.open("a") as file:
                file.write("c\n")


async def test_a_task_whose_clients_are_in_several_clusters_fails(
    bootstrap: str, fresh_name: Names, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path / "other") as other:
        config = {
            "name": "beats", "connector.class": "HeartbeatSource", "topic": fresh_name("beats"),
            "producer.override.bootstrap.servers": other.address, "consumer.override.bootstrap.servers": bootstrap,
        }  # fmt: skip
        async with worker(bootstrap, **exactly_once(fresh_name("alone"))) as herder:
            await herder.put_connector("beats", config, None, replace=True)
            status = await until(lambda: herder.connector_status("beats"), lambda it: it["connector"].get("trace"))
            assert "is not in the cluster of its producer" in status["connector"]["trace"]


async def test_tasks_that_an_older_worker_still_runs_are_fenced_even_without_a_successor(
    bootstrap: str, fresh_name: Names
) -> None:
    topic, group = fresh_name("beats"), fresh_name("alone")
    config = {"name": "beats", "connector.class": "HeartbeatSource", "topic": topic, "interval.ms": "1"}
    async with worker(bootstrap, **exactly_once(group)) as old, worker(bootstrap, **exactly_once(group)) as new:
        await old.put_connector("beats", {**config, "tasks.max": "3"}, None, replace=True)
        await until(lambda: old.offsets("beats"), lambda known: len(known["offsets"]) == 3)
        await new.put_connector("beats", {**config, "tasks.max": "1"}, None, replace=True)
        await until(
            lambda: old.connector_status("beats"),
            lambda known: [task["state"] for task in known["tasks"]] == ["FAILED"] * 3,
        )
        assert [task["state"] for task in (await new.connector_status("beats"))["tasks"]] != ["FAILED"]


async def test_tasks_that_an_older_worker_still_runs_are_fenced_before_offsets_are_reset(
    bootstrap: str, fresh_name: Names
) -> None:
    group = fresh_name("alone")
    config = {"name": "beats", "connector.class": "HeartbeatSource", "topic": fresh_name("beats"), "interval.ms": "1"}
    config["tasks.max"] = "2"
    async with worker(bootstrap, **exactly_once(group)) as old, worker(bootstrap, **exactly_once(group)) as new:
        await old.put_connector("beats", config, None, replace=True)
        await until(lambda: old.offsets("beats"), lambda known: len(known["offsets"]) == 2)
        await new.put_connector("beats", config, TargetState.STOPPED, replace=True)
        await new.reset_offsets("beats")
        await until(
            lambda: old.connector_status("beats"),
            lambda known: [task["state"] for task in known["tasks"]] == ["FAILED"] * 2,
        )
        assert await new.offsets("beats") == {"offsets": []}


async def test_tasks_whose_fencing_fails_are_failed_and_run_when_it_succeeds(bootstrap: str, fresh_name: Names) -> None:
    def tasks(state: str) -> Callable[[Any], bool]:
        return lambda known: [task["state"] for task in known["tasks"]] == [state] * 2

    config = {"name": "beats", "connector.class": "HeartbeatSource", "topic": fresh_name("beats"), "interval.ms": "1"}
    config["tasks.max"] = "2"
    broken = {"admin.override.security.protocol": "SSL", "admin.override.default.api.timeout.ms": "200"}
    settings = {**exactly_once(fresh_name("alone")), "task_restart_backoff_ms": "1", "task_restart_max_attempts": "1"}
    async with worker(bootstrap, **settings) as herder:
        await herder.put_connector("beats", {**config, **broken}, None, replace=True)
        known = await until(lambda: herder.connector_status("beats"), tasks("FAILED"))
        assert "could not fence the earlier tasks of connector beats" in known["tasks"][0]["trace"]
        await herder.put_connector("beats", config, None, replace=True)
        await until(lambda: herder.connector_status("beats"), tasks("RUNNING"))


@pytest.mark.parametrize("transactional", [True, False])
async def test_a_copy_that_a_worker_writes_after_a_reset_does_not_undo_it(
    bootstrap: str, fresh_name: Names, tmp_path: Path, transactional: bool
) -> None:
    topic, group, source = fresh_name("lines"), fresh_name("alone"), tmp_path / "source.txt"
    source.write_text("a\nb\n")
    config = {
        "name": "lines", "connector.class": "FileStreamSource", "topic": topic, "file": str(source),
        "value.converter": "StringConverter", "offsets.storage.topic": fresh_name("own"),
    }  # fmt: skip
    settings = exactly_once(group)
    if not transactional:
        settings["exactly_once_source_support"] = "disabled"
    async with worker(bootstrap, **settings, offset_flush_interval_ms="100") as herder:
        await herder.put_connector("lines", config, None, replace=True)
        await until(partial(herder.offsets, "lines"), lambda known: known["offsets"])
        await herder.set_target_state("lines", TargetState.STOPPED)
        await herder.reset_offsets("lines")
    async with Producer(bootstrap_servers=bootstrap) as suspended:
        key = offset_key("lines", {"filename": str(source)})
        await (await suspended.enqueue(settings["offset_storage_topic"], b'{"position":4}', key=key))
    async with worker(bootstrap, **settings) as herder:
        await herder.put_connector("lines", config, TargetState.STOPPED, replace=True)
        assert await herder.offsets("lines") == {"offsets": []}
        await herder.set_target_state("lines", TargetState.STARTED)
        assert await values(bootstrap, topic, 4) == [b"a", b"b"] * 2


@pytest.mark.parametrize("own", [{}, {"offsets.storage.topic": "own"}], ids=["worker's topic", "own topic"])
async def test_offsets_belong_to_the_name_of_the_connector_even_if_its_settings_have_another(
    bootstrap: str, fresh_name: Names, tmp_path: Path, own: dict[str, str]
) -> None:
    config = {"name": "lines", "connector.class": "FileStreamSource", "topic": fresh_name("lines"), "file": "/none"}
    own = {name: fresh_name(value) for name, value in own.items()}
    async with worker(bootstrap, **exactly_once(fresh_name("alone"))) as herder:
        await herder.put_connector("lines", {**config, **own}, TargetState.STOPPED, replace=True)
        await herder.patch_connector("lines", {"name": "other"})
        await herder.alter_offsets("lines", [({"filename": "/none"}, {"position": 2})])
        known = {"partition": {"filename": "/none"}, "offset": {"position": 2}}
        assert await herder.offsets("lines") == {"offsets": [known]}
        await herder.reset_offsets("lines")
        assert await herder.offsets("lines") == {"offsets": []}
