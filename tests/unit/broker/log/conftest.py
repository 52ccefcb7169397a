"""Fixtures of the tests of logs: a file system in memory, and a manager that runs on it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from oncelog.broker.log import LogManager
from support.faulty_filesystem import FaultyFileSystem
from support.logs import new_manager


@pytest.fixture
def fs() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
async def manager(fs: FaultyFileSystem) -> AsyncIterator[LogManager]:
    manager = new_manager(fs)
    await manager.start()
    yield manager
    await manager.stop()
