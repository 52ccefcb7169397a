"""Tasks without exactly-once: records that the brokers refuse, offsets of a failed task, hooks that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from oncelog import Admin, Consumer
from oncelog.client.admin import NewTopic
from oncelog.client.values import RecordMetadata
from oncelog.connect import ConfigDef, ConnectError, SourceConnector, SourceRecord, SourceTask

pytest.importorskip("aiohttp", reason="needs the extra: pip install 'oncelog[connect]'")
from oncelog.protocol.messages.produce import ProduceRequest
from support.connect_alone import exactly_once, until, worker
from support.proxy import FaultProxy

Names = Callable[[str], str]

LARGE = "x" * 2_000_000
REFUSED = ("refused by the broker", None)
"""A record without a key, for a compacted topic."""


FORGET = "forget"
"""The value of a record that deletes the offset."""


class Scripted(SourceConnector):
    """Gives the records of `batches`, then fails where `fails` says so, or has no more."""

    batches: ClassVar[dict[str, list[list[tuple[str, str | None]]]]] = {}
    fails: ClassVar[set[str]] = set()
    hooks_fail: ClassVar[set[str]] = set()
    shares: ClassVar[set[str]] = set()
    """The topics for which all records of a batch have the offset after the batch."""
    unplaced: ClassVar[set[str]] = set()
    """The topics whose records have no source partition."""
    heard: ClassVar[dict[str, list[tuple[Any, bool]]]] = {}
    exhausted: ClassVar[dict[str, asyncio.Event]] = {}
    """By topic: set when a poll finds no more records, if the test has put an event there."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    @property
    def task_class(self) -> type[SourceTask]:  # type: ignore[override]
        return ScriptedTask

    async def start(self, config: Mapping[str, str]) -> None:
        self.config = dict(config)

    async def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [self.config]


class ScriptedTask(SourceTask):
    async def start(self, config: Mapping[str, str]) -> None:
        self.config, self.topic = config, config["topic"]
        self.stopped = asyncio.Event()
        offset = await self.context.offsets.offset({"of": self.topic})
        self.count = 0 if offset is None else int(offset["count"])
        batches, skipped = Scripted.batches[self.topic], 0
        self.batches = []
        for batch in batches:
            self.batches.append(batch[max(0, self.count - skipped) :])
            skipped += len(batch)
        self.batches = [batch for batch in self.batches if batch]

    async def poll(self) -> list[SourceRecord] | None:
        if not self.batches:
            if self.topic in Scripted.exhausted:
                Scripted.exhausted[self.topic].set()
            if self.topic in Scripted.fails:
                raise ConnectError("as it was told")
            await self.stopped.wait()
            return None
        records, batch = [], self.batches.pop(0)
        after = self.count + len(batch)
        for value, key in batch:
            self.count += 1
            record = SourceRecord(topic=self.config.get(f"topic.of.{value}", self.topic), key=key, value=value)
            offset = {"count": after if self.topic in Scripted.shares else self.count} if value != FORGET else None
            if self.topic not in Scripted.unplaced:
                record = record.replace(source_partition={"of": self.topic}, source_offset=offset)
            records.append(record)
        return records

    async def stop(self) -> None:
        self.stopped.set()

    async def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        Scripted.heard.setdefault(self.topic, []).append((str(record.value)[:30], metadata is not None))
        if self.topic in Scripted.hooks_fail:
            raise ConnectError("commit_record fails")

    async def commit(self) -> None:
        if self.topic in Scripted.hooks_fail:
            raise ConnectError("commit fails")


def scripted(topic: str, **settings: str) -> dict[str, str]:
    config = {
        "name": "c",
        "connector.class": f"{__name__}:Scripted",
        "topic": topic,
        "key.converter": "StringConverter",
        "value.converter": "StringConverter",
    }
    return {**config, **{key.replace("_", "."): value for key, value in settings.items()}}


async def texts(bootstrap: str, topic: str, count: int) -> list[str]:
    read: list[str] = []
    async with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([(topic, 0)])
        await consumer.seek_to_beginning()
        while len(read) < count:
            read += [(record.value or b"").decode() for record in await consumer.poll(200)]
    return read


