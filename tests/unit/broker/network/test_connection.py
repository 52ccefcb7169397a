"""A connection: requests in order, answers in order, and nothing that a peer does makes it grow without bound."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import struct
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from oncelog.broker.api.handling import Deferred
from oncelog.broker.config import BrokerConfig
from oncelog.broker.dispatcher import Exchange, MalformedRequest
from oncelog.broker.listener_config import ListenerConfig as Row
from oncelog.broker.network import listener, turns
from oncelog.broker.network.connection import Connection
from oncelog.broker.network.listener import Listener
from oncelog.broker.network.shared_limits import SharedLimits
from oncelog.broker.network.turns import LONE_TURN_WORK, REQUEST_WORK, ROUND_WORK
from oncelog.broker.observability.audit import AuditLog
from oncelog.broker.observability.logging import make_logger
from oncelog.broker.quotas.client_quotas import ClientQuotas
from oncelog.protocol.schema import Buffer, Response


class Word(Response):
    """A response that is one byte string."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class Frame(bytes):
    """Stands where an exchange does: a word, which is carried out without its client if it begins with "do"."""

    is_silent = False
    context = SimpleNamespace(usage=None)

    @property
    def is_carried_out(self) -> bool:
        return self.startswith(b"do")

    def give_up(self) -> None: ...


class WordDispatcher:
    """Stands where the dispatcher does: frames are words, `replies` says what each is answered with."""

    def __init__(self) -> None:
        self.replies: dict[bytes, Callable[[], Any]] = {}
        self.executed: list[bytes] = []

    def accept(self, connection: Any, frame: memoryview) -> Any:
        if bytes(frame) == b"bad":
            raise MalformedRequest("bad word")
        return Frame(frame)

    def execute(self, exchange: Any) -> Any:
        self.executed.append(exchange)
        return self.replies.get(exchange, lambda: Word(exchange.upper()))()

    def conclude(self, exchange: Exchange, deferred: Any, answer: Any, failure: BaseException | None) -> Any:
        if failure is not None:
            return Word(b"failed")
        return deferred.finish(answer) if deferred is not None and deferred.finish is not None else answer

    def encode(self, exchange: Exchange, response: Any) -> list[Buffer]:
        return [struct.pack(">i", len(response.data)), response.data]


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def ask(self, *words: bytes) -> None:
        self.writer.write(b"".join(struct.pack(">i", len(word)) + word for word in words))

    async def answers(self, count: int) -> list[bytes]:
        got = []
        for _ in range(count):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            got.append(await self.reader.readexactly(size))
        return got

    async def until_closed(self) -> bytes:
        return await self.reader.read()


class House:
    """A listener on a free port with a word dispatcher behind it."""

    def __init__(self, **settings: Any) -> None:
        self.dispatcher = WordDispatcher()
        config = BrokerConfig({"listeners": "127.0.0.1:0", **settings})
        row = Row.parse("127.0.0.1:0")
        self.limits = SharedLimits(config, ClientQuotas({}, config, time.monotonic))
        self.listener = Listener(row, config, self.dispatcher, make_logger("error"), self.limits, AuditLog(None))  # type: ignore[arg-type]
        self.peers: list[Peer] = []

    async def __aenter__(self) -> House:
        self.listener.bind()
        await self.listener.accept()
        return self

    async def connect(self) -> Peer:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.listener.port))
        self.peers.append(peer)
        return peer

    async def __aexit__(self, *_: object) -> None:
        self.listener.stop_accepting()
        self.limits.stop()
        await self.listener.finish(0.2)
        for peer in self.peers:
            peer.writer.close()
            with contextlib.suppress(ConnectionError):
                await peer.writer.wait_closed()


