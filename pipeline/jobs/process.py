"""Run a job in this process: start and stop Spark, handle signals, and keep the output readable when Spark fails."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import warnings
from collections.abc import Iterable, Iterator
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any, Final

from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer

from .. import spark_session
from .failures import SPARK_FAILURES, SparkGoneError, is_gone, reason
from .runner import JobRunner
from .spec import Job, JobError, check_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKER_PATH: Final = "spark.executorEnv.PYTHONPATH"
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"


class JobProcess:
    """The process that runs a job. It can run only one.

    Use it as `with process.session() as spark: process.run(process.runner(spark), signals)`. Raises JobError for an
    invalid master.
    """

    def __init__(self, job: Job, master: str, *, debug: bool = False) -> None:
        check_master(master)
        self._job = job
        self._master = master
        self._debug = debug
        if not self._debug:
            _be_quiet()

    @contextlib.contextmanager
    def session(self) -> Iterator[SparkSession]:
        """Start Spark, and stop it at the end. Raises JobError if Spark does not start."""
        with as_file(files(__package__) / "log4j2.properties") as silent:
            try:
                spark = spark_session(self._master, app_name=self._job.name, settings=self._settings(str(silent)))
            except SPARK_FAILURES as error:
                raise JobError(f"Spark does not start with master = {self._master}: {reason(_java(error))}") from error
        try:
            if self._debug:
                spark.sparkContext.setLogLevel("WARN")
            else:
                _silence(spark)
            yield spark
        finally:
            with contextlib.suppress(*SPARK_FAILURES):
                spark.stop()

    def runner(self, spark: SparkSession, **listeners: Any) -> JobRunner:
        """Return the job's runner. `listeners` are the callbacks of `JobRunner`. Raises JobError."""
        with self._spark_failures(spark):
            return JobRunner(spark, self._job, **listeners)

    def run(self, runner: JobRunner, signals: Iterable[int]) -> None:
        """Run the job until it has ended, or until one of the `signals` arrives. Raises JobError."""
        for number in signals:
            signal.signal(number, lambda *_: runner.stop())
        try:
            with self._spark_failures(runner.spark):
                runner.run()
        except SparkGoneError:
            # A signal often goes to all processes of the job, including the JVM. Then the end of Spark is no failure.
            if not runner.stopping:
                raise

    @contextlib.contextmanager
    def _spark_failures(self, spark: SparkSession) -> Iterator[None]:
        """Turn errors of Spark into JobError, and into SparkGoneError if Spark has ended."""
        try:
            yield
        except SPARK_FAILURES as error:
            if is_gone(spark):
                raise SparkGoneError from error
            raise JobError(reason(_java(error))) from error

    def _settings(self, silent: str) -> dict[str, str]:
        """Return Spark's settings for the job. `silent` is the path of the log configuration that turns the log off."""
        settings = dict(self._job.spark)
        if any(transform.python for transform in self._job.transforms):
            # Transforms in Python may import modules of the job's directory while they run. What their own modules
            # import at the top is pickled with them.
            path = settings.get(WORKER_PATH)
            settings[WORKER_PATH] = os.pathsep.join([str(self._job.directory), *([path] if path else [])])
        if not self._debug:
            # The log must be configured before Spark starts: otherwise Spark first prints lines about its log.
            own = f"-Dlog4j2.configurationFile=file:{silent}"
            settings[JAVA_OPTIONS] = f"{settings[JAVA_OPTIONS]} {own}" if JAVA_OPTIONS in settings else own
        return settings


def _be_quiet() -> None:
    """Silence Python's and pyspark's own reports of failures, because the runner reports the failures itself."""
    logging.getLogger().addHandler(logging.NullHandler())
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):  # pyspark's loggers of failures in queries
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    # This warning appears when the JVM ends together with this process, which is no failure.
    warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM process", RuntimeWarning)
    for server in (AccumulatorTCPServer, AccumulatorUnixServer):
        server.handle_error = lambda *_: None  # type: ignore[method-assign]


def _silence(spark: SparkSession) -> None:
    """Turn off Spark's log, and the stack traces that the JVM prints for failed threads."""
    spark.sparkContext.setLogLevel("OFF")
    jvm: Any = spark.sparkContext._jvm
    # Spark's own handler writes to its log, which is off. Without a handler, the JVM prints the stacks of failed
    # threads.
    handler = jvm.org.apache.spark.util.SparkUncaughtExceptionHandler(False)
    jvm.java.lang.Thread.setDefaultUncaughtExceptionHandler(handler)


def _java(error: BaseException) -> str:
    """Return the text of the Java exception behind an error, or of the error itself."""
    return str(getattr(error, "java_exception", None) or error)
