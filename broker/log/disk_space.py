"""How much a client may still write: the disk's free space without the reserve.

Owns the reserve (`log.reserve.bytes`): what is left of the disk at that point is kept for transaction markers and
internal topics, so that a full disk can't hold a transaction open. The system is asked rarely: an answer is used up by
a part of the bytes that it promised, or by time (`refresh`).
"""

from __future__ import annotations

from typing import Final

import structlog

from ..ports import FileSystem
from .results import storage_error

logger = structlog.get_logger(__name__)

_GRANT: Final = 16 * 1024 * 1024
"""Bytes that may be written before the system is asked again; others fill the disk, too."""


class DiskSpace:
    """The disk's free space above the reserve."""

    __slots__ = ("_directory", "_fs", "_full", "_granted", "reserve_bytes")

    def __init__(self, fs: FileSystem, directory: str, reserve_bytes: int) -> None:
        self._fs = fs
        self._directory = directory
        self.reserve_bytes = reserve_bytes
        self._granted = 0
        self._full = False

    def require(self, size: int) -> None:
        """`size` bytes are about to be written. Raise KAFKA_STORAGE_ERROR unless they may be, above the reserve."""
        self.check(size)
        self._granted -= size

    def check(self, size: int) -> None:
        """Raise KAFKA_STORAGE_ERROR unless `size` bytes may be written above the reserve."""
        if size > self._granted:
            try:
                available = self._fs.free_space(self._directory) - self.reserve_bytes
            except OSError as error:
                raise storage_error(f"the free space of {self._directory} cannot be read: {error}") from error
            if size > available:
                if not self._full:
                    self._full = True
                    logger.warning(
                        "disk full",
                        directory=self._directory,
                        reserve_bytes=self.reserve_bytes,
                        remedy="free space there; the broker goes on by itself",
                    )
                raise storage_error(
                    f"the disk of {self._directory} is full but for log.reserve.bytes = {self.reserve_bytes}, which is"
                    " kept for transactions in progress; free space there, the broker goes on by itself"
                )
            if self._full:
                self._full = False
                logger.info("disk has space again", directory=self._directory)
            self._granted = min(available, max(_GRANT, size))

    def refresh(self) -> None:
        """Ask the system at the next write."""
        self._granted = 0
