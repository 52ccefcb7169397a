"""Run the second half of the demo: run the flights job with `oncelog pipeline run`, and kill its processes.

The module starts the driver, which reads the topic `flights`, and follows its output. It kills driver and broker on
schedule, and starts them again. In the end it passes the topics and files to the checks of `verify_delays.py`. The
broker is that of the first half.

A driver is killed together with its JVM and their child processes, as in a crash of the machine. When the driver has
read all flights, it must end by itself with exit code 0. Any other end without a kill fails the job.
"""

from __future__ import annotations

import asyncio
import importlib.resources
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .delays import LEAST_ARRIVALS, expected_delays
from .driver_output import DriverOutput
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
from .waits import Waits

QUERIES: Final = 4
BATCHES: Final = 3
"""The number of micro-batches of each query. When a kill happens, some are finished, and others are not."""
AIM_S: Final = 20.0
"""Longest time that an aimed kill waits for an open transaction, in seconds.

The transaction of a micro-batch is open only while its rows are written.
"""


@dataclass(slots=True)
class DelaysOutcome:
    """The comparison of the job's topics and files, as readers see them, with a computation without Spark."""

    cleaned: CleanedCheck
    hours: HoursCheck
    latest: ListCheck
    parquet: CleanedCheck
    seconds: float
    aborted: int = 0
    """Records of aborted transactions in the log of `flights-cleaned`, which a read_committed reader skips."""
    left_files: int = 0
    """Parquet files of micro-batches that a kill interrupted. Readers skip them."""
    late: int = 0
    """Rows that arrived later than the watermark allows."""
    kills: list[str] = field(default_factory=list)

    @property
    def checks(self) -> tuple[CleanedCheck | HoursCheck | ListCheck, ...]:
        return self.cleaned, self.hours, self.latest, self.parquet

    @property
    def exact(self) -> bool:
        return all(check.exact for check in self.checks)


def pipeline_problem() -> str | None:
    """Return why the second half cannot run on this machine, with the remedy. Return None if it can run."""
    from ..pipeline.requirements import RequirementError, java_problem, require_spark

    try:
        require_spark()
    except RequirementError as problem:
        return str(problem)
    return java_problem()


