"""Write batches to the active segment of one log, and begin the next segment when it is time.

This module decides when a segment is rolled. After a failed write, it cleans up, because the bytes of that write must
not stay after the end of the log. It does not know what the batches mean, or whether they are on disk.
"""

from __future__ import annotations

import errno
from typing import Final

import structlog

from ...protocol.errors import KafkaError
from ..system.descriptors import NO_SPACE, OUT_OF_DESCRIPTORS
from ..system.ports import Buffer, RandomIds
from .log_config import LogConfig
from .log_files import LogFiles
from .log_offsets import LogOffsets
from .results import no_descriptor_error, storage_error
from .saved_state import SavedState
from .segment import MAX_RELATIVE_OFFSET, MAX_SEGMENT_SIZE, LogSegment
from .segments import LogSegments
from .snapshot_writer import SnapshotWriter

logger = structlog.get_logger(__name__)

_LARGEST_INDEX: Final = 10 << 20
"""Index size in bytes at which a segment is rolled even if there are already too many segments or unwritten snapshots.
This is Kafka's default of segment.index.bytes. If a larger value is set, that value applies instead."""


class SegmentWriter:
    """Writes to the active segment of one log, without changing the log's offsets.

    `ids`: the source of the random part of segment.jitter.ms; None for no jitter. `_refusing`: whether the last write
    has failed, so that some of its bytes may still be in the file.
    """

    __slots__ = ("_files", "_ids", "_offsets", "_refusing", "_saved_state", "_segments", "_snapshots")

    def __init__(
        self,
        *,
        segments: LogSegments,
        offsets: LogOffsets,
        files: LogFiles,
        snapshots: SnapshotWriter,
        saved_state: SavedState,
        ids: RandomIds | None,
    ) -> None:
        self._segments = segments
        self._offsets = offsets
        self._files = files
        self._snapshots = snapshots
        self._saved_state = saved_state
        self._ids = ids
        self._refusing = False

    def write(
        self, batches: Buffer, size: int, last_offset: int, max_timestamp: int, now_ms: int, config: LogConfig
    ) -> None:
        """Write batches to the active segment, rolling it first if necessary; raise KAFKA_STORAGE_ERROR on failure."""
        segment = self._segments.active
        refusing = self._refusing
        try:
            if refusing:
                segment.file.truncate(segment.size)
            if segment.size and self._must_roll(segment, size, last_offset, max_timestamp, now_ms, config):
                segment = self._roll(now_ms)
            segment.append(batches, size, last_offset, max_timestamp, config.index_interval_bytes)
        except OSError as error:
            raise self._write_failed(segment, error) from error
        if refusing:
            self._refusing = False
            logger.info("writes succeed again", partition=self._files.name)

    def _write_failed(self, segment: LogSegment, error: OSError) -> KafkaError:
        """Cut off the bytes of a failed write, which was not acknowledged, and return the error for the writer.

        Bytes after the end of the log would look like damage after a clean stop. If they cannot be cut off now because
        the disk is full or no descriptor is free, they are cut off before the next write. Any other error of the cut
        takes the log offline.
        """
        if error.errno not in OUT_OF_DESCRIPTORS:
            try:
                segment.file.truncate(segment.size)
            except OSError as truncate_error:
                if truncate_error.errno not in (*NO_SPACE, *OUT_OF_DESCRIPTORS):
                    return self._files.disk_failed(truncate_error)
        if not self._refusing:
            self._refusing = True
            logger.warning(
                "write failed",
                partition=self._files.name,
                error=str(error),
                remedy="no record is lost; the partition accepts writes again when the cause is removed",
            )
        name, directory = self._files.name, self._files.directory
        if error.errno in NO_SPACE:
            self._files.flush_unsynced()  # an earlier sync may have lacked space, and has to be repeated first
            return storage_error(
                f"{name}: the disk of {directory} is full; free space on this disk; the broker then resumes writing by"
                " itself"
            )
        if error.errno in OUT_OF_DESCRIPTORS:
            return no_descriptor_error(name)
        return storage_error(f"{name}: writing to {directory} failed: {error}; nothing was appended")

    def cut_leftovers(self) -> None:
        """Cut off the bytes that a failed write may have left after the end of the log. Raises KAFKA_STORAGE_ERROR."""
        if not self._refusing:
            return
        active = self._segments.active
        try:
            active.file.truncate(active.size)
        except OSError as error:
            raise storage_error(f"{self._files.name}: {active.path()} cannot be truncated: {error}") from error

    # --- rolling -----------------------------------------------------------------------------------------------------

    def roll(self, now_ms: int) -> None:
        """Start a new active segment, unless the current one is empty; raise KAFKA_STORAGE_ERROR if that fails."""
        if self._files.failure is not None:
            raise self._files.failure.anew()
        if self._segments.active.size:
            try:
                self._roll(now_ms)
            except OSError as error:
                raise self._write_failed(self._segments.active, error) from error

    def _roll(self, now_ms: int) -> LogSegment:
        """Finish the active segment, create the next one and return it. An OSError leaves the log unchanged."""
        files = self._files
        segment = LogSegment(files.fs, files.directory, self._offsets.log_end_offset, created_ms=now_ms)
        try:
            paths = self._saved_state.save(sync=True)
            segment.create()
        except OSError:
            raise
        except Exception as error:
            logger.error("segment not begun", partition=self._files.name, exc_info=error)
            raise OSError(errno.ENOMEM, f"a new segment cannot be created: {error!r}") from error
        self._segments.add(segment)
        self._saved_state.rolled()
        # The old segment's unsynced bytes are registered for the next flush already. Its indexes must be on disk before
        # the recovery point passes the segment, because recovery does not check segments below the recovery point.
        files.sync_later(*paths)
        return segment

    def _must_roll(
        self, segment: LogSegment, size: int, last_offset: int, max_timestamp: int, now_ms: int, config: LogConfig
    ) -> bool:
        """Whether the segment must be rolled before an append, because of its size, its offsets or its age."""
        if segment.size + size > MAX_SEGMENT_SIZE or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if segment.size + size <= config.segment_bytes and segment.index_bytes < config.segment_index_bytes:
            first = segment.first_timestamp
            waited = max_timestamp - first if first >= 0 else now_ms - segment.created_ms
            surely_young = waited <= config.segment_ms - config.segment_jitter_ms
            if surely_young or not self._is_old(segment, waited, now_ms, config):
                return False
        # Keep the segment until retention or compaction has removed segments, or threads have written snapshots.
        if len(self._segments) >= config.max_segments or self._snapshots.is_behind:
            return segment.index_bytes >= max(config.segment_index_bytes, _LARGEST_INDEX)
        return True

    def _is_old(self, segment: LogSegment, waited: int, now_ms: int, config: LogConfig) -> bool:
        """Whether `segment`, whose first record is `waited` ms old, is rolled because of its age."""
        return waited > self._roll_age(segment, config) and abs(now_ms - segment.created_ms) >= config.roll_min_ms

    def _roll_age(self, segment: LogSegment, config: LogConfig) -> int:
        """Return the age in ms at which `segment` is rolled: segment.ms minus a random part of segment.jitter.ms.

        The part is drawn once per segment, so that the partitions of a topic do not roll their segments all at once.
        """
        jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        if jitter_ms <= 0 or self._ids is None:
            return config.segment_ms
        if segment.jitter_share < 0:
            segment.jitter_share = int.from_bytes(self._ids.uuid()[:4]) / (1 << 32)
        return config.segment_ms - int(jitter_ms * segment.jitter_share)
