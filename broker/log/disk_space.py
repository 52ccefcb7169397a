"""Limit writes to the disk's free space minus a reserve for internal topics.

The reserve is `log.reserve.bytes`. Clients may write while the free space is above the reserve. Internal topics may use
the reserve except for its last part (`log.reserve.decision.bytes`). This last part is kept for the decisions and
markers of transactions and for operations that free space. Without it, offset commits could use up the whole reserve,
and the full disk would keep transactions open.

The free space is rarely read from the operating system: each value is used until a limited number of bytes has been
written, or until the next call to `refresh`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

import structlog

from ..system.ports import FileSystem
from .results import storage_error

logger = structlog.get_logger(__name__)

_GRANT: Final = 16 * 1024 * 1024
"""The number of bytes that may be written before the free space is read again. It is read again because other processes
may have filled the disk.
"""


class DiskSpace:
    """The free space of one data directory, minus its reserve."""

    __slots__ = (
        "_directory",
        "_fs",
        "_full",
        "_granted",
        "_granted_internally",
        "_kept",
        "decision_bytes",
        "reserve_bytes",
    )

    def __init__(self, fs: FileSystem, directory: str, reserve_bytes: int, decision_bytes: int) -> None:
        """Reserve `reserve_bytes`, which clients cannot use.

        `decision_bytes` of them, but at most half, are kept for transaction decisions.
        """
        self._fs = fs
        self._directory = directory
        self.reserve_bytes = reserve_bytes
        self.decision_bytes = min(decision_bytes, reserve_bytes // 2)
        self._granted = 0
        self._granted_internally = 0
        self._kept = 0  # for batches that follow
        self._full: set[str] = set()

    def require(self, size: int) -> None:
        """Count `size` bytes that a client is about to write.

        Raise KAFKA_STORAGE_ERROR if they would need part of the reserve.
        """
        if size > self._granted:
            self._granted = self._grant(size, self.reserve_bytes, "log.reserve.bytes")
        self._granted -= size

    def check(self, size: int) -> None:
        """Raise KAFKA_STORAGE_ERROR unless a client may write `size` bytes without using the reserve."""
        if size > self._granted:
            self._granted = self._grant(size, self.reserve_bytes, "log.reserve.bytes")

    def require_internally(self, size: int) -> None:
        """Count `size` bytes that an internal topic is about to write for anything other than a transaction decision.

        Raise KAFKA_STORAGE_ERROR if they would need the part of the reserve that is kept for transaction decisions.
        """
        if size > self._granted_internally:
            self._granted_internally = self._grant(size, self.decision_bytes, "log.reserve.decision.bytes")
        self._granted_internally -= size

    def keep(self, size: int) -> Callable[[], None]:
        """Keep `size` bytes free for later batches of internal topics, until the returned function is called.

        Raise KAFKA_STORAGE_ERROR like `require_internally`.
        """
        self.require_internally(size)
        self._kept += size

        def give_back() -> None:
            self._kept -= size

        return give_back

    def check_compaction(self, name: str, *, internal: bool) -> None:
        """Raise ENOSPC if a compaction of the partition `name` has used too much of the reserve. May run in any thread.

        A compaction frees more space than it takes. Therefore it may use half of `reserve_bytes`, even if clients have
        used all other space. Offset commits must leave `decision_bytes` free. The compaction of an `internal` topic may
        go further, because it frees space for them: it must leave a quarter of `decision_bytes` free.
        """
        kept = self.decision_bytes // 4 if internal else max(self.reserve_bytes // 2, self.decision_bytes)
        free = self._fs.free_space(self._directory)
        if free < kept:
            raise OSError(
                errno.ENOSPC,
                f"the compaction of {name} has stopped because only {free} bytes are free, and it must keep "
                f"{kept} bytes of log.reserve.bytes free",
            )

    def _grant(self, size: int, kept: int, setting: str) -> int:
        """Read the free space and return how many bytes may be written before the free space must be read again.

        Raise KAFKA_STORAGE_ERROR if writing `size` bytes would leave less free space than the `kept` bytes that
        `setting` reserves.
        """
        try:
            available = self._fs.free_space(self._directory) - kept - self._kept
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
                    remedy="free space on this disk; a running broker then resumes writing automatically",
                )
            raise storage_error(
                f"the disk of {self._directory} is full except for {kept} bytes, which {setting} keeps for"
                " transactions in progress. Free space on this disk; a running broker then resumes writing"
                " automatically"
            )
        if setting in self._full:
            self._full.discard(setting)
            logger.info("disk has space again", directory=self._directory, setting=setting)
        return min(available, max(_GRANT, size))

    def refresh(self) -> None:
        """Make the next write read the free space from the operating system again."""
        self._granted = self._granted_internally = 0
