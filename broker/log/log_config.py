"""Define the settings of one partition's log, named like Kafka's topic configs.

This module defines the names and the defaults. The caller decides where the values come from (topic overrides, broker
settings).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...protocol.record_walk import DEFAULT_LIMITS, RecordLimits

INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one log. Sizes are in bytes and times in ms. For a retention setting, -1 means no limit.

    `durability`: with "flush" the high watermark advances when fdatasync has put the records on disk; with "os" it
    advances with the append.
    `roll_min_ms`: a segment that is younger than this, by the broker's clock, is not rolled because of `segment_ms`.
    `max_segments`: a log with this many segments rolls the active one only if its file, its relative offsets or its
    indexes would become too large.
    `unsaved_bytes`: after a clean stop, the next start has to scan at most this many bytes of the active segment.
    `save_interval_bytes`: the state of the active segment is saved each time it has grown by this many bytes, so that a
    start after a crash has less to scan.
    `internal`: whether the log may use the disk reserve. The logs of internal topics may, because markers and
    coordinator state help to free space.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    roll_min_ms: int = 0
    max_segments: int = 10_000
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    cleanup_policy: tuple[str, ...] = ("delete",)
    max_message_bytes: int = 1048588
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = 3600_000
    delete_retention_ms: int = 24 * 3600 * 1000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    file_delete_delay_ms: int = 60_000
    producer_id_expiration_ms: int = 24 * 3600 * 1000
    unsaved_bytes: int = 32 * 1024
    save_interval_bytes: int = 32 << 20
    durability: str = "flush"
    internal: bool = False
    record_limits: RecordLimits = DEFAULT_LIMITS
    # Derived from the settings once, because every append needs these values.
    compacted: bool = field(init=False)
    log_append_time: bool = field(init=False)
    max_batch_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "compacted", "compact" in self.cleanup_policy)
        object.__setattr__(self, "log_append_time", self.message_timestamp_type == "LogAppendTime")
        object.__setattr__(self, "max_batch_bytes", min(self.max_message_bytes, self.segment_bytes))
