"""The second half of the demo: the flights job on Spark, run by `oncelog pipeline run` as a user would, and killed.

Owns: starting the driver over the topic `flights`, following what it prints, killing driver and broker on schedule and
starting them again, and handing topics and files to the judge (`verify_delays.py`). The broker is the first half's.

A driver is killed with its JVM and all that they started, as by a crash of its machine. It must end by itself with exit
code 0, when it has read all flights; any other end that was no kill fails the job.
"""

from __future__ import annotations

import asyncio
import importlib.resources
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..pipeline.jobs.progress import Progress
from .delays import LEAST_ARRIVALS, expected_delays
from .flights import directory as tables
from .kills import Kill
from .observer import AIM_INTERVAL_S, WATCH_INTERVAL_S, JobFailed, Observer
from .parquet_files import committed_files, rows, uncommitted_files
from .processes import BrokerProcess, ChildProcess
from .topics import (
    CLEANED,
    FLIGHTS,
    HOURS,
    LATEST,
    PARTITIONS,
    Watcher,
    count_uncommitted,
    create_topics,
    read_committed,
)
from .verify_delays import CleanedCheck, HoursCheck, ListCheck

QUERIES: Final = 4
BATCHES: Final = 3
"""Of each query, so that kills meet some that are done and some that are not."""
AIM_S: Final = 20.0
"""A micro-batch has its transaction open only while its rows are written: for so long a kill waits for that."""
STOP_S: Final = 30.0


@dataclass(slots=True)
class DelaysOutcome:
    """What readers of the job's topics and files see, held against the plain computation."""

    cleaned: CleanedCheck
    hours: HoursCheck
    latest: ListCheck
    parquet: CleanedCheck
    seconds: float
    aborted: int = 0
    """Records of `flights-cleaned` that lie in the log and that a read_committed reader never sees."""
    left_files: int = 0
    """Parquet files of micro-batches that a kill interrupted: no reader sees them."""
    late: int = 0
    """Rows that came behind the watermark."""
    kills: list[str] = field(default_factory=list)

    @property
    def checks(self) -> tuple[CleanedCheck | HoursCheck | ListCheck, ...]:
        return self.cleaned, self.hours, self.latest, self.parquet

    @property
    def exact(self) -> bool:
        return all(check.exact for check in self.checks)


def pipeline_problem() -> str | None:
    """Why the second half cannot run here, in one sentence with the remedy; None if it can."""
    from ..pipeline.requirements import RequirementError, java_problem, require_spark

    try:
        require_spark()
    except RequirementError as problem:
        return str(problem)
    return java_problem()


