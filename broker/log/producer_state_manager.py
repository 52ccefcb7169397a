"""The state of all producers of one partition: who may append what, and which transactions are open.

Owns: the entries by producer id, open transactions by first offset, decided ones whose marker is not below the high
watermark yet, the snapshot files, expiry. Never reads or writes batches; the log tells it what it appended or found.

Invariants:

* A pure function of the log's batches below `end_offset` (and of the expiry of idle producers): replaying them from any
  snapshot gives the same state.
* A producer with an open transaction never expires.
* `first_unstable_offset` is the first offset of a transaction that is open, or whose marker lies at or behind the high
  watermark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

import structlog

from ...protocol.batch_header import BatchHeader
from ...protocol.control_records import ControlRecord, ControlType
from ..ports import FileSystem
from .file_names import SNAPSHOT, parse_segment_name, segment_name
from .producer_snapshot import CorruptSnapshot, decode_snapshot, encode_snapshot
from .producer_state import NO_EPOCH, BatchMetadata, ProducerStateEntry
from .results import CLIENT, AbortedTxn, AppendOrigin
from .small_files import write_file

logger = structlog.get_logger(__name__)


class ProducerStateManager:
    """The state of all producers of one partition; `where` names it in errors.

    `end_offset` (exclusive): what the state covers. `snapshot_offset`: what the last snapshot covers, -1 without one.
    """

    __slots__ = (
        "_decided",
        "_directory",
        "_entries",
        "_fs",
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
        # By first offset, which rises with every transaction that begins: the first key is the smallest.
        self._open: dict[int, int] = {}
        # First offset → marker offset, for decided transactions whose marker may not be visible yet.
        self._decided: dict[int, int] = {}
        self.end_offset = 0
        self.snapshot_offset = -1

    # --- looking -----------------------------------------------------------------------------------------------------

    def entry(self, producer_id: int) -> ProducerStateEntry | None:
        """What is known of a producer id; the caller must not change it."""
        return self._entries.get(producer_id)

    def entries(self) -> Iterable[ProducerStateEntry]:
        """All producers, in no order."""
        return self._entries.values()

    def __len__(self) -> int:
        return len(self._entries)

    def open_transactions(self) -> list[ProducerStateEntry]:
        """The producers with an open transaction in this partition, oldest transaction first."""
        return [self._entries[producer_id] for producer_id in self._open.values()]

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether this epoch of the producer has written transactional records that no marker has followed."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.current_txn_first_offset >= 0 and entry.producer_epoch == producer_epoch

    @property
    def has_unstable(self) -> bool:
        """Whether there is a `first_unstable_offset`."""
        return bool(self._open or self._decided)

    @property
    def first_unstable_offset(self) -> int | None:
        """See the module; None when everything is decided and visible."""
        first = next(iter(self._open), None)
        if self._decided:
            decided = min(self._decided)
            return decided if first is None or decided < first else first
        return first

    # --- appending ---------------------------------------------------------------------------------------------------

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The batch that `header` repeats, if it is one of the producer's last five."""
        entry = self._entries.get(header.producer_id)
        return None if entry is None else entry.find_duplicate(header)

    def check(
        self,
        header: BatchHeader,
        marker: ControlRecord | None,
        origin: AppendOrigin,
        transaction_version: int,
        pending: dict[int, ProducerStateEntry] | None = None,
    ) -> None:
        """Raise KafkaError if the batch (with `marker` when it is a control batch) may not follow.

        `pending` holds entries as they will be once earlier batches of the same append are in the log.
        """
        producer_id = header.producer_id
        entry = (pending and pending.get(producer_id)) or self._entries.get(producer_id)
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
        """Take up a batch that is in the log at `base_offset`; returns the transaction that it aborted, if any.

        `now` is the monotonic time when it is written now; after a replay, `seen` has to follow.
        Markers of a kind that this release doesn't know, and control batches emptied by compaction, change nothing.
        """
        producer_id = header.producer_id
        last_offset = base_offset + header.last_offset_delta
        self.end_offset = last_offset + 1
        if producer_id < 0 or (header.is_control and (marker is None or marker.type is ControlType.UNKNOWN)):
            return None
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerStateEntry(producer_id)
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
        """Forget the decided transactions whose markers are visible."""
        if self._decided:
            for first_offset, marker_offset in list(self._decided.items()):
                if marker_offset < high_watermark:
                    del self._decided[first_offset]

    def skip_to(self, offset: int) -> None:
        """There is nothing between `end_offset` and `offset` (compaction, the start of the log)."""
        self.end_offset = max(self.end_offset, offset)

    def seen(self, now: float) -> None:
        """The time of all producers runs from `now` on, the start: for how long they were idle before is not known.

        The log has timestamps of the producers' clocks and of a wall clock that may have jumped, before the start or
        since. To believe them could forget a producer too early, and append its repeated batch twice.
        """
        for entry in self._entries.values():
            entry.last_seen = now

    def expire(self, now: float, expiration_ms: int) -> list[int]:
        """Forget producers idle for `expiration_ms`, never one with an open transaction; returns their ids.

        `now` is the monotonic clock's: neither a jump of the wall clock nor a record's timestamp counts.
        """
        idle_since = now - expiration_ms / 1000
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.current_txn_first_offset < 0 and entry.last_seen <= idle_since
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return expired

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot_offsets(self) -> list[int]:
        """The offsets of the snapshot files, smallest first."""
        parsed = (parse_segment_name(name) for name in self._fs.list(self._directory))
        return sorted(found[0] for found in parsed if found is not None and found[1] == SNAPSHOT)

    def take_snapshot(self) -> str | None:
        """Write the state to its file (not synced) unless the last one covers as much; returns the path written."""
        if self.snapshot_offset == self.end_offset:
            return None
        path = self.snapshot_path(self.end_offset)
        write_file(self._fs, path, encode_snapshot(self._entries.values()))
        self.snapshot_offset = self.end_offset
        return path

    def is_saved_at(self, offset: int) -> bool:
        """Whether a start finds in snapshots what batches below `offset` say, which is where a segment begins."""
        return offset == 0 or self.snapshot_offset >= offset

    def load(self, first_offset: int, at_most: int, snapshots: Sequence[int]) -> int:
        """Begin from the newest usable snapshot at or below `at_most`; returns from where on to replay batches.

        `first_offset`: where the files begin (deleted records that are still there are as good as any others).
        `snapshots`: the offsets of the snapshot files, rising; one that is damaged is removed.
        """
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
                self._fs.unlink(self.snapshot_path(offset))
                continue
            self._entries = {entry.producer_id: entry for entry in entries if entry.producer_epoch != NO_EPOCH}
            open_transactions = [entry for entry in entries if entry.current_txn_first_offset >= 0]
            for entry in sorted(open_transactions, key=lambda entry: entry.current_txn_first_offset):
                self._open[entry.current_txn_first_offset] = entry.producer_id
            self.end_offset = self.snapshot_offset = offset
            break
        return max(self.end_offset, first_offset)

    def remove_snapshots(self, *, above: int | None = None, below: int | None = None) -> None:
        """Remove snapshot files above (after a truncation) or below (after retention) an offset."""
        for offset in self.snapshot_offsets():
            if (above is not None and offset > above) or (below is not None and offset < below):
                self.remove_snapshot(offset)

    def remove_stray_snapshots(self, bases: Collection[int]) -> None:
        """Remove the snapshot files that no segment begins at, but for the newest: no recovery starts from them.

        They are left by stops in the middle of a segment, and by compaction, which joins segments.
        """
        for offset in self.snapshot_offsets()[:-1]:
            if offset not in bases:
                self.remove_snapshot(offset)

    def remove_snapshot(self, offset: int) -> None:
        """Remove the snapshot file of that offset, if it is there."""
        with suppress(FileNotFoundError):  # the flush thread removes those of deleted segments
            self._fs.unlink(self.snapshot_path(offset))

    def snapshot_path(self, offset: int) -> str:
        return f"{self._directory}/{segment_name(offset, SNAPSHOT)}"
