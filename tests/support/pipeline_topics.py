"""What a job that is being killed reads and writes: filled, counted, and held against the job's checkpoint.

The input's rows are numbered; each belongs into one of two topics, by its checksum, and there into the partition of its
key. What Kafka says is committed (the sink's state) names a batch, and the checkpoint says up to which input offsets
that batch reaches: exactly the rows below them must be in the two topics, once each.
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
    """Nothing can be said now: a transaction is just being decided, or something was decided meanwhile."""


class _Reader:
    """Reads committed records on, from call to call."""

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
        """How many rows have come out, as far as that can be told now."""
        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            await self._reader.read_on(self.address, timeout_ms)
        return sum(len(records) for records in self._reader.records.values())

    async def check(self, timeout_ms: int = 30_000) -> int:
        """Hold everything against the checkpoint, read anew; returns how many rows are committed.

        Raises AssertionError for a lost, doubled or misplaced row, Undecided, and what the clients raise when the
        broker does not answer.
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
        assert not doubled, f"doubled, or not in the checkpoint: {sorted(doubled)[:10]} ({len(doubled)}); {where}"
        return sum(found.values())

    async def check_end(self) -> None:
        """After a clean stop: the same, and all rows are there, and no transaction is open."""
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
        """The last batch that is committed, as Kafka knows it; it must be this query's."""
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
        """Where the committed batch ends in the input. Spark's own note of commits is it, or one batch behind."""
        noted = max((int(one.name) for one in (self._checkpoint / "commits").glob("[0-9]*")), default=None)
        allowed = (None, 0) if noted is None else (noted, noted + 1)
        assert batch in allowed, f"Kafka has committed batch {batch}, Spark has noted {noted}"
        if batch is None:
            return {}
        told = json.loads((self._checkpoint / "offsets" / str(batch)).read_text().splitlines()[2])
        return {TopicPartition(topic, int(one)): end for topic, ends in told.items() for one, end in ends.items()}
