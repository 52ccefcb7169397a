"""Run a job: start its queries, restart those that fail, report their progress, and stop them cleanly.

A restarted query continues from its checkpoint, in the same Spark session. More than `max_restarts` failures of one
sink within `restart_window` end the job. A failure that a restart cannot fix ends it at once. Batch frames are written
while the queries run. A failed write ends the job, unless Kafka had a temporary error before Spark began to write: then
the write is restarted like a query.

Before `run` returns, for any reason, open transactions of the job's sinks are aborted.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from ...protocol.errors import KafkaError
from ..sink.ownership import let_go
from ..sink.settings import SinkSettings
from ..sink.transaction import SupersededError
from .batch_write import BatchWrite
from .checks import PROBE_S, SilenceWatch
from .failures import (
    SPARK_FAILURES,
    SparkGoneError,
    as_job_error,
    final,
    is_gone,
    job_error,
    reason,
)
from .frames import JobFrames
from .progress import JobMetrics, Progress, progress_of
from .spec import Job, JobError, Sink
from .waiting import FIRST_S, Waiting, activity, pause_s, with_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

T = TypeVar("T")

POLL_S: Final = 0.2
STOP_S: Final = 3.0
"""The time limit in seconds for stopping the queries, and again for ending their open transactions afterwards."""


class _Running:
    """A sink, and its query or batch write. An oncelog sink has `settings`, with which its transaction can be ended."""

    def __init__(self, sink: Sink, settings: SinkSettings | None) -> None:
        self.sink = sink
        self.settings = settings
        self.query: StreamingQuery | BatchWrite | None = None
        self.last_batch = -1
        self.waiting = Waiting(time.monotonic(), FIRST_S)
        self.restarts: deque[float] = deque()


class JobRunner:
    """A running job: `JobRunner(spark, job).run()`. Raises JobError for a job whose frames cannot be built.

    `on_progress` is called after each micro-batch that read rows. `on_restart` is called at each restart, with the
    sink's name and the reason. `on_notice` is called with messages about Kafka and open transactions, and `on_waiting`
    with messages that say what Spark is doing during a long micro-batch or batch write.
    """

    def __init__(
        self,
        spark: SparkSession,
        job: Job,
        *,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        on_restart: Callable[[str, str], None] = lambda sink, why: None,
        on_notice: Callable[[str], None] = lambda text: None,
        on_waiting: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.spark = spark
        self.frames = JobFrames(spark, job)
        self.metrics = JobMetrics(sink.name for sink in job.sinks)
        self._job = job
        self._on_progress = on_progress
        self._on_restart = on_restart
        self._on_notice = on_notice
        self._on_waiting = on_waiting
        self.stopping = False
        self._watch: SilenceWatch | None = None

    def describe(self) -> str:
        """Return sources, sinks and Spark's plans as text for --dry-run. No records are read. Raises JobError."""
        pieces = []
        for name, frame in self.frames.frames.items():
            kind = "stream" if frame.isStreaming else "batch"
            pieces.append(f"{name} ({kind}): {frame.schema.simpleString()}")
        for sink in self._job.sinks:
            frame = self.frames.of(sink)
            pieces.append(f"\nsink {sink.name} ({sink.format}) from {sink.frame}: {frame.schema.simpleString()}")
            self.frames.settings(sink)
            pieces.append(frame._jdf.queryExecution().analyzed().toString().rstrip())
        return "\n".join(pieces) + "\n"

    def run(self) -> None:
        """Run until all queries and batch writes have ended or `stop` is called.

        Raises JobError if one of them cannot continue.
        """
        # The settings end the transactions. They are checked before any query starts.
        settings = {sink.name: self.frames.settings(sink) for sink in self._job.sinks}
        self._watch = SilenceWatch(self._job, self._on_notice)
        # A query cannot stop in time if Kafka does not answer. Its open transaction is ended in `_end`.
        self.spark.conf.set("spark.sql.streaming.stopTimeout", f"{round(STOP_S * 1000)}ms")
        running: list[_Running] = []
        try:
            for sink in self._job.sinks:
                if self.stopping:
                    break
                running.append(_Running(sink, settings[sink.name]))
                self._start(running[-1])
            while not self.stopping and self._look(running):
                self._watch.look()
                self._pause(POLL_S)
        finally:
            self._end(running)

    def stop(self) -> None:
        """Make `run` return soon. Safe to call from a signal handler."""
        self.stopping = True

    # -- inside

    def _look(self, running: list[_Running]) -> bool:
        """Check all queries and batch writes once, report progress, and restart failed ones.

        Return whether any of them is still running.
        """
        alive = False
        for one in running:
            query = one.query
            if query is None:
                continue
            if isinstance(query, BatchWrite):
                alive = self._look_at_write(one, query) or alive
                continue
            self._report_progress(one, query)
            if query.isActive:
                alive = True
                self._report_waiting(one, query)
                continue
            self._report_progress(one, query)  # report batches that ended since the first call
            if (failure := query.exception()) is not None:
                self._restart(one, str(failure))
                alive = True
            else:
                one.query = None  # all available data is processed
        return alive

    def _look_at_write(self, one: _Running, write: BatchWrite) -> bool:
        """Check a batch write once. Return whether it is still running.

        If the write has failed with a temporary error of Kafka before Spark began it, start it again. Raises JobError
        for other failures.
        """
        if write.is_active:
            if (waited := one.waiting.due(time.monotonic())) is not None:
                doing = with_tasks(self.spark, write.group, "writing")
                self._on_waiting(f"{one.sink.name}: waiting {waited:.0f} s for the batch write: {doing}")
            return True
        if self.stopping:  # the signal to stop may have ended the write, too
            return True
        with self._retrying(one):
            write.result()
            one.query = None
        return one.query is not None

    def _report_progress(self, one: _Running, query: StreamingQuery) -> None:
        """Report the micro-batches that the query has finished since the last call."""
        assert self._watch is not None
        for progress_report in query.recentProgress:
            report = json.loads(progress_report.json)
            if report["batchId"] > one.last_batch and report["numInputRows"]:
                one.last_batch = int(report["batchId"])
                progress = progress_of(one.sink.name, report)
                self.metrics.batch(progress)
                one.waiting.heard(time.monotonic())
                self._watch.heard()
                self._on_progress(progress)

    def _report_waiting(self, one: _Running, query: StreamingQuery) -> None:
        """Report what Spark is doing, if the query's micro-batch takes a long time and the next report is due."""
        if (waited := one.waiting.due(time.monotonic())) is None:
            return
        doing = activity(self.spark, query)
        if doing is None:
            one.waiting.heard(time.monotonic())
        else:
            which = "the first micro-batch" if one.last_batch < 0 else f"the micro-batch after batch {one.last_batch}"
            self._on_waiting(f"{one.sink.name}: waiting {waited:.0f} s for {which}: {doing}")

    def _restart(self, one: _Running, why: str) -> None:
        """Restart a failed query or batch write.

        Raises JobError if a restart cannot help, or after too many failures.
        """
        line = reason(why)
        if final(line) is not None:
            raise job_error(f"sink {one.sink.name!r}", line)
        now = time.monotonic()
        one.restarts.append(now)
        while one.restarts and now - one.restarts[0] > self._job.restart_window_s:
            one.restarts.popleft()
        if len(one.restarts) > self._job.max_restarts:
            raise JobError(
                f"sink {one.sink.name!r} has failed {len(one.restarts)} times within {self._job.restart_window} "
                f"(max_restarts = {self._job.max_restarts}); its checkpoint is intact. The last failure: {line}"
            )
        if is_gone(self.spark):
            if self.stopping:
                return
            raise SparkGoneError
        self._on_restart(one.sink.name, line)
        self.metrics.restarted(one.sink.name)
        self._pause(pause_s(0.1, len(one.restarts) - 1))
        if not self.stopping:
            self._start(one)

    def _start(self, one: _Running) -> None:
        """Wait until the brokers can be reached, then start the sink's query or batch write.

        If Spark itself waited for the brokers, the job could not be stopped meanwhile.
        """
        assert self._watch is not None
        while not self._watch.all_there() and not self.stopping:
            self._pause(PROBE_S)
        if self.stopping:
            return
        with self._retrying(one):
            one.query = self.frames.start(one.sink)
            one.waiting.heard(time.monotonic())

    @contextlib.contextmanager
    def _retrying(self, one: _Running) -> Iterator[None]:
        """Start the sink again if the `with` block fails with a temporary error of Kafka.

        The block starts the sink, or gets the result of its batch write. Other errors are turned into JobError.
        """
        try:
            with as_job_error(f"sink {one.sink.name!r}"):
                yield
        except JobError as failure:
            error = failure.__cause__
            if is_gone(self.spark) and not self.stopping:
                raise SparkGoneError from failure
            if not isinstance(error, KafkaError) or not error.retriable:
                raise
            self._restart(one, str(error))

    def _pause(self, seconds: float) -> None:
        """Wait for this number of seconds, or until the job is stopped."""
        until = time.monotonic() + seconds
        while not self.stopping and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, POLL_S))

    def _end(self, running: list[_Running]) -> None:
        """Stop all queries and batch writes at the same time, then end their open transactions at the same time."""
        _at_once(_stop_query, [one.query for one in running if one.query is not None])
        _at_once(self._let_go, running)

    def _let_go(self, one: _Running) -> None:
        """End the transaction that a sink left open, so that readers need not wait for its timeout.

        Then report what became of a batch write.
        """
        write = one.query if isinstance(one.query, BatchWrite) else None
        committed = None
        if one.settings is not None and (one.settings.streaming or write is not None):
            try:
                state = let_go(one.settings, STOP_S)
                committed = state is not None and state.owner == one.settings.write
            except SupersededError:
                pass  # the newer driver has ended the transaction
            except KafkaError as error:
                self._on_notice(
                    f"{one.settings.transactional_id}: an open transaction could not be aborted ({error}). It ends at "
                    f"its timeout, or with `oncelog txn fence {one.settings.transactional_id}`"
                )
        if write is not None and (outcome := write.outcome(committed)):
            self._on_notice(f"{one.sink.name}: {outcome}")


def _stop_query(query: StreamingQuery | BatchWrite) -> None:
    with contextlib.suppress(*SPARK_FAILURES):
        if isinstance(query, BatchWrite):
            query.stop(STOP_S)
        else:
            query.stop()


def _at_once(work: Callable[[T], None], items: Iterable[T]) -> None:
    """Call `work` for all items at the same time, in threads, and wait until all calls have finished."""
    items = list(items)
    if items:
        with ThreadPoolExecutor(len(items)) as pool:
            list(pool.map(work, items))
