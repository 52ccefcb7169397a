"""Where the offsets of a connector are: in the worker's topic, in a topic of its own, or in both."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from oncelog.client.errors import AuthorizationError, KafkaError, KafkaTimeoutError, RecordTooLargeError
from oncelog.connect.errors import ConnectError
from oncelog.connect.herder import offset_requests
from oncelog.connect.settings.connector import ConnectorConfig, source_config_def
from oncelog.connect.settings.worker import STANDALONE, WorkerConfig
from oncelog.connect.stores.memory_log import MemoryLog
from oncelog.connect.stores.offset_records import DELETED
from oncelog.connect.stores.offset_store import OffsetStore
from oncelog.connect.worker import clients, offset_copies
from oncelog.connect.worker.clients import client_settings
from oncelog.connect.worker.offset_copies import OffsetCopies
from oncelog.connect.worker.offset_reader import StoredOffsets
from oncelog.connect.worker.offset_stores import OffsetStores
from oncelog.protocol.errors import ErrorCode

CONVERTERS = {"key.converter": "StringConverter", "value.converter": "StringConverter"}
WORKER = {
    **CONVERTERS, "bootstrap.servers": "a:1,b:2", "group.id": "g", "offset.storage.topic": "offsets",
    "consumer.fetch.max.wait.ms": "7", "admin.retries": "1",
}  # fmt: skip
ENABLED = {"exactly.once.source.support": "enabled"}
ELSEWHERE = {"producer.override.bootstrap.servers": "c:3"}
OWN = {"offsets.storage.topic": "own"}

Written = tuple[str, list[tuple[bytes, bytes | None]]]


def worker(**settings: str) -> WorkerConfig:
    return WorkerConfig(STANDALONE, {**WORKER, **settings})


def connector(settings: Mapping[str, str]) -> ConnectorConfig:
    return ConnectorConfig(source_config_def(CONVERTERS), {"name": "c", "connector.class": "C", **settings})


async def cluster_id(client: Mapping[str, str]) -> str:
    """The cluster of an address, by its first letter; the brokers at u do not tell theirs."""
    return {"a": "ours", "b": "ours", "c": "another", "u": ""}[client["bootstrap.servers"][0]]


class NotedLog(MemoryLog):
    """Notes what is written, in the order of all logs, once `may_write` is set."""

    def __init__(self, name: str, written: list[Written]) -> None:
        super().__init__()
        self._name, self._written = name, written
        self.may_write = asyncio.Event()
        self.may_write.set()

    async def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        await self.may_write.wait()
        self._written.append((self._name, list(records)))
        await super().append(records)


class RefusingLog(MemoryLog):
    """Refuses every append of a key with the key's error, once or always."""

    def __init__(self, always: dict[bytes, KafkaError], once: dict[bytes, KafkaError]) -> None:
        super().__init__()
        self._always, self._once = always, once

    async def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        for key, _ in records:
            error = self._always.get(key) or self._once.pop(key, None)
            if error is not None:
                raise error
        await super().append(records)


@pytest.mark.parametrize(
    ("enabled", "settings", "topic"),
    [
        (ENABLED, {}, None),
        (ENABLED, OWN, "own"),
        (ENABLED, {"offsets.storage.topic": "offsets"}, None),
        (ENABLED, ELSEWHERE, "offsets"),
        (ENABLED, {**ELSEWHERE, **OWN}, "own"),
        (ENABLED, {"producer.override.bootstrap.servers": "b:2, a:1"}, None),
        (ENABLED, {"producer.override.bootstrap.servers": "a:9093"}, None),
        (ENABLED, {"producer.override.bootstrap.servers": "a:9093", **OWN}, "own"),
        ({}, ELSEWHERE, None),
        ({}, {**ELSEWHERE, "offsets.storage.topic": "offsets"}, "offsets"),
        ({}, OWN, "own"),
    ],
)
async def test_a_connector_has_its_own_topic_if_name_or_cluster_differ(
    monkeypatch: pytest.MonkeyPatch, enabled: dict[str, str], settings: dict[str, str], topic: str | None
) -> None:
    monkeypatch.setattr(clients, "cluster_id", cluster_id)
    stores = OffsetStores(worker(**enabled), OffsetStore(MemoryLog()))
    assert await stores.own_topic(connector(settings)) == topic


