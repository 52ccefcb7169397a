"""Run the distributed Connect workers of a group for tests, and send requests to their REST interfaces."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from oncelog import Admin, Consumer, ConsumerRecord, TopicPartition
from oncelog.connect.process import DistributedWorker
from yarl import URL

from .apache_kafka.connect import JavaWorker

W = TypeVar("W", "LocalWorker", "WorkerProcess", JavaWorker)

START_S = 60
ANSWER_S = 60
MOMENT_MS = 200
"""The longest wait between two requests, because a worker reads a status a moment after other readers."""


class Rest:
    """The REST interface of a worker. `changed` waits for the next record of the status topic, or for a moment."""

    def __init__(self, session: aiohttp.ClientSession, url: str, changed: Callable[[], Awaitable[None]]) -> None:
        self.session, self.url, self._changed = session, url, changed

    async def __call__(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str | None] | None = None
    ) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body)
        given = {**({"Content-Type": "application/json"} if body is not None else {}), **(headers or {})}
        sent = {name: value for name, value in given.items() if value is not None}
        skipped = ["Content-Type"]  # Kafka Connect answers 415 to the one that aiohttp would send
        url = URL(self.url + path, encoded=True)
        async with self.session.request(method, url, data=data, headers=sent, skip_auto_headers=skipped) as response:
            text = await response.text()
            is_json = text and (response.content_type == "application/json" or text[0] in "{[")
            return response.status, json.loads(text) if is_json else text or None

    async def settled(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str | None] | None = None
    ) -> tuple[int, Any]:
        """Send a request, and repeat it while the group rebalances.

        Kafka Connect then responds with 409, or with 500 to GET …/config.
        """
        async with asyncio.timeout(ANSWER_S):
            while (answer := await self(method, path, body, headers))[0] in (409, 500) and _rebalancing(answer[1]):
                await self._changed()
        return answer

    async def until(self, path: str, wanted: Callable[[Any], bool]) -> Any:
        """Send a GET request whenever the status topic changes, until the response satisfies `wanted`; return it."""
        answer = None
        try:
            async with asyncio.timeout(ANSWER_S):
                while True:
                    _, answer = await self("GET", path)
                    if wanted(answer):
                        return answer
                    await self._changed()
        except TimeoutError:
            raise AssertionError(f"{path} did not become as expected; the last response was {answer}") from None


def _rebalancing(answer: Any) -> bool:
    return isinstance(answer, dict) and any(text in answer["message"] for text in ("stale configuration", "rebalance"))


def states(connector: str, *tasks: str) -> Callable[[Any], bool]:
    """Return a predicate for a status: whether the connector and its tasks are in these states."""

    def wanted(known: Any) -> bool:
        if "connector" not in known:
            return False
        return (known["connector"]["state"], [task["state"] for task in known["tasks"]]) == (connector, list(tasks))

    return wanted


def owners(known: Any) -> dict[int, str]:
    """Return the worker of each task, by the task's number, from a connector's status."""
    return {task["id"]: task["worker_id"] for task in known["tasks"]}


class LocalWorker:
    """A worker that runs in the test's process."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = dict(settings)
        self.worker: DistributedWorker | None = None
        self.url = ""
        self.log = ""

    @property
    def worker_id(self) -> str:
        return self.url.partition("://")[2]

    async def start(self) -> None:
        self.worker = DistributedWorker(self.settings)
        await self.worker.start()
        self.url = self.worker.url

    async def kill(self) -> None:
        raise AssertionError("only processes can be killed: add_process")

    async def end(self) -> int:
        worker, self.worker = self.worker, None
        if worker is not None:
            await worker.stop()
        return 0


