"""Deleting the old end of a log: by time, by size, or because someone asked (KIP-107).

Owns which segments go and in what order it is made safe: the new log start offset is on disk before the first file
goes, so that a crash between never leaves a hole, and the loader finishes the work. Never removes the active segment,
nor anything that readers have not been allowed to see.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from ...protocol.errors import ErrorCode, KafkaError
from .flusher import sync_path

if TYPE_CHECKING:
    from .partition_log import PartitionLog

logger = structlog.get_logger(__name__)


def retain(log: PartitionLog, now_ms: int) -> int:
    """Delete what the log's retention settings don't keep; returns how many segments. May roll the active one."""
    config = log.config
    if "delete" not in config.cleanup_policy:
        return 0
    active = log.segments.active
    if config.retention_ms >= 0 and active.size and _expired(active.max_timestamp, now_ms, config.retention_ms):
        log.roll()
    excess = log.size - config.retention_bytes if config.retention_bytes >= 0 else -1
    keep_from = log.log_start_offset
    for segment in log.segments.finished_below(log.high_watermark):
        timestamp = segment.max_timestamp if segment.max_timestamp >= 0 else log.fs.modified_ms(segment.path())
        too_old = config.retention_ms >= 0 and _expired(timestamp, now_ms, config.retention_ms)
        too_much = excess >= segment.size > 0
        if not (too_old or too_much):
            break
        excess -= segment.size
        keep_from = log.segments.end_offset(segment, log.log_end_offset)
    if keep_from == log.log_start_offset:
        return 0
    return _advance_start(log, keep_from, "retention")


def delete_records_before(log: PartitionLog, offset: int) -> int:
    """Make `offset` (-1: the high watermark) the log start; returns the log start offset, which may be larger already.

    Raises KafkaError OFFSET_OUT_OF_RANGE when the offset is beyond the high watermark.
    """
    if offset == -1:
        offset = log.high_watermark
    if not 0 <= offset <= log.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.name}: can't delete up to offset {offset}, the high watermark is {log.high_watermark}",
        )
    if offset > log.log_start_offset:
        _advance_start(log, offset, "DeleteRecords")
    return log.log_start_offset


def _expired(timestamp: int, now_ms: int, retention_ms: int) -> bool:
    return now_ms - timestamp > retention_ms


def _advance_start(log: PartitionLog, offset: int, reason: str) -> int:
    log.set_start_offset(offset)
    doomed = log.segments.finished_below(offset)
    if doomed:
        logger.info("segments deleted", partition=log.name, segments=len(doomed), start_offset=offset, reason=reason)
        log.segments.remove(doomed)
        log.reader.forget()
        for segment in doomed:
            log.close_file(segment)
        first = log.segments.first.base_offset

        def unlink() -> None:
            # What the segments say of producers lives on in the snapshot that was taken when the next one began.
            with suppress(FileNotFoundError):
                sync_path(log.fs, log.producers.snapshot_path(first))
            log.fs.sync_directory(log.directory)
            for segment in doomed:
                segment.unlink()
            log.producers.remove_snapshots(below=first)

        in_background(log, unlink)
    return len(doomed)


def in_background(log: PartitionLog, job: Callable[[], None]) -> None:
    """Run file work that nobody waits for in the flush thread, where there is one."""
    if log.flusher is None:
        job()
    else:
        log.flusher.submit(job)
