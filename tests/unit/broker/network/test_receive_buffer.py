"""The receive buffer: frames come out whole and in order, however the bytes arrive, and memory follows the bytes."""

from __future__ import annotations

import random
import struct

import pytest
from oncelog.broker.network.receive_buffer import INITIAL_BYTES, FrameSizeError, ReceiveBuffer


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def feed(buffer: ReceiveBuffer, data: bytes) -> int:
    """Write as much as the buffer takes; returns how much that was."""
    room = buffer.writable()
    count = min(len(room), len(data))
    room[:count] = data[:count]
    buffer.received(count)
    return count


def take_all(buffer: ReceiveBuffer) -> list[bytes]:
    frames = []
    while (frame := buffer.next_frame()) is not None:
        frames.append(bytes(frame))
    return frames


@pytest.mark.parametrize("seed", range(8))
def test_frames_come_out_as_they_went_in_whatever_the_chunks(seed: int) -> None:
    source = random.Random(seed)
    payloads = [source.randbytes(source.choice([0, 1, 3, 100, 5000, 70_000, 700_000])) for _ in range(60)]
    stream = b"".join(map(framed, payloads))
    buffer = ReceiveBuffer(limit=1 << 20)
    got: list[bytes] = []
    position = 0
    while position < len(stream):
        room = buffer.writable()
        assert len(room) > 0
        count = min(len(room), source.choice([1, 7, 4096, 1 << 20]), len(stream) - position)
        room[:count] = stream[position : position + count]
        buffer.received(count)
        position += count
        got += take_all(buffer)
    assert got == payloads


def test_an_announced_size_allocates_nothing_before_the_bytes_come() -> None:
    buffer = ReceiveBuffer(limit=100 << 20)
    feed(buffer, struct.pack(">i", 100 << 20))
    assert buffer.next_frame() is None
    buffer.writable()
    assert buffer.capacity <= 128 * 1024


def test_a_large_frame_makes_the_buffer_grow_to_its_size_and_a_drained_one_is_given_back() -> None:
    payload = bytes(10 << 20)
    buffer = ReceiveBuffer(limit=100 << 20)
    stream = framed(payload)
    position = 0
    while position < len(stream):
        position += feed(buffer, stream[position:])
        frame = buffer.next_frame()
        assert buffer.capacity <= max(2 * position, INITIAL_BYTES, 128 * 1024)
    assert frame is not None
    assert len(frame) == len(payload)
    buffer.give_back()
    assert buffer.capacity == INITIAL_BYTES


def test_a_buffer_shrinks_to_what_it_holds_once_no_frame_is_looked_at() -> None:
    buffer = ReceiveBuffer(1 << 20)
    large, next_one = b"\x05" * 300_000, b"\x07" * 200_000
    sent = struct.pack(">i", len(large)) + large + struct.pack(">i", len(next_one)) + next_one

    def receive(upto: int) -> None:
        nonlocal sent
        left = len(sent) - upto
        while len(sent) > left:
            view = buffer.writable()
            part = sent[: min(len(view), len(sent) - left)]
            view[: len(part)] = part
            buffer.received(len(part))
            sent = sent[len(part) :]
            if len(buffer) < 200_004:  # the size of the frame on its way is seen
                assert buffer.next_frame() is None

    receive(300_004)
    frame = buffer.next_frame()
    assert frame is not None
    before = buffer.capacity
    buffer.shrink()
    assert buffer.capacity == before, "the frame is in use"
    assert bytes(frame) == large
    del frame
    receive(20_004)
    assert buffer.next_frame() is None
    buffer.shrink()
    assert buffer.capacity == len(buffer) == 20_004
    receive(180_000)
    following = buffer.next_frame()
    assert following is not None
    assert bytes(following) == next_one


@pytest.mark.parametrize("size", [-1, -(2**31), 1001])
def test_a_size_outside_of_the_limit_is_refused(size: int) -> None:
    buffer = ReceiveBuffer(limit=1000)
    feed(buffer, struct.pack(">i", size))
    with pytest.raises(FrameSizeError, match="1000"):
        buffer.next_frame()


def test_a_pinned_buffer_moves_nothing_and_fills_up() -> None:
    buffer = ReceiveBuffer(limit=1 << 20)
    feed(buffer, framed(b"a" * 100))
    frame = buffer.next_frame()
    assert frame is not None
    buffer.pinned = True
    filler = framed(b"b" * (1 << 16))
    position = 0
    while not buffer.full:
        position += feed(buffer, filler[position:])
    assert bytes(frame) == b"a" * 100
    assert len(buffer.writable()) == 0
    buffer.pinned = False
    while position < len(filler):
        position += feed(buffer, filler[position:])
        got = buffer.next_frame()
    assert got is not None
    assert bytes(got) == b"b" * (1 << 16)


def test_a_frame_can_be_written_in_place() -> None:
    buffer = ReceiveBuffer(limit=1000)
    feed(buffer, framed(b"12345678"))
    frame = buffer.next_frame()
    assert frame is not None
    frame[:2] = b"XY"
    assert bytes(frame) == b"XY345678"


@pytest.mark.parametrize(
    ("start", "told"),
    [
        (b"\x16\x03\x01\x02\x00\x01", "looks like TLS.* the listener, PLAINTEXT or SASL_PLAINTEXT$"),
        (b"GET /metrics HTTP/1.1", "looks like HTTP"),
        (b"\xff\xff\xff\xff", r"0\.\.1000$"),
    ],
)
def test_who_speaks_another_protocol_is_told_apart(start: bytes, told: str) -> None:
    buffer = ReceiveBuffer(1000)
    buffer.writable()[: len(start)] = start
    buffer.received(len(start))
    with pytest.raises(FrameSizeError, match=told):
        buffer.next_frame()


@pytest.mark.parametrize("piece", [1_000, 65_536, 262_144])
def test_a_large_frame_is_copied_a_few_times_however_small_its_pieces(piece: int) -> None:
    size = 10_000_000
    buffer = ReceiveBuffer(limit=100 << 20)
    frame = struct.pack(">i", size) + bytes(size)
    copied = sent = 0
    while sent < len(frame):
        held, capacity = len(buffer), buffer.capacity
        room = buffer.writable()
        if buffer.capacity != capacity:
            copied += held
        part = frame[sent : sent + min(piece, len(room))]
        room[: len(part)] = part
        room.release()
        buffer.received(len(part))
        sent += len(part)
        taken = buffer.next_frame()
    assert taken is not None
    assert len(taken) == size
    assert copied <= 2 * size
