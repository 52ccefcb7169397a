"""The settings of one partition's log, named as Kafka names its topic configs.

Owns names and defaults; where the values come from (topic overrides, broker settings) is the caller's business.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...protocol.record_walk import DEFAULT_LIMITS, RecordLimits

INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Sizes in bytes, times in ms; -1 means without limit for the retention settings.

    `durability`: "flush": the high watermark moves over what fdatasync has put on disk; "os": with the append.
    `roll_min_ms`: a segment younger than that, by the broker's clock, is not rolled for its age. `max_segments`: a
    partition with so many is rolled only where a file or its offsets would be too large.
    `unsaved_bytes`: a clean stop leaves at most so many bytes of the active segment for the next start to scan.
    `save_interval_bytes`: when so many bytes more are in the active segment, its state is saved, for a start after a
    crash. `internal`: the disk reserve may be used, because markers and coordinator state make room for everyone else.
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
    # What follows from the settings, worked out once because every append asks for it.
    compacted: bool = field(init=False)
    log_append_time: bool = field(init=False)
    max_batch_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "compacted", "compact" in self.cleanup_policy)
        object.__setattr__(self, "log_append_time", self.message_timestamp_type == "LogAppendTime")
        object.__setattr__(self, "max_batch_bytes", min(self.max_message_bytes, self.segment_bytes))
