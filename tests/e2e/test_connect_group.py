"""Workers as members of their group. On our broker and, with --kafka, on Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from oncelog.connect.group.protocol import ConnectProtocol
from oncelog.connect.group.work import Work, configured, union
from oncelog.connect.herder.group_member import Rebalance, WorkerGroupMember
from oncelog.connect.settings.distributed import DistributedConfig
from oncelog.connect.stores.config_store import ConfigStore
from oncelog.connect.stores.memory_log import MemoryLog

Names = Callable[[str], str]
TIMEOUT_S = 60


async def config_store() -> ConfigStore:
    """Two connectors, with three tasks and one."""
    store = ConfigStore(MemoryLog(), lambda change: None)
    await store.start()
    for connector, tasks in (("files", 3), ("http", 1)):
        await store.put_connector(connector, {"name": connector})
        await store.put_task_configs(connector, [{"task": str(number)} for number in range(tasks)])
    return store


class RunningWorker:
    """A member that follows its assignments without running anything; tells `changed` of each."""

    def __init__(self, member: WorkerGroupMember, changed: asyncio.Event) -> None:
        self.member = member
        self.last: Rebalance | None = None
        self._changed = changed
        self._task = asyncio.create_task(self._run())

    @property
    def work(self) -> Work:
        return self.last.running.assigned.work if self.last else Work()

    async def _run(self) -> None:
        while True:
            await self.member.wait()
            self.last = await self.member.join()
            if self.last.received.revoked.work:
                self.member.request_rejoin("the revoked work has stopped")
            self._changed.set()

    async def die(self) -> None:
        """End without leaving the group."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self.member.close()

    async def stop(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self.member.leave("the worker stops")
        await self.member.close()


class WorkerGroup:
    """The workers of a test, in one group."""

    def __init__(self, bootstrap: str, group_id: str, configs: ConfigStore) -> None:
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "key.converter": "StringConverter",
            "value.converter": "StringConverter",
            "config.storage.topic": "configs",
            "offset.storage.topic": "offsets",
            "status.storage.topic": "statuses",
            "scheduled.rebalance.max.delay.ms": "0",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "200",
        }
        self.configs = configs
        self.changed = asyncio.Event()
        self.workers: list[RunningWorker] = []

    async def add(self, settings: Mapping[str, str] | None = None) -> RunningWorker:
        config = DistributedConfig({**self._settings, **(settings or {})})
        member = WorkerGroupMember(config, f"http://worker-{len(self.workers)}:8083/", self.configs)
        await member.start(TIMEOUT_S)
        self.workers.append(RunningWorker(member, self.changed))
        return self.workers[-1]

    async def until_even(self, *workers: RunningWorker) -> None:
        """Wait until these workers, of one generation, run everything once and evenly."""
        async with asyncio.timeout(TIMEOUT_S):
            while not self._even(workers):
                self.changed.clear()
                await self.changed.wait()

    def _even(self, workers: tuple[RunningWorker, ...]) -> bool:
        if len({worker.last and worker.last.generation_id for worker in workers}) > 1:
            return False
        for kind in ("connectors", "tasks"):
            sizes = [len(getattr(worker.work, kind)) for worker in workers]
            if max(sizes) - min(sizes) > 1 or sum(sizes) != len(getattr(configured(self.configs.snapshot()), kind)):
                return False
        return union(worker.work for worker in workers) == configured(self.configs.snapshot())


@pytest.mark.parametrize("protocol", ["sessioned", "compatible", "eager"])
async def test_workers_divide_the_work_and_take_over_what_one_leaves(
    bootstrap: str, fresh_name: Names, protocol: str
) -> None:
    group = WorkerGroup(bootstrap, fresh_name("connect"), await config_store())
    first = await group.add({"connect.protocol": protocol})
    await group.until_even(first)
    second = await group.add({"connect.protocol": protocol})
    await group.until_even(first, second)
    assert first.last is not None
    assert second.last is not None
    assert first.last.protocol is second.last.protocol is ConnectProtocol[protocol.upper()]
    assert [first.last.is_leader, second.last.is_leader] == [True, False]
    assert second.last.received.leader_url == "http://worker-0:8083/"
    assert second.last.received.leader == first.member.member_id
    for number, worker in enumerate((first, second)):
        owned: list[Any] = [*worker.work.connectors, *worker.work.tasks]
        assert {first.member.owner_url(each) for each in owned} == {f"http://worker-{number}:8083/"}
    await first.stop()
    await group.until_even(second)
    assert second.last.is_leader
    await second.stop()


async def test_work_of_a_worker_that_dies_goes_to_the_others(bootstrap: str, fresh_name: Names) -> None:
    group = WorkerGroup(bootstrap, fresh_name("connect"), await config_store())
    first, second = await group.add(), await group.add()
    await group.until_even(first, second)
    await second.die()
    await group.until_even(first)
    await first.stop()


async def test_a_member_learns_at_once_whether_it_is_still_counted_in(bootstrap: str, fresh_name: Names) -> None:
    group = WorkerGroup(bootstrap, fresh_name("connect"), await config_store())
    first = await group.add({"heartbeat.interval.ms": "5000"})
    await group.until_even(first)
    assert await first.member.confirm()
    other = await group.add({"heartbeat.interval.ms": "5000"})
    generation = first.member._membership.generation
    other.member._membership.generation, kept = generation, other.member._membership.generation
    await other.member.leave("in the name of the first one")
    other.member._membership.generation = kept
    assert not await first.member.confirm()
    await other.die()
    await first.die()


async def test_new_tasks_are_assigned_when_a_worker_asks_for_a_rebalance(bootstrap: str, fresh_name: Names) -> None:
    group = WorkerGroup(bootstrap, fresh_name("connect"), await config_store())
    first, second = await group.add(), await group.add()
    await group.until_even(first, second)
    before = {worker: worker.work for worker in (first, second)}
    await group.configs.put_connector("more", {"name": "more"})
    await group.configs.put_task_configs("more", [{}, {}])
    second.member.request_rejoin("a connector has new tasks")
    await group.until_even(first, second)
    assert all(not work - worker.work for worker, work in before.items()), "work moved without need"
    await first.stop()
    await second.stop()


async def test_a_group_speaks_the_protocol_that_all_workers_know(bootstrap: str, fresh_name: Names) -> None:
    group = WorkerGroup(bootstrap, fresh_name("connect"), await config_store())
    first = await group.add()
    await group.until_even(first)
    second = await group.add({"connect.protocol": "compatible"})
    await group.until_even(first, second)
    assert first.last is not None
    assert first.last.protocol is ConnectProtocol.COMPATIBLE
    await first.stop()
    await second.stop()