async def test_the_producers_cluster_is_asked_with_the_producers_security(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, str]] = []

    async def cluster_id(client: Mapping[str, str]) -> str:
        asked.append(dict(client))
        return "ours"

    monkeypatch.setattr(clients, "cluster_id", cluster_id)
    settings = {
        **ELSEWHERE, "producer.override.security.protocol": "SASL_SSL", "producer.override.sasl.mechanism": "PLAIN",
        "producer.override.linger.ms": "5", "admin.override.bootstrap.servers": "a:1",
        "admin.override.security.protocol": "SSL", "admin.override.ssl.keystore.location": "k",
    }  # fmt: skip
    assert await clients.writes_to_workers_cluster(worker(**ENABLED), connector(settings))
    secure = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    assert asked == [{"bootstrap.servers": "a:1,b:2"}, {"bootstrap.servers": "c:3", "retries": "1", **secure}]


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({}, None),
        ({"producer.bootstrap.servers": "c:3"}, None),
        ({"admin.bootstrap.servers": "b:2"}, None),
        ({"admin.bootstrap.servers": "c:3"}, "admin client"),
        ({**ELSEWHERE, "admin.override.bootstrap.servers": "a:1"}, "admin client"),
        ({**ELSEWHERE, "consumer.override.bootstrap.servers": "a:1"}, "consumer"),
        ({**ELSEWHERE, "consumer.override.bootstrap.servers": "c:9093"}, None),
        ({**OWN, "consumer.override.bootstrap.servers": "c:3"}, "consumer"),
        ({"consumer.override.bootstrap.servers": "c:3"}, None),
        ({"producer.override.bootstrap.servers": "u:1", "admin.override.bootstrap.servers": "u:2"}, "admin client"),
    ],
)
async def test_the_clients_of_a_connector_must_be_in_one_cluster(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], refused: str | None
) -> None:
    monkeypatch.setattr(clients, "cluster_id", cluster_id)
    monkeypatch.setattr(OffsetStores, "_log", lambda self, topic, clients: MemoryLog())
    overrides = {name: value for name, value in settings.items() if ".override." in name or name in OWN}
    workers = {name: value for name, value in settings.items() if name not in overrides}
    stores = OffsetStores(worker(**ENABLED, **workers), OffsetStore(MemoryLog()))
    if refused is None:
        await stores.of("c", connector(overrides))
    else:
        with pytest.raises(
            ConnectError, match=f"the {refused} .*bootstrap.servers.* not in the cluster of its producer"
        ):
            await stores.of("c", connector(overrides))
    await stores.close()


@pytest.mark.parametrize(("producer", "own"), [("c:3", "offsets"), ("u:1", "offsets"), ("a:9093", None)])
async def test_the_workers_settings_of_producers_choose_the_cluster(
    monkeypatch: pytest.MonkeyPatch, producer: str, own: str | None
) -> None:
    monkeypatch.setattr(clients, "cluster_id", cluster_id)
    config = worker(**ENABLED, **{"producer.bootstrap.servers": producer})
    assert await OffsetStores(config, OffsetStore(MemoryLog())).own_topic(connector({})) == own
    for kind in ("producer", "consumer", "admin"):
        assert client_settings(config, connector({}), kind)["bootstrap.servers"] == producer


def test_the_clients_of_a_connector_use_the_producers_cluster_and_their_overrides() -> None:
    overrides = {**ELSEWHERE, "consumer.override.fetch.max.bytes": "9", "admin.override.bootstrap.servers": "d:4"}
    consumer, admin = (client_settings(worker(), connector(overrides), kind) for kind in ("consumer", "admin"))
    assert consumer == {"bootstrap.servers": "c:3", "fetch.max.wait.ms": "7", "fetch.max.bytes": "9"}
    assert admin == {"bootstrap.servers": "d:4", "retries": "1"}


async def test_deletions_reach_the_workers_topic_before_the_own_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Written] = []
    monkeypatch.setattr(OffsetStores, "_log", lambda self, topic, clients: NotedLog(topic, written))
    offsets = OffsetStore(NotedLog("offsets", written))
    await offsets.start()
    stores = OffsetStores(worker(), offsets)
    await stores.write("c", connector(OWN), [({"a": 1}, None), ({"a": 2}, {"at": 2})], None)
    key, kept = b'["c",{"a":1}]', (b'["c",{"a":2}]', b'{"at":2}')
    assert written == [("offsets", [(key, None)]), ("own", [(key, b"null"), kept]), ("offsets", [kept])]
    await stores.close()


async def test_the_partitions_of_all_stores_are_listed_once() -> None:
    own, common = OffsetStore(MemoryLog()), OffsetStore(MemoryLog())
    for store, records in (
        (own, [(b'["c",{"a":1,"b":1}]', b'{"at":2}'), (b'["c",{"a":2}]', b'{"at":2}'), (b'["c",{"a":4}]', b"{}")]),
        (common, [(b'["c",{"b":1,"a":1}]', b'{"at":1}'), (b'["c",{"a":3}]', b"{}"), (b'["d",{"a":5}]', b"{}")]),
    ):
        await store.start()
        await store.write_raw([*records, (b'["c",{"a":4}]', None)])
    stored = StoredOffsets("c", [own, common])
    partitions = await stored.partitions()
    assert sorted(partitions, key=lambda partition: partition["a"]) == [{"a": 1, "b": 1}, {"a": 2}, {"a": 3}]
    assert None not in await stored.offsets(partitions)


