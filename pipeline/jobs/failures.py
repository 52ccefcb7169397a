"""Summarise a failure of a job in one line: where it happened and what to do, without Spark's plans and stack traces.

The module knows the exceptions of Spark and py4j, and raises only JobError. The command's `--debug` shows the details
that are left out here.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ...client.errors import ConfigError
from ...protocol.errors import KafkaError
from ..sink.ownership import StateError
from ..sink.rows import RowError
from ..sink.transaction import SupersededError
from ..source.offsets import DataLossError
from .spec import BAD_RECORD, JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RAISED: Final = re.compile(r"(?:[\w$]+\.)+(?P<error>\w*(?:Error|Exception)): ")
_FRAME: Final = re.compile(r"at [\w.$/<>]+\(|File \"|Traceback ")
_TRACEBACK: Final = "Traceback (most recent call last):"
_ENTRY: Final = re.compile(r"\[[A-Z_.]+\] ")
_BAD_RECORD: Final = re.compile(rf"{re.escape(BAD_RECORD)}.*?(?= SQLSTATE: \w+|$)", re.MULTILINE)
LONGEST: Final = 700

_FINAL: Final = {
    f"{error.__module__}.{error.__qualname__}": remedy
    for error, remedy in (
        (DataLossError, ". If the job now reads a different topic, give it a new checkpoint"),
        (StateError, ""),
        (SupersededError, ""),
        (RowError, ""),
        (ConfigError, ""),
    )
}
"""The errors that a restart of the query cannot fix, each with a text to append to its message."""

_REMEDIES: Final = {
    "Python worker failed to connect back": (
        ": a Python process did not start within Spark's limit of ten seconds. Give the job fewer cores "
        "(master = local[2]), or start fewer jobs at once"
    ),
    "Java gateway process exited": ". Java's message is above. Check the memory sizes in the table [spark], such as 2g",
    "No module named 'oncelog'": (
        ": Spark's Python workers do not have it. Install oncelog[pipeline] in the Python of every worker, and name "
        "that Python: PYSPARK_PYTHON=/path/to/python"
    ),
    "Java heap space": ": give Spark more memory: spark.driver.memory or spark.executor.memory in the table [spark]",
}
"""Texts in Spark's messages, each with an explanation and remedy."""

SPARK_FAILURES: Final = (PySparkException, Py4JError, OSError)
"""The errors that calls into Spark raise. OSError is raised when Spark's JVM has ended."""


class JobSupersededError(JobError):
    """A newer driver is running the job. The separate exit code lets a service manager leave the old driver stopped."""

    exit_code = 3


class SparkGoneError(JobError):
    """The JVM, or the Spark context in it, has ended."""

    def __init__(self) -> None:
        super().__init__(
            "Spark has ended before the job: its JVM was killed, or had too little memory (spark.driver.memory in the "
            "table [spark]). Start the job again: it continues where it stopped"
        )


def reason(failure: str) -> str:
    """Return the line of a failure's message that gives the reason.

    Spark's messages also contain plans and stack traces.
    """
    text = failure.partition("=== Streaming Query ===")[0].partition("JVM stacktrace:")[0]
    if (record := _BAD_RECORD.search(text)) is not None:
        return record[0][:LONGEST]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if _RAISED.match(line)]
    own = [line for line in errors if line.startswith("oncelog.")]
    said = own or _raised_in_python(text) or errors
    plain = (line for line in lines if not _FRAME.match(line))
    found = said[-1] if said else next(plain, "no reason was given")
    remedy = next((remedy for words, remedy in _REMEDIES.items() if words in found), "")
    return f"{found[: LONGEST - len(remedy)].rstrip('.') if remedy else found[:LONGEST]}{remedy}"


def _raised_in_python(text: str) -> list[str]:
    """Return the last line of each traceback in a text, such as `ValueError: ...`."""
    found, inside = [], False
    for line in text.splitlines():
        if _TRACEBACK in line:
            inside = True
        elif inside and line and not line[0].isspace():
            found.append(line.rstrip())
            inside = False
    return found


def final(line: str) -> str | None:
    """Return the full message of a failure that a restart cannot fix, or None for other failures."""
    name, _, message = line.partition(": ")
    if line.startswith(BAD_RECORD):
        return message
    return f"{message}{_FINAL[name]}" if name in _FINAL else None


def job_error(where: str, line: str) -> JobError:
    """Return the error for a failure's line: JobSupersededError if the line says that a newer driver owns the query."""
    superseded = line.partition(": ")[0] == f"{SupersededError.__module__}.{SupersededError.__qualname__}"
    return (JobSupersededError if superseded else JobError)(f"{where}: {final(line) or line}")


@contextlib.contextmanager
def as_job_error(where: str, kinds: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn errors of Spark, of Kafka and of the types `kinds` into a JobError whose message begins with `where`."""
    try:
        yield
    except JobError:
        raise
    except PySparkException as error:
        raise job_error(where, reason(_entry(str(error)))) from error
    except Py4JError as error:
        raise JobError(f"{where}: {reason(str(getattr(error, 'java_exception', None) or error))}") from error
    except SupersededError as error:
        raise JobSupersededError(f"{where}: {error}") from error
    except KafkaError as error:
        raise JobError(f"{where}: {error}") from error
    except kinds as error:
        raise JobError(f"{where}: {type(error).__name__}: {error}") from error


def is_gone(spark: SparkSession) -> bool:
    """Return whether Spark has ended."""
    try:
        context = spark.sparkContext._jsc
        return context is None or bool(context.sc().isStopped())
    except SPARK_FAILURES:
        return True


def _entry(text: str) -> str:
    """Return the text of an analysis error without the plan that follows. Return any other text unchanged."""
    return text.splitlines()[0] if _ENTRY.match(text) and _TRACEBACK not in text else text
