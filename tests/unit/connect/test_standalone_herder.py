"""A standalone herder on scripted work: what it fences, and when; what becomes of errors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from oncelog.connect.errors import BadRequestError, ConnectError, NotReadyError, UnknownCommitError
from oncelog.connect.herder.standalone import StandaloneHerder
from oncelog.connect.settings.worker import STANDALONE, WorkerConfig
from oncelog.connect.stores.config_records import TargetState
from oncelog.connect.stores.ids import ConnectorTaskId
from oncelog.connect.stores.memory_log import MemoryLog
from oncelog.connect.stores.offset_store import OffsetStore
from support.scripted_worker import ScriptedOutside, ScriptedWork

C0, C1 = ConnectorTaskId("c", 0), ConnectorTaskId("c", 1)
CONFIG = {"name": "c", "connector.class": "support.scripted_worker:Scripted", "topic": "t"}
WORKER = {
    "group.id": "g",
    "key.converter": "StringConverter",
    "value.converter": "StringConverter",
    "offset.storage.topic": "offsets",
    "exactly.once.source.support": "enabled",
}


async def alone(target: TargetState | None = None, **settings: str) -> tuple[StandaloneHerder, ScriptedWork]:
    """Start a worker that runs connector c with two tasks."""
    config = WorkerConfig(STANDALONE, {**WORKER, **{name.replace("_", "."): value for name, value in settings.items()}})
    herder = StandaloneHerder(config, OffsetStore(MemoryLog()), "w", ScriptedOutside())
    await herder.start()
    work: Any = herder._worker
    work.configs["c"] = [{"n": "0"}, {"n": "1"}]
    await herder.put_connector("c", CONFIG, target, replace=False)
    return herder, work


async def test_tasks_that_start_together_share_one_fencing_of_all_earlier_tasks() -> None:
    herder, work = await alone()
    assert work.forget() == ["start c", "start c-0", "start c-1"]
    assert work.restart_after is UnknownCommitError
    work.fencing.clear()
    starts = [asyncio.create_task(work.checks[task].fence_others()) for task in (C0, C1)]
    while not work.done:
        await asyncio.sleep(0)
    assert not any(start.done() for start in starts)
    work.fencing.set()
    await asyncio.gather(*starts)
    await herder.restart_task(C1)
    await work.checks[C1].fence_others()
    assert work.forget() == ["fence listed tasks of c", "stop c-1", "start c-1"]
    await herder.stop()


async def test_new_settings_of_tasks_fence_again() -> None:
    herder, work = await alone()
    for task in (C0, C1):
        await work.checks[task].fence_others()
    await herder.put_connector("c", {**CONFIG, "topic": "u"}, None, replace=True)
    work.forget()
    for task in (C0, C1):
        await work.checks[task].fence_others()
    assert work.forget() == ["fence listed tasks of c"]
    await herder.stop()


async def test_a_fencing_that_fails_fails_the_starts_that_wait_for_it_and_is_repeated() -> None:
    herder, work = await alone()
    work.forget()
    work.fence_error = ConnectError("a broker was away")
    starts = [asyncio.create_task(work.checks[task].fence_others()) for task in (C0, C1)]
    assert await asyncio.gather(*starts, return_exceptions=True) == [work.fence_error] * 2
    work.fence_error = None
    await work.checks[C1].fence_others()
    assert work.forget() == ["fence listed tasks of c"] * 2
    await herder.stop()


async def test_a_fencing_that_hangs_ends_with_the_worker() -> None:
    herder, work = await alone()
    work.fencing.clear()
    start = asyncio.create_task(work.checks[C0].fence_others())
    while "fence listed tasks of c" not in work.done:
        await asyncio.sleep(0)
    await herder.stop()
    with pytest.raises(asyncio.CancelledError):
        await start


async def test_a_restart_of_what_does_not_start_is_refused() -> None:
    herder, work = await alone()
    work.unfit = True
    with pytest.raises(ConnectError, match=r"^Failed to start task: c-1$"):
        await herder.restart_task(C1)
    with pytest.raises(ConnectError, match=r"^Failed to start connector: c$"):
        await herder.restart_connector("c")
    await herder.stop()


async def test_without_exactly_once_nothing_is_fenced() -> None:
    herder, work = await alone(exactly_once_source_support="disabled")
    assert work.checks == {C0: None, C1: None}
    await herder.stop()


async def test_earlier_tasks_are_fenced_before_offsets_change() -> None:
    herder, work = await alone(TargetState.STOPPED)
    work.forget()
    await herder.alter_offsets("c", [({"p": 1}, {"n": 1})])
    assert work.forget() == ["fence listed tasks of c", "write 1 offsets"]
    work.fence_error = ConnectError("a broker was away")
    with pytest.raises(ConnectError, match="zombie fencing"):
        await herder.alter_offsets("c", [({"p": 1}, {"n": 1})])
    assert work.forget() == ["fence listed tasks of c"]
    await herder.stop()


async def test_a_reconfiguration_that_fails_makes_the_connector_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    herder, work = await alone()
    work.configs["c"] = [{"n": "2"}]

    async def fails(name: str, configs: Any) -> None:
        raise OSError("no space")

    monkeypatch.setattr(herder._configs, "put_task_configs", fails)
    work.reconfigure["c"]()
    while not work.failed:
        await asyncio.sleep(0)
    assert work.failed == ["c"]
    await herder.stop()


async def test_a_change_that_hangs_is_abandoned_when_the_worker_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    herder, work = await alone(task_shutdown_graceful_timeout_ms="1")
    starting = asyncio.Event()

    async def hangs(*_: Any) -> None:
        starting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(work, "start_connector", hangs)
    restart = asyncio.create_task(herder.restart_connector("c"))
    await starting.wait()
    waiting = asyncio.create_task(herder.restart_connector("c"))
    work.forget()
    await herder.stop()
    assert work.forget() == ["stop"]
    for change in (restart, waiting):
        with pytest.raises(NotReadyError, match="shutting down"):
            await change


async def test_settings_that_cannot_be_stored_are_refused_before_anything_stops() -> None:
    herder, work = await alone()
    work.forget()
    for change in (
        herder.put_connector("c", {**CONFIG, "topic": "t\ud800"}, None, replace=True),
        herder.patch_connector("c", {"topic": "t\ud800"}),
    ):
        with pytest.raises(BadRequestError, match="The setting 'topic'"):
            await change
    assert work.forget() == []
    await herder.stop()
