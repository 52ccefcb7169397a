"""`DirectorySourceConnector`: reads the lines of all files in a directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...api.connector import ExactlyOnceSupport, SourceConnector
from ...api.records import SourceOffset, SourcePartition
from ...errors import ConnectError
from .settings import SETTINGS
from .task import COUNT, NUMBER, DirectorySourceTask


class DirectorySourceConnector(SourceConnector):
    """Divides the files among tasks by a hash of their first lines."""

    settings = SETTINGS
    task_class = DirectorySourceTask

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """Return the settings of `max_tasks` tasks, each with its number."""
        return [{**self.config, NUMBER: str(number), COUNT: str(max_tasks)} for number in range(max_tasks)]

    def exactly_once_support(self, config: Mapping[str, str]) -> ExactlyOnceSupport:
        """Return SUPPORTED. Exactly-once delivery requires that data is only appended to the files."""
        return ExactlyOnceSupport.SUPPORTED

    async def alter_offsets(
        self, config: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        """Raise ConnectError for malformed offsets; return True.

        An offset of None, which resets a file, is always allowed. Any other offset needs the length and CRC of the line
        before its position. Without the CRC of all content before the position, copies of the file are read again.
        """
        for partition, offset in offsets:
            if offset is None:
                continue
            match partition:
                case {"directory": str(), "fingerprint": str(), "number": number} if type(number) is int:
                    pass
                case _:
                    raise ConnectError('a partition must be {"directory": path, "fingerprint": hash, "number": number}')
            required, optional = {"file", "inode", "position", "line", "crc"}, {"device", "content_crc"}
            if not required <= offset.keys() <= required | optional:
                raise ConnectError(
                    "an offset must have file, inode, position, line and crc, and may have device and content_crc, as "
                    "GET offsets shows them"
                )
            numbers = [
                value for name, value in offset.items() if name != "file" and (name, value) != ("content_crc", None)
            ]
            if not isinstance(offset["file"], str) or not all(type(value) is int and value >= 0 for value in numbers):
                raise ConnectError("file must be a name, and the other values of an offset must be integers >= 0")
            if offset["line"] > offset["position"]:
                raise ConnectError("line, the length of the last line, must not be greater than position")
        return True
