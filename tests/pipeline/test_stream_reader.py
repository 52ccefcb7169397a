"""The stream's reader without Spark: what it plans when topics and records go away."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

from oncelog import Admin, NewTopic, Producer, TopicPartition
from oncelog.pipeline.source.offsets import DataLossError
from oncelog.pipeline.source.reader import SourceSettings, StreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable


class Readers:
    """Makes readers, and closes them."""

    def __init__(self, topics: Any) -> None:
        self._topics = topics
        self._made: list[StreamReader] = []

    def __call__(self, **options: str) -> StreamReader:
        options = {"startingOffsets": "earliest", **self._topics.options, **options}
        self._made.append(StreamReader(SourceSettings(options, streaming=True)))
        return self._made[-1]

    def close(self) -> None:
        for reader in self._made:
            reader.stop()


@pytest.fixture
def readers(topics: Any) -> Iterator[Readers]:
    made = Readers(topics)
    yield made
    made.close()


def delete(topics: Any, topic: str) -> None:
    async def delete() -> None:
        async with Admin(bootstrap_servers=topics.bootstrap) as admin:
            await admin.delete_topics([topic])
            async with asyncio.timeout(60):
                while topic in await admin.list_topics():
                    await asyncio.sleep(0.02)

    asyncio.run(delete())


def make_again(topics: Any, topic: str) -> None:
    """Brokers delete a topic bit by bit: its name may be taken for a while."""

    async def make() -> None:
        async with asyncio.timeout(60), Admin(bootstrap_servers=topics.bootstrap) as admin:
            while (await admin.create_topics([NewTopic(topic, 3)], raise_errors=False))[topic] is not None:
                await asyncio.sleep(0.1)

    asyncio.run(make())


def rows(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> int:
    tasks = reader.partitions(start, end)
    return sum(batch.num_rows for task in tasks for batch in reader.read(task))


def test_the_records_of_a_complete_transaction_are_there_at_once(topics: Any, readers: Readers) -> None:
    """The other tests rely on it: whatever `send` has sent is in the next micro-batch."""
    topic = topics.make("in")
    reader = readers(subscribe=topic)
    for sent in range(1, 11):
        topics.send(topic, range(3))  # to each partition a record and a marker
        end = reader.latestOffset({}, ReadAllAvailable())
        assert end == {topic: {str(partition): 2 * sent for partition in range(3)}}


@pytest.mark.parametrize("available_now", [False, True])
def test_a_topic_that_is_gone_is_a_loss(topics: Any, readers: Readers, available_now: bool) -> None:
    kept, gone = topics.make("kept"), topics.make("gone")
    topics.send(kept, range(3))
    topics.send(gone, range(3))
    both = f"{kept},{gone}"
    start = readers(subscribe=both).initialOffset()
    delete(topics, gone)
    for fail in ("true", "false"):
        reader = readers(subscribe=both, failOnDataLoss=fail)
        if available_now:
            reader.prepareForTriggerAvailableNow()
        if fail == "true":
            with pytest.raises(DataLossError, match=f"{gone}-0, .*was deleted"):
                reader.latestOffset(start, ReadAllAvailable())
        else:
            end = reader.latestOffset(start, ReadAllAvailable())
            assert set(end) == {kept}
            assert rows(reader, start, end) == 3


def test_a_planned_batch_whose_topic_is_gone_is_a_loss_at_once(topics: Any, readers: Readers) -> None:
    """A batch that Spark runs again, because the query was stopped in its middle."""
    kept, gone = topics.make("kept"), topics.make("gone")
    topics.send(kept, range(3))
    topics.send(gone, range(3))
    both = f"{kept},{gone}"
    reader = readers(subscribe=both)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    delete(topics, gone)
    began = time.monotonic()
    with pytest.raises(DataLossError, match=rf"Offsets 0 to 1 of {gone}-0 cannot be read"):
        readers(subscribe=both).partitions(start, end)
    tolerant = readers(subscribe=both, failOnDataLoss="false")
    assert rows(tolerant, start, end) == 3
    assert time.monotonic() - began < 20, "it does not wait for the topic to come back"


def test_a_topic_that_is_not_told_of_for_a_moment_is_not_gone(
    topics: Any, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a broker that has just started: reading on from its beginning would double its records."""
    topic = topics.make("in")
    topics.send(topic, range(3))
    reader = readers(subscribe=topic, failOnDataLoss="false")
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    topics.send(topic, range(3, 9))
    ask, times = reader._partitions, iter([True, True])
    monkeypatch.setattr(reader, "_partitions", lambda: set() if next(times, False) else ask())
    end = reader.latestOffset(start, ReadAllAvailable())
    assert rows(reader, start, end) == 6


