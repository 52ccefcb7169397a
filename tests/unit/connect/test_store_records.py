"""Records of the internal topics: literal bytes that a worker of Apache Kafka Connect 4.1 wrote to a broker."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from oncelog.connect.data.java_maps import hash_order
from oncelog.connect.errors import ConnectError, DataError
from oncelog.connect.stores import config_records as configs
from oncelog.connect.stores import status_records as statuses
from oncelog.connect.stores.cluster_config import (
    ConfigTopicState,
    ConnectorConfigUpdated,
    ConnectorRemoved,
    LoggerLevelChanged,
    RestartRequested,
    TargetStateChanged,
    TaskConfigsUpdated,
)
from oncelog.connect.stores.config_records import RestartRequest, SessionKey, TargetState
from oncelog.connect.stores.config_store import ConfigStore
from oncelog.connect.stores.file_log import FileLog
from oncelog.connect.stores.ids import ConnectorTaskId, parse_task_id
from oncelog.connect.stores.memory_log import MemoryLog
from oncelog.connect.stores.offset_records import offset_key, offset_value, parse_key
from oncelog.connect.stores.offset_store import OffsetStore
from oncelog.connect.stores.status_records import State, Status, TopicStatus
from oncelog.connect.stores.status_store import StatusStore
from oncelog.connect.stores.topic_log import LogRecord

CONNECTOR_F1 = (
    b"connector-f1",
    (
        b'{"properties":{"connector.class":"FileStreamSource","topic":"t1","file":"/tmp/in.txt","tasks.max":"1",'
        b'"name":"f1"}}'
    ),
)
TASK_F1 = (
    b"task-f1-0",
    (
        b'{"properties":{"connector.class":"FileStreamSource","file":"/tmp/in.txt",'
        b'"task.class":"org.apache.kafka.connect.file.FileStreamSourceTask","tasks.max":"1","name":"f1","topic":"t1"}}'
    ),
)
COMMIT_F1 = (b"commit-f1", b'{"tasks":1}')
SESSION_KEY = (
    b"session-key",
    (
        b'{"key":"rwpI/G1dGOICZtmVo0Sx97+5Pn1Dim1VDNfy6ChBc0Y=","algorithm":"HmacSHA256",'
        b'"creation-timestamp":1795329748285}'
    ),
)
CONFIG = {
    "connector.class": "FileStreamSource",
    "topic": "t1",
    "file": "/tmp/in.txt",
    "tasks.max": "1",
    "name": "f1",
}
TASK_CONFIG = {
    "connector.class": "FileStreamSource",
    "file": "/tmp/in.txt",
    "task.class": "org.apache.kafka.connect.file.FileStreamSourceTask",
    "tasks.max": "1",
    "name": "f1",
    "topic": "t1",
}


def test_config_records_are_those_of_kafka_connect() -> None:
    key = SessionKey(base64.b64decode("rwpI/G1dGOICZtmVo0Sx97+5Pn1Dim1VDNfy6ChBc0Y="), "HmacSHA256", 1795329748285)
    assert configs.connector_config("f1", CONFIG) == CONNECTOR_F1
    assert configs.connector_config("f2", None) == (b"connector-f2", None)
    assert configs.task_config(ConnectorTaskId("f1", 0), TASK_CONFIG) == TASK_F1
    assert configs.commit("f1", 1) == COMMIT_F1
    assert configs.task_count("f1", 1) == (b"tasks-fencing-f1", b'{"task-count":1}')
    assert configs.session_key(key) == SESSION_KEY
    assert configs.restart(RestartRequest("f1", True, True)) == (
        b"restart-connector-f1",
        b'{"include-tasks":true,"only-failed":true}',
    )
    assert configs.logger_level("org.test", "DEBUG") == (b"logger-cluster-org.test", b'{"level":"DEBUG"}')
    assert [configs.target_state("f1", state)[1] for state in TargetState] == [
        b'{"state":"STARTED","state.v2":"STARTED"}',
        b'{"state":"PAUSED","state.v2":"PAUSED"}',
        b'{"state":"PAUSED","state.v2":"STOPPED"}',
    ]
    assert configs.target_state("f2", None) == (b"target-state-f2", None)


def test_offset_keys_are_those_of_kafka_connect() -> None:
    assert offset_key("f1", {"filename": "/tmp/in.txt"}) == b'["f1",{"filename":"/tmp/in.txt"}]'
    assert offset_key("f1", {"filename": "x😀"}) == b'["f1",{"filename":"x\\uD83D\\uDE00"}]'
    assert offset_value({"position": 7}) == b'{"position":7}'
    assert offset_value(None) is None
    assert parse_key(b'["f1",{"filename":"x\\uD83D\\uDE00"}]') == ("f1", {"filename": "x😀"})


@pytest.mark.parametrize("partition", [{"a": [1]}, {"a": {"b": 1}}, {1: "a"}, ["a"]])
def test_source_partitions_hold_plain_values_under_names(partition: Any) -> None:
    with pytest.raises(DataError, match="a source partition"):
        offset_key("f1", partition)


def test_status_records_are_those_of_kafka_connect() -> None:
    running = Status(State.RUNNING, "127.0.0.1:28391", 2, None, "4.1.0")
    value = b'{"state":"RUNNING","trace":null,"worker_id":"127.0.0.1:28391","generation":2,"version":"4.1.0"}'
    assert (statuses.status_key("f1"), statuses.status_value(running)) == (b"status-connector-f1", value)
    assert statuses.status_key(ConnectorTaskId("f1", 0)) == b"status-task-f1-0"
    assert statuses.parse_status(value) == running
    assert statuses.status_value(Status(State.DESTROYED, "w", 1)) is None
    before_4_1 = b'{"state":"FAILED","trace":"boom","worker_id":"w:1","generation":3}'
    assert statuses.parse_status(before_4_1) == Status(State.FAILED, "w:1", 3, "boom")
    topic = TopicStatus("t1", "f1", 0, 1795331228554)
    record = (
        b"status-topic-t1:connector-f1",
        b'{"topic":{"name":"t1","connector":"f1","task":0,"discoverTimestamp":1795331228554}}',
    )
    assert statuses.topic_status(topic) == record
    assert statuses.parse_topic_status(record[1]) == topic


@pytest.mark.parametrize("value", [b"{}", b"[]", b"no json", b'{"state":"DANCING","worker_id":"w","generation":1}'])
def test_a_status_that_is_none_is_refused(value: bytes) -> None:
    with pytest.raises(DataError):
        statuses.parse_status(value)


def test_task_names_may_have_dashes() -> None:
    assert parse_task_id("my-file-source-12") == ("my-file-source", 12)
    assert str(ConnectorTaskId("my-file-source", 12)) == "my-file-source-12"
    assert parse_task_id("nonumber") is None
    assert parse_task_id("a-b") is None
    assert parse_task_id("a-2147483647") == ("a", 2**31 - 1)
    assert parse_task_id(f"a-{'9' * 5000}") is None, "Python refuses to parse so many digits"


def follow(state: ConfigTopicState, *records: tuple[bytes, bytes | None]) -> list[object]:
    return [state.apply(LogRecord(key, value, 0, state.offset + 1)) for key, value in records]


def test_the_config_topic_is_followed() -> None:
    state = ConfigTopicState()
    changes = follow(state, SESSION_KEY, CONNECTOR_F1, TASK_F1)
    assert changes[1:] == [ConnectorConfigUpdated("f1"), None]
    assert state.snapshot().tasks("f1") == []
    assert follow(state, COMMIT_F1) == [TaskConfigsUpdated("f1")]
    snapshot = state.snapshot()
    assert snapshot.connector_configs == {"f1": CONFIG}
    assert snapshot.tasks("f1") == [("f1", 0)]
    assert snapshot.task_configs == {ConnectorTaskId("f1", 0): TASK_CONFIG}
    assert snapshot.task_config_generations == {"f1": 0}
    assert snapshot.pending_fencing == {"f1"}
    assert snapshot.target_state("f1") is TargetState.STARTED
    assert snapshot.session_key is not None
    assert snapshot.session_key.algorithm == "HmacSHA256"
    follow(state, (b"tasks-fencing-f1", b'{"task-count":1}'))
    assert state.snapshot().pending_fencing == frozenset()
    assert state.snapshot().task_count_records == {"f1": 1}
    assert snapshot.pending_fencing == {"f1"}, "a snapshot does not change"


def test_target_states_of_old_and_new_workers_are_read() -> None:
    state = ConfigTopicState()
    follow(state, CONNECTOR_F1)
    assert follow(state, (b"target-state-f1", b'{"state":"PAUSED","state.v2":"STOPPED"}')) == [TargetStateChanged("f1")]
    assert state.snapshot().target_state("f1") is TargetState.STOPPED
    assert follow(state, (b"target-state-f1", b'{"state":"PAUSED"}')) == [TargetStateChanged("f1")]
    assert state.snapshot().target_state("f1") is TargetState.PAUSED
    assert follow(state, (b"target-state-f1", b'{"state":"PAUSED"}')) == [None]
    follow(state, (b"target-state-f1", None))
    assert state.snapshot().target_state("f1") is TargetState.STARTED


def test_a_target_state_before_its_connector_counts() -> None:
    state = ConfigTopicState()
    stopped = (b"target-state-f1", b'{"state":"PAUSED","state.v2":"STOPPED"}')
    assert follow(state, stopped, CONNECTOR_F1) == [None, ConnectorConfigUpdated("f1")]
    assert state.snapshot().target_state("f1") is TargetState.STOPPED


def test_a_set_of_tasks_that_compaction_has_torn_is_inconsistent() -> None:
    state = ConfigTopicState()
    follow(state, CONNECTOR_F1, TASK_F1, (b"commit-f1", b'{"tasks":2}'))
    assert state.snapshot().inconsistent == {"f1"}
    assert state.snapshot().tasks("f1") == []
    follow(state, TASK_F1, COMMIT_F1)
    assert state.snapshot().inconsistent == frozenset()
    assert state.snapshot().tasks("f1") == [("f1", 0)]


def test_tasks_are_outdated_until_they_are_committed_after_their_connector() -> None:
    state = ConfigTopicState()
    follow(state, CONNECTOR_F1, TASK_F1, COMMIT_F1)
    assert state.snapshot().outdated == frozenset()
    follow(state, CONNECTOR_F1)
    assert state.snapshot().outdated == {"f1"}
    assert state.snapshot().tasks("f1") == [("f1", 0)]
    compacted = ConfigTopicState()
    follow(compacted, TASK_F1, COMMIT_F1, CONNECTOR_F1)
    assert compacted.snapshot().outdated == {"f1"}
    assert compacted.snapshot().tasks("f1") == [], "they may be those of a deleted connector"
    for each in (state, compacted):
        follow(each, TASK_F1, COMMIT_F1)
        assert each.snapshot().outdated == frozenset()
        assert each.snapshot().tasks("f1") == [("f1", 0)]


def test_a_deleted_connector_leaves_no_tasks() -> None:
    state = ConfigTopicState()
    follow(state, CONNECTOR_F1, TASK_F1, COMMIT_F1)
    assert follow(state, (b"connector-f1", None), (b"target-state-f1", None)) == [ConnectorRemoved("f1"), None]
    snapshot = state.snapshot()
    assert (snapshot.connector_configs, snapshot.task_configs, snapshot.task_counts) == ({}, {}, {})
    assert snapshot.target_state("f1") is None
    assert follow(state, TASK_F1, COMMIT_F1) == [None, None], "the tasks of one that compaction has removed"
    assert state.snapshot().tasks("f1") == []


@pytest.mark.parametrize(
    "record",
    [
        (b"unknown-key", b"{}"),
        (b"\xff", b"{}"),
        (b"connector-f2", b"[]"),
        (b"connector-f2", b'{"properties":1}'),
        (b"connector-f2", b"{"),
        (b"task-f2-x", b'{"properties":{}}'),
        (b"task-f2-0", None),
        (b"target-state-f2", b'{"state":"DANCING"}'),
        (b"session-key", b'{"key":"%%","algorithm":"a","creation-timestamp":1}'),
        (b"session-key", b'{"key":"\\u00e9","algorithm":"a","creation-timestamp":1}'),
        (b"tasks-fencing-f2", b'{"task-count":"1"}'),
        (b"tasks-fencing-f2", None),
        (b"logger-cluster-x", b"{}"),
        (b"logger-cluster-x", b'{"level":"MYLEVEL"}'),
        (b"restart-connector-x", b"[]"),
    ],
)
def test_a_record_that_makes_no_sense_is_left_out(
    record: tuple[bytes, bytes | None], caplog: pytest.LogCaptureFixture
) -> None:
    state = ConfigTopicState()
    follow(state, CONNECTOR_F1)
    before = state.snapshot()
    assert follow(state, record) == [None]
    assert f"ignored record {record[0]!r} at offset" in caplog.text
    after = state.snapshot()
    assert (after.connector_configs, after.target_states) == (before.connector_configs, before.target_states)
    assert after.task_configs == {}


async def test_restarts_and_log_levels_count_only_when_they_are_read_live() -> None:
    restart = configs.restart(RestartRequest("f1", False, True))
    topic = MemoryLog()
    heard: list[Any] = []
    store = ConfigStore(topic, heard.append)
    await topic.start(store._apply)
    await topic.append([restart])
    assert heard == []
    await store.start()
    await topic.append([restart, configs.logger_level("a", "INFO")])
    assert heard == [RestartRequested(RestartRequest("f1", False, True)), LoggerLevelChanged("a", "INFO")]


async def test_a_config_store_has_what_it_wrote() -> None:
    heard: list[object] = []
    store = ConfigStore(MemoryLog(), heard.append)
    await store.start()
    await store.put_connector("f1", CONFIG, TargetState.PAUSED)
    await store.put_task_configs("f1", [TASK_CONFIG])
    await store.put_task_count("f1", 1)
    await store.put_target_state("f1", TargetState.STARTED)
    snapshot = store.snapshot()
    assert snapshot.tasks("f1") == [("f1", 0)]
    assert snapshot.target_state("f1") is TargetState.STARTED
    assert snapshot.task_count_records == {"f1": 1}
    await store.remove_connector("f1")
    assert store.snapshot().connector_configs == {}
    assert heard == [
        ConnectorConfigUpdated("f1"),
        TaskConfigsUpdated("f1"),
        TargetStateChanged("f1"),
        ConnectorRemoved("f1"),
    ]


@pytest.mark.parametrize(
    ("given", "ordered"),
    [
        ("filename", "filename"),
        ("schema table server", "schema server table"),
        ("z y x w v u t s r q p o n m", "m n o p q r s t u v w x y z"),
        ("größe 日本 😀 a_b", "größe a_b 😀 日本"),
        ("BB Aa C#", "BB Aa C#"),
        ("protocol topic partition cluster", "cluster protocol partition topic"),
    ],
)
def test_names_are_ordered_as_a_hash_map_of_java_orders_them(given: str, ordered: str) -> None:
    assert " ".join(hash_order(given.split())) == ordered


async def test_offsets_are_known_whatever_the_order_of_names_in_their_partition() -> None:
    log = MemoryLog()
    store = OffsetStore(log)
    await store.start()
    written, asked = {"table": "t", "server": "s"}, {"server": "s", "table": "t"}
    await store.write_raw([(offset_key("c", written), offset_value({"a": 1}))])
    await store.write("c", [(asked, {"a": 2})])
    assert await store.read("c", [written]) == [{"a": 2}], "what a user sets is what the task reads"
    assert await store.of_connector("c") == [(written, {"a": 2})]
    await store.write_raw([(offset_key("c", asked), offset_value({"a": 3}))])
    assert await store.read("c", [written, asked]) == [{"a": 2}, {"a": 3}]
    assert await store.of_connector("c") == [(asked, {"a": 3})]
    await store.write("c", [(written, None)])
    assert await store.read("c", [written, asked]) == [None, None], "a reset deletes all that name the partition"
    assert await store.of_connector("c") == []


@pytest.mark.parametrize("key", [b"\xff", b'["c"]', b'["c",{"a":"\\uD800"}]'])
async def test_an_offset_with_a_malformed_key_is_left_out(key: bytes, caplog: pytest.LogCaptureFixture) -> None:
    store = OffsetStore(MemoryLog())
    await store.start()
    await store.write_raw([(key, b'{"a":1}'), (offset_key("c", {"a": 1}), b'{"a":2}')])
    assert await store.of_connector("c") == [({"a": 1}, {"a": 2})]
    assert f"ignored record {key!r} at offset 0 of the offsets topic" in caplog.text


async def test_an_offset_that_the_value_null_deletes_is_not_looked_up_elsewhere() -> None:
    store = OffsetStore(MemoryLog())
    await store.start()
    one, other, unknown = {"table": "t", "server": "s"}, {"server": "s", "table": "t"}, {"table": "u"}
    keys = offset_key("c", one), offset_key("c", other)

    async def read() -> list[dict[str, Any] | None]:
        return await store.read("c", [one, other, unknown], otherwise=[{"a": 7}, {"a": 8}, {"a": 9}])

    await store.write_raw([(keys[0], b'{"a":1}'), (keys[1], b"null")])
    assert await read() == [{"a": 1}, {"a": 1}, {"a": 9}]
    assert await store.of_connector("c") == [(one, {"a": 1})]
    await store.write_raw([(keys[0], b"null")])
    assert await read() == [None, None, {"a": 9}]
    await store.write_raw([(keys[1], b"{}")])
    assert await read() == [{}, {}, {"a": 9}]
    await store.write_raw([(key, None) for key in keys])
    assert await read() == [{"a": 7}, {"a": 8}, {"a": 9}]
    assert await store.of_connector("c") == []


async def test_a_new_offset_of_a_user_has_the_key_that_kafka_connect_writes_and_is_read() -> None:
    store = OffsetStore(MemoryLog())
    await store.start()
    given = {"schema": "x", "table": "t", "server": 1}
    assert store.records("c", [(given, {"z": 1, "a": 2})]) == [
        (b'["c",{"schema":"x","server":1,"table":"t"}]', b'{"a":2,"z":1}')
    ]
    await store.write("c", [(given, {"z": 1})])
    assert await store.read("c", [given]) == [{"z": 1}]
    assert await store.read("c", [{**given, "server": 1.0}]) == [None]


async def test_offsets_in_a_file_outlive_the_worker(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "offsets"
    store = OffsetStore(FileLog(path))
    await store.start()
    assert await store.read("f1", [{"filename": "a"}]) == [None]
    await store.write("f1", [({"filename": "a"}, {"position": 1}), ({"filename": "b"}, {"position": 2})])
    await store.write("f1", [({"filename": "b"}, None)])
    await store.write("f2", [({"filename": "a"}, {"position": 3})])
    await store.stop()
    again = OffsetStore(FileLog(path))
    await again.start()
    assert await again.read("f1", [{"filename": "a"}, {"filename": "b"}]) == [{"position": 1}, None]
    assert await again.of_connector("f1") == [({"filename": "a"}, {"position": 1})]
    assert [file.name for file in path.parent.iterdir()] == ["offsets"]


@pytest.mark.parametrize("content", [b"\xac\xed\x00\x05sr", b'{"a":1}\n', b"[1]\n"])
async def test_a_file_that_holds_no_offsets_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "offsets"
    path.write_bytes(content)
    with pytest.raises(ConnectError, match="is not a file of offsets that this worker wrote"):
        await OffsetStore(FileLog(path)).start()
    assert path.read_bytes() == content


class _HeldLog(MemoryLog):
    """A log whose appends wait for `released`."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()

    async def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        await self.released.wait()
        await super().append(records)


