"""Types of the clients' settings as keyword arguments. `make docs` writes this file from `config.py`."""

from __future__ import annotations

from collections.abc import Iterable
from ssl import SSLContext
from typing import Literal, TypedDict

from .config import Partitioner, TokenProvider


class ClientKeywords(TypedDict, total=False):
    """Settings of every client."""

    bootstrap_servers: str | Iterable[str]
    """Addresses host:port of one or more brokers, from which the client learns the others. Kafka has no default."""
    cancel_grace_ms: int
    """Maximum time to wait for the broker after a call was cancelled, for example by asyncio.timeout, or after
    Ctrl-C has ended a with block. In this time, the broker can acknowledge records, commit or abort a transaction,
    or remove a group's member. Unfinished work then continues in the background, or is left to the broker's
    timeouts. Not a setting of Kafka's Java client.
    """
    client_dns_lookup: Literal["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"]
    """Accepted for compatibility and ignored: the client tries all addresses of a host name, one after the other."""
    client_id: str
    """Name of this client in the broker's logs and metrics. Kafka's default is empty."""
    connections_max_idle_ms: int
    """Idle time after which a connection is closed; -1: never. Kafka's admin client has 300000."""
    metadata_max_age_ms: int
    """Age at which metadata is refreshed. Values above 60000 have the effect of 60000."""
    metadata_recovery_rebootstrap_trigger_ms: int
    """Accepted for compatibility and ignored: bootstrap.servers are tried as soon as no known broker responds."""
    metadata_recovery_strategy: Literal["rebootstrap", "none"]
    """When no known broker can be reached: start again from bootstrap.servers (rebootstrap), or keep trying (none)."""
    receive_buffer_bytes: int
    """Size of the TCP receive buffer (SO_RCVBUF); -1: the system's default. Kafka's producer has 32768."""
    receive_message_max_bytes: int
    """Maximum size of a response; a larger response closes the connection. Not a setting of Kafka's Java client."""
    reconnect_backoff_max_ms: int
    """Maximum wait before a new attempt to connect. A jitter of up to 20 % may lengthen or shorten each wait."""
    reconnect_backoff_ms: int
    """Wait before the first new attempt to connect. Each further wait is about twice the one before."""
    request_timeout_ms: int
    """Maximum wait for a response. After it, the connection is closed."""
    retries: int
    """Maximum number of retries of a Produce request. Prefer delivery.timeout.ms to bound retries."""
    retry_backoff_max_ms: int
    """Maximum wait before a retry. A jitter of up to 20 % may lengthen or shorten each wait."""
    retry_backoff_ms: int
    """Wait before the first retry. Each further wait is about twice the one before."""
    sasl_jaas_config: str
    """Credentials as in Kafka's Java client: PlainLoginModule, ScramLoginModule or OAuthBearerLoginModule with its
    options.
    """
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    """SASL mechanism of the login. Kafka's default is GSSAPI, which is not offered."""
    sasl_mechanisms: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    """The same as sasl.mechanism, by librdkafka's older name. Only one mechanism is accepted."""
    sasl_oauth_token_provider: TokenProvider | None
    """Function for OAUTHBEARER that returns an access token and the seconds for which it is valid. An async
    function is awaited; any other runs in a thread. Not a setting of Kafka's Java client.
    """
    sasl_oauthbearer_client_id: str
    """The client's id at the OAuth server, as in librdkafka."""
    sasl_oauthbearer_client_secret: str
    """The client's secret at the OAuth server, as in librdkafka."""
    sasl_oauthbearer_extensions: str | Iterable[str]
    """Extensions that are sent to the broker with the token: name=value, separated by commas."""
    sasl_oauthbearer_method: Literal["default", "oidc"]
    """oidc: fetch tokens from sasl.oauthbearer.token.endpoint.url, as in librdkafka. default: the same if this URL
    is given, otherwise call sasl.oauth.token.provider.
    """
    sasl_oauthbearer_scope: str
    """Scope of the tokens, if the OAuth server needs it."""
    sasl_oauthbearer_token_endpoint_url: str
    """URL of an OAuth server from which OAUTHBEARER fetches tokens with the client's credentials. Over https, the
    certificates of the system are trusted.
    """
    sasl_password: str
    """Password for PLAIN and SCRAM, as in librdkafka."""
    sasl_plain_password: str
    """The same as sasl.password, by aiokafka's name."""
    sasl_plain_username: str
    """The same as sasl.username, by aiokafka's name."""
    sasl_username: str
    """User name for PLAIN and SCRAM, as in librdkafka. A delegation token needs sasl.jaas.config instead."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    """Protocol of the connections: PLAINTEXT, SSL for TLS, SASL_SSL for TLS and a login, or SASL_PLAINTEXT for a
    login without TLS.
    """
    send_buffer_bytes: int
    """Size of the TCP send buffer (SO_SNDBUF); -1: the system's default."""
    socket_connection_setup_timeout_max_ms: int
    """Accepted for compatibility and ignored: each attempt waits for socket.connection.setup.timeout.ms."""
    socket_connection_setup_timeout_ms: int
    """Maximum wait for a TCP connection, for each attempt."""
    ssl_ca_location: str
    """File in PEM with the certificates of the authorities that sign brokers' certificates, as in librdkafka.
    Empty: those of the system.
    """
    ssl_ca_pem: str
    """The certificates of ssl.ca.location as text in PEM, as in librdkafka."""
    ssl_certificate_location: str
    """File in PEM with the client's certificate chain, as in librdkafka. Empty: no certificate."""
    ssl_certificate_pem: str
    """The client's certificate chain as text in PEM, as in librdkafka."""
    ssl_cipher_suites: str | Iterable[str]
    """Cipher suites, by their standard names or OpenSSL's. Empty: OpenSSL's defaults."""
    ssl_context: SSLContext | None
    """TLS context to use instead of the other ssl.* settings, as in aiokafka."""
    ssl_enabled_protocols: str | Iterable[str]
    """Accepted versions of TLS: TLSv1.2, TLSv1.3."""
    ssl_endpoint_identification_algorithm: Literal["https", "none", ""]
    """Whether a broker's certificate must contain the broker's host name: https (yes) or none. As in Kafka's Java
    client, an empty value means none.
    """
    ssl_key_location: str
    """File in PEM with the client's private key, as in librdkafka. It may be the certificate's file."""
    ssl_key_password: str
    """Password of the private key, if the key itself is encrypted."""
    ssl_key_pem: str
    """The client's private key as text in PEM, as in librdkafka."""
    ssl_keystore_certificate_chain: str
    """The client's certificate chain as text in PEM, as in Kafka's Java client (KIP-651)."""
    ssl_keystore_key: str
    """The client's private key as text in PEM, as in Kafka's Java client (KIP-651)."""
    ssl_keystore_location: str
    """File with the client's private key and certificate chain, as in Kafka's Java client."""
    ssl_keystore_password: str
    """Password of a PKCS12 or JKS file in ssl.keystore.location."""
    ssl_keystore_type: Literal["PEM", "PKCS12", "JKS"]
    """Format of ssl.keystore.location. With PKCS12 or JKS, the file may have either of these two formats. Kafka's
    default is JKS.
    """
    ssl_truststore_certificates: str
    """Trusted certificates as text in PEM, as in Kafka's Java client (KIP-651)."""
    ssl_truststore_location: str
    """File with trusted certificates, as in Kafka's Java client."""
    ssl_truststore_password: str
    """Password of a PKCS12 or JKS file in ssl.truststore.location."""
    ssl_truststore_type: Literal["PEM", "PKCS12", "JKS"]
    """Format of ssl.truststore.location. With PKCS12 or JKS, the file may have either of these two formats. Kafka's
    default is JKS.
    """


