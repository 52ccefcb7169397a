"""Each connector in a real worker that does exactly-once, over a restart: all records in the topic, each once."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from oncelog import Consumer

aiohttp = pytest.importorskip("aiohttp", reason="needs the extra: pip install 'oncelog[connect]'")
from aiohttp import web  # noqa: E402
from oncelog.connect.process import StandaloneWorker  # noqa: E402
from oncelog.connect.settings.files import ConnectorFile  # noqa: E402

Names = Callable[[str], str]


@asynccontextmanager
async def worker(bootstrap: str, group: str, config: dict[str, str]) -> AsyncIterator[StandaloneWorker]:
    alone = StandaloneWorker(
        {
            "bootstrap.servers": bootstrap,
            "listeners": "http://127.0.0.1:0",
            "key.converter": "JsonConverter",
            "value.converter": "JsonConverter",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "exactly.once.source.support": "enabled",
            "group.id": group,
            "offset.storage.topic": f"{group}-offsets",
            "offset.storage.replication.factor": "1",
        }
    )
    await alone.start([ConnectorFile(config)])
    try:
        yield alone
    finally:
        await alone.stop()


async def committed(bootstrap: str, topic: str, count: int) -> list[Any]:
    """Return the first values of a topic that a reader of committed records sees."""
    values: list[Any] = []
    async with (
        asyncio.timeout(60),
        Consumer(
            bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer,
    ):
        consumer.assign([(topic, 0)])
        while len(values) < count:
            values += [json.loads(record.value or b"null") for record in await consumer.poll(200)]
    return values


async def over_a_restart(
    bootstrap: str, name: str, topic: str, config: dict[str, str], more: Callable[[], object]
) -> tuple[list[Any], Any]:
    """Return the values of six records: three before a restart, three that came after it; and the offsets."""
    config = {"name": name, "exactly.once.support": "required", **config}
    async with worker(bootstrap, name, config):
        await committed(bootstrap, topic, 3)
    more()
    async with worker(bootstrap, name, config) as again:
        values = await committed(bootstrap, topic, 6)
        return values, await again.herder.offsets(name)


async def test_sql(bootstrap: str, fresh_name: Names, tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy", reason="needs the extra: pip install 'oncelog[connect-sql]'")
    name = fresh_name("rows")
    database = sqlite3.connect(tmp_path / "data.db", isolation_level=None)
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY NOT NULL, at TIMESTAMP NOT NULL)")
    insert = "INSERT INTO t SELECT value, '2020-01-01' FROM json_each(?)"
    database.execute(insert, ("[1,2,3]",))
    config = {
        "connector.class": "SqlSource",
        "connection.url": f"sqlite:///{tmp_path / 'data.db'}",
        "mode": "timestamp",
        "timestamp.column.name": "at",
        "table.whitelist": "t",
        "topic.prefix": f"{name}-",
        "poll.interval.ms": "10",
        "batch.max.rows": "2",
    }
    values, offsets = await over_a_restart(
        bootstrap, name, f"{name}-t", config, lambda: database.execute(insert, ("[4,5,6]",))
    )
    database.close()
    assert [value["id"] for value in values] == [1, 2, 3, 4, 5, 6]
    assert offsets == {"offsets": [{"partition": {"table": "t"}, "offset": {"timestamp": "2020-01-01", "key": "[6]"}}]}


async def test_directory(bootstrap: str, fresh_name: Names, tmp_path: Path) -> None:
    name = fresh_name("lines")
    path = tmp_path / "app.log"
    path.write_text("1\n2\n3\n")

    def rotate() -> None:
        path.rename(tmp_path / "app.log.1")
        path.write_text("4\n5\n6\n")

    config = {
        "connector.class": "DirectorySource",
        "directory": str(tmp_path),
        "topic": name,
        "poll.interval.ms": "10",
    }
    values, offsets = await over_a_restart(bootstrap, name, name, config, rotate)
    assert values == ["1", "2", "3", "4", "5", "6"]
    assert [each["offset"]["position"] for each in offsets["offsets"]] == [6, 6]


async def test_http(bootstrap: str, fresh_name: Names) -> None:
    name, items = fresh_name("items"), [1, 2, 3]

    async def handle(request: web.Request) -> web.Response:
        start = int(request.query["start"])
        return web.json_response(items[start : start + 2])

    app = web.Application()
    app.router.add_get("/items", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/items?start={{offset}}"
    config = {
        "connector.class": "HttpSource",
        "url": url,
        "topic": name,
        "pagination": "offset",
        "poll.interval.ms": "10",
    }
    try:
        values, offsets = await over_a_restart(bootstrap, name, name, config, lambda: items.extend([4, 5, 6]))
    finally:
        await runner.cleanup()
    assert values == [1, 2, 3, 4, 5, 6]
    assert offsets == {"offsets": [{"partition": {"url": url}, "offset": {"offset": 6}}]}


@pytest.mark.parametrize("boundary", ["poll", "connector"])
async def test_singer(bootstrap: str, fresh_name: Names, tmp_path: Path, boundary: str) -> None:
    name = fresh_name("stream")
    tap, count = tmp_path / "tap.py", tmp_path / "count"
    tap.write_text(
        "import json, sys\n"
        "start = json.load(open(sys.argv[sys.argv.index('--state') + 1])) if '--state' in sys.argv else 0\n"
        f"end = int(open({str(count)!r}).read())\n"
        "for number in range(start, end):\n"
        f"    print(json.dumps({{'type': 'RECORD', 'stream': {name!r}, 'record': {{'id': number}}}}))\n"
        "print(json.dumps({'type': 'STATE', 'value': end}))\n"
    )
    count.write_text("3")
    config = {
        "connector.class": "SingerSource",
        "tap.command": f"{sys.executable} {tap}",
        "poll.interval.ms": "10",
        "batch.size": "2",
        "transaction.boundary": boundary,
    }
    values, offsets = await over_a_restart(bootstrap, name, name, config, lambda: count.write_text("6"))
    assert [value["id"] for value in values] == [0, 1, 2, 3, 4, 5]
    assert offsets["offsets"][0]["offset"] == {"state": "6"}
