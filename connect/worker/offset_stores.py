"""`OffsetStores`: the offsets of connectors, in the worker's topic or in a connector's own topic (KIP-618)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from ...client.producer import Producer
from ..api.records import SourceOffset, SourcePartition
from ..settings.connector import ConnectorConfig
from ..settings.worker import WorkerConfig
from ..stores.internal_topics import enqueue
from ..stores.kafka_log import KafkaLog
from ..stores.offset_records import without_tombstones
from ..stores.offset_store import OffsetStore
from .clients import client_settings, require_one_cluster, writes_to_workers_cluster
from .offset_copies import OffsetCopies

_KINDS: Final = ("producer", "consumer", "admin")

_Place = tuple[str, dict[str, dict[str, str]]]
"""The name of a connector's own topic, and the settings of the clients that use it, by their kind."""


class OffsetStores:
    """The offset stores of this worker's connectors. Each connector's own topic is read by one shared store."""

    def __init__(self, config: WorkerConfig, worker: OffsetStore) -> None:
        self._config = config
        self._worker = worker
        self._own: dict[str, tuple[_Place, OffsetStore]] = {}
        self._opening: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.copies = OffsetCopies(worker)

    async def of(self, name: str, settings: ConnectorConfig) -> list[OffsetStore]:
        """Return a connector's stores: that of its own topic, if it has one, then the worker's.

        Raises KafkaError and ConnectError if the topic cannot be read, and ConnectError if the connector's clients are
        in several clusters: its transactions, or its own topic, would be in one cluster and the reader in another.
        """
        topic = await self.own_topic(settings)
        if topic is not None or self._config.exactly_once:
            await require_one_cluster(self._config, settings, ["admin"] if topic is None else ["admin", "consumer"])
        if topic is None:
            return [self._worker]
        place = topic, {kind: client_settings(self._config, settings, kind) for kind in _KINDS}
        async with self._opening[name]:
            known = self._own.get(name)
            if known is None or known[0] != place:
                await self._close(name)
                store = OffsetStore(self._log(*place))
                await store.start()
                known = self._own[name] = place, store
        return [known[1], self._worker]

    def topic_name(self, settings: ConnectorConfig) -> str:
        """Return the name of the topic of a connector's first store: the connector's own topic or the worker's."""
        name: str = settings["offsets.storage.topic"] or self._config["offset.storage.topic"]
        return name

    async def own_topic(self, settings: ConnectorConfig) -> str | None:
        """Return the name of a connector's own offsets topic, or None if the connector uses the worker's topic.

        With exactly-once delivery, a connector that writes to another cluster has its own topic there, because a
        transaction cannot span clusters. The topic has the name of the worker's topic, unless the settings give another
        name. Raises KafkaError if the topic's cluster cannot be determined.
        """
        worker: str | None = self._config["offset.storage.topic"]
        topic: str | None = settings["offsets.storage.topic"] or (worker if self._config.exactly_once else None)
        if not topic or not worker:
            return None
        if topic == worker and await writes_to_workers_cluster(self._config, settings):
            return None
        return topic

    async def write(
        self,
        name: str,
        settings: ConnectorConfig,
        offsets: Iterable[tuple[SourcePartition, SourceOffset | None]],
        transactional: Mapping[str, Any] | None,
    ) -> None:
        """Write offsets of a connector that has no tasks, and wait until all its stores have read them.

        If `transactional` has the settings of a producer, the offsets in the connector's first store are written in one
        transaction. Deletions reach the worker's topic before the connector's own topic (KAFKA-15018): a failure in
        between must not leave an old offset only in the worker's topic, where a task would find it.
        """
        listed = list(offsets)
        stores = await self.of(name, settings)

        async def write_to_workers_topic(*, deletions: bool) -> None:
            chosen = [(partition, offset) for partition, offset in listed if (offset is None) is deletions]
            if stores[1:] and chosen:
                await self._worker.refresh()
                await self.copies.write(self._worker.records(name, chosen))

        async def records() -> Sequence[tuple[bytes, bytes | None]]:
            await stores[0].refresh()
            pairs = stores[0].records(name, listed)
            return without_tombstones(pairs) if stores[1:] else pairs

        if transactional is None:
            await write_to_workers_topic(deletions=True)
            await stores[0].write_raw(await records())
        else:
            topic = self.topic_name(settings)
            async with Producer(dict(transactional)) as producer:
                await producer.init_transactions()  # aborts a transaction that a task left open
                await write_to_workers_topic(deletions=True)
                pairs = await records()
                async with producer.transaction():
                    for key, value in pairs:
                        await enqueue(producer, topic, key, value, stores[0].places(key))
        await write_to_workers_topic(deletions=False)
        for store in stores:
            await store.refresh()

    async def keep_only(self, connectors: Collection[str]) -> None:
        """Stop reading connectors' own topics, except the topics of `connectors`."""
        for connector in set(self._own) - set(connectors):
            await self.forget(connector)

    async def forget(self, connector: str) -> None:
        """Stop reading a connector's own topic."""
        async with self._opening[connector]:
            await self._close(connector)

    async def close(self) -> None:
        """Finish the queued copies, then stop reading all connectors' own topics."""
        await self.copies.close()
        for connector in list(self._own):
            await self.forget(connector)

    async def _close(self, connector: str) -> None:
        known = self._own.pop(connector, None)
        if known is not None:
            await known[1].stop()

    def _log(self, topic: str, clients: Mapping[str, Mapping[str, str]]) -> KafkaLog:
        return KafkaLog(
            topic,
            clients["consumer"],
            producer=clients["producer"],
            admin=clients["admin"],
            partitions=self._config["offset.storage.partitions"],
            replication_factor=self._config["offset.storage.replication.factor"],
            read_committed=True,
            setting="offsets.storage.topic",
        )
