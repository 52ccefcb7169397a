"""PostgresSource: which errors of its server are temporary, when its modules are loaded, and which offsets it takes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from oncelog.connect import ConnectError, RetriableError, SourceRecord

pytest.importorskip("psycopg", reason="needs the extra: pip install 'oncelog[connect-postgres]'")

import psycopg
from oncelog.connect.connectors.postgres.connector import PostgresSourceConnector
from oncelog.connect.connectors.postgres.server import failure
from support.source_tasks import Source


@pytest.mark.parametrize(("state", "passing"), [("72000", True), ("40001", True), ("42601", False)])
def test_an_error_that_a_new_transaction_avoids_is_temporary(state: str, passing: bool) -> None:
    error = failure(psycopg.errors.lookup(state)("no more"), "the snapshot was interrupted")
    assert isinstance(error, RetriableError) is passing


def test_no_module_is_loaded_after_the_start_of_a_task() -> None:
    program = """
import asyncio, sys
from oncelog.connect import ConnectError, RetriableError
from oncelog.connect.connectors.postgres.connector import PostgresSourceConnector
from support.source_tasks import Source

async def main():
    config = {"database.hostname": "/nowhere", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
    async with await Source(PostgresSourceConnector, config).task() as task:
        before = set(sys.modules)
        try:
            await task.poll()
        except (ConnectError, RetriableError):
            print(sorted(name for name in set(sys.modules) - before if name.startswith(("oncelog.", "psycopg"))))

asyncio.run(main())
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout == "[]\n"


@pytest.mark.parametrize("offset", [{"lsn": 5}, {"lsn": 5, "event": 0}, None], ids=str)
async def test_a_position_in_the_servers_log_can_be_set(offset: dict[str, Any] | None) -> None:
    assert await PostgresSourceConnector().alter_offsets({}, [({"server": "p"}, offset)])


@pytest.mark.parametrize(
    "offset", [{}, {"lsn": "0/5"}, {"lsn": True}, {"lsn": 5, "event": "0"}, {"lsn": 5, "event": False}], ids=str
)
async def test_an_offset_that_is_no_position_in_the_servers_log_is_refused(offset: dict[str, Any]) -> None:
    with pytest.raises(ConnectError, match="an offset must be"):
        await PostgresSourceConnector().alter_offsets({}, [({"server": "p"}, offset)])


async def test_a_task_refuses_an_offset_without_a_position() -> None:
    config = {"database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
    new = Source(PostgresSourceConnector, config)
    new.offsets.commit([SourceRecord(topic="t", source_partition={"server": "p"}, source_offset={"lsn": True})])
    with pytest.raises(ConnectError, match='no number "lsn"'):
        async with await new.task():
            pass
