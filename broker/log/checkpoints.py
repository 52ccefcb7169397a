"""Store offsets of all partitions durably: the protocol `Checkpoints`, and its implementation in files.

The protocol separates the logs from the place where their offsets are stored. `CheckpointFiles` keeps each checkpoint
in a file of the data directory, as Kafka does. Another implementation could keep them in a database.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import structlog

from ..system.ports import FileSystem
from .file_names import CLEANER_OFFSETS, LOG_START_OFFSETS, RECOVERY_POINTS
from .log import TopicPartition
from .small_files import decode_offsets, encode_offsets, write_file

logger = structlog.get_logger(__name__)


class Checkpoints(Protocol):
    """Storage for three checkpoints, each of which has one offset per partition.

    `RECOVERY_POINTS`: the offset up to which the partition is on disk. `LOG_START_OFFSETS`: the log start offset, or 0
    for a partition that the checkpoint does not list. `CLEANER_OFFSETS`: the offset up to which the partition is
    compacted.

    The methods block and may be called from any thread. Writes of one checkpoint never overlap.
    """

    def read(self, name: str) -> dict[TopicPartition, int] | None:
        """Return the last written state of a checkpoint; None if it was never written or is damaged. Raises OSError."""

    def write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace a checkpoint and return when it is durable. If OSError is raised, it has its old or new content."""


class CheckpointFiles:
    """Checkpoints in files of the directory `path`; each file has the name of its checkpoint."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path

    def read(self, name: str) -> dict[TopicPartition, int] | None:
        """Return the offsets of a checkpoint; None if its file is missing or damaged. Raises OSError."""
        path = f"{self._path}/{name}"
        if not self._fs.exists(path):
            return None
        try:
            return decode_offsets(self._fs.read_file(path))
        except ValueError as error:
            logger.error("checkpoint ignored", file=path, reason=str(error))
            return None

    def write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the checkpoint's file and sync it. If OSError is raised, the file has its old or new content."""
        rows = sorted((*key, offset) for key, offset in offsets.items())
        write_file(self._fs, f"{self._path}/{name}", encode_offsets(rows), sync=True)


__all__ = ["CLEANER_OFFSETS", "LOG_START_OFFSETS", "RECOVERY_POINTS", "CheckpointFiles", "Checkpoints"]
