"""Save the state that a log keeps only in memory, so that the next start need not rebuild it from the batches.

This module records how much of the active segment the saved state covers, and decides when saving is due. The state
consists of the indexes of the active segment, the leader epochs and the state of the producers, which `SnapshotWriter`
writes. Recovery after a crash does not depend on this state, because it scans the batches that the saved state does not
cover.
"""

from __future__ import annotations

from typing import Final

from .leader_epochs import LeaderEpochs
from .log_config import LogConfig
from .producer_state_manager import ProducerStateManager
from .segments import LogSegments
from .snapshot_writer import SnapshotWriter

_SAVED_PER_PRODUCER: Final = 4096
"""Each known producer increases the bytes between two saves by this number, because a save takes 1 µs per producer."""


class SavedState:
    """The saved state of one log, which covers `saved_bytes` bytes of the active segment."""

    __slots__ = ("_leader_epochs", "_producers", "_saved_bytes", "_segments", "_snapshots")

    def __init__(
        self,
        *,
        segments: LogSegments,
        producers: ProducerStateManager,
        snapshots: SnapshotWriter,
        leader_epochs: LeaderEpochs,
        saved_bytes: int,
    ) -> None:
        self._segments = segments
        self._producers = producers
        self._snapshots = snapshots
        self._leader_epochs = leader_epochs
        self._saved_bytes = saved_bytes

    def save(self, *, sync: bool = False, replaces: int | None = None) -> list[str]:
        """Write the active segment's indexes, the leader epochs and the producer state to files.

        If the log has a flusher, a thread writes the snapshot of the producer state, syncs its content if `sync` is
        set, and then removes the snapshot at offset `replaces`. The other files are not synced. Return the paths of the
        index files, and of the snapshot if it is already written. Raises OSError.
        """
        self._leader_epochs.write()
        active, producers = self._segments.active, self._producers
        paths = active.write_indexes()
        self._saved_bytes = active.size
        self._snapshots.take(sync=sync, replaces=replaces)
        if producers.snapshot_offset == producers.end_offset:
            paths.append(producers.snapshot_path(producers.end_offset))
        return paths

    def save_grown(self) -> None:
        """Save the state, and remove the previous snapshot if it lies within the active segment. Raises OSError."""
        before = self._producers.snapshot_offset
        replaces = before if self._segments.active.base_offset < before < self._producers.end_offset else None
        self.save(sync=replaces is not None, replaces=replaces)

    def rolled(self) -> None:
        """Record that the active segment is a new, empty one."""
        self._saved_bytes = 0

    @property
    def unsaved_bytes(self) -> int:
        """The number of bytes of the active segment that the next start would have to scan."""
        return self._segments.active.size - self._saved_bytes

    def has_grown(self, config: LogConfig) -> bool:
        """Whether a start after a crash would have much to scan, so that `save_grown` is due.

        Saving costs more with more producers, so a log with many producers is saved less often.
        """
        producers = len(self._producers) * _SAVED_PER_PRODUCER
        return self.unsaved_bytes > config.save_interval_bytes + producers and not self._snapshots.are_pending

    def is_worth_saving(self, config: LogConfig) -> bool:
        """Whether the next start would have too much to scan, or would lack producer state that is only in memory.

        A small log is not saved, because scanning it takes less time than writing the files.
        """
        base_offset = self._segments.active.base_offset
        return self.unsaved_bytes > config.unsaved_bytes or not self._producers.is_saved_at(base_offset)
