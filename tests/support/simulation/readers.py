"""Read a history's logs directly or by the Fetch handler, whose responses are checked, and simulate a lasting consumer.

`Readers` is for checks, which must not wait. It calls the handler and runs its steps without a connection. The response
is encoded and decoded as on the wire. `Consumer` fetches over connections that break, with long polls and sessions. In
the end it must have received everything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from oncelog.broker.api.handling import Deferred, RequestContext
from oncelog.broker.handlers import fetch as fetch_handler
from oncelog.broker.log import IsolationLevel, LogRead, PartitionLog
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import decode_response, encode_response
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from oncelog.protocol.records import Record, decode_batch, iter_batches

from .client import RETRIABLE, Caller, Process
from .network import Disconnected
from .producer import OUTPUT

if TYPE_CHECKING:
    from .world import World

FIRST_VERSION_BY_ID = 13
FIRST_VERSION_WITH_SESSION = 7
VERSIONS = (4, 6, 8, 11, 12, 13, 17)
SIZES = (1, 300, 1 << 20, 1 << 20)
"""The limits of a Fetch in bytes. The first batch is complete even if it is larger."""

BY_FETCH = 0.4
"""The share of the checks' reads that go through the Fetch handler: they cost several times as much."""

SESSION_ENDED = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})

Given: TypeAlias = "LogRead | PartitionData"


class _Nowhere:
    """A stand-in for the connection of a reader that calls the handler."""

    answer_allowance = 1 << 30


def _run(steps: Any) -> Any:
    """Return the result of steps that never have to wait."""
    while True:
        try:
            cost = next(steps)
        except StopIteration as end:
            return end.value
        assert isinstance(cost, int), f"a Fetch waits for {cost}"


def _topic(name: str, topic_id: bytes, version: int, partitions: list[FetchPartition]) -> FetchTopic:
    by_id = version >= FIRST_VERSION_BY_ID
    return FetchTopic("" if by_id else name, topic_id if by_id else bytes(16), partitions)


class Readers:
    """The reads of one history's checks. A share of them goes through the Fetch handler."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = Random(f"reads of {world.scenario.seed}")

    def committed(self, log: PartitionLog) -> list[Record]:
        """Return the records that a read_committed consumer keeps, by its own filtering."""
        end = log.last_stable_offset
        if log.failure is not None:
            end = min(end, log.files.flushed_offset)  # what follows is refused
        with log.reader.side_reads.at_once():  # also indexes that have to be rebuilt
            if log.failure is not None or self._rng.random() > BY_FETCH:
                return committed_records(log, end, partial(log.read, max_bytes=1 << 20, isolation=_COMMITTED))
            version, size = self._rng.choice(VERSIONS), self._rng.choice(SIZES)
            if self._rng.random() < 0.15:
                self._look_at_the_rest(log, version, size)
            return committed_records(log, end, lambda at: self._fetch(log, at, _COMMITTED, version, size))

    def _look_at_the_rest(self, log: PartitionLog, version: int, size: int) -> None:
        """Check reads of uncommitted records, and reads at offsets that the log does not have."""
        start, end = log.log_start_offset, log.high_watermark
        batches: list[bytes] = []
        offset = start
        while offset < end:
            given = self._fetch(log, offset, _UNCOMMITTED, version, size)
            for position, header in iter_batches(given.records or b""):
                assert offset < header.next_offset, f"{log.name}: {header} is given at {offset}"
                assert given.records is not None
                batches.append(bytes(given.records[position : position + header.size]))
                offset = header.next_offset
            assert batches, f"{log.name}: read_uncommitted readers are given nothing at {offset} of {end}"
        there = [bytes(batch) for header, batch in log.batches(start, end) if header.next_offset <= end]
        assert batches == there, f"{log.name}: read_uncommitted readers are given other batches than there are"
        assert not self._fetch(log, log.last_stable_offset, _COMMITTED, version, size).records
        for outside in (start - 1, log.log_end_offset + 1):
            code = self._answer(log, outside, _COMMITTED, version, size).error_code
            assert code == ErrorCode.OFFSET_OUT_OF_RANGE, f"{log.name}: Fetch at {outside} is answered {code}"

    def _fetch(
        self, log: PartitionLog, offset: int, isolation: IsolationLevel, version: int, size: int
    ) -> PartitionData:
        """Return the result of a Fetch, which must succeed and have the log's offsets."""
        data = self._answer(log, offset, isolation, version, size)
        assert data.error_code == ErrorCode.NONE, f"{log.name}: Fetch at {offset} is answered {data.error_code}"
        assert data.high_watermark == log.high_watermark, f"{log.name}: {data}"
        assert data.last_stable_offset == log.last_stable_offset, f"{log.name}: {data}"
        assert version < 5 or data.log_start_offset == log.log_start_offset, f"{log.name}: {data}"
        assert (data.aborted_transactions is not None) == (isolation is _COMMITTED), f"{log.name}: {data}"
        return data

    def _answer(
        self, log: PartitionLog, offset: int, isolation: IsolationLevel, version: int, size: int
    ) -> PartitionData:
        topic = self._world.topic(log.topic)
        partitions = [FetchPartition(log.partition, fetch_offset=offset, partition_max_bytes=size)]
        request = FetchRequest(
            isolation_level=isolation, topics=[_topic(log.topic, topic.topic_id, version, partitions)]
        )
        broker = self._world.broker.broker
        context = RequestContext(
            cast(Any, broker), cast(Any, _Nowhere), FetchRequest.spec.key, version, 1, "reader", -1
        )
        reply = _run(fetch_handler.handle(context, request))
        assert isinstance(reply, Deferred)
        assert reply.awaitable is None, "a Fetch that need not wait does"
        assert reply.finish is not None
        answer = reply.finish(None)
        if not isinstance(answer, FetchResponse):
            answer = _run(answer)
        frame = memoryview(b"".join(encode_response(answer, version, 1)))
        decoded = decode_response(FetchResponse, version, frame[4:])[1]
        ((data,),) = [topic.partitions for topic in decoded.responses]
        return data


