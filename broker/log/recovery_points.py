"""Keep the recovery points of a directory's partitions, and track which partitions their checkpoint may contain.

The recovery point of a partition is the offset up to which it is on disk. A deleted partition must not be in the
checkpoint when another one with its name is created: the new partition would look damaged after a crash. So this module
also knows the content of a write that has not ended.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Any

from .checkpoints import RECOVERY_POINTS, Checkpoints
from .log import TopicPartition


class RecoveryPoints:
    """The recovery points in memory (`current`) and in the checkpoint.

    `current` is replaced when it changes, on the event loop. The methods that write may be called from any thread;
    `lock` keeps their writes apart.
    """

    def __init__(self, checkpoints: Checkpoints, lock: AbstractContextManager[Any]) -> None:
        self._checkpoints = checkpoints
        self._lock = lock
        self.current: dict[TopicPartition, int] = {}
        # What the checkpoint contains; after a failed write, also what that write may have stored.
        self._stored = self.current
        self._being_written: dict[TopicPartition, int] = {}

    def read(self) -> None:
        """Read the checkpoint. If OSError is raised, `current` stays empty."""
        self.current = self._checkpoints.read(RECOVERY_POINTS) or {}
        self._stored = self.current

    def get(self, key: TopicPartition) -> int:
        """Return the recovery point of a partition, or 0 if it has none."""
        return self.current.get(key, 0)

    def note(self, moved: dict[TopicPartition, int]) -> None:
        """Set the recovery points of some partitions."""
        self.current = self.current | moved

    def drop(self, keys: Collection[TopicPartition]) -> None:
        """Remove some partitions from `current`, but not from the checkpoint or from a write under way."""
        if any(key in self.current for key in keys):
            points = self.current.copy()
            for key in keys:
                points.pop(key, None)
            self.current = points

    def may_store(self, keys: Collection[TopicPartition]) -> bool:
        """Whether the checkpoint may contain one of these partitions, now or when a write under way has ended.

        Call `drop` first, because a write that begins later stores `current`.
        """
        # In this order: when a write ends, its content first becomes `_stored`, and then is no longer being written.
        being_written = self._being_written
        stored = self._stored
        return any(key in being_written or key in stored for key in keys)

    @property
    def has_changed(self) -> bool:
        """Whether `current` differs from the checkpoint."""
        return self.current is not self._stored

    def write(self) -> None:
        """Write and sync the checkpoint. Raises OSError."""
        with self._lock:
            points = None
            # If `drop` is called in another thread now, either this write has the new points, or `may_store` sees it.
            while points is not self.current:
                points = self._being_written = self.current
            try:
                self._checkpoints.write(RECOVERY_POINTS, points)
                self._stored = points
            except BaseException:
                self._stored = self._stored | points
                raise
            finally:
                self._being_written = {}

    def write_changes(self) -> None:
        """Write the checkpoint, unless another write has already stored all changes.

        So the deletions of many topics at the same time need only a few writes. Raises OSError.
        """
        if self.has_changed:
            self.write()
