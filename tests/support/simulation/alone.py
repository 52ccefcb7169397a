"""Simulate producers without transactions. An idempotent one repeats each batch until it is acknowledged.

Up to five batches are in flight on one connection. If the connection breaks, or a batch is refused temporarily, the
producer sends all of them again, in order, as clients do. Requests that were under way may still arrive. The log must
have each batch once. A careless producer (acks=0) sends its batches, and then closes the connection.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import TYPE_CHECKING

from oncelog.broker.log import PartitionLog
from oncelog.protocol.compression import Compression
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.records import Record, decode_batch, encode_batch

from .client import RETRIABLE, Caller, Process, Unexpected
from .network import Disconnected, Link

if TYPE_CHECKING:
    from .world import World

ALONE = "alone"
IN_FLIGHT = 5
TIMESTAMP = 1_700_000_000_000
IDEMPOTENT, CARELESS = range(2)
"""The partitions."""

EXPANDED = (1 << 20) + 1
"""The size in bytes of a value that is large enough to be decompressed in a thread."""


@dataclass(eq=False)
class Batch:
    """The records `first` to `end` (exclusive) of one producer id. `offset` is the offset in the broker's response."""

    producer: str
    first: int
    end: int
    content: bytes
    acks: int
    offset: int = -1

    def values(self) -> list[bytes]:
        return [b"%s %d" % (self.producer.encode(), number) for number in range(self.first, self.end)]


class LoneProducer:
    """An idempotent producer whose process is replaced at times. `acknowledged` has the batches that must be stored."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.acknowledged: list[Batch] = []
        self._rng = Random(f"lone producer {number} of {world.scenario.seed}")
        self._name = f"alone{number}"
        self._acks = self._rng.choice((-1, -1, 1))
        self._lives = 0

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._lives += 1
            await _Life(self.world, f"{self._name}.{self._lives}", self._rng, self._acks, self.acknowledged).run()
            await asyncio.sleep(self._rng.random() * 0.3)


class _Life:
    """One process of a producer, with one producer id."""

    def __init__(self, world: World, name: str, rng: Random, acks: int, acknowledged: list[Batch]) -> None:
        self._world = world
        self._name = name
        self._rng = rng
        self._acks = acks
        self._acknowledged = acknowledged
        self._caller = Caller(Process(world, name), late=True, extension=False, in_order=True)
        self._flying: list[Batch] = []
        self._next = 0
        self._is_known = False

    async def run(self) -> None:
        """Send batches until the process ends, or until its producer id can no longer be used."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        made = await self._caller.ask(lambda: request, 4, lambda answer: [answer.error_code])
        producer_id = made.producer_id
        try:
            while self._rng.random() > 0.03:
                wanted = self._rng.randint(1, IN_FLIGHT) if self._is_known else 1
                while len(self._flying) < wanted:
                    self._flying.append(self._batch(producer_id))
                if not await self._send_all():
                    return
                await asyncio.sleep(self._rng.choice((0.02, 0.1, 0.3)))
        finally:
            self._caller.close(late=self._rng.random() < 0.5)

    def _batch(self, producer_id: int) -> Batch:
        first, end = self._next, self._next + self._rng.randint(1, 3)
        self._next = end
        made = Batch(self._name, first, end, b"", self._acks)
        made.content = encode_batch(
            [Record(i, TIMESTAMP, None, value, []) for i, value in enumerate(made.values())],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=first,
        )
        return made

    async def _send_all(self) -> bool:
        """Send the batches in flight, and handle the responses.

        Return False if the producer id can no longer be used.
        """
        calls = [self._caller.once(_request(IDEMPOTENT, batch.content, self._acks), 9) for batch in self._flying]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        pending, self._flying = self._flying, []
        for batch, answer in zip(pending, answers, strict=True):
            if isinstance(answer, Disconnected):
                self._flying.append(batch)
                continue
            if isinstance(answer, BaseException):
                raise answer
            (part,) = answer.responses[0].partition_responses
            code = ErrorCode(part.error_code)
            self._world.note(f"{self._name} {batch.first}-{batch.end}: {code.name} {part.base_offset}")
            if code is ErrorCode.NONE:
                batch.offset = part.base_offset
                self._acknowledged.append(batch)
                self._is_known = True
            elif code in RETRIABLE or (code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._flying):
                self._flying.append(batch)  # after one that has to be sent again
            elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._world.loses_unsynced:
                return False
            else:
                raise Unexpected(f"{self._name}: records {batch.first} to {batch.end} got {code.name}")
        if self._flying:
            await asyncio.sleep(0.05 + self._rng.random() * 0.1)
        return True


