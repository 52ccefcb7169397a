"""Where the offsets of a connector are: in the worker's topic, in a topic of its own, or in both."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from oncelog.connect.settings.connector import ConnectorConfig, source_config_def
from oncelog.connect.settings.worker import STANDALONE, WorkerConfig
from oncelog.connect.stores.memory_log import MemoryLog
from oncelog.connect.stores.offset_store import OffsetStore
from oncelog.connect.worker import clients
from oncelog.connect.worker.clients import client_settings
from oncelog.connect.worker.offset_copies import OffsetCopies
from oncelog.connect.worker.offset_stores import OffsetStores

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
    async def cluster_id(client: Mapping[str, str]) -> str:
        return {"a": "ours", "b": "ours", "c": "another"}[client["bootstrap.servers"][0]]

    monkeypatch.setattr(clients, "cluster_id", cluster_id)
    stores = OffsetStores(worker(**enabled), OffsetStore(MemoryLog()))
    assert await stores.own_topic(connector(settings)) == topic


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
    gone, kept = (b'["c",{"a":1}]', None), (b'["c",{"a":2}]', b'{"at":2}')
    assert written == [("offsets", [gone]), ("own", [gone, kept]), ("offsets", [kept])]
    await stores.close()


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
    copies.after_commit([(key, None)])
    await copies.close()
    assert await offsets.of_connector("c") == []
