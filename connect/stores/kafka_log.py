"""`KafkaLog`: an internal topic in the Kafka cluster.

A consumer without a group reads the topic. The end offset that `read_to_end` waits for includes records of open
transactions, even if only committed records are applied: a reader must not miss records that are about to be committed
(KIP-618).

Partitions that are added to the topic are read from the next `read_to_end` on. A record that is older than a record of
the same key in another partition (see `LatestRecords`) is not applied.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...client.admin import Admin, NewTopic
from ...client.consumer import Consumer, ConsumerRecord
from ...client.errors import InvalidTopicError, KafkaError, RetriableError
from ...client.producer import Delivery, Producer
from ...client.values import TopicPartition
from ..errors import ConnectError
from .internal_topics import enqueue, prepare
from .latest import LatestRecords
from .topic_log import Apply, LogRecord

log = logging.getLogger(__name__)

_POLL_MS: Final = 200
"""The longest time, in ms, until `read_to_end` notices a position that has moved only past transaction markers."""

_MAX_DELAY_S: Final = 2.0
"""The longest wait, in seconds, before the topic is read again after an error."""

_END: Final = -1

_WRITES: Final = {"acks": "all", "delivery.timeout.ms": 2**31 - 1}
"""The settings of the producer on which the safety of the records depends."""

_CLOSE_S: Final = 5.0
"""The longest wait, in seconds, for the acknowledgement of records when the log is stopped."""


OFFSETS: Final = "offset.storage.topic", "source connector offsets"
CONFIGS: Final = "config.storage.topic", "connector configurations"
STATUSES: Final = "status.storage.topic", "connector and task statuses"
"""The setting and the purpose of each internal topic, in Kafka Connect's words."""


