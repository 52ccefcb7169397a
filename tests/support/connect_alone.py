"""Run a standalone Connect worker in this process, and wait for its connectors to reach a state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from oncelog.connect import ConnectError
from oncelog.connect.herder.standalone import StandaloneHerder
from oncelog.connect.process import StandaloneWorker


@asynccontextmanager
async def worker(bootstrap: str, **settings: str) -> AsyncIterator[StandaloneHerder]:
    alone = StandaloneWorker(
        {
            "bootstrap.servers": bootstrap,
            "listeners": "http://127.0.0.1:0",
            "key.converter": "JsonConverter",
            "value.converter": "JsonConverter",
            "value.converter.schemas.enable": "false",
            "offset.storage.replication.factor": "1",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    await alone.start()
    try:
        yield alone.herder
    finally:
        await alone.stop()


def exactly_once(name: str) -> dict[str, str]:
    return {"exactly_once_source_support": "enabled", "group_id": name, "offset_storage_topic": f"{name}-offsets"}


async def until(ask: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(60):
        while True:
            try:
                answer = await ask()
            except ConnectError:
                answer = None
            if answer is not None and wanted(answer):
                return answer
            await asyncio.sleep(0.01)  # the worker needs the processor more than this loop
