"""`LoginChecks` decides in which order passwords and tokens are checked, and how many logins may wait for this.

Comparing a password with a salted hash deliberately takes milliseconds of a core, even if the password is wrong.
Verifying a large token takes as long. So the broker runs one check at a time, and a client that sends many passwords or
tokens must not delay the logins of others:

* Client addresses take turns, and the checks of one address run in the order of their arrival. A login from an address
  without other logins waits for at most one check of each other address. The addresses of an IPv6 network count as one
  (`client_host.network_of`).
* The number of checks that wait is limited, for each address and in total. A login beyond a limit is not checked
  (`LoginNotChecked`). At the total limit, a login from an address that has no waiting logins replaces the last waiting
  login of the address that has the most.
* A check whose client has disconnected does not run.

A password that was recently found to be right needs no hashing (`RememberedPasswords`), so its login neither waits nor
counts towards the limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from ..system.ports import Lane, Threads
from .client_host import network_of
from .login import LoginNotChecked

T = TypeVar("T")


class LoginChecks:
    """The checks of passwords and large tokens of all listeners. They run on the login thread (`Lane.LOGIN`)."""

    def __init__(self, threads: Threads, max_waiting: int, max_waiting_per_ip: int) -> None:
        self._threads = threads
        self._max_waiting, self._max_waiting_per_ip = max_waiting, max_waiting_per_ip
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}
        """The waiting checks of each address, in order. The address whose turn is next comes first."""
        self._count = 0
        self._busy = False

    async def at_once(self, check: Callable[[], bool]) -> bool:
        """Return the result of a check that takes microseconds.

        The check waits for earlier jobs of the login thread. At most one of them is a check of `in_turn`. Others, for
        example, compute the credentials of delegation tokens that are used for the first time.
        """
        return await self._threads.run(Lane.LOGIN, check)

    async def in_turn(self, host: str, check: Callable[[], T]) -> T:
        """Return the result of a slow check for the client address `host`, when its turn has come.

        Raises LoginNotChecked if too many checks wait, or the exception of the check.
        """
        if self._busy:
            await self._turn_of(network_of(host))
        self._busy = True
        running = self._threads.run(Lane.LOGIN, check)
        running.add_done_callback(self._ended)
        await asyncio.wait([running])  # if this is cancelled, the check continues, and others wait for it
        return running.result()

    async def _turn_of(self, host: str) -> None:
        checks = self._waiting.get(host, {})
        if len(checks) >= self._max_waiting_per_ip:
            raise _refusal("sasl.server.max.waiting.logins.per.ip", self._max_waiting_per_ip)
        if self._count >= self._max_waiting:
            refusal = _refusal("sasl.server.max.waiting.logins", self._max_waiting)
            if checks or not self._waiting:
                raise refusal
            self._refuse_one(refusal)
        turn = asyncio.get_running_loop().create_future()
        checks[turn] = None
        self._waiting[host] = checks
        self._count += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn in checks:
                self._remove(host, turn)
            elif not turn.cancelled():  # its turn had come
                self._next()
            raise

    def _refuse_one(self, refusal: LoginNotChecked) -> None:
        """Refuse the last waiting login of the address that has the most waiting logins."""
        host = max(self._waiting, key=lambda address: len(self._waiting[address]))
        turn = next(reversed(self._waiting[host]))
        self._remove(host, turn)
        if not turn.cancelled():
            turn.set_exception(refusal)

    def _remove(self, host: str, turn: asyncio.Future[None]) -> None:
        checks = self._waiting[host]
        del checks[turn]
        self._count -= 1
        if not checks:
            del self._waiting[host]

    def _ended(self, running: asyncio.Future[Any]) -> None:
        running.exception()  # if the client has gone, no task retrieves the exception
        self._next()

    def _next(self) -> None:
        """Let the next check run."""
        self._busy = False
        while self._waiting and not self._busy:
            host, checks = next(iter(self._waiting.items()))
            turn = next(iter(checks))
            self._remove(host, turn)
            if checks:  # the next turn of this address comes after one turn of each other address
                self._waiting[host] = self._waiting.pop(host)
            if not turn.cancelled():
                self._busy = True
                turn.set_result(None)


def _refusal(setting: str, limit: int) -> LoginNotChecked:
    return LoginNotChecked(f"{setting} = {limit} is reached: too many logins are waiting for their checks")
