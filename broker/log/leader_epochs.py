"""Which leader epoch began at which offset (KIP-101), in Kafka's `leader-epoch-checkpoint` file.

Owns the list of (epoch, start offset), both rising. It can be made again from the batches, so the file is written
without sync when a segment is rolled or the log closed.
"""

from __future__ import annotations

from contextlib import suppress

from ..ports import FileSystem
from .file_names import LEADER_EPOCHS
from .small_files import decode_checkpoint, encode_checkpoint, write_file


class LeaderEpochs:
    """See the module. `latest` is -1 while nothing was written."""

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
        return f"{self._directory}/{LEADER_EPOCHS}"

    def load(self, end_offset: int) -> None:
        """Read the file, leaving out what begins at or behind `end_offset`; a damaged file counts as none."""
        entries: list[tuple[int, int]] = []
        with suppress(FileNotFoundError, ValueError):
            entries = [
                (int(epoch), int(offset)) for epoch, offset in decode_checkpoint(self._fs.read_file(self._path()), 2)
            ]
        self._written = entries
        self._entries = sorted(entry for entry in entries if entry[1] < end_offset)
        self.latest = self._entries[-1][0] if self._entries else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """A batch of `epoch` was appended at `start_offset`."""
        if epoch > self.latest:
            self._entries.append((epoch, start_offset))
            self.latest = epoch

    def epoch_of(self, offset: int) -> int:
        """The leader epoch in which `offset` was written; -1 when that is not known."""
        return max((epoch for epoch, start in self._entries if start <= offset), default=-1)

    def write(self) -> None:
        """Replace the file, unless it says the same."""
        if self._entries != self._written:
            write_file(self._fs, self._path(), encode_checkpoint(self._entries))
            self._written = list(self._entries)

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the largest epoch not above `epoch`, where it ends), (-1, -1) when that is not known."""
        if epoch < 0 or not self._entries or epoch > self.latest:
            return -1, -1
        if epoch == self.latest:
            return epoch, log_end_offset
        for position, (known, _) in enumerate(self._entries):
            if known > epoch:
                if position == 0:
                    return epoch, self._entries[0][1]
                return self._entries[position - 1][0], self._entries[position][1]
        raise AssertionError("an epoch below the latest lies between two entries")
