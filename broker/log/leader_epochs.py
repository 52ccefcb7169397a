"""Record at which offset each leader epoch began (KIP-101), in Kafka's `leader-epoch-checkpoint` file.

The file is a list of (epoch, start offset) entries, in which both values rise. The list can be rebuilt from the
batches, so the file is written only when the state of the log is saved (`saved_state.py`), and is not synced.
"""

from __future__ import annotations

from contextlib import suppress

from ..system.ports import FileSystem
from .file_names import LEADER_EPOCHS
from .small_files import decode_checkpoint, encode_checkpoint, read_derived, write_file


class LeaderEpochs:
    """The leader epochs of one log. `latest` is the newest epoch, or -1 if there is none."""

    __slots__ = (
        "_directory",
        "_entries",
        "_fs",
        "_written",
        "latest",
    )

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._entries: list[tuple[int, int]] = []
        self._written: list[tuple[int, int]] = []
        self.latest = -1

    def _path(self) -> str:
        """Return the path of the checkpoint file."""
        return f"{self._directory}/{LEADER_EPOCHS}"

    def load(self, end_offset: int) -> None:
        """Read the entries below `end_offset` from the file; a damaged, unreadable or missing file counts as empty."""
        entries: list[tuple[int, int]] = []
        content = read_derived(self._fs, self._path())
        with suppress(ValueError):
            entries = [(int(epoch), int(offset)) for epoch, offset in decode_checkpoint(content or b"", 2)]
        self._written = entries
        self._entries = sorted(entry for entry in entries if entry[1] < end_offset)
        self.latest = self._entries[-1][0] if self._entries else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` began at `start_offset`, unless this or a newer epoch has begun already.

        An earlier epoch that began at the same offset has no batch, and is forgotten.
        """
        if epoch > self.latest:
            while self._entries and self._entries[-1][1] >= start_offset:
                self._entries.pop()
            self._entries.append((epoch, start_offset))
            self.latest = epoch

    def epoch_of(self, offset: int) -> int:
        """Return the leader epoch in which `offset` was written; -1 if it is not known."""
        return max((epoch for epoch, start in self._entries if start <= offset), default=-1)

    def write(self) -> None:
        """Replace the file if the entries have changed since it was written or loaded. Raises OSError."""
        if self._entries != self._written:
            write_file(self._fs, self._path(), encode_checkpoint(self._entries))
            self._written = list(self._entries)

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest known epoch not above `epoch`, and its end offset (exclusive).

        If all known epochs are newer, return `epoch` and the start offset of the oldest known epoch. Return (-1, -1) if
        `epoch` is negative or newer than all known ones, or if none is known.
        """
        if epoch < 0 or not self._entries or epoch > self.latest:
            return -1, -1
        if epoch == self.latest:
            return epoch, log_end_offset
        for position, (known, _) in enumerate(self._entries):
            if known > epoch:
                if position == 0:
                    return epoch, self._entries[0][1]
                return self._entries[position - 1][0], self._entries[position][1]
        raise AssertionError("the entries contain no epoch above the requested one")
