"""`Replication`: the streaming connection.

It creates the slot, streams changes, and reports the confirmed log position. psycopg does not support replication. This
module implements PostgreSQL's Streaming Replication Protocol on psycopg's interface to libpq, without blocking the
event loop.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import pq

from ...errors import ConnectError, RetriableError
from .pgoutput import lsn_number
from .server import connect, failure

_EPOCH_S: Final = 946_684_800
_LOST: Final = "the replication connection was lost"


class NewSlot(NamedTuple):
    """A newly created slot: its stream begins at `lsn`, and `snapshot` names the exported snapshot of that position."""

    lsn: int
    snapshot: str


class System(NamedTuple):
    """A database cluster: its unique identifier, its timeline, and the position up to which its log is on disk.

    A restored or promoted server begins a new timeline. The new timeline replaces the log of the earlier one from the
    position at which it begins.
    """

    identifier: str
    timeline: int
    lsn: int


class Replication:
    """A connection in replication mode. Errors of the server become RetriableError or ConnectError."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self.server_lsn = 0
        """The log position up to which the server has sent everything."""
        self.confirmed_lsn = 0
        """The log position up to which the server may discard its log."""
        self.process = 0
        """The id of the server's process of this connection."""

    async def connect(self) -> None:
        """Open the replication connection. Raises RetriableError, ConnectError."""
        self._connection = await connect(self._settings, replication=True)
        self.process = self._connection.info.backend_pid

    async def close(self) -> None:
        """Close the replication connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def system(self) -> System:
        """Return the cluster to which the server belongs."""
        result = await self._command("IDENTIFY_SYSTEM")
        identifier, timeline, lsn = ((result.get_value(0, index) or b"").decode() for index in range(3))
        return System(identifier, int(timeline), lsn_number(lsn))

    async def end_of_timeline(self, timeline: int, later: int) -> int:
        """Return the log position at which the history of `later` leaves `timeline`; 0 if `timeline` is not in it.

        `later` must not be 1, because the first timeline has no history.
        """
        result = await self._command(f"TIMELINE_HISTORY {later}")
        for line in (result.get_value(0, 1) or b"").decode().splitlines():
            match line.split():
                case [number, lsn, *_] if number == str(timeline):
                    return lsn_number(lsn)
        return 0

    async def create_slot(self) -> NewSlot:
        """Create the slot and return it. The exported snapshot is valid until the next command on this connection.

        The command waits for the transactions that are open now. If the connection is closed meanwhile, the server may
        still create the slot.
        """
        name = self._settings["slot.name"]
        result = await self._command(f'CREATE_REPLICATION_SLOT "{name}" LOGICAL pgoutput EXPORT_SNAPSHOT')
        _, consistent_point, snapshot, *_ = (result.get_value(0, index) or b"" for index in range(4))
        return NewSlot(lsn_number(consistent_point.decode()), snapshot.decode())

    async def start(self) -> None:
        """Start streaming at the slot's position."""
        name, publication = self._settings["slot.name"], self._settings["publication.name"]
        await self._command(
            f"START_REPLICATION SLOT \"{name}\" LOGICAL 0/0 (proto_version '1', publication_names '\"{publication}\"')"
        )

    def next_message(self) -> bytes | None:
        """Return the next message of pgoutput that has arrived, or None."""
        connection = self._pgconn()
        while True:
            with _errors_mapped():
                size, data = connection.get_copy_data(1)
                result = connection.get_result() if size < 0 else None
            if size == 0:
                return None
            if size < 0:
                message = "" if result is None else result.error_message.decode("utf-8", "replace").strip()
                raise failure(psycopg.OperationalError(message or "the server has ended the stream"), _LOST)
            content = bytes(data)
            if content[:1] == b"w":
                _, server_lsn, _ = struct.unpack_from("!QQq", content, 1)
                self.server_lsn = max(self.server_lsn, server_lsn)
                return content[25:]
            if content[:1] == b"k":
                server_lsn, _, reply = struct.unpack_from("!QqB", content, 1)
                self.server_lsn = max(self.server_lsn, server_lsn)
                if reply:
                    self.report()

    async def receive(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` seconds for data, and read it."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        with _errors_mapped():
            # A copy, because libpq closes its own when the connection is lost, and another socket may get the number.
            descriptor = os.dup(self._pgconn().socket)
            try:
                loop.add_reader(descriptor, arrived.set)
                async with asyncio.timeout(timeout_s):
                    await arrived.wait()
            except TimeoutError:
                return
            finally:
                loop.remove_reader(descriptor)
                os.close(descriptor)
        self.take()

    def take(self) -> None:
        """Read the data that has arrived."""
        with _errors_mapped():
            self._pgconn().consume_input()

    def report(self) -> None:
        """Report the confirmed log position to the server; this also shows that the connector is alive."""
        connection = self._pgconn()
        clock = int((time.time() - _EPOCH_S) * 1_000_000)
        lsn = self.confirmed_lsn
        with _errors_mapped():
            connection.put_copy_data(b"r" + struct.pack("!QQQqB", lsn, lsn, lsn, clock, 0))
            connection.flush()

    async def _command(self, text: str) -> pq.abc.PGresult:
        with _errors_mapped():
            self._pgconn().send_query(text.encode())
            self._pgconn().flush()
        result = await self._result()
        if result is None:
            raise ConnectError(f"the server sent no response to {text}")
        if result.status in (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE):
            message = result.error_message.decode("utf-8", "replace").strip()
            state = result.error_field(pq.DiagnosticField.SQLSTATE)
            raise failure(_with_state(message, state), text.partition(" ")[0])
        while result.status != pq.ExecStatus.COPY_BOTH and await self._result() is not None:
            pass
        return result

    async def _result(self) -> pq.abc.PGresult | None:
        while self._pgconn().is_busy():
            await self.receive(1.0)
        with _errors_mapped():
            return self._pgconn().get_result()

    def _pgconn(self) -> pq.abc.PGconn:
        if self._connection is None:
            raise ConnectError("the replication connection is closed")
        return self._connection.pgconn


@contextmanager
def _errors_mapped() -> Iterator[None]:
    """Raise RetriableError or ConnectError in place of errors of psycopg and of the operating system."""
    try:
        yield
    except psycopg.Error as error:
        raise failure(error, _LOST) from error
    except OSError as error:
        raise RetriableError(f"the replication connection cannot be read: {error.strerror or error}") from error


def _with_state(message: str, state: bytes | None) -> psycopg.Error:
    error = psycopg.errors.lookup(state.decode())(message) if state else psycopg.OperationalError(message)
    return error