class AdminKeywords(ClientKeywords, total=False):
    """Settings of `Admin`."""

    default_api_timeout_ms: int
    """Maximum wait of calls that have no timeout argument."""


class SendingKeywords(ClientKeywords, total=False):
    """Settings of a producer, without those that make it transactional."""

    acks: Literal["all", -1, 0, 1]
    """When the broker acknowledges records: all (or -1) when every in-sync replica has them; 1 when the leader has
    them; 0 never.
    """
    batch_size: int
    """Bytes of records at which a batch is full; 0: each batch has one record. With compression, a batch is full
    when its compressed size, as estimated from earlier batches, reaches batch.size, or when its uncompressed size
    reaches 512 KB or batch.size, whichever is larger. A batch begins with memory for 16 KB, and takes more as it
    grows. Kafka's default is 16384.
    """
    buffer_memory: int
    """Maximum bytes of unacknowledged records. Records are counted uncompressed until their batch is sent, and
    compressed from then on. At the maximum, enqueue() waits and send() raises BufferFullError.
    """
    compression_gzip_level: int
    """Compression level of gzip, 1 to 9; -1: the codec's default."""
    compression_lz4_level: int
    """Compression level of lz4, 1 to 17; the codec's default is 9."""
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    """Codec of the batches."""
    compression_zstd_level: int
    """Compression level of zstd, -131072 to 22."""
    delivery_timeout_ms: int
    """Maximum time from send() to its result, including waiting and retries."""
    enable_idempotence: bool
    """Make sure that retries neither duplicate nor reorder records."""
    linger_ms: int
    """Maximum wait for more records before a batch is sent. A batch is sent earlier if it is full, during flush()
    or a commit, or while a record waits for memory.
    """
    max_block_ms: int
    """Maximum wait of enqueue() for metadata or memory, and of transaction calls for a response."""
    max_in_flight_requests_per_connection: int
    """Maximum number of unanswered Produce requests per broker; with idempotence at most 5."""
    max_request_size: int
    """Maximum bytes of a record, and of a request."""
    metadata_max_idle_ms: int
    """Time after which the metadata of an unused topic is no longer refreshed."""
    partitioner_class: Partitioner | None
    """A callable (topic, key, number of partitions) → partition. None: Kafka's hash of the key; records without a
    key go to one partition for batch.size bytes, then to another (KIP-794).
    """
    partitioner_ignore_keys: bool
    """Whether to choose partitions as if no record had a key."""
    transaction_timeout_ms: int
    """Time after which the coordinator aborts an open transaction."""