async def settle(condition: Callable[[], bool]) -> None:
    """Let the loop run until `condition` holds."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with House() as house:
        peer = await house.connect()
        words = [b"w%d" % n for n in range(500)]
        peer.ask(*words)
        assert await peer.answers(500) == [word.upper() for word in words]


async def test_a_deferred_answer_holds_back_answers_but_not_requests() -> None:
    async with House() as house:
        later: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        house.dispatcher.replies[b"slow"] = lambda: Deferred(later)
        peer = await house.connect()
        peer.ask(b"a", b"slow", b"b")
        assert await peer.answers(1) == [b"A"]
        await settle(lambda: house.dispatcher.executed == [b"a", b"slow", b"b"])
        later.set_result(Word(b"done"))
        assert await peer.answers(2) == [b"done", b"B"]


async def test_a_coroutine_holds_back_the_requests_behind_it_on_its_connection_only() -> None:
    async with House() as house:
        gate = asyncio.Event()

        async def parked() -> Response:
            await gate.wait()
            return Word(b"parked")

        house.dispatcher.replies[b"park"] = parked
        peer, other = await house.connect(), await house.connect()
        peer.ask(b"park", b"b")
        other.ask(b"c")
        assert await other.answers(1) == [b"C"]
        assert house.dispatcher.executed == [b"park", b"c"]
        gate.set()
        assert await peer.answers(2) == [b"parked", b"B"]


async def test_the_frame_of_a_parked_request_stays_as_it_is() -> None:
    async with House() as house:
        gate = asyncio.Event()
        frames: list[memoryview] = []
        accept = house.dispatcher.accept

        def keep(connection: Any, frame: memoryview) -> Any:
            frames.append(frame)
            return accept(connection, frame)

        async def parked() -> Response:
            await gate.wait()
            return Word(bytes(frames[0]))

        house.dispatcher.accept = keep  # type: ignore[method-assign]
        house.dispatcher.replies[b"park" * 100] = parked
        peer = await house.connect()
        peer.ask(b"park" * 100)
        await settle(lambda: bool(house.dispatcher.executed))
        peer.ask(*[b"x" * 9000] * 20)
        await peer.writer.drain()
        gate.set()
        assert await peer.answers(21) == [b"park" * 100, *[b"X" * 9000] * 20]


def endless(cancelled: asyncio.Event) -> Callable[[], Coroutine[Any, Any, None]]:
    """Return a request that is executed until it is cancelled; then it sets the event."""

    async def parked() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    return parked


async def test_a_parked_request_is_cancelled_when_its_connection_closes() -> None:
    async with House() as house:
        cancelled = asyncio.Event()
        house.dispatcher.replies[b"park"] = endless(cancelled)
        peer = await house.connect()
        peer.ask(b"park", b"behind")
        await settle(lambda: bool(house.dispatcher.executed))
        peer.writer.close()
        async with asyncio.timeout(60):
            await cancelled.wait()
        assert house.dispatcher.executed == [b"park"]


async def test_a_request_that_must_not_be_done_by_halves_outlives_its_connection() -> None:
    async with House() as house:
        gate = asyncio.Event()
        done = asyncio.Event()

        async def parked() -> Word:
            await gate.wait()
            done.set()
            return Word(b"done")

        house.dispatcher.replies[b"do"] = parked
        peer = await house.connect()
        peer.ask(b"do", b"behind")
        await settle(lambda: bool(house.dispatcher.executed))
        peer.writer.transport.abort()
        (connection,) = house.listener._connections
        async with asyncio.timeout(60):
            await connection.closed
        assert house.listener.connection_count == 1, "it takes a place as long as it does something"
        gate.set()
        await settle(lambda: house.listener.connection_count == 0)
        assert done.is_set()
        assert len(house.dispatcher.executed) == 1


async def test_a_stop_waits_for_a_request_that_outlives_its_connection_as_long_as_for_any() -> None:
    async with House() as house:
        cancelled = asyncio.Event()
        house.dispatcher.replies[b"do"] = endless(cancelled)
        peer = await house.connect()
        peer.ask(b"do")
        await settle(lambda: bool(house.dispatcher.executed))
        (connection,) = house.listener._connections
        peer.writer.transport.abort()
        async with asyncio.timeout(60):
            await connection.closed
            await house.listener.finish(0.01)
            await cancelled.wait()
        assert house.listener.connection_count == 0


async def test_a_malformed_request_closes_the_connection_after_the_answers_before_it() -> None:
    async with House() as house:
        peer = await house.connect()
        peer.ask(b"a", b"bad", b"b")
        assert await peer.until_closed() == struct.pack(">i", 1) + b"A"
        assert house.dispatcher.executed == [b"a"]


@pytest.mark.parametrize("size", [-1, 1025, 2**31 - 1])
def test_sizes_out_of_bounds_close_the_connection(size: int) -> None:
    async def run() -> None:
        async with House(**{"socket.request.max.bytes": 1024}) as house:
            peer = await house.connect()
            peer.writer.write(struct.pack(">i", size))
            assert await peer.until_closed() == b""

    asyncio.run(run())


@pytest.mark.parametrize("late", [False, True])
async def test_a_bug_closes_its_connection_and_no_other(late: bool) -> None:
    async with House() as house:
        loop = asyncio.get_running_loop()
        later: asyncio.Future[Response] = loop.create_future()
        house.dispatcher.replies[b"bug"] = lambda: Deferred(later) if late else 1 / 0
        peer, other = await house.connect(), await house.connect()
        peer.ask(b"a", b"bug", b"b")
        await settle(lambda: b"bug" in house.dispatcher.executed)
        later.set_result(Word("no bytes"))  # type: ignore[arg-type]
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await peer.answers(3)
        other.ask(b"c")
        assert await other.answers(1) == [b"C"]


async def test_a_client_that_does_not_read_is_not_served_on_and_on() -> None:
    async with House(**{"connection.write.buffer.bytes": 65536}) as house:
        big = Word(bytes(1 << 20))
        house.dispatcher.replies[b"big"] = lambda: big
        peer = await house.connect()
        peer.ask(*[b"big"] * 400)
        await settle(lambda: len(house.dispatcher.executed) > 0)
        for _ in range(200):
            await asyncio.sleep(0)
        stuck = len(house.dispatcher.executed)
        assert stuck < 50, "most requests wait until the client reads"
        assert [len(word) for word in await peer.answers(400)] == [1 << 20] * 400


async def test_large_deferred_answers_are_made_one_at_a_time() -> None:
    async with House(**{"connection.write.buffer.bytes": 65536}) as house:
        made: list[int] = []
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answer(_: object) -> Response:
            made.append(1)
            return Word(bytes(8 << 20))

        house.dispatcher.replies[b"big"] = lambda: Deferred(gate, answer)
        peer = await house.connect()
        peer.ask(*[b"big"] * 30)
        await settle(lambda: len(house.dispatcher.executed) == 30)
        gate.set_result(None)
        await settle(lambda: bool(made))
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(made) < 5
        assert len(await peer.answers(30)) == 30


async def test_unanswered_requests_are_bounded() -> None:
    async with House(**{"connection.max.inflight.requests": 3}) as house:
        gate: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        house.dispatcher.replies[b"slow"] = lambda: Deferred(gate)
        peer = await house.connect()
        peer.ask(*[b"slow"] * 10)
        await settle(lambda: len(house.dispatcher.executed) == 3)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(house.dispatcher.executed) == 3
        gate.set_result(Word(b"x"))
        assert await peer.answers(10) == [b"x"] * 10


async def test_connections_past_the_limit_are_refused_and_a_closed_one_makes_room() -> None:
    async with House(**{"max.connections": 1}) as house:
        first = await house.connect()
        first.ask(b"a")
        assert await first.answers(1) == [b"A"]
        second = await house.connect()
        second.ask(b"b")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await second.answers(1)
        first.writer.close()
        await settle(lambda: house.listener.connection_count == 0)
        third = await house.connect()
        third.ask(b"c")
        assert await third.answers(1) == [b"C"]


async def test_an_idle_connection_is_closed_and_a_waiting_one_is_not() -> None:
    async with House(**{"connections.max.idle.ms": 40}) as house:
        gate: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        house.dispatcher.replies[b"slow"] = lambda: Deferred(gate)
        waiting, idle = await house.connect(), await house.connect()
        waiting.ask(b"slow")
        async with asyncio.timeout(60):
            assert await idle.until_closed() == b""
        gate.set_result(Word(b"still here"))
        assert await waiting.answers(1) == [b"still here"]


class SweepTime:
    """A loop's clock, turned by hand, for the sweep over idle connections."""

    def __init__(self) -> None:
        self.now = asyncio.get_running_loop().time()

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(3600, callback, *args)


