"""`FileStreamSourceConnector`: reads the lines of one file, with the settings of Kafka Connect's connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...api.connector import ExactlyOnceSupport, SourceConnector
from ...api.records import SourceOffset, SourcePartition
from ...errors import ConnectError
from .settings import SETTINGS
from .task import FileStreamSourceTask


class FileStreamSourceConnector(SourceConnector):
    """Runs one task, which reads a file or standard input."""

    settings = SETTINGS
    task_class = FileStreamSourceTask

    def exactly_once_support(self, config: Mapping[str, str]) -> ExactlyOnceSupport:
        """Return SUPPORTED for a file, and UNSUPPORTED for standard input, which has no positions.

        Exactly-once delivery requires that data is only appended to the file.
        """
        return ExactlyOnceSupport.SUPPORTED if config.get("file") else ExactlyOnceSupport.UNSUPPORTED

    async def alter_offsets(
        self, config: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        """Raise ConnectError if an offset is not a position in a file; otherwise return True."""
        if not config.get("file"):
            raise ConnectError(
                "Offsets cannot be modified if the 'file' configuration is unspecified. This is because stdin is used "
                "for input and offsets are not tracked."
            )
        for partition, offset in offsets:
            if offset is None:
                continue  # any partition may be reset
            if "position" not in offset:
                raise ConnectError("Offset objects should either be null or contain the key 'position'")
            position = offset["position"]
            if not isinstance(position, int) or isinstance(position, bool):
                raise ConnectError("The value for the 'position' key in the offset is expected to be a Long value")
            if position < 0:
                raise ConnectError("The value for the 'position' key in the offset should be a non-negative value")
            if "filename" not in partition:
                raise ConnectError("Partition objects should contain the key 'filename'")
        return True