def state(wanted: str) -> Callable[[Any], bool]:
    return lambda known: [task["state"] for task in known["tasks"]] == [wanted]


def offset_is(count: int) -> Callable[[Any], bool]:
    return lambda known: bool(known["offsets"]) and known["offsets"][0]["offset"] == {"count": count}


async def heard(topic: str) -> list[tuple[Any, bool]]:
    return Scripted.heard.get(topic, [])


@pytest.fixture
def offsets(tmp_path: Path) -> dict[str, str]:
    """Settings of a worker that commits behind each batch."""
    return {"offset_storage_file_filename": str(tmp_path / "offsets"), "offset_flush_interval_ms": "0"}


@pytest.mark.parametrize("tolerance", ["none", "all"])
async def test_a_record_that_cannot_be_produced_is_skipped_where_errors_are_tolerated(
    bootstrap: str, fresh_name: Names, caplog: pytest.LogCaptureFixture, offsets: dict[str, str], tolerance: str
) -> None:
    topic = fresh_name("texts")
    Scripted.batches[topic] = [[("a", "k"), (LARGE, "k"), ("b", "k")]]
    config = scripted(topic, errors_tolerance=tolerance, errors_log_enable="true")
    async with worker(bootstrap, **offsets) as herder:
        await herder.put_connector("c", config, None, replace=False)
        if tolerance == "none":
            await until(lambda: herder.connector_status("c"), state("FAILED"))
            assert (await herder.offsets("c"))["offsets"] in (
                [],
                [{"partition": {"of": topic}, "offset": {"count": 1}}],
            )
            return
        await until(lambda: herder.offsets("c"), offset_is(3))
        assert await texts(bootstrap, topic, 2) == ["a", "b"]
        assert 'total_records_skipped{connector="c",task="0"} 1' in herder.metrics().replace("kafka_connect_", "")
    assert sorted(Scripted.heard[topic]) == [("a", True), ("b", True), (LARGE[:30], False)]
    assert "error of task c-0 in KAFKA_PRODUCE" in caplog.text


async def test_a_refused_record_does_not_take_others_of_its_batch_with_it(
    bootstrap: str, fresh_name: Names, offsets: dict[str, str]
) -> None:
    topic = fresh_name("texts")
    Scripted.batches[topic] = [[("a", "1"), REFUSED, ("b", "2"), ("c", "3")]]
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1, {"cleanup.policy": "compact"})])
    config = scripted(topic, errors_tolerance="all", producer_override_linger_ms="50")
    async with worker(bootstrap, **offsets) as herder:
        await herder.put_connector("c", config, None, replace=False)
        await until(lambda: herder.offsets("c"), offset_is(4))
        assert await texts(bootstrap, topic, 3) == ["a", "b", "c"]
    assert sorted(Scripted.heard[topic]) == [("a", True), ("b", True), ("c", True), (REFUSED[0], False)]


async def test_a_task_that_fails_writes_the_offsets_of_what_it_has_produced(
    bootstrap: str, fresh_name: Names, offsets: dict[str, str]
) -> None:
    topic = fresh_name("texts")
    Scripted.batches[topic] = [[("a", "k")], [("b", "k")]]
    Scripted.fails.add(topic)
    async with worker(bootstrap, **{**offsets, "offset_flush_interval_ms": "60000"}) as herder:
        await herder.put_connector("c", scripted(topic), None, replace=False)
        await until(lambda: herder.connector_status("c"), state("FAILED"))
        assert offset_is(2)(await herder.offsets("c"))


async def test_offsets_behind_a_record_that_was_not_produced_are_not_written(
    bootstrap: str, fresh_name: Names, offsets: dict[str, str]
) -> None:
    topic = fresh_name("texts")
    Scripted.batches[topic] = [[("a", "1"), REFUSED, ("b", "2")]]
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1, {"cleanup.policy": "compact"})])
    async with worker(bootstrap, **offsets) as herder:
        await herder.put_connector("c", scripted(topic), None, replace=False)
        await until(lambda: herder.connector_status("c"), state("FAILED"))
        assert (await herder.offsets("c"))["offsets"] == []


