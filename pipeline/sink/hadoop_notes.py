"""`notes_of` lets the driver read the notes in a checkpoint: Spark's files about planned and finished batches.

Spark runs sinks in Python processes that cannot reach its JVM. The driver's own process can reach the JVM through
py4j. The JVM reads the notes with the credentials of the session, in any file system that Spark knows, such as s3a://,
hdfs://, abfss://, gs:// or dbfs:/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from ...client.errors import ConfigError
from .checkpoint import LocalNotes, Notes, local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HadoopNotes:
    """The notes in a checkpoint (Spark's files about batches) in a Hadoop FileSystem. All methods raise OSError."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._toolkit = jvm.org.apache.commons.io.IOUtils
        self._location = location
        try:
            root = self._path(location)
            self._files = root.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
            self.scheme = str(self._files.makeQualified(root).toUri().getScheme())
        except Py4JJavaError as error:
            raise OSError(f"{location} cannot be opened: {_said(error)}") from error

    def numbers(self, kind: str) -> list[int]:
        """Return the numbers of the batches with a note in the directory `kind`: offsets or commits."""
        try:
            directory = self._path(f"{self._location}/{kind}")
            if not self._files.exists(directory):
                return []
            names = [str(status.getPath().getName()) for status in self._files.listStatus(directory)]
        except Py4JJavaError as error:
            raise OSError(f"{self._location}/{kind} cannot be listed: {_said(error)}") from error
        return [int(name) for name in names if name.isdigit()]

    def read(self, kind: str, number: int) -> bytes:
        """Return the content of one note."""
        path = f"{self._location}/{kind}/{number}"
        try:
            stream = self._files.open(self._path(path))
            try:
                return bytes(self._toolkit.toByteArray(stream))
            finally:
                stream.close()
        except Py4JJavaError as error:
            raise OSError(f"{path} cannot be read: {_said(error)}") from error


def notes_of(spark: SparkSession, location: str) -> Notes | None:
    """Return the notes of a checkpoint as the driver sees them, or None with Spark Connect, which has no local JVM.

    Raises ConfigError for a file system that Spark cannot open, and for a remote checkpoint with Spark Connect.
    """
    if not hasattr(spark, "sparkContext"):
        if local_path(location) is None:
            raise ConfigError(
                "checkpointLocation",
                f"{location} cannot be read with Spark Connect: use a driver with a JVM of its own (no sc:// master), "
                "or a checkpoint on the disk of the Spark server",
            )
        return None
    try:
        notes = HadoopNotes(spark, location)
    except OSError as error:
        raise ConfigError("checkpointLocation", str(error)) from error
    path = local_path(location)
    return LocalNotes(path) if path is not None and notes.scheme == "file" else notes


def _said(error: Py4JJavaError) -> str:
    """Return the first line of a Java exception."""
    return str(error.java_exception).partition("\n")[0]
