"""The check that follows every kill of a pipeline finds rows lost, doubled, misplaced, or out of step."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from oncelog import Admin, ConsumerGroupMetadata, NewTopic, OffsetAndMetadata, Producer
from oncelog.client.producer.partitioner import partition_for_key
from oncelog.pipeline.sink.settings import _of_checkpoint
from support.pipeline_topics import PARTITIONS, STATE, PipelineTopics

ROWS = 40
QUERY = "14966bd2"


class Played:
    """A job of one batch, written by hand."""

    def __init__(self, bootstrap: str, fresh_name: Callable[[str], str], directory: Path) -> None:
        self.bootstrap = bootstrap
        self.names = {name: fresh_name(name) for name in ("INPUT", "EVEN", "ODD")}
        self.checkpoint = directory / "checkpoint" / "outputs"
        self.topics = PipelineTopics(bootstrap, self.names, self.checkpoint)
        for name in ("offsets", "commits"):
            (self.checkpoint / name).mkdir(parents=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))

    async def prepare(self, *, noted: int | None = 0) -> None:
        """The input, and what Spark has written down: batch 0 reaches to the input's end."""
        async with Admin(bootstrap_servers=self.bootstrap) as admin:
            if STATE.topic not in await admin.list_topics():
                await admin.create_topics([NewTopic(STATE.topic, 1)])
        await self.topics.make()
        await self.topics.feed(ROWS)
        ends = {str(one): 0 for one in range(PARTITIONS)}
        for number in range(ROWS):
            ends[str(partition_for_key(f"{number % 97}".encode(), PARTITIONS))] += 1
        (self.checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps({self.names['INPUT']: ends})}")
        if noted is not None:
            (self.checkpoint / "commits" / str(noted)).write_text("v1\n{}")

    async def write(self, numbers: list[int], batch: int = 0, *, place: int = 0) -> None:
        """One transaction with rows and the batch's number; `place` is added to the partition."""
        name = _of_checkpoint(str(self.checkpoint))
        async with (
            Producer(bootstrap_servers=self.bootstrap, transactional_id=name) as producer,
            producer.transaction() as transaction,
        ):
            for number in numbers:
                await self.send(transaction, number, place)
            position = OffsetAndMetadata(batch, json.dumps({"owner": QUERY}))
            await transaction.send_offsets({STATE: position}, ConsumerGroupMetadata(name))

    async def send(self, transaction: object, number: int, place: int) -> None:
        key, value = f"{number % 97}".encode(), f"{number:06}".encode()
        topic = self.names["EVEN" if zlib.crc32(value) % 2 == 0 else "ODD"]
        partition = (partition_for_key(key, PARTITIONS) + place) % PARTITIONS
        await transaction.enqueue(topic, value, key=key, partition=partition)  # type: ignore[attr-defined]


@pytest.fixture
def played(bootstrap: str, fresh_name: Callable[[str], str], tmp_path: Path) -> Played:
    return Played(bootstrap, fresh_name, tmp_path)


EVERYTHING = list(range(ROWS))


async def test_every_row_once_is_right(played: Played) -> None:
    await played.prepare()
    assert await played.topics.count() == 0
    await played.write(EVERYTHING)
    await played.topics.check_end()
    assert await played.topics.count() == ROWS


async def test_a_batch_that_is_committed_but_not_noted_is_right(played: Played) -> None:
    await played.prepare(noted=None)
    assert await played.topics.check() == 0
    await played.write(EVERYTHING)
    await played.topics.check_end()


@pytest.mark.parametrize(
    ("numbers", "batch", "place", "message"),
    [
        (EVERYTHING[:-1], 0, 0, r"lost \[b'000039'\] \(1 rows\)"),
        ([*EVERYTHING, 7], 0, 0, r"repeated.*b'000007'"),
        (EVERYTHING, 0, 1, r"row b'\d+' is in "),
        (EVERYTHING, 2, 0, "Kafka has committed batch 2, Spark has noted 0"),
    ],
)
async def test_what_is_wrong_is_found(played: Played, numbers: list[int], batch: int, place: int, message: str) -> None:
    await played.prepare()
    await played.write(numbers, batch, place=place)
    with pytest.raises(AssertionError, match=message):
        await played.topics.check_end()


async def test_a_checkpoint_ahead_of_the_sink_is_found(played: Played) -> None:
    await played.prepare(noted=1)
    await played.write(EVERYTHING)
    with pytest.raises(AssertionError, match="Kafka has committed batch 0, Spark has noted 1"):
        await played.topics.check_end()


async def test_a_transaction_that_is_left_open_is_found(played: Played) -> None:
    await played.prepare()
    await played.write(EVERYTHING)
    async with Producer(bootstrap_servers=played.bootstrap, transactional_id=played.names["INPUT"]) as other:
        await other.init_transactions()
        await other.begin_transaction()
        await played.send(other, 0, 0)
        await other.flush()
        with pytest.raises(AssertionError, match="a transaction is open"):
            await played.topics.check_end()
        await other.abort_transaction()