async def test_a_peer_that_takes_its_answer_slowly_is_not_idle_and_one_that_stops_is() -> None:
    async with House(**{"connections.max.idle.ms": 600_000, "connection.write.buffer.bytes": 65536}) as house:
        house.dispatcher.replies[b"big"] = lambda: Word(bytes(64 << 20))
        peer = await house.connect()
        peer.ask(b"big")
        await settle(lambda: house.listener.connection_count == 1)
        (connection,) = house.listener._connections
        await settle(lambda: connection.unsent > 0)
        time = SweepTime()
        for _ in range(4):
            house.listener._close_idle(time)  # type: ignore[arg-type]
            before = connection.unsent
            while connection.unsent == before:
                assert await peer.reader.read(1 << 20), "it takes its answer"
                await asyncio.sleep(0)
            time.now += 400.0
        for _ in range(3):
            house.listener._close_idle(time)  # type: ignore[arg-type]
            time.now += 400.0
        await settle(lambda: house.listener.connection_count == 0)


async def test_request_memory_is_shared_and_nobody_starves() -> None:
    async with House(**{"queued.max.request.bytes": 200_000}) as house:
        peers = [await house.connect() for _ in range(6)]
        for number, peer in enumerate(peers):
            peer.ask(b"%d" % number * 150_000)
        for number, peer in enumerate(peers):
            async with asyncio.timeout(60):
                assert await peer.answers(1) == [b"%d" % number * 150_000]