class PipelineHalf:
    """The job on Spark. Call `start`, `work` and `judge`, and in any case `stop`."""

    def __init__(
        self,
        broker: BrokerProcess,
        directory: Path,
        flights: int,
        kills: Sequence[Kill],
        observer: Observer,
        waits: Waits,
    ) -> None:
        self._broker = broker
        self._parquet = directory / "delays.parquet"
        self._flights = flights
        self._pending = sorted(kills)
        self._observer = observer
        self._waits = waits
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
            "PER_BATCH": -(-flights // BATCHES) + PARTITIONS[FLIGHTS],  # Spark rounds down each partition's share
        }
        job = importlib.resources.files("oncelog.pipeline") / "jobs" / "flights.toml"
        arguments = ["pipeline", "run", str(job), *(f"--var={name}={value}" for name, value in variables.items())]
        output, log = directory / "pipeline.out", directory / "pipeline.log"
        self._output = DriverOutput(output, log, QUERIES, flights)
        self.driver = ChildProcess("oncelog.cli", arguments, log, with_children=True, output=output)

    async def start(self) -> None:
        """Create the job's topics and start the driver, without waiting until Spark is up."""
        self._begun = time.monotonic()
        limits = self._waits.limits
        async with self._waits.upto(limits.topics_s, "the broker to create the pipeline's topics"):
            await create_topics(self._broker.address, CLEANED, HOURS, LATEST)
        await self._waits.thread(limits.processes_s, "the pipeline's driver to start", self.driver.spawn)
        self._observer.event(f"oncelog pipeline run flights.toml: the driver starts (pid {self.driver.pid})")

    async def work(self) -> None:
        """Follow the driver and carry out the scheduled kills until the driver has read all flights and ended.

        Raise JobFailed if the driver or the broker ends in any other way.
        """
        async with (
            Watcher(self._broker.address) as watcher,
            self._waits.upto(self._waits.limits.pipeline_s, self._waited_for) as batch,
        ):
            while self.driver.running:
                await asyncio.sleep(WATCH_INTERVAL_S)
                self._follow()
                batch.stands_at((self._output.fraction, len(self.kills)))
                if not self._broker.running:
                    raise JobFailed("the broker ended without a kill")
                if self._pending and self._output.fraction >= self._pending[0].at:
                    kill = self._pending.pop(0)
                    if kill.aimed:
                        await self._aim(watcher)
                    await self._carry_out(kill)
        self._follow()
        code = await self._waits.thread(
            self._waits.limits.processes_s, "the pipeline's driver to end", self.driver.wait
        )
        if code != 0:
            raise JobFailed(f"the pipeline's driver ended with exit code {code}")
        self._observer.pipeline(self._flights)  # the last micro-batch of a query may lack its progress line
        self._seconds = time.monotonic() - self._begun

    async def judge(self) -> DelaysOutcome:
        """Read the topics and files back, and return their comparison with the expected results."""
        waits, limits, address = self._waits, self._waits.limits, self._broker.address
        wanted = await waits.thread(
            limits.compute_s, "the computation of the expected delays", expected_delays, self._flights
        )
        hours, latest = HoursCheck(HOURS, wanted), ListCheck(LATEST, wanted)
        cleaned, parquet = CleanedCheck(CLEANED, wanted), CleanedCheck("…in Parquet files", wanted)
        outcome = DelaysOutcome(cleaned, hours, latest, parquet, self._seconds, kills=self.kills)
        await read_committed(waits, address, CLEANED, cleaned.add)
        await read_committed(waits, address, HOURS, lambda _, __, key, value: hours.add(key, value))
        await read_committed(waits, address, LATEST, lambda _, __, key, value: latest.add(key, value))
        await waits.thread(
            limits.read_s,
            lambda: f"the end of the Parquet files ({parquet.records} rows read)",
            self._read_files,
            parquet,
        )
        outcome.aborted = await count_uncommitted(waits, address, CLEANED) - cleaned.records
        outcome.left_files = uncommitted_files(self._parquet)
        outcome.late = self._output.late
        return outcome

    def stop(self) -> None:
        """End the driver, if it is running, and its child processes."""
        self.driver.close()

    def state(self) -> list[str]:
        """Return the state of the job, for the message of a failure."""
        words = [f"{self._done} of the pipeline's work done", *self.kills]
        if last := self.driver.last_words(600):
            words.append(f"last output of the driver: {last}")
        return words

    # ---- inside

    @property
    def _done(self) -> str:
        return f"{100 * self._output.fraction:.0f} %"

    def _waited_for(self) -> str:
        said = f", whose last notice is: {self._output.last_notice}" if self._output.last_notice else ""
        return f"a micro-batch of the pipeline's driver at {self._done} of its work{said}"

    def _follow(self) -> None:
        """Read the driver's new output, and report its progress and restarted queries to the observer."""
        for restart in self._output.look():
            self._observer.event(f"driver of the pipeline: {restart}")
        self._observer.pipeline(round(self._output.fraction * self._flights))

    async def _aim(self, watcher: Watcher) -> None:
        until = time.monotonic() + AIM_S
        while time.monotonic() < until and self.driver.running:
            if await watcher.sees_open_transaction(CLEANED, HOURS, LATEST):
                return
            await asyncio.sleep(AIM_INTERVAL_S)

    async def _carry_out(self, kill: Kill) -> None:
        await asyncio.sleep(kill.delay_s)
        process = self._broker if kill.target == "broker" else self.driver
        if not self.driver.running:  # the job is done, so a kill would test nothing
            self._observer.event(f"no kill of the {kill.target} at {100 * kill.at:.0f} %: the driver had already ended")
            return
        limit_s = self._waits.limits.processes_s
        what = "broker" if kill.target == "broker" else "driver of the pipeline and its JVM"
        text = f"kill -9 {what} (pid {process.pid}) at {self._done}"
        process.send_kill()
        await self._waits.thread(limit_s, f"the killed {what} to be gone", process.kill9)
        self._observer.event(text)
        if process is self._broker:
            await self._waits.thread(limit_s, "the broker to start again", self._broker.start)
            self._observer.event(f"broker is back after {self._broker.start_s:.2f} s")
        else:
            await self._waits.thread(limit_s, "the pipeline's driver to start again", process.spawn)
        self.kills.append(text)

    def _read_files(self, check: CleanedCheck) -> None:
        for file in committed_files(self._parquet):
            for row in rows(file):
                check.add_row(file.name, row)