async def be_careless(world: World, number: int) -> None:
    """Send a few batches with acks=0, and close. All of them must be stored if the broker keeps running."""
    rng = Random(f"careless producer {number} of {world.scenario.seed}")
    life = world.broker.lives
    count = rng.randint(1, 4)
    try:
        link = Link(world.network, "careless", late=True, in_order=True)
        for index in range(count):
            content = _expanding(number, index) if rng.random() < 0.4 else _careless(number, index, b"value")
            link.send(_request(CARELESS, content, 0), 9)
        await link.finish()
    except Disconnected:
        return
    while link.is_open and world.broker.lives == life:  # busy threads may delay batches that the broker has received
        await asyncio.sleep(0.1)
    if world.broker.up and world.broker.lives == life and not world.disk_may_fail:
        log = world.broker.broker.log_manager.get(ALONE, CARELESS)
        numbers = [] if log is None else [header.max_timestamp - TIMESTAMP for header, _ in log.batches(0)]
        there = [each % 10 for each in numbers if each // 10 == number]
        gone = count - len(there) if log is not None and log.log_start_offset > 0 else 0  # deleted by retention
        assert there == list(range(count))[gone:], (
            f"careless {number} sent {count} batches and closed, there are {there}"
        )


def _careless(number: int, index: int, value: bytes, compression: Compression = Compression.NONE) -> bytes:
    """Return a batch that its timestamp identifies."""
    return encode_batch([Record(0, TIMESTAMP + 10 * number + index, None, value, [])], compression=compression)


@cache
def _expanding(number: int, index: int) -> bytes:
    return _careless(number, index, bytes(EXPANDED), Compression.ZSTD)


def _request(partition: int, content: bytes, acks: int) -> ProduceRequest:
    data = TopicProduceData(name=ALONE, partition_data=[PartitionProduceData(partition, bytearray(content))])
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=1000, topic_data=[data])


def note_what_goes(world: World, log: PartitionLog, offset: int) -> None:
    """Record each producer's last number below `offset`, because retention is about to delete these records."""
    if log.partition == IDEMPOTENT:
        for header, content in log.batches(log.log_start_offset, offset):
            for record in decode_batch(content, 0, header):
                producer, number = (record.value or b"").split()
                world.lone_gone[producer] = record.offset, int(number)


def acknowledged_once(world: World, *, at_rest: bool) -> None:
    """Check that each record of lone producers is stored once and in order, and acknowledged ones at their offset.

    Records that waited for no sync may be missing after a power failure, and before everything is `at_rest`.
    """
    log = world.broker.broker.log_manager.get(ALONE, IDEMPOTENT)
    if log is None or log.failure is not None:
        return  # until a restart
    end = log.high_watermark
    there: dict[int, bytes] = {}
    for header, content in log.batches(log.log_start_offset, end):
        if header.next_offset <= end:
            there.update((record.offset, record.value or b"") for record in decode_batch(content, 0, header))
    numbers: dict[bytes, list[int]] = defaultdict(list)
    for offset, value in there.items():
        producer, number = value.split()
        numbers[producer].append(int(number))
        gone = world.lone_gone.get(producer, (-1, -1))  # a crash may bring it back
        assert offset <= gone[0] or int(number) > gone[1] or world.scenario.may_lose, (
            f"{producer.decode()} wrote {gone[1]}, which retention deleted, and later {int(number)}"
        )
    for producer, written in numbers.items():
        in_order = written == sorted(set(written))
        has_gap = written[-1] - written[0] >= len(written)
        assert in_order, f"{producer.decode()} wrote {written}"
        assert world.loses_unsynced or not has_gap, f"{producer.decode()} wrote {written}"
    for lone in world.lone_producers:
        for batch in lone.acknowledged:
            if world.scenario.may_lose or (batch.acks != -1 and (world.loses_unsynced or not at_rest)):
                continue
            if batch.offset >= log.log_start_offset:
                found = [there.get(batch.offset + i) for i in range(batch.end - batch.first)]
                assert found == batch.values(), f"{batch} was acknowledged, there is {found}"
