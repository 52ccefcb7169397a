"""Read and write one segment: a `.log` file of record batches and its indexes.

This module appends at the end of the file, searches for positions, reads ranges, and keeps the segment's largest
timestamp. It never validates the appended batches, and does not know producers or the high watermark.

Lifecycle: created (active) → appended to → `finished` by a roll, which writes the indexes → loaded again on demand →
deleted. Positions are byte offsets in the file. `size` counts the bytes of successful appends. A failed write may leave
bytes after them, which the next append overwrites and recovery cuts off.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from ...protocol.batch_header import BatchHeader
from ..system.ports import Buffer, File, FileSystem
from .aborted_index import AbortedIndex
from .batch_scan import BrokenBatch, scan_batches, scan_windows, walk_headers
from .file_names import CHECKSUMS, DELETED, INDEXES, LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, segment_name
from .index_cache import IndexCache
from .indexes import (
    TXN_ENTRY_SIZE,
    CorruptIndex,
    IndexChecksums,
    OffsetIndex,
    TimeIndex,
    decode_transaction_index,
    encode_transaction_index,
)
from .results import CorruptLog

logger = structlog.get_logger(__name__)

_REBUILT_INTERVAL: Final = 4096
"""Bytes of batches between two entries of an index that is rebuilt while the log is in use."""

MAX_RELATIVE_OFFSET: Final = (1 << 31) - 1
MAX_SEGMENT_SIZE: Final = (1 << 31) - 1

_ABORTED_TXN_BYTES: Final = 250
"""Approximate memory of one entry of a loaded transaction index, in bytes."""


_COLD_BYTES: Final = 64 << 20
"""Segment size in bytes up to which loading the indexes takes only a millisecond or two."""


_LARGE_TXN_INDEX: Final = 64 << 10
"""Size in bytes up to which loading a transaction index takes only a millisecond or two."""


_NOTHING_WRITTEN: Final = IndexChecksums()


class SegmentIndexes(NamedTuple):
    """The offset and time index of a segment; `as_written` is False if they were rebuilt from the `.log` file."""

    offsets: OffsetIndex
    times: TimeIndex
    as_written: bool


class LogSegment:
    """One segment of a log. It holds offsets from its `base_offset` up to the next segment's base offset.

    `index_bytes`: while the segment is active, an upper bound for the size of each index. `cache` counts the indexes
    that are loaded from files; the segment drops them when the cache asks. While the segment is active or being
    scanned, it keeps its indexes, because they exist only in memory. `jitter_share`: the part of segment.jitter.ms by
    which the segment is rolled early, from 0 to 1; -1 until a random value is drawn.
    """

    __slots__ = (
        "_aborted",
        "_bytes_since_entry",
        "_directory",
        "_file",
        "_fs",
        "_offset_index",
        "_suffix",
        "_time_index",
        "_written",
        "base_offset",
        "cache",
        "created_ms",
        "first_timestamp",
        "index_bytes",
        "jitter_share",
        "max_timestamp",
        "offset_of_max_timestamp",
        "size",
    )

    def __init__(self, fs: FileSystem, directory: str, base_offset: int, *, created_ms: int, suffix: str = "") -> None:
        self._fs = fs
        self._directory = directory
        self._suffix = suffix
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.size = 0
        self.cache: IndexCache | None = None
        self.index_bytes = 0
        self.jitter_share = -1.0
        self.first_timestamp = -1
        self.max_timestamp = -1
        self.offset_of_max_timestamp = base_offset
        self._file: File | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._aborted: AbortedIndex | None = None
        self._bytes_since_entry = 0
        self._written = _NOTHING_WRITTEN

    # --- files -------------------------------------------------------------------------------------------------------

    def path(self, kind: str = LOG) -> str:
        """Return the path of the segment's `.log` file, or of its file with the suffix `kind`."""
        return f"{self._directory}/{segment_name(self.base_offset, kind)}{self._suffix}"

    def create(self) -> None:
        """Create an empty `.log` file and empty indexes. A file that a crash left behind is truncated."""
        file = self._fs.open(self.path(), create=True)
        try:
            if file.size():  # a file that nothing was written to needs no sync before its descriptor is closed
                file.truncate(0)
        except Exception:
            file.close()
            # The log continues in the previous segment, beyond this base offset. With this file left in place the log
            # would look damaged at the next start.
            self._fs.unlink(self.path())
            raise
        self._file = file
        self.reset_indexes()

    def reset_indexes(self) -> None:
        """Empty the indexes and timestamps, so that a scan of the segment can fill them with `index`."""
        self._offset_index = OffsetIndex(self.base_offset)
        self._time_index = TimeIndex(self.base_offset)
        self._aborted = AbortedIndex()
        self._written = _NOTHING_WRITTEN
        self._bytes_since_entry = self.index_bytes = 0
        self.first_timestamp = self.max_timestamp = -1
        self.offset_of_max_timestamp = self.base_offset

    @property
    def file(self) -> File:
        """The `.log` file, opened if it is not open yet. Raises OSError."""
        if self._file is None:
            self._file = self._fs.open(self.path())
        return self._file

    def reopened(self) -> LogSegment:
        """Return another object for the same files, with its own descriptors, for use in a thread.

        The log may close this segment while the thread reads the returned one.
        """
        segment = LogSegment(self._fs, self._directory, self.base_offset, created_ms=0, suffix=self._suffix)
        segment.size = self.size
        return segment

    def take_file(self) -> File | None:
        """Return the open file, or None, and forget it. The caller must close the file."""
        file, self._file = self._file, None
        return file

    def release(self) -> None:
        """Close the file and drop the indexes of a finished segment. Each is opened or loaded again on demand."""
        file = self.take_file()
        if file is not None:
            file.close()
        self.drop_indexes()

    def drop_indexes(self) -> None:
        """Drop the loaded indexes, and remove them from the cache's count."""
        if self.cache is not None:
            self.cache.drop(self)
        self.forget_indexes()

    def forget_indexes(self) -> None:
        """Free the memory of the loaded indexes; their files are read again on demand."""
        self._offset_index = self._time_index = None
        if self._aborted:  # an empty list needs no memory, and saves a look into the directory
            self._aborted = None

    def finished(self, cache: IndexCache | None) -> None:
        """Register the loaded indexes with `cache`, which may drop them, because the index files have been written."""
        self._written = _NOTHING_WRITTEN
        self.cache = cache
        if cache is not None and self.loaded_index_bytes:
            cache.loaded(self)

    @property
    def loaded_index_bytes(self) -> int:
        """Approximate memory of the loaded indexes, in bytes."""
        offsets, timestamps, aborted = self._offset_index, self._time_index, self._aborted
        return (
            (0 if offsets is None else len(offsets) * OffsetIndex.entry_size)
            + (0 if timestamps is None else len(timestamps) * TimeIndex.entry_size)
            + (0 if aborted is None else len(aborted) * _ABORTED_TXN_BYTES)
        )

    def _used(self, *, loaded: bool = False) -> None:
        """Tell the cache that the indexes are being used, or have just been loaded."""
        if self.cache is not None:
            if loaded:
                self.cache.loaded(self)
            else:
                self.cache.touch(self)

    def write_indexes(self) -> list[str]:
        """Write the index files without syncing them; return their paths. An empty transaction index has no file.

        Only entries that are not in the files yet are written. The checksums are written last. Until then, the old
        checksums and the old length of each index stay valid.
        """
        self.time_index.append(self.max_timestamp, self.offset_of_max_timestamp)
        before = self._written
        assert before.sizes is not None
        tails = (
            self.offset_index.encode(before.sizes[0] // OffsetIndex.entry_size),
            self.time_index.encode(before.sizes[1] // TimeIndex.entry_size),
            encode_transaction_index(self.aborted[before.sizes[2] // TXN_ENTRY_SIZE :]),
        )
        checksums = before.extended(tails, self.size)
        written = []
        for kind, start, content in (
            (OFFSET_INDEX, before.sizes[0], tails[0]),
            (TIME_INDEX, before.sizes[1], tails[1]),
            (TXN_INDEX, before.sizes[2], tails[2]),
            (CHECKSUMS, 0, checksums.encode()),
        ):
            path = self.path(kind)
            if kind == TXN_INDEX and not start and not content:
                if self._fs.exists(path):
                    self._fs.unlink(path)
                continue
            file = self._fs.open(path, create=True)
            try:
                if content:
                    file.write_at([content], start)
                file.truncate(start + len(content))
            finally:
                file.close()
            written.append(path)
        self._written = checksums
        return written

    def index_files_present(self) -> bool:
        """Return whether the offset index file and the time index file both exist."""
        return self._fs.exists(self.path(OFFSET_INDEX)) and self._fs.exists(self.path(TIME_INDEX))

    def rename(self, suffix: str) -> None:
        """Change the suffix of all files, the `.log` last: its new name shows that all files are in place."""
        for kind in (*INDEXES, LOG):
            source = self.path(kind)
            if self._fs.exists(source):
                self._fs.rename(source, f"{self._directory}/{segment_name(self.base_offset, kind)}{suffix}")
        self._suffix = suffix

    def set_aside(self) -> str:
        """Take the segment's files out of use quickly: remove the indexes and rename the `.log` file to `.deleted`.

        Return the path of the renamed file. The caller unlinks it later, because unlinking a large file takes a long
        time. A second call only returns the path.
        """
        path, aside = self.path(), f"{self._directory}/{segment_name(self.base_offset, LOG)}{DELETED}"
        if self._fs.exists(path):
            self._fs.rename(path, aside)
        self.unlink()
        return aside

    def unlink(self) -> None:
        """Remove all files of the segment, the `.log` first.

        If the `.log` file was open, the caller has already called `take_file` or `release`.
        """
        for kind in (LOG, *INDEXES):
            path = self.path(kind)
            if self._fs.exists(path):
                self._fs.unlink(path)

    # --- indexes, loaded on demand -----------------------------------------------------------------------------------

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, loaded or rebuilt if necessary. Raises BrokenBatch, OSError."""
        if self._offset_index is None:
            self._load_indexes()
        else:
            self._used()
        assert self._offset_index is not None
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, loaded or rebuilt if necessary. Raises BrokenBatch, OSError."""
        if self._time_index is None:
            self._load_indexes()
        else:
            self._used()
        assert self._time_index is not None
        return self._time_index

    @property
    def aborted(self) -> AbortedIndex:
        """The transaction index: the aborted transactions whose markers are in this segment.

        Raises CorruptIndex if its file is damaged; the caller then rebuilds the index and calls `take_aborted`. Raises
        OSError.
        """
        aborted = self._aborted
        if aborted is None:
            aborted = self._aborted = self.read_aborted()
            self._used(loaded=True)
        elif aborted:
            self._used()
        return aborted

    def aborted_at_hand(self) -> bool:
        """Whether the transaction index is loaded, or small enough to be loaded quickly. Raises OSError."""
        if self._aborted is not None:
            return True
        path = self.path(TXN_INDEX)
        return not self._fs.exists(path) or self._fs.file_size(path) <= _LARGE_TXN_INDEX

    def read_aborted(self) -> AbortedIndex:
        """Read and return the transaction index. This changes nothing in the segment and may be called from any thread.

        Raises CorruptIndex if the file is damaged, and OSError if it cannot be read.
        """
        content = self._index_file(TXN_INDEX)
        if self._fs.exists(self.path(CHECKSUMS)):
            checksums = IndexChecksums.decode(self._index_file(CHECKSUMS))
            checksums.check_reach(self.size)
            content = checksums.check_aborted(content)
        elif not self.index_files_present():
            raise CorruptIndex("the index files are missing")
        return decode_transaction_index(content, self.base_offset)

    def take_aborted(self, aborted: AbortedIndex, *, as_written: bool) -> None:
        """Use `aborted` as the transaction index. Write the index files if the index was rebuilt (not `as_written`)."""
        self._aborted = aborted
        if not as_written:
            self._write_anew()
        self._used(loaded=True)

    def distrust_indexes(self) -> None:
        """Put an empty `.checksums` file on disk if the segment has none, before its index files are rebuilt.

        Only segments of Apache Kafka have indexes without a `.checksums` file. If a crash leaves incomplete index
        files, they must not look like Kafka's: with a missing transaction index, readers would see aborted records.

        May be called from any thread. If this log is deleted meanwhile, its file names may already belong to another
        log. This does no harm: an empty `.checksums` file only makes the other log rebuild its indexes.
        """
        path = self.path(CHECKSUMS)
        if self._fs.exists(path):
            return
        try:
            file = self._fs.open(path, create=True)
            try:
                file.fdatasync()
            finally:
                file.close()
            self._fs.sync_directory(self._directory)
        except OSError as error:
            remedy = "none needed: the indexes are in memory, and are rebuilt when they are next needed"
            logger.warning("indexes not written", file=path, reason=str(error), remedy=remedy)
            with suppress(OSError):
                self._fs.unlink(path)

    def _write_anew(self) -> None:
        """Write rebuilt indexes to their files, if `distrust_indexes` has created a `.checksums` file.

        Nothing is written if the transaction index is damaged, because the new checksum would cover the damaged
        content.
        """
        if self._fs.exists(self.path(CHECKSUMS)):
            with suppress(OSError, CorruptIndex):  # the indexes are rebuilt again the next time they are loaded
                self.write_indexes()

    def _index_file(self, kind: str) -> bytes:
        """Return the content of an index file, or b"" if the file does not exist.

        Raises CorruptIndex if the disk cannot read the file, and OSError.
        """
        path = self.path(kind)
        try:
            return self._fs.read_file(path) if self._fs.exists(path) else b""
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise CorruptIndex(f"{path} cannot be read: {error}") from error

    def _load_indexes(self) -> None:
        """Load or rebuild the offset and time indexes in this thread."""
        self.take_indexes(self.read_indexes(self.file))

    @property
    def has_indexes(self) -> bool:
        """Whether the offset and time indexes are loaded."""
        return self._offset_index is not None

    def indexes_at_hand(self) -> bool:
        """Whether the offset and time indexes can be used without waiting. Loads them first if that is quick.

        Loading is slow if the segment is large or its indexes must be rebuilt. Raises OSError.
        """
        if self._offset_index is None and self.size <= _COLD_BYTES:
            with suppress(CorruptIndex):
                offsets, times, _ = self._read_index_files(self.size)
                self.take_indexes(SegmentIndexes(offsets, times, as_written=True))
        return self._offset_index is not None

    def read_indexes(self, file: File) -> SegmentIndexes:
        """Read the offset and time index from their files, or rebuild them from the `.log` if the files are damaged.

        This changes nothing in the segment object and may be called from any thread. Raises BrokenBatch and OSError.
        """
        try:
            offsets, times, _ = self._read_index_files(self.size)
        except CorruptIndex as error:
            logger.warning("index rebuilt", file=self.path(OFFSET_INDEX), reason=str(error))
        else:
            return SegmentIndexes(offsets, times, as_written=True)
        self.distrust_indexes()
        offsets, times = OffsetIndex(self.base_offset), TimeIndex(self.base_offset)
        timestamp, offset, since_entry = -1, self.base_offset, 0
        for position, header in walk_headers(file, 0, self.size):
            self.check_offset(position, header)
            if header.max_timestamp > timestamp:
                timestamp, offset = header.max_timestamp, header.last_offset
            if since_entry > _REBUILT_INTERVAL:
                offsets.append(header.last_offset, position)
                times.append(timestamp, offset)
                since_entry = 0
            since_entry += header.size
        return SegmentIndexes(offsets, times, as_written=False)

    def take_indexes(self, indexes: SegmentIndexes) -> None:
        """Use the indexes that `read_indexes` returned. Write the index files if the indexes were rebuilt."""
        self._offset_index, self._time_index = indexes.offsets, indexes.times
        if not indexes.as_written:
            self._write_anew()
        self._used(loaded=True)

    def _read_index_files(self, size: int) -> tuple[OffsetIndex, TimeIndex, AbortedIndex]:
        """Read and check the three indexes of a finished segment of `size` bytes. Raises CorruptIndex, OSError."""
        if not self.index_files_present():
            raise CorruptIndex("the offset index file or the time index file is missing")
        offsets, times, aborted, checksums = self._checked_index_files()
        if checksums is not None:
            checksums.check_reach(size)
        return offsets, times, aborted

    def _checked_index_files(self) -> tuple[OffsetIndex, TimeIndex, AbortedIndex, IndexChecksums | None]:
        """Read and check the three indexes. Also return their checksums, or None without a `.checksums` file.

        Raises CorruptIndex, OSError.
        """
        contents = self._index_file(OFFSET_INDEX), self._index_file(TIME_INDEX), self._index_file(TXN_INDEX)
        checksums = None
        if self._fs.exists(self.path(CHECKSUMS)):
            checksums = IndexChecksums.decode(self._index_file(CHECKSUMS))
            contents = checksums.check(contents)
        offsets, times, aborted = contents
        return (
            OffsetIndex.decode(offsets, self.base_offset, self.size, checked=checksums is not None),
            TimeIndex.decode(times, self.base_offset, checked=checksums is not None),
            decode_transaction_index(aborted, self.base_offset),
            checksums,
        )

    def load_finished(self) -> int:
        """Load the size, indexes and largest timestamp of a finished segment; return its end offset (exclusive).

        Raises CorruptIndex, BrokenBatch, OSError.
        """
        self.size = self._fs.file_size(self.path())
        self._offset_index, self._time_index, self._aborted = self._read_index_files(self.size)
        self.max_timestamp = self.time_index.last_timestamp()
        self.offset_of_max_timestamp = self.time_index.last_offset()
        end_offset = self.base_offset
        for _, header in walk_headers(self.file, self.offset_index.last_position(), self.size):
            end_offset = header.next_offset
        return end_offset

    def load_saved(self) -> int:
        """Load the saved indexes of an active segment, which may cover only the first part of its `.log` file.

        Set `size` to the covered bytes, and return the offset after the last covered batch. Raises CorruptIndex if the
        files are damaged, or if they do not record how many bytes they cover (as in older versions and in Kafka).
        Raises BrokenBatch, OSError.
        """
        self.size = self._fs.file_size(self.path())
        self._written = _NOTHING_WRITTEN
        offsets, times, self._aborted, checksums = self._checked_index_files()
        if checksums is None or checksums.covered < 0:
            raise CorruptIndex("the index files do not record how many bytes of the log they cover")
        if checksums.covered > self.size:
            raise CorruptIndex(f"the indexes cover {checksums.covered} bytes, but the log file has only {self.size}")
        self.size = checksums.covered
        self._written = checksums
        self._offset_index, self._time_index = offsets, times
        self.max_timestamp, self.offset_of_max_timestamp = times.last_timestamp(), times.last_offset()
        last = offsets.last_position()
        end_offset = self.base_offset
        for _, header in walk_headers(self.file, last, self.size):
            end_offset = header.next_offset
        if self.size:
            self.first_timestamp = self.batch_at(0).max_timestamp
        self._bytes_since_entry = self.size - last
        self.index_bytes = len(offsets) * TimeIndex.entry_size
        return end_offset

    # --- append ------------------------------------------------------------------------------------------------------

    def append(
        self, batches: Buffer, size: int, last_offset: int, max_timestamp: int, index_interval_bytes: int
    ) -> None:
        """Write `batches` at the end of the file. If OSError is raised, only bytes after the old end may have changed.

        `size`: of the batches, in bytes. `last_offset` and `max_timestamp`: the largest of all these batches.
        """
        position = self.size
        (self._file or self.file).write_at((batches,), position)
        self.size = position + size
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if self.first_timestamp < 0:
            self.first_timestamp = max_timestamp
        if self._bytes_since_entry > index_interval_bytes:
            self._add_entry(last_offset, position)
        self._bytes_since_entry += size

    def index(self, position: int, header: BatchHeader, index_interval_bytes: int) -> None:
        """Add a batch that is already in the file to the indexes, timestamps and size, as `append` does.

        Raises BrokenBatch if its offsets are too large for this segment.
        """
        self.check_offset(position, header)
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.offset_of_max_timestamp = header.last_offset
        if self.first_timestamp < 0:
            self.first_timestamp = header.max_timestamp
        if self._bytes_since_entry > index_interval_bytes:
            self._add_entry(header.last_offset, position)
        self._bytes_since_entry += header.size
        self.size = position + header.size

    def check_offset(self, position: int, header: BatchHeader) -> None:
        """Raise BrokenBatch if the last offset of a batch is too large for this segment."""
        if header.last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            raise BrokenBatch(position, f"offset {header.last_offset} is too far from base offset {self.base_offset}")

    def _add_entry(self, last_offset: int, position: int) -> None:
        """Add an entry for the batch at byte `position` to the offset and time indexes."""
        self.offset_index.append(last_offset, position)
        self.time_index.append(self.max_timestamp, self.offset_of_max_timestamp)
        self._bytes_since_entry = 0
        self.index_bytes += TimeIndex.entry_size  # the larger one of the two files

    def unlink_indexes(self) -> None:
        """Remove the index files; the indexes in memory stay."""
        self._written = _NOTHING_WRITTEN
        for kind in INDEXES:
            with suppress(FileNotFoundError):
                self._fs.unlink(self.path(kind))

    def cut(self, size: int) -> None:
        """Truncate the file to `size` bytes, a batch boundary. The caller rebuilds the indexes."""
        self.file.truncate(size)
        self.size = size

    # --- read --------------------------------------------------------------------------------------------------------

    def position_of(self, offset: int) -> int:
        """Return the position of the first batch whose last offset is at or after `offset`; `size` if there is none.

        Raises BrokenBatch.
        """
        for position, header in walk_headers(self.file, self.offset_index.lookup(offset), self.size):
            if header.last_offset >= offset:
                return position
        return self.size

    def damage(self, error: BrokenBatch, offset: int) -> CorruptLog:
        """Return the error for a broken batch. It names the first offset that is not known to be sound.

        This is the offset after the last batch before the damage. Without the indexes, finding it would be slow, so
        `offset` takes its place, the offset at which the reader has begun.
        """
        if self.has_indexes:
            offset = self.base_offset
            with suppress(BrokenBatch, OSError):
                for position, header in walk_headers(self.file, self.offset_index.floor(error.position - 1), self.size):
                    if position + header.size > error.position:
                        break
                    offset = header.next_offset
        return CorruptLog(self.path(), error.position, offset, error.reason)

    def batch_at(self, position: int) -> BatchHeader:
        """Return the header of the batch at byte `position`, which must be before the end. Raises BrokenBatch."""
        for _, header in walk_headers(self.file, position, self.size):
            return header
        raise AssertionError(f"{self.path()}: no batch begins at the end of the segment, byte {position}")

    def headers(self, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of every batch from byte `start` on; raise BrokenBatch at an invalid header."""
        return walk_headers(self.file, start, self.size)

    def batches(self, start: int = 0, *, verify: bool = True) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Yield (position, header, whole batch) from byte `start` on; raise BrokenBatch at an invalid batch."""
        return scan_batches(self.file, start, self.size, verify=verify)

    def scanned_offsets(self) -> range:
        """Scan the segment; return the range of offsets from its base to the last batch. Raises BrokenBatch."""
        return range(
            self.base_offset, max((header.next_offset for _, header, _ in self.batches()), default=self.base_offset)
        )

    def windows(self, start: int = 0) -> Iterator[bytes]:
        """Yield portions of whole batches with verified checksums, from byte `start` on. Raises BrokenBatch."""
        return scan_windows(self.file, start, self.size)

    def time_position(self, timestamp: int, from_offset: int) -> int:
        """Return the position of a batch at which a search for `timestamp` can begin.

        No earlier batch has a record with at least this timestamp at or after offset `from_offset`.
        """
        return self.offset_index.lookup(max(from_offset, self.time_index.lookup(timestamp)))
