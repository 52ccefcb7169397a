"""`OffsetStores`: the offsets of connectors, in the worker's topic or in a connector's own topic (KIP-618)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ...client.producer import Producer
from ..api.records import SourceOffset, SourcePartition
from ..settings.connector import ConnectorConfig
from ..settings.worker import WorkerConfig
from ..stores.kafka_log import KafkaLog
from ..stores.offset_store import OffsetStore
from .offset_copies import OffsetCopies


class OffsetStores:
    """The offset stores of this worker's connectors. Each connector's own topic is read by one shared store."""

    def __init__(self, config: WorkerConfig, worker: OffsetStore) -> None:
        self._config = config
        self._worker = worker
        self._own: dict[str, tuple[str, OffsetStore]] = {}
        self._opening: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.copies = OffsetCopies(worker)

    async def of(self, settings: ConnectorConfig) -> list[OffsetStore]:
        """Return a connector's stores: that of its own topic, if it has one, then the worker's.

        Raises KafkaError and ConnectError if the topic cannot be read.
        """
        topic = self.own_topic(settings)
        if topic is None:
            return [self._worker]
        name = settings["name"]
        async with self._opening[name]:
            known = self._own.get(name)
            if known is None or known[0] != topic:
                await self._close(name)
                store = OffsetStore(self._log(topic, settings))
                await store.start()
                known = self._own[name] = topic, store
        return [known[1], self._worker]

    def own_topic(self, settings: ConnectorConfig) -> str | None:
        """Return the name of a connector's own offsets topic, or None if the connector uses the worker's topic."""
        topic: str | None = settings["offsets.storage.topic"]
        worker = self._config["offset.storage.topic"]
        return topic if topic and worker and topic != worker else None

    async def write(
        self,
        settings: ConnectorConfig,
        offsets: Iterable[tuple[SourcePartition, SourceOffset | None]],
        transactional: Mapping[str, Any] | None,
    ) -> None:
        """Write offsets of a connector that has no tasks, and wait until all its stores have read them.

        If `transactional` has the settings of a producer, all offsets are written in one transaction.
        """
        name, given = settings["name"], list(offsets)
        stores = await self.of(settings)
        if transactional is None:
            await stores[0].refresh()
            await stores[0].write_raw(stores[0].records(name, given))
        else:
            topic = self.own_topic(settings) or self._config["offset.storage.topic"]
            async with Producer(dict(transactional)) as producer:
                await producer.init_transactions()  # aborts a transaction that a task left open
                await stores[0].refresh()
                async with producer.transaction() as transaction:
                    for key, value in stores[0].records(name, given):
                        await transaction.enqueue(topic, value, key=key)
        for store in stores[1:]:
            await store.refresh()
            await store.write_raw(store.records(name, given))
        for store in stores:
            await store.refresh()

    async def keep_only(self, connectors: Collection[str]) -> None:
        """Stop reading the own topics of all connectors except these."""
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

    def _log(self, topic: str, settings: ConnectorConfig) -> KafkaLog:
        overridden = settings.with_prefix("producer.override.").get("bootstrap.servers")
        cluster = {} if overridden is None else {"bootstrap.servers": overridden}
        return KafkaLog(
            topic,
            {**self._config.client("consumer"), **cluster},
            partitions=self._config["offset.storage.partitions"],
            replication_factor=self._config["offset.storage.replication.factor"],
            read_committed=True,
            setting="offsets.storage.topic",
        )
