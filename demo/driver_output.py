"""Read the output of the pipeline's driver while it runs: its progress, and its messages about failures.

The module reads the files of the driver's stdout and stderr, and computes the fraction of the work that is done. All
functions return at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ..pipeline.jobs.progress import Progress

RESTART: Final = ": starting again after: "
NOTICE: Final = "oncelog: "
"""A message of `oncelog pipeline run` about a failed query contains RESTART. All other messages begin with NOTICE."""


class GrowingFile:
    """A file to which another process appends lines. It may be created later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def new_lines(self) -> list[str]:
        """Return the lines appended since the last call, without newlines. An unfinished line is returned later."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.decode(errors="replace").splitlines()


class DriverOutput:
    """The output of a driver that runs several queries over the same flights.

    `queries` is the number of queries, and `flights` the number of flights that each of them reads.
    """

    def __init__(self, output: Path, log: Path, queries: int, flights: int) -> None:
        self._output = GrowingFile(output)
        self._log = GrowingFile(log)
        self._work = queries * flights
        self._flights = flights
        self._rows: dict[str, dict[int, int]] = {}
        self._left: dict[str, int] = {}
        self._late: dict[tuple[str, int], int] = {}
        self.last_notice = ""
        """The driver's last message about a wait or a restart, or an empty string."""

    def look(self) -> list[str]:
        """Read the new output, and return the driver's messages about restarted queries."""
        for line in self._output.new_lines():
            if (progress := Progress.read(line)) is not None:
                self._take(progress)
        restarts = []
        for line in self._log.new_lines():
            if RESTART in line:
                restarts.append(line)
            if RESTART in line or line.startswith(NOTICE):
                self.last_notice = line.removeprefix(NOTICE)
        return restarts

    @property
    def fraction(self) -> float:
        """The fraction of the work that is done, from 0 to 1."""
        return sum(map(self._done, self._rows)) / self._work

    @property
    def late(self) -> int:
        """The number of rows that arrived later than the watermark allows."""
        return sum(self._late.values())

    def _take(self, progress: Progress) -> None:
        # A restarted query repeats a micro-batch with the same number and rows. It counts once.
        self._rows.setdefault(progress.query, {})[progress.batch_id] = progress.rows
        self._late[progress.query, progress.batch_id] = progress.late
        if progress.lag is not None:
            self._left[progress.query] = min(progress.lag, self._left.get(progress.query, self._flights))

    def _done(self, query: str) -> int:
        # A kill may prevent the line of a finished micro-batch, and the first line after a restart has no lag.
        by_lag = self._flights - self._left.get(query, self._flights)
        return min(self._flights, max(by_lag, sum(self._rows[query].values())))