_COMMITTED = IsolationLevel.READ_COMMITTED
_UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED


def committed_records(log: PartitionLog, end: int, read: Callable[[int], Any]) -> list[Record]:
    """Return the committed records of the whole log up to `end`. `read` returns the data from an offset on."""
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < end:
        before = offset
        given, offset = kept(read(offset), offset)
        records += given
        assert offset > before, f"{log.name}: a reader gets no further than {offset} of {end}"
    return records


def kept(given: Given, offset: int) -> tuple[list[Record], int]:
    """Return (the records that a read_committed consumer keeps, the offset to read next)."""
    records: list[Record] = []
    aborted: dict[int, list[int]] = defaultdict(list)
    pairs = given.aborted if isinstance(given, LogRead) else None
    if pairs is None:
        assert isinstance(given, PartitionData)
        pairs = [(entry.producer_id, entry.first_offset) for entry in given.aborted_transactions or ()]
    for producer_id, first_offset in pairs:
        aborted[producer_id].append(first_offset)
    ignored: set[int] = set()
    content = given.records or b""
    for position, header in iter_batches(content):
        offset = header.next_offset
        producer_id = header.producer_id
        for first in list(aborted.get(producer_id, ())):  # before the marker, too: the records may be deleted
            if first <= header.last_offset:
                aborted[producer_id].remove(first)
                ignored.add(producer_id)
        if header.is_control:
            ignored.discard(producer_id)
        elif not (header.is_transactional and producer_id in ignored):
            records += decode_batch(content, position, header)
    return records, offset