class PipelineHalf:
    """`start`, `work`, `judge`, and `stop` in any case."""

    def __init__(
        self, broker: BrokerProcess, directory: Path, flights: int, kills: Sequence[Kill], observer: Observer
    ) -> None:
        self._broker = broker
        self._parquet = directory / "delays.parquet"
        self._output = directory / "pipeline.out"
        self._flights = flights
        self._pending = sorted(kills)
        self._observer = observer
        self._done: dict[str, int] = {}
        self._read = 0
        self._late: dict[tuple[str, int], int] = {}
        self._begun = time.monotonic()
        self._seconds = 0.0
        self.kills: list[str] = []
        variables = {
            "BOOTSTRAP": broker.address,
            "CHECKPOINT": directory / "checkpoint",
            "TABLES": tables(),
            "PARQUET": self._parquet,
            "FLIGHTS": FLIGHTS,
            "CLEANED": CLEANED,
            "HOURLY": HOURS,
            "LATEST": LATEST,
            "LEAST": LEAST_ARRIVALS,
            "PER_BATCH": -(-flights // BATCHES) + PARTITIONS[FLIGHTS],  # each partition's share is rounded down
        }
        job = importlib.resources.files("oncelog.pipeline") / "jobs" / "flights.toml"
        arguments = ["pipeline", "run", str(job), *(f"--var={name}={value}" for name, value in variables.items())]
        self.driver = ChildProcess(
            "oncelog.cli", arguments, directory / "pipeline.log", with_children=True, output=self._output
        )

    async def start(self) -> None:
        """Make the topics and start the driver; Spark takes some seconds to be there."""
        self._begun = time.monotonic()
        await create_topics(self._broker.address, CLEANED, HOURS, LATEST)
        await asyncio.to_thread(self.driver.spawn)
        self._observer.event(f"oncelog pipeline run flights.toml: the driver starts (pid {self.driver.pid})")

    async def work(self) -> None:
        """Watch and kill until the driver has ended with everything done."""
        async with Watcher(self._broker.address) as watcher:
            while self.driver.running:
                await asyncio.sleep(WATCH_INTERVAL_S)
                self._follow()
                if not self._broker.running:
                    raise JobFailed("the broker ended by itself")
                if self._pending and self._fraction >= self._pending[0].at:
                    kill = self._pending.pop(0)
                    if kill.aimed:
                        await self._aim(watcher)
                    await self._carry_out(kill)
        self._follow()
        code = await asyncio.to_thread(self.driver.wait)
        if code != 0:
            raise JobFailed(f"the pipeline's driver ended with exit code {code}")
        self._observer.pipeline(self._flights)  # not every last micro-batch tells how far it was
        self._seconds = time.monotonic() - self._begun

    async def judge(self) -> DelaysOutcome:
        """Read topics and files back and compare."""
        wanted = await asyncio.to_thread(expected_delays, self._flights)
        hours, latest = HoursCheck(HOURS, wanted), ListCheck(LATEST, wanted)
        cleaned, parquet = CleanedCheck(CLEANED, wanted), CleanedCheck("…in Parquet files", wanted)
        outcome = DelaysOutcome(cleaned, hours, latest, parquet, self._seconds, kills=self.kills)
        address = self._broker.address
        await read_committed(address, CLEANED, cleaned.add)
        await read_committed(address, HOURS, lambda _, __, key, value: hours.add(key, value))
        await read_committed(address, LATEST, lambda _, __, key, value: latest.add(key, value))
        await asyncio.to_thread(self._read_files, parquet)
        outcome.aborted = await count_uncommitted(address, CLEANED) - cleaned.records
        outcome.left_files = uncommitted_files(self._parquet)
        outcome.late = sum(self._late.values())
        return outcome

    def stop(self) -> None:
        """End the driver, if it runs, and what it has started."""
        self.driver.close()

    def state(self) -> list[str]:
        """Where the job stands, for a failure's message."""
        words = [f"{100 * self._fraction:.0f} % of the pipeline's work done", *self.kills]
        if last := self.driver.last_words(600):
            words.append(f"its driver said last: {last}")
        return words

    # ---- inside

    @property
    def _fraction(self) -> float:
        return sum(self._done.values()) / (QUERIES * self._flights)

    def _follow(self) -> None:
        """Read what the driver has printed since the last look."""
        with self._output.open("rb") as output:
            output.seek(self._read)
            for line in output:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                if (progress := Progress.read(line.decode(errors="replace"))) is not None:
                    # A batch that is run again after a restart does not know yet how far it is to the end.
                    done = 0 if progress.lag is None else self._flights - progress.lag
                    self._done[progress.query] = max(done, self._done.get(progress.query, 0))
                    self._late[progress.query, progress.batch_id] = progress.late
        self._observer.pipeline(round(self._fraction * self._flights))

    async def _aim(self, watcher: Watcher) -> None:
        until = time.monotonic() + AIM_S
        while time.monotonic() < until and self.driver.running:
            if await watcher.sees_open_transaction(CLEANED):
                return
            await asyncio.sleep(AIM_INTERVAL_S)

    async def _carry_out(self, kill: Kill) -> None:
        await asyncio.sleep(kill.delay_s)
        process = self._broker if kill.target == "broker" else self.driver
        if not process.running:
            return
        what = "broker" if kill.target == "broker" else "driver of the pipeline and its JVM"
        text = f"kill -9 {what} (pid {process.pid}) at {100 * self._fraction:.0f} %"
        process.send_kill()
        await asyncio.to_thread(process.kill9)
        self._observer.event(text)
        if process is self._broker:
            await asyncio.to_thread(self._broker.start)
            self._observer.event(f"broker is back after {self._broker.start_s:.2f} s")
        else:
            await asyncio.to_thread(process.spawn)
        self.kills.append(text)

    def _read_files(self, check: CleanedCheck) -> None:
        for file in committed_files(self._parquet):
            for row in rows(file):
                check.add_row(file.name, row)
