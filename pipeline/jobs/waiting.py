"""What a job says while a micro-batch takes long: the first one of a query may take a minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FIRST_S: Final = 8.0
"""A micro-batch that takes so long is told of; again after twice the time, and so on."""


LONGEST_PAUSE_S: Final = 10.0


def pause_s(first_s: float, attempt: int) -> float:
    """Return the pause before a restart, in seconds: doubled for each attempt, however many there are."""
    return min(first_s * 2.0 ** min(attempt, 30), LONGEST_PAUSE_S)


class Waiting:
    """When it is time to say that a query has told of no micro-batch for long. Times are in seconds, of one clock."""

    def __init__(self, now: float, first_s: float = FIRST_S) -> None:
        self._first_s = first_s
        self.heard(now)

    def heard(self, now: float) -> None:
        """A micro-batch has begun or ended."""
        self._since = now
        self._next_s = self._first_s

    def due(self, now: float) -> float | None:
        """How long the wait is by now, if it is time to say so; then not again before twice the time."""
        waited = now - self._since
        if waited < self._next_s:
            return None
        self._next_s = 2 * max(waited, self._first_s)
        return waited


def activity(spark: SparkSession, query: StreamingQuery) -> str | None:
    """Return what a query does now, with Spark's count of tasks; None if it waits for data. Raises as Spark does."""
    status = query.status
    if not status["isTriggerActive"]:
        return None
    tracker = spark.sparkContext.statusTracker()
    done = total = 0
    for job in tracker.getJobIdsForGroup(str(query.runId)):
        information = tracker.getJobInfo(job)
        if information is None or information.status != "RUNNING":
            continue
        for stage in information.stageIds:
            if (progress := tracker.getStageInfo(stage)) is not None:
                done += progress.numCompletedTasks
                total += progress.numTasks
    what = str(status["message"]).lower()
    return f"{what}, {done:,} of {total:,} tasks done" if total else what
