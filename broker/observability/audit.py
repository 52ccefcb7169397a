"""Record what clients did: the operations that they were allowed or denied, and their logins.

Each record is a log line, in the broker's log or in a file of its own. It says who did what, from which address, on
which resource, and which rule decided.

The rate of lines is limited for each client and each kind of record separately. So a noisy client suppresses no records
of other clients, and allowed operations suppress no denials. The next line of the same client and kind states how many
records were suppressed. If no such line follows, a line for all clients states the number within `NOTICE_S` seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..system.ports import Lane, Threads
from .logging import Budget, make_file_logger

if TYPE_CHECKING:
    from .line_writer import FileWriter

OFF: Final = "off"
DENIED: Final = "denied"
ALL: Final = "all"

EVENTS: Final = ("access_denied", "access_allowed", "login_refused", "login_accepted")
"""The kinds of records."""

NOTICE_S: Final = 10.0
"""Seconds after which suppressed records are reported, unless another line of their client has reported them."""

CLOSE_S: Final = 5.0
"""Seconds for which `close` waits for lines that are not in the file yet."""

MAX_BUDGETS: Final = 10_000
"""The maximum number of pairs of a client and a kind whose budgets are kept; the oldest ones are forgotten."""


class _ClientBudget(Budget):
    """A client's budget for one kind of record, and the number of such records suppressed since the last line."""

    __slots__ = ("suppressed",)

    def __init__(self, lines_per_second: int, now: float) -> None:
        super().__init__(lines_per_second, now)
        self.suppressed = 0


class AuditLog:
    """The audit log of one broker."""

    def __init__(self, log: Any, level: str = DENIED, lines_per_second: int = 0, location: str = "") -> None:
        """Create an audit log.

        `level` is OFF, DENIED (denied operations and refused logins) or ALL. `lines_per_second` limits the lines of
        each client and kind; 0 means no limit. Lines go to the file `location` after `open`, or to `log` if `location`
        is empty.
        """
        self.records_denied = level != OFF
        self.records_allowed = level == ALL
        self._log = log
        self._location = location
        self._rate = lines_per_second
        self._budgets: dict[tuple[str, str, str], _ClientBudget] = {}
        self._forgotten: Counter[str] = Counter()
        self._writer: FileWriter | None = None
        self._notice: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Open the file, if there is one. Raises OSError."""
        if self._location and self.records_denied:
            self._log, self._writer = make_file_logger(self._location)

    async def close(self, threads: Threads) -> None:
        """Report the suppressed records, and wait until all lines are in the file, at most `CLOSE_S` seconds."""
        self._report_suppressed()
        if self._writer is not None:
            await threads.run(Lane.READ, partial(self._writer.close, CLOSE_S))

    def operation(
        self,
        allowed: bool,
        principal: str,
        host: str,
        api: str,
        operation: str,
        resource_type: str,
        name: str,
        rule: str,
    ) -> None:
        """Record that a rule has allowed or denied an operation that a request to `api` requires."""
        if not (self.records_allowed if allowed else self.records_denied):
            return
        event = "access_allowed" if allowed else "access_denied"
        self._record(
            event,
            principal,
            {
                "principal": principal,
                "host": host,
                "api": api,
                "operation": operation,
                "resource_type": resource_type,
                "resource": name,
                "rule": rule,
            },
        )

    def login_accepted(
        self, mechanism: str, principal: str, host: str, listener: str, token_id: str | None = None
    ) -> None:
        """Record that a client has proved its identity; the mechanism SSL stands for a certificate.

        `token_id` is the id of the delegation token that has proved the identity, or None without a token.
        """
        if self.records_allowed:
            who = {"principal": principal, "host": host, "mechanism": mechanism, "listener": listener}
            if token_id is not None:
                who["token_id"] = token_id
            self._record("login_accepted", principal, who)

    def login_refused(self, mechanism: str, why: str, host: str, listener: str) -> None:
        """Record that a client has not proved its identity."""
        if self.records_denied:
            self._record("login_refused", "", {"host": host, "mechanism": mechanism, "listener": listener, "why": why})

    def _record(self, event: str, principal: str, fields: dict[str, str]) -> None:
        if self._rate:
            suppressed = self._take((event, principal, fields["host"]))
            if suppressed is None:
                return
            if suppressed:
                self._write(event, suppressed=suppressed, **fields)
                return
        self._write(event, **fields)

    def _write(self, event: str, **fields: Any) -> None:
        write = self._log.warning if event == "login_refused" else self._log.info
        write(event, **fields)

    def _take(self, key: tuple[str, str, str]) -> int | None:
        """Take a line from the budget of `key`.

        Return how many suppressed lines this line must report, or None to suppress this line, too.
        """
        now = time.monotonic()
        budget = self._budgets.pop(key, None) or _ClientBudget(self._rate, now)
        self._budgets[key] = budget  # moved to the end, because it was used last
        if len(self._budgets) > MAX_BUDGETS:
            oldest = next(iter(self._budgets))
            self._forgotten[oldest[0]] += self._budgets.pop(oldest).suppressed
        if not budget.take(self._rate, now):
            budget.suppressed += 1
            if self._notice is None:
                self._notice = asyncio.get_running_loop().call_later(NOTICE_S, self._report_suppressed)
            return None
        suppressed, budget.suppressed = budget.suppressed, 0
        return suppressed

    def _report_suppressed(self) -> None:
        """Write one line that says how many suppressed records of each kind no line has reported yet, if any."""
        if self._notice is not None:
            self._notice.cancel()
            self._notice = None
        counts, self._forgotten = self._forgotten, Counter()
        for (event, _, _), budget in self._budgets.items():
            counts[event] += budget.suppressed
            budget.suppressed = 0
        if counts := +counts:
            self._log.warning("audit_lines_suppressed", events=dict(counts))
