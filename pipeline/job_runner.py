"""Runs a job: starts its queries, starts those again that fail, tells their progress, and stops them cleanly.

A failed query goes on from its checkpoint, in the same Spark session; more than `max_restarts` within `restart_window`
end the job. Whatever ends it, transactions that its sinks have open are aborted before `run` returns.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ..client.config import ProducerConfig
from ..protocol.errors import KafkaError
from .blocking import BlockingCluster
from .job_frames import JobFrames
from .job_progress import JobMetrics, Progress, progress_of
from .job_spec import Job, JobError, Sink
from .options import SINK_OPTIONS, Options
from .produce import CLIENT_DEFAULTS
from .sink import SinkSettings
from .source import NAME
from .transaction import SinkTransaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

POLL_S: Final = 0.2
_RAISED: Final = re.compile(r"[\w.]+(Error|Exception): ")


class _Running:
    """A sink and its query."""

    def __init__(self, sink: Sink, query: StreamingQuery | None) -> None:
        self.sink = sink
        self.query = query
        self.told = -1
        self.restarts: deque[float] = deque()


class JobRunner:
    """`JobRunner(spark, job).run()`. `on_progress` gets each micro-batch, `on_restart` the sink's name and why."""

    def __init__(
        self,
        spark: SparkSession,
        job: Job,
        *,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        on_restart: Callable[[str, str], None] = lambda sink, why: None,
    ) -> None:
        self.frames = JobFrames(spark, job)
        self.metrics = JobMetrics()
        self._job = job
        self._on_progress = on_progress
        self._on_restart = on_restart
        self._stopping = False

    def describe(self) -> str:
        """Sources, sinks and plans, for --dry-run: nothing is read or written."""
        pieces = []
        for name, frame in self.frames.frames.items():
            kind = "stream" if frame.isStreaming else "batch"
            pieces.append(f"{name} ({kind}): {frame.schema.simpleString()}")
        for sink in self._job.sinks:
            frame = self.frames.of(sink)
            pieces.append(f"\nsink {sink.name} ({sink.format}) from {sink.frame}: {frame.schema.simpleString()}")
            if sink.format == NAME:
                SinkSettings(self.frames.options(sink), frame.schema, streaming=frame.isStreaming)
            pieces.append(frame._jdf.queryExecution().analyzed().toString().rstrip())
        return "\n".join(pieces) + "\n"

    def run(self) -> None:
        """Run until every query has ended, `stop` is called, or one fails too often. Raises JobError for the last."""
        running = []
        try:
            for sink in self._job.sinks:
                running.append(_Running(sink, None))
                self._start(running[-1])
            while not self._stopping and self._look(running):
                time.sleep(POLL_S)
        finally:
            self._end(running)

    def stop(self) -> None:
        """Stop soon; safe to call from a signal handler."""
        self._stopping = True

    # -- inside

    def _look(self, running: list[_Running]) -> bool:
        """One look at all queries; whether any still runs."""
        alive = False
        for one in running:
            query = one.query
            if query is None:
                continue
            self._tell(one, query)
            if query.isActive:
                alive = True
            elif (failure := query.exception()) is not None:
                self._restart(one, str(failure))
                alive = True
            else:
                one.query = None  # all that was available is done
        return alive

    def _tell(self, one: _Running, query: StreamingQuery) -> None:
        for progress_report in query.recentProgress:
            told = json.loads(progress_report.json)
            if told["batchId"] > one.told and told["numInputRows"]:
                one.told = int(told["batchId"])
                progress = progress_of(one.sink.name, told)
                self.metrics.batch(progress)
                self._on_progress(progress)

    def _restart(self, one: _Running, why: str) -> None:
        now = time.monotonic()
        one.restarts.append(now)
        while one.restarts and now - one.restarts[0] > self._job.restart_window_s:
            one.restarts.popleft()
        if len(one.restarts) > self._job.max_restarts:
            raise JobError(
                f"sink {one.sink.name!r} has failed {len(one.restarts)} times within {self._job.restart_window} "
                f"(max_restarts = {self._job.max_restarts}); its checkpoint stands. The last failure: {_reason(why)}"
            )
        self._on_restart(one.sink.name, _reason(why))
        self.metrics.restarted(one.sink.name)
        time.sleep(min(0.1 * 2 ** (len(one.restarts) - 1), 10.0))
        self._start(one)

    def _start(self, one: _Running) -> None:
        """Start a query; while Kafka cannot be reached, that counts as a failure of it."""
        try:
            one.query = self.frames.start(one.sink)
        except KafkaError as error:
            if not error.retriable:
                raise
            self._restart(one, str(error))

    def _end(self, running: list[_Running]) -> None:
        for one in running:
            if one.query is not None:
                one.query.stop()
        for one in running:
            if one.sink.format == NAME and self.frames.of(one.sink).isStreaming:
                self._close_transaction(one.sink)

    def _close_transaction(self, sink: Sink) -> None:
        """A batch that was interrupted may have left its transaction open: readers must not wait for its timeout."""
        options = self.frames.options(sink)
        settings = SinkSettings(options, self.frames.of(sink).schema, streaming=True)
        config = Options(options, SINK_OPTIONS).client(ProducerConfig, **CLIENT_DEFAULTS)
        try:
            with BlockingCluster(config, 5.0) as kafka:
                transaction = SinkTransaction(kafka.cluster, config)
                kafka.run(transaction.begin(settings.transactional_id, settings.state_topic))
        except KafkaError as error:
            log.warning("sink %s: its open transaction ends at its timeout, or at the next start: %s", sink.name, error)


def _reason(failure: str) -> str:
    """The line of a failure that says why: Spark's have plans and stacks around it."""
    told = failure.partition("=== Streaming Query ===")[0].partition("JVM stacktrace:")[0]
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    errors = [line for line in lines if _RAISED.match(line)]
    return (errors[-1] if errors else lines[0] if lines else "no reason was given")[:500]
