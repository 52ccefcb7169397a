"""Define the demo's topics, and create, write, watch and read them with Kafka clients."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Literal, TypeAlias

from ..client.admin import Admin, NewTopic
from ..client.consumer import Consumer
from ..client.producer import Producer
from ..client.values import TopicPartition
from ..protocol.errors import KafkaError
from .waits import Waits

FLIGHTS: Final = "flights"
ENRICHED: Final = "flights-enriched"
CARRIERS: Final = "carrier-delays"
CLEANED: Final = "flights-cleaned"
HOURS: Final = "airport-hours"
LATEST: Final = "latest-airports"
GROUP: Final = "flight-transformer"
PARTITIONS: Final = {FLIGHTS: 3, ENRICHED: 3, CARRIERS: 1, CLEANED: 3, HOURS: 3, LATEST: 1}

_Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]

DELIVERY_TIMEOUT_MS: Final = 120_000


async def create_topics(bootstrap: str, *names: str) -> None:
    """Create the named topics of the demo, with their numbers of partitions in `PARTITIONS`."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(name, PARTITIONS[name]) for name in names])


def _partitions(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in range(PARTITIONS[topic])]


class Watcher:
    """An admin client with short timeouts, for requests to a broker that may be down."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = Admin(
            bootstrap_servers=bootstrap,
            request_timeout_ms=2000,
            default_api_timeout_ms=2000,
            reconnect_backoff_max_ms=200,
        )

    async def __aenter__(self) -> Watcher:
        await self._admin.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._admin.close()

    async def committed_flights(self) -> int | None:
        """Return the number of flights that the group has committed, or None if the broker does not answer."""
        try:
            offsets = await self._admin.group_offsets(GROUP)
        except (KafkaError, OSError):
            return None
        # `flights` has no transactions, and therefore no markers, so each of its offsets is a flight.
        return sum(position.offset for partition, position in offsets.items() if partition.topic == FLIGHTS)

    async def sees_open_transaction(self, *topics: str) -> bool:
        """Return whether one of the topics has records of an open transaction. False if the broker does not answer."""
        partitions = [partition for topic in topics for partition in _partitions(topic)]
        try:
            end = await self._admin.list_offsets(dict.fromkeys(partitions, -1))
            # The last stable offset is requested second: if it is still below `end`, a transaction is open.
            stable = await self._admin.list_offsets(dict.fromkeys(partitions, -1), isolation_level="read_committed")
        except (KafkaError, OSError):
            return False
        return any(stable[partition].offset < end[partition].offset for partition in partitions)


@contextlib.asynccontextmanager
async def feeder(bootstrap: str) -> AsyncIterator[Callable[[bytes | None, bytes], Awaitable[object]]]:
    """Yield a function `send(key, value)` of an idempotent producer for `flights`. `send` does not wait for delivery.

    When the context ends, all records have been acknowledged, or the error of the first failed record is raised.
    """
    async with Producer(
        bootstrap_servers=bootstrap, linger_ms=20, compression_type="lz4", delivery_timeout_ms=DELIVERY_TIMEOUT_MS
    ) as producer:
        yield lambda key, value: producer.enqueue(FLIGHTS, value, key=key)
        await producer.flush()


Take: TypeAlias = Callable[[int, int, bytes | None, bytes | None], object]
"""A callback that receives (partition, offset, key, value) of each record."""


async def read_committed(waits: Waits, bootstrap: str, topic: str, take: Take) -> None:
    """Call `take` for every committed record of a topic, in offset order per partition.

    Raise JobFailed if reading exceeds a limit of `waits`.
    """
    await _read(waits, bootstrap, topic, "read_committed", take)


async def count_uncommitted(waits: Waits, bootstrap: str, topic: str) -> int:
    """Return the number of records in a topic's log, both committed and uncommitted, without markers.

    Raise JobFailed if reading exceeds a limit of `waits`.
    """
    return await _read(waits, bootstrap, topic, "read_uncommitted", lambda *_: None)


async def _read(waits: Waits, bootstrap: str, topic: str, isolation_level: _Isolation, take: Take) -> int:
    """Read a topic up to its current end, call `take` for each record, and return the number of records."""
    count = 0
    positions: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}

    def where() -> str:
        stands = ", ".join(
            f"{positions.get(one, 0)} of {end} in partition {one.partition}" for one, end in ends.items()
        )
        return f"a {isolation_level} reader of {topic} ({count} records read; offset {stands or 'unknown'})"

    limits = waits.limits
    async with (
        waits.upto(limits.read_s, lambda: f"the end of {where()}"),
        waits.upto(limits.record_s, lambda: f"the next record of {where()}") as next_record,
        Consumer(
            bootstrap_servers=bootstrap,
            isolation_level=isolation_level,
            auto_offset_reset="earliest",
            max_poll_records=5000,
            enable_auto_commit=False,
        ) as consumer,
    ):
        partitions = _partitions(topic)
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        ends.update(await consumer.end_offsets(partitions))
        while True:
            records = await consumer.poll(timeout_ms=200)
            for record in records:
                take(record.partition, record.offset, record.key, record.value)
            count += len(records)
            positions.update({one: await consumer.position(one) for one in partitions})
            next_record.stands_at(dict(positions))
            if not records and all(positions[one] >= end for one, end in ends.items()):
                return count
