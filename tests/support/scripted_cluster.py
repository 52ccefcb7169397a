"""A cluster of one node whose responses a test determines, and the parts of a transactional producer above it.

Requests wait in `asked` until the test decides about them: each can be lost, late or an error. The features that the
broker announces can change at any time. Everything runs in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from oncelog.client.backoff import ExponentialBackoff
from oncelog.client.cluster import KeyType
from oncelog.client.config import ProducerConfig
from oncelog.client.connection import ConnectionOptions
from oncelog.client.errors import NetworkError, error_for
from oncelog.client.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from oncelog.client.producer.accumulator import RecordAccumulator
from oncelog.client.producer.sender import Sender
from oncelog.client.producer.transaction_lifecycle import Transactions
from oncelog.client.versions import GROUP_AWARE_TRANSACTION
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal_topics import OFFSETS_TOPIC
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from support.virtual_time import VirtualTimeLoop

LOST = NetworkError(ErrorCode.NETWORK_EXCEPTION, "the answer was lost")
TOPIC = "t"
PARTITIONS, OFFSETS_PARTITIONS = 3, 50


def known_topic(name: str, partitions: int) -> TopicMetadata:
    return TopicMetadata(
        name, bytes(16), ErrorCode.NONE, False, tuple(PartitionMetadata(one, 0, 0) for one in range(partitions))
    )


class ScriptedConnection:
    """A connection that supports every version of all APIs, except that Produce ends at the version `produce`.

    Its features are those that the cluster had when the connection was made.
    """

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.cluster = cluster
        self.options = ConnectionOptions(client_id="c")
        self.address = "node:9092"
        self.finalized_features = dict(cluster.features)
        self.extension_aware = self.finalized_features.get(GROUP_AWARE_TRANSACTION, 0) >= 1
        self.newest_produce = cluster.newest_produce
        self.is_closed = False

    def version_of(self, request: type[Any], at_most: int = 32767) -> int:
        newest: int = request.spec.stable.high
        if request.__name__ == "ProduceRequest":
            newest = self.newest_produce
        return min(at_most, newest)

    def supports(self, request: type[Any], version: int) -> bool:
        return version <= self.version_of(request)

    def send(self, request: Any, version: int, timeout_s: float | None = None) -> asyncio.Future[Any]:
        if self.is_closed:
            raise LOST
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.cluster.asked.append((request, future))
        self.cluster.arrived.set()
        return future

    def close(self, why: str = "") -> None:
        self.is_closed = True


class ScriptedCluster:
    """The cluster that the module describes. After `reconnect`, the next request finds the current `features`."""

    def __init__(self, transaction_version: int, group_aware: int = 0) -> None:
        self.features = {"transaction.version": transaction_version, GROUP_AWARE_TRANSACTION: group_aware}
        self.newest_produce = 13
        self.asked: list[tuple[Any, asyncio.Future[Any]]] = []
        self.arrived = asyncio.Event()
        self.away = False
        self.homes_known = True
        self.looked_up: list[tuple[KeyType, str]] = []
        self.metadata = ClusterMetadata(topics={OFFSETS_TOPIC: known_topic(OFFSETS_TOPIC, OFFSETS_PARTITIONS)})
        self.retry_backoff = ExponentialBackoff(100, 1000, lambda: 0.5)
        self.config = ProducerConfig.of({"transactional.id": "x"})
        self._connection: ScriptedConnection | None = None

    def reconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()

    async def coordinator(self, key_type: KeyType, key: str, timeout_s: float) -> int:
        self.looked_up.append((key_type, key))
        if key_type is KeyType.GROUP_HOME and not self.homes_known:
            raise error_for(ErrorCode.INVALID_REQUEST, "no such key type")
        return 0

    def known_coordinator(self, key_type: KeyType, key: str) -> int:
        return 0

    def forget_coordinator(self, key_type: KeyType, key: str) -> None:
        pass

    def track(self, topics: Iterable[str]) -> None:
        pass

    def request_refresh(self) -> None:
        pass

    async def refresh(self, topics: Iterable[str] | None = None) -> ClusterMetadata:
        raise LOST

    async def topic(self, name: str, timeout_s: float) -> TopicMetadata:
        return known_topic(name, PARTITIONS)

    def leader_of(self, partition: tuple[str, int]) -> int:
        return 0

    def any_node(self) -> int:
        return 0

    def open_connection(self, node_id: int, channel: str = "") -> ScriptedConnection | None:
        if self.away:
            return None
        if self._connection is None or self._connection.is_closed:
            self._connection = ScriptedConnection(self)
        return self._connection

    async def connection(self, node_id: int, channel: str = "") -> ScriptedConnection:
        opened = self.open_connection(node_id, channel)
        if opened is None:
            raise LOST
        return opened

    async def call(self, node_id: int, request: Any, channel: str = "", timeout_s: float | None = None) -> Any:
        return await (await self.connection(node_id, channel)).send(request, 0)

    async def any_connection(self, timeout_s: float) -> ScriptedConnection:
        return await self.connection(0)

    async def retrying(self, ask: Callable[[], Awaitable[Any]], timeout_s: float, what: str) -> Any:
        return await ask()

    async def next(self, kind: type[Any]) -> tuple[Any, asyncio.Future[Any]]:
        """Wait for the next request, which must be of this kind. Return it and the future of its response."""
        while not self.asked:
            self.arrived.clear()
            async with asyncio.timeout(1000):
                await self.arrived.wait()
        request, future = self.asked.pop(0)
        assert isinstance(request, kind), f"{request} instead of {kind.__name__}"
        return request, future

    async def answer(self, kind: type[Any], response: Any) -> Any:
        """Respond to the next request, which must be of this kind, and return the request."""
        request, future = await self.next(kind)
        future.set_result(response)
        return request


class World:
    """A transactional producer's parts above a scripted cluster."""

    def __init__(self, version: int, group_aware: int = 0, **settings: Any) -> None:
        loop = asyncio.get_running_loop()
        self.cluster = ScriptedCluster(version, group_aware)
        self.tasks: set[asyncio.Task[Any]] = set()
        own = {"transactional_id": "x", "linger_ms": 0, "max_block_ms": 5000}
        config = ProducerConfig.of({**own, **settings})
        cluster: Any = self.cluster
        self.accumulator = RecordAccumulator(config, loop.time, lambda: self.sender.wake())
        self.transactions = Transactions(config, cluster, self.accumulator, self.spawn)
        self.manager = self.transactions.manager
        self.sender = Sender(config, cluster, self.accumulator, self.manager, self.spawn, self.crashed)
        self.transactions.use(self.sender)
        self.topic = self.accumulator.use_topic(known_topic(TOPIC, PARTITIONS))

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def crashed(self, what: str, cause: Exception) -> None:
        raise cause

    async def init(self, epoch: int = 0) -> None:
        """Initialise the producer, with responses like Kafka's."""
        task = asyncio.create_task(self.transactions.init())
        await self.cluster.answer(InitProducerIdRequest, InitProducerIdResponse(producer_id=7, producer_epoch=epoch))
        await task

    async def begin(self) -> None:
        await self.init()
        self.manager.begin()

    def append(self, *values: bytes, partition: int = 0) -> None:
        for value in values:
            assert self.accumulator.append(self.topic, partition, 0, None, value, ()) is not None

    async def close(self) -> None:
        self.sender.close()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def in_world(test: Callable[[World], Awaitable[None]], version: int, group_aware: int = 0, **settings: Any) -> None:
    """Run a test in virtual time. The producer is not initialised yet."""

    async def main() -> None:
        world = World(version, group_aware, **settings)
        try:
            await test(world)
        finally:
            await world.close()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(main())


def produced(code: ErrorCode = ErrorCode.NONE, partition: int = 0) -> ProduceResponse:
    return ProduceResponse(
        [TopicProduceResponse(TOPIC, partition_responses=[PartitionProduceResponse(partition, code, 0)])]
    )


def offsets_answered(request: TxnOffsetCommitRequest, code: int = 0) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name, [TxnOffsetCommitResponsePartition(one.partition_index, code) for one in topic.partitions]
            )
            for topic in request.topics
        ]
    )
