"""Workers of Kafka Connect 4.1 and ours in one group: each goes on with what the other has written."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from oncelog import Admin, Consumer, NewTopic, TopicPartition

pytest.importorskip("aiohttp", reason="needs the extra: pip install 'oncelog[connect]'")
from support.connect_workers import ANSWER_S, Rest, group, owners, states

Names = Callable[[str], str]
FILES = ("a", "b", "c")
RUNNING = states("RUNNING", "RUNNING")

STRINGS = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
}


class Lines:
    """Files to which numbered lines are appended all the time."""

    def __init__(self, directory: Path) -> None:
        self.paths = {name: directory / f"{name}.txt" for name in FILES}
        for path in self.paths.values():
            path.touch()
        self.count = 0

    async def write(self) -> None:
        while True:
            for path in self.paths.values():
                with path.open("a") as file:
                    file.write(f"{self.count}\n")
            self.count += 1
            await asyncio.sleep(0.02)


@asynccontextmanager
async def lines(directory: Path) -> AsyncIterator[Lines]:
    written = Lines(directory)
    task = asyncio.create_task(written.write())
    try:
        yield written
    finally:
        task.cancel()


async def values(bootstrap: str, topic: str) -> list[int]:
    """Return all committed values of a topic."""
    seen: list[int] = []
    partition = TopicPartition(topic, 0)
    settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    async with (
        Admin(bootstrap_servers=bootstrap) as admin,
        Consumer(settings, bootstrap_servers=bootstrap) as consumer,
        asyncio.timeout(ANSWER_S),
    ):
        end = (await admin.list_offsets({partition: -1}))[partition].offset
        consumer.assign([partition])
        while await consumer.position(partition) < end:
            seen += [int(record.value or b"-1") for record in await consumer.poll(200)]
    return seen


async def until_past(bootstrap: str, topics: Iterable[str], count: int) -> None:
    """Wait until the records of each topic reach a line, exactly once from the first one on."""
    for topic in topics:
        async with asyncio.timeout(ANSWER_S):
            while len(seen := await values(bootstrap, topic)) <= count:
                await asyncio.sleep(0.1)
        assert seen == list(range(len(seen))), topic


async def tasks_on(rest: Rest, wanted: Callable[[set[str]], bool]) -> None:
    """Wait until all tasks run, on such workers."""
    async with asyncio.timeout(ANSWER_S):
        while True:
            known: list[Any] = [await rest.until(f"/connectors/{name}/status", RUNNING) for name in FILES]
            if wanted({worker for each in known for worker in owners(each).values()}):
                return


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_both_replace_each_other_and_go_on_behind_each_others_offsets(
    bootstrap: str, fresh_name: Names, tmp_path: Path
) -> None:
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("needs java 17 and mvn")
    topics = {name: fresh_name(f"lines-{name}") for name in FILES}
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1) for topic in topics.values()])
    async with lines(tmp_path) as written, group(bootstrap, fresh_name("mixed"), tmp_path, STRINGS) as workers:

        def config(name: str, batch: int) -> dict[str, str]:
            return {
                "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
                "file": str(written.paths[name]),
                "topic": topics[name],
                "batch.size": str(batch),
                "exactly.once.support": "required",
            }

        async def put_all(rest: Rest, batch: int, status: int) -> None:
            for name in FILES:
                answer = await rest.settled("PUT", f"/connectors/{name}/config", config(name, batch))
                assert answer[0] == status, answer

        java = await workers.add_java()
        await put_all(workers.rest(java), 100, 201)
        await until_past(bootstrap, topics.values(), 10)

        ours = await workers.add_process()
        rest = workers.rest(ours)
        await tasks_on(rest, lambda on: on == {java.worker_id, ours.worker_id})
        await put_all(rest, 200, 200)  # the leader is theirs
        await tasks_on(rest, lambda on: on == {java.worker_id, ours.worker_id})
        assert await rest("PUT", "/connectors/a/pause") == (202, None)
        await workers.rest(java).until("/connectors/a/status", states("PAUSED", "PAUSED"))
        assert await workers.rest(java)("PUT", "/connectors/a/resume") == (202, None)
        await until_past(bootstrap, topics.values(), written.count)

        await java.end()
        await tasks_on(rest, lambda on: on == {ours.worker_id})
        await put_all(rest, 300, 200)
        await until_past(bootstrap, topics.values(), written.count)

        again = await workers.add_java()
        rest = workers.rest(again)
        await tasks_on(rest, lambda on: on == {again.worker_id, ours.worker_id})
        await put_all(rest, 400, 200)  # the leader is ours
        await tasks_on(rest, lambda on: on == {again.worker_id, ours.worker_id})
        status, answer = await rest.settled("POST", "/connectors/b/restart?includeTasks=true")
        assert (status, answer["connector"]["state"]) == (202, "RESTARTING")
        await until_past(bootstrap, topics.values(), written.count)
        await ours.kill()
        await tasks_on(rest, lambda on: on == {again.worker_id})
        await until_past(bootstrap, topics.values(), written.count)
        assert await rest.settled("PUT", "/connectors/a/stop") == (204, None)
        await rest.until("/connectors/a/status", states("STOPPED"))
        position = written.paths["a"].read_text().index("\n7\n") + 1
        wanted = {"offsets": [{"partition": {"filename": str(written.paths["a"])}, "offset": {"position": position}}]}
        assert (await rest.settled("PATCH", "/connectors/a/offsets", wanted))[0] == 200
        last = await workers.add_process()
        assert await workers.rest(last).settled("GET", "/connectors/a/offsets") == (200, wanted)