class PoolKeywords(SendingKeywords, total=False):
    """Settings of the producers of a `TransactionalProducerPool`."""

    consumer_group_aware_transaction: bool | Literal["require"]
    """true: if the broker has the feature group.aware.transaction, init_transactions(assignment) fences the
    producers that worked on the assigned partitions before; otherwise, the broker checks member and generation at
    each commit of offsets (KIP-447). false: always as in KIP-447. require: like true, but raise
    UnsupportedVersionError if the broker lacks the feature. Not a setting of Kafka's Java client.
    """
    transactional_group_id: str | None
    """The consumer group for which transactions commit offsets; send_offsets(offsets) then needs no group. With
    this setting the producer is transactional even without a transactional.id: the broker then assigns an id. Not a
    setting of Kafka's Java client.
    """


class ProducerKeywords(PoolKeywords, total=False):
    """Settings of `Producer`."""

    transactional_id: str | None
    """Name that makes the producer transactional. A newer producer with the same id fences it."""


class ReadingKeywords(ClientKeywords, total=False):
    """Settings of a consumer, without those that a `Processor` sets itself."""

    allow_auto_create_topics: bool
    """Whether the broker may create topics to which the consumer subscribes."""
    auto_commit_interval_ms: int
    """Time between automatic commits."""
    auto_offset_reset: Literal["earliest", "latest", "none"]
    """Where to start without a committed offset; none: the consumer raises NoOffsetForPartitionError."""
    check_crcs: bool
    """Whether to verify the checksum of every batch."""
    client_rack: str
    """The rack of this client, for the group's assignor. Records are always fetched from leaders."""
    default_api_timeout_ms: int
    """Maximum wait of calls that have no timeout argument."""
    exclude_internal_topics: bool
    """Whether to exclude internal topics from a subscription by pattern."""
    fetch_max_bytes: int
    """Maximum bytes of a fetch response. A larger first batch is returned nevertheless."""
    fetch_max_wait_ms: int
    """Maximum wait of the broker for fetch.min.bytes."""
    fetch_min_bytes: int
    """The broker responds as soon as it has this many bytes of records, or after fetch.max.wait.ms."""
    group_protocol: Literal["classic"]
    """Protocol of the group. Only classic is supported."""
    heartbeat_interval_ms: int
    """Time between heartbeats. It should be at most a third of session.timeout.ms."""
    max_batch_objects: int
    """Maximum number of records and headers in a batch; a batch with more raises RecordCorruptError. Not a setting
    of Kafka's Java client.
    """
    max_decompressed_bytes: int
    """Maximum bytes of a decompressed batch; a larger batch raises RecordCorruptError. Not a setting of Kafka's
    Java client.
    """
    max_partition_fetch_bytes: int
    """Maximum bytes per partition in a fetch response. A larger first batch of the response is returned
    nevertheless.
    """
    max_poll_interval_ms: int
    """Time without a poll after which the member leaves the group."""
    max_poll_records: int
    """Maximum number of records that a poll returns."""
    partition_assignment_strategy: str | Iterable[str]
    """Assignors in order of preference: range, roundrobin, sticky, cooperative-sticky, or Kafka's class names."""
    session_timeout_ms: int
    """Time without heartbeats after which a member is removed from the group."""


class ConsumerKeywords(ReadingKeywords, total=False):
    """Settings of `Consumer`."""

    enable_auto_commit: bool
    """Whether to commit the positions every auto.commit.interval.ms and at close."""
    group_id: str | None
    """The group that the consumer joins and commits offsets for."""
    group_instance_id: str | None
    """Name that makes the consumer a static member, which keeps its partitions across restarts."""
    isolation_level: Literal["read_uncommitted", "read_committed"]
    """read_committed hides records of open and of aborted transactions."""


class ProcessorKeywords(SendingKeywords, ReadingKeywords, total=False):
    """Settings that a `Processor` passes on to its consumers and producers."""

    group_instance_id: str | None
    """Name that makes the consumer a static member, which keeps its partitions across restarts."""