async def test_a_safe_status_that_waited_does_not_overwrite_what_another_worker_wrote_meanwhile() -> None:
    log = _HeldLog()
    store = StatusStore(log)
    await store.start()
    await store.put("f0", Status(State.RUNNING, "old:1", 4))  # its append is held
    await store.put("f1", Status(State.FAILED, "old:1", 4, "fenced"), safe=True)
    newer = Status(State.RUNNING, "new:1", 5)
    await MemoryLog.append(log, [(statuses.status_key("f1"), statuses.status_value(newer))])
    log.released.set()
    await store.flush()
    assert store.get("f1") == newer
    await store.stop()


async def test_a_safe_status_does_not_overwrite_a_newer_generation_of_another_worker() -> None:
    store = StatusStore(MemoryLog())
    await store.start()
    await store.put("f1", Status(State.RUNNING, "new:1", 5))
    await store._queue.join()
    await store.put("f1", Status(State.UNASSIGNED, "old:1", 4), safe=True)
    await store._queue.join()
    assert store.get("f1") == Status(State.RUNNING, "new:1", 5)
    await store.put("f1", Status(State.FAILED, "new:1", 5, "boom"), safe=True)
    await store.put(ConnectorTaskId("f1", 1), Status(State.RUNNING, "new:1", 5))
    await store.put(ConnectorTaskId("f1", 0), Status(State.RUNNING, "new:1", 5))
    await store._queue.join()
    assert store.get("f1") == Status(State.FAILED, "new:1", 5, "boom")
    assert [task.task for task, _ in store.of_tasks("f1")] == [0, 1]
    await store.put("f1", Status(State.DESTROYED, "new:1", 5))
    store.put_topic(TopicStatus("t1", "f1", 0, 1))
    store.put_topic(TopicStatus("t1", "f1", 1, 2))
    await store._queue.join()
    assert store.get("f1") is None
    assert store.topics("f1") == [TopicStatus("t1", "f1", 0, 1)]
    store.delete_topic("f1", "t1")
    await store.stop()
    assert store.topics("f1") == []
