"""Types of the clients' settings as keyword arguments. `make docs` writes this file from `config.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypedDict

from .config import Partitioner


class ClientKeywords(TypedDict, total=False):
    """Settings of every client."""

    bootstrap_servers: str | Iterable[str]
    """host:port of one or more brokers from which the client learns of the others. Kafka has no default here."""
    cancel_grace_ms: int
    """How long a transaction or a client still waits for the broker after a cancellation, as by asyncio.timeout, to
    abort, to commit or to leave the group. What is not finished by then goes on in the background or is left to the
    broker's timeouts. Not a setting of Kafka's Java client.
    """
    client_dns_lookup: Literal["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"]
    """Accepted for compatibility; all addresses of a host name are tried, in turn."""
    client_id: str
    """Name of this client in the broker's logs and metrics."""
    connections_max_idle_ms: int
    """A connection that is idle this long is closed; -1: never."""
    metadata_max_age_ms: int
    """Metadata older than this is refreshed."""
    metadata_recovery_rebootstrap_trigger_ms: int
    """Accepted for compatibility: bootstrap.servers are tried as soon as no known broker answers."""
    metadata_recovery_strategy: Literal["rebootstrap", "none"]
    """What to do when no known broker can be reached: start again from bootstrap.servers, or keep trying (none)."""
    receive_buffer_bytes: int
    """SO_RCVBUF; -1: the system's default."""
    receive_message_max_bytes: int
    """Largest response; a larger one closes the connection. Not a setting of Kafka's Java client."""
    reconnect_backoff_max_ms: int
    """Longest wait before a new attempt to connect (without the jitter of 20 %)."""
    reconnect_backoff_ms: int
    """Wait before the first new attempt to connect to a node; doubles with each further one."""
    request_timeout_ms: int
    """Longest wait for a response; then the connection is closed."""
    retries: int
    """Most retries of one request; delivery.timeout.ms is the better bound."""
    retry_backoff_max_ms: int
    """Longest wait before a retry (without the jitter of 20 %)."""
    retry_backoff_ms: int
    """Wait before the first retry; doubles with each further one."""
    security_protocol: Literal["PLAINTEXT"]
    """Only PLAINTEXT is offered."""
    send_buffer_bytes: int
    """SO_SNDBUF; -1: the system's default."""
    socket_connection_setup_timeout_max_ms: int
    """Bound of the above as it doubles with each failure in a row."""
    socket_connection_setup_timeout_ms: int
    """Longest wait for a TCP connection."""


class AdminKeywords(ClientKeywords, total=False):
    """Settings of `Admin`."""

    default_api_timeout_ms: int
    """Longest wait of the calls that have no timeout of their own."""


class SendingKeywords(ClientKeywords, total=False):
    """Settings of a producer, without those that make it transactional."""

    acks: Literal["all", -1, 0, 1]
    """When the broker answers: all (or -1), when every in-sync replica has the records; 1, when the leader has
    them; 0, never.
    """
    batch_size: int
    """Bytes of records that make a batch full; 0: one record each."""
    buffer_memory: int
    """Bytes of unacknowledged records; beyond it enqueue() waits and send() raises BufferFullError."""
    compression_gzip_level: int
    """1 to 9; -1: the codec's default."""
    compression_lz4_level: int
    """1 to 17; 9: the codec's default."""
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    """Codec of the batches."""
    compression_zstd_level: int
    """-131072 to 22."""
    delivery_timeout_ms: int
    """Longest time from send() to its result, waiting and retries included."""
    enable_idempotence: bool
    """Retries neither duplicate nor reorder records."""
    linger_ms: int
    """Longest wait for a batch to fill; batches of other partitions may go earlier."""
    max_block_ms: int
    """Longest wait of enqueue() for metadata or memory, and of the transaction calls for a response."""
    max_in_flight_requests_per_connection: int
    """Most unanswered Produce requests per broker; at most 5 with idempotence."""
    max_request_size: int
    """Bytes of the largest record and of the largest request."""
    metadata_max_idle_ms: int
    """The metadata of a topic that is unused this long is no longer refreshed."""
    partitioner_class: Partitioner | None
    """A callable (topic, key, number of partitions) → partition. None: by Kafka's hash of the key; records without
    a key stay with one partition for batch.size bytes, then move to another (KIP-794).
    """
    partitioner_ignore_keys: bool
    """Choose partitions as if no record had a key."""
    transaction_timeout_ms: int
    """The coordinator aborts a transaction that stays open longer."""


