"""Fill, count and check the topics of a job that is being killed, by the job's checkpoint.

The rows of the input are numbered. Each row belongs to one of two output topics, by its checksum, and there to the
partition of its key. The sink's state in Kafka names the last committed batch, and the checkpoint has the input offsets
at which this batch ends. Exactly the rows below these offsets must be in the two topics, once each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import zlib
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from oncelog import Admin, Consumer, KafkaError, NewTopic, Producer, TopicPartition
from oncelog.client.producer.partitioner import partition_for_key
from oncelog.pipeline.sink.settings import _of_checkpoint
from oncelog.protocol.errors import ErrorCode

PARTITIONS = 3
STATE = TopicPartition("__oncelog_pipeline", 0)


class Undecided(Exception):
    """The state cannot be known now, because a transaction is being decided, or was decided meanwhile."""


class _Reader:
    """A reader of committed records, which continues where its last call ended."""

    def __init__(self, partitions: Collection[TopicPartition]) -> None:
        self.records: dict[TopicPartition, list[tuple[int, bytes, bytes]]] = {one: [] for one in partitions}
        self._next = dict.fromkeys(partitions, 0)

    async def read_on(self, address: str, timeout_ms: int) -> None:
        async with (
            asyncio.timeout(timeout_ms / 1000),
            Consumer(
                bootstrap_servers=address,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                default_api_timeout_ms=timeout_ms,
                request_timeout_ms=timeout_ms,
            ) as consumer,
        ):
            everything = list(self._next)
            consumer.assign(everything)
            for one, offset in self._next.items():
                consumer.seek(one, offset)
            ends = await consumer.end_offsets(everything)
            while any(self._next[one] < ends[one] for one in everything):
                for one, records in (await consumer.getmany(timeout_ms=100)).items():
                    for record in records:
                        assert record.value is not None
                        assert record.key is not None
                        self.records[one].append((record.offset, record.key, record.value))
                for one in everything:
                    self._next[one] = await consumer.position(one)


class PipelineTopics:
    """The topics of one job, on a broker that may be killed at any time."""

    def __init__(self, address: str, names: dict[str, str], checkpoint: Path) -> None:
        self.address = address
        self.rows = 0
        self._names = names
        self._checkpoint = checkpoint
        self._input = [TopicPartition(names["INPUT"], one) for one in range(PARTITIONS)]
        self._output = [TopicPartition(names[name], one) for name in ("EVEN", "ODD") for one in range(PARTITIONS)]
        self._reader = _Reader(self._output)

    async def make(self) -> None:
        """Create the topics."""
        async with Admin(bootstrap_servers=self.address) as admin:
            await admin.create_topics([NewTopic(name, PARTITIONS) for name in self._names.values()])

    async def feed(self, more: int) -> None:
        """Send the next rows."""
        async with Producer(bootstrap_servers=self.address) as producer:
            for number in range(self.rows, self.rows + more):
                await producer.enqueue(self._names["INPUT"], f"{number:06}".encode(), key=f"{number % 97}".encode())
            await producer.flush()
        self.rows += more

    async def count(self, timeout_ms: int = 3000) -> int:
        """Return how many rows have come out, as far as this is known now."""
        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            await self._reader.read_on(self.address, timeout_ms)
        return sum(len(records) for records in self._reader.records.values())

    async def check(self, timeout_ms: int = 30_000) -> int:
        """Read all topics from the beginning, compare them with the checkpoint, and count the committed rows.

        Raises AssertionError for a lost, repeated or misplaced row, Undecided, and the errors of clients if the broker
        does not respond.
        """
        before = await self._state()
        source, sink = _Reader(self._input), _Reader(self._output)
        await sink.read_on(self.address, timeout_ms)
        await source.read_on(self.address, timeout_ms)
        if await self._state() != before:
            raise Undecided
        ends = self._ends(before)
        wanted = Counter(
            value for one in self._input for offset, _, value in source.records[one] if offset < ends.get(one, 0)
        )
        found: Counter[bytes] = Counter()
        for one, records in sink.records.items():
            for _, key, value in records:
                topic = self._names["EVEN" if zlib.crc32(value) % 2 == 0 else "ODD"]
                assert one == (topic, partition_for_key(key, PARTITIONS)), f"row {value!r} is in {one}"
                found[value] += 1
        lost, doubled = wanted - found, found - wanted
        where = f"batch {before}, input offsets {sorted(ends.values())}"
        assert not lost, f"lost {sorted(lost)[:10]} ({sum(lost.values())} rows); {where}"
        assert not doubled, f"repeated, or not in the checkpoint: {sorted(doubled)[:10]} ({len(doubled)}); {where}"
        return sum(found.values())

    async def check_end(self) -> None:
        """Check, after a clean stop, that all rows are there as in `check`, and no transaction is open."""
        async with asyncio.timeout(60):
            while True:
                try:
                    assert await self.check() == self.rows
                    break
                except Undecided:
                    await asyncio.sleep(0.1)
        async with (
            Consumer(bootstrap_servers=self.address, isolation_level="read_committed") as stable,
            Consumer(bootstrap_servers=self.address) as all_of_it,
        ):
            ends = await all_of_it.end_offsets(self._output)
            assert await stable.end_offsets(self._output) == ends, "a transaction is open: readers wait for it"

    # -- inside

    async def _state(self) -> int | None:
        """Return the last committed batch, as Kafka knows it. The state must belong to this query."""
        name = _of_checkpoint(str(self._checkpoint))
        async with Admin(bootstrap_servers=self.address) as admin:
            try:
                state = (await admin.describe_transactions([name]))[name].state
            except KafkaError as error:
                if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise
                return None
            if state.startswith("Prepare"):
                raise Undecided
            position = (await admin.group_offsets(name)).get(STATE)
        if position is None:
            return None
        query = json.loads((self._checkpoint / "metadata").read_text())["id"]
        assert json.loads(position.metadata)["owner"] == query
        return position.offset

    def _ends(self, batch: int | None) -> dict[TopicPartition, int]:
        """Return where the committed batch ends in the input. Spark has noted that batch or the one before."""
        noted = max((int(one.name) for one in (self._checkpoint / "commits").glob("[0-9]*")), default=None)
        allowed = (None, 0) if noted is None else (noted, noted + 1)
        assert batch in allowed, f"Kafka has committed batch {batch}, Spark has noted {noted}"
        if batch is None:
            return {}
        told = json.loads((self._checkpoint / "offsets" / str(batch)).read_text().splitlines()[2])
        return {TopicPartition(topic, int(one)): end for topic, ends in told.items() for one, end in ends.items()}
