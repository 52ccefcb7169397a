"""Keep the state of all producers of one partition: which batches they may append, and which transactions are open.

This module keeps the entries by producer id, the open transactions by first offset, the ended transactions whose marker
is not below the high watermark yet, and the snapshot files. It also expires idle producers. It never reads or writes
batches: the log passes it each batch that was appended or replayed.

Invariants:

* An entry that `capture` has returned never changes: the producer's next batch replaces it with a changed copy. So
  a thread can write or search the state as of one offset while batches are appended.
* The state depends only on the log's batches below `end_offset`, and on the expiry of idle producers. Replaying the
  batches from any snapshot gives the same state.
* A producer with an open transaction never expires.
* `first_unstable_offset` is the smallest first offset of all transactions that are open or whose marker is at or above
  the high watermark.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

import structlog

from ...protocol.batch_header import BatchHeader
from ...protocol.control_records import ControlRecord, ControlType
from ..scheduling.steps import Steps
from ..system.ports import FileSystem
from .file_names import SNAPSHOT, parse_segment_name, segment_name
from .producer_snapshot import CorruptSnapshot, decode_snapshot, write_snapshot
from .producer_state import NO_EPOCH, BatchMetadata, ProducerStateEntry
from .results import CLIENT, AbortedTxn, AppendOrigin
from .small_files import replacing

logger = structlog.get_logger(__name__)

_STRAY_SNAPSHOTS: Final = 8
"""How many snapshots of earlier stops a log keeps if its first batches have been deleted."""

_LOOKED_AT: Final = 500
"""The number of producers that one step of `expire` examines."""


class ProducerStateManager:
    """The state of all producers of one partition; `where` names the partition in errors.

    `end_offset` (exclusive): the offset up to which the state covers the log. `snapshot_offset`: the offset up to which
    the last snapshot covers the log, or -1 without a snapshot.
    """

    __slots__ = (
        "_decided",
        "_directory",
        "_entries",
        "_fs",
        "_generation",
        "_open",
        "_where",
        "end_offset",
        "snapshot_offset",
    )

    def __init__(self, fs: FileSystem, directory: str, where: str) -> None:
        self._fs = fs
        self._directory = directory
        self._where = where
        self._entries: dict[int, ProducerStateEntry] = {}
        # The number of captures. Only entries of this generation may change.
        self._generation = 0
        # First offset → producer id. New transactions have larger first offsets, so the first key is the smallest.
        self._open: dict[int, int] = {}
        # First offset → marker offset, for ended transactions whose marker may not be visible yet.
        self._decided: dict[int, int] = {}
        self.end_offset = 0
        self.snapshot_offset = -1

    # --- looking -----------------------------------------------------------------------------------------------------

    def entry(self, producer_id: int) -> ProducerStateEntry | None:
        """Return the state of a producer id, or None if it is unknown. The caller must not change the entry."""
        return self._entries.get(producer_id)

    def entries(self) -> Iterable[ProducerStateEntry]:
        """Return the states of all producers, in no particular order."""
        return self._entries.values()

    def capture(self) -> list[ProducerStateEntry]:
        """Return the states of all producers as of `end_offset`. Unlike the states from `entries`, they never change.

        This copies references only: about 0.5 ms for 100,000 producers.
        """
        self._generation += 1
        return list(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def open_transactions(self) -> list[ProducerStateEntry]:
        """Return the producers with an open transaction in this partition, oldest transaction first."""
        return [self._entries[producer_id] for producer_id in self._open.values()]

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has an open transaction in this partition and `producer_epoch` is its last epoch."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.current_txn_first_offset >= 0 and entry.producer_epoch == producer_epoch

    @property
    def has_unstable(self) -> bool:
        """Whether there is a `first_unstable_offset`."""
        return bool(self._open or self._decided)

    @property
    def first_unstable_offset(self) -> int | None:
        """The smallest first offset of the transactions that are open or whose marker is not visible yet, else None."""
        first = next(iter(self._open), None)
        if self._decided:
            decided = min(self._decided)
            return decided if first is None or decided < first else first
        return first

    # --- appending ---------------------------------------------------------------------------------------------------

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """Return which of the producer's last five batches `header` repeats, or None if it repeats none of them."""
        entry = self._entries.get(header.producer_id)
        return None if entry is None else entry.find_duplicate(header)

    def check(
        self,
        header: BatchHeader,
        marker: ControlRecord | None,
        origin: AppendOrigin,
        transaction_version: int,
    ) -> None:
        """Raise KafkaError if the producer may not append this batch next.

        `marker` is the record of a control batch. `transaction_version` 2 requires sequence 0 in the first batch of an
        unknown producer, and a marker with a newer epoch than its transaction.
        """
        producer_id = header.producer_id
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = ProducerStateEntry(producer_id)
        if header.is_control:
            if marker is not None:
                entry.check_marker(header.producer_epoch, marker, transaction_version, self._where)
        else:
            sequenced = origin is CLIENT
            entry.check_data(header, sequenced=sequenced, transaction_version=transaction_version, where=self._where)

    def update(
        self, header: BatchHeader, marker: ControlRecord | None, base_offset: int, now: float = 0.0
    ) -> AbortedTxn | None:
        """Record a batch that is in the log at `base_offset`; return the transaction that it aborted, if any.

        `now` is the monotonic time of an append in seconds. A replay does not pass `now`, and must call `seen`
        afterwards. If the marker is of an unknown type, or compaction has emptied the control batch, only `end_offset`
        is moved.
        """
        producer_id = header.producer_id
        last_offset = base_offset + header.last_offset_delta
        self.end_offset = last_offset + 1
        if producer_id < 0 or (header.is_control and (marker is None or marker.type is ControlType.UNKNOWN)):
            return None
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerStateEntry(producer_id)
            entry.generation = self._generation
        elif entry.generation != self._generation:
            entry = self._entries[producer_id] = entry.copy()
            entry.generation = self._generation
        entry.last_seen = now
        if marker is None:
            if entry.add_data(header, base_offset):
                self._open[base_offset] = producer_id
            return None
        first_offset = entry.add_marker(header.producer_epoch, marker, header.max_timestamp)
        if first_offset < 0:
            return None
        del self._open[first_offset]
        self._decided[first_offset] = last_offset
        if marker.is_commit:
            return None
        return AbortedTxn(producer_id, first_offset, last_offset, next(iter(self._open), last_offset + 1))

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forget the ended transactions whose markers are below the high watermark."""
        if self._decided:
            for first_offset, marker_offset in list(self._decided.items()):
                if marker_offset < high_watermark:
                    del self._decided[first_offset]

    def skip_to(self, offset: int) -> None:
        """Move `end_offset` to `offset` over a gap without batches, after compaction or at the start of the log."""
        self.end_offset = max(self.end_offset, offset)

    def seen(self, now: float) -> None:
        """Set the last activity of all producers to `now`, the broker's start in seconds of the monotonic clock.

        The idle time before the start is not known. The timestamps in the log come from the producers' clocks or from a
        wall clock that may have jumped. Relying on them could expire a producer too early, so that a repeated batch
        would be appended twice.
        """
        for entry in self._entries.values():
            entry.last_seen = now

    def expire(self, now: float, expiration_ms: int) -> Steps[list[int]]:
        """Forget the producers that have been idle for `expiration_ms` and have no open transaction; return their ids.

        `now` is the time of the monotonic clock in seconds, so that jumps of the wall clock have no effect.
        """
        idle_since = now - expiration_ms / 1000
        expired: list[int] = []
        left = iter(list(self._entries))
        while some := list(islice(left, _LOOKED_AT)):
            for producer_id in some:
                entry = self._entries.get(producer_id)
                if entry is not None and entry.current_txn_first_offset < 0 and entry.last_seen <= idle_since:
                    del self._entries[producer_id]
                    expired.append(producer_id)
            yield len(some) // 4
        return expired

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot_offsets(self) -> list[int]:
        """Return the offsets of the snapshot files in the log's directory, smallest first."""
        parsed = (parse_segment_name(name) for name in self._fs.list(self._directory))
        return sorted(found[0] for found in parsed if found is not None and found[1] == SNAPSHOT)

    def take_snapshot(self) -> str:
        """Write a snapshot file without syncing it, unless the last one is up to date; return its path. Raises OSError.

        `SnapshotWriter` writes snapshots in a thread instead, if the log has a flusher.
        """
        path = self.snapshot_path(self.end_offset)
        if self.snapshot_offset != self.end_offset:
            with replacing(self._fs, path) as file:
                write_snapshot(file, list(self._entries.values()))
            self.snapshot_offset = self.end_offset
        return path

    def is_saved_at(self, offset: int) -> bool:
        """Whether a snapshot covers all batches below `offset`, the base offset of a segment."""
        return offset == 0 or self.snapshot_offset >= offset

    def load(self, first_offset: int, at_most: int, snapshots: Sequence[int]) -> int:
        """Load the newest usable snapshot at or below offset `at_most`; return the offset to replay batches from.

        `first_offset` is the base offset of the first segment: batches below the log start offset are replayed, too.
        `snapshots` are the offsets of the snapshot files, in rising order. Damaged snapshot files are removed. If the
        disk cannot read a file (EIO), an older one and the batches after it give the same state. If no older file
        exists and the first batches are deleted, the state of their producers would be lost, so OSError is raised. All
        other read errors also raise OSError.
        """
        unreadable: OSError | None = None
        self._entries.clear()
        self._open.clear()
        self._decided.clear()
        self.end_offset, self.snapshot_offset = first_offset, -1
        for offset in reversed(snapshots):
            if offset > at_most or not self._fs.exists(self.snapshot_path(offset)):
                continue
            try:
                entries = decode_snapshot(self._fs.read_file(self.snapshot_path(offset)))
            except CorruptSnapshot as error:
                logger.warning("producer snapshot ignored", file=self.snapshot_path(offset), reason=str(error))
                with suppress(OSError):  # a log that is only read removes nothing
                    self._fs.unlink(self.snapshot_path(offset))
                continue
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                logger.warning("producer snapshot ignored", file=self.snapshot_path(offset), reason=str(error))
                unreadable = error
                continue
            self._entries = {entry.producer_id: entry for entry in entries if entry.producer_epoch != NO_EPOCH}
            open_transactions = [entry for entry in entries if entry.current_txn_first_offset >= 0]
            for entry in sorted(open_transactions, key=lambda entry: entry.current_txn_first_offset):
                self._open[entry.current_txn_first_offset] = entry.producer_id
            self.end_offset = self.snapshot_offset = offset
            break
        else:
            if unreadable is not None and first_offset:
                raise unreadable
        return max(self.end_offset, first_offset)

    def remove_snapshots(self, *, above: int | None = None, below: int | None = None) -> None:
        """Remove the snapshot files above an offset (after a truncation) or below an offset (after retention)."""
        for offset in self.snapshot_offsets():
            if (above is not None and offset > above) or (below is not None and offset < below):
                self.remove_snapshot(offset)

    def remove_stray_snapshots(self, bases: Sequence[int]) -> None:
        """Remove the snapshot files whose offset is not in `bases` (the segments' base offsets), but keep the newest.

        Recovery does not need the removed files. They were left by stops in the middle of a segment, and by compaction,
        which joins segments. If batches at the beginning of the log were deleted, the state of their producers cannot
        be replayed, and the newest file may not be on disk yet, because a stop does not sync it. So the files of the
        last `_STRAY_SNAPSHOTS` stops are kept, too.
        """
        stray = [offset for offset in self.snapshot_offsets()[:-1] if offset not in bases]
        if bases[0]:
            del stray[-_STRAY_SNAPSHOTS:]
        for offset in stray:
            self.remove_snapshot(offset)

    def remove_replaced_snapshots(self, bases: Sequence[int], later: int) -> None:
        """Remove the snapshot files of segments that compaction has joined into one, except that of the first segment.

        `bases` are the base offsets of these segments, and `later` is the base offset of the segment after them. If
        there is no snapshot at `later`, keep all files, because one of them may be the newest. The next start then
        removes them.
        """
        if self._fs.exists(self.snapshot_path(later)):
            for offset in bases[1:]:
                self.remove_snapshot(offset)

    def remove_snapshot(self, offset: int) -> None:
        """Remove the snapshot file of `offset` if it exists."""
        with suppress(FileNotFoundError):  # a thread may have removed it with a deleted segment
            self._fs.unlink(self.snapshot_path(offset))

    def snapshot_path(self, offset: int) -> str:
        """Return the path of the snapshot file as of `offset`."""
        return f"{self._directory}/{segment_name(offset, SNAPSHOT)}"