def test_a_topic_made_anew_is_read_from_its_beginning(topics: Any, readers: Readers) -> None:
    topic = topics.make("in")
    topics.send(topic, range(9))
    start = readers(subscribe=topic).latestOffset({}, ReadAllAvailable())
    delete(topics, topic)
    make_again(topics, topic)
    topics.send(topic, range(3))
    with pytest.raises(DataLossError, match=f"{topic}-. ends at offset 2, but the query has read up to offset 4"):
        readers(subscribe=topic).latestOffset(start, ReadAllAvailable())
    reader = readers(subscribe=topic, failOnDataLoss="false")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert rows(reader, start, end) == 3


def test_records_of_a_new_partition_that_are_deleted_before_it_is_seen_are_a_loss(
    topics: Any, readers: Readers
) -> None:
    topic = topics.make("in")
    topics.send(topic, range(3))
    start = readers(subscribe=topic).latestOffset({}, ReadAllAvailable())
    topics.grow(topic, 4)
    new = TopicPartition(topic, 3)

    async def fill_and_delete() -> None:
        async with Producer(bootstrap_servers=topics.bootstrap) as producer:
            for number in range(5):
                await producer.send(topic, b"%d" % number, partition=new.partition)
        async with Admin(bootstrap_servers=topics.bootstrap) as admin:
            await admin.delete_records({new: 2})

    asyncio.run(fill_and_delete())
    reader = readers(subscribe=topic)
    end = reader.latestOffset(start, ReadAllAvailable())
    for planned_by in (reader, readers(subscribe=topic)):  # the second one as after a restart
        with pytest.raises(DataLossError, match=f"Offsets 0 to 1 of {topic}-3 cannot be read"):
            planned_by.partitions(start, end)
    tolerant = readers(subscribe=topic, failOnDataLoss="false")
    assert rows(tolerant, start, end) == 3


@pytest.mark.parametrize("available_now", [False, True])
def test_a_beginning_that_an_open_transaction_hides_is_waited_for_and_is_no_loss(
    topics: Any, readers: Readers, available_now: bool
) -> None:
    topic = topics.make("topic")
    topics.send(topic, range(3))

    async def begin_behind_an_open_transaction() -> dict[str, Any]:
        async with (
            Producer(bootstrap_servers=topics.bootstrap) as plain,
            Producer(bootstrap_servers=topics.bootstrap, transactional_id=topic) as producer,
        ):
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send(topic, b"undecided", partition=0)
            begin = (await plain.send(topic, b"behind it", partition=0)).offset
            reader = readers(subscribe=topic, startingOffsets=json.dumps({topic: {"0": begin, "1": -1, "2": -1}}))
            start = await asyncio.to_thread(plan, reader)
            await producer.commit_transaction()
            await producer.init_transactions()  # when the markers are written
            return start

    def plan(reader: StreamReader) -> dict[str, Any]:
        start = reader.initialOffset()
        if available_now:
            reader.prepareForTriggerAvailableNow()
        end = reader.latestOffset(start, ReadAllAvailable())
        assert end == start
        assert rows(reader, start, end) == 0
        return start

    start = asyncio.run(begin_behind_an_open_transaction())
    reader = readers(subscribe=topic)
    assert rows(reader, start, reader.latestOffset(start, ReadAllAvailable())) == 1
