"""Types of the broker's settings as keyword arguments. `make docs` writes this file from `config.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypedDict


class BrokerKeywords(TypedDict, total=False):
    """Settings of `Broker`."""

    node_id: int
    """The broker's id in the cluster."""
    listeners: str | Iterable[str]
    """Where to listen: NAME://HOST:PORT. An empty host is every interface, port 0 any free port."""
    advertised_listeners: str | Iterable[str]
    """The addresses to which clients connect. Empty: the host of `listeners`, or where that is every interface, the
    address to which the client has connected.
    """
    listener_security_protocol_map: str | Iterable[str]
    """The protocol of each listener name, as NAME:PROTOCOL. Names other than PLAINTEXT must be in it, and those
    that `listeners` and `advertised.listeners` use must have PLAINTEXT, the only protocol of this release.
    """
    metrics_listener: str
    """Address (host:port) of `GET /metrics`, for Prometheus, and of `GET /health`. Empty: none."""
    health_flush_max_ms: int
    """`GET /health` is answered with 503 when a flush to disk has not ended for longer than this."""
    health_probe_interval_ms: int
    """A health check writes and syncs a small file in the data directory, but no more often than this; checks in
    between share the outcome.
    """
    health_probe_timeout_ms: int
    """The disk counts as not answering while such a file is not on disk for longer than this. `oncelog health`
    itself waits 2500 ms.
    """
    broker_rack: str
    """The broker's rack, which clients see."""
    inter_broker_protocol_version: Literal["4.0", "4.1"]
    """Level of the optional protocol features. 4.1 allows the transaction extension, 4.0 does not."""
    transaction_version: int
    """Finalized level of the feature transaction.version (KIP-890): 2 bumps the epoch with every transaction."""
    socket_request_max_bytes: int
    """Largest request in bytes; larger ones close the connection."""
    socket_listen_backlog_size: int
    """Connections that may wait to be accepted; clients of further ones try again after a second. Kafka's default
    is 50, which is too few when many clients connect together.
    """
    socket_send_buffer_bytes: int
    """SO_SNDBUF of connections in bytes; -1: the system's default."""
    socket_receive_buffer_bytes: int
    """SO_RCVBUF of connections in bytes; -1: the system's default."""
    max_connections: int
    """Most connections at a time; further ones are closed."""
    max_open_files: int
    """Most data files open at a time, at most half of the process's limit of descriptors (ulimit -n); others are
    reopened when they are used. Connections get the rest of the limit. -1: half of it, at most 16384.
    """
    max_connections_per_ip: int
    """Most connections at a time from one address."""
    connections_max_idle_ms: int
    """A connection without requests and responses for this long is closed; 0 or less: never."""
    connection_max_inflight_requests: int
    """Requests of a connection that may wait for their response; at the limit the broker stops reading from it."""
    connection_write_buffer_bytes: int
    """Response bytes that a slow client may leave unread before the broker stops executing its requests."""
    queued_max_request_bytes: int
    """Memory for requests being received, over all connections. Beyond it requests wait, small ones least, and the
    connection that sends most slowly is closed. 0 or less: no limit, which is Kafka's default.
    """
    queued_max_response_bytes: int
    """Memory for responses that clients have not read, over all connections. A Fetch response has at most half of
    what is left of it; beyond it, connections of clients that read nothing are closed.
    """
    connection_write_stall_ms: int
    """How long a client may read nothing of its responses while queued.max.response.bytes is used up."""
    connection_request_idle_ms: int
    """A connection with a partly received request is closed when no more of it arrives for this long. 0 or less:
    never.
    """
    shutdown_timeout_ms: int
    """How long a stop waits for running requests before it closes their connections."""
    fetch_max_bytes: int
    """Largest Fetch response in bytes, whatever the client asks for."""
    max_incremental_fetch_session_cache_slots: int
    """Most incremental fetch sessions (KIP-227)."""
    max_incremental_fetch_session_cache_partitions: int
    """Most partitions in all incremental fetch sessions together; beyond it, a Fetch has no session."""
    request_max_elements: int
    """Most array elements (topics, partitions, keys, ...) and tagged fields in a request; one with more closes its
    connection before they are decoded.
    """
    response_max_rows: int
    """Most rows (partitions, offsets, members, settings, ...) in a response; a request for more is INVALID_REQUEST."""
    response_max_bytes: int
    """Largest response without records, in bytes; a request for a larger one is INVALID_REQUEST. Clients have such
    a limit as well.
    """
    max_concurrent_large_requests: int
    """Large requests (with hundreds of elements or response rows) that are decoded, executed and answered at the
    same time; others wait in order. Small requests never wait. More slots need more memory. As many large requests
    again may wait for the end of a transaction; a further one is told CONCURRENT_TRANSACTIONS.
    """
    num_partitions: int
    """Partitions of a topic created without a number."""
    topic_max_partitions: int
    """Most partitions that one topic may have; a larger number is INVALID_PARTITIONS."""
    request_max_new_partitions: int
    """Most partitions that one CreateTopics, CreatePartitions or Metadata may create; a request for more is
    POLICY_VIOLATION. Kafka has the same bound, without a name.
    """
    max_partitions: int
    """Most partitions of all topics together, including topics that are created automatically; a request for more
    is POLICY_VIOLATION.
    """
    default_replication_factor: int
    """Replicas of a topic; a single node has one."""
    min_insync_replicas: int
    """Replicas that acks=all needs; a single node has one."""
    auto_create_topics_enable: bool
    """Create a topic when a client asks for its metadata."""
    delete_topic_enable: bool
    """Whether DeleteTopics is allowed."""
    message_max_bytes: int
    """Largest record batch in bytes, as compressed by the client."""
    max_batch_objects: int
    """Most records and record headers, counted together, in a batch of a producer; more are MESSAGE_TOO_LARGE."""
    max_record_headers: int
    """Most headers of one record of a producer; more are INVALID_RECORD."""
    max_decompressed_bytes: int
    """Largest batch of a producer when decompressed; a larger one is MESSAGE_TOO_LARGE."""
    max_concurrent_decompressions: int
    """Batches of more than 1 MiB when decompressed that are checked at the same time; each may take
    `max.decompressed.bytes` of memory.
    """
    compression_type: Literal["producer"]
    """Batches are stored as the producer compressed them."""
    compression_gzip_level: int
    """Accepted for topics that set it; producers compress."""
    compression_lz4_level: int
    """Accepted for topics that set it; producers compress."""
    compression_zstd_level: int
    """Accepted for topics that set it; producers compress."""
    unclean_leader_election_enable: bool
    """Accepted; with a single replica there is nothing to elect."""
    log_dirs: str
    """The data directory."""
    durability: Literal["flush", "os"]
    """flush: acks=all responses, and visibility to consumers, wait for fdatasync. os: for the page cache only."""
    log_reserve_bytes: int
    """Disk space kept for transaction markers and internal topics: Produce is refused below it."""
    log_reserve_decision_bytes: int
    """The last part of log.reserve.bytes, at most half of it: kept for the decisions and markers of transactions
    and for requests that free space. Offset commits and new transactions are refused below it.
    """
    log_segment_bytes: int
    """A segment is rolled at this size in bytes."""
    log_roll_ms: int
    """A segment is rolled at this age; -1: log.roll.hours decides."""
    log_roll_hours: int
    """A segment is rolled at this age."""
    log_roll_jitter_ms: int
    """Random part of the age; -1: log.roll.jitter.hours decides."""
    log_roll_jitter_hours: int
    """Random part of the age at which segments are rolled."""
    log_roll_min_ms: int
    """A segment is not rolled for its age until it has existed this long, whatever segment.ms is and whatever
    timestamps the records have.
    """
    log_max_segments: int
    """A partition with this many segments gets new ones only at the largest size of a file or an index, whatever
    segment.bytes is, until retention or compaction has removed some.
    """
    log_retention_ms: int
    """How long records are kept; -1: forever."""
    log_retention_minutes: int
    """How long records are kept, unless log.retention.ms is set."""
    log_retention_hours: int
    """How long records are kept, unless a finer unit is set."""
    log_retention_bytes: int
    """How much of a partition is kept, in bytes; -1: no limit."""
    log_retention_check_interval_ms: int
    """How often retention is checked."""
    log_cleanup_policy: str | Iterable[str]
    """Delete old records, or compact."""
    log_cleaner_enable: bool
    """Whether compacted topics are compacted."""
    log_cleaner_backoff_ms: int
    """How often the cleaner looks for work."""
    log_cleaner_delete_retention_ms: int
    """How long tombstones are kept."""
    log_cleaner_min_cleanable_ratio: float
    """Share of uncleaned bytes at which a log is compacted."""
    log_cleaner_min_compaction_lag_ms: int
    """Younger records are not compacted."""
    log_cleaner_max_compaction_lag_ms: int
    """Older records are compacted whatever the ratio."""
    log_index_size_max_bytes: int
    """Largest offset or time index."""
    log_index_interval_bytes: int
    """Bytes between index entries."""
    log_index_cache_bytes: int
    """Memory for the indexes of finished segments of all partitions; the least recently used are dropped, and read
    again when needed.
    """
    log_flush_threads: int
    """Partitions whose files are synced at the same time. A journaling file system commits concurrent syncs
    together, so more threads than processors pay off.
    """
    log_segment_delete_delay_ms: int
    """Delay before files are removed."""
    log_flush_interval_messages: int
    """Accepted for topics that set it; `durability` decides."""
    log_flush_interval_ms: int
    """Accepted for topics that set it; `durability` decides."""
    log_preallocate: bool
    """Accepted for topics that set it; segments grow as they fill."""
    log_message_timestamp_type: Literal["CreateTime", "LogAppendTime"]
    """Whether producers or the broker set timestamps."""
    log_message_timestamp_before_max_ms: int
    """How far a record's timestamp may lie in the past."""
    log_message_timestamp_after_max_ms: int
    """How far a record's timestamp may lie in the future."""
    producer_id_expiration_ms: int
    """An idle producer id is forgotten after this long, but not with an open transaction."""
    producer_id_expiration_check_interval_ms: int
    """How often that is checked."""
    group_min_session_timeout_ms: int
    """Smallest session timeout of a member."""
    group_max_session_timeout_ms: int
    """Largest session timeout of a member."""
    group_initial_rebalance_delay_ms: int
    """How long the first rebalance of an empty group waits for more members. Kafka's default is 3000, and its
    quickstart sets 0. With less than 100, a consumer of kafka-python 3.0 joins before it knows the partitions and
    may then get none; set more where many members of a group start at once.
    """
    group_max_size: int
    """Most members of a group."""
    group_max_groups: int
    """Most groups; further ones get GROUP_MAX_SIZE_REACHED until groups are deleted or expire."""
    group_member_max_protocols: int
    """Most protocols (assignment strategies) that a member may offer; a JoinGroup with more gets
    INCONSISTENT_GROUP_PROTOCOL. Kafka has no such limit.
    """
    group_members_max_bytes: int
    """Memory for the members of all groups: their subscriptions, assignments and names. A JoinGroup or an
    assignment that would exceed it gets GROUP_MAX_SIZE_REACHED. A group must also fit into a record
    (`message.max.bytes`).
    """
    group_pending_members_max_bytes: int
    """Memory for member ids that were assigned and have not joined yet; the oldest give way to new ones."""
    offset_metadata_max_bytes: int
    """Largest metadata of an offset commit."""
    offsets_commit_timeout_ms: int
    """How long an offset commit may wait for the disk."""
    offsets_load_buffer_size: int
    """Read size when offsets are loaded."""
    offsets_retention_minutes: int
    """How long offsets of an empty group are kept."""
    offsets_retention_check_interval_ms: int
    """How often that is checked."""
    offsets_topic_num_partitions: int
    """Partitions of __consumer_offsets."""
    offsets_topic_replication_factor: int
    """Replicas of __consumer_offsets."""
    offsets_topic_segment_bytes: int
    """Segment size of __consumer_offsets."""
    offsets_topic_compression_codec: int
    """Compression of __consumer_offsets: 0, none, is the only one."""
    transactional_id_pattern_max_size: int
    """Largest pattern in ListTransactions, in characters and in instructions when compiled; a larger one is
    INVALID_REGULAR_EXPRESSION.
    """
    transaction_max_timeout_ms: int
    """Largest transaction timeout a producer may ask for."""
    transactional_id_expiration_ms: int
    """An idle transactional id is forgotten after this long."""
    transaction_state_log_num_partitions: int
    """Partitions of __transaction_state."""
    transaction_state_log_replication_factor: int
    """Replicas of __transaction_state."""
    transaction_state_log_min_isr: int
    """In-sync replicas of __transaction_state."""
    transaction_state_log_segment_bytes: int
    """Segment size of __transaction_state."""
    transaction_state_log_load_buffer_size: int
    """Read size when it is loaded."""
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    """How often timed-out transactions are looked for."""
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    """How often expired transactional ids are looked for."""
    transaction_partition_verification_enable: bool
    """Check that a transactional batch belongs to an ongoing transaction (KIP-890)."""
    transaction_pending_wait_max_ms: int
    """How long a request waits for the end of the previous transaction before CONCURRENT_TRANSACTIONS."""
    transaction_pending_wait_max_requests: int
    """Requests that may wait like that at a time."""
    transaction_retry_backoff_ms: int
    """Pause before a transaction marker, or reading transaction state at start, is tried again; it doubles."""
    transaction_retry_backoff_max_ms: int
    """Longest such pause."""
    group_transaction_max_partitions: int
    """Most partitions of one group-aware InitProducerId."""
    logging_level: Literal["debug", "info", "warning", "error"]
    """Least severe lines logged."""
    logging_format: Literal["auto", "console", "json"]
    """auto: console on a terminal, else JSON; always to stderr."""
    logging_max_lines_per_second: int
    """Log lines of one event a second, on average over ten seconds. Further ones are counted, and the next line of
    the event says how many were suppressed. 0: no limit.
    """
