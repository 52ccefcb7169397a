"""Decide how much work each connection may do in one turn of the event loop.

Work is counted in bytes received and executed, plus `REQUEST_WORK` for each request; a unit takes about half a
nanosecond. A connection without competitors gets long turns. Connections that compete share `ROUND_WORK`, so that a
client's request waits for about one round of the other connections, regardless of their number. A large request cannot
be divided, so the work that a connection does beyond its share is deducted from its next turns. Some requests cost much
more than their size suggests, so a turn also ends after `TURN_S`.

Clients that have not proved who they are wait for one another (`Newcomers`), so that thousands of logins at the same
time delay only logins.

The number of TLS records is limited, too (`RecordTurns`). A record without data may cost the broker as much as a small
request, but it is not counted as work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

REQUEST_WORK: Final = 64 * 1024
"""The work that a request costs in addition to its bytes."""

ROUND_WORK: Final = 1024 * 1024
"""The work per round that all competing connections share."""

LEAST_SHARE: Final = 64 * 1024
"""The minimum work that a connection may do in a turn; with less, switching turns would cost more than the work itself.
"""

LONE_TURN_WORK: Final = 2 * 1024 * 1024
"""The work that a connection may do in one turn if no other connection has been active for `CONTENTION_S`."""

TURN_S: Final = 0.002
"""The number of seconds after which a connection's turn ends."""

CONTENTION_S: Final = 0.1

LOGIN_WORK: Final = 64 * 1024
"""The work that a connection may do in one turn before its client has logged in."""

LOGINS_PER_ROUND: Final = 8
"""The number of connections without a login that have a turn in one round of the event loop."""

HANDSHAKE_STEPS_PER_ROUND: Final = 1
"""The number of TLS handshake steps in one round. A step takes the broker up to about a millisecond."""

RECORDS_PER_ROUND: Final = 64
"""The number of TLS records decrypted in one round. A record that changes a key takes up to 35 microseconds."""

RECORDS_PER_TURN: Final = 16
"""The number of TLS records that are decrypted in one turn of a connection, once connections wait for turns."""

ROUND_S: Final = 0.002
"""A connection's excess work is reduced by one share for each period of this many seconds since its previous turn."""


class Turns:
    """The turns of the broker's connections, which are identified by their ids."""

    def __init__(self) -> None:
        self._last = 0
        self._contended_until = 0.0
        self._busy: set[int] = set()
        self._busy_before = 0
        self._counted_until = 0.0

    def begin(self, connection_id: int, left: int, since: float, now: float) -> int:
        """Begin a turn at event loop time `now`, and return how much work it may do.

        If that is 0 or less, the connection must wait. `left` is the unused work of the previous turn, which began at
        `since`; it is negative if that turn did too much.
        """
        if self._last != connection_id:
            self._last, self._contended_until = connection_id, now + CONTENTION_S
        if now >= self._contended_until:
            return LONE_TURN_WORK
        if now >= self._counted_until:
            self._count_anew(now)
        share = max(ROUND_WORK // max(len(self._busy), self._busy_before, 1), LEAST_SHARE)
        return min(left + share * int((now - since) / ROUND_S), 0) + share

    def used_up(self, connection_id: int) -> None:
        """Record that the connection still had work when its turn ended."""
        self._busy.add(connection_id)

    def _count_anew(self, now: float) -> None:
        recent = now < self._counted_until + CONTENTION_S
        self._busy_before = len(self._busy) if recent else 0
        self._busy.clear()
        self._counted_until = now + CONTENTION_S


class _Queue:
    """A queue of turns. Subclasses define how many turns there are in a round of the event loop (`_run`).

    Networks (`client_host.network_of`) alternate, and the clients of one network have their turns in the order in which
    they came. So a client that is alone in its network waits for at most one turn of each other network.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, dict[Callable[..., object], None]] = {}
        """The waiting turns of each network, in order. The network whose turn is next comes first."""
        self._running = False

    def wait(self, network: str, turn: Callable[..., object]) -> None:
        """Call `turn` in a later round of the event loop, after the turns that already wait for the same network."""
        self._waiting.setdefault(network, {}).setdefault(turn)
        self._run_next()

    def leave(self, network: str, turn: Callable[..., object]) -> None:
        """Remove a turn from the queue, if it has not been called yet."""
        turns = self._waiting.get(network, {})
        turns.pop(turn, None)
        if not turns:
            self._waiting.pop(network, None)

    def _next(self) -> Callable[..., Any]:
        """Remove the next turn from the queue and return it. The queue must not be empty."""
        network = next(iter(self._waiting))
        turns = self._waiting.pop(network)
        turn = next(iter(turns))
        del turns[turn]
        if turns:  # the next turn of this network comes after one turn of each other network
            self._waiting[network] = turns
        return turn

    def _run_next(self) -> None:
        """Arrange that `_run` is called at the beginning of the next round.

        The clock cannot show where a round begins, because it also advances during a round.
        """
        if not self._running:
            self._running = True
            asyncio.get_running_loop().call_soon(self._begin_round)

    def _begin_round(self) -> None:
        self._running = False
        try:
            self._run()
        finally:
            if self._waiting:
                self._run_next()

    def _run(self) -> None:
        """Begin a round: call as many turns as one round may have, or schedule their calls."""
        raise NotImplementedError


class Newcomers(_Queue):
    """The turns of clients that have not proved their identity yet: a few turns in each round of the event loop."""

    def __init__(self, per_round: int) -> None:
        super().__init__()
        self._per_round = per_round

    async def turn(self, network: str) -> None:
        """Wait for a turn."""
        granted = asyncio.Event()
        self.wait(network, granted.set)
        try:
            await granted.wait()
        except asyncio.CancelledError:
            self.leave(network, granted.set)
            raise

    def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(self._per_round):
            if not self._waiting:
                break
            loop.call_soon(self._next())


class RecordTurns(_Queue):
    """The turns in which TLS records are decrypted: `RECORDS_PER_ROUND` in each round of the event loop.

    Usually the records of a connection are decrypted as soon as they arrive. When a round has reached its limit, all
    connections whose records arrive later wait for a turn. Each turn is called with the number of records that may be
    decrypted for the connection.
    """

    def __init__(self) -> None:
        super().__init__()
        self._left = RECORDS_PER_ROUND

    def left(self) -> int:
        """Return how many records may be decrypted now; 0 if the connection has to wait for a turn."""
        return 0 if self._waiting else self._left

    def decrypted(self, records: int) -> None:
        """Count decrypted records. When half of the limit is used, schedule a new round, which resets the count."""
        self._left -= records
        if self._left <= RECORDS_PER_ROUND // 2:
            self._run_next()

    def _run(self) -> None:
        self._left = RECORDS_PER_ROUND
        while self._waiting and self._left > 0:
            self._next()(min(self._left, RECORDS_PER_TURN))


class TlsTurns:
    """The turns of TLS connections: `steps` for the steps of handshakes, and `records` for all later records."""

    def __init__(self) -> None:
        self.steps = Newcomers(HANDSHAKE_STEPS_PER_ROUND)
        self.records = RecordTurns()