async def test_a_request_that_waits_for_long_keeps_no_memory_of_those_before_it() -> None:
    async with House(**{"queued.max.request.bytes": 4_000_000}) as house:
        gate: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        house.dispatcher.replies[b"poll"] = lambda: Deferred(gate)
        for _ in range(3):
            peer = await house.connect()
            peer.ask(b"y" * 1_500_000, b"poll")
            assert await peer.answers(1) == [b"Y" * 1_500_000]
        await settle(lambda: house.dispatcher.executed.count(Frame(b"poll")) == 3)
        other = await house.connect()
        async with asyncio.timeout(60):
            other.ask(b"x" * 3_000_000)
            assert await other.answers(1) == [b"X" * 3_000_000]
        gate.set_result(Word(b"polled"))
        for peer in house.peers[:3]:
            assert await peer.answers(1) == [b"polled"]


async def test_a_frame_that_waits_for_memory_keeps_no_more_than_has_arrived() -> None:
    async with House(**{"queued.max.request.bytes": 4_000_000, "socket.request.max.bytes": 4_000_000}) as house:
        peers = [await house.connect() for _ in range(2)]
        for peer in peers:
            peer.ask(b"y" * 1_500_000)
            assert await peer.answers(1) == [b"Y" * 1_500_000]
        for peer in peers:  # the broker reads both sizes in one turn of the loop
            peer.ask(b"z" * 3_500_000)
        for peer in peers:
            async with asyncio.timeout(60):
                assert await peer.answers(1) == [b"Z" * 3_500_000]


async def test_what_is_in_hand_is_answered_before_the_end() -> None:
    house = House()
    async with house:
        gate: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        house.dispatcher.replies[b"slow"] = lambda: Deferred(gate)
        peer = await house.connect()
        peer.ask(b"slow", b"next")
        await settle(lambda: len(house.dispatcher.executed) == 2)
        house.listener.stop_accepting()
        house.listener.drain()
        peer.ask(b"too late")
        asyncio.get_running_loop().call_later(0.02, gate.set_result, Word(b"done"))
        await house.listener.finish(5)
        assert await peer.answers(2) == [b"done", b"NEXT"]
        assert house.dispatcher.executed == [b"slow", b"next"]


async def test_a_connection_with_much_to_do_lets_others_in_between() -> None:
    async with House() as house:
        loop = asyncio.get_running_loop()
        before_others: list[int] = []

        def first() -> Word:
            loop.call_soon(lambda: before_others.append(len(house.dispatcher.executed)))
            return Word(b"FIRST")

        house.dispatcher.replies[b"first"] = first
        peer = await house.connect()
        peer.ask(b"first", *[b"x"] * 2000)
        assert len(await peer.answers(2001)) == 2001
        assert before_others[0] <= LONE_TURN_WORK // REQUEST_WORK