class KafkaLog:
    """A `TopicLog` in a Kafka topic, which is created with compaction if it is missing.

    `client` contains the settings of the consumer, and of the producer and the admin client unless these have their
    own. With a `transactional_id`, fenced appends are transactions. A new topic gets `partitions` partitions; if
    `single` is set, an existing topic with more than one partition is refused, and partitions that are added later are
    not used. Error messages name the topic by its `setting` and its `purpose`. Client settings on which the log
    depends, such as `isolation.level`, cannot be overridden.
    """

    def __init__(
        self,
        topic: str,
        client: Mapping[str, Any],
        *,
        producer: Mapping[str, Any] | None = None,
        admin: Mapping[str, Any] | None = None,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        read_committed: bool = False,
        transactional_id: str | None = None,
        single: bool = False,
        setting: str = OFFSETS[0],
        purpose: str = OFFSETS[1],
    ) -> None:
        self.topic = topic
        self._client = dict(client)
        self._producer_client = self._client if producer is None else dict(producer)
        self._admin_client = self._client if admin is None else dict(admin)
        self._new_topic = NewTopic(
            topic, partitions, replication_factor, {**(configs or {}), "cleanup.policy": "compact"}
        )
        self._read_committed = read_committed
        self._transactional_id = transactional_id
        self._single, self._setting, self._purpose = single, setting, purpose
        self._waiters: dict[asyncio.Future[None], dict[TopicPartition, int]] = {}
        self._partitions: list[TopicPartition] = []
        self._latest = LatestRecords()
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self._opened: contextlib.AsyncExitStack | None = None
        self._leader: Producer | None = None
        self._admin: Admin
        self._consumer: Consumer
        self._producer: Producer
        self._apply: Apply

    async def start(self, apply: Apply) -> None:
        """Create the topic if it is missing, and read it to its end. Raises KafkaError, ConnectError."""
        self._apply = apply
        async with contextlib.AsyncExitStack() as opened:
            self._admin = await opened.enter_async_context(Admin(self._admin_client))
            await prepare(self._admin, self._new_topic, self._setting, self._purpose)
            self._producer = Producer(_with(self._producer_client, {**_WRITES, "transactional.id": None}))
            opened.push_async_callback(self._close_producer)
            await self._producer.start()
            count = await self._producer.partitions_for(self.topic)  # waits until the brokers know a new topic
            if self._single and count != 1:
                raise ConnectError(
                    f"Topic '{self.topic}' supplied via the '{self._setting}' property is required to have a single "
                    f"partition in order to guarantee consistency of connector configurations, but found {count} "
                    "partitions."
                )
            self._partitions = [TopicPartition(self.topic, number) for number in range(count)]
            isolation = "read_committed" if self._read_committed else "read_uncommitted"
            reads = {"isolation.level": isolation, "auto.offset.reset": "earliest"}
            self._consumer = await opened.enter_async_context(Consumer(_with(self._client, reads)))
            self._consumer.assign(self._partitions)
            await self._consumer.seek_to_beginning()
            self._task = asyncio.create_task(self._follow(), name=f"read {self.topic}")
            opened.push_async_callback(self._end_task)
            # Wait for this isolation level's end only: a killed task may have left a transaction open in this topic,
            # and the component that aborts the transaction starts after this store.
            await self._read_to_end(isolation)
            self._opened = opened.pop_all()

    async def stop(self) -> None:
        """Stop reading and close the clients. Pending calls to `read_to_end` raise ConnectError."""
        self._stopped = True
        self._fail_waiters(self._closed())
        await self._relinquish()
        if self._opened is not None:
            await self._opened.aclose()

    async def read_to_end(self, timeout_s: float | None = None) -> None:
        """Wait until all records that the topic holds now are applied, and until its open transactions have ended.

        Raises TimeoutError after `timeout_s` seconds, ConnectError if the log is not started or was stopped, and
        KafkaError if the cluster refuses to send the records. If a record cannot be applied, reading ends, and the
        record's error is raised.
        """
        if self._stopped:
            raise self._closed()
        if self._task is None:
            raise ConnectError(f"the log of {self.topic} is not started")
        if self._task.done():
            await self._task
        async with asyncio.timeout(timeout_s):
            await self._follow_added_partitions()
            await self._read_to_end("read_uncommitted")

    async def _follow_added_partitions(self) -> None:
        """Begin to read partitions that were added to the topic. Raises KafkaError."""
        if self._single:
            return
        try:
            described = await self._admin.describe_topics([self.topic])
        except InvalidTopicError:
            return  # a new topic unknown to the broker, or a deleted topic: the caller asks for the topic's end next
        known, count = len(self._partitions), len(described[self.topic].partitions)
        if count <= known or self._stopped:
            return
        log.info("%s has %d partitions now, %d more than before", self.topic, count, count - known)
        added = [TopicPartition(self.topic, number) for number in range(known, count)]
        self._partitions = [*self._partitions, *added]
        self._consumer.assign(self._partitions)
        await self._consumer.seek_to_beginning(*added)

    async def _read_to_end(self, isolation_level: str) -> None:
        ends = await self._admin.list_offsets(dict.fromkeys(self._partitions, _END), isolation_level=isolation_level)
        if self._stopped:
            raise self._closed()
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = {partition: end.offset for partition, end in ends.items()}
        self._consumer.wakeup()
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)

    def _closed(self) -> ConnectError:
        return ConnectError(f"reading of {self.topic} was stopped: try again")

    async def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Append (key, value) pairs and wait until they are acknowledged. Raises KafkaError."""
        deliveries = []
        for key, value in records:
            deliveries += await self._enqueue(self._producer, key, value)
        await asyncio.gather(*deliveries)

    def places(self, key: bytes) -> Mapping[int, int]:
        """Return the partitions that have had records of a key, each with its newest timestamp for the key, in ms."""
        return self._latest.places(key)

    async def append_fenced(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Append (key, value) pairs in one transaction. After an error, call `claim` again.

        Raises KafkaError, and ConnectError before `claim`. Without a transactional id, appends the pairs as `append`
        does.
        """
        if self._transactional_id is None:
            await self.append(records)
            return
        if self._leader is None:
            raise ConnectError(f"cannot write to {self.topic} before write privileges are claimed")
        try:
            async with self._leader.transaction():
                for key, value in records:
                    await self._enqueue(self._leader, key, value)
        except BaseException:
            await self._relinquish()
            raise

    async def _enqueue(self, producer: Producer[Any, Any], key: bytes, value: bytes | None) -> list[Delivery]:
        if self._single:
            return [await producer.enqueue(self.topic, value, key=key, partition=0)]
        return await enqueue(producer, self.topic, key, value, self.places(key))

    async def claim(self) -> None:
        """Fence the previous leader and become the only client that may call `append_fenced`. May be called again."""
        if self._transactional_id is None:
            return
        await self._relinquish()
        leader = Producer(_with(self._producer_client, {"transactional.id": self._transactional_id}))
        await leader.start()
        try:
            await leader.init_transactions()
        except BaseException:
            await leader.close(0)
            raise
        self._leader = leader

    async def _close_producer(self) -> None:
        try:
            await self._producer.close(_CLOSE_S)
        except KafkaError as error:
            log.warning("some records were not written to %s: %s", self.topic, error)

    async def _relinquish(self) -> None:
        leader, self._leader = self._leader, None
        if leader is not None:
            await leader.close(0)

    async def _follow(self) -> None:
        """Apply records forever. After an error of the cluster, try again.

        An error of the cluster that is not retriable fails the calls that are waiting now, but no later calls.
        """
        delay_s = _POLL_MS / 1000
        try:
            while True:
                try:
                    for record in await self._consumer.poll(_POLL_MS):
                        if record.key is not None and self._is_latest(record):
                            self._apply(LogRecord(record.key, record.value, record.partition, record.offset))
                    if self._waiters:
                        await self._wake_waiters()
                    delay_s = _POLL_MS / 1000
                except KafkaError as error:
                    log.warning("could not read %s; trying again: %s", self.topic, error)
                    if not isinstance(error, RetriableError):
                        self._fail_waiters(error)
                    await asyncio.sleep(delay_s)
                    delay_s = min(2 * delay_s, _MAX_DELAY_S)
        except Exception as error:
            log.error("the worker has stopped reading %s", self.topic, exc_info=error)
            self._fail_waiters(error)
            raise

    def _fail_waiters(self, error: Exception) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(error)

    def _is_latest(self, record: ConsumerRecord[bytes, bytes]) -> bool:
        assert record.key is not None
        return self._latest.add(record.key, record.partition, record.timestamp, len(self._partitions))

    async def _wake_waiters(self) -> None:
        waiting = list(self._waiters.items())
        partitions = {partition for _, ends in waiting for partition in ends}
        positions = {partition: await self._consumer.position(partition) for partition in partitions}
        for waiter, ends in waiting:
            if not waiter.done() and all(positions[partition] >= end for partition, end in ends.items()):
                waiter.set_result(None)

    async def _end_task(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def _with(client: Mapping[str, Any], needed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a client's settings, overridden by those in `needed`, however the client spells the names."""
    return {name: value for name, value in client.items() if name.replace("_", ".") not in needed} | dict(needed)
