"""What a worker reports of connectors that cannot be started."""

from __future__ import annotations

import asyncio
import urllib.parse
from typing import Any, ClassVar

import pytest
from oncelog.connect.api.connector import SourceConnector
from oncelog.connect.api.task import SourceTask
from oncelog.connect.errors import ConnectError
from oncelog.connect.herder import offset_requests
from oncelog.connect.herder.validation import validate_connector
from oncelog.connect.settings.worker import STANDALONE, WorkerConfig
from oncelog.connect.stores.config_records import TargetState
from oncelog.connect.stores.ids import ConnectorTaskId
from oncelog.connect.stores.memory_log import MemoryLog
from oncelog.connect.stores.offset_store import OffsetStore
from oncelog.connect.stores.status_records import State
from oncelog.connect.task.at_least_once import AtLeastOnceDelivery
from oncelog.connect.task.runner import TaskRunner
from oncelog.connect.worker.offset_stores import OffsetStores
from oncelog.connect.worker.task_factory import TaskFactory
from oncelog.connect.worker.worker import Worker


class Listener:
    def __init__(self) -> None:
        self.heard: list[tuple[str | ConnectorTaskId, State]] = []
        self.traces: list[str] = []

    async def status(self, what: str | ConnectorTaskId, state: State, trace: str | None, version: str | None) -> None:
        self.heard.append((what, state))
        self.traces += [trace] if trace else []

    def topic_used(self, task: ConnectorTaskId, topic: str) -> None:
        pass

    def topics_in_use(self, connector: str) -> set[str]:
        return set()


class Slow(SourceConnector):
    """Waits in its start until it is cancelled."""

    events: list[str]
    starting: asyncio.Event

    @property
    def task_class(self) -> Any:  # type: ignore[override]
        raise NotImplementedError

    async def start(self, config: Any) -> None:
        self.events.append("start")
        self.starting.set()
        await asyncio.Event().wait()

    async def task_configs(self, max_tasks: int) -> Any:
        return []

    async def stop(self) -> None:
        self.events.append("stop")


class WatchedLog(MemoryLog):
    """Notes the topics that are read."""

    reading: ClassVar[set[str]] = set()

    def __init__(self, topic: str) -> None:
        super().__init__()
        self._topic = topic
        self.reading.add(topic)

    async def stop(self) -> None:
        self.reading.discard(self._topic)


async def worker(**settings: str) -> tuple[Worker, Listener]:
    listener, offsets = Listener(), OffsetStore(MemoryLog())
    await offsets.start()
    settings = {**CONVERTERS, "group.id": "g", "offset.storage.topic": "offsets", **settings}
    return Worker(WorkerConfig(STANDALONE, settings), offsets, listener), listener


CONVERTERS = {"key.converter": "StringConverter", "value.converter": "StringConverter"}


def nothing() -> None:
    pass


async def test_a_connector_whose_class_is_missing_here_is_failed() -> None:
    running, listener = await worker()
    config = {"name": "c", "connector.class": "no.such.module:Connector"}
    with pytest.raises(ConnectError, match="could not be set up"):
        await running.start_connector("c", config, TargetState.STARTED, nothing)
    assert listener.heard == [("c", State.FAILED)]
    assert not running.connector_running("c")
    await running.stop()


async def test_a_task_whose_class_is_missing_here_is_failed() -> None:
    running, listener = await worker()
    task = ConnectorTaskId("c", 0)
    config = {"name": "c", "connector.class": "no.such.module:Connector"}
    assert not await running.start_task(task, config, {"task.class": "no.such.module:Task"}, TargetState.STARTED)
    assert listener.heard == [(task, State.FAILED)]
    await running.stop()


@pytest.mark.parametrize("override", [{"acks": "bogus"}, {"acks": "1", "enable.idempotence": "true"}])
async def test_a_task_whose_producer_has_invalid_settings_is_failed(override: dict[str, str]) -> None:
    running, listener = await worker()
    task = ConnectorTaskId("c", 0)
    config = {"name": "c", "connector.class": "FileStreamSource", "file": "f", "topic": "t"}
    config |= {f"producer.override.{name}": value for name, value in override.items()}
    settings = {**config, "task.class": "FileStreamSourceTask"}
    assert not await running.start_task(task, config, settings, TargetState.STARTED)
    assert listener.heard == [(task, State.FAILED)]
    await running.stop()


async def test_a_task_that_the_herder_cannot_start_is_failed_and_counted() -> None:
    running, listener = await worker()
    task = ConnectorTaskId("c", 0)
    await running.task_failed(task, ConnectError("without settings"))
    assert listener.heard == [(task, State.FAILED)]
    assert "task_startup_failure_total 1" in running.metrics()
    await running.stop()


