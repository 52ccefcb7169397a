"""Workers as processes: killed, started again, stopped, and given up."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from oncelog.client.errors import ConfigError
from oncelog.client.processor import WorkerDiedError, WorkerProcesses
from support.processing_job import WAIT_S, Job, Names

TESTS = Path(__file__).resolve().parents[1]
FACTORY = "support.processing_job:make_copier"


@pytest.fixture
async def job(bootstrap: str, fresh_name: Names) -> Job:
    job = Job(bootstrap, fresh_name)
    await job.create()
    return job


def arguments(job: Job, **more: Any) -> dict[str, object]:
    return {"bootstrap": job.bootstrap, "source": job.source, "target": job.target, "group": job.group, **more}


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():
            await asyncio.sleep(0.02)


def alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def stop(processes: WorkerProcesses, running: asyncio.Task[None]) -> None:
    processes.stop()
    async with asyncio.timeout(WAIT_S):
        await running


async def test_a_killed_worker_is_started_again_and_nothing_is_doubled_or_lost(job: Job) -> None:
    await job.fill(range(300))
    processes = WorkerProcesses(FACTORY, workers=2, arguments=arguments(job))
    running = asyncio.create_task(processes.run())
    await job.until_committed(100)
    before = processes.pids
    assert sorted(before) == [0, 1]
    os.kill(before[0], signal.SIGKILL)
    await until(lambda: processes.pids.get(0) not in (None, before[0]))
    await job.fill(range(300, 600))
    await job.until_committed(600)
    pids = list(processes.pids.values())
    await stop(processes, running)
    assert not any(map(psutil.pid_exists, pids))
    await job.check(600)


async def test_a_worker_that_keeps_dying_is_given_up_and_the_reason_told(job: Job) -> None:
    await job.fill(range(30))
    processes = WorkerProcesses(FACTORY, workers=2, restarts=1, arguments=arguments(job, poison="13"))
    with pytest.raises(WorkerDiedError, match=r"ended with exit code 1: ValueError: 13 .* after 1 restarts") as raised:
        async with asyncio.timeout(WAIT_S * 2):
            await processes.run()
    assert raised.value.exit_code == 1
    assert processes.pids == {}


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        ("support.no_such_module:make", "ModuleNotFoundError"),
        ("support.processing_job:no_such_thing", "no callable 'no_such_thing'"),
        ("support.processing_job:make_nothing", "returned a NoneType, not a Processor"),
        ("support.processing_job:make_unclosable", "returned a Unclosable, not a Processor"),
        ("no colon", "not of the form module:callable"),
    ],
)
async def test_a_factory_that_cannot_be_used_is_not_tried_again(factory: str, reason: str) -> None:
    processes = WorkerProcesses(factory, restarts=100)
    with pytest.raises(WorkerDiedError, match=reason):
        async with asyncio.timeout(WAIT_S):
            await processes.run()


async def test_a_worker_that_is_still_connecting_can_be_stopped(job: Job) -> None:
    nowhere = arguments(job) | {"bootstrap": "127.0.0.1:1"}
    processes = WorkerProcesses(FACTORY, arguments=nowhere)
    running = asyncio.create_task(processes.run())
    await until(lambda: bool(processes.pids))
    await asyncio.wait({running}, timeout=1)
    await stop(processes, running)


async def command(job: Job, *options: str) -> asyncio.subprocess.Process:
    settings = [part for name, value in arguments(job).items() for part in ("--set", f"{name}={value}")]
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "oncelog.client.processor", FACTORY, *settings, *options),
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
        stderr=asyncio.subprocess.PIPE,
    )


async def test_sigterm_ends_the_command_and_its_workers_after_their_transactions(job: Job) -> None:
    await job.fill(range(300))
    process = await command(job, "--workers", "2")
    try:
        await job.until_committed(300)
        workers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(WAIT_S):
            _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    assert process.returncode == 0, errors.decode()
    assert b"Traceback" not in errors
    await until(lambda: not any(map(alive, workers)))  # multiprocessing's own helper goes last
    await job.check(300)


async def test_workers_end_when_their_parent_is_killed(job: Job) -> None:
    await job.fill(range(30))
    process = await command(job)
    try:
        await job.until_committed(30)
        workers = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        await process.wait()
    await until(lambda: not any(map(alive, workers)))
    await job.check(30)


async def test_the_command_tells_what_is_wrong(job: Job) -> None:
    process = await command(job, "--set", "unknown=1")
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"unexpected keyword argument 'unknown'" in errors


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"restarts": -1}, {"restart_window_s": 0}, {"stop_timeout_s": -1}])
def test_numbers_that_cannot_be_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        WorkerProcesses(FACTORY, **wrong)  # type: ignore[arg-type]
