"""Limit how many TLS records are decrypted in one round of the event loop, after the handshake of a connection.

The TLS protocol of uvloop decrypts all records that one read returns. A record without data may cost the broker as much
as a small request: 64 KB can hold 2,400 KeyUpdate messages (RFC 8446, section 4.6.3), which change a key. The kind of a
record is encrypted, so records of every kind are counted, by their headers. Records above the limit are held until
their turn comes (`turns.RecordTurns`). Meanwhile the connection is not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeAlias, cast

from .turns import RecordTurns

HEADER_BYTES: Final = 5
"""The size of the header of a TLS record. Its last two bytes are the length of the rest (RFC 8446, section 5.1)."""

PORTION: Final = 64 * 1024
"""The maximum number of bytes that are passed to a TLS protocol at once."""

SPARE: Final = 4 * 1024
"""The size in bytes of a read while records are held.

The transport is then paused, but the TLS protocol may resume it. Before it does so, it passes more bytes than this to
the connection, so the held bytes do not accumulate.
"""


LOOK_S: Final = 0.005
"""Seconds between the first two checks of whether a connection, closed by its peer, still has to execute requests."""

LONGEST_LOOK_S: Final = 1.0
"""The maximum seconds between two checks.

The time between checks doubles up to this value, because a wait for a quota may be long.
"""

Progress: TypeAlias = Callable[[], tuple[bool, float]]
"""A function that returns whether requests that have arrived may still have to be executed.

It also returns the event loop time of the connection's last activity.
"""


class RecordCount:
    """A counter of the TLS records in a stream of bytes that arrives in pieces."""

    __slots__ = ("_header", "_rest")

    def __init__(self) -> None:
        self._header = b""
        self._rest = 0

    def within(self, piece: memoryview, most: int) -> tuple[int, int]:
        """Count the records that begin in `piece`, up to `most`. Return their number and the number of bytes consumed.

        The next piece must begin with the bytes of this piece that were not consumed.
        """
        size, header = len(piece), self._header
        position, records = self._rest, 0
        while position < size:
            if not header and records == most:
                break  # a record whose header is divided has been counted
            missing = HEADER_BYTES - len(header)
            if position + missing > size:
                records += not header
                self._header, self._rest = header + bytes(piece[position:]), 0
                return records, size
            if header:
                header += bytes(piece[position : position + missing])
                length, header = header[3] << 8 | header[4], b""
            else:
                length = piece[position + 3] << 8 | piece[position + 4]
                records += 1
            position += missing + length
        passed = min(position, size)
        self._header, self._rest = b"", position - passed
        return records, passed


class RecordLimit(asyncio.BufferedProtocol):
    """Stands between a transport and its TLS protocol, and limits the records that pass in one round of the event loop.

    While records are held, this class pauses the transport. The TLS protocol also pauses and resumes the transport. So
    this class resumes reading before it passes on held records, unless the TLS protocol had paused the transport.

    Nothing is passed on while the peer is not reading: the TLS library answers some records by itself, for example each
    attempt to renegotiate in TLS 1.2, and its answers would pile up.

    When the TLS protocol learns that the peer has closed the TCP connection, it discards all bytes that the broker's
    `Connection` has not read yet. So if `progress` is given, the end is passed on only when the `Connection` has
    nothing left to read or execute.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        tls: Any,
        turns: RecordTurns,
        network: str,
        progress: Progress | None = None,
    ) -> None:
        self._transport, self._tls = transport, tls
        self._turns, self._network = turns, network
        self._progress = progress
        self._active: float | None = None
        self._ending: asyncio.Handle | None = None
        self._pause_s = LOOK_S
        self._count = RecordCount()
        self._view = memoryview(b"")
        self._held = bytearray()
        self._paused_by_tls = False
        self._peer_reads = True

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory into which the event loop reads; if nothing is held, the TLS protocol's memory."""
        if self._held:
            self._view = memoryview(bytearray(SPARE))
        else:
            self._view = self._tls.get_buffer(sizehint)
            if not self._turns.left():  # what will arrive has to be held
                self._view = self._view[:PORTION]
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on the bytes that have arrived, and hold the bytes above the limit."""
        arrived, self._view = self._view[:nbytes], memoryview(b"")
        if self._held or not self._peer_reads:
            passed = 0
        else:
            records, passed = self._count.within(arrived, self._turns.left())
            self._turns.decrypted(records)
        if passed == nbytes:
            self._tls.buffer_updated(nbytes)
        else:
            self._held += arrived[passed:]
            if passed:
                self._tls.buffer_updated(passed)
            self._wait()

    def hold(self, arrived: bytearray) -> None:
        """Hold bytes that arrived before this object took over the connection."""
        self._held += arrived
        self._wait()

    def _wait(self) -> None:
        if self._transport.is_closing():
            return
        self._paused_by_tls = not self._transport.is_reading()
        self._transport.pause_reading()
        if self._peer_reads:
            self._turns.wait(self._network, self._turn)

    def _turn(self, most: int) -> None:
        """Pass on at most `most` of the records that are held."""
        if self._transport.is_closing() or not self._peer_reads:
            return
        if not self._paused_by_tls:
            self._transport.resume_reading()
        with memoryview(self._held) as held:
            records, passed = self._count.within(held[:PORTION], most)
        self._turns.decrypted(records)
        portion = self._held[:passed]
        del self._held[:passed]
        self._tls.get_buffer(passed)[:passed] = portion
        self._tls.buffer_updated(passed)
        if self._held:
            self._wait()

    def eof_received(self) -> bool | None:
        """Tell the TLS protocol that the peer sends nothing more.

        While records are held, the end is not passed on: the transport reports it again whenever reading is resumed.
        """
        if self._held:
            self._paused_by_tls = False  # TLS has resumed reading, or the end would not have been read
            return True
        if self._progress is None:
            return cast("bool | None", self._tls.eof_received())
        if self._ending is None:
            self._ending = asyncio.get_running_loop().call_soon(self._end, self._progress)
        return True

    def _end(self, progress: Progress) -> None:
        """Pass on the end if the connection has done nothing since the last call and has nothing left to do."""
        self._ending = None
        if self._transport.is_closing():
            return
        is_behind, active = progress()
        if is_behind or active != self._active:
            self._active = active
            self._ending = asyncio.get_running_loop().call_later(self._pause_s, self._end, progress)
            self._pause_s = min(2 * self._pause_s, LONGEST_LOOK_S)
        elif not self._tls.eof_received():
            self._transport.close()

    def pause_writing(self) -> None:
        """Tell the TLS protocol that the peer is not reading."""
        self._peer_reads = False
        self._tls.pause_writing()

    def resume_writing(self) -> None:
        """Tell the TLS protocol that the peer is reading again, and wait for a turn to pass on the held bytes."""
        self._peer_reads = True
        self._tls.resume_writing()
        if self._held:
            self._turns.wait(self._network, self._turn)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the TLS protocol that the connection has ended."""
        self._held.clear()
        self._turns.leave(self._network, self._turn)
        if self._ending is not None:
            self._ending.cancel()
        self._tls.connection_lost(error)
