"""Run the exactly-once job with a broker and two transformers as processes, and kill them on schedule.

The module starts and stops the processes, writes the topic `flights`, and kills processes. In the end it passes the
records of a read_committed reader to the checks of `verify.py`. The second half, which is optional, is in
`pipeline_half.py`, and starts while the results of the first half are read back. The module reports its progress to an
`Observer`.

Only processes that this module started are killed, by pid. Every wait has its own limit (`waits.py`), and the
whole run is limited by `time_limit_s`. When `run_job` ends for any reason, all of its processes have ended. A
transformer that ends without a kill fails the job.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..protocol.errors import KafkaError
from .flights import TOTAL_FLIGHTS, expected, flight_record, flights
from .kills import DEFAULT_SCHEDULE, PIPELINE_SCHEDULE, Kill
from .observer import AIM_INTERVAL_S, WATCH_INTERVAL_S, JobFailed, Observer
from .pipeline_half import DelaysOutcome, PipelineHalf
from .processes import BrokerProcess, ChildProcess, StartFailed, StopFailed
from .topics import (
    CARRIERS,
    ENRICHED,
    FLIGHTS,
    GROUP,
    Watcher,
    count_uncommitted,
    create_topics,
    feeder,
    read_committed,
)
from .verify import CarrierCheck, FlightCheck
from .waits import Limits, Waits

FEED_CHUNK: Final = 500
AIM_S: Final = 10.0
"""Longest time that an aimed kill waits for an open transaction, in seconds."""
GATE_FRACTION: Final = 0.15
"""Fraction of the flights that may be written ahead of the next kill, so that each kill interrupts work."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The options of a run, which uses the first `rows` flights, carries out `kills`, and keeps data in `directory`."""

    directory: Path
    rows: int = TOTAL_FLIGHTS
    kills: Sequence[Kill] = DEFAULT_SCHEDULE
    durability: str = "flush"
    members: int = 2
    session_timeout_ms: int = 6000
    max_poll_records: int = 2000
    time_limit_s: float = 1800.0
    limits: Limits = Limits()
    broker_settings: Sequence[str] = ()
    pipeline: bool = False
    """Whether the second half is run. It needs Spark and Java."""
    pipeline_kills: Sequence[Kill] = PIPELINE_SCHEDULE


@dataclass(slots=True)
class Outcome:
    """The result of comparing what a read_committed reader received with the expected results."""

    flights: FlightCheck
    enriched: FlightCheck
    carriers: CarrierCheck
    seconds: float
    aborted: int
    """Records of aborted transactions in the log of `flights-enriched`, which a read_committed reader skips."""
    kills: list[str] = field(default_factory=list)
    delays: DelaysOutcome | None = None
    """The outcome of the second half, or None if it was not run."""

    @property
    def exact(self) -> bool:
        first = self.flights.exact and self.enriched.exact and self.carriers.exact
        return first and (self.delays is None or self.delays.exact)


async def run_job(options: JobOptions, observer: Observer) -> Outcome:
    """Run the whole job, and return the comparison of its results with the expected ones.

    Raise JobFailed if the job fails or a wait exceeds its limit, and DataMissing if the flights are not installed.
    """
    job = _Job(options, observer)
    begun = time.monotonic()
    overall = asyncio.timeout(options.time_limit_s)
    try:
        async with overall:
            await job.start()
            await job.work()
            await job.waits.thread(options.limits.processes_s, "the transformers to stop", job.stop_transformers)
            seconds = time.monotonic() - begun
            observer.event("everything is committed: reading it back and comparing")
            if options.pipeline:
                await job.start_pipeline()
            outcome = await job.judge()
            outcome.seconds = seconds
            if job.pipeline is not None:
                await job.pipeline.work()
                observer.event("the pipeline is done: reading its topics and files back and comparing")
                outcome.delays = await job.pipeline.judge()
            return outcome
    except (JobFailed, StartFailed, StopFailed, KafkaError, TimeoutError) as failure:
        why = str(failure)
        if overall.expired():
            why = f"not done after {options.time_limit_s:g} s (on a slow machine, raise --time-limit)"
        raise JobFailed(f"{why}: {job.state()}") from failure
    except asyncio.CancelledError:
        observer.event(f"interrupted: {job.state()}")
        raise
    finally:
        await job.waits.thread(options.limits.processes_s, "the processes to end", job.stop)