async def test_a_partition_whose_offset_was_deleted_is_not_listed() -> None:
    own, common = OffsetStore(MemoryLog()), OffsetStore(MemoryLog())
    for store, records in (
        (own, [(b'["c",{"a":1,"b":1}]', DELETED), (b'["c",{"a":2}]', DELETED), (b'["c",{"a":3}]', b'{"at":3}')]),
        (common, [(b'["c",{"b":1,"a":1}]', b'{"at":1}'), (b'["c",{"a":3}]', b"null"), (b'["c",{"a":4}]', b"null")]),
    ):
        await store.start()
        await store.write_raw(records)
    assert await StoredOffsets("c", [own, common]).partitions() == [{"a": 3}]


async def test_a_commit_first_deletes_offsets_even_if_older_copies_wait() -> None:
    written: list[Written] = []
    log = NotedLog("offsets", written)
    offsets = OffsetStore(log)
    await offsets.start()
    copies = OffsetCopies(offsets)
    log.may_write.clear()
    key = b'["c",{"a":1}]'
    copies.after_commit([(key, b'{"at":1}')])
    deleting = asyncio.create_task(copies.before_commit([(key, None), (b"other", b"{}")]))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not deleting.done()
    log.may_write.set()
    await deleting
    assert written[-1] == ("offsets", [(key, None)])
    copies.after_commit([(key, b"null")])
    await copies.close()
    assert await offsets.of_connector("c") == []


async def test_a_late_copy_does_not_bring_an_offset_back_that_was_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    own: list[MemoryLog] = []

    def log(stores: OffsetStores, topic: str, clients: object) -> MemoryLog:
        own.append(MemoryLog())
        return own[-1]

    monkeypatch.setattr(OffsetStores, "_log", log)
    offsets = OffsetStore(MemoryLog())
    await offsets.start()
    stores = OffsetStores(worker(), offsets)
    reset, kept, forgotten = ({"a": number} for number in range(3))
    both = await stores.of("c", connector(OWN))
    reader = StoredOffsets("c", both)
    await stores.write("c", connector(OWN), [(reset, {"at": 1}), (kept, {"at": 2}), (forgotten, {"at": 3})], None)
    late = [(f'["c",{{"a":{number}}}]'.encode(), f'{{"at":{number + 1}}}'.encode()) for number in range(4)]
    await stores.write("c", connector(OWN), [(reset, None)], None)
    commit = await stores.copies.before_commit([(late[2][0], None)])  # as by a task
    await both[0].write_raw(commit)
    stores.copies.after_commit(commit)
    await OffsetCopies(offsets).write(late)  # another worker's
    assert await reader.offsets([reset, kept, forgotten, {"a": 3}]) == [None, {"at": 2}, None, {"at": 4}]
    listed = (await offset_requests.listed(both, "c"))["offsets"]
    assert sorted(each["partition"]["a"] for each in listed) == [1, 3]
    await stores.write("c", connector(OWN), [(reset, {"at": 5})], None)
    assert await reader.offset(reset) == {"at": 5}
    await stores.close()


LARGE, SMALL, OTHER = (f'["c",{{"a":{number}}}]'.encode() for number in range(3))


async def test_a_copy_that_is_too_large_does_not_block_the_others(caplog: pytest.LogCaptureFixture) -> None:
    too_large = RecordTooLargeError(ErrorCode.MESSAGE_TOO_LARGE, "the record has 9 bytes")
    offsets = OffsetStore(RefusingLog({LARGE: too_large}, {}))
    await offsets.start()
    copies = OffsetCopies(offsets)
    copies.after_commit([(SMALL, b'{"at":1}'), (LARGE, b'{"at":2}'), (OTHER, b'{"at":3}')])
    async with asyncio.timeout(60):
        await copies.before_commit([(OTHER, None)])
    assert await offsets.of_connector("c") == [({"a": 1}, {"at": 1})]
    (refusal,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert LARGE.decode() in refusal
    assert "9 bytes" in refusal
    with pytest.raises(RecordTooLargeError):
        await copies.write([(LARGE, b'{"at":4}')])
    await copies.close()


async def test_an_error_that_is_not_of_the_record_delays_its_copy_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_copies, "_RETRY_S", 0)
    once: dict[bytes, KafkaError] = {
        LARGE: AuthorizationError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no"),
        SMALL: KafkaTimeoutError(ErrorCode.REQUEST_TIMED_OUT, "late"),
    }
    offsets = OffsetStore(RefusingLog({}, once))
    await offsets.start()
    copies = OffsetCopies(offsets)
    async with asyncio.timeout(60):
        await copies.write([(LARGE, b'{"at":1}'), (SMALL, b'{"at":2}')])
    assert sorted(position["at"] for _, position in await offsets.of_connector("c") if position) == [1, 2]
    await copies.close()