@pytest.mark.parametrize("placed", [True, False], ids=["offsets", "no-offsets"])
async def test_a_task_fails_as_soon_as_a_record_is_refused(
    bootstrap: str, fresh_name: Names, offsets: dict[str, str], placed: bool
) -> None:
    topic = fresh_name("texts")
    Scripted.batches[topic] = [[("a", "1"), REFUSED, ("b", "2")]]
    if not placed:
        Scripted.unplaced.add(topic)
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1, {"cleanup.policy": "compact"})])
    async with worker(bootstrap, **{**offsets, "offset_flush_interval_ms": "3600000"}) as herder:
        await herder.put_connector("c", scripted(topic), None, replace=False)
        failed = await until(lambda: herder.connector_status("c"), state("FAILED"))
        assert "INVALID_RECORD" in failed["tasks"][0]["trace"]
        assert (await herder.offsets("c"))["offsets"] == []


@pytest.mark.parametrize("placed", [True, False], ids=["offsets", "no-offsets"])
@pytest.mark.parametrize("tolerance", ["none", "all"])
async def test_a_task_hears_of_its_records_while_it_waits_for_more(
    bootstrap: str, fresh_name: Names, offsets: dict[str, str], tolerance: str, placed: bool
) -> None:
    topic = fresh_name("texts")
    Scripted.batches[topic] = [[("a", "1"), ("b", "2")]]
    if not placed:
        Scripted.unplaced.add(topic)
    async with worker(bootstrap, **{**offsets, "offset_flush_interval_ms": "3600000"}) as herder:
        await herder.put_connector("c", scripted(topic, errors_tolerance=tolerance), None, replace=False)
        await until(lambda: heard(topic), lambda known: known == [("a", True), ("b", True)])


@pytest.mark.parametrize(
    "override",
    [{"acks": "1"}, {"acks": "0"}, {"retries": "0"}, {"max.in.flight.requests.per.connection": "10"}],
    ids=lambda override: "=".join(*override.items()),
)
async def test_a_connectors_producer_may_have_less_guarantees(
    bootstrap: str, fresh_name: Names, offsets: dict[str, str], override: dict[str, str]
) -> None:
    topic = fresh_name("texts")
    Scripted.batches[topic] = [[("a", "1"), ("b", "2")]]
    config = {**scripted(topic), **{f"producer.override.{name}": value for name, value in override.items()}}
    async with worker(bootstrap, **offsets) as herder:
        await herder.put_connector("c", config, None, replace=False)
        await until(lambda: herder.offsets("c"), offset_is(2))
        assert await texts(bootstrap, topic, 2) == ["a", "b"]


async def test_settings_of_java_clients_that_the_clients_do_not_have_are_ignored(
    bootstrap: str, fresh_name: Names, caplog: pytest.LogCaptureFixture, offsets: dict[str, str]
) -> None:
    topic = fresh_name("texts")
    Scripted.batches[topic] = [[("a", "1")]]
    overrides = {"producer.override.enable.metrics.push": "false", "admin.override.metrics.num.samples": "3"}
    given = {**offsets, "producer_metrics_recording_level": "INFO", "consumer_compresion_type": "lz4"}
    async with worker(bootstrap, **given) as herder:
        await herder.put_connector("c", {**scripted(topic), **overrides}, None, replace=False)
        await until(lambda: herder.offsets("c"), offset_is(1))
    assert "connector c ignores producer.override.enable.metrics.push: is not offered by this client" in caplog.text
    assert "connector c ignores admin.override.metrics.num.samples: is not offered" in caplog.text


