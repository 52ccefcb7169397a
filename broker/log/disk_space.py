"""How much may still be written: the disk's free space without what is kept for something more important.

Owns the reserve (`log.reserve.bytes`). Clients may write above it. Below it internal topics may, down to its last part
(`log.reserve.decision.bytes`), which is kept for the decisions and markers of transactions and for what frees space:
offset commits can use up a reserve, and must not hold a transaction open. The system is asked rarely: an answer is used
up by a part of the bytes that it promised, or by time (`refresh`).
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
    """The space of one data directory."""

    __slots__ = ("_directory", "_fs", "_full", "_granted", "_granted_internally", "decision_bytes", "reserve_bytes")

    def __init__(self, fs: FileSystem, directory: str, reserve_bytes: int, decision_bytes: int) -> None:
        """At most half of the reserve is kept for decisions, whatever `decision_bytes` says."""
        self._fs = fs
        self._directory = directory
        self.reserve_bytes = reserve_bytes
        self.decision_bytes = min(decision_bytes, reserve_bytes // 2)
        self._granted = 0
        self._granted_internally = 0
        self._full: set[str] = set()

    def require(self, size: int) -> None:
        """A client's `size` bytes are about to be written; raise KAFKA_STORAGE_ERROR where `check` does."""
        if size > self._granted:
            self._granted = self._grant(size, self.reserve_bytes, "log.reserve.bytes")
        self._granted -= size

    def check(self, size: int) -> None:
        """Raise KAFKA_STORAGE_ERROR unless `size` bytes may be written above the reserve."""
        if size > self._granted:
            self._granted = self._grant(size, self.reserve_bytes, "log.reserve.bytes")

    def require_internally(self, size: int) -> None:
        """`size` bytes of an internal topic that decide nothing are about to be written.

        Raise KAFKA_STORAGE_ERROR unless they may be, above the part of the reserve that is kept for decisions.
        """
        if size > self._granted_internally:
            self._granted_internally = self._grant(size, self.decision_bytes, "log.reserve.decision.bytes")
        self._granted_internally -= size

    def _grant(self, size: int, kept: int, setting: str) -> int:
        try:
            available = self._fs.free_space(self._directory) - kept
        except OSError as error:
            raise storage_error(f"the free space of {self._directory} cannot be read: {error}") from error
        if size > available:
            if setting not in self._full:
                self._full.add(setting)
                logger.warning(
                    "disk full",
                    directory=self._directory,
                    kept_bytes=kept,
                    setting=setting,
                    remedy="free space there; the broker goes on by itself",
                )
            raise storage_error(
                f"the disk of {self._directory} is full but for {setting} = {kept}, which is kept for transactions in"
                " progress; free space there, the broker goes on by itself"
            )
        if setting in self._full:
            self._full.discard(setting)
            logger.info("disk has space again", directory=self._directory, setting=setting)
        return min(available, max(_GRANT, size))

    def refresh(self) -> None:
        """Ask the system at the next write."""
        self._granted = self._granted_internally = 0
