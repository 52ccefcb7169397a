"""How many bytes of a TLS client have to arrive before its handshake begins."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oncelog.broker.network.handshake import MAX_MESSAGE_BYTES, MAX_RECORDS, Gate, complete, needed
from oncelog.broker.network.tls_records import RecordLimit
from oncelog.broker.network.turns import TlsTurns
from support.hostile.handshakes import client_hello
from support.tls_transport import Full, Wire

HELLO = client_hello()[5:]


def records(message: bytes, places: set[int]) -> list[bytes]:
    """Return the TLS records of a message that is divided at `places`."""
    ends = [0, *sorted(places), len(message)]
    parts = [message[start:end] for start, end in itertools.pairwise(ends)]
    return [b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part for part in parts]


def steps(stream: bytes) -> int:
    """Return how many bytes have arrived when nothing is missing any more."""
    arrived, missing = 0, 5
    while missing:
        assert missing > arrived, "waits for more bytes each time"
        arrived = missing
        missing = needed(stream[:arrived])
    return arrived


@given(st.sets(st.integers(1, len(HELLO) - 1), max_size=MAX_RECORDS - 1))
def test_a_handshake_begins_when_its_first_message_is_complete(places: set[int]) -> None:
    stream = b"".join(records(HELLO, places))
    assert steps(stream + b"and more") == len(stream)


@given(st.binary(min_size=5, max_size=100), st.integers(0, 100))
def test_other_bytes_are_not_waited_for(start: bytes, more: int) -> None:
    if start[0] != 0x16:
        assert needed(start) == 0


def test_a_message_of_many_records_or_bytes_is_refused() -> None:
    many = records(HELLO, set(range(1, MAX_RECORDS + 1)))
    with pytest.raises(OSError, match=f"more than {MAX_RECORDS} records"):
        steps(b"".join(many))
    empty = b"\x16\x03\x01\x00\x00" * MAX_RECORDS
    with pytest.raises(OSError, match=f"more than {MAX_RECORDS} records"):
        steps(empty)
    long = b"\x01" + MAX_MESSAGE_BYTES.to_bytes(3, "big")
    with pytest.raises(OSError, match="32,768 bytes"):
        steps(records(long, set())[0])


def test_a_record_is_complete_with_its_last_byte() -> None:
    record = b"\x17\x03\x03\x00\x05" + b"abcde"
    assert [complete(record[:count]) for count in range(len(record))] == [0] * len(record)
    assert complete(record + record) == len(record)
    assert complete(b"GET / HTTP/1.1") == len(b"GET / HTTP/1.1"), "no record, which the TLS protocol refuses"


async def test_what_follows_a_handshake_waits_for_a_turn_of_records() -> None:
    wire = Wire()
    gate, tls = Gate(TlsTurns(), "192.0.2.1"), Full(wire, 100)
    gate.connection_made(wire)
    wire.protocol = tls
    gate.enter()
    stream = b"\x16\x03\x03\x00\x03abc" + b"\x17\x03\x03\x40\x00" + bytes(0x4000)
    gate.data_received(stream)
    assert (wire.reading, tls.received) == (False, b"")
    while not tls.received:
        await asyncio.sleep(0)
    assert tls.received == stream[:8]
    gate.open()
    assert isinstance(wire.protocol, RecordLimit)
    assert (wire.reading, tls.received) == (False, stream[:8])
    while tls.received != stream:
        await asyncio.sleep(0)
    assert not wire.reading, "the TLS protocol has enough"
