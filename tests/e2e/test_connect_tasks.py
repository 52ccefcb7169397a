"""Tasks of a standalone worker: blocking connectors, commit hooks, failures, topics, at least once."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from oncelog import Admin, Consumer
from oncelog.client.values import RecordMetadata
from oncelog.connect import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    ConnectError,
    Importance,
    RetriableError,
    SourceConnector,
    SourceRecord,
    SourceTask,
    Type,
)

pytest.importorskip("aiohttp", reason="needs the extra: pip install 'oncelog[connect]'")
from oncelog.connect.stores.config_records import RestartRequest
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from support.connect_alone import exactly_once, until, worker
from support.proxy import FaultProxy

Names = Callable[[str], str]


class Counting(SourceConnector):
    """A connector whose tasks run in threads."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(
            ConfigKey("topic", Type.STRING, REQUIRED, Importance.HIGH, "The topic."),
            ConfigKey("abort.at", Type.INT, -1, Importance.LOW, "Abort behind this record."),
            ConfigKey("fail.at", Type.INT, -1, Importance.LOW, "Fail once before this record."),
            ConfigKey("retry.at", Type.INT, -1, Importance.LOW, "Raise RetriableError once before this record."),
        )

    @property
    def task_class(self) -> type[SourceTask]:  # type: ignore[override]
        return CountingTask

    def start(self, config: Mapping[str, str]) -> None:
        self.config = dict(config)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [self.config]

    def can_define_transaction_boundaries(self, config: Mapping[str, str]) -> Any:
        from oncelog.connect import ConnectorTransactionBoundaries

        return ConnectorTransactionBoundaries.SUPPORTED


class Growing(Counting):
    """Has as many tasks as `tasks`, and does not start as long as `failing`."""

    tasks: ClassVar[int] = 1
    failing: ClassVar[bool] = False

    def start(self, config: Mapping[str, str]) -> None:
        if self.failing:
            raise ConnectError("not now")
        super().start(config)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [self.config] * self.tasks


class CountingTask(SourceTask):
    """Ten records, one per poll, then it waits until it is stopped."""

    failed: ClassVar[set[str]] = set()
    heard: ClassVar[dict[str, list[object]]] = {}
    threads: ClassVar[dict[str, set[str]]] = {}

    def start(self, config: Mapping[str, str]) -> None:
        self.config = Counting.config_def().parse(config)
        self.topic = self.config["topic"]
        offset = self.context.offsets.offset_blocking({"of": self.topic})
        self.count = 0 if offset is None else offset["count"]
        self.stopped = threading.Event()

    def poll(self) -> list[SourceRecord] | None:
        self.threads.setdefault(self.topic, set()).add(threading.current_thread().name)
        for setting, error in (("fail.at", ConnectError), ("retry.at", RetriableError)):
            if self.config[setting] == self.count and f"{setting} {self.topic}" not in self.failed:
                self.failed.add(f"{setting} {self.topic}")
                raise error("as it was told")
        if self.count == 10:
            self.stopped.wait(30)
            return None
        self.count += 1
        record = SourceRecord(
            source_partition={"of": self.topic},
            source_offset={"count": self.count},
            topic=self.topic,
            value=self.count,
        )
        if self.context.transactions is not None:
            if self.config["abort.at"] == self.count:
                self.context.transactions.abort_transaction(record)
            elif self.count % 2 == 0:
                self.context.transactions.commit_transaction(record)
        return [record]

    def stop(self) -> None:
        self.stopped.set()

    def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        self.heard.setdefault(self.topic, []).append((record.value, metadata is not None))

    def commit(self) -> None:
        self.heard.setdefault(self.topic, []).append("commit")


def counting(name: str, topic: str, **settings: str) -> dict[str, str]:
    config = {"name": name, "connector.class": f"{__name__}:Counting", "topic": topic}
    return {**config, **{key.replace("_", "."): value for key, value in settings.items()}}


async def values(bootstrap: str, topic: str, count: int) -> list[Any]:
    found: list[Any] = []
    async with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([(topic, 0)])
        await consumer.seek_to_beginning()
        async with asyncio.timeout(60):
            while len(found) < count:
                found += [json.loads(record.value or b"null") for record in await consumer.poll(200)]
    return found


def reached(count: int) -> Callable[[Any], bool]:
    return lambda known: bool(known["offsets"]) and known["offsets"][0]["offset"] == {"count": count}


