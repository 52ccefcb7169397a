"""A worker's start: its internal topics are read at the same time, and a failure ends the start."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from oncelog.connect.errors import ConnectError
from oncelog.connect.herder.distributed import DistributedHerder
from oncelog.connect.settings.distributed import DistributedConfig
from oncelog.connect.stores.config_store import ConfigStore
from oncelog.connect.stores.memory_log import MemoryLog
from oncelog.connect.stores.topic_log import Apply
from support.scripted_worker import WORKER, ScriptedMember, ScriptedOutside


class SlowLog(MemoryLog):
    """A log that is read when all logs are being read, or fails with `error` then."""

    def __init__(self, all_begun: asyncio.Barrier, error: Exception | None = None) -> None:
        super().__init__()
        self._all_begun, self._error = all_begun, error
        self.states: list[str] = []

    async def start(self, apply: Apply) -> None:
        self.states.append("begun")
        try:
            await self._all_begun.wait()
            if self._error is not None:
                raise self._error
            await asyncio.sleep(0)
            await super().start(apply)
        except BaseException as error:
            self.states.append(type(error).__name__)
            raise
        self.states.append("read")

    async def stop(self) -> None:
        self.states.append("stopped")
        await super().stop()


def herder_on(logs: list[SlowLog]) -> DistributedHerder:
    """Return a worker that joins its group as soon as it has read its topics."""

    def member(configs: ConfigStore) -> ScriptedMember:
        return ScriptedMember(configs, "w")

    def client(configs: ConfigStore) -> Any:
        return None

    configs, statuses, offsets = logs
    config = DistributedConfig(WORKER)
    return DistributedHerder(config, "w", configs, statuses, offsets, member, client, ScriptedOutside())


async def test_all_topics_are_read_at_the_same_time() -> None:
    barrier = asyncio.Barrier(3)
    logs = [SlowLog(barrier) for _ in range(3)]
    herder = herder_on(logs)
    await herder._open()
    assert [log.states for log in logs] == [["begun", "read"]] * 3
    await herder._close()


@pytest.mark.parametrize("failing", range(3))
async def test_a_topic_that_cannot_be_read_ends_the_start(failing: int) -> None:
    barrier = asyncio.Barrier(3)
    logs = [SlowLog(barrier, ConnectError("refused") if number == failing else None) for number in range(3)]
    with pytest.raises(ConnectError, match="refused"):
        await herder_on(logs).start()
    for number, log in enumerate(logs):
        assert log.states[1] in (("ConnectError",) if number == failing else ("CancelledError", "read"))
        assert log.states[2:] == ["stopped"]


async def test_a_stop_during_the_start_ends_the_reading_of_all_topics() -> None:
    barrier = asyncio.Barrier(4)  # nobody completes it
    logs = [SlowLog(barrier) for _ in range(3)]
    herder = herder_on(logs)
    starting = asyncio.create_task(herder.start())
    while barrier.n_waiting < 3:
        await asyncio.sleep(0)
    await herder.stop()
    assert [log.states for log in logs] == [["begun", "CancelledError", "stopped"]] * 3
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