class WorkerProcess:
    """A process `oncelog connect distributed FILE`."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self._file = directory / "worker.properties"
        directory.mkdir(parents=True, exist_ok=True)
        self._file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._log = directory / "worker.log"
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    @property
    def worker_id(self) -> str:
        return self.url.partition("://")[2]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text()

    async def start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "oncelog.cli", "connect", "distributed", str(self._file)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(START_S):
            line = await asyncio.to_thread(self._process.stdout.readline)
        assert line.startswith("ready http://"), self.log[-3000:]
        self.url = line.split()[1]

    async def end(self, number: int = signal.SIGTERM) -> int:
        """End the process with a signal, and return its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        assert process.stdout is not None
        process.send_signal(number)
        try:
            return await asyncio.to_thread(process.wait, 60)
        finally:
            process.kill()
            process.stdout.close()

    async def kill(self) -> None:
        await self.end(signal.SIGKILL)

    def freeze(self) -> None:
        """Suspend the process, as a machine that swaps or a debugger does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the suspended process continue."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


class Group:
    """The workers of one group, and the REST interface of each."""

    def __init__(self, bootstrap: str, name: str, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.name, self._directory = name, directory
        self.settings = {
            "bootstrap.servers": bootstrap,
            "listeners": "http://127.0.0.1:0",
            "group.id": name,
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "exactly.once.source.support": "enabled",
            "scheduled.rebalance.max.delay.ms": "0",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "200",
            "offset.flush.interval.ms": "100",
            "offset.storage.partitions": "5",
            **{f"{kind}.storage.topic": f"{name}-{kind}" for kind in ("config", "offset", "status")},
            **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
            **(settings or {}),
        }
        self.workers: list[LocalWorker | WorkerProcess | JavaWorker] = []
        self.session: aiohttp.ClientSession
        self.statuses: Consumer

    async def add(self, settings: Mapping[str, str] | None = None) -> LocalWorker:
        """Start another worker in this process."""
        return await self._started(LocalWorker({**self.settings, **(settings or {})}))

    async def add_process(self, settings: Mapping[str, str] | None = None) -> WorkerProcess:
        """Start another worker as a process."""
        directory = self._directory / f"{self.name}-{len(self.workers)}"
        return await self._started(WorkerProcess(directory, {**self.settings, **(settings or {})}))

    async def add_java(self, settings: Mapping[str, str] | None = None, *jvm: str) -> JavaWorker:
        """Start another worker of Kafka Connect, in a small JVM or in one with the options `jvm`."""
        directory = self._directory / f"{self.name}-{len(self.workers)}"
        return await self._started(JavaWorker(directory, {**self.settings, **(settings or {})}, *jvm))

    def rest(self, worker: LocalWorker | WorkerProcess | JavaWorker) -> Rest:
        return Rest(self.session, worker.url, self._changed)

    async def _started(self, worker: W) -> W:
        self.workers.append(worker)
        await worker.start()
        return worker

    async def _changed(self) -> None:
        if not self.statuses.assignment():
            topic = self.settings["status.storage.topic"]
            async with Admin(bootstrap_servers=self.settings["bootstrap.servers"]) as admin:
                partitions = len((await admin.describe_topics([topic]))[topic].partitions)
            self.statuses.assign([(topic, number) for number in range(partitions)])
        await self.statuses.poll(MOMENT_MS)

    @property
    def logs(self) -> str:
        return "\n".join(f"== {worker.url}\n{worker.log[-6000:]}" for worker in self.workers)


@asynccontextmanager
async def group(
    bootstrap: str, name: str, directory: Path, settings: Mapping[str, str] | None = None
) -> AsyncIterator[Group]:
    """Run a group. At the end, all of its workers are stopped, and those of Kafka Connect are killed."""
    workers = Group(bootstrap, name, directory, settings)
    async with (
        aiohttp.ClientSession() as workers.session,
        Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as workers.statuses,
    ):
        try:
            yield workers
        except BaseException:
            print(workers.logs)
            raise
        finally:
            await asyncio.gather(
                *(worker.kill() if isinstance(worker, JavaWorker) else worker.end() for worker in workers.workers)
            )


def beats(topic: str, tasks: int = 2, **settings: str) -> dict[str, str]:
    """Return the settings of a connector whose tasks write 0, 1, 2, … each."""
    return {
        "connector.class": "HeartbeatSource",
        "topic": topic,
        "tasks.max": str(tasks),
        "interval.ms": "2",
        "batch.size": "3",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }


def each_has(count: int, tasks: int) -> Callable[[dict[Any, list[Any]]], bool]:
    return lambda values: len(values) == tasks and all(len(counts) >= count for counts in values.values())


async def committed(bootstrap: str, topic: str, enough: Callable[[dict[Any, list[Any]]], bool]) -> dict[Any, list[Any]]:
    """Return the JSON values of a topic's committed records by JSON key, as soon as `enough` accepts them."""
    values: dict[Any, list[Any]] = {}
    try:
        async with _reader(bootstrap, topic) as consumer, asyncio.timeout(ANSWER_S):
            while not enough(values):
                _take(values, await consumer.poll(MOMENT_MS))
    except TimeoutError:
        counts = {key: len(counts) for key, counts in values.items()}
        raise AssertionError(f"not enough records within {ANSWER_S} s: {counts}") from None
    return values


async def all_committed(bootstrap: str, topic: str) -> dict[Any, list[Any]]:
    """Return the JSON values of all committed records by JSON key. All writers must have ended or been fenced."""
    values: dict[Any, list[Any]] = {}
    async with _reader(bootstrap, topic) as consumer, asyncio.timeout(ANSWER_S):
        partition = TopicPartition(topic, 0)
        async with Admin(bootstrap_servers=bootstrap) as admin:
            end = (await admin.list_offsets({partition: -1}))[partition].offset
        while await consumer.position(partition) < end:
            _take(values, await consumer.poll(MOMENT_MS))
    return values


@asynccontextmanager
async def _reader(bootstrap: str, topic: str) -> AsyncIterator[Consumer]:
    settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    async with Consumer(settings, bootstrap_servers=bootstrap) as consumer:
        consumer.assign([(topic, 0)])
        yield consumer


def _take(values: dict[Any, list[Any]], records: Iterable[ConsumerRecord]) -> None:
    for record in records:
        key = json.loads(record.key) if record.key else None
        values.setdefault(key, []).append(json.loads(record.value or b"null"))


def assert_exactly_once(values: Mapping[Any, list[Any]]) -> None:
    """Check that the values of each key are 0, 1, 2, … without a gap, a repetition or a change of order."""
    for key, counts in values.items():
        assert counts == list(range(len(counts))), f"task {key}: {_first_wrong(counts)}"


def _first_wrong(counts: list[int]) -> str:
    for place, count in enumerate(counts):
        if count != place:
            return f"{count} where {place} belongs, in {counts[max(0, place - 3) : place + 4]}"
    return "none"
