"""Provide the data pipeline on Spark: `format("oncelog")`, an exactly-once source and sink in pure Python.

    from oncelog.pipeline import register, spark_session
    spark = register(spark_session())

The pipeline needs the extra `pipeline` (pyspark, pyarrow, numpy) and Java 17 or newer. docs/pipeline.md explains how it
works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["register", "spark_session", "write", "write_stream"]


def register(spark: SparkSession) -> SparkSession:
    """Make `format("oncelog")` known to a Spark session, and return the session.

    Raises RequirementError if required software is missing.
    """
    from .requirements import require_spark

    require_spark()
    from .data_source import OncelogDataSource

    spark.dataSource.register(OncelogDataSource)
    return spark


def spark_session(
    master: str | None = None, *, app_name: str = "oncelog", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a Spark session that knows `format("oncelog")`. The default master is `local[*]`.

    `settings` are Spark settings, such as `{"spark.driver.memory": "2g"}`. Spark's Python workers use this interpreter.
    Raises RequirementError if pyspark, pyarrow, numpy or Java is missing. Its message says what to install.
    """
    from .requirements import require_java, require_spark

    require_spark()
    require_java()
    from .session import build

    return register(build(master or "local[*]", app_name, settings or {}))


def write_stream(
    df: DataFrame, options: Mapping[str, str], *, output_mode: str = "append", tasks: int | None = None
) -> DataStreamWriter:
    """Return a writer that writes each micro-batch of a streaming frame in one Kafka transaction, exactly once.

    `sink.frames.write_stream` documents the parameters and errors.
    """
    from .sink.frames import write_stream as prepare

    return prepare(df, options, output_mode=output_mode, tasks=tasks)


def write(df: DataFrame, options: Mapping[str, str], *, tasks: int | None = None) -> None:
    """Write a batch frame in one Kafka transaction. `sink.frames.write` documents the parameters and errors."""
    from .sink.frames import write as carry_out

    carry_out(df, options, tasks=tasks)
