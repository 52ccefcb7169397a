"""Offsets of all partitions that outlive the process: the protocol `Checkpoints`, and its implementation in files.

It is the seam between the logs and the metadata that they need to be found again. `CheckpointFiles` keeps each
checkpoint in a file of the data directory, as Kafka does; they may as well lie in a database beside the topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import structlog

from ..ports import FileSystem
from .file_names import CLEANER_OFFSETS, LOG_START_OFFSETS, RECOVERY_POINTS
from .log import TopicPartition
from .small_files import decode_offsets, encode_offsets, write_file

logger = structlog.get_logger(__name__)


class Checkpoints(Protocol):
    """Three checkpoints by name: `RECOVERY_POINTS`, up to where each partition is on disk; `LOG_START_OFFSETS`, where
    its records begin (0 where it is not named); `CLEANER_OFFSETS`, up to where it is compacted.

    Blocking calls, from any thread. Writes of one checkpoint never overlap.
    """

    def read(self, name: str) -> dict[TopicPartition, int] | None:
        """The checkpoint that was written last; None when it was never written, or is damaged. Raises OSError."""

    def write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace a checkpoint as a whole: it is durable when this returns. Raises OSError, leaving the old one."""


class CheckpointFiles:
    """Checkpoints in the files of those names in the directory `path`."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path

    def read(self, name: str) -> dict[TopicPartition, int] | None:
        """See Checkpoints."""
        path = f"{self._path}/{name}"
        if not self._fs.exists(path):
            return None
        try:
            return decode_offsets(self._fs.read_file(path))
        except ValueError as error:
            logger.error("checkpoint ignored", file=path, reason=str(error))
            return None

    def write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """See Checkpoints."""
        rows = sorted((*key, offset) for key, offset in offsets.items())
        write_file(self._fs, f"{self._path}/{name}", encode_offsets(rows), sync=True)


__all__ = ["CLEANER_OFFSETS", "LOG_START_OFFSETS", "RECOVERY_POINTS", "CheckpointFiles", "Checkpoints"]
