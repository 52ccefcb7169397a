"""PostgresSource under kills of worker, PostgreSQL and broker: the topic, replayed, equals the table."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oncelog import Consumer
from support.broker import BrokerProcess
from support.postgres import PostgresServer

pytest.importorskip("aiohttp", reason="needs the extra: pip install 'oncelog[connect]'")
psycopg = pytest.importorskip("psycopg", reason="needs the extra: pip install 'oncelog[connect-postgres]'")

Names = Callable[[str], str]


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path) as process:
        yield process


class Changes:
    """Inserts, updates and deletes, each in a transaction of up to five; goes on when the server comes back."""

    def __init__(self, postgres: PostgresServer, count: int) -> None:
        self._postgres, self._count = postgres, count
        self._random = random.Random(7)
        self.thread = threading.Thread(target=self._run)
        self.done = 0
        self._allowed = threading.Semaphore(0)

    def allow(self, transactions: int) -> None:
        """Let that many transactions more be made."""
        self._allowed.release(transactions)

    def _run(self) -> None:
        connection: Any = None
        while self.done < self._count:
            try:
                if connection is None:
                    connection = self._postgres.connect()
                self._allowed.acquire()
                size = self._random.randint(1, 5)
                with connection.transaction():
                    for _ in range(size):
                        self._change(connection)
                self.done += size
            except psycopg.Error:
                connection = None  # the server is gone; whether it has committed does not matter
        connection.execute("INSERT INTO t VALUES (-1, 'end')")
        connection.close()

    def _change(self, connection: Any) -> None:
        number = self._random.randint(1, self._count // 3)
        match self._random.randint(0, 3):
            case 0 | 1:
                upsert = "INSERT INTO t VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET name = excluded.name || 'u'"
                connection.execute(upsert, (number, str(self._random.random())))
            case 2:
                connection.execute("UPDATE t SET name = %s WHERE id = %s", (str(self._random.random()), number))
            case 3:
                connection.execute("DELETE FROM t WHERE id = %s", (number,))


class Topic:
    """What a reader of committed records has of the topic."""

    def __init__(self) -> None:
        self.rows: dict[int, Any] = {}
        self.changes: Counter[tuple[Any, ...]] = Counter()
        self.count = 0

    def take(self, key: bytes | None, value: bytes | None) -> None:
        self.count += 1
        if value is None:
            return
        change = json.loads(value)
        if change["op"] == "d":
            self.rows.pop(change["before"]["id"], None)
        else:
            self.rows[change["after"]["id"]] = change["after"]["name"]
            self.changes[change["source"]["lsn"], change["op"], key, change["after"]["name"]] += 1


@pytest.mark.oncelog_only(reason="kills the broker")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("count", "kills"), [(1_500, 3), pytest.param(100_000, 18, marks=pytest.mark.slow)], ids=["short", "long"]
)
async def test_the_replayed_topic_equals_the_table(
    broker: BrokerProcess, postgres: PostgresServer, fresh_name: Names, tmp_path: Path, count: int, kills: int
) -> None:
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, name text)",
        f"INSERT INTO t SELECT n, 'first' FROM generate_series(1, {count // 4}) n",
    )
    group, prefix = fresh_name("killed"), fresh_name("shop")
    settings, connector = tmp_path / "worker.properties", tmp_path / "postgres.properties"
    settings.write_text(
        f"bootstrap.servers={broker.address}\nlisteners=http://127.0.0.1:0\nkey.converter=JsonConverter\n"
        "value.converter=JsonConverter\nkey.converter.schemas.enable=false\nvalue.converter.schemas.enable=false\n"
        f"exactly.once.source.support=enabled\ngroup.id={group}\noffset.storage.topic={group}-offsets\n"
        "offset.storage.replication.factor=1\n"
    )
    connector.write_text(
        f"name=shop\nconnector.class=PostgresSource\ndatabase.hostname={postgres.host}\n"
        f"database.port={postgres.port}\ndatabase.user=postgres\ndatabase.dbname=postgres\ntopic.prefix={prefix}\n"
        "max.batch.size=100\nsnapshot.fetch.size=100\n"
    )
    log = (tmp_path / "log").open("ab")
    command = [sys.executable, "-m", "oncelog.cli", "connect", "standalone", str(settings), str(connector)]
    topic, changes = Topic(), Changes(postgres, count)
    async with (
        asyncio.timeout(120 if count < 10_000 else 1500),
        Consumer(
            bootstrap_servers=broker.address, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer,
    ):
        consumer.assign([(f"{prefix}.public.t", 0)])
        changes.thread.start()
        worker = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            for number in range(kills + 1):
                # The first kill interrupts the snapshot, later ones the changes: a transaction has three on average, so
                # that there are enough for each wait, and some for the last.
                wanted = topic.count + (count // (kills * 3) if number < kills else 0)
                changes.allow(count // (kills + 1) // 3 if number < kills else count)
                while topic.count < wanted or (number == kills and -1 not in topic.rows):
                    for record in await consumer.poll(200):
                        topic.take(record.key, record.value)
                if number == kills:
                    break
                match number % 3:
                    case 0:
                        worker.kill()
                        await asyncio.to_thread(worker.wait)
                        worker = subprocess.Popen(command, stdout=log, stderr=log)
                    case 1:
                        await asyncio.to_thread(postgres.kill9)
                        await asyncio.to_thread(postgres.start)
                    case 2:
                        await asyncio.to_thread(broker.kill9)
                        await asyncio.to_thread(broker.start)
        finally:
            changes.allow(count)
            worker.send_signal(signal.SIGTERM)
            await asyncio.to_thread(worker.wait)
            await asyncio.to_thread(changes.thread.join)
            log.close()
    assert topic.rows == dict(postgres.execute("SELECT id, name FROM t"))
    repeated = [place for place, times in topic.changes.items() if times > 1]
    assert not repeated
