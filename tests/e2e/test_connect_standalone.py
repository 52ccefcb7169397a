"""A standalone connect worker: exactly-once, REST interface, kills. With --kafka on Apache Kafka."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from oncelog import Admin, Consumer

aiohttp = pytest.importorskip("aiohttp", reason="needs the extra: pip install 'oncelog[connect]'")
from oncelog.connect.errors import ConnectError  # noqa: E402
from oncelog.connect.process import StandaloneWorker  # noqa: E402
from oncelog.connect.settings.files import read_connector  # noqa: E402
from oncelog.protocol.messages.list_transactions import ListTransactionsRequest  # noqa: E402
from support.connect_workers import all_committed, assert_exactly_once, beats  # noqa: E402
from support.proxy import FaultProxy  # noqa: E402

Names = Callable[[str], str]


class Rest:
    """The REST interface of a worker."""

    def __init__(self, session: Any, url: str) -> None:
        self.session, self.url = session, url

    async def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        skipped = ["Content-Type"]  # aiohttp would send application/octet-stream without a body, which is refused
        async with self.session.request(
            method, self.url + path, json=body, skip_auto_headers=skipped if body is None else []
        ) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None

    async def until(self, path: str, wanted: Callable[[Any], bool]) -> Any:
        """Ask again until the answer is so; what a task does shows a moment later."""
        async with asyncio.timeout(60):
            while True:
                _, answer = await self("GET", path)
                if wanted(answer):
                    return answer
                await asyncio.sleep(0.01)


def alone_settings(bootstrap: str, name: str, **settings: str) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "listeners": "http://127.0.0.1:0",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "exactly.once.source.support": "enabled",
        "group.id": name,
        "offset.storage.topic": f"{name}-offsets",
        "offset.storage.replication.factor": "1",
        **{key.replace("_", "."): value for key, value in settings.items()},
    }


@asynccontextmanager
async def worker(bootstrap: str, name: str, **settings: str) -> AsyncIterator[Rest]:
    """Run a worker that does exactly-once."""
    alone = StandaloneWorker(alone_settings(bootstrap, name, **settings))
    await alone.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield Rest(session, alone.url)
    finally:
        await alone.stop()


async def committed(bootstrap: str, topic: str, count: int) -> list[Any]:
    """Return the first values of a topic that a reader of committed records sees."""
    values: list[Any] = []
    async with Consumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([(topic, 0)])
        async with asyncio.timeout(60):
            while len(values) < count:
                values += [json.loads(record.value or b"null") for record in await consumer.poll(200)]
    return values


async def test_a_file_says_in_which_state_its_connector_begins(
    bootstrap: str, fresh_name: Names, tmp_path: Path
) -> None:
    name, file = fresh_name("files"), tmp_path / "files.json"
    config = {"connector.class": "FileStreamSource", "file": str(tmp_path / "source.txt"), "topic": name}
    alone = StandaloneWorker(alone_settings(bootstrap, name))
    file.write_text(json.dumps({"name": "files", "config": config, "initial_state": "STOPPED"}))
    await alone.start([read_connector(file)])
    async with aiohttp.ClientSession() as session:
        await Rest(session, alone.url).until("/connectors/files/status", lambda known: "connector" in known)
    status = await alone.herder.connector_status("files")
    await alone.stop()
    assert (status["connector"]["state"], status["tasks"]) == ("STOPPED", [])
    file.write_text(json.dumps({"name": "files", "config": config, "initial_state": "SLEEPING"}))
    with pytest.raises(ConnectError, match="initial_state must be RUNNING, PAUSED or STOPPED, not 'SLEEPING'"):
        await StandaloneWorker(alone_settings(bootstrap, name)).start([read_connector(file)])


async def test_lines_of_a_file_come_once_over_restarts(bootstrap: str, fresh_name: Names, tmp_path: Path) -> None:
    topic, group, source = fresh_name("lines"), fresh_name("alone"), tmp_path / "source.txt"
    source.write_text("a\nb\r\né\nhalf")
    config = {"connector.class": "FileStreamSource", "topic": topic, "file": str(source), "transforms": "t",
              "transforms.t.type": "HoistField$Value", "transforms.t.field": "line"}  # fmt: skip
    async with worker(bootstrap, group) as rest:
        assert (await rest("POST", "/connectors", {"name": "lines", "config": config}))[0] == 201
        offsets = await rest.until("/connectors/lines/offsets", lambda answer: bool(answer.get("offsets")))
        assert offsets["offsets"] == [{"partition": {"filename": str(source)}, "offset": {"position": 8}}]
        assert await committed(bootstrap, topic, 3) == [{"line": "a"}, {"line": "b"}, {"line": "é"}]
    with source.open("a") as file:
        file.write(" done\nlast\n")
    async with worker(bootstrap, group) as rest:
        assert (await rest("PUT", "/connectors/lines/config", config))[0] == 201
        lines = [value["line"] for value in await committed(bootstrap, topic, 5)]
        assert lines == ["a", "b", "é", "half done", "last"]
        assert await rest("GET", "/connectors/lines/topics") == (200, {"lines": {"topics": [topic]}})


async def test_variables_are_replaced_where_they_are_used_and_nowhere_shown(
    bootstrap: str, fresh_name: Names, tmp_path: Path
) -> None:
    topic, group, source = fresh_name("lines"), fresh_name("alone"), tmp_path / "source.txt"
    source.write_text("a\n")
    (tmp_path / "values").write_text(f"topic={topic}\nfile={source}\n")
    variables = {name: f"${{file:{tmp_path / 'values'}:{name}}}" for name in ("topic", "file")}
    providers = {"config_providers": "file", "config_providers_file_class": "FileConfigProvider"}
    config = {"connector.class": "FileStreamSource", **variables, "transforms": "t",
              "transforms.t.type": "HoistField$Value", "transforms.t.field": "line"}  # fmt: skip
    async with worker(bootstrap, group, **providers) as rest:
        assert (await rest("POST", "/connectors", {"name": "lines", "config": config}))[0] == 201
        assert await committed(bootstrap, topic, 1) == [{"line": "a"}]
        (task,) = await rest.until("/connectors/lines/tasks", bool)
        for _, shown in (await rest("GET", "/connectors/lines/config"), (200, task["config"])):
            assert {name: shown[name] for name in variables} == variables
        assert await rest("PATCH", "/connectors/lines/config", {"topic": "${file:/missing:topic}"}) == (
            500,
            {
                "error_code": 500,
                "message": "Invalid value ${file:/missing:topic} for configuration topic: /missing is not a file",
            },
        )
        assert (await rest("PUT", "/connectors/lines/stop"))[0] == 204
        offsets = [{"partition": {"filename": str(source)}, "offset": {"position": 0}}]
        assert (await rest("PATCH", "/connectors/lines/offsets", {"offsets": offsets}))[0] == 200
        assert (await rest("PUT", "/connectors/lines/resume"))[0] == 202
        assert await committed(bootstrap, topic, 2) == [{"line": "a"}] * 2


@pytest.mark.parametrize(
    "boundary",
    [
        {"transaction.boundary": "poll"},
        {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "50"},
        {"transaction.boundary": "connector", "transaction.size": "10"},
    ],
    ids=lambda boundary: boundary["transaction.boundary"],
)
async def test_each_boundary_commits_records_with_their_offsets(
    bootstrap: str, fresh_name: Names, boundary: dict[str, str]
) -> None:
    topic, group = fresh_name("beats"), fresh_name("alone")
    config = {
        "connector.class": "oncelog.connect.HeartbeatSourceConnector",
        "exactly.once.support": "required",
        "topic": topic,
        "interval.ms": "1",
        "batch.size": "7",
        "limit": "70",
        **boundary,
    }
    async with worker(bootstrap, group) as rest:
        status, answer = await rest("POST", "/connectors", {"name": "beats", "config": config})
        assert status == 201, answer
        await rest.until("/connectors/beats/offsets", lambda known: _count(known) == 70)
        assert await committed(bootstrap, topic, 70) == list(range(70))


async def test_an_older_worker_is_fenced_by_the_newer_one(bootstrap: str, fresh_name: Names) -> None:
    topic, group = fresh_name("beats"), fresh_name("alone")
    config = {"connector.class": "HeartbeatSource", "topic": topic, "interval.ms": "1", "batch.size": "5"}
    async with worker(bootstrap, group) as old, worker(bootstrap, group) as new:
        await old("PUT", "/connectors/beats/config", config)
        await old.until("/connectors/beats/offsets", lambda known: _count(known) > 20)
        await new("PUT", "/connectors/beats/config", config)
        await old.until("/connectors/beats/status", lambda known: known["tasks"][0]["state"] == "FAILED")
        count = _count((await new("GET", "/connectors/beats/offsets"))[1])
        await new.until("/connectors/beats/offsets", lambda known: _count(known) > count + 20)
    values = await committed(bootstrap, topic, count + 20)
    assert values == list(range(len(values)))


def tasks_are(*states: str) -> Callable[[Any], bool]:
    return lambda status: [task["state"] for task in status["tasks"]] == list(states)


async def test_no_task_starts_before_all_tasks_of_another_worker_are_fenced(bootstrap: str, fresh_name: Names) -> None:
    topic, group = fresh_name("beats"), fresh_name("alone")
    async with FaultProxy(bootstrap) as proxy, worker(bootstrap, group) as old:
        assert (await old("PUT", "/connectors/beats/config", beats(topic, 2)))[0] == 201
        await old.until("/connectors/beats/status", tasks_are("RUNNING", "RUNNING"))
        settings = {"task_restart_max_attempts": "0", "admin_default_api_timeout_ms": "8000"}
        async with worker(proxy.address, group, admin_request_timeout_ms="8000", **settings) as new:
            proxy.break_before(ListTransactionsRequest, times=10_000)
            assert (await new("PUT", "/connectors/beats/config", beats(topic, 2)))[0] == 201
            failed = await new.until("/connectors/beats/status", tasks_are("FAILED", "FAILED"))
            assert "list transactions" in failed["tasks"][0]["trace"]
            assert tasks_are("RUNNING", "RUNNING")((await old("GET", "/connectors/beats/status"))[1])
            proxy.clear_faults()
            assert (await new("POST", "/connectors/beats/restart?includeTasks=true"))[0] == 202
            await new.until("/connectors/beats/status", tasks_are("RUNNING", "RUNNING"))
            await old.until("/connectors/beats/status", tasks_are("FAILED", "FAILED"))
    assert_exactly_once(await all_committed(bootstrap, topic))


async def test_offsets_change_after_all_tasks_of_another_worker_are_fenced(bootstrap: str, fresh_name: Names) -> None:
    topic, group = fresh_name("beats"), fresh_name("alone")
    async with worker(bootstrap, group) as old, worker(bootstrap, group) as new:
        assert (await old("PUT", "/connectors/beats/config", beats(topic, 2)))[0] == 201
        await old.until("/connectors/beats/offsets", lambda answer: len(answer.get("offsets", ())) == 2)
        stopped = {"name": "beats", "config": beats(topic, 2), "initial_state": "STOPPED"}
        assert (await new("POST", "/connectors", stopped))[0] == 201
        assert (await new("DELETE", "/connectors/beats/offsets"))[0] == 200
        await old.until("/connectors/beats/status", tasks_are("FAILED", "FAILED"))
        assert (await new("GET", "/connectors/beats/offsets")) == (200, {"offsets": []})


async def test_a_separate_offsets_topic_is_copied_to_the_workers(bootstrap: str, fresh_name: Names) -> None:
    topic, group, own = fresh_name("beats"), fresh_name("alone"), fresh_name("own-offsets")
    config = {"connector.class": "HeartbeatSource", "topic": topic, "interval.ms": "1", "limit": "5"}
    async with worker(bootstrap, group) as rest:
        await rest("PUT", "/connectors/beats/config", {**config, "offsets.storage.topic": own})
        await rest.until("/connectors/beats/offsets", lambda known: _count(known) == 5)
        assert await committed(bootstrap, topic, 5) == list(range(5))
        async with Admin(bootstrap_servers=bootstrap) as admin:
            assert own in await admin.list_topics(internal=True)
    async with worker(bootstrap, group) as rest:  # without it, the worker's topic says where to go on
        await rest("PUT", "/connectors/beats/config", {**config, "limit": "10"})
        await rest.until("/connectors/beats/offsets", lambda known: _count(known) == 10)
        assert await committed(bootstrap, topic, 10) == list(range(10))


async def test_pause_resume_stop_and_offsets_over_rest(bootstrap: str, fresh_name: Names) -> None:
    topic, group = fresh_name("beats"), fresh_name("alone")
    config = {"connector.class": "HeartbeatSource", "topic": topic, "interval.ms": "1", "limit": "5"}
    async with worker(bootstrap, group) as rest:
        await rest("POST", "/connectors", {"name": "beats", "config": config, "initial_state": "PAUSED"})
        await rest.until("/connectors/beats/status", _states("PAUSED", []))
        assert await rest("PUT", "/connectors/beats/resume") == (202, None)
        await rest.until("/connectors/beats/offsets", lambda known: _count(known) == 5)
        await rest.until("/connectors/beats/status", _states("RUNNING", ["RUNNING"]))
        status, answer = await rest("DELETE", "/connectors/beats/offsets")
        assert status == 400
        assert answer["message"].startswith(
            "Connectors must be in the STOPPED state before their offsets can be modified"
        )
        assert await rest("PUT", "/connectors/beats/stop") == (204, None)
        await rest.until("/connectors/beats/status", _states("STOPPED", []))
        changed = {"offsets": [{"partition": {"task": 0}, "offset": {"count": 3}}]}
        status, answer = await rest("PATCH", "/connectors/beats/offsets", changed)
        assert status == 200
        assert answer["message"].startswith(
            "The Connect framework-managed offsets for this connector have been altered"
        )
        assert await rest("GET", "/connectors/beats/offsets") == (200, changed)
        assert await rest("PUT", "/connectors/beats/resume") == (202, None)
        await rest.until("/connectors/beats/offsets", lambda known: _count(known) == 5)
        assert await committed(bootstrap, topic, 7) == [0, 1, 2, 3, 4, 3, 4]
        status, answer = await rest("POST", "/connectors/beats/restart?includeTasks=true")
        assert (status, answer["connector"]["state"], answer["tasks"][0]["state"]) == (202, "RESTARTING", "RESTARTING")
        await rest.until("/connectors/beats/status", _states("RUNNING", ["RUNNING"]))
        assert await rest("DELETE", "/connectors/beats") == (204, None)
        assert (await rest("GET", "/connectors/beats/status"))[0] in (200, 404)
        assert await rest("GET", "/connectors") == (200, [])


async def test_a_paused_connector_with_new_settings_goes_on_with_its_tasks(bootstrap: str, fresh_name: Names) -> None:
    config = {"connector.class": "HeartbeatSource", "topic": fresh_name("beats"), "interval.ms": "1"}
    async with worker(bootstrap, fresh_name("alone")) as rest:
        await rest("POST", "/connectors", {"name": "beats", "config": config})
        await rest.until("/connectors/beats/status", _states("RUNNING", ["RUNNING"]))
        assert await rest("PUT", "/connectors/beats/pause") == (202, None)
        await rest.until("/connectors/beats/status", _states("PAUSED", ["PAUSED"]))
        assert (await rest("PUT", "/connectors/beats/config", {**config, "batch.size": "2"}))[0] == 200
        assert await rest("PUT", "/connectors/beats/resume") == (202, None)
        await rest.until("/connectors/beats/status", _states("RUNNING", ["RUNNING"]))


async def test_a_topic_is_listed_when_a_record_was_written_and_not_before(
    bootstrap: str, fresh_name: Names, tmp_path: Path
) -> None:
    topic, source = fresh_name("lines"), tmp_path / "source.txt"
    source.write_text("a\nb\n")
    config = {"connector.class": "FileStreamSource", "file": str(source)}
    async with worker(bootstrap, fresh_name("alone")) as rest:
        await rest("POST", "/connectors", {"name": "refused", "config": {**config, "topic": "no topic"}})
        await rest.until("/connectors/refused/status", _states("RUNNING", ["FAILED"]))
        assert await rest("GET", "/connectors/refused/topics") == (200, {"refused": {"topics": []}})
        await rest("POST", "/connectors", {"name": "lines", "config": {**config, "topic": topic}})
        await rest.until("/connectors/lines/topics", lambda known: known == {"lines": {"topics": [topic]}})


async def test_a_topic_that_is_written_to_is_listed_again_behind_a_reset(bootstrap: str, fresh_name: Names) -> None:
    topic = fresh_name("beats")
    config = {"connector.class": "HeartbeatSource", "topic": topic, "interval.ms": "1"}
    async with worker(bootstrap, fresh_name("alone")) as rest:
        await rest("POST", "/connectors", {"name": "beats", "config": config})
        await rest.until("/connectors/beats/topics", lambda known: known == {"beats": {"topics": [topic]}})
        assert await rest("PUT", "/connectors/beats/topics/reset") == (202, None)
        await rest.until("/connectors/beats/topics", lambda known: known == {"beats": {"topics": [topic]}})


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("GET", "/connectors/none", None, 404, "Connector none not found"),
        ("GET", "/connectors/none/status", None, 404, "No status found for connector none"),
        ("GET", "/connectors/none/tasks/0/status", None, 404, "No status found for task none-0"),
        ("PUT", "/connectors/none/pause", None, 404, "Unknown connector none"),
        ("POST", "/connectors/none/restart", None, 404, "Unknown connector: none"),
        ("GET", "/connectors/none/tasks-config", None, 404, "HTTP 404 Not Found"),
        ("DELETE", "/connectors", None, 405, "HTTP 405 Method Not Allowed"),
        (
            "POST",
            "/connectors",
            {"name": "x", "config": {}},
            400,
            "Connector config {name=x} contains no connector type",
        ),
        ("POST", "/connectors", {"name": "x", "bogus": 1}, 500, 'Unrecognized field "bogus"'),
        (
            "PUT",
            "/connector-plugins/Nope/config/validate",
            {"connector.class": "Nope"},
            500,
            "Failed to find any class",
        ),
        ("PUT", "/admin/loggers/a", {"level": "LOUD"}, 404, "invalid log level 'LOUD'."),
        ("GET", "/connector-plugins/Nope/config", None, 404, "Unknown plugin Nope."),
        (
            "PUT",
            "/connectors/x/config",
            {"name": "y", "connector.class": "FileStreamSource"},
            400,
            "Connector name configuration (y) doesn't match connector name in the URL (x)",
        ),
        (
            "PUT",
            "/connectors/x/config",
            {"connector.class": "FileStreamSource"},
            400,
            (
                "Connector configuration is invalid and contains the following 1 error(s):\n"
                'Missing required configuration "topic" which has no default value.\n'
            ),
        ),
        (
            "PUT",
            "/connectors/x/config",
            {"connector.class": "FileStreamSource", "topic": "t", "exactly.once.support": "required"},
            400,
            (
                "Connector configuration is invalid and contains the following 1 error(s):\n"
                "The connector does not support exactly-once semantics with the provided configuration.\n"
            ),
        ),
    ],
)
async def test_errors_are_those_of_kafka_connect(
    bootstrap: str, fresh_name: Names, method: str, path: str, body: Any, status: int, message: str
) -> None:
    async with worker(bootstrap, fresh_name("alone")) as rest:
        code, answer = await rest(method, path, body)
        assert (code, answer["error_code"]) == (status, status)
        assert answer["message"].startswith(message)


@pytest.mark.timeout(300)
async def test_kills_leave_no_gap_and_no_duplicate(bootstrap: str, fresh_name: Names, tmp_path: Path) -> None:
    topic, group = fresh_name("beats"), fresh_name("alone")
    settings, connector = tmp_path / "worker.properties", tmp_path / "beats.properties"
    settings.write_text(
        f"bootstrap.servers={bootstrap}\nlisteners=http://127.0.0.1:0\nkey.converter=JsonConverter\n"
        "value.converter=JsonConverter\nvalue.converter.schemas.enable=false\nexactly.once.source.support=enabled\n"
        f"group.id={group}\noffset.storage.topic={group}-offsets\noffset.storage.replication.factor=1\n"
    )
    connector.write_text(
        f"name=beats\nconnector.class=HeartbeatSource\ntopic={topic}\ninterval.ms=1\nbatch.size=3\n"
        "transaction.boundary=interval\ntransaction.boundary.interval.ms=20\n"
    )
    command = [sys.executable, "-m", "oncelog.cli", "connect", "standalone", str(settings), str(connector)]
    seen = 0
    for number in range(3):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert process.stdout is not None
            assert (await asyncio.to_thread(process.stdout.readline)).startswith("ready http://")
            seen = len(await committed(bootstrap, topic, seen + 40))
        finally:
            process.send_signal(signal.SIGTERM if number == 2 else signal.SIGKILL)
            assert process.stdout is not None
            process.stdout.close()
            code = await asyncio.to_thread(process.wait, 30)
        assert code == (0 if number == 2 else -signal.SIGKILL)
    values = await committed(bootstrap, topic, seen)
    assert values == list(range(len(values)))


HANGS = """
import time
from oncelog.connect import SourceConnector