class PoolKeywords(SendingKeywords, total=False):
    """Settings of the producers of a `TransactionalProducerPool`."""

    consumer_group_aware_transaction: bool | Literal["require"]
    """true: init_transactions(assignment) fences by partition where the broker has the feature
    group.aware.transaction, else by member and generation (KIP-447); false: always the latter; require: raise
    UnsupportedVersionError where the feature is missing. Not a setting of Kafka's Java client.
    """
    transactional_group_id: str | None
    """The consumer group that transactions commit offsets for: then send_offsets(offsets) needs no group. Without a
    transactional.id the producer is transactional as well, and the broker assigns an id. Not a setting of Kafka's
    Java client.
    """


class ProducerKeywords(PoolKeywords, total=False):
    """Settings of `Producer`."""

    transactional_id: str | None
    """Makes the producer transactional; a newer one with the same id fences it."""


class ReadingKeywords(ClientKeywords, total=False):
    """Settings of a consumer, without those that a `Processor` sets itself."""

    allow_auto_create_topics: bool
    """Let the broker create topics to which the consumer subscribes."""
    auto_commit_interval_ms: int
    """Time between automatic commits."""
    auto_offset_reset: Literal["earliest", "latest", "none"]
    """Where to start without a committed offset; with none the consumer raises NoOffsetForPartitionError."""
    check_crcs: bool
    """Verify the checksum of every batch."""
    client_rack: str
    """The rack of this client, for assignors. Records are fetched from leaders."""
    default_api_timeout_ms: int
    """Longest wait of the calls that have no timeout of their own."""
    exclude_internal_topics: bool
    """Exclude internal topics from a subscription by pattern."""
    fetch_max_bytes: int
    """Bytes of one fetch, but always at least one batch."""
    fetch_max_wait_ms: int
    """Longest wait of the broker for fetch.min.bytes."""
    fetch_min_bytes: int
    """The broker answers when it has this much, or after fetch.max.wait.ms."""
    group_protocol: Literal["classic"]
    """Only classic is offered."""
    heartbeat_interval_ms: int
    """Time between heartbeats; a third of the session timeout at most."""
    max_batch_objects: int
    """Most records and headers of one batch that are read; more raise RecordCorruptError."""
    max_decompressed_bytes: int
    """Largest batch, decompressed, that is read; a larger one raises RecordCorruptError."""
    max_partition_fetch_bytes: int
    """Bytes of one partition in a fetch, but at least one batch."""
    max_poll_interval_ms: int
    """A member that does not poll for this long leaves the group."""
    max_poll_records: int
    """Most records that one poll returns."""
    partition_assignment_strategy: str | Iterable[str]
    """Assignors in order of preference: range, roundrobin, sticky, cooperative-sticky, or Kafka's class names."""
    session_timeout_ms: int
    """A member without heartbeats this long is removed from the group."""


class ConsumerKeywords(ReadingKeywords, total=False):
    """Settings of `Consumer`."""

    enable_auto_commit: bool
    """Commit the position every auto.commit.interval.ms and at close."""
    group_id: str | None
    """The group that the consumer joins, and for which it commits."""
    group_instance_id: str | None
    """Makes it a static member, which keeps its partitions over a restart."""
    isolation_level: Literal["read_uncommitted", "read_committed"]
    """read_committed hides records of open and of aborted transactions."""


class ProcessorKeywords(SendingKeywords, ReadingKeywords, total=False):
    """Settings that a `Processor` passes on to its consumers and producers."""

    group_instance_id: str | None
    """Makes it a static member, which keeps its partitions over a restart."""
