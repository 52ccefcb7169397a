"""Define `format("oncelog")` for Spark: it creates the readers of `source/` and the writers of `sink/`.

They are imported when they are needed: before a query starts, Spark starts several processes one after the other, and
some of them ask only for the name and the columns.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ..client.errors import ConfigError
from .options import NAME, SourceOptions
from .source.schema import source_schema


class OncelogDataSource(DataSource):
    """The data source that `register` makes known to Spark as "oncelog"."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = options

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of Spark's Kafka source."""
        return source_schema(SourceOptions(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for batches."""
        from .source.reader import BatchReader, SourceSettings

        return BatchReader(SourceSettings(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader for streams."""
        from .source.reader import SourceSettings, StreamReader

        return StreamReader(SourceSettings(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer for batch writes, which append rows. Raises ConfigError for mode overwrite."""
        from .sink.settings import SinkSettings
        from .sink.writer import BatchWriter

        if overwrite:
            raise ConfigError("mode", 'a topic cannot be overwritten: use .mode("append")')
        return BatchWriter(SinkSettings(self.options, schema, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return a writer for streams. Raises ConfigError if the checkpoint is not on this machine's disk.

        Spark sets `overwrite` in output mode complete. This is ignored: rows are always appended.
        """
        from .sink.checkpoint import local_path
        from .sink.settings import SinkSettings
        from .sink.writer import StreamWriter

        settings = SinkSettings(self.options, schema, streaming=True)
        if local_path(settings.checkpoint) is None:
            where = (
                f"{settings.checkpoint} is not on this machine's disk"
                if settings.checkpoint
                else "is not among the options"
            )
            raise ConfigError(
                "checkpointLocation",
                f"{where}, but the sink must read Spark's batch plans in the checkpoint: without a batch's plan, it "
                "cannot detect that Spark has planned other rows for a batch that is already committed. Use "
                "oncelog.pipeline.write_stream(df, options), with checkpointLocation among the options, instead of "
                'format("oncelog")',
            )
        return StreamWriter(settings)
