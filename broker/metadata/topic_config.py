"""Define the settings of a topic in one table, with Kafka's names and the broker settings that they fall back to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...protocol.record_walk import RecordLimits
from ...settings import ConfigError, Setting, Table, at_least, boolean, long, text_list
from ..config import BrokerConfig
from ..log import LogConfig


def _as_broker(name: str) -> Any:
    """Declare a topic setting like the broker setting `name`. A topic without this setting uses the broker's value."""
    return replace(BrokerConfig.rows[name], aliases=(), dynamic=False, synonyms=(name,))


def _throttled_replicas(value: list[str]) -> str | None:
    """Check the value of a `*.replication.throttled.replicas` setting as Kafka does."""
    if value == ["*"] or all(re.fullmatch(r"\d+:\d+", item) for item in value):
        return None
    return "is neither * nor a list of partition:broker pairs"


def _no_remote_storage(value: bool) -> str | None:
    return "needs tiered storage, which this broker does not have. Use false or omit the setting" if value else None


class TopicConfig(Table):
    """All settings of a topic. `topic_config` creates them from the broker's settings and the topic's overrides."""

    cleanup_policy: list[str] = _as_broker("log.cleanup.policy")
    compression_type: str = _as_broker("compression.type")
    compression_gzip_level: int = _as_broker("compression.gzip.level")
    compression_lz4_level: int = _as_broker("compression.lz4.level")
    compression_zstd_level: int = _as_broker("compression.zstd.level")
    delete_retention_ms: int = _as_broker("log.cleaner.delete.retention.ms")
    file_delete_delay_ms: int = _as_broker("log.segment.delete.delay.ms")
    flush_messages: int = _as_broker("log.flush.interval.messages")
    flush_ms: int = _as_broker("log.flush.interval.ms")
    follower_replication_throttled_replicas: list[str] = text_list(
        [], _throttled_replicas, doc="Accepted without effect, because a partition has a single replica."
    )
    index_interval_bytes: int = _as_broker("log.index.interval.bytes")
    leader_replication_throttled_replicas: list[str] = text_list(
        [], _throttled_replicas, doc="Accepted without effect, because a partition has a single replica."
    )
    local_retention_bytes: int = long(
        -2, at_least(-2), doc="Accepted without effect, because all segments are on the local disk."
    )
    local_retention_ms: int = long(
        -2, at_least(-2), doc="Accepted without effect, because all segments are on the local disk."
    )
    max_compaction_lag_ms: int = _as_broker("log.cleaner.max.compaction.lag.ms")
    max_message_bytes: int = _as_broker("message.max.bytes")
    message_timestamp_after_max_ms: int = _as_broker("log.message.timestamp.after.max.ms")
    message_timestamp_before_max_ms: int = _as_broker("log.message.timestamp.before.max.ms")
    message_timestamp_type: str = _as_broker("log.message.timestamp.type")
    min_cleanable_dirty_ratio: float = _as_broker("log.cleaner.min.cleanable.ratio")
    min_compaction_lag_ms: int = _as_broker("log.cleaner.min.compaction.lag.ms")
    min_insync_replicas: int = _as_broker("min.insync.replicas")
    preallocate: bool = _as_broker("log.preallocate")
    remote_log_copy_disable: bool = boolean(
        False, doc="Accepted without effect, because all segments are on the local disk."
    )
    remote_log_delete_on_disable: bool = boolean(
        False, doc="Accepted without effect, because all segments are on the local disk."
    )
    remote_storage_enable: bool = boolean(
        False, _no_remote_storage, doc="Can only be false, because all segments are on the local disk."
    )
    retention_bytes: int = _as_broker("log.retention.bytes")
    retention_ms: int = long(
        604800000,
        at_least(-1),
        doc="The time in ms for which records are kept. -1: forever.",
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    )
    segment_bytes: int = _as_broker("log.segment.bytes")
    segment_index_bytes: int = _as_broker("log.index.size.max.bytes")
    segment_jitter_ms: int = long(
        0,
        at_least(0),
        doc="The largest random time in ms that is subtracted from segment.ms.",
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
    )
    segment_ms: int = long(
        604800000,
        at_least(1),
        doc="The age in ms of a segment's first record at which the next segment begins.",
        synonyms=("log.roll.ms", "log.roll.hours"),
    )
    unclean_leader_election_enable: bool = _as_broker("unclean.leader.election.enable")


def broker_default(setting: Setting, broker: BrokerConfig) -> Any:
    """Return the value of a topic setting for topics that do not set it."""
    match setting.name:
        case "retention.ms":
            return broker.retention_ms
        case "segment.ms":
            return broker.roll_ms
        case "segment.jitter.ms":
            return broker.roll_jitter_ms
    return broker.get(setting.synonyms[0]) if setting.synonyms else setting.default


def topic_config(broker: BrokerConfig, own: Mapping[str, str]) -> TopicConfig:
    """Return a topic's settings: the values in `own`, and the broker's values for the rest.

    Raises ConfigError if a name in `own` is unknown or a value is invalid.
    """
    for name in own:
        if name not in TopicConfig.rows:  # the name must be exact, because the protocol has no aliases
            raise ConfigError(name, "is not a topic setting. Correct its name")
    defaults = {name: broker_default(row, broker) for name, row in TopicConfig.rows.items()}
    return TopicConfig(defaults | dict(own), explicit=own)


def stored_config(broker: BrokerConfig, own: Mapping[str, str]) -> TopicConfig:
    """Return a topic's settings as `topic_config` does, but ignore unknown names and invalid values in `own`.

    They are not refused here, because another release may have stored them.
    """
    try:
        return topic_config(broker, own)
    except ConfigError:
        return topic_config(broker, {name: value for name, value in own.items() if _fits(broker, name, value)})


def log_config(broker: BrokerConfig, own: Mapping[str, str], *, internal: bool) -> LogConfig:
    """Return the settings for a partition's log.

    Invalid settings in `own`, which another release may have stored, are ignored.
    """
    topic = stored_config(broker, own)
    return LogConfig(
        segment_bytes=topic.segment_bytes,
        segment_ms=topic.segment_ms,
        segment_jitter_ms=topic.segment_jitter_ms,
        roll_min_ms=broker.log_roll_min_ms,
        max_segments=broker.log_max_segments,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
        cleanup_policy=tuple(topic.cleanup_policy),
        max_message_bytes=topic.max_message_bytes,
        index_interval_bytes=topic.index_interval_bytes,
        segment_index_bytes=topic.segment_index_bytes,
        message_timestamp_type=topic.message_timestamp_type,
        message_timestamp_before_max_ms=topic.message_timestamp_before_max_ms,
        message_timestamp_after_max_ms=topic.message_timestamp_after_max_ms,
        delete_retention_ms=topic.delete_retention_ms,
        min_cleanable_dirty_ratio=topic.min_cleanable_dirty_ratio,
        min_compaction_lag_ms=topic.min_compaction_lag_ms,
        max_compaction_lag_ms=topic.max_compaction_lag_ms,
        file_delete_delay_ms=topic.file_delete_delay_ms,
        durability=broker.durability,
        producer_id_expiration_ms=broker.producer_id_expiration_ms,
        internal=internal,
        record_limits=RecordLimits(broker.max_batch_objects, broker.max_record_headers, broker.max_decompressed_bytes),
    )


def _fits(broker: BrokerConfig, name: str, value: str) -> bool:
    try:
        topic_config(broker, {name: value})
    except ConfigError:
        return False
    return True
