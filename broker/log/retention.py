"""Delete the oldest segments of a log: by age, by size, or at a DeleteRecords request (KIP-107).

Owns the log start offset, and the choice and the removal of segments. The new log start offset is on disk before the
first file is removed. So a crash in between never leaves a hole, and the loader finishes the removal. Readers see the
new log start offset at once. A crash may undo the change as long as it is not on disk. The active segment is never
removed.

Retention keeps records above the last stable offset: otherwise records of an open transaction would be deleted before
any read_committed reader could see them. (Kafka keeps only records above the high watermark.) DeleteRecords may delete
up to the high watermark, as in Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from ...protocol.errors import ErrorCode, KafkaError
from ..scheduling.steps import Steps, run_at_once, run_slice
from ..system.ports import Clock, Lane, Threads
from .flushed_log import CLOSE, FlushedLog
from .log_reader import LogReader
from .producer_state_manager import ProducerStateManager
from .removal import unlink_all
from .segment import LogSegment
from .small_files import renew_file
from .snapshot_writer import SnapshotWriter

logger = structlog.get_logger(__name__)


class RetainedLog(FlushedLog):
    """A log that deletes its oldest segments; a base class of `PartitionLog`.

    `on_start_offset(then)` puts the log start offset on disk and calls `then` afterwards. `_removed`: the segments
    below it whose files may still be open.
    """

    __slots__ = (
        "_on_start_offset",
        "_removed",
        "clock",
        "reader",
        "snapshots",
    )

    def __init__(
        self,
        name: str,
        directory: str,
        *,
        clock: Clock,
        threads: Threads | None,
        on_start_offset: Callable[[Callable[[], None]], None] | None,
        **parts: Any,
    ) -> None:
        super().__init__(name, directory, threads=threads, **parts)
        self.clock = clock
        self.reader = LogReader(
            self.segments, threads, lambda: ProducerStateManager(self.fs, self.directory, self.name)
        )
        self.snapshots = SnapshotWriter(self, threads)
        self._on_start_offset = on_start_offset
        self._removed: dict[LogSegment, None] = {}

    def roll(self) -> None:
        """Start a new active segment, unless the current one is empty."""
        raise NotImplementedError

    def retain(self, now_ms: int) -> int:
        """Do the work of `retain_in_steps` without pauses, and return its result."""
        return run_at_once(self.retain_in_steps(now_ms))

    def retain_in_steps(self, now_ms: int) -> Steps[int]:
        """Expire idle producers, apply the retention settings, and return the number of segments deleted.

        The age of records is measured by the wall clock `now_ms`, as in Kafka. The idle time of producers is measured
        by the monotonic clock, because a jump of the wall clock must not make a repeated batch look like a new one.

        The active segment is rolled first if it is too old, so that it can be deleted. A log that has failed is left
        alone. Raises KAFKA_STORAGE_ERROR.
        """
        yield from self.producers.expire(self.clock.monotonic(), self.config.producer_id_expiration_ms)
        if self.failure is not None:
            return 0
        config = self.config
        keep_from = self.log_start_offset
        if "delete" in config.cleanup_policy:
            keep_from = max(keep_from, self._first_retained(now_ms))
        # DeleteRecords may have deleted all records of a segment that was active then.
        if not self.segments.finished_below(keep_from):
            return 0
        return self._advance_start(keep_from, "retention")

    def _first_retained(self, now_ms: int) -> int:
        """Return the first offset that the retention settings keep; roll the active segment first if it is too old."""
        config = self.config
        active = self.segments.active
        if config.retention_ms >= 0 and active.size and now_ms - active.max_timestamp > config.retention_ms:
            self.roll()
        excess = self.size - config.retention_bytes if config.retention_bytes >= 0 else -1
        keep_from = 0
        for segment in self.segments.finished_below(self.last_stable_offset):
            timestamp = segment.max_timestamp if segment.max_timestamp >= 0 else self.fs.modified_ms(segment.path())
            too_old = config.retention_ms >= 0 and now_ms - timestamp > config.retention_ms
            too_much = excess >= segment.size > 0
            if not (too_old or too_much):
                break
            excess -= segment.size
            keep_from = self.segments.end_offset(segment, self.log_end_offset)
        return keep_from

    def delete_records_before(self, offset: int) -> int:
        """Advance the log start offset to `offset` (-1: the high watermark); return the resulting log start offset.

        The log start offset never goes back, so the result may be larger than `offset`. The change is on disk when
        `LogManager.start_offsets_on_disk` returns. Raises KafkaError OFFSET_OUT_OF_RANGE if `offset` is beyond the high
        watermark, and KAFKA_STORAGE_ERROR.
        """
        if offset == -1:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: cannot delete records before offset {offset}, because the high watermark is"
                f" {self.high_watermark}; choose an offset between 0 and the high watermark",
            )
        if offset > self.log_start_offset:
            self._advance_start(offset, "DeleteRecords")
        return self.log_start_offset

    def _close_in_steps(self, reason: KafkaError) -> Steps[None]:
        self.reader.forget()
        yield from super()._close_in_steps(reason)
        removed, self._removed = self._removed, {}
        yield from self._close_all(removed)

    def _advance_start(self, offset: int, reason: str) -> int:
        """Set the log start offset, remove the segments below it, and return their number. `reason` is logged."""
        if self.failure is not None:
            raise self.failure
        self.log_start_offset = offset
        self._update_last_stable_offset()
        doomed = self.segments.finished_below(offset)
        if not doomed:
            self._when_start_is_on_disk(lambda: None)
            return 0
        logger.info("segments deleted", partition=self.name, segments=len(doomed), start_offset=offset, reason=reason)
        self.segments.remove_first(len(doomed))
        self.reader.forget()
        self._removed.update(dict.fromkeys(doomed))
        first = self.segments.first.base_offset

        def unlink() -> None:
            # The producer state of the removed segments is in the snapshot that was begun with the next segment.
            self.snapshots.require(first, [segment.reopened() for segment in doomed])
            with self.files_lock:
                if self.closed:
                    return  # the file names may belong to a new partition by now; the next start removes the segments
                renew_file(self.fs, self.producers.snapshot_path(first))
                self.fs.sync_directory(self.directory)
                aside = [segment.set_aside() for segment in doomed]
                self.producers.remove_snapshots(below=first)
            unlink_all(self.fs, aside)  # without the lock, which a flush of the log needs

        def remove() -> Steps[None]:
            for segment in doomed:
                self._removed.pop(segment, None)
                self.close_file(segment)
                yield CLOSE
            if self.flusher is None:
                unlink()
            elif not self.closed:
                self.flusher.submit(unlink, f"removal of segments of {self.name} below {first}", Lane.REMOVAL)

        # Until then a flush still syncs the files of these segments, because a crash may undo the new start offset.
        self._when_start_is_on_disk(lambda: self._run_in_turns(remove()))
        return len(doomed)

    def _run_in_turns(self, steps: Steps[None]) -> None:
        """Run steps: the first slice at once, and the others in the next turns of the event loop."""
        if self.flusher is None:
            run_at_once(steps)
        elif run_slice(steps) is None:
            asyncio.get_running_loop().call_soon(self._run_in_turns, steps)

    def _when_start_is_on_disk(self, then: Callable[[], None]) -> None:
        """Call `then` when the log start offset is on disk, or at once if the log has no `on_start_offset`."""
        if self._on_start_offset is None:
            then()
        else:
            self._on_start_offset(then)
