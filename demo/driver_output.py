"""What the pipeline's driver prints, followed while it runs: how far it is, and what it says when something goes wrong.

Owns: reading on in its two files, and the fraction of the work that is done. Nothing here waits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ..pipeline.jobs.progress import Progress

RESTART: Final = ": starting again after: "
NOTICE: Final = "oncelog: "
"""With these `oncelog pipeline run` tells of a query that failed, and of anything else that is worth a line."""


class GrowingFile:
    """The whole lines that are added to a file, which need not be there yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def new_lines(self) -> list[str]:
        """Return the lines since the last call, without their ends; a line that is not whole yet comes later."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.decode(errors="replace").splitlines()


class DriverOutput:
    """Follows a driver that runs `queries` queries over the same `flights` flights each."""

    def __init__(self, output: Path, log: Path, queries: int, flights: int) -> None:
        self._output = GrowingFile(output)
        self._log = GrowingFile(log)
        self._work = queries * flights
        self._flights = flights
        self._rows: dict[str, dict[int, int]] = {}
        self._left: dict[str, int] = {}
        self._late: dict[tuple[str, int], int] = {}
        self.last_notice = ""
        """What the driver said last of a wait or a restart; empty if nothing."""

    def look(self) -> list[str]:
        """Read on; returns what the driver said about queries that it starts again."""
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
        """How much of the work is done, from 0 to 1."""
        return sum(map(self._done, self._rows)) / self._work

    @property
    def late(self) -> int:
        """Rows that came behind the watermark."""
        return sum(self._late.values())

    def _take(self, progress: Progress) -> None:
        # A micro-batch that is run again after a restart has the same number and rows: it counts once.
        self._rows.setdefault(progress.query, {})[progress.batch_id] = progress.rows
        self._late[progress.query, progress.batch_id] = progress.late
        if progress.lag is not None:
            self._left[progress.query] = min(progress.lag, self._left.get(progress.query, self._flights))

    def _done(self, query: str) -> int:
        # A kill may come between a micro-batch and its line, and after a restart the first line tells of no lag.
        by_lag = self._flights - self._left.get(query, self._flights)
        return min(self._flights, max(by_lag, sum(self._rows[query].values())))