async def test_a_blocking_task_runs_in_its_thread_and_hears_of_commits(bootstrap: str, fresh_name: Names) -> None:
    topic = fresh_name("counts")
    async with worker(bootstrap, **exactly_once(fresh_name("alone"))) as herder:
        await herder.put_connector("c", counting("c", topic), None, replace=False)
        await until(lambda: herder.offsets("c"), reached(10))
        assert await values(bootstrap, topic, 10) == list(range(1, 11))
    assert CountingTask.threads[topic] == {"task c-0"}
    assert [heard for heard in CountingTask.heard[topic] if heard != "commit"] == [(n, True) for n in range(1, 11)]
    assert CountingTask.heard[topic][1] == "commit"


async def test_an_aborted_record_is_dropped_and_its_offset_kept(bootstrap: str, fresh_name: Names) -> None:
    topic = fresh_name("counts")
    async with worker(bootstrap, **exactly_once(fresh_name("alone"))) as herder:
        config = counting("c", topic, transaction_boundary="connector", abort_at="5")
        await herder.put_connector("c", config, None, replace=False)
        await until(lambda: herder.offsets("c"), reached(10))
        assert await values(bootstrap, topic, 9) == [1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert (5, False) in CountingTask.heard[topic]


@pytest.mark.parametrize("setting", ["fail_at", "retry_at"])
async def test_a_task_goes_on_exactly_where_it_failed(bootstrap: str, fresh_name: Names, setting: str) -> None:
    topic = fresh_name("counts")
    async with worker(bootstrap, **exactly_once(fresh_name("alone"))) as herder:
        await herder.put_connector("c", counting("c", topic, **{setting: "4"}), None, replace=False)
        if setting == "fail_at":
            status = await until(
                lambda: herder.connector_status("c"),
                lambda known: [task["state"] for task in known["tasks"]] == ["FAILED"],
            )
            assert "as it was told" in status["tasks"][0]["trace"]
            assert status["connector"]["state"] == "RUNNING"
            task = (await herder.task_configs("c"))[0]["id"]
            from oncelog.connect.stores.ids import ConnectorTaskId

            await herder.restart_task(ConnectorTaskId(**task))
        await until(lambda: herder.offsets("c"), reached(10))
        assert await values(bootstrap, topic, 10) == list(range(1, 11))


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_task_that_does_not_know_whether_it_has_committed_starts_again(
    bootstrap: str, fresh_name: Names, is_committed: bool
) -> None:
    def fails_unexplained(answer: EndTxnResponse) -> None:
        answer.error_code = int(ErrorCode.UNKNOWN_SERVER_ERROR)

    topic = fresh_name("counts")
    settings = {**exactly_once(fresh_name("alone")), "task_restart_backoff_ms": "1"}
    async with FaultProxy(bootstrap) as proxy, worker(bootstrap, **settings) as herder:
        if is_committed:
            proxy.change(EndTxnRequest, fails_unexplained)
        else:
            proxy.answer(EndTxnRequest, lambda _: EndTxnResponse(0, int(ErrorCode.UNKNOWN_SERVER_ERROR)))
        through_proxy = {"producer.override.bootstrap.servers": proxy.address}
        await herder.put_connector("c", counting("c", topic) | through_proxy, None, replace=False)
        await until(lambda: herder.offsets("c"), reached(10))
        assert proxy.seen["InitProducerId"] >= 2, "the unknown commit has cost a producer"
        assert await values(bootstrap, topic, 10) == list(range(1, 11))


async def test_a_task_that_was_fenced_before_its_commit_was_repeated_is_failed(
    bootstrap: str, fresh_name: Names
) -> None:
    topic = fresh_name("counts")
    async with FaultProxy(bootstrap) as proxy, worker(bootstrap, **exactly_once(fresh_name("alone"))) as herder:
        proxy.answer(EndTxnRequest, lambda _: EndTxnResponse(0, int(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
        proxy.answer(EndTxnRequest, lambda _: EndTxnResponse(0, int(ErrorCode.PRODUCER_FENCED)))
        through_proxy = {"producer.override.bootstrap.servers": proxy.address}
        await herder.put_connector("c", counting("c", topic) | through_proxy, None, replace=False)
        status = await until(
            lambda: herder.connector_status("c"),
            lambda known: [task["state"] for task in known["tasks"]] == ["FAILED"],
        )
        assert "was fenced" in status["tasks"][0]["trace"]
        assert proxy.seen["InitProducerId"] == 1


async def test_at_least_once_goes_on_from_the_file_of_offsets(
    bootstrap: str, fresh_name: Names, tmp_path: Path
) -> None:
    topic, offsets = fresh_name("counts"), str(tmp_path / "offsets")
    async with worker(bootstrap, offset_storage_file_filename=offsets, offset_flush_interval_ms="0") as herder:
        await herder.put_connector("c", counting("c", topic, fail_at="6"), None, replace=False)
        await until(
            lambda: herder.connector_status("c"), lambda known: [t["state"] for t in known["tasks"]] == ["FAILED"]
        )
    async with worker(bootstrap, offset_storage_file_filename=offsets) as herder:
        await herder.put_connector("c", counting("c", topic), None, replace=False)
        assert await values(bootstrap, topic, 10) == list(range(1, 11))
    async with worker(bootstrap, offset_storage_file_filename=offsets) as herder:
        await herder.put_connector("c", counting("c", topic), None, replace=False)
        assert (await herder.offsets("c"))["offsets"][0]["offset"] == {"count": 10}


async def test_topics_are_created_as_the_connector_says(bootstrap: str, fresh_name: Names) -> None:
    topic = fresh_name("counts")
    config = counting("c", topic, topic_creation_default_replication_factor="1", topic_creation_default_partitions="3")
    async with (
        worker(bootstrap, **exactly_once(fresh_name("alone"))) as herder,
        Admin(bootstrap_servers=bootstrap) as admin,
    ):
        await herder.put_connector("c", config, None, replace=False)
        await until(lambda: herder.offsets("c"), reached(10))
        assert len((await admin.describe_topics([topic]))[topic].partitions) == 3


async def test_a_connector_that_does_not_start_is_failed_and_can_be_mended(bootstrap: str, fresh_name: Names) -> None:
    topic, name = fresh_name("counts"), fresh_name("alone")
    async with worker(bootstrap, **exactly_once(name)) as herder:
        wrong = counting("c", topic, producer_override_linger_ms="-1")
        await herder.put_connector("c", wrong, None, replace=False)
        status = await until(
            lambda: herder.connector_status("c"), lambda known: [t["state"] for t in known["tasks"]] == ["FAILED"]
        )
        assert "linger.ms" in status["tasks"][0]["trace"]
        await herder.put_connector("c", counting("c", topic), None, replace=True)
        await until(lambda: herder.offsets("c"), reached(10))
        assert await values(bootstrap, topic, 10) == list(range(1, 11))


async def test_tasks_run_again_when_a_connector_that_did_not_start_is_restarted(
    bootstrap: str, fresh_name: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with worker(bootstrap, **exactly_once(fresh_name("alone"))) as herder:
        config = {**counting("c", fresh_name("counts")), "connector.class": f"{__name__}:Growing"}
        await herder.put_connector("c", config, None, replace=False)
        await until(lambda: herder.connector_status("c"), tasks_are("RUNNING"))
        monkeypatch.setattr(Growing, "failing", True)
        await herder.put_connector("c", config, None, replace=True)
        await until(lambda: herder.connector_status("c"), tasks_are("UNASSIGNED"))
        monkeypatch.setattr(Growing, "failing", False)
        await herder.restart_connector("c")
        await until(lambda: herder.connector_status("c"), tasks_are("RUNNING"))


@pytest.mark.parametrize("after", [1, 3])
async def test_a_restart_with_tasks_starts_those_that_the_connector_has_now(
    bootstrap: str, fresh_name: Names, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(Growing, "tasks", 2)
    async with worker(bootstrap, **exactly_once(fresh_name("alone"))) as herder:
        config = counting("c", fresh_name("counts"), tasks_max="3")
        await herder.put_connector("c", {**config, "connector.class": f"{__name__}:Growing"}, None, replace=False)
        await until(lambda: herder.connector_status("c"), tasks_are("RUNNING", "RUNNING"))
        monkeypatch.setattr(Growing, "tasks", after)
        await herder.restart_connector_and_tasks(RestartRequest("c", only_failed=False, include_tasks=True))
        await until(lambda: herder.connector_status("c"), tasks_are(*["RUNNING"] * after))


def tasks_are(*states: str) -> Callable[[Any], bool]:
    return lambda known: [task["state"] for task in known["tasks"]] == list(states)
