"""`BatchWrite`: writes a batch frame in a thread. Meanwhile the job can run its queries, or stop the write."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any

from .failures import is_gone, reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class BatchWrite:
    """A batch write that begins at once. A thread calls `write`. If `write` raises an error, `result` raises it."""

    def __init__(self, spark: SparkSession, write: Callable[[], None]) -> None:
        self.group = str(uuid.uuid4())
        """The group of the write's Spark jobs."""
        self._spark = spark
        self._end: Future[None] = Future()
        self._stopped = self._raised = False
        threading.Thread(target=self._run, args=(write,), name="batch write", daemon=True).start()

    @property
    def is_active(self) -> bool:
        """Whether the write is still running."""
        return not self._end.done()

    def result(self) -> None:
        """Wait for the end of the write. Raises the error of a failed write."""
        self._raised = True
        self._end.result()

    def stop(self, timeout_s: float) -> None:
        """Cancel the write, and wait up to `timeout_s` until Spark has aborted it. Raises Spark's errors."""
        self._stopped = self.is_active or is_gone(self._spark)
        context: Any = self._spark.sparkContext._jsc.sc()
        context.cancelJobGroupAndFutureJobs(self.group)  # the write may still be about to begin its first job
        wait([self._end], timeout_s)

    def outcome(self, committed: bool | None) -> str:
        """Return what became of the write, or "" if `result` has already raised the error of a write that failed.

        `committed` says whether the rows are committed in Kafka. It is None if this is unknown, or if the format is not
        oncelog.
        """
        if committed:
            return "the batch write is committed"
        rows = "" if committed is None else ", and nothing is written"
        if self._stopped or self.is_active:
            return f"the batch write was stopped{rows}"
        if (error := self._end.exception()) is None:
            return "the batch write is complete"
        return "" if self._raised else f"the batch write has failed{rows}: {reason(str(error))}"

    def _run(self, write: Callable[[], None]) -> None:
        try:
            self._use_session()
            self._spark.sparkContext.setJobGroup(self.group, "batch write", interruptOnCancel=True)
            write()
        except BaseException as error:
            self._end.set_exception(error)
        else:
            self._end.set_result(None)

    def _use_session(self) -> None:
        """Make the session active in the JVM thread of this thread, so that Spark finds the session's data sources."""
        jvm: Any = self._spark._jvm
        self._spark._get_j_spark_session_class(jvm).setActiveSession(self._spark._jsparkSession)
