"""Build a job's Spark frames from its file: sources, transforms, and the writers of its sinks."""

from __future__ import annotations

import importlib
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import functions as sf

from ..options import NAME, RUN, WRITE
from ..sink.frames import write, write_stream
from ..sink.ownership import take_over
from ..sink.settings import SinkSettings
from .batch_write import BatchWrite
from .failures import as_job_error
from .json_values import columns_of
from .spec import AVAILABLE_NOW, Job, JobError, Sink, Source, Transform, Watermark, seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class JobFrames:
    """The frames of a job by name. SQL queries refer to them by these names."""

    def __init__(self, spark: SparkSession, job: Job) -> None:
        self.job = job
        self.frames: dict[str, DataFrame] = {}
        self._spark = spark
        self._id = uuid.uuid4().hex
        for source in job.sources:
            with as_job_error(f"source {source.name!r}"):
                self._add(source.name, self._source(source), source.watermark)
        for transform in job.transforms:
            # A user's function may raise any exception.
            with as_job_error(f"transform {transform.name!r}", (Exception,) if transform.python else ()):
                self._add(transform.name, self._transform(transform), transform.watermark)
        for sink in job.sinks:
            with as_job_error(f"sink {sink.name!r}"):
                is_batch = not self.of(sink).isStreaming
            if is_batch and sink.output_mode != "append":
                raise JobError(
                    f"sink {sink.name!r}: output_mode = {sink.output_mode!r} is for streams, but {sink.frame!r} is a "
                    "batch frame, all of whose rows are written: remove output_mode"
                )

    def of(self, sink: Sink) -> DataFrame:
        """Return the frame of a sink.

        If an oncelog sink sets `key` or `json`, each row becomes JSON in the column `value`, and the row's key becomes
        the column `key`.
        """
        frame = self.frames[sink.frame]
        if sink.format == NAME and (sink.key or sink.json):
            value = sf.to_json(sf.struct("*")).alias("value")
            return frame.select(*([sf.expr(sink.key).cast("string").alias("key")] if sink.key else []), value)
        return frame

    def options(self, sink: Sink) -> dict[str, str]:
        """Return all options of a sink, including the checkpoint of a streaming query or the name of a batch write."""
        options = {**(self.job.options if sink.format == NAME else {}), **sink.options}
        if self.of(sink).isStreaming:
            options["checkpointLocation"] = f"{self.job.checkpoint}/{sink.name}"
        elif sink.format == NAME:
            options[WRITE] = f"{self._id}-{sink.name}"
        return options

    def settings(self, sink: Sink) -> SinkSettings | None:
        """Return the checked options of an oncelog sink, or None for another format. Raises JobError."""
        if sink.format != NAME:
            return None
        frame = self.of(sink)
        with as_job_error(f"sink {sink.name!r}"):
            return SinkSettings(self.options(sink), frame.schema, streaming=frame.isStreaming)

    def start(self, sink: Sink) -> StreamingQuery | BatchWrite:
        """Start the query of a streaming frame, or the write of a batch frame.

        If the format is oncelog, this process becomes the owner of the query or write (`ownership.py`), so that
        `let_go` can end its transaction without Spark.
        """
        frame, options = self.of(sink), self.options(sink)
        if not frame.isStreaming:
            if (settings := self.settings(sink)) is not None:
                options[RUN] = take_over(settings).run
            return BatchWrite(self._spark, lambda: self._write(frame, sink, options))
        writer: DataStreamWriter
        if sink.format == NAME:
            writer = write_stream(frame, options, output_mode=sink.output_mode, tasks=sink.tasks)
        else:
            writer = frame.writeStream.format(sink.format).options(**options).outputMode(sink.output_mode)
        trigger = sink.trigger or self.job.trigger
        writer = writer.queryName(f"{self.job.name}-{sink.name}")
        if trigger == AVAILABLE_NOW:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(seconds(trigger, 'trigger') * 1000)} milliseconds").start()

    # -- inside

    def _add(self, name: str, frame: DataFrame, watermark: Watermark | None) -> None:
        if watermark is not None:
            frame = frame.withWatermark(watermark.column, watermark.delay)
        frame.createOrReplaceTempView(name)
        self.frames[name] = frame

    def _source(self, source: Source) -> DataFrame:
        """Return the frame of a source, with its options, JSON columns and selected columns applied."""
        reader = self._spark.readStream if source.stream else self._spark.read
        options = {**(self.job.options if source.format == NAME else {}), **source.options}
        reader = reader.format(source.format).options(**options)
        if source.schema:
            reader = reader.schema(source.schema)
        frame = reader.load()
        if source.json:
            frame = columns_of(frame, source)
        return frame.selectExpr(*source.select) if source.select else frame

    def _transform(self, transform: Transform) -> DataFrame:
        """Return the frame that a transform makes. Raises JobError if a Python function returns no frame."""
        if transform.sql:
            return self._spark.sql(transform.sql)
        made = _function(transform, self.job.directory)(self._spark, dict(self.frames))
        if not hasattr(made, "createOrReplaceTempView"):
            raise JobError(f"transform {transform.name!r}: {transform.python} returned {made!r}, which is not a frame")
        return made

    def _write(self, frame: DataFrame, sink: Sink, options: dict[str, str]) -> None:
        if sink.format == NAME:
            write(frame, options, tasks=sink.tasks)
        else:
            frame.write.format(sink.format).options(**options).mode("append").save()


def _function(transform: Transform, directory: Path) -> Callable[..., DataFrame]:
    """Return the function that `python = "module:function"` names. The job file's directory is searched first.

    Modules in that directory are pickled by value, so that Spark's workers need not find them. Raises JobError.
    """
    module, colon, name = transform.python.partition(":")
    if not colon:
        raise JobError(f'transform {transform.name!r}: python = {transform.python!r} is not "module:function"')
    sys.path.insert(0, str(directory))
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise JobError(f"transform {transform.name!r}: {transform.python} cannot be imported: {error}") from error
    finally:
        sys.path.remove(str(directory))
    if not callable(found):
        raise JobError(f"transform {transform.name!r}: {transform.python} is not a function")
    for name, loaded in list(sys.modules.items()):
        if "." not in name and _lies_in(loaded, directory):
            register_pickle_by_value(loaded)  # type: ignore[no-untyped-call]
    return found  # type: ignore[no-any-return]


def _lies_in(module: ModuleType, directory: Path) -> bool:
    """Return whether the file of a module, or the folder of a package, is directly in the directory."""
    file = getattr(module, "__file__", None)
    paths = [Path(file).parent] if file else [Path(one) for one in getattr(module, "__path__", ())]
    is_package = hasattr(module, "__path__")
    return any((path.parent if is_package else path).resolve() == directory.resolve() for path in paths)