class Consumer:
    """A consumer that reads the outputs from their beginning, on connections that break.

    `given` has what it received: partition → offset → value.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = Random(f"consumer of {world.scenario.seed}")
        self._process = Process(world, "consumer")
        self._caller = Caller(self._process, late=False, extension=False)
        self._version = self._rng.choice(VERSIONS)
        self._wait_ms = self._rng.choice((200, 60_000, 60_000))
        self._size = self._rng.choice(SIZES)
        self._in_session = self._version >= FIRST_VERSION_WITH_SESSION and self._rng.random() < 0.7
        self._session = 0, (0 if self._in_session else -1)
        self._topic_id = b""
        self._asked: dict[int, int] = {}
        self.position: dict[int, int] = {}
        self.given: dict[int, dict[int, bytes]] = defaultdict(dict)
        self.skipped: dict[int, list[range]] = defaultdict(list)
        """Records that were deleted before the consumer reached them."""

    async def run(self) -> None:
        """Read until cancelled."""
        self._topic_id = self._world.topic(OUTPUT).topic_id
        while True:
            try:
                answer = await self._caller.once(self._request(), self._version)
            except Disconnected:
                self._begin_session()
                await self._process.sleep(0.05 + self._rng.random() * 0.2)
                continue
            if ErrorCode(answer.error_code) in SESSION_ENDED:
                self._begin_session()
                continue
            assert answer.error_code == ErrorCode.NONE, f"Fetch v{self._version} is answered {answer.error_code}"
            if self._in_session:
                self._session = answer.session_id, self._session[1] + 1
            refused = [self._take(data) for topic in answer.responses for data in topic.partitions]
            if any(refused):
                await self._process.sleep(0.1)

    def _begin_session(self) -> None:
        self._session = 0, (0 if self._in_session else -1)
        self._asked.clear()

    def _request(self) -> FetchRequest:
        for index in range(self._world.outputs):
            self.position.setdefault(index, 0)
        session_id, epoch = self._session
        if epoch <= 0:
            self._asked.clear()
        partitions = [
            FetchPartition(index, fetch_offset=offset, partition_max_bytes=self._size)
            for index, offset in self.position.items()
            if self._asked.get(index) != offset
        ]
        self._asked = dict(self.position)
        return FetchRequest(
            max_wait_ms=self._wait_ms,
            min_bytes=1,
            isolation_level=_COMMITTED,
            session_id=session_id,
            session_epoch=epoch,
            topics=[_topic(OUTPUT, self._topic_id, self._version, partitions)] if partitions else [],
        )

    def _take(self, data: PartitionData) -> bool:
        """Take the records of one partition. Return True if the partition should be requested again after a while."""
        index = data.partition_index
        code = ErrorCode(data.error_code)
        position = self.position[index]
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._skip(index, position)
            return True
        if code is not ErrorCode.NONE:
            assert code in RETRIABLE or code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Fetch: {OUTPUT}-{index} {code}"
            self._asked.pop(index, None)
            return True
        records, self.position[index] = kept(data, position)
        values = self.given[index]
        for record in records:
            assert record.offset not in values, f"{OUTPUT}-{index}: the consumer is given {record} twice"
            values[record.offset] = record.value or b""
        self._world.note(f"consumer: {OUTPUT}-{index} from {position} to {self.position[index]}")
        return False

    def _skip(self, index: int, position: int) -> None:
        """Continue where the partition begins now, if its first records were deleted."""
        broker = self._world.broker
        log = broker.broker.log_manager.get(OUTPUT, index) if broker.up else None
        if log is not None:
            start = log.log_start_offset
            assert self._world.may_lose_the_beginning, f"{log.name}: {position} is out of range"
            assert position < start or broker.lives > 1, f"{log.name}: {position} is out of range, it begins at {start}"
            self.skipped[index].append(range(position, start))
            self.position[index] = max(position, start)

    def has_everything(self) -> None:
        """Check that the consumer received exactly the records that the other readers received."""
        for index, seen in self._world.seen.items():
            log = self._world.broker.broker.log_manager.get(OUTPUT, index)
            assert log is not None
            position = self.position.get(index, 0)
            assert position >= log.last_stable_offset, (
                f"{log.name}: the consumer is at {position}, readers may see it up to {log.last_stable_offset}"
            )
            gone = self.skipped[index]
            expected = {offset: value for offset, value in seen if not any(offset in part for part in gone)}
            assert self.given[index] == expected, f"{log.name}: the consumer was given other records than {expected}"