class SlowTime:
    """The event loop, with a clock that a request turns by a millisecond."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.spent_s = 0.0

    def time(self) -> float:
        return self._loop.time() + self.spent_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


async def connect_with_slow_time(house: House) -> tuple[Peer, SlowTime]:
    """Return a new peer, and the clock of its connection."""
    peer = await house.connect()
    await settle(lambda: house.listener.connection_count == 1)
    (connection,) = house.listener._connections
    clock = SlowTime()
    connection._loop = clock  # type: ignore[assignment]
    return peer, clock


async def test_a_connection_with_few_but_slow_requests_lets_others_in_between() -> None:
    async with House() as house:
        peer, clock = await connect_with_slow_time(house)
        executed: list[int] = []
        rounds = 0

        def slow() -> Word:
            executed.append(rounds)
            clock.spent_s += 0.001
            return Word(b"SLOW")

        house.dispatcher.replies[b"slow"] = slow
        peer.ask(*[b"slow"] * 20)
        while len(executed) < 20:
            await asyncio.sleep(0)
            rounds += 1
        assert max(Counter(executed).values()) <= 2
        assert await peer.answers(20) == [b"SLOW"] * 20


async def test_slow_answers_that_become_ready_together_let_others_in_between() -> None:
    async with House() as house:
        peer, clock = await connect_with_slow_time(house)
        first = asyncio.get_running_loop().create_future()
        answered: list[int] = []
        rounds = 0

        def finish(_: Any) -> Word:
            answered.append(rounds)
            clock.spent_s += 0.001
            return Word(b"SLOW")

        house.dispatcher.replies[b"wait"] = lambda: Deferred(first, finish)
        house.dispatcher.replies[b"slow"] = lambda: Deferred(None, finish)
        peer.ask(b"wait", *[b"slow"] * 19)
        await settle(lambda: len(house.dispatcher.executed) == 20)
        assert answered == []
        first.set_result(None)
        while len(answered) < 20:
            await asyncio.sleep(0)
            rounds += 1
        assert max(Counter(answered).values()) <= 2
        assert await peer.answers(20) == [b"SLOW"] * 20
        peer.ask(b"word")
        assert await peer.answers(1) == [b"WORD"]


async def test_connections_with_much_to_do_take_turns() -> None:
    async with House() as house:
        first, second = await house.connect(), await house.connect()
        first.ask(*[b"1"] * 2000)
        second.ask(*[b"2"] * 2000)
        assert len(await first.answers(2000)) == 2000
        assert len(await second.answers(2000)) == 2000
        turns = [len(list(turn)) for _, turn in itertools.groupby(house.dispatcher.executed)]
        assert len(turns) > 100
        both_busy = turns[2:100]
        assert max(both_busy) <= 2 * ROUND_WORK // REQUEST_WORK


REQUEST = b"\0\0\0\3abc"


@pytest.mark.parametrize("first", [b"", REQUEST[:1], REQUEST])
async def test_clients_that_log_in_at_the_same_time_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    """Their requests have arrived when the event loop looks; it executes a few of them in each of its rounds."""
    rounds = 0
    executed: list[int] = []
    async with House() as house:
        known = await house.connect()
        known.ask(b"a")
        assert await known.answers(1) == [b"A"]
        login = SimpleNamespace(admits_until=math.inf, mechanism="PLAIN")
        monkeypatch.setattr(house.listener, "new_login", lambda connection: login)
        newcomers = [await house.connect() for _ in range(40)]
        await settle(lambda: house.listener.connection_count == 41)
        accept = house.dispatcher.accept

        def noted(connection: Any, frame: memoryview) -> Any:
            executed.append(rounds)
            return accept(connection, frame)

        house.dispatcher.accept = noted  # type: ignore[method-assign]
        for peer in newcomers:
            peer.writer.write(first)
        if first == REQUEST:
            for peer in newcomers:
                assert await peer.answers(1) == [b"ABC"]
        await settle(lambda: sum(len(c._buffer) for c in house.listener._connections) == 40 * len(first) % 280)
        await settle(lambda: not house.limits.newcomers._waiting)
        executed.clear()
        for peer in newcomers:
            peer.writer.write(REQUEST[len(first) % len(REQUEST) :])  # into the socket at once
        while len(executed) < 40:
            await asyncio.sleep(0)
            rounds += 1
        assert max(Counter(executed).values()) <= turns.LOGINS_PER_ROUND
        for peer in newcomers:
            assert await peer.answers(1) == [b"ABC"]


async def test_a_client_of_many_small_requests_before_its_login_is_served() -> None:
    async with House() as house:
        house.listener.new_login = lambda connection: SimpleNamespace(admits_until=math.inf)  # type: ignore[assignment,return-value,method-assign]
        peer = await house.connect()
        words = [b"%d" % n for n in range(300)] + [b"x" * 60_000]
        peer.ask(*words)
        assert await peer.answers(301) == [word.upper() for word in words]


async def test_a_large_request_is_read_in_parts_while_others_compete(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms: list[int] = []
    get_buffer = Connection.get_buffer

    def note(connection: Connection, sizehint: int) -> memoryview:
        rooms.append(len(get_buffer(connection, sizehint)))
        return get_buffer(connection, sizehint)

    monkeypatch.setattr(Connection, "get_buffer", note)
    monkeypatch.setattr(turns, "CONTENTION_S", 60.0)  # however slow the machine is, the two compete
    async with House() as house:
        peers = [await house.connect() for _ in range(2)]
        words = [b"%d" % number * 8_000_000 for number in range(2)]
        for peer, word in zip(peers, words, strict=True):
            peer.ask(word)
        assert await asyncio.gather(*(peer.answers(1) for peer in peers)) == [[word] for word in words]
        assert len(rooms) > 16
        assert max(rooms[2:]) <= ROUND_WORK


async def test_idle_connections_are_closed_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "SWEPT_AT_ONCE", 3)
    async with House(**{"connection.request.idle.ms": 600_000}) as house:
        for number in range(10):
            half = await house.connect()
            half.writer.write(struct.pack(">i", 100) + b"half %d" % number)
        await settle(lambda: sum(len(c._buffer) > 4 for c in house.listener._connections) == 10)
        clock = SlowTime()
        clock.spent_s = 601.0
        evicted: list[int] = []
        rounds = 0
        monkeypatch.setattr(Connection, "evict", lambda self, reason: evicted.append(rounds))
        asyncio.get_running_loop().call_soon(house.listener._close_idle, clock)  # type: ignore[arg-type]
        while len(evicted) < 10:
            await asyncio.sleep(0)
            rounds += 1
        assert max(Counter(evicted).values()) == 3


async def test_a_request_that_stops_halfway_is_closed_and_a_whole_one_may_wait() -> None:
    async with House(**{"connection.request.idle.ms": 40}) as house:
        gate: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        house.dispatcher.replies[b"slow"] = lambda: Deferred(gate)
        waiting, idle, half = await house.connect(), await house.connect(), await house.connect()
        waiting.ask(b"slow")
        half.writer.write(struct.pack(">i", 100) + b"half")
        async with asyncio.timeout(60):
            assert await half.until_closed() == b""
        idle.ask(b"a")
        assert await idle.answers(1) == [b"A"]
        gate.set_result(Word(b"still here"))
        assert await waiting.answers(1) == [b"still here"]


async def test_a_small_request_is_answered_while_large_ones_do_not_come() -> None:
    async with House(**{"queued.max.request.bytes": 4 << 20}) as house:
        for _ in range(20):
            peer = await house.connect()
            peer.writer.write(struct.pack(">i", 10 << 20) + bytes(100_000))
        small = await house.connect()
        small.ask(b"s" * 100_000)
        async with asyncio.timeout(60):
            assert await small.answers(1) == [b"S" * 100_000]
        capacity = sum(connection._buffer.capacity for connection in house.listener._connections)
        assert capacity < 8 << 20


async def test_answers_that_wait_behind_another_are_bounded_in_bytes() -> None:
    async with House(**{"connection.write.buffer.bytes": 65536}) as house:
        gate: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        house.dispatcher.replies[b"slow"] = lambda: Deferred(gate)
        house.dispatcher.replies[b"big"] = lambda: Word(bytes(1 << 20))
        peer = await house.connect()
        peer.ask(b"slow", *[b"big"] * 50)
        await settle(lambda: len(house.dispatcher.executed) > 1)
        for _ in range(100):
            await asyncio.sleep(0)
        assert house.dispatcher.executed == [b"slow", b"big"]
        gate.set_result(Word(b"done"))
        assert [len(word) for word in await peer.answers(51)] == [4] + [1 << 20] * 50


async def test_peers_that_take_no_answers_are_closed_when_memory_is_short() -> None:
    async with House(**{"queued.max.response.bytes": 1 << 20, "connection.write.stall.ms": 100}) as house:
        house.dispatcher.replies[b"big"] = lambda: Word(bytes(16 << 20))
        stalled = [await house.connect() for _ in range(3)]
        for peer in stalled:
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            peer.ask(b"big")
        await settle(lambda: house.listener.answers.used > 1 << 20)
        await settle(lambda: house.listener.connection_count == 0)
        reader = await house.connect()
        reader.ask(b"a")
        assert await reader.answers(1) == [b"A"]
