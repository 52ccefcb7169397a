"""The broker's settings: one table, with Kafka's names and defaults wherever Kafka has the setting.

Where Kafka has a default that one node cannot satisfy (replication factors, in-sync replicas), ours is 1, and any other
value is refused with the key named. Settings that Kafka has and that mean nothing here (thread counts, replica
fetchers, controller quorum) are accepted and reported, so that a server.properties can be tried as it is.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .settings import (
    INT32_MAX,
    INT64_MAX,
    ConfigError,
    ConfigTable,
    Setting,
    at_least,
    between,
    boolean,
    double,
    gzip_level,
    integer,
    long,
    normal_name,
    one_replica,
    short,
    text,
    text_list,
)

ENVIRONMENT_PREFIX: Final = "ONCELOG_"

WITHOUT_MEANING: Final = frozenset(
    {
        "process.roles",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        "controller.listener.names",
        "inter.broker.listener.name",
        "num.network.threads",
        "num.io.threads",
        "num.replica.fetchers",
        "num.recovery.threads.per.data.dir",
        "background.threads",
        "queued.max.requests",
        "replica.lag.time.max.ms",
        "replica.socket.timeout.ms",
        "replica.fetch.max.bytes",
        "auto.leader.rebalance.enable",
        "controlled.shutdown.enable",
        "log.cleaner.threads",
        "log.cleaner.dedupe.buffer.size",
        "offsets.commit.required.acks",
        "log.flush.scheduler.interval.ms",
        "log.flush.offset.checkpoint.interval.ms",
        "zookeeper.connect",
    }
)
"""Kafka settings that are accepted without effect."""

SECURITY_PREFIXES: Final = (
    "ssl.",
    "sasl.",
    "listener.name.",
    "delegation.token.",
    "password.encoder.",
    "zookeeper.ssl.",
    "security.",
    "authorizer.",
    "principal.builder.",
)
SECURITY_NAMES: Final = frozenset(
    {
        "super.users",
        "allow.everyone.if.no.acl.found",
        "standard.authorizer.allow.everyone.if.no.acl.found",
        "connections.max.reauth.ms",
        "connection.failed.authentication.delay.ms",
        "zookeeper.set.acl",
        "early.start.listeners",
        "control.plane.listener.name",
        "create.topic.policy.class.name",
        "alter.config.policy.class.name",
        "client.quota.callback.class",
    }
)
"""Kafka settings that restrict who may do what. This release has none of them, so they are refused, never ignored."""

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def is_security_setting(name: str) -> bool:
    """Whether Kafka has a setting of that name which restricts or encrypts access."""
    return name.startswith(SECURITY_PREFIXES) or name in SECURITY_NAMES


def _asks_for_nothing(name: str, value: object) -> bool:
    """Whether a security setting only says that there is no security."""
    text = str(value).strip().upper() if value is not None else ""
    return is_security_setting(name) and text in (
        ("", "PLAINTEXT") if name == "security.inter.broker.protocol" else ("",)
    )


def _protocol_map(value: list[str]) -> str | None:
    for item in value:
        name, colon, protocol = item.partition(":")
        if not name or not colon or protocol.strip().upper() not in PROTOCOLS:
            return f"has the item {item!r}, which is not NAME:PROTOCOL with a protocol of {', '.join(PROTOCOLS)}"
    return None


def _listeners(value: list[str]) -> str | None:
    for item in value:
        try:
            Listener.parse(item)
        except ValueError as error:
            return str(error)
    return None


def _address(value: str) -> str | None:
    return _listeners([value]) if value else None


def _open_files(value: int) -> str | None:
    return None if value == -1 or value >= 16 else "is below 16; give at least that, or -1 for half of ulimit -n"


def _cleanup_policy(value: list[str]) -> str | None:
    return None if value else "is empty: give delete, compact or both"


@dataclass(frozen=True, slots=True)
class Listener:
    """One row of the listener table: a name, where it binds, and (later) how it is secured."""

    name: str
    host: str
    port: int

    @classmethod
    def parse(cls, item: str) -> Listener:
        """Read `PLAINTEXT://host:port`, `host:port` or `:port`; raises ValueError with what is wrong."""
        name, separator, address = item.rpartition("://")
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"has the item {item!r}, which is not NAME://HOST:PORT with a port of 0..65535")
        name = (name if separator else "PLAINTEXT").upper()
        if name in ("SSL", "SASL_SSL", "SASL_PLAINTEXT"):
            raise ValueError(f"names {name}, which this release cannot serve. Use PLAINTEXT")
        return cls(name, host.strip("[]"), int(port))


class BrokerConfig(ConfigTable):
    """Every setting of the broker; `config.num_partitions` is `num.partitions`."""

    # identity and listeners
    node_id: int = integer(1, at_least(0), doc="The broker's id in the cluster.", aliases=("broker.id",))
    listeners: list[str] = text_list(
        ["PLAINTEXT://:9092"],
        _listeners,
        doc="Where to listen: NAME://HOST:PORT. An empty host is every interface, port 0 any free port.",
    )
    advertised_listeners: list[str] = text_list(
        [],
        _listeners,
        doc="The addresses to which clients connect. Empty: the host of `listeners`, or where that is every"
        " interface, the address to which the client has connected.",
    )
    listener_security_protocol_map: list[str] = text_list(
        [],
        _protocol_map,
        doc="The protocol of each listener name, as NAME:PROTOCOL. Names other than PLAINTEXT must be in it, and those"
        " that `listeners` and `advertised.listeners` use must have PLAINTEXT, the only protocol of this release.",
    )
    metrics_listener: str = text(
        "",
        _address,
        doc="Address (host:port) of `GET /metrics`, for Prometheus, and of `GET /health`. Empty: none.",
    )
    health_flush_max_ms: int = integer(
        30000,
        at_least(1),
        doc="`GET /health` is answered with 503 when a flush to disk has not ended for longer than this.",
    )
    health_probe_interval_ms: int = integer(
        5000,
        at_least(1),
        doc="A health check writes and syncs a small file in the data directory, but no more often than this; checks in"
        " between share the outcome.",
    )
    health_probe_timeout_ms: int = integer(
        2000,
        between(1, 9000),
        doc="The disk counts as not answering while such a file is not on disk for longer than this. `oncelog health`"
        " itself waits 2500 ms.",
    )
    broker_rack: str = text("", doc="The broker's rack, which clients see.")
    inter_broker_protocol_version: str = text(
        "4.1",
        choices=("4.0", "4.1"),
        doc="Level of the optional protocol features. 4.1 allows the transaction extension, 4.0 does not.",
    )
    transaction_version: int = short(
        2,
        between(0, 2),
        doc="Finalized level of the feature transaction.version (KIP-890): 2 bumps the epoch with every transaction.",
    )

    # connections and requests
    socket_request_max_bytes: int = integer(
        104857600, at_least(1), doc="Largest request in bytes; larger ones close the connection."
    )
    socket_listen_backlog_size: int = integer(
        1024,
        at_least(1),
        doc="Connections that may wait to be accepted; clients of further ones try again after a second. Kafka's"
        " default is 50, which is too few when many clients connect together.",
    )
    socket_send_buffer_bytes: int = integer(
        102400, at_least(-1), doc="SO_SNDBUF of connections in bytes; -1: the system's default."
    )
    socket_receive_buffer_bytes: int = integer(
        102400, at_least(-1), doc="SO_RCVBUF of connections in bytes; -1: the system's default."
    )
    max_connections: int = integer(INT32_MAX, at_least(1), doc="Most connections at a time; further ones are closed.")
    max_open_files: int = integer(
        -1,
        _open_files,
        doc="Most data files open at a time, at most half of the process's limit of descriptors (ulimit -n); others are"
        " reopened when they are used. Connections get the rest of the limit. -1: half of it, at most 16384.",
        aliases=("connections.descriptor.reserve",),
    )
    max_connections_per_ip: int = integer(INT32_MAX, at_least(1), doc="Most connections at a time from one address.")
    connections_max_idle_ms: int = long(
        600000, doc="A connection without requests and responses for this long is closed; 0 or less: never."
    )
    connection_max_inflight_requests: int = integer(
        64,
        at_least(1),
        doc="Requests of a connection that may wait for their response; at the limit the broker stops reading from it.",
    )
    connection_write_buffer_bytes: int = integer(
        1048576,
        at_least(1),
        doc="Response bytes that a slow client may leave unread before the broker stops executing its requests.",
    )
    queued_max_request_bytes: int = long(
        134217728,
        doc="Memory for requests being received, over all connections. Beyond it requests wait, small ones least, and"
        " the connection that sends most slowly is closed. 0 or less: no limit, which is Kafka's default.",
    )
    queued_max_response_bytes: int = long(
        134217728,
        at_least(1),
        doc="Memory for responses that clients have not read, over all connections. A Fetch response has at most half"
        " of what is left of it; beyond it, connections of clients that read nothing are closed.",
    )
    connection_write_stall_ms: int = integer(
        10000,
        at_least(1),
        doc="How long a client may read nothing of its responses while queued.max.response.bytes is used up.",
    )
    connection_request_idle_ms: int = long(
        30000,
        doc="A connection with a partly received request is closed when no more of it arrives for this long. 0 or"
        " less: never.",
    )
    shutdown_timeout_ms: int = integer(
        10000, at_least(0), doc="How long a stop waits for running requests before it closes their connections."
    )
    fetch_max_bytes: int = integer(
        57671680, at_least(1024), doc="Largest Fetch response in bytes, whatever the client asks for."
    )
    max_incremental_fetch_session_cache_slots: int = integer(
        1000, at_least(0), doc="Most incremental fetch sessions (KIP-227)."
    )
    max_incremental_fetch_session_cache_partitions: int = integer(
        200000,
        at_least(0),
        doc="Most partitions in all incremental fetch sessions together; beyond it, a Fetch has no session.",
    )
    request_max_elements: int = integer(
        200000,
        at_least(1),
        doc="Most array elements (topics, partitions, keys, ...) and tagged fields in a request; one with more closes"
        " its connection before they are decoded.",
    )
    response_max_rows: int = integer(
        200000,
        at_least(1),
        doc="Most rows (partitions, offsets, members, settings, ...) in a response; a request for more is"
        " INVALID_REQUEST.",
    )
    response_max_bytes: int = integer(
        104857600,
        at_least(1024),
        doc="Largest response without records, in bytes; a request for a larger one is INVALID_REQUEST. Clients have"
        " such a limit as well.",
    )

    max_concurrent_large_requests: int = integer(
        2,
        at_least(1),
        doc="Large requests (with hundreds of elements or response rows) that are decoded, executed and answered at"
        " the same time; others wait in order. Small requests never wait. More slots need more memory. As many large"
        " requests again may wait for the end of a transaction; a further one is told CONCURRENT_TRANSACTIONS.",
    )

    # topics
    num_partitions: int = integer(1, between(1, 100000), doc="Partitions of a topic created without a number.")
    topic_max_partitions: int = integer(
        10000, at_least(1), doc="Most partitions that one topic may have; a larger number is INVALID_PARTITIONS."
    )
    request_max_new_partitions: int = integer(
        10000,
        at_least(1),
        doc="Most partitions that one CreateTopics, CreatePartitions or Metadata may create; a request for more is"
        " POLICY_VIOLATION. Kafka has the same bound, without a name.",
    )
    max_partitions: int = integer(
        100000,
        at_least(1),
        doc="Most partitions of all topics together, including topics that are created automatically;"
        " a request for more is POLICY_VIOLATION.",
    )
    default_replication_factor: int = integer(1, one_replica, doc="Replicas of a topic; a single node has one.")
    min_insync_replicas: int = integer(1, one_replica, doc="Replicas that acks=all needs; a single node has one.")
    auto_create_topics_enable: bool = boolean(True, doc="Create a topic when a client asks for its metadata.")
    delete_topic_enable: bool = boolean(True, doc="Whether DeleteTopics is allowed.")
    message_max_bytes: int = integer(
        1048588, at_least(0), doc="Largest record batch in bytes, as compressed by the client.", dynamic=True
    )
    max_batch_objects: int = integer(
        1000000,
        at_least(1),
        doc="Most records and record headers, counted together, in a batch of a producer; more are MESSAGE_TOO_LARGE.",
    )
    max_record_headers: int = integer(
        10000, at_least(0), doc="Most headers of one record of a producer; more are INVALID_RECORD."
    )
    max_decompressed_bytes: int = integer(
        134217728,
        at_least(1),
        doc="Largest batch of a producer when decompressed; a larger one is MESSAGE_TOO_LARGE.",
    )
    max_concurrent_decompressions: int = integer(
        2,
        at_least(1),
        doc="Batches of more than 1 MiB when decompressed that are checked at the same time; each may take"
        " `max.decompressed.bytes` of memory.",
    )
    compression_type: str = text(
        "producer", choices=("producer",), doc="Batches are stored as the producer compressed them."
    )
    compression_gzip_level: int = integer(-1, gzip_level, doc="Accepted for topics that set it; producers compress.")
    compression_lz4_level: int = integer(9, between(1, 17), doc="Accepted for topics that set it; producers compress.")
    compression_zstd_level: int = integer(
        3, between(-131072, 22), doc="Accepted for topics that set it; producers compress."
    )
    unclean_leader_election_enable: bool = boolean(
        False, doc="Accepted; with a single replica there is nothing to elect."
    )

    # log
    log_dirs: str = text("/tmp/oncelog", doc="The data directory.", aliases=("log.dir", "data.dir"))
    durability: str = text(
        "flush",
        choices=("flush", "os"),
        doc="flush: acks=all responses, and visibility to consumers, wait for fdatasync. os: for the page cache only.",
    )
    log_reserve_bytes: int = long(
        67108864,
        at_least(0),
        doc="Disk space kept for transaction markers and internal topics: Produce is refused below it.",
    )
    log_reserve_decision_bytes: int = long(
        16777216,
        at_least(0),
        doc="The last part of log.reserve.bytes, at most half of it: kept for the decisions and markers of transactions"
        " and for requests that free space. Offset commits and new transactions are refused below it.",
    )
    log_segment_bytes: int = integer(
        1073741824, at_least(1024), doc="A segment is rolled at this size in bytes.", dynamic=True
    )
    log_roll_ms: int = long(-1, doc="A segment is rolled at this age; -1: log.roll.hours decides.", dynamic=True)
    log_roll_hours: int = integer(168, at_least(1), doc="A segment is rolled at this age.")
    log_roll_jitter_ms: int = long(-1, doc="Random part of the age; -1: log.roll.jitter.hours decides.", dynamic=True)
    log_roll_jitter_hours: int = integer(0, at_least(0), doc="Random part of the age at which segments are rolled.")
    log_roll_min_ms: int = long(
        1000,
        at_least(0),
        doc="A segment is not rolled for its age until it has existed this long, whatever segment.ms is and whatever"
        " timestamps the records have.",
    )
    log_max_segments: int = integer(
        10000,
        at_least(2),
        doc="A partition with this many segments gets new ones only at the largest size of a file or an index, whatever"
        " segment.bytes is, until retention or compaction has removed some.",
    )
    log_retention_ms: int = long(-2, at_least(-2), doc="How long records are kept; -1: forever.", dynamic=True)
    log_retention_minutes: int = integer(
        -2, at_least(-2), doc="How long records are kept, unless log.retention.ms is set."
    )
    log_retention_hours: int = integer(168, at_least(-1), doc="How long records are kept, unless a finer unit is set.")
    log_retention_bytes: int = long(
        -1, at_least(-1), doc="How much of a partition is kept, in bytes; -1: no limit.", dynamic=True
    )
    log_retention_check_interval_ms: int = long(300000, at_least(1), doc="How often retention is checked.")
    log_cleanup_policy: list[str] = text_list(
        ["delete"], _cleanup_policy, choices=("delete", "compact"), doc="Delete old records, or compact.", dynamic=True
    )
    log_cleaner_enable: bool = boolean(True, doc="Whether compacted topics are compacted.")
    log_cleaner_backoff_ms: int = long(15000, at_least(0), doc="How often the cleaner looks for work.")
    log_cleaner_delete_retention_ms: int = long(
        86400000, at_least(0), doc="How long tombstones are kept.", dynamic=True
    )
    log_cleaner_min_cleanable_ratio: float = double(
        0.5, between(0, 1), doc="Share of uncleaned bytes at which a log is compacted.", dynamic=True
    )
    log_cleaner_min_compaction_lag_ms: int = long(
        0, at_least(0), doc="Younger records are not compacted.", dynamic=True
    )
    log_cleaner_max_compaction_lag_ms: int = long(
        INT64_MAX, at_least(1), doc="Older records are compacted whatever the ratio.", dynamic=True
    )
    log_index_size_max_bytes: int = integer(10485760, at_least(4), doc="Largest offset or time index.", dynamic=True)
    log_index_interval_bytes: int = integer(4096, at_least(0), doc="Bytes between index entries.", dynamic=True)
    log_index_cache_bytes: int = long(
        134217728,
        at_least(0),
        doc="Memory for the indexes of finished segments of all partitions; the least recently used are dropped, and"
        " read again when needed.",
    )
    log_flush_threads: int = integer(
        16,
        between(1, 256),
        doc="Partitions whose files are synced at the same time. A journaling file system commits concurrent syncs"
        " together, so more threads than processors pay off.",
    )
    log_segment_delete_delay_ms: int = long(60000, at_least(0), doc="Delay before files are removed.", dynamic=True)
    log_flush_interval_messages: int = long(
        INT64_MAX, at_least(1), doc="Accepted for topics that set it; `durability` decides.", dynamic=True
    )
    log_flush_interval_ms: int = long(
        INT64_MAX, at_least(0), doc="Accepted for topics that set it; `durability` decides.", dynamic=True
    )
    log_preallocate: bool = boolean(False, doc="Accepted for topics that set it; segments grow as they fill.")
    log_message_timestamp_type: str = text(
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        doc="Whether producers or the broker set timestamps.",
        dynamic=True,
    )
    log_message_timestamp_before_max_ms: int = long(
        INT64_MAX, at_least(0), doc="How far a record's timestamp may lie in the past.", dynamic=True
    )
    log_message_timestamp_after_max_ms: int = long(
        3600000, at_least(0), doc="How far a record's timestamp may lie in the future.", dynamic=True
    )
    producer_id_expiration_ms: int = integer(
        86400000,
        at_least(1),
        doc="An idle producer id is forgotten after this long, but not with an open transaction.",
        dynamic=True,
    )
    producer_id_expiration_check_interval_ms: int = integer(600000, at_least(1), doc="How often that is checked.")

    # groups and offsets
    group_min_session_timeout_ms: int = integer(6000, at_least(1), doc="Smallest session timeout of a member.")
    group_max_session_timeout_ms: int = integer(1800000, at_least(1), doc="Largest session timeout of a member.")
    group_initial_rebalance_delay_ms: int = integer(
        150,
        at_least(0),
        doc="How long the first rebalance of an empty group waits for more members. Kafka's default is 3000, and its"
        " quickstart sets 0. With less than 100, a consumer of kafka-python 3.0 joins before it knows the partitions"
        " and may then get none; set more where many members of a group start at once.",
    )
    group_max_size: int = integer(INT32_MAX, at_least(1), doc="Most members of a group.")
    group_max_groups: int = integer(
        200000,
        at_least(1),
        doc="Most groups; further ones get GROUP_MAX_SIZE_REACHED until groups are deleted or expire.",
    )
    group_member_max_protocols: int = integer(
        1000,
        at_least(1),
        doc="Most protocols (assignment strategies) that a member may offer; a JoinGroup with more gets"
        " INCONSISTENT_GROUP_PROTOCOL. Kafka has no such limit.",
    )
    group_members_max_bytes: int = long(
        134217728,
        at_least(1),
        doc="Memory for the members of all groups: their subscriptions, assignments and names. A JoinGroup or an"
        " assignment that would exceed it gets GROUP_MAX_SIZE_REACHED. A group must also fit into a record"
        " (`message.max.bytes`).",
    )
    group_pending_members_max_bytes: int = long(
        16777216,
        at_least(1),
        doc="Memory for member ids that were assigned and have not joined yet; the oldest give way to new ones.",
    )
    offset_metadata_max_bytes: int = integer(4096, at_least(0), doc="Largest metadata of an offset commit.")
    offsets_commit_timeout_ms: int = integer(5000, at_least(1), doc="How long an offset commit may wait for the disk.")
    offsets_load_buffer_size: int = integer(5242880, at_least(1), doc="Read size when offsets are loaded.")
    offsets_retention_minutes: int = integer(10080, at_least(1), doc="How long offsets of an empty group are kept.")
    offsets_retention_check_interval_ms: int = long(600000, at_least(1), doc="How often that is checked.")
    offsets_topic_num_partitions: int = integer(50, between(1, 10000), doc="Partitions of __consumer_offsets.")
    offsets_topic_replication_factor: int = short(1, one_replica, doc="Replicas of __consumer_offsets.")
    offsets_topic_segment_bytes: int = integer(104857600, at_least(1024), doc="Segment size of __consumer_offsets.")
    offsets_topic_compression_codec: int = integer(
        0, between(0, 0), doc="Compression of __consumer_offsets: 0, none, is the only one."
    )

    # transactions
    transactional_id_pattern_max_size: int = integer(
        1000,
        at_least(1),
        doc="Largest pattern in ListTransactions, in characters and in instructions when compiled; a larger one is"
        " INVALID_REGULAR_EXPRESSION.",
    )
    transaction_max_timeout_ms: int = integer(
        900000,
        at_least(1),
        doc="Largest transaction timeout a producer may ask for.",
        aliases=("max.transaction.timeout.ms",),
    )
    transactional_id_expiration_ms: int = integer(
        604800000,
        at_least(1),
        doc="An idle transactional id is forgotten after this long.",
        aliases=("transactional.id.timeout.ms",),
    )
    transaction_state_log_num_partitions: int = integer(50, between(1, 10000), doc="Partitions of __transaction_state.")
    transaction_state_log_replication_factor: int = short(1, one_replica, doc="Replicas of __transaction_state.")
    transaction_state_log_min_isr: int = integer(1, one_replica, doc="In-sync replicas of __transaction_state.")
    transaction_state_log_segment_bytes: int = integer(
        104857600, at_least(1024), doc="Segment size of __transaction_state."
    )
    transaction_state_log_load_buffer_size: int = integer(5242880, at_least(1), doc="Read size when it is loaded.")
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        10000, at_least(1), doc="How often timed-out transactions are looked for."
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        3600000, at_least(1), doc="How often expired transactional ids are looked for."
    )
    transaction_partition_verification_enable: bool = boolean(
        True, doc="Check that a transactional batch belongs to an ongoing transaction (KIP-890).", dynamic=True
    )
    transaction_pending_wait_max_ms: int = integer(
        1000,
        at_least(0),
        doc="How long a request waits for the end of the previous transaction before CONCURRENT_TRANSACTIONS.",
    )
    transaction_pending_wait_max_requests: int = integer(
        1000, at_least(0), doc="Requests that may wait like that at a time."
    )
    transaction_retry_backoff_ms: int = integer(
        50,
        at_least(1),
        doc="Pause before a transaction marker, or reading transaction state at start, is tried again; it doubles.",
    )
    transaction_retry_backoff_max_ms: int = integer(5000, at_least(1), doc="Longest such pause.")
    group_transaction_max_partitions: int = integer(
        10000, at_least(1), doc="Most partitions of one group-aware InitProducerId."
    )

    # the process
    logging_level: str = text("info", choices=("debug", "info", "warning", "error"), doc="Least severe lines logged.")
    logging_format: str = text(
        "auto", choices=("auto", "console", "json"), doc="auto: console on a terminal, else JSON; always to stderr."
    )
    logging_max_lines_per_second: int = integer(
        20,
        at_least(0),
        doc="Log lines of one event a second, on average over ten seconds. Further ones are counted, and the next line"
        " of the event says how many were suppressed. 0: no limit.",
    )

    def check(self) -> None:
        """Raise ConfigError for values that contradict each other."""
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ConfigError(
                "group.min.session.timeout.ms",
                f"{self.group_min_session_timeout_ms} is more than group.max.session.timeout.ms"
                f" = {self.group_max_session_timeout_ms}",
            )
        if len(self.listeners) != 1:
            raise ConfigError("listeners", f"has {len(self.listeners)} items; this release serves exactly one")
        if len(self.advertised_listeners) > 1:
            raise ConfigError("advertised.listeners", "has more than one item; this release serves one listener")
        for advertised in self.advertised_listeners:
            if Listener.parse(advertised).host in ("", "0.0.0.0", "::"):
                raise ConfigError(
                    "advertised.listeners", f"{advertised} cannot be connected to: give a host name or address"
                )
        if "," in self.log_dirs:
            raise ConfigError("log.dirs", "names more than one directory; this release keeps all data in one")
        if "\0" in self.log_dirs:
            raise ConfigError("log.dirs", "has a null character, which no file name can have. Remove it")
        self._check_protocols()

    def _check_protocols(self) -> None:
        """Refuse a listener whose protocol is not PLAINTEXT: it would be open where its name says that it is not."""
        given = (item.partition(":") for item in self.listener_security_protocol_map)
        protocols = {"PLAINTEXT": "PLAINTEXT"} | {
            name.strip().upper(): protocol.strip().upper() for name, _, protocol in given
        }
        for setting, items in (("listeners", self.listeners), ("advertised.listeners", self.advertised_listeners)):
            for item in items:
                name = Listener.parse(item).name
                if name not in protocols:
                    raise ConfigError(
                        setting,
                        f"uses the listener name {name}, which has no protocol."
                        f" Add {name}:PLAINTEXT to listener.security.protocol.map",
                    )
                if protocols[name] != "PLAINTEXT":
                    raise ConfigError(
                        "listener.security.protocol.map",
                        f"gives the listener {name} the protocol {protocols[name]}, which this release cannot serve."
                        f" Use {name}:PLAINTEXT, and limit who can reach the port",
                    )

    @classmethod
    def find(cls, key: str) -> Setting:
        """The row of a name or alias; raises ConfigError, also for a security setting that this release lacks."""
        name = normal_name(key)
        if name not in cls.names and is_security_setting(name):
            raise ConfigError(
                key,
                "this release does not support it: it serves plaintext to every client that can reach its port."
                " Remove the setting, and limit who can reach the port (a firewall, a proxy that terminates TLS)",
            )
        return super().find(key)

    @property
    def retention_ms(self) -> int:
        """Retention by time: the finest unit that was given wins; -1 is forever."""
        if self.log_retention_ms != -2:
            return self.log_retention_ms
        if self.log_retention_minutes != -2:
            return -1 if self.log_retention_minutes < 0 else self.log_retention_minutes * 60_000
        return -1 if self.log_retention_hours < 0 else self.log_retention_hours * 3_600_000

    @property
    def roll_ms(self) -> int:
        """Age at which a segment is rolled."""
        return self.log_roll_ms if self.log_roll_ms > 0 else self.log_roll_hours * 3_600_000

    @property
    def roll_jitter_ms(self) -> int:
        """Random part of that age."""
        return self.log_roll_jitter_ms if self.log_roll_jitter_ms >= 0 else self.log_roll_jitter_hours * 3_600_000


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Iterable[str] | Mapping[str, object] = (),
) -> tuple[BrokerConfig, list[str]]:
    """Read a TOML file, the environment (ONCELOG_NUM_PARTITIONS) and `name=value` flags; later ones win.

    Returns the configuration and the names that were given but mean nothing here. Raises ConfigError.
    """
    merged: dict[str, object] = {}
    ignored: list[str] = []

    def take(source: Mapping[str, object]) -> None:
        given: dict[str, object] = {}
        for key, value in source.items():
            if key in WITHOUT_MEANING or _asks_for_nothing(normal_name(key), value):
                ignored.append(key)
                continue
            given[key] = value
        BrokerConfig.parse(given)
        for key, value in given.items():
            merged[BrokerConfig.find(key).name] = value

    if file is not None:
        take(read_toml(file))
    take(from_environment(os.environ if environment is None else environment))
    take(flags if isinstance(flags, Mapping) else from_flags(flags))
    return BrokerConfig(merged), sorted(set(ignored))


def read_toml(file: Path) -> dict[str, object]:
    """A TOML file: `num.partitions = 3`, `[num] partitions = 3` and `"num.partitions" = 3` mean the same."""
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(str(file), f"cannot be read: {error.strerror}") from None
    except ValueError as error:  # not UTF-8, not TOML, or a number of thousands of digits
        raise ConfigError(str(file), f"is not TOML: {error}") from None
    except RecursionError:
        raise ConfigError(str(file), "has tables or arrays nested too deeply; settings need two levels") from None

    def flatten(prefix: str, table: Mapping[str, Any]) -> Iterable[tuple[str, object]]:
        for key, value in table.items():
            if isinstance(value, Mapping):
                yield from flatten(f"{prefix}{key}.", value)
            else:
                yield f"{prefix}{key}", value

    try:
        return dict(flatten("", document))
    except RecursionError:
        raise ConfigError(str(file), "has tables nested too deeply; settings need a few levels at most") from None


def from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    """Settings named ONCELOG_ + upper snake case; a name that is no setting raises ConfigError."""
    found: dict[str, object] = {}
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")
        known = name in BrokerConfig.names or name in WITHOUT_MEANING or is_security_setting(name)
        if not known:
            raise ConfigError(variable, f"there is no setting {name}. Unset the variable or correct its name")
        found[name] = value
    return found


def from_flags(flags: Iterable[str]) -> dict[str, object]:
    """Settings of `--set name=value`."""
    found: dict[str, object] = {}
    for flag in flags:
        name, equals, value = flag.partition("=")
        if not equals:
            raise ConfigError(flag, "is not name=value")
        found[name.strip()] = value
    return found