async def test_a_connector_whose_start_is_cancelled_is_stopped() -> None:
    running, listener = await worker()
    Slow.events, Slow.starting = [], asyncio.Event()
    config = {"name": "c", "connector.class": f"{__name__}:Slow"}
    starting = asyncio.create_task(running.start_connector("c", config, TargetState.STARTED, nothing))
    await Slow.starting.wait()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await running.stop_connector("c")
    assert Slow.events == ["start", "stop"]
    assert listener.heard == [("c", State.UNASSIGNED)]
    await running.stop()


async def test_the_own_topic_of_a_connector_that_is_gone_is_not_read_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OffsetStores, "_log", lambda self, topic, clients: WatchedLog(topic))
    running, _ = await worker()
    for name in ("a", "b"):
        config = {"name": name, "connector.class": "FileStreamSource", "offsets.storage.topic": f"offsets-{name}"}
        await running.offset_stores(name, config)
    assert WatchedLog.reading == {"offsets-a", "offsets-b"}
    await running.keep_offsets_of({"b"})
    assert WatchedLog.reading == {"offsets-b"}
    await running.stop()
    assert not WatchedLog.reading


async def test_a_connector_of_a_version_that_is_not_installed_here_is_failed() -> None:
    running, listener = await worker()
    task = ConnectorTaskId("c", 0)
    config = {"name": "c", "connector.class": "FileStreamSource", "connector.plugin.version": "9.9"}
    with pytest.raises(ConnectError, match="not found that matches the version range"):
        await running.start_connector("c", config, TargetState.STARTED, nothing)
    await running.start_task(task, config, {"task.class": "FileStreamSourceTask"}, TargetState.STARTED)
    assert listener.heard == [("c", State.FAILED), (task, State.FAILED)]
    await running.stop()


class Recording(SourceConnector):
    """Notes the settings that it gets, and gives them to one task."""

    seen: ClassVar[list[dict[str, str]]] = []

    @property
    def task_class(self) -> Any:  # type: ignore[override]
        return RecordingTask

    def start(self, config: Any) -> None:
        self.config = config
        self.seen.append(dict(config))

    def task_configs(self, max_tasks: int) -> Any:
        return [{**self.config, "part": "1"}]

    def alter_offsets(self, config: Any, offsets: Any) -> bool:
        self.seen.append(dict(config))
        return True


class RecordingTask(SourceTask):
    """Notes the settings that it gets, and then fails."""

    def start(self, config: Any) -> None:
        Recording.seen.append(dict(config))
        raise ConnectError("enough")

    def poll(self) -> Any:
        raise NotImplementedError


async def test_a_connector_and_its_tasks_get_values_and_the_config_topic_gets_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, _ = await worker(**{"config.providers": "env", "config.providers.env.class": "EnvVarConfigProvider"})
    monkeypatch.setenv("PASSWORD", "secret")
    stored = {"name": "c", "connector.class": f"{__name__}:Recording", "password": "${env:PASSWORD}"}
    Recording.seen.clear()
    await running.start_connector("c", stored, TargetState.STARTED, nothing)
    (task,) = await running.task_configs("c")
    assert task == {**stored, "part": "1", "task.class": f"{__name__}:RecordingTask"}
    await offset_requests.change(running, stored, "c", None)
    assert Recording.seen == [{**stored, "password": "secret"}] * 2
    await running.stop()


async def test_settings_of_tasks_that_cannot_be_stored_are_refused() -> None:
    running, _ = await worker()
    config = {"name": "c", "connector.class": f"{__name__}:Recording", "letter": "\ud800"}
    await running.start_connector("c", config, TargetState.STARTED, nothing)
    with pytest.raises(ConnectError, match="gave task 0 settings that cannot be stored"):
        await running.task_configs("c")
    await running.stop()


async def test_a_connector_and_a_task_whose_variable_has_no_value_are_failed() -> None:
    running, listener = await worker(
        **{"config.providers": "env", "config.providers.env.class": "EnvVarConfigProvider"}
    )
    task = ConnectorTaskId("c", 0)
    config = {"name": "c", "connector.class": f"{__name__}:Recording", "password": "${env:ONCELOG_MISSING}"}
    with pytest.raises(ConnectError, match="has no variable ONCELOG_MISSING"):
        await running.start_connector("c", config, TargetState.STARTED, nothing)
    settings = {**config, "task.class": f"{__name__}:RecordingTask"}
    await running.start_task(task, config, settings, TargetState.STARTED)
    assert listener.heard == [("c", State.FAILED), (task, State.FAILED)]
    await running.stop()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"transforms": "gone", "transforms.gone.type": "no.such.Transform"}, "transforms.gone.type"),
        ({"transforms": "t", "transforms.t.type": "RegexRouter", "transforms.t.regex": "("}, "for configuration regex"),
        ({"predicates": "p", "predicates.p.type": "TopicNameMatches"}, "predicates.p.pattern"),
        ({"topic.creation.default.partitions": "0"}, "topic.creation.default"),
        ({"errors.tolerance": "some"}, "errors.tolerance"),
        ({"value.converter": "no.such.Converter"}, "value.converter"),
    ],
)
async def test_a_connector_whose_stored_settings_are_not_valid_any_more_is_failed(
    settings: dict[str, str], problem: str
) -> None:
    running, listener = await worker()
    config = {"name": "c", "connector.class": f"{__name__}:Recording", **settings}
    with pytest.raises(ConnectError, match=problem):
        await running.start_connector("c", config, TargetState.STARTED, nothing)
    assert listener.heard == [("c", State.FAILED)]
    await running.stop()