class Hangs(SourceConnector):
    task_class = None

    def start(self, config):
        print("ready to hang", flush=True)
        time.sleep(1000)
"""


@pytest.mark.parametrize(("connector", "end"), [("hangs:Hangs", signal.SIGTERM), ("FileStreamSource", signal.SIGHUP)])
async def test_a_worker_ends_although_a_start_or_a_read_of_its_standard_input_hangs(
    bootstrap: str, fresh_name: Names, tmp_path: Path, connector: str, end: signal.Signals
) -> None:
    topic, settings, lines = fresh_name("lines"), tmp_path / "worker.properties", tmp_path / "lines.properties"
    settings.write_text(
        f"bootstrap.servers={bootstrap}\nlisteners=http://127.0.0.1:0\nkey.converter=JsonConverter\n"
        f"value.converter=JsonConverter\noffset.storage.file.filename={tmp_path / 'offsets'}\n"
        "task.shutdown.graceful.timeout.ms=100\n"
    )
    lines.write_text(f"name=lines\nconnector.class={connector}\ntopic={topic}\n")
    (tmp_path / "hangs.py").write_text(HANGS)
    process = subprocess.Popen(
        [sys.executable, "-m", "oncelog.cli", "connect", "standalone", str(settings), str(lines)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        try:
            assert (await asyncio.to_thread(process.stdout.readline)).startswith("ready ")
            if connector == "FileStreamSource":
                process.stdin.write('"a"\n')
                process.stdin.flush()
                assert len(await committed(bootstrap, topic, 1)) == 1
            process.send_signal(end)
            assert await asyncio.to_thread(process.wait, 30) == 0
        finally:
            process.kill()
            await asyncio.to_thread(process.wait)


def _count(known: Any) -> int:
    offsets = known.get("offsets") or [{"offset": {"count": 0}}]
    return int(offsets[0]["offset"]["count"])


def _states(connector: str, tasks: list[str]) -> Callable[[Any], bool]:
    def wanted(known: Any) -> bool:
        if "connector" not in known:
            return False
        return (known["connector"]["state"], [task["state"] for task in known["tasks"]]) == (connector, tasks)

    return wanted
