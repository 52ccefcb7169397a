"""Delete the oldest segments of a log: by age, by size, or on a DeleteRecords request (KIP-107).

This module moves the log start offset, and chooses and removes segments. The new log start offset is on disk before the
first file is removed. So a crash between these steps never leaves a hole, and the loader finishes the removal. Readers
see the new log start offset immediately. Until it is on disk, a crash may undo the change. The active segment is never
removed.

Retention keeps records above the last stable offset: otherwise records of an open transaction would be deleted before
any read_committed reader could see them. (Kafka keeps only records above the high watermark.) DeleteRecords may delete
up to the high watermark, as in Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from ...protocol.errors import ErrorCode, KafkaError
from ..scheduling.steps import Steps, run_at_once, run_slice
from ..system.ports import Lane
from .log_config import LogConfig
from .log_files import CLOSE, LogFiles
from .log_offsets import LogOffsets
from .log_reader import LogReader
from .producer_state_manager import ProducerStateManager
from .removal import unlink_all
from .segment import LogSegment
from .segments import LogSegments
from .small_files import renew_file
from .snapshot_writer import SnapshotWriter

logger = structlog.get_logger(__name__)


class Retention:
    """The retention of one log.

    `roll` starts a new active segment. `on_start_offset(then)` puts the log start offset on disk and calls `then`
    afterwards. `_removed`: the segments below the log start offset whose files may still be open.
    """

    __slots__ = (
        "_files",
        "_offsets",
        "_on_start_offset",
        "_producers",
        "_reader",
        "_removed",
        "_roll",
        "_segments",
        "_snapshots",
    )

    def __init__(
        self,
        *,
        segments: LogSegments,
        offsets: LogOffsets,
        files: LogFiles,
        producers: ProducerStateManager,
        snapshots: SnapshotWriter,
        reader: LogReader,
        roll: Callable[[], None],
        on_start_offset: Callable[[Callable[[], None]], None] | None,
    ) -> None:
        self._segments = segments
        self._offsets = offsets
        self._files = files
        self._producers = producers
        self._snapshots = snapshots
        self._reader = reader
        self._roll = roll
        self._on_start_offset = on_start_offset
        self._removed: dict[LogSegment, None] = {}

    def apply(self, config: LogConfig, now_ms: int) -> int:
        """Apply the retention settings, and return the number of segments deleted. A failed log is not changed.

        The age of records is measured by the wall clock `now_ms`, as in Kafka. The active segment is rolled first if it
        is too old, so that it can be deleted. Raises KAFKA_STORAGE_ERROR.
        """
        if self._files.failure is not None:
            return 0
        keep_from = self._offsets.log_start_offset
        if "delete" in config.cleanup_policy:
            keep_from = max(keep_from, self._first_retained(config, now_ms))
        # DeleteRecords may have deleted all records of a segment that was active then.
        if not self._segments.finished_below(keep_from):
            return 0
        return self._advance_start(keep_from, "retention")

    def _first_retained(self, config: LogConfig, now_ms: int) -> int:
        """Return the first offset that the retention settings keep; roll the active segment first if it is too old."""
        segments = self._segments
        active = segments.active
        if config.retention_ms >= 0 and active.size and now_ms - self._newest_ms(active) > config.retention_ms:
            self._roll()
        excess = segments.size - config.retention_bytes if config.retention_bytes >= 0 else -1
        keep_from = 0
        for segment in segments.finished_below(self._offsets.last_stable_offset):
            too_old = config.retention_ms >= 0 and now_ms - self._newest_ms(segment) > config.retention_ms
            too_much = excess >= segment.size > 0
            if not (too_old or too_much):
                break
            excess -= segment.size
            keep_from = segments.end_offset(segment, self._offsets.log_end_offset)
        return keep_from

    def _newest_ms(self, segment: LogSegment) -> int:
        """Return the time (ms) of the newest record, or of the last write if no record has a timestamp, as in Kafka."""
        timestamp = segment.max_timestamp
        return timestamp if timestamp >= 0 else self._files.fs.modified_ms(segment.path())

    def delete_records_before(self, offset: int) -> int:
        """Advance the log start offset to `offset` (-1: the high watermark); return the resulting log start offset.

        The log start offset never goes back, so the result may be larger than `offset`. The change is on disk when
        `LogManager.start_offsets_on_disk` returns. Raises KafkaError OFFSET_OUT_OF_RANGE if `offset` is beyond the high
        watermark, and KAFKA_STORAGE_ERROR.
        """
        offsets = self._offsets
        if offset == -1:
            offset = offsets.high_watermark
        if not 0 <= offset <= offsets.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self._files.name}: cannot delete records before offset {offset}, because the high watermark is"
                f" {offsets.high_watermark}; choose an offset between 0 and the high watermark",
            )
        if offset > offsets.log_start_offset:
            self._advance_start(offset, "DeleteRecords")
        return offsets.log_start_offset

    def close_in_steps(self) -> Steps[None]:
        """Close the files of the removed segments. Call this after the log is closed."""
        removed, self._removed = self._removed, {}
        yield from self._files.close_files(removed)

    def _advance_start(self, offset: int, reason: str) -> int:
        """Set the log start offset, remove the segments below it, and return their number. `reason` is logged."""
        files, segments, producers = self._files, self._segments, self._producers
        if files.failure is not None:
            raise files.failure.anew()
        self._offsets.start_at(offset)
        doomed = segments.finished_below(offset)
        if not doomed:
            self._when_start_is_on_disk(lambda: None)
            return 0
        logger.info("segments deleted", partition=files.name, segments=len(doomed), start_offset=offset, reason=reason)
        segments.remove_first(len(doomed))
        self._reader.forget()
        self._removed.update(dict.fromkeys(doomed))
        first = segments.first.base_offset

        def unlink() -> None:
            # The producer state of the removed segments is in the snapshot that was begun with the next segment.
            self._snapshots.require(first, [segment.reopened() for segment in doomed])
            with files.lock:
                if files.closed:
                    return  # the file names may belong to a new partition by now; the next start removes the segments
                renew_file(files.fs, producers.snapshot_path(first))
                files.fs.sync_directory(files.directory)
                aside = [segment.set_aside() for segment in doomed]
                producers.remove_snapshots(below=first)
            unlink_all(files.fs, aside)  # without the lock, which a flush of the log needs

        def remove() -> Steps[None]:
            for segment in doomed:
                self._removed.pop(segment, None)
                files.close_file(segment)
                yield CLOSE
            if files.flusher is None:
                unlink()
            elif not files.closed:
                files.flusher.submit(unlink, f"removal of segments of {files.name} below {first}", Lane.REMOVAL)

        # Until the start offset is on disk, a flush still syncs the files of these segments, because a crash may undo
        # the new start offset.
        self._when_start_is_on_disk(lambda: self._run_in_turns(remove()))
        return len(doomed)

    def _run_in_turns(self, steps: Steps[None]) -> None:
        """Run the first slice of the steps at once, and the other slices in the next turns of the event loop."""
        if self._files.flusher is None:
            run_at_once(steps)
        elif run_slice(steps) is None:
            asyncio.get_running_loop().call_soon(self._run_in_turns, steps)

    def _when_start_is_on_disk(self, then: Callable[[], None]) -> None:
        """Call `then` when the log start offset is on disk, or at once if the log has no `on_start_offset`."""
        if self._on_start_offset is None:
            then()
        else:
            self._on_start_offset(then)
