"""How a job's failures read: one line that says where and what to do, of what Spark tells in plans and stacks.

Knows Spark's and py4j's exceptions; raises nothing but JobError. `--debug` of the command shows what is left out here.
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
        (DataLossError, ". If the job reads another topic than it did, give it a new checkpoint"),
        (StateError, ""),
        (SupersededError, ""),
        (RowError, ""),
        (ConfigError, ""),
    )
}
"""What a query fails with again however often it is started, and what a job's user may need to know besides."""

_REMEDIES: Final = {
    "Python worker failed to connect back": (
        ": the machine did not get a Python process started within Spark's ten seconds. Give the job fewer cores "
        "(master = local[2]), or start fewer at once"
    ),
    "Java gateway process exited": ". What Java said is above: perhaps a size in the table [spark] is wrong (2g)",
    "No module named 'oncelog'": (
        ": Spark's Python workers do not have it. Install oncelog[pipeline] in the Python of every worker, and name "
        "that Python: PYSPARK_PYTHON=/path/to/python"
    ),
    "Java heap space": ": give Spark more memory: spark.driver.memory or spark.executor.memory in the table [spark]",
}
"""What Spark says shortly, and what to do about it."""

SPARK_FAILURES: Final = (PySparkException, Py4JError, OSError)
"""What calls into Spark raise; OSError when its JVM is gone."""


class JobSupersededError(JobError):
    """A newer driver runs the job. Its own exit code lets a service manager leave the old one down."""

    exit_code = 3


class SparkGoneError(JobError):
    """The JVM, or the Spark context in it, has ended."""

    def __init__(self) -> None:
        super().__init__(
            "Spark has ended under the job: its JVM was killed, or had too little memory (spark.driver.memory in the "
            "table [spark]). Start the job again: it goes on where it was"
        )


def reason(failure: str) -> str:
    """The line of a failure that says why: Spark's have plans and stacks around it."""
    told = failure.partition("=== Streaming Query ===")[0].partition("JVM stacktrace:")[0]
    if (record := _BAD_RECORD.search(told)) is not None:
        return record[0][:LONGEST]
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    errors = [line for line in lines if _RAISED.match(line)]
    own = [line for line in errors if line.startswith("oncelog.")]
    said = own or _raised_in_python(told) or errors
    plain = (line for line in lines if not _FRAME.match(line))
    found = said[-1] if said else next(plain, "no reason was given")
    remedy = next((remedy for words, remedy in _REMEDIES.items() if words in found), "")
    return f"{found[: LONGEST - len(remedy)].rstrip('.') if remedy else found[:LONGEST]}{remedy}"


def _raised_in_python(told: str) -> list[str]:
    """What the tracebacks in a text end with: `ValueError: ...`, also of a user's function."""
    found, inside = [], False
    for line in told.splitlines():
        if _TRACEBACK in line:
            inside = True
        elif inside and line and not line[0].isspace():
            found.append(line.rstrip())
            inside = False
    return found


def final(line: str) -> str | None:
    """The whole story of a reason that no restart can mend; None for others."""
    name, _, told = line.partition(": ")
    if line.startswith(BAD_RECORD):
        return told
    return f"{told}{_FINAL[name]}" if name in _FINAL else None


def is_superseded(line: str) -> bool:
    """Whether a reason says that a newer driver owns the query."""
    return line.partition(": ")[0] == f"{SupersededError.__module__}.{SupersededError.__qualname__}"


@contextlib.contextmanager
def told_of(where: str, kinds: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Failures of Spark, of settings, and of these kinds become a JobError that begins with `where`."""
    try:
        yield
    except JobError:
        raise
    except PySparkException as error:
        line = reason(_entry(str(error)))
        raise JobError(f"{where}: {final(line) or line}") from error
    except Py4JError as error:
        raise JobError(f"{where}: {reason(str(getattr(error, 'java_exception', None) or error))}") from error
    except SupersededError as error:
        raise JobSupersededError(f"{where}: {error}") from error
    except KafkaError as error:
        raise JobError(f"{where}: {error}") from error
    except kinds as error:
        raise JobError(f"{where}: {type(error).__name__}: {error}") from error


def is_gone(spark: SparkSession) -> bool:
    """Whether Spark has ended."""
    try:
        context = spark.sparkContext._jsc
        return context is None or bool(context.sc().isStopped())
    except SPARK_FAILURES:
        return True


def _entry(told: str) -> str:
    """An analysis error without the plan that follows it."""
    return told.splitlines()[0] if _ENTRY.match(told) and _TRACEBACK not in told else told