class _Job:
    def __init__(self, options: JobOptions, observer: Observer) -> None:
        self.options = options
        self.observer = observer
        self.waits = Waits(observer, options.limits)
        settings = [f"--set={setting}" for setting in options.broker_settings]
        self.broker = BrokerProcess(options.directory, "--durability", options.durability, *settings)
        self.transformers: list[ChildProcess] = []
        self.pending_kills = sorted(options.kills)
        self.done_kills: list[str] = []
        self.fed = 0
        self.done = 0
        self.pipeline: PipelineHalf | None = None
        self._gate = asyncio.Event()

    async def start(self) -> None:
        limits = self.options.limits
        await self.waits.thread(limits.processes_s, "the broker to start", self.broker.start)
        self.observer.event(f"broker ready on {self.broker.address} after {self.broker.start_s:.2f} s")
        async with self.waits.upto(limits.topics_s, "the broker to create topics"):
            await create_topics(self.broker.address, FLIGHTS, ENRICHED, CARRIERS)
        for member in range(self.options.members):
            arguments = [
                f"--bootstrap={self.broker.address}",
                f"--member={member}",
                f"--session-timeout-ms={self.options.session_timeout_ms}",
                f"--max-poll-records={self.options.max_poll_records}",
            ]
            log = self.options.directory / f"transformer-{member}.log"
            transformer = ChildProcess("oncelog.demo.transformer", arguments, log)
            self.transformers.append(transformer)
            await self.waits.thread(limits.processes_s, f"transformer {member} to start", transformer.spawn)

    async def start_pipeline(self) -> None:
        """Start the second half, the job on Spark."""
        options = self.options
        self.pipeline = PipelineHalf(
            self.broker, options.directory, options.rows, options.pipeline_kills, self.observer, self.waits
        )
        await self.pipeline.start()

    async def work(self) -> None:
        """Write the flights and watch the job in two tasks, until all flights are transformed.

        If one of the tasks fails, the other is cancelled.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.feed())
                tasks.create_task(self.watch())
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    # ---- feeding

    @property
    def _feed_limit(self) -> int:
        if not self.pending_kills:
            return self.options.rows
        return int(min(1.0, self.pending_kills[0].at + GATE_FRACTION) * self.options.rows)

    async def feed(self) -> None:
        """Write the flights in order with an idempotent producer.

        Writing pauses when it is ahead of the next kill by `GATE_FRACTION` of all flights.
        """
        async with feeder(self.broker.address) as send:
            for flight in flights(self.options.rows):
                if self.fed % FEED_CHUNK == 0:
                    while self.fed >= self._feed_limit:
                        self._gate.clear()
                        await self._gate.wait()
                await send(*flight_record(flight))
                self.fed += 1

    # ---- watching and killing

    async def watch(self) -> None:
        """Report the progress and carry out the scheduled kills. Return when every flight is transformed."""
        rows = self.options.rows
        async with (
            Watcher(self.broker.address) as watcher,
            self.waits.upto(
                self.options.limits.transform_s, lambda: f"more than {self.done} flights to be transformed"
            ) as flight,
        ):
            while self.done < rows or self.pending_kills:
                flight.stands_at((self.done, len(self.done_kills)))
                await asyncio.sleep(WATCH_INTERVAL_S)
                done = await watcher.committed_flights()
                if done is not None:
                    self.done = done
                self.observer.progress(self.fed, self.done)
                self._check_alive()
                if self.pending_kills and self.done >= self.pending_kills[0].at * rows:
                    kill = self.pending_kills[0]
                    if kill.aimed:
                        await self._aim(watcher)
                    await self._carry_out(kill)
                    self.pending_kills.pop(0)
                    self._gate.set()

    async def _aim(self, watcher: Watcher) -> None:
        until = time.monotonic() + AIM_S
        while time.monotonic() < until:
            if await watcher.sees_open_transaction(ENRICHED):
                return
            await asyncio.sleep(AIM_INTERVAL_S)

    def _check_alive(self) -> None:
        for member, transformer in enumerate(self.transformers):
            if not transformer.running:
                raise JobFailed(f"transformer {member} ended, although the demo had not killed it")
        if not self.broker.running:
            raise JobFailed("the broker ended, although the demo had not killed it")

    async def _carry_out(self, kill: Kill) -> None:
        await asyncio.sleep(kill.delay_s)
        limit_s = self.options.limits.processes_s
        moment = f"at {100 * self.done / self.options.rows:.0f} %"
        if kill.target == "broker":
            text = f"kill -9 broker (pid {self.broker.pid}) {moment}"
            self.broker.send_kill()
            await self.waits.thread(limit_s, "the killed broker to be gone", self.broker.kill9)
            self.observer.event(text)
            await self.waits.thread(limit_s, "the broker to start again", self.broker.start)
            self.observer.event(f"broker is back after {self.broker.start_s:.2f} s")
        else:
            member = sum("transformer" in text for text in self.done_kills) % len(self.transformers)
            transformer = self.transformers[member]
            text = f"kill -9 transformer {member} (pid {transformer.pid}) {moment}"
            transformer.send_kill()
            await self.waits.thread(limit_s, f"the killed transformer {member} to be gone", transformer.kill9)
            self.observer.event(text)
            await self.waits.thread(limit_s, f"transformer {member} to start again", transformer.spawn)
        self.done_kills.append(text)

    # ---- the end

    async def judge(self) -> Outcome:
        waits, address = self.waits, self.broker.address
        wanted = await waits.thread(
            waits.limits.compute_s, "the computation of the expected flights", expected, self.options.rows
        )
        carriers = CarrierCheck(wanted.carriers)
        outcome = Outcome(
            flights=FlightCheck(FLIGHTS, wanted.flights),
            enriched=FlightCheck(ENRICHED, wanted.enriched),
            carriers=carriers,
            seconds=0.0,
            aborted=0,
            kills=self.done_kills,
        )
        await read_committed(waits, address, FLIGHTS, outcome.flights.add)
        await read_committed(waits, address, ENRICHED, outcome.enriched.add)
        await read_committed(waits, address, CARRIERS, lambda _, __, key, value: carriers.add(key, value))
        outcome.aborted = await count_uncommitted(waits, address, ENRICHED) - outcome.enriched.records
        return outcome

    def stop_transformers(self) -> None:
        """Stop the transformers with SIGTERM, after which no transaction is open.

        Raise JobFailed if a transformer ends with an unexpected exit code.
        """
        for transformer in self.transformers:
            code = transformer.terminate()
            if code not in (0, -signal.SIGTERM):  # -SIGTERM: its signal handler was not installed yet
                raise JobFailed(f"a transformer stopped with exit code {code}: {transformer.last_words()}")

    def stop(self) -> None:
        """End all processes that are still running, and prevent later starts.

        If a process does not end, continue with the others.
        """
        with contextlib.ExitStack() as processes:
            processes.callback(self.broker.close)
            for transformer in self.transformers:
                processes.callback(transformer.close)
            if self.pipeline is not None:
                processes.callback(self.pipeline.stop)

    def state(self) -> str:
        """Return the state of the job, for the message of a failure."""
        words = [*self.waits.state(), f"{self.fed} flights fed, {self.done} of {self.options.rows} done"]
        words += self.done_kills
        if self.pipeline is not None:
            words += self.pipeline.state()
        for name, process in [
            ("broker", self.broker),
            *((f"transformer {n}", t) for n, t in enumerate(self.transformers)),
        ]:
            if last := process.last_words(600):
                words.append(f"last output of {name}: {last}")
        return "; ".join(words) + f"; group {GROUP}; logs are in {self.options.directory}"