@pytest.mark.parametrize(
    "fault",
    [
        {"transforms": "c", "transforms.c.type": "Cast$Value", "transforms.c.spec": "int32"},
        {
            "topic.of.x": "not a name", "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
        },
    ],
    ids=["transform", "topic"],
)  # fmt: skip
@pytest.mark.parametrize("shares", [True, False])
async def test_an_offset_of_several_records_is_written_only_if_all_of_them_are_produced(
    bootstrap: str, fresh_name: Names, offsets: dict[str, str], fault: dict[str, str], shares: bool
) -> None:
    topic = fresh_name("texts")
    Scripted.batches[topic] = [[("0", "k")], [("1", "k"), ("x", "k"), ("3", "k")]]
    if shares:
        Scripted.shares.add(topic)
    async with worker(bootstrap, **{**offsets, "offset_flush_interval_ms": "60000"}) as herder:
        await herder.put_connector("c", {**scripted(topic), **fault}, None, replace=False)
        await until(lambda: herder.connector_status("c"), state("FAILED"))
        assert offset_is(1 if shares else 2)(await herder.offsets("c"))
        await herder.put_connector("c", scripted(topic), None, replace=True)
        wanted = ["0", "1", "1", "x", "3"] if shares else ["0", "1", "x", "3"]
        assert await texts(bootstrap, topic, len(wanted)) == wanted


async def test_a_commit_that_takes_too_long_is_repeated_while_the_task_goes_on(
    bootstrap: str, fresh_name: Names, offsets: dict[str, str]
) -> None:
    topic = fresh_name("texts")
    Scripted.batches[topic] = [[("a", "1")], [("b", "2")]]
    Scripted.exhausted[topic] = asyncio.Event()
    async with (
        FaultProxy(bootstrap) as proxy,
        worker(proxy.address, **offsets, offset_flush_timeout_ms="100") as herder,
    ):
        proxy.hold(ProduceRequest, 600)
        await herder.put_connector("c", scripted(topic), None, replace=False)
        await Scripted.exhausted[topic].wait()
        assert (await herder.offsets("c"))["offsets"] == []
        proxy.clear_faults()
        proxy.break_connections()
        await until(lambda: herder.offsets("c"), offset_is(2))
        assert await texts(bootstrap, topic, 2) == ["a", "b"]


@pytest.mark.parametrize("transactional", [False, True])
async def test_an_offset_that_a_task_deletes_is_null_in_the_own_topic_of_its_connector(
    bootstrap: str, fresh_name: Names, transactional: bool
) -> None:
    topic, own = fresh_name("texts"), fresh_name("own")
    Scripted.batches[topic] = [[("a", "k")], [(FORGET, "k")]]
    settings = {**exactly_once(fresh_name("alone")), "offset_flush_interval_ms": "0", "offset_storage_partitions": "1"}
    if not transactional:
        settings["exactly_once_source_support"] = "disabled"
    async with worker(bootstrap, **settings) as herder:
        await herder.put_connector("c", scripted(topic, offsets_storage_topic=own), None, replace=False)
        assert await texts(bootstrap, own, 2) == ['{"count":1}', "null"]
        await until(lambda: herder.offsets("c"), lambda known: known["offsets"] == [])
        assert await texts(bootstrap, topic, 2) == ["a", FORGET]


@pytest.mark.parametrize("transactional", [False, True])
async def test_hooks_of_a_task_that_fail_are_logged(
    bootstrap: str, fresh_name: Names, caplog: pytest.LogCaptureFixture, offsets: dict[str, str], transactional: bool
) -> None:
    topic = fresh_name("texts")
    Scripted.batches[topic] = [[("a", "k")], [("b", "k")]]
    Scripted.hooks_fail.add(topic)
    given = exactly_once(fresh_name("alone")) if transactional else offsets
    async with worker(bootstrap, **given) as herder:
        await herder.put_connector("c", scripted(topic), None, replace=False)
        await until(lambda: herder.offsets("c"), offset_is(2))
        assert await texts(bootstrap, topic, 2) == ["a", "b"]
        assert state("RUNNING")(await herder.connector_status("c"))
    assert Scripted.heard[topic] == [("a", True), ("b", True)]
    assert "commit_record fails" in caplog.text
