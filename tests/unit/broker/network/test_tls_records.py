"""The limit of TLS records per round: all bytes pass in order, few records at once, and reading stays under control."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oncelog.broker.network.tls_records import HEADER_BYTES, LOOK_S, RecordCount, RecordLimit
from oncelog.broker.network.turns import RECORDS_PER_ROUND, RECORDS_PER_TURN, RecordTurns
from support.tls_transport import Full, Wire


def record(size: int) -> bytes:
    """A record with `size` bytes behind its header. No byte of them looks like a part of a header."""
    return b"\x17\x03\x03" + size.to_bytes(2) + b"\xff" * size


def begun(stream: bytes, sizes: list[int]) -> list[int]:
    """Return how many records have begun before each byte of a stream of records with these sizes."""
    counts = []
    for number, size in enumerate(sizes, 1):
        counts += [number] * (HEADER_BYTES + size)
    assert len(counts) == len(stream)
    return counts


def divided(stream: bytes, lengths: list[int]) -> Iterator[bytes]:
    """Divide a stream into pieces of these lengths; the last piece has the rest."""
    place = 0
    for length in lengths:
        yield stream[place : place + length]
        place += length
    yield stream[place:]


@given(
    st.lists(st.integers(0, 40), max_size=30),
    st.lists(st.integers(1, 50), max_size=20),
    st.lists(st.integers(0, 5), max_size=20),
)
def test_records_are_counted_however_the_stream_is_divided(
    sizes: list[int], lengths: list[int], limits: list[int]
) -> None:
    stream = b"".join(map(record, sizes))
    counts, count = begun(stream, sizes), RecordCount()
    most_at_a_time = itertools.cycle([*limits, 1])
    place = total = 0
    for piece in divided(stream, lengths):
        rest = memoryview(piece)
        while rest:
            most = next(most_at_a_time)
            records, passed = count.within(rest, most)
            assert records <= most
            place, total, rest = place + passed, total + records, rest[passed:]
            assert total == (counts[place - 1] if place else 0)
            if rest:  # the limit is reached, and the next byte begins a record
                assert records == most
                assert counts[place] == total + 1


class Connected:
    """A connection behind the limit, whose TLS protocol pauses reading at `most` bytes."""

    def __init__(self, turns: RecordTurns, most: int = 1 << 30, network: str = "192.0.2.1") -> None:
        self.wire = Wire()
        self.tls = Full(self.wire, most)
        self.limit = RecordLimit(self.wire, self.tls, turns, network)

    def receive(self, data: bytes) -> None:
        """Deliver bytes as the event loop does."""
        while data:
            assert self.wire.reading
            view = self.limit.get_buffer(65_536)
            count = min(len(view), len(data))
            view[:count] = data[:count]
            self.limit.buffer_updated(count)
            data = data[count:]

    async def passed(self, stream: bytes) -> None:
        """Wait until everything is passed on."""
        async with asyncio.timeout(60):
            while self.tls.received != stream:
                await asyncio.sleep(0)


async def test_few_records_pass_at_once_and_large_ones_too() -> None:
    connection, stream = Connected(RecordTurns()), record(16_384) * 4
    connection.receive(stream)
    assert connection.tls.pieces == [stream]
    assert connection.wire.reading


async def test_many_records_pass_in_turns_and_the_connection_is_read_again_afterwards() -> None:
    connection, stream = Connected(RecordTurns()), record(22) * 2000
    connection.receive(stream)
    assert not connection.wire.reading
    await connection.passed(stream)
    assert connection.wire.reading
    assert max(map(len, connection.tls.pieces)) == RECORDS_PER_ROUND * len(record(22))
    assert {len(piece) for piece in connection.tls.pieces[1:]} == {RECORDS_PER_TURN * len(record(22))}


async def test_a_connection_waits_for_few_turns_of_those_that_send_many_records() -> None:
    turns = RecordTurns()
    many = [Connected(turns) for _ in range(50)]
    other = Connected(turns, network="192.0.2.2")
    for connection in many:
        connection.receive(record(22) * 2000)
    other.receive(record(100))
    assert not other.tls.received, "the round has had its records"
    before = sum(len(connection.tls.received) for connection in many)
    await other.passed(record(100))
    records = (sum(len(connection.tls.received) for connection in many) - before) // len(record(22))
    assert records <= RECORDS_PER_ROUND


@pytest.mark.parametrize("size", [22, 300])
async def test_reading_stays_paused_while_the_tls_protocol_has_enough(size: int) -> None:
    connection, stream = Connected(RecordTurns(), most=5000), (record(size) * 1000)[:65_536]
    connection.receive(stream)
    await connection.passed(stream)
    assert connection.tls.paused
    assert not connection.wire.reading
    connection.tls.take()
    assert connection.wire.reading


async def test_what_arrives_behind_held_records_stays_behind_them() -> None:
    connection, first, second = Connected(RecordTurns(), most=1000), record(22) * 500, record(50) * 500
    connection.receive(first)
    assert not connection.wire.reading
    connection.tls.take()  # resumes reading although records are held
    connection.receive(second[:4000])
    assert not connection.wire.reading
    await connection.passed(first + second[:4000])
    connection.tls.take()
    connection.receive(second[4000:8000])
    await connection.passed(first + second[:8000])


async def test_the_end_of_the_stream_comes_behind_held_records() -> None:
    connection, stream = Connected(RecordTurns(), most=1000), record(22) * 500
    connection.receive(stream)
    connection.tls.take()
    assert connection.limit.eof_received(), "the transport stays open"
    connection.wire.reading = False  # a transport stops reading at the end
    while connection.tls.received != stream:
        assert not connection.tls.ended
        await asyncio.sleep(0)
    assert not connection.wire.reading, "the TLS protocol has enough"
    connection.tls.take()
    assert connection.wire.reading, "so the transport finds the end again"
    assert not connection.limit.eof_received()
    assert connection.tls.ended


async def test_nothing_is_passed_on_while_the_peer_does_not_read() -> None:
    connection, stream = Connected(RecordTurns()), record(22) * 200
    connection.limit.pause_writing()
    connection.receive(stream[:1000])
    await asyncio.sleep(0)
    assert (connection.wire.reading, connection.tls.received) == (False, b"")
    connection.limit.resume_writing()
    await connection.passed(stream[:1000])
    connection.receive(stream[1000:])
    connection.limit.pause_writing()  # while records wait for a turn
    had = connection.tls.received
    for _ in range(5):
        await asyncio.sleep(0)
    assert connection.tls.received == had != stream
    connection.limit.resume_writing()
    await connection.passed(stream)
    assert connection.wire.reading


async def test_a_round_has_its_number_of_records_however_long_it_takes() -> None:
    turns = RecordTurns()
    connections = [Connected(turns) for _ in range(5)]
    for connection in connections:
        connection.receive(record(22) * 60)
        time.sleep(0.002)
    assert sum(len(connection.tls.received) for connection in connections) == RECORDS_PER_ROUND * len(record(22))
    for connection in connections:
        await connection.passed(record(22) * 60)


async def test_what_is_held_stays_small_though_the_tls_protocol_resumes_reading() -> None:
    turns = RecordTurns()
    others = [Connected(turns, network=f"192.0.2.{number}") for number in range(2, 60)]
    for other in others:
        other.receive(record(22) * 2000)
    connection = Connected(turns, most=16_384)
    connection.receive(record(22) * 2000)
    for _ in range(200):
        connection.tls.take()
        if connection.wire.reading:
            connection.receive(record(22) * 100)
        assert len(connection.limit._held) < 80_000
        await asyncio.sleep(0)


async def test_a_connection_that_ends_takes_no_more_turns() -> None:
    turns = RecordTurns()
    connection = Connected(turns)
    connection.receive(record(22) * 500)
    had = len(connection.tls.received)
    connection.limit.connection_lost(None)
    assert connection.tls.ended
    assert not turns._waiting
    await asyncio.sleep(0)
    assert len(connection.tls.received) == had


async def test_a_turn_that_fails_takes_no_turn_of_records_from_others() -> None:
    turns, called = RecordTurns(), list[int]()
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
    turns.wait("192.0.2.1", lambda most: 1 // 0)
    turns.wait("192.0.2.1", called.append)
    while not called:
        await asyncio.sleep(0)
    assert isinstance(failures[0], ZeroDivisionError)


async def test_an_end_that_has_to_wait_is_looked_at_less_and_less_often() -> None:
    """A connection may wait for its quota for hours."""
    loop = asyncio.get_running_loop()
    looks: list[float] = []
    enough = asyncio.Event()

    def progress() -> tuple[bool, float]:
        looks.append(loop.time())
        if len(looks) == 6:
            enough.set()
        return True, 0.0

    wire = Wire()
    limit = RecordLimit(wire, Full(wire, 1 << 30), RecordTurns(), "192.0.2.1", progress)
    assert limit.eof_received()
    assert limit.eof_received()  # reported again, when reading is resumed
    async with asyncio.timeout(60):
        await enough.wait()
    limit.connection_lost(None)
    assert all(after - before >= LOOK_S * 2**n * 0.9 for n, (before, after) in enumerate(itertools.pairwise(looks)))
    assert len(looks) == 6
