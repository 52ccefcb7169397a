"""Report what a job is doing during a long micro-batch or batch write.

Even the first micro-batch of a small query may take a minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FIRST_S: Final = 8.0
"""The seconds after which a slow micro-batch or batch write is first reported.

Each further report follows when the waiting time has doubled.
"""


LONGEST_PAUSE_S: Final = 10.0


def pause_s(first_s: float, attempt: int) -> float:
    """Return the pause before a restart, in seconds. It doubles with each attempt, up to LONGEST_PAUSE_S."""
    return min(first_s * 2.0 ** min(attempt, 30), LONGEST_PAUSE_S)


class Waiting:
    """A timer for reports about a long micro-batch or batch write. All times are in seconds, from the same clock."""

    def __init__(self, now: float, first_s: float = FIRST_S) -> None:
        self._first_s = first_s
        self.heard(now)

    def heard(self, now: float) -> None:
        """Restart the timer: a query or batch write has started, a micro-batch has ended, or a query waits for data."""
        self._since = now
        self._next_s = self._first_s

    def due(self, now: float) -> float | None:
        """Return the seconds waited so far if a report is due, else None. The next report is due at twice that time."""
        waited = now - self._since
        if waited < self._next_s:
            return None
        self._next_s = 2 * max(waited, self._first_s)
        return waited


def activity(spark: SparkSession, query: StreamingQuery) -> str | None:
    """Return what a query is doing, with Spark's count of tasks, or None if it waits for data. Raises Spark errors."""
    status = query.status
    if not status["isTriggerActive"]:
        return None
    return with_tasks(spark, str(query.runId), str(status["message"]).lower())


def with_tasks(spark: SparkSession, group: str, what: str) -> str:
    """Return a message about what a group of Spark jobs is doing, with Spark's count of tasks. Raises Spark errors."""
    tracker = spark.sparkContext.statusTracker()
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        information = tracker.getJobInfo(job)
        if information is None or information.status != "RUNNING":
            continue
        for stage in information.stageIds:
            if (progress := tracker.getStageInfo(stage)) is not None:
                done += progress.numCompletedTasks
                total += progress.numTasks
    return f"{what}, {done:,} of {total:,} tasks done" if total else what
