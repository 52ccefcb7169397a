"""Types of the broker's settings as keyword arguments. `make docs` writes this file from `config.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypedDict


class BrokerKeywords(TypedDict, total=False):
    """Settings of `Broker`."""

    ssl_keystore_type: Literal["PEM", "PKCS12", "JKS"]
    """The format of the file with the broker's private key and certificate chain. With PKCS12 or JKS, the file may
    have either of these two formats. Kafka's default is JKS.
    """
    ssl_keystore_location: str
    """The file with the broker's private key and certificate chain. The broker reads it again when it changes; open
    connections stay open.
    """
    ssl_keystore_password: str
    """The password of a PKCS12 or JKS file in ssl.keystore.location."""
    ssl_keystore_key: str
    """The broker's private key in PEM format, in place of a file. PKCS #8, optionally encrypted with
    ssl.key.password.
    """
    ssl_keystore_certificate_chain: str
    """The broker's certificate chain in PEM format, in place of a file."""
    ssl_key_password: str
    """The password of the private key, if the key itself is encrypted."""
    ssl_truststore_type: Literal["PEM", "PKCS12", "JKS"]
    """The format of the file with the trusted certificates. With PKCS12 or JKS, the file may have either of these
    two formats. Kafka's default is JKS.
    """
    ssl_truststore_location: str
    """The file with the certificates of the authorities that sign clients' certificates. The broker reads it again
    when it changes.
    """
    ssl_truststore_password: str
    """The password of a PKCS12 or JKS file in ssl.truststore.location."""
    ssl_truststore_certificates: str
    """The trusted certificates in PEM format, in place of a file."""
    ssl_client_auth: Literal["none", "requested", "required"]
    """Whether clients must present a certificate. required: only clients with a trusted certificate are accepted.
    requested: clients without a certificate are accepted, too. none: the broker asks for no certificate. A SASL_SSL
    listener uses this setting only with the prefix listener.name.<listener>.
    """
    ssl_principal_mapping_rules: str
    """How the subject of a client's certificate becomes the name of its principal (KIP-371): rules of the form
    RULE:pattern/replacement/, with L or U at the end for lower or upper case, separated by commas. The first rule
    whose pattern matches the whole subject applies. DEFAULT: the whole subject. If no rule matches, the connection
    is closed.
    """
    ssl_enabled_protocols: str | Iterable[str]
    """The versions of TLS that the broker accepts."""
    ssl_cipher_suites: str | Iterable[str]
    """The cipher suites that the broker accepts, by their standard names or OpenSSL's. Empty: OpenSSL's defaults. A
    list without a suite of TLS 1.3 excludes that version. Python offers the suites of TLS 1.3 only together, so a
    list must name all of them or none.
    """
    ssl_reload_interval_ms: int
    """The time in ms between two checks for changed key or certificate files. 0: never."""
    connection_authentication_timeout_ms: int
    """The longest time in ms that the TLS handshake of a connection may take. The SASL login after it may take the
    same time again. A connection that takes longer is closed.
    """
    connection_failed_authentication_delay_ms: int
    """The time in ms before a refused login gets its response and its connection is closed."""
    connections_max_reauth_ms: int
    """The time in ms within which a client must log in with SASL again (KIP-368). The broker announces the time,
    and clients log in again on the same connection. 0: a login lasts as long as its connection.
    """
    sasl_enabled_mechanisms: str | Iterable[str]
    """The SASL mechanisms by which clients can log in. SCRAM: the users are in the cluster's metadata. PLAIN: the
    users are those of plain.users.location and plain.sasl.jaas.config. OAUTHBEARER: clients send a token that a key
    of sasl.oauthbearer.jwks.endpoint.url has signed. Kafka's default is GSSAPI.
    """
    sasl_oauthbearer_jwks_endpoint_url: str
    """The address of the identity provider's public keys (a JSON Web Key Set) for OAUTHBEARER: https://..., or
    file:///... for a file.
    """
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int
    """The time in ms after which the broker reads the keys for OAUTHBEARER again."""
    sasl_oauthbearer_expected_issuer: str
    """The issuer (claim iss) that a token must have. Empty: any."""
    sasl_oauthbearer_expected_audience: str | Iterable[str]
    """The accepted audiences (claim aud). A token must have at least one of them. Empty: any. Set it if the
    identity provider also issues tokens for other services, because those tokens would be accepted here.
    """
    sasl_oauthbearer_clock_skew_seconds: int
    """The time in seconds by which the clocks of the identity provider and of the broker may differ."""
    sasl_oauthbearer_sub_claim_name: str
    """The claim of a token that contains the name of the user, which becomes the principal."""
    sasl_server_max_receive_size: int
    """The largest request in bytes that a client can send before it has logged in with SASL. Raise it for larger
    tokens. Kafka's default is 524288, but many requests of that size would use up the memory for other requests.
    """
    sasl_server_max_waiting_logins: int
    """The maximum number of logins that wait for a slow check: the comparison of a password with its salted hash
    (PLAIN), or the verification of a large token (OAUTHBEARER). If there are more, the connection of one of them is
    closed. A login whose password was recently found to be right does not wait. Not a setting of Kafka.
    """
    sasl_server_max_waiting_logins_per_ip: int
    """The maximum number of logins from one address that wait for the check of their password or token. The broker
    checks logins from each address in turn. An IPv6 address is counted as its /64 network. Not a setting of Kafka.
    """
    scram_max_users: int
    """The maximum number of users with SCRAM credentials, which are all kept in memory. Credentials of further
    users are refused with POLICY_VIOLATION.
    """
    plain_sasl_jaas_config: str
    """The users of PLAIN, in the form of a Java login module: `PlainLoginModule required user_NAME="PASSWORD" ...;`
    with one such pair for each user. Kafka has this setting only with the prefix listener.name.<listener>.
    """
    plain_users_location: str
    """The file with the users of PLAIN. Each line consists of a name, a colon and a salted hash of the password;
    `oncelog user hash NAME` prints such a line. The broker reads the file again when it changes.
    """
    delegation_token_secret_key: str
    """The key from which the broker computes the secret of every delegation token. Empty: delegation tokens are
    off. Use a long random string, for example the output of `openssl rand -base64 48`. Changing the key invalidates
    all secrets that were handed out.
    """
    delegation_token_max_lifetime_ms: int
    """The longest time in ms for which a delegation token can be valid, counted from its creation and including all
    renewals.
    """
    delegation_token_expiry_time_ms: int
    """The time in ms for which a new delegation token is valid, and the longest time that a renewal adds to the
    current time.
    """
    delegation_token_expiry_check_interval_ms: int
    """The time in ms between two searches for expired delegation tokens, which are then removed. An expired token
    admits no login even before it is removed.
    """
    delegation_token_max_tokens: int
    """The maximum number of delegation tokens, which are all kept in memory. A request to create more fails with
    POLICY_VIOLATION. Not a setting of Kafka.
    """
    delegation_token_max_tokens_per_owner: int
    """The maximum number of delegation tokens of one owner. A request to create more fails with POLICY_VIOLATION.
    The default is no limit, as in Kafka, so one owner can use up delegation.token.max.tokens. Not a setting of
    Kafka.
    """
    authorizer_class_name: str
    """The access control. Empty: none, so every client may do everything. `StandardAuthorizer`, or Kafka's full
    name of this class: ACLs decide what clients may do.
    """
    super_users: str
    """The principals that may do everything, separated by semicolons, for example `User:alice;User:bob`. ACLs do
    not limit them.
    """
    allow_everyone_if_no_acl_found: bool
    """Whether every client may use a resource for which there is no ACL at all."""
    max_acls: int
    """The maximum number of ACLs. A request to create more fails with POLICY_VIOLATION."""
    quota_window_num: int
    """The number of windows over which the use of a quota is measured. A client that was idle may immediately use
    the quota of all windows but one.
    """
    quota_window_size_seconds: int
    """The length in seconds of a window over which the use of a quota is measured."""
    controller_quota_window_num: int
    """The number of windows for which an idle client saves up its quota `controller_mutation_rate`. It may then use
    all of this at once.
    """
    controller_quota_window_size_seconds: int
    """The length in seconds of each window that controller.quota.window.num counts."""
    max_client_quotas: int
    """The maximum number of users, client ids, pairs of user and client id, and addresses that have quotas, all
    counted together. A request that sets a quota for a further one fails with POLICY_VIOLATION.
    """
    node_id: int
    """The broker's id in the cluster."""
    listeners: str | Iterable[str]
    """The addresses on which the broker listens, each as NAME://HOST:PORT. An empty host means all interfaces; port
    0 means any free port.
    """
    advertised_listeners: str | Iterable[str]
    """The addresses that the broker tells clients to connect to, at most one for each name in `listeners`. A client
    learns the address of the listener that it has connected to. If a listener has no address here, clients learn
    its host in `listeners` or, if that means all interfaces, the address to which they have connected.
    """
    listener_security_protocol_map: str | Iterable[str]
    """The protocol of each listener name, as NAME:PROTOCOL, with an entry for each listener. Empty: a listener's
    name is its protocol, that is, PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
    """
    metrics_listener: str
    """The address on which the broker answers `GET /metrics`, for Prometheus, and `GET /health`, as host:port,
    http://host:port or https://host:port. TLS uses the settings of a listener with the name METRICS, such as
    listener.name.metrics.ssl.keystore.location. An empty host means 127.0.0.1, or all interfaces if clients must
    authenticate. If the setting is empty, the broker answers neither.
    """
    metrics_users_location: str
    """The file with the users who may read the metrics, by HTTP basic authentication. Each line consists of a name,
    a colon and a salted hash of the password; `oncelog user hash NAME` prints such a line. The broker reads the
    file again when it changes.
    """
    metrics_bearer_token_location: str
    """The file with the tokens of clients that may read the metrics, one per line: clients send `Authorization:
    Bearer TOKEN`. The broker reads the file again when it changes.
    """
    metrics_health_public: bool
    """Whether the broker answers `GET /health` from clients without credentials. Its answer then contains the
    status, but not the reason. Has no effect unless metrics.users.location or metrics.bearer.token.location is set.
    """
    health_flush_max_ms: int
    """The longest time in ms that a flush to disk may take before `GET /health` is answered with 503."""
    health_probe_interval_ms: int
    """The shortest time in ms between two health probes. A probe writes and syncs a small file in the data
    directory. A health check between two probes gets the result of the earlier one.
    """
    health_probe_timeout_ms: int
    """The time in ms after which a health probe that has not finished counts as failed. Even if this time is
    longer, `oncelog health` gives up after 2500 ms.
    """
    broker_rack: str
    """The broker's rack, which the broker reports to clients."""
    inter_broker_protocol_version: Literal["4.0", "4.1"]
    """The level of the optional protocol features. 4.1 enables oncelog's extension for transactions; 4.0 disables
    it.
    """
    transaction_version: int
    """The finalized level of the feature transaction.version (KIP-890). With 2, every transaction raises the
    producer epoch.
    """
    dynamic_configs_enable: bool
    """Whether settings can be changed while the broker is running (KIP-226). false: values that clients have set
    have no effect and can only be removed. Start the broker with false if a changed limit locks everybody out.
    """
    socket_request_max_bytes: int
    """The largest request in bytes. The broker closes the connection of a client that sends a larger one."""
    socket_listen_backlog_size: int
    """The number of connections that may wait to be accepted. Clients beyond this number retry after a second.
    Kafka's default of 50 is too small when many clients connect at the same time.
    """
    socket_send_buffer_bytes: int
    """The size in bytes of a connection's send buffer (SO_SNDBUF). -1: the operating system's default."""
    socket_receive_buffer_bytes: int
    """The size in bytes of a connection's receive buffer (SO_RCVBUF). -1: the operating system's default."""
    max_connections: int
    """The maximum number of connections that may be open at a time. Further connections are closed at once."""
    max_open_files: int
    """The number of file descriptors that are kept for data files, and so the maximum number of data files that are
    open at a time. It is limited to half of the process's limit (ulimit -n). Data files beyond this number are
    closed, and opened again when they are used. Connections get the remaining descriptors. -1: half of the limit,
    at most 16384.
    """
    max_connections_per_ip: int
    """The maximum number of connections that may be open at a time from one address. Further connections are closed
    at once. An IPv6 address is counted as its /64 network.
    """
    max_connection_creation_rate: int
    """The maximum number of new connections per second (KIP-612), on average over the last quota.window.num
    windows. If a connection exceeds it, the listener waits, and only then serves this connection and accepts the
    next one. With the prefix listener.name.<listener>., the setting limits one listener, and a change needs a
    restart. Without a prefix, it limits the whole broker.
    """
    connections_max_idle_ms: int
    """The time in ms after which a connection without requests and responses is closed. 0 or less: never."""
    connection_max_inflight_requests: int
    """The maximum number of requests of one connection that may wait for their responses. At this limit the broker
    stops reading from the connection.
    """
    connection_write_buffer_bytes: int
    """The response bytes that a client may leave unread before the broker stops executing the client's requests."""
    queued_max_request_bytes: int
    """The memory in bytes for requests that are being received on all connections. At this limit, requests wait,
    small ones for the shortest time. While they wait, the broker closes connections whose requests have stopped
    arriving. If there are none, it closes the connection whose request arrives most slowly. 0 or less: no limit,
    which is Kafka's default.
    """
    queued_max_response_bytes: int
    """The memory in bytes for responses that clients have not read, on all connections. A Fetch response gets at
    most half of the free part. Beyond this limit, connections of clients that read nothing are closed.
    """
    connection_write_stall_ms: int
    """The time in ms for which a client may read nothing of its responses while queued.max.response.bytes is
    exceeded. Then its connection is closed. The further the limit is exceeded, the shorter this time becomes.
    """
    connection_request_idle_ms: int
    """The time in ms after which a connection is closed if a part of a request has arrived and no more of it
    arrives. 0 or less: never.
    """
    shutdown_timeout_ms: int
    """The longest time in ms that a stopping broker waits for running requests before it closes their connections."""
    fetch_max_bytes: int
    """The largest Fetch response in bytes, even if the client requests more."""
    max_incremental_fetch_session_cache_slots: int
    """The maximum number of incremental fetch sessions (KIP-227) that the broker keeps. 0: none."""
    max_incremental_fetch_session_cache_partitions: int
    """The maximum number of partitions in all incremental fetch sessions together. A Fetch that would exceed it
    replaces the sessions that have not been used for the longest time. If these were used in the last two minutes,
    it gets no session.
    """
    request_max_elements: int
    """The maximum number of array elements (topics, partitions, keys, ...) and tagged fields in a request. If a
    request has more, the broker closes the connection before it decodes the elements.
    """
    response_max_rows: int
    """The maximum number of rows (partitions, offsets, members, settings, ...) in a response. A request for more
    fails with INVALID_REQUEST.
    """
    response_max_bytes: int
    """The largest response in bytes, not counting records. A request for a larger one fails with INVALID_REQUEST. A
    higher limit only helps clients that accept such large responses themselves.
    """
    max_concurrent_large_requests: int
    """The maximum number of large requests (with hundreds of elements or response rows) that are decoded, executed
    and answered at the same time. Further ones wait in order; small requests never wait. A higher value needs more
    memory. In addition, up to the same number of large requests may wait for the end of a transaction; a further
    one fails with CONCURRENT_TRANSACTIONS.
    """
    num_partitions: int
    """The number of partitions of a new topic if the request to create it does not give a number."""
    topic_max_partitions: int
    """The maximum number of partitions that a topic may have. A request for more fails with INVALID_PARTITIONS."""
    request_max_new_partitions: int
    """The maximum number of partitions that one CreateTopics, CreatePartitions or Metadata request may create. A
    request for more fails with POLICY_VIOLATION. Kafka has the same limit, but no setting for it.
    """
    max_partitions: int
    """The maximum number of partitions of all topics together, including topics that are created automatically. A
    request for more fails with POLICY_VIOLATION.
    """
    default_replication_factor: int
    """The number of replicas of a topic. Must be 1, or -1 for the default, because there is a single node."""
    min_insync_replicas: int
    """Accepted without effect, because a partition has a single replica: Produce requests succeed even if this
    number is higher than 1.
    """
    auto_create_topics_enable: bool
    """Whether a topic is created when a client requests its metadata."""
    delete_topic_enable: bool
    """Whether clients may delete topics with DeleteTopics."""
    message_max_bytes: int
    """The largest record batch in bytes, as compressed by the client."""
    max_batch_objects: int
    """The maximum number of records and record headers, counted together, in a producer's batch. A batch with more
    fails with MESSAGE_TOO_LARGE.
    """
    max_record_headers: int
    """The maximum number of headers of one record from a producer. A record with more fails with INVALID_RECORD."""
    max_decompressed_bytes: int
    """The largest decompressed size in bytes of a producer's batch. A larger batch fails with MESSAGE_TOO_LARGE."""
    max_concurrent_decompressions: int
    """The maximum number of batches of more than 1 MiB decompressed size that are checked at the same time. Each
    may use `max.decompressed.bytes` of memory.
    """
    compression_type: Literal["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]
    """Accepted without effect, because batches are stored as the producer compressed them."""
    compression_gzip_level: int
    """Accepted without effect, because batches are stored as the producer compressed them."""
    compression_lz4_level: int
    """Accepted without effect, because batches are stored as the producer compressed them."""
    compression_zstd_level: int
    """Accepted without effect, because batches are stored as the producer compressed them."""
    unclean_leader_election_enable: bool
    """Accepted without effect, because a partition has a single replica: no other leader can be elected."""
    leader_replication_throttled_rate: int
    """Accepted without effect, because a partition has a single replica."""
    follower_replication_throttled_rate: int
    """Accepted without effect, because a partition has a single replica."""
    replica_alter_log_dirs_io_max_bytes_per_second: int
    """Accepted without effect, because there is one data directory."""
    log_dirs: str
    """The path of the data directory."""
    durability: Literal["flush", "os"]
    """When records count as written. Before that, the broker sends no acks=all response for them, and consumers do
    not see them. flush: after fdatasync. os: after the write to the operating system's page cache.
    """
    log_reserve_bytes: int
    """The disk space in bytes that is kept free for transaction markers and internal topics. Produce is refused
    when less is free. A compaction, which frees space, may use up to half of the reserve. A compaction of an
    internal topic may use more.
    """
    log_reserve_decision_bytes: int
    """The part of log.reserve.bytes, at most half of it, that is kept for committing and aborting transactions, for
    their markers, and for requests that free space. Offset commits and new transactions are refused when fewer than
    this number of bytes are free.
    """
    log_journal_bytes: int
    """The size in bytes of each file of the journal, at least 8192, at most 1/64 of the disk. With a journal, one
    fdatasync makes small appends to many partitions durable. The broker usually keeps two files, and at most four.
    For each partition whose own files have failed, it also keeps a copy of the partition's journal entries. 0: no
    journal; each partition's file is synced.
    """
    log_segment_bytes: int
    """The size in bytes at which a segment is full and the next one begins."""
    log_roll_ms: int
    """The age in ms of a segment's first record at which the next segment begins. 0 or less: log.roll.hours applies."""
    log_roll_hours: int
    """The age in hours of a segment's first record at which the next segment begins, unless log.roll.ms is set."""
    log_roll_jitter_ms: int
    """The largest random time in ms that is subtracted from log.roll.ms or log.roll.hours. -1:
    log.roll.jitter.hours applies.
    """
    log_roll_jitter_hours: int
    """The largest random time in hours that is subtracted from log.roll.ms or log.roll.hours, unless
    log.roll.jitter.ms is set.
    """
    log_roll_min_ms: int
    """The age in ms of a segment, by the broker's clock, below which segment.ms does not apply to it, whatever
    timestamps its records have.
    """
    log_max_segments: int
    """The number of a partition's segments at which segment.bytes and segment.ms no longer apply. Until retention
    or compaction removes segments, a new segment then begins only when a file or an index has reached its largest
    possible size.
    """
    log_retention_ms: int
    """The time in ms for which records are kept. -1: forever; -2: log.retention.minutes or log.retention.hours
    applies.
    """
    log_retention_minutes: int
    """The time in minutes for which records are kept, unless log.retention.ms is set. -1: forever; -2:
    log.retention.hours applies.
    """
    log_retention_hours: int
    """The time in hours for which records are kept, unless the time is set in a finer unit. -1: forever."""
    log_retention_bytes: int
    """The size in bytes beyond which the oldest segments of a partition are deleted. -1 or less: no limit."""
    log_retention_check_interval_ms: int
    """The time in ms between two checks for segments that retention deletes."""
    log_cleanup_policy: str | Iterable[str]
    """What happens to old records. delete: retention deletes their segments; compact: at least the newest record of
    each key is kept; delete,compact: both apply; an empty list: all records are kept.
    """
    log_cleaner_enable: bool
    """Whether the log cleaner runs. false: no topic is compacted."""
    log_cleaner_backoff_ms: int
    """The time in ms between two searches of the log cleaner for logs to compact."""
    log_cleaner_delete_retention_ms: int
    """The time in ms for which compaction keeps tombstones."""
    log_cleaner_min_cleanable_ratio: float
    """The share of uncleaned bytes (0 to 1) at which a log is compacted."""
    log_cleaner_min_compaction_lag_ms: int
    """The age in ms below which records are not compacted."""
    log_cleaner_max_compaction_lag_ms: int
    """The age in ms at which records are compacted even if the share of uncleaned bytes is small."""
    log_index_size_max_bytes: int
    """The largest size in bytes of a segment's offset index or time index."""
    log_index_interval_bytes: int
    """The number of bytes of records between two entries of an index."""
    log_index_cache_bytes: int
    """The memory in bytes for the indexes of inactive segments of all partitions. The least recently used indexes
    are dropped and read again when they are needed.
    """
    log_flush_threads: int
    """The number of threads that sync the files of partitions, each for one partition at a time. More threads than
    processors are useful, because a journaling file system commits concurrent syncs together.
    """
    log_segment_delete_delay_ms: int
    """The time in ms before the files of a deleted segment are removed."""
    log_flush_interval_messages: int
    """Accepted without effect, because the broker's `durability` decides when data is flushed."""
    log_flush_interval_ms: int
    """Accepted without effect, because the broker's `durability` decides when data is flushed."""
    log_preallocate: bool
    """Accepted without effect, because segment files grow as they fill."""
    log_message_timestamp_type: Literal["CreateTime", "LogAppendTime"]
    """The source of records' timestamps: the producer (CreateTime) or the broker (LogAppendTime)."""
    log_message_timestamp_before_max_ms: int
    """The longest time in ms by which a record's timestamp may be behind the broker's clock."""
    log_message_timestamp_after_max_ms: int
    """The longest time in ms by which a record's timestamp may be ahead of the broker's clock."""
    producer_id_expiration_ms: int
    """The time in ms after which a partition forgets an idle producer id, unless the producer has an open
    transaction.
    """
    producer_id_expiration_check_interval_ms: int
    """Accepted without effect, because idle producer ids expire at the checks of retention
    (`log.retention.check.interval.ms`).
    """
    group_min_session_timeout_ms: int
    """The shortest session timeout in ms that a group member may request."""
    group_max_session_timeout_ms: int
    """The longest session timeout in ms that a group member may request."""
    group_initial_rebalance_delay_ms: int
    """The time in ms for which the first rebalance of an empty group waits for more members. Kafka's default is
    3000, and its quickstart sets 0. With less than 100, a consumer of kafka-python 3.0 joins before it knows the
    partitions and may then be assigned none. Use a higher value if many members of a group start at the same time.
    """
    group_max_size: int
    """The maximum number of members of a group. A further member that tries to join gets GROUP_MAX_SIZE_REACHED.
    Kafka has no limit by default. A rebalance delays all other requests by about 5 ms for each 1000 members of the
    group. A group must also fit into one record (`message.max.bytes`), and its members into one response
    (`response.max.rows`).
    """
    group_id_max_bytes: int
    """The maximum length of a new group id in bytes. A longer id is refused with INVALID_GROUP_ID, because it would
    stay in memory and in the log until the group expires. Kafka allows 32767 bytes.
    """
    group_max_groups: int
    """The maximum number of groups. A request that would create a further group fails with GROUP_MAX_SIZE_REACHED
    until groups are deleted or expire.
    """
    group_member_max_protocols: int
    """The maximum number of protocols (assignment strategies) that a member may offer. A JoinGroup that offers more
    fails with INCONSISTENT_GROUP_PROTOCOL. Kafka has no such limit.
    """
    group_members_max_bytes: int
    """The memory in bytes for the members of all groups: their subscriptions, assignments and names. A JoinGroup or
    an assignment that would exceed it fails with GROUP_MAX_SIZE_REACHED. A group must also fit into one record
    (`message.max.bytes`).
    """
    group_pending_members_max_bytes: int
    """The memory in bytes for member ids that were assigned to clients that have not joined yet. At this limit the
    oldest of these ids are dropped.
    """
    offset_metadata_max_bytes: int
    """The largest metadata of an offset commit, in characters."""
    offsets_commit_timeout_ms: int
    """The longest time in ms that an offset commit waits for the disk."""
    offsets_load_buffer_size: int
    """Accepted without effect, because the broker loads offsets in small chunks."""
    offsets_retention_minutes: int
    """The time in minutes for which committed offsets are kept after the group has become empty. For consumers that
    commit without joining the group, and for topics to which no member subscribes any more, the time begins with
    the commit.
    """
    offsets_retention_check_interval_ms: int
    """The time in ms between two checks for expired offsets."""
    offsets_topic_num_partitions: int
    """The number of partitions of __consumer_offsets."""
    offsets_topic_replication_factor: int
    """The number of replicas of __consumer_offsets. Must be 1, or -1 for the default, because there is a single
    node.
    """
    offsets_topic_segment_bytes: int
    """The segment size of __consumer_offsets in bytes."""
    offsets_topic_compression_codec: int
    """The compression of __consumer_offsets. The only value is 0: no compression."""
    transactional_id_pattern_max_size: int
    """The largest pattern in ListTransactions: the maximum number of its characters, and also of the instructions
    into which it is compiled. A larger one fails with INVALID_REGULAR_EXPRESSION.
    """
    transaction_max_timeout_ms: int
    """The longest transaction timeout in ms that a producer may request."""
    transactional_id_expiration_ms: int
    """The time in ms after which an idle transactional id is forgotten."""
    transactional_id_max_bytes: int
    """The maximum length of a new transactional id in bytes. A longer one is refused with INVALID_REQUEST, because
    it would stay in memory and in the log until it expires. Kafka allows 32767 bytes.
    """
    transaction_state_log_num_partitions: int
    """The number of partitions of __transaction_state."""
    transaction_state_log_replication_factor: int
    """The number of replicas of __transaction_state. Must be 1, or -1 for the default, because there is a single
    node.
    """
    transaction_state_log_min_isr: int
    """The minimum number of in-sync replicas of __transaction_state. Must be 1, or -1 for the default, because
    there is a single node.
    """
    transaction_state_log_segment_bytes: int
    """The segment size of __transaction_state in bytes."""
    transaction_state_log_load_buffer_size: int
    """Accepted without effect, because the broker loads __transaction_state in small chunks."""
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    """The longest time in ms between two searches for transactions that have timed out. The broker also searches
    when the timeout of a transaction passes.
    """
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    """The time in ms between two searches for transactional ids that have expired."""
    expiry_clock_settle_ms: int
    """The time in ms for which the removal of expired offsets, transactional ids and delegation tokens ignores that
    the wall clock has jumped ahead. Afterwards, the new time applies. 0: it applies at once, as in Kafka. Not a
    setting of Kafka.
    """
    transaction_partition_verification_enable: bool
    """Whether the broker checks that a transactional batch belongs to an ongoing transaction (KIP-890)."""
    transaction_pending_wait_max_ms: int
    """The longest time in ms that a request waits for the end of the previous transaction. Then it fails with
    CONCURRENT_TRANSACTIONS.
    """
    transaction_pending_wait_max_requests: int
    """The maximum number of requests that may wait at a time for the end of a previous transaction. Further ones
    fail at once with CONCURRENT_TRANSACTIONS.
    """
    transaction_max_partitions: int
    """The maximum number of partitions of one transaction. It is limited because each change of a transaction
    writes a list of all its partitions. A request that adds more fails with POLICY_VIOLATION, and the transaction
    has to be aborted. Not a setting of Kafka.
    """
    transaction_retry_backoff_ms: int
    """The time in ms before a retry of writing a transaction marker, or of reading the state of transactions and
    groups at the start. It doubles with every retry.
    """
    transaction_retry_backoff_max_ms: int
    """The longest time in ms between two retries of writing a transaction marker or of reading the state of
    transactions and groups.
    """
    group_transaction_max_partitions: int
    """The maximum number of partitions of one group-aware InitProducerId request (extension)."""
    logging_level: Literal["debug", "info", "warning", "error"]
    """The level of the least severe log lines that are written."""
    logging_format: Literal["auto", "console", "json"]
    """The format of log lines, which are written to stderr. auto: console if stderr is a terminal, else json."""
    logging_max_lines_per_second: int
    """The maximum number of log lines per second for one kind of event, on average over ten seconds. Further lines
    are suppressed and counted, and the next line of this kind reports their number. 0: no limit.
    """
    audit_log_level: Literal["off", "denied", "all"]
    """What the audit log records. denied: operations that ACLs deny, and refused logins. all: also allowed
    operations and accepted logins. off: nothing. The audit log is the counterpart of Kafka's
    kafka.authorizer.logger.
    """
    audit_log_location: str
    """The file to which the audit log is appended, as lines of JSON. If it is moved, the broker creates it again.
    Empty: the audit log is part of the broker's log.
    """
    audit_log_max_lines_per_second: int
    """The maximum number of audit log lines per second for one client and one kind of record, on average over ten
    seconds. Further lines are suppressed and counted. 0: no limit.
    """
