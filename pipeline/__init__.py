"""The data pipeline on Spark: `format("oncelog")`, an exactly-once source and sink in pure Python.

    from oncelog.pipeline import register, spark_session
    spark = register(spark_session())

Needs the extra `pipeline` (pyspark, pyarrow, numpy) and Java 17 or newer. docs/pipeline.md says how it works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["register", "spark_session", "write", "write_stream"]


def register(spark: SparkSession) -> SparkSession:
    """Make `format("oncelog")` known to a session; returns it."""
    from .requirements import require_spark

    require_spark()
    from .data_source import OncelogDataSource

    spark.dataSource.register(OncelogDataSource)
    return spark


def spark_session(
    master: str | None = None, *, app_name: str = "oncelog", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session with `register` done, on `local[*]` unless another master is named.

    `settings` are Spark's: `{"spark.driver.memory": "2g"}`. Workers use this Python. Raises RequirementError, which
    says what to install, without pyspark, pyarrow or Java.
    """
    from .requirements import require_java, require_spark

    require_spark()
    require_java()
    from .session import build

    return register(build(master or "local[*]", app_name, settings or {}))


def write_stream(
    df: DataFrame, options: Mapping[str, str], *, output_mode: str = "append", tasks: int | None = None
) -> DataStreamWriter:
    """The exactly-once writer of a streaming frame: a Kafka transaction per micro-batch. See `frames.write_stream`."""
    from .sink.frames import write_stream as prepare

    return prepare(df, options, output_mode=output_mode, tasks=tasks)


def write(df: DataFrame, options: Mapping[str, str], *, tasks: int | None = None) -> None:
    """Write a batch frame in one Kafka transaction. See `frames.write`."""
    from .sink.frames import write as carry_out

    carry_out(df, options, tasks=tasks)