class Telling(SourceConnector):
    """Quotes its password in each of its errors."""

    @property
    def task_class(self) -> Any:  # type: ignore[override]
        return TellingTask

    def start(self, config: Any) -> None:
        raise RuntimeError(f"cannot log in with {config['password']}")

    def validate(self, config: Any) -> Any:
        raise RuntimeError(f"cannot check {config['password']}")

    def alter_offsets(self, config: Any, offsets: Any) -> bool:
        raise ConnectError(f"cannot log in with {config['password']}")

    def task_configs(self, max_tasks: int) -> Any:
        raise NotImplementedError


class TellingTask(SourceTask):
    """Quotes its password and the worker's in its error."""

    def start(self, config: Any) -> None:
        raise OSError(5, f"{config['password']!r}, url=//u:{urllib.parse.quote(config['password'])}@h, worker's secret")

    def poll(self) -> Any:
        raise NotImplementedError


async def test_no_status_and_no_error_contains_the_value_of_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "hunter'2/\n\nBEGIN KEY")
    monkeypatch.setenv("OF_WORKER", "worker's secret")
    running, listener = await worker(
        **{"config.providers": "env", "config.providers.env.class": "EnvVarConfigProvider"},
        **{"producer.client.id": "${env:OF_WORKER}"},
    )
    name = f"{__name__}:Telling"
    stored = {"name": "c", "connector.class": name, "password": "${env:PASSWORD}"}
    with pytest.raises(ConnectError, match=r"could not be started: cannot log in with \$\{env:PASSWORD\}"):
        await running.start_connector("c", stored, TargetState.STARTED, nothing)
    task = ConnectorTaskId("c", 0)
    settings = {**stored, "task.class": f"{name}Task", "producer.override.linger.ms": "${env:PASSWORD}"}
    monkeypatch.setattr(AtLeastOnceDelivery, "start", returns)
    monkeypatch.setattr(AtLeastOnceDelivery, "finish_failed", returns)
    monkeypatch.setattr(AtLeastOnceDelivery, "close", returns)
    await running.start_task(task, stored, settings, TargetState.STARTED)
    while len(listener.heard) < 2:
        await asyncio.sleep(0.001)
    await running.start_task(
        ConnectorTaskId("c", 1), {**stored, "errors.tolerance": "${env:PASSWORD}"}, settings, TargetState.STARTED
    )
    assert [state for _, state in listener.heard] == [State.FAILED] * 3
    with pytest.raises(ConnectError, match=r"cannot log in with \$\{env:PASSWORD\}"):
        await offset_requests.change(running, stored, "c", [({"a": 1}, None)])
    with pytest.raises(ConnectError, match=r"cannot check \$\{env:PASSWORD\}"):
        await validate_connector(
            stored, running.table, exactly_once=False, override_policy="All", providers=running.config.providers
        )
    connector, task_started, task_made = listener.traces
    assert "RuntimeError: cannot log in with ${env:PASSWORD}" in connector
    assert 'OSError: [Errno 5] "${env:PASSWORD}", url=//u:${env:PASSWORD}@h, ${env:OF_WORKER}' in task_started
    assert "Invalid value ${env:PASSWORD} for configuration errors.tolerance" in task_made
    assert not [part for part in ("hunter", "BEGIN", "secret") if part in "".join(listener.traces)]
    await running.stop()


async def returns(*_: Any) -> None:
    """Replace a method of a delivery."""


class Checks:
    """Start checks that allow everything."""

    async def fence_others(self) -> None:
        pass

    async def still_wanted(self) -> None:
        pass


async def test_a_task_that_cannot_be_set_up_to_start_again_is_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    running, listener = await worker()
    task = ConnectorTaskId("c", 0)
    make = TaskFactory.runner
    made: list[TaskRunner] = []

    async def loses_its_producer(self: TaskRunner, **_: Any) -> bool:
        return True

    def once(self: TaskFactory, *arguments: Any) -> TaskRunner:
        if made:
            raise ConnectError("the converter's file is gone")
        made.append(make(self, *arguments))
        return made[0]

    monkeypatch.setattr(TaskFactory, "runner", once)
    monkeypatch.setattr(TaskRunner, "run", loses_its_producer)
    config = {"name": "c", "connector.class": "FileStreamSource", "topic": "t"}
    settings = {**config, "task.class": "FileStreamSourceTask"}
    await running.start_task(task, config, settings, TargetState.STARTED, Checks())
    while not listener.heard:
        await asyncio.sleep(0)
    assert listener.heard == [(task, State.FAILED)]
    await running.stop()
