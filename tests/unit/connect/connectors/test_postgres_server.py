"""Which errors of its server PostgresSource takes for temporary, and when it loads its modules."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from oncelog.connect import RetriableError

pytest.importorskip("psycopg", reason="needs the extra: pip install 'oncelog[connect-postgres]'")

import psycopg
from oncelog.connect.connectors.postgres.server import failure


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
