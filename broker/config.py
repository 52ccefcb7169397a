"""Define the broker's settings in one table. A setting that Kafka has too has Kafka's name and, usually, its default.

Settings of Kafka that have no meaning for this broker (thread counts, replica fetchers, controller quorum) are accepted
without effect, and their names are logged at the start. So most settings of an existing server.properties can stay. A
single node cannot have Kafka's defaults for the replication of internal topics. The default of these settings is 1, and
a higher value is refused with an error that names the setting.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ..auth.mechanism_names import OAUTHBEARER, PLAIN, SCRAM_NUMBERS
from ..settings import (
    INT32_MAX,
    INT64_MAX,
    ConfigError,
    Setting,
    at_least,
    between,
    boolean,
    double,
    integer,
    long,
    normal_name,
    short,
    text,
    text_list,
)
from .acls.settings import AclSettings
from .listener_config import (
    METRICS,
    ListenerConfig,
    SecurityProtocol,
    check_text,
    problem_of_http_address,
    problem_of_items,
    problem_of_map,
    read_http_address,
    read_listeners,
)
from .quotas.settings import QuotaSettings
from .security.delegation_token_settings import DelegationTokenSettings
from .security.settings import ListenerSettings, SecuritySettings

ENVIRONMENT_PREFIX: Final = "ONCELOG_"

LISTENER_PREFIX: Final = "listener.name."

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
"""Settings of Kafka that are accepted without effect."""

SECURITY_PREFIXES: Final = (
    "ssl.",
    "sasl.",
    "listener.name.",
    "password.encoder.",
    "zookeeper.ssl.",
    "security.",
    "authorizer.",
    "principal.builder.",
)
SECURITY_NAMES: Final = frozenset(
    {
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
"""Settings of Kafka that restrict what clients may do. Those that the broker does not support are refused."""

HARMLESS: Final = {
    "security.inter.broker.protocol": tuple(SecurityProtocol),
    "sasl.mechanism.inter.broker.protocol": ("GSSAPI", PLAIN, *SCRAM_NUMBERS, OAUTHBEARER),
    "sasl.mechanism.controller.protocol": ("GSSAPI", PLAIN, *SCRAM_NUMBERS, OAUTHBEARER),
    "ssl.protocol": ("TLS", "TLSv1.2", "TLSv1.3"),
    "ssl.endpoint.identification.algorithm": ("https",),
    "ssl.keymanager.algorithm": ("SunX509", "PKIX"),
    "ssl.trustmanager.algorithm": ("SunX509", "PKIX"),
    "principal.builder.class": ("org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",),
}
"""Values that unsupported security settings may have, because these values require nothing of the broker.

The settings for connections between brokers have no effect, because there is no other broker. `ssl.protocol` has no
effect either: the setting `ssl.enabled.protocols` chooses the versions of TLS. For all other settings, the values here
are Kafka's defaults.
"""

LOGIN_MODULES: Final = {
    **{
        f".{normal_name(name)}.sasl.jaas.config": ("ScramLoginModule", {"username", "password"})
        for name in SCRAM_NUMBERS
    },
    ".oauthbearer.sasl.jaas.config": ("OAuthBearerLoginModule", set[str]()),
}
"""The login module that Kafka demands in each of these settings, and the options that the module may have.

The keys are the ends of the settings' names. Settings with such a value are accepted without effect, because
`sasl.enabled.mechanisms` already names the mechanisms. The options `username` and `password` are credentials for logins
to other brokers, which do not exist here.
"""


def is_security_setting(name: str) -> bool:
    """Return whether Kafka has a setting of this name that restricts or encrypts access."""
    return name.startswith(SECURITY_PREFIXES) or name in SECURITY_NAMES


def _is_harmless(name: str, value: object) -> bool:
    """Return whether this is a security setting with a value that the broker can safely ignore."""
    text = str(value).strip().lower() if value is not None else ""
    if not is_security_setting(name):
        return False
    return text in ("", *map(str.lower, HARMLESS.get(name, ()))) or _is_login_module(name, str(value))


def _is_login_module(name: str, value: str) -> bool:
    """Return whether LOGIN_MODULES has the setting, and the value names its module with no options but those listed."""
    for end, (module, options) in LOGIN_MODULES.items():
        if name.startswith(LISTENER_PREFIX) and name.endswith(end):
            from ..auth.jaas import parse_jaas  # imported at its first use, not at start

            try:
                entry = parse_jaas(value)
            except ValueError:
                return False
            return entry.module == module and entry.options.keys() <= options
    return False


def _prefix(listener: str) -> str:
    """Return the prefix of the names of a listener's own settings, in lower case, with dots for `_` and `-`."""
    return f"{LISTENER_PREFIX}{normal_name(listener)}."


def _address(value: str) -> str | None:
    return problem_of_http_address(value) if value else None


def _open_files(value: int) -> str | None:
    return None if value == -1 or value >= 16 else "is less than 16. Use at least 16, or -1 for half of ulimit -n"


def _gzip_level(value: int) -> str | None:
    return None if value == -1 or 1 <= value <= 9 else "is not a gzip level. Use 1 to 9, or -1 for the default"


def _one_replica(value: int) -> str | None:
    if value in (1, -1):  # -1: the default
        return None
    return "is not possible, because this broker is a single node with one replica. Use 1 or omit the setting"


class BrokerConfig(SecuritySettings, DelegationTokenSettings, AclSettings, QuotaSettings):
    """All settings of the broker; `config.num_partitions` is the value of `num.partitions`."""

    overrides: dict[str, Any]
    """The settings that were given for one listener, by full name: `listener.name.<listener>.<setting>`."""

    dynamic: Mapping[str, Any]
    """The values by name that clients have set while the broker is running. They override all others (KIP-226)."""

    def __init__(self, values: Mapping[str, object] | None = None) -> None:
        self.__dict__["overrides"] = {}
        self.__dict__["dynamic"] = {}
        super().__init__(values)
        self.__dict__["_static"] = {name: self.get(name) for name, row in self.rows.items() if row.dynamic}

    def set_dynamic(self, values: Mapping[str, Any]) -> None:
        """Replace all dynamic settings with `values`, which maps names to typed values.

        Other settings never change. The caller must inform each part of the broker that has copied a value from the
        configuration.
        """
        for name in self.dynamic.keys() - values.keys():
            if name in self.explicit:
                super().take(name, self.get_static(name))
            else:
                del self.__dict__[self.rows[name].attribute]  # the default applies
        for name, value in values.items():
            super().take(name, value)
        self.__dict__["dynamic"] = dict(values)

    def get_static(self, name: str) -> Any:
        """Return the value that a setting, or its variant for one listener, would have if no client had changed it."""
        for values in (self.overrides, self.__dict__["_static"]):
            if name in values:
                return values[name]
        return self.get(name)

    # identity and listeners
    node_id: int = integer(1, at_least(0), doc="The broker's id in the cluster.", aliases=("broker.id",))
    listeners: list[str] = text_list(
        ["PLAINTEXT://:9092"],
        problem_of_items,
        doc="The addresses on which the broker listens, each as NAME://HOST:PORT. An empty host means all interfaces;"
        " port 0 means any free port.",
    )
    advertised_listeners: list[str] = text_list(
        [],
        problem_of_items,
        doc="The addresses that the broker tells clients to connect to, at most one for each name in `listeners`. A"
        " client learns the address of the listener that it has connected to. If a listener has no address here,"
        " clients learn its host in `listeners` or, if that means all interfaces, the address to which they have"
        " connected.",
    )
    listener_security_protocol_map: list[str] = text_list(
        [],
        problem_of_map,
        doc="The protocol of each listener name, as NAME:PROTOCOL, with an entry for each listener. Empty: a listener's"
        " name is its protocol, that is, PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )
    metrics_listener: str = text(
        "",
        _address,
        doc="The address on which the broker answers `GET /metrics`, for Prometheus, and `GET /health`, as host:port,"
        " http://host:port or https://host:port. TLS uses the settings of a listener with the name METRICS, such as"
        " listener.name.metrics.ssl.keystore.location. An empty host means 127.0.0.1, or all interfaces if clients"
        " must authenticate. If the setting is empty, the broker answers neither.",
    )
    metrics_users_location: str = text(
        "",
        doc="The file with the users who may read the metrics, by HTTP basic authentication. Each line consists of a"
        " name, a colon and a salted hash of the password; `oncelog user hash NAME` prints such a line. The broker"
        " reads the file again when it changes.",
    )
    metrics_bearer_token_location: str = text(
        "",
        doc="The file with the tokens of clients that may read the metrics, one per line: clients send"
        " `Authorization: Bearer TOKEN`. The broker reads the file again when it changes.",
    )
    metrics_health_public: bool = boolean(
        True,
        doc="Whether the broker answers `GET /health` from clients without credentials. Its answer then contains the"
        " status, but not the reason. Has no effect unless metrics.users.location or metrics.bearer.token.location is"
        " set.",
    )
    health_flush_max_ms: int = integer(
        30000,
        at_least(1),
        doc="The longest time in ms that a flush to disk may take before `GET /health` is answered with 503.",
    )
    health_probe_interval_ms: int = integer(
        5000,
        at_least(1),
        doc="The shortest time in ms between two health probes. A probe writes and syncs a small file in the data"
        " directory. A health check between two probes gets the result of the earlier one.",
    )
    health_probe_timeout_ms: int = integer(
        2000,
        between(1, 9000),
        doc="The time in ms after which a health probe that has not finished counts as failed. Even if this time is"
        " longer, `oncelog health` gives up after 2500 ms.",
    )
    broker_rack: str = text("", doc="The broker's rack, which the broker reports to clients.")
    inter_broker_protocol_version: str = text(
        "4.1",
        choices=("4.0", "4.1"),
        doc="The level of the optional protocol features. 4.1 enables oncelog's extension for transactions; 4.0"
        " disables it.",
    )
    transaction_version: int = short(
        2,
        between(0, 2),
        doc="The finalized level of the feature transaction.version (KIP-890). With 2, every transaction raises the"
        " producer epoch.",
    )

    dynamic_configs_enable: bool = boolean(
        True,
        doc="Whether settings can be changed while the broker is running (KIP-226). false: values that clients have"
        " set have no effect and can only be removed. Start the broker with false if a changed limit locks everybody"
        " out.",
    )

    # connections and requests
    socket_request_max_bytes: int = integer(
        104857600,
        at_least(1),
        doc="The largest request in bytes. The broker closes the connection of a client that sends a larger one.",
    )
    socket_listen_backlog_size: int = integer(
        1024,
        at_least(1),
        doc="The number of connections that may wait to be accepted. Clients beyond this number retry after a second."
        " Kafka's default of 50 is too small when many clients connect at the same time.",
    )
    socket_send_buffer_bytes: int = integer(
        102400,
        at_least(-1),
        doc="The size in bytes of a connection's send buffer (SO_SNDBUF). -1: the operating system's default.",
    )
    socket_receive_buffer_bytes: int = integer(
        102400,
        at_least(-1),
        doc="The size in bytes of a connection's receive buffer (SO_RCVBUF). -1: the operating system's default.",
    )
    max_connections: int = integer(
        INT32_MAX,
        at_least(1),
        doc="The maximum number of connections that may be open at a time. Further connections are closed at once.",
        dynamic=True,
    )
    max_open_files: int = integer(
        -1,
        _open_files,
        doc="The number of file descriptors that are kept for data files, and so the maximum number of data files that"
        " are open at a time. It is limited to half of the process's limit (ulimit -n). Data files beyond this number"
        " are closed, and opened again when they are used. Connections get the remaining descriptors. -1: half of the"
        " limit, at most 16384.",
        aliases=("connections.descriptor.reserve",),
    )
    max_connections_per_ip: int = integer(
        INT32_MAX,
        at_least(1),
        doc="The maximum number of connections that may be open at a time from one address. Further connections are"
        " closed at once. An IPv6 address is counted as its /64 network.",
        dynamic=True,
    )
    max_connection_creation_rate: int = integer(
        INT32_MAX,
        at_least(1),
        doc="The maximum number of new connections per second (KIP-612), on average over the last quota.window.num"
        " windows. If a connection exceeds it, the listener waits, and only then serves this connection and accepts"
        " the next one. With the prefix listener.name.<listener>., the setting limits one listener, and a change needs"
        " a restart. Without a prefix, it limits the whole broker.",
        per_listener=True,
        dynamic=True,
    )
    connections_max_idle_ms: int = long(
        600000,
        doc="The time in ms after which a connection without requests and responses is closed. 0 or less: never.",
    )
    connection_max_inflight_requests: int = integer(
        64,
        at_least(1),
        doc="The maximum number of requests of one connection that may wait for their responses. At this limit the"
        " broker stops reading from the connection.",
    )
    connection_write_buffer_bytes: int = integer(
        1048576,
        at_least(1),
        doc="The response bytes that a client may leave unread before the broker stops executing the client's"
        " requests.",
    )
    queued_max_request_bytes: int = long(
        134217728,
        doc="The memory in bytes for requests that are being received on all connections. At this limit, requests"
        " wait, small ones for the shortest time. While they wait, the broker closes connections whose requests have"
        " stopped arriving. If there are none, it closes the connection whose request arrives most slowly. 0 or less:"
        " no limit, which is Kafka's default.",
    )
    queued_max_response_bytes: int = long(
        134217728,
        at_least(1),
        doc="The memory in bytes for responses that clients have not read, on all connections. A Fetch response gets"
        " at most half of the free part. Beyond this limit, connections of clients that read nothing are closed.",
    )
    connection_write_stall_ms: int = integer(
        10000,
        at_least(1),
        doc="The time in ms for which a client may read nothing of its responses while queued.max.response.bytes is"
        " exceeded. Then its connection is closed. The further the limit is exceeded, the shorter this time becomes.",
    )
    connection_request_idle_ms: int = long(
        30000,
        doc="The time in ms after which a connection is closed if a part of a request has arrived and no more of it"
        " arrives. 0 or less: never.",
    )
    shutdown_timeout_ms: int = integer(
        10000,
        at_least(0),
        doc="The longest time in ms that a stopping broker waits for running requests before it closes their"
        " connections.",
    )
    fetch_max_bytes: int = integer(
        57671680, at_least(1024), doc="The largest Fetch response in bytes, even if the client requests more."
    )
    max_incremental_fetch_session_cache_slots: int = integer(
        1000,
        at_least(0),
        doc="The maximum number of incremental fetch sessions (KIP-227) that the broker keeps. 0: none.",
    )
    max_incremental_fetch_session_cache_partitions: int = integer(
        200000,
        at_least(0),
        doc="The maximum number of partitions in all incremental fetch sessions together. A Fetch that would exceed it"
        " replaces the sessions that have not been used for the longest time. If these were used in the last two"
        " minutes, it gets no session.",
    )
    request_max_elements: int = integer(
        200000,
        at_least(1),
        doc="The maximum number of array elements (topics, partitions, keys, ...) and tagged fields in a request. If a"
        " request has more, the broker closes the connection before it decodes the elements.",
    )
    response_max_rows: int = integer(
        200000,
        at_least(1),
        doc="The maximum number of rows (partitions, offsets, members, settings, ...) in a response. A request for"
        " more fails with INVALID_REQUEST.",
    )
    response_max_bytes: int = integer(
        104857600,
        at_least(1024),
        doc="The largest response in bytes, not counting records. A request for a larger one fails with"
        " INVALID_REQUEST. A higher limit only helps clients that accept such large responses themselves.",
    )

    max_concurrent_large_requests: int = integer(
        2,
        at_least(1),
        doc="The maximum number of large requests (with hundreds of elements or response rows) that are decoded,"
        " executed and answered at the same time. Further ones wait in order; small requests never wait. A higher"
        " value needs more memory. In addition, up to the same number of large requests may wait for the end of a"
        " transaction; a further one fails with CONCURRENT_TRANSACTIONS.",
    )

    # topics
    num_partitions: int = integer(
        1,
        between(1, 100000),
        doc="The number of partitions of a new topic if the request to create it does not give a number.",
    )
    topic_max_partitions: int = integer(
        10000,
        at_least(1),
        doc="The maximum number of partitions that a topic may have. A request for more fails with INVALID_PARTITIONS.",
    )
    request_max_new_partitions: int = integer(
        10000,
        at_least(1),
        doc="The maximum number of partitions that one CreateTopics, CreatePartitions or Metadata request may create."
        " A request for more fails with POLICY_VIOLATION. Kafka has the same limit, but no setting for it.",
    )
    max_partitions: int = integer(
        100000,
        at_least(1),
        doc="The maximum number of partitions of all topics together, including topics that are created automatically."
        " A request for more fails with POLICY_VIOLATION.",
    )
    default_replication_factor: int = integer(
        1,
        _one_replica,
        doc="The number of replicas of a topic. Must be 1, or -1 for the default, because there is a single node.",
    )
    min_insync_replicas: int = integer(
        1,
        at_least(1),
        doc="Accepted without effect, because a partition has a single replica: Produce requests succeed even if this"
        " number is higher than 1.",
        dynamic=True,
    )
    auto_create_topics_enable: bool = boolean(
        True, doc="Whether a topic is created when a client requests its metadata."
    )
    delete_topic_enable: bool = boolean(True, doc="Whether clients may delete topics with DeleteTopics.")
    message_max_bytes: int = integer(
        1048588, at_least(0), doc="The largest record batch in bytes, as compressed by the client.", dynamic=True
    )
    max_batch_objects: int = integer(
        1000000,
        at_least(1),
        doc="The maximum number of records and record headers, counted together, in a producer's batch. A batch with"
        " more fails with MESSAGE_TOO_LARGE.",
    )
    max_record_headers: int = integer(
        10000,
        at_least(0),
        doc="The maximum number of headers of one record from a producer. A record with more fails with"
        " INVALID_RECORD.",
    )
    max_decompressed_bytes: int = integer(
        134217728,
        at_least(1),
        doc="The largest decompressed size in bytes of a producer's batch. A larger batch fails with"
        " MESSAGE_TOO_LARGE.",
    )
    max_concurrent_decompressions: int = integer(
        2,
        at_least(1),
        doc="The maximum number of batches of more than 1 MiB decompressed size that are checked at the same time."
        " Each may use `max.decompressed.bytes` of memory.",
    )
    compression_type: str = text(
        "producer",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        doc="Accepted without effect, because batches are stored as the producer compressed them.",
        dynamic=True,
    )
    compression_gzip_level: int = integer(
        -1,
        _gzip_level,
        doc="Accepted without effect, because batches are stored as the producer compressed them.",
        dynamic=True,
    )
    compression_lz4_level: int = integer(
        9,
        between(1, 17),
        doc="Accepted without effect, because batches are stored as the producer compressed them.",
        dynamic=True,
    )
    compression_zstd_level: int = integer(
        3,
        between(-131072, 22),
        doc="Accepted without effect, because batches are stored as the producer compressed them.",
        dynamic=True,
    )
    unclean_leader_election_enable: bool = boolean(
        False,
        doc="Accepted without effect, because a partition has a single replica: no other leader can be elected.",
        dynamic=True,
    )
    leader_replication_throttled_rate: int = long(
        INT64_MAX,
        at_least(0),
        doc="Accepted without effect, because a partition has a single replica.",
        dynamic=True,
    )
    follower_replication_throttled_rate: int = long(
        INT64_MAX,
        at_least(0),
        doc="Accepted without effect, because a partition has a single replica.",
        dynamic=True,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = long(
        INT64_MAX,
        at_least(0),
        doc="Accepted without effect, because there is one data directory.",
        dynamic=True,
    )

    # log
    log_dirs: str = text("/tmp/oncelog", doc="The path of the data directory.", aliases=("log.dir", "data.dir"))
    durability: str = text(
        "flush",
        choices=("flush", "os"),
        doc="When records count as written. Before that, the broker sends no acks=all response for them, and consumers"
        " do not see them. flush: after fdatasync. os: after the write to the operating system's page cache.",
    )
    log_reserve_bytes: int = long(
        67108864,
        at_least(0),
        doc="The disk space in bytes that is kept free for transaction markers and internal topics. Produce is refused"
        " when less is free. A compaction, which frees space, may use up to half of the reserve. A compaction of an"
        " internal topic may use more.",
    )
    log_reserve_decision_bytes: int = long(
        16777216,
        at_least(0),
        doc="The part of log.reserve.bytes, at most half of it, that is kept for committing and aborting transactions,"
        " for their markers, and for requests that free space. Offset commits and new transactions are refused when"
        " fewer than this number of bytes are free.",
    )
    log_journal_bytes: int = integer(
        16777216,
        between(0, 268435456),
        doc="The size in bytes of each file of the journal, at least 8192, at most 1/64 of the disk. With a journal,"
        " one fdatasync makes small appends to many partitions durable. The broker usually keeps two files, and at"
        " most four. For each partition whose own files have failed, it also keeps a copy of the partition's journal"
        " entries. 0: no journal; each partition's file is synced.",
    )
    log_segment_bytes: int = integer(
        1073741824,
        at_least(1024),
        doc="The size in bytes at which a segment is full and the next one begins.",
        dynamic=True,
    )
    log_roll_ms: int = long(
        -1,
        doc="The age in ms of a segment's first record at which the next segment begins. 0 or less: log.roll.hours"
        " applies.",
        dynamic=True,
    )
    log_roll_hours: int = integer(
        168,
        at_least(1),
        doc="The age in hours of a segment's first record at which the next segment begins, unless log.roll.ms is set.",
    )
    log_roll_jitter_ms: int = long(
        -1,
        doc="The largest random time in ms that is subtracted from log.roll.ms or log.roll.hours. -1:"
        " log.roll.jitter.hours applies.",
        dynamic=True,
    )
    log_roll_jitter_hours: int = integer(
        0,
        at_least(0),
        doc="The largest random time in hours that is subtracted from log.roll.ms or log.roll.hours, unless"
        " log.roll.jitter.ms is set.",
    )
    log_roll_min_ms: int = long(
        1000,
        at_least(0),
        doc="The age in ms of a segment, by the broker's clock, below which segment.ms does not apply to it, whatever"
        " timestamps its records have.",
    )
    log_max_segments: int = integer(
        10000,
        at_least(2),
        doc="The number of a partition's segments at which segment.bytes and segment.ms no longer apply. Until"
        " retention or compaction removes segments, a new segment then begins only when a file or an index has reached"
        " its largest possible size.",
    )
    log_retention_ms: int = long(
        -2,
        at_least(-2),
        doc="The time in ms for which records are kept. -1: forever; -2: log.retention.minutes or log.retention.hours"
        " applies.",
        dynamic=True,
    )
    log_retention_minutes: int = integer(
        -2,
        at_least(-2),
        doc="The time in minutes for which records are kept, unless log.retention.ms is set. -1: forever; -2:"
        " log.retention.hours applies.",
    )
    log_retention_hours: int = integer(
        168,
        at_least(-1),
        doc="The time in hours for which records are kept, unless the time is set in a finer unit. -1: forever.",
    )
    log_retention_bytes: int = long(
        -1,
        doc="The size in bytes beyond which the oldest segments of a partition are deleted. -1 or less: no limit.",
        dynamic=True,
    )
    log_retention_check_interval_ms: int = long(
        300000, at_least(1), doc="The time in ms between two checks for segments that retention deletes."
    )
    log_cleanup_policy: list[str] = text_list(
        ["delete"],
        choices=("delete", "compact"),
        doc="What happens to old records. delete: retention deletes their segments; compact: at least the newest record"
        " of each key is kept; delete,compact: both apply; an empty list: all records are kept.",
        dynamic=True,
    )
    log_cleaner_enable: bool = boolean(True, doc="Whether the log cleaner runs. false: no topic is compacted.")
    log_cleaner_backoff_ms: int = long(
        15000, at_least(0), doc="The time in ms between two searches of the log cleaner for logs to compact."
    )
    log_cleaner_delete_retention_ms: int = long(
        86400000, at_least(0), doc="The time in ms for which compaction keeps tombstones.", dynamic=True
    )
    log_cleaner_min_cleanable_ratio: float = double(
        0.5, between(0, 1), doc="The share of uncleaned bytes (0 to 1) at which a log is compacted.", dynamic=True
    )
    log_cleaner_min_compaction_lag_ms: int = long(
        0, at_least(0), doc="The age in ms below which records are not compacted.", dynamic=True
    )
    log_cleaner_max_compaction_lag_ms: int = long(
        INT64_MAX,
        at_least(1),
        doc="The age in ms at which records are compacted even if the share of uncleaned bytes is small.",
        dynamic=True,
    )
    log_index_size_max_bytes: int = integer(
        10485760, at_least(4), doc="The largest size in bytes of a segment's offset index or time index.", dynamic=True
    )
    log_index_interval_bytes: int = integer(
        4096, at_least(0), doc="The number of bytes of records between two entries of an index.", dynamic=True
    )
    log_index_cache_bytes: int = long(
        134217728,
        at_least(0),
        doc="The memory in bytes for the indexes of inactive segments of all partitions. The least recently used"
        " indexes are dropped and read again when they are needed.",
    )
    log_flush_threads: int = integer(
        16,
        between(1, 256),
        doc="The number of threads that sync the files of partitions, each for one partition at a time. More threads"
        " than processors are useful, because a journaling file system commits concurrent syncs together.",
    )
    log_segment_delete_delay_ms: int = long(
        60000, at_least(0), doc="The time in ms before the files of a deleted segment are removed.", dynamic=True
    )
    log_flush_interval_messages: int = long(
        INT64_MAX,
        at_least(1),
        doc="Accepted without effect, because the broker's `durability` decides when data is flushed.",
        dynamic=True,
    )
    log_flush_interval_ms: int = long(
        INT64_MAX,
        at_least(0),
        doc="Accepted without effect, because the broker's `durability` decides when data is flushed.",
        dynamic=True,
    )
    log_preallocate: bool = boolean(
        False, doc="Accepted without effect, because segment files grow as they fill.", dynamic=True
    )
    log_message_timestamp_type: str = text(
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        doc="The source of records' timestamps: the producer (CreateTime) or the broker (LogAppendTime).",
        dynamic=True,
    )
    log_message_timestamp_before_max_ms: int = long(
        INT64_MAX,
        at_least(0),
        doc="The longest time in ms by which a record's timestamp may be behind the broker's clock.",
        dynamic=True,
    )
    log_message_timestamp_after_max_ms: int = long(
        3600000,
        at_least(0),
        doc="The longest time in ms by which a record's timestamp may be ahead of the broker's clock.",
        dynamic=True,
    )
    producer_id_expiration_ms: int = integer(
        86400000,
        at_least(1),
        doc="The time in ms after which a partition forgets an idle producer id, unless the producer has an open"
        " transaction.",
        dynamic=True,
    )
    producer_id_expiration_check_interval_ms: int = integer(
        600000,
        at_least(1),
        doc="Accepted without effect, because idle producer ids expire at the checks of retention"
        " (`log.retention.check.interval.ms`).",
    )

    # groups and offsets
    group_min_session_timeout_ms: int = integer(
        6000, at_least(1), doc="The shortest session timeout in ms that a group member may request."
    )
    group_max_session_timeout_ms: int = integer(
        1800000, at_least(1), doc="The longest session timeout in ms that a group member may request."
    )
    group_initial_rebalance_delay_ms: int = integer(
        150,
        at_least(0),
        doc="The time in ms for which the first rebalance of an empty group waits for more members. Kafka's default is"
        " 3000, and its quickstart sets 0. With less than 100, a consumer of kafka-python 3.0 joins before it knows"
        " the partitions and may then be assigned none. Use a higher value if many members of a group start at the"
        " same time.",
    )
    group_max_size: int = integer(
        1000,
        at_least(1),
        doc="The maximum number of members of a group. A further member that tries to join gets"
        " GROUP_MAX_SIZE_REACHED. Kafka has no limit by default. A rebalance delays all other requests by about 5 ms"
        " for each 1000 members of the group. A group must also fit into one record (`message.max.bytes`), and its"
        " members into one response (`response.max.rows`).",
    )
    group_id_max_bytes: int = integer(
        1000,
        between(1, 32767),
        doc="The maximum length of a new group id in bytes. A longer id is refused with INVALID_GROUP_ID, because it"
        " would stay in memory and in the log until the group expires. Kafka allows 32767 bytes.",
    )
    group_max_groups: int = integer(
        200000,
        at_least(1),
        doc="The maximum number of groups. A request that would create a further group fails with"
        " GROUP_MAX_SIZE_REACHED until groups are deleted or expire.",
    )
    group_member_max_protocols: int = integer(
        1000,
        at_least(1),
        doc="The maximum number of protocols (assignment strategies) that a member may offer. A JoinGroup that offers"
        " more fails with INCONSISTENT_GROUP_PROTOCOL. Kafka has no such limit.",
    )
    group_members_max_bytes: int = long(
        134217728,
        at_least(1),
        doc="The memory in bytes for the members of all groups: their subscriptions, assignments and names. A"
        " JoinGroup or an assignment that would exceed it fails with GROUP_MAX_SIZE_REACHED. A group must also fit"
        " into one record (`message.max.bytes`).",
    )
    group_pending_members_max_bytes: int = long(
        16777216,
        at_least(1),
        doc="The memory in bytes for member ids that were assigned to clients that have not joined yet. At this limit"
        " the oldest of these ids are dropped.",
    )
    offset_metadata_max_bytes: int = integer(
        4096, at_least(0), doc="The largest metadata of an offset commit, in characters."
    )
    offsets_commit_timeout_ms: int = integer(
        5000, at_least(1), doc="The longest time in ms that an offset commit waits for the disk."
    )
    offsets_load_buffer_size: int = integer(
        5242880, at_least(1), doc="Accepted without effect, because the broker loads offsets in small chunks."
    )
    offsets_retention_minutes: int = integer(
        10080,
        at_least(1),
        doc="The time in minutes for which committed offsets are kept after the group has become empty. For consumers"
        " that commit without joining the group, and for topics to which no member subscribes any more, the time begins"
        " with the commit.",
    )
    offsets_retention_check_interval_ms: int = long(
        600000, at_least(1), doc="The time in ms between two checks for expired offsets."
    )
    offsets_topic_num_partitions: int = integer(
        50, between(1, 10000), doc="The number of partitions of __consumer_offsets."
    )
    offsets_topic_replication_factor: int = short(
        1,
        _one_replica,
        doc="The number of replicas of __consumer_offsets. Must be 1, or -1 for the default, because there is a single"
        " node.",
    )
    offsets_topic_segment_bytes: int = integer(
        104857600, at_least(1024), doc="The segment size of __consumer_offsets in bytes."
    )
    offsets_topic_compression_codec: int = integer(
        0, between(0, 0), doc="The compression of __consumer_offsets. The only value is 0: no compression."
    )

    # transactions
    transactional_id_pattern_max_size: int = integer(
        1000,
        at_least(1),
        doc="The largest pattern in ListTransactions: the maximum number of its characters, and also of the"
        " instructions into which it is compiled. A larger one fails with INVALID_REGULAR_EXPRESSION.",
    )
    transaction_max_timeout_ms: int = integer(
        900000,
        at_least(1),
        doc="The longest transaction timeout in ms that a producer may request.",
        aliases=("max.transaction.timeout.ms",),
    )
    transactional_id_expiration_ms: int = integer(
        604800000,
        at_least(1),
        doc="The time in ms after which an idle transactional id is forgotten.",
        aliases=("transactional.id.timeout.ms",),
    )
    transactional_id_max_bytes: int = integer(
        1000,
        between(1, 32767),
        doc="The maximum length of a new transactional id in bytes. A longer one is refused with INVALID_REQUEST,"
        " because it would stay in memory and in the log until it expires. Kafka allows 32767 bytes.",
    )
    transaction_state_log_num_partitions: int = integer(
        50, between(1, 10000), doc="The number of partitions of __transaction_state."
    )
    transaction_state_log_replication_factor: int = short(
        1,
        _one_replica,
        doc="The number of replicas of __transaction_state. Must be 1, or -1 for the default, because there is a"
        " single node.",
    )
    transaction_state_log_min_isr: int = integer(
        1,
        _one_replica,
        doc="The minimum number of in-sync replicas of __transaction_state. Must be 1, or -1 for the default, because"
        " there is a single node.",
    )
    transaction_state_log_segment_bytes: int = integer(
        104857600, at_least(1024), doc="The segment size of __transaction_state in bytes."
    )
    transaction_state_log_load_buffer_size: int = integer(
        5242880,
        at_least(1),
        doc="Accepted without effect, because the broker loads __transaction_state in small chunks.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        10000,
        at_least(1),
        doc="The longest time in ms between two searches for transactions that have timed out. The broker also searches"
        " when the timeout of a transaction passes.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        3600000, at_least(1), doc="The time in ms between two searches for transactional ids that have expired."
    )
    expiry_clock_settle_ms: int = long(
        600000,
        at_least(0),
        doc="The time in ms for which the removal of expired offsets, transactional ids and delegation tokens ignores"
        " that the wall clock has jumped ahead. Afterwards, the new time applies. 0: it applies at once, as in Kafka."
        " Not a setting of Kafka.",
    )
    transaction_partition_verification_enable: bool = boolean(
        True,
        doc="Whether the broker checks that a transactional batch belongs to an ongoing transaction (KIP-890).",
        dynamic=True,
    )
    transaction_pending_wait_max_ms: int = integer(
        1000,
        at_least(0),
        doc="The longest time in ms that a request waits for the end of the previous transaction. Then it fails with"
        " CONCURRENT_TRANSACTIONS.",
    )
    transaction_pending_wait_max_requests: int = integer(
        1000,
        at_least(0),
        doc="The maximum number of requests that may wait at a time for the end of a previous transaction. Further"
        " ones fail at once with CONCURRENT_TRANSACTIONS.",
    )
    transaction_max_partitions: int = integer(
        10000,
        at_least(1),
        doc="The maximum number of partitions of one transaction. It is limited because each change of a transaction"
        " writes a list of all its partitions. A request that adds more fails with POLICY_VIOLATION, and the"
        " transaction has to be aborted. Not a setting of Kafka.",
    )
    transaction_retry_backoff_ms: int = integer(
        50,
        at_least(1),
        doc="The time in ms before a retry of writing a transaction marker, or of reading the state of transactions"
        " and groups at the start. It doubles with every retry.",
    )
    transaction_retry_backoff_max_ms: int = integer(
        5000,
        at_least(1),
        doc="The longest time in ms between two retries of writing a transaction marker or of reading the state of"
        " transactions and groups.",
    )
    group_transaction_max_partitions: int = integer(
        10000,
        at_least(1),
        doc="The maximum number of partitions of one group-aware InitProducerId request (extension).",
    )

    # the process
    logging_level: str = text(
        "info",
        choices=("debug", "info", "warning", "error"),
        doc="The level of the least severe log lines that are written.",
    )
    logging_format: str = text(
        "auto",
        choices=("auto", "console", "json"),
        doc="The format of log lines, which are written to stderr. auto: console if stderr is a terminal, else json.",
    )
    logging_max_lines_per_second: int = integer(
        20,
        at_least(0),
        doc="The maximum number of log lines per second for one kind of event, on average over ten seconds. Further"
        " lines are suppressed and counted, and the next line of this kind reports their number. 0: no limit.",
    )

    # audit
    audit_log_level: str = text(
        "denied",
        choices=("off", "denied", "all"),
        doc="What the audit log records. denied: operations that ACLs deny, and refused logins. all: also allowed"
        " operations and accepted logins. off: nothing. The audit log is the counterpart of Kafka's"
        " kafka.authorizer.logger.",
    )
    audit_log_location: str = text(
        "",
        doc="The file to which the audit log is appended, as lines of JSON. If it is moved, the broker creates it"
        " again. Empty: the audit log is part of the broker's log.",
    )
    audit_log_max_lines_per_second: int = integer(
        10,
        at_least(0),
        doc="The maximum number of audit log lines per second for one client and one kind of record, on average over"
        " ten seconds. Further lines are suppressed and counted. 0: no limit.",
    )

    def check(self) -> None:
        """Raise ConfigError if values contradict each other or are not supported."""
        self._check_order("group.min.session.timeout.ms", "group.max.session.timeout.ms")
        self.check_compaction_lags()
        check_text("broker.rack", self.broker_rack)
        listeners = self.read_listeners() + self._check_metrics()
        self._check_overrides(listeners)
        self._check_tls(listeners)
        self._check_logins(listeners)
        if "," in self.log_dirs:
            raise ConfigError("log.dirs", "names more than one directory. Name a single one")
        if "\0" in self.log_dirs:
            raise ConfigError("log.dirs", "contains a null character, which no file name may contain. Remove it")

    def check_compaction_lags(self) -> None:
        """Raise ConfigError if the minimum compaction lag is above the maximum, which is not allowed for any topic."""
        self._check_order("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms")

    def _check_order(self, lower: str, upper: str) -> None:
        """Raise ConfigError if the setting `lower` has a higher value than the setting `upper`."""
        least, most = self.get(lower), self.get(upper)
        if least > most:
            problem = f"{least} is more than {upper} = {most}. Lower the former or raise the latter"
            raise ConfigError(lower, problem, upper)

    def _check_metrics(self) -> list[ListenerConfig]:
        """Return the listener for metrics, if there is one. Raises ConfigError if its settings contradict others."""
        metrics = self.read_metrics_listener()
        if metrics is None:
            for name in ("metrics.users.location", "metrics.bearer.token.location"):
                if self.get(name):
                    raise ConfigError(
                        name, "is set, but metrics.listener is empty. Set metrics.listener, or remove this setting"
                    )
            return []
        if metrics.protocol.uses_tls and any(row.name == METRICS for row in self.read_listeners()):
            raise ConfigError(
                "listeners", f"uses the name {METRICS}, which is reserved for metrics.listener. Use another name"
            )
        return [metrics]

    def _check_overrides(self, listeners: Sequence[ListenerConfig]) -> None:
        """Raise ConfigError if a `listener.name.` setting names no listener, or one that does not use the setting."""
        owners = {_prefix(listener.name) + name: listener for listener in listeners for name in self.rows}
        for name in self.overrides:
            if name not in owners:
                names = ", ".join(listener.name for listener in listeners)
                raise ConfigError(name, f"belongs to no listener. Use one of the names in `listeners`: {names}")
            listener = owners[name]
            own = name.removeprefix(_prefix(listener.name))
            if own == "max.connection.creation.rate":  # for listeners of every protocol
                if listener.name == METRICS:
                    raise ConfigError(name, "does not exist for metrics.listener. Remove the setting")
                continue
            ssl = own.startswith("ssl.")
            if not (listener.protocol.uses_tls if ssl else listener.protocol.uses_sasl):
                raise ConfigError(
                    name,
                    f"is set, but the listener {listener.name} does not use {'TLS' if ssl else 'SASL'}. Map the"
                    f" listener to {'SSL' if ssl else 'SASL_SSL'} in listener.security.protocol.map, or remove the"
                    " setting",
                )

    def _check_tls(self, listeners: Iterable[ListenerConfig]) -> None:
        """Raise ConfigError if the TLS settings of a listener contradict each other, or if no listener uses them."""
        protected = [listener for listener in listeners if listener.protocol.uses_tls]
        if protected:
            from .security.tls import ListenerTls

            for listener in protected:
                ListenerTls(listener, self.of_listener(listener.name))
            return
        self._refuse_unused(("ssl.",), "TLS", SecurityProtocol.SSL)

    def _check_logins(self, listeners: Iterable[ListenerConfig]) -> None:
        """Raise ConfigError if a SASL listener's settings are wrong, or if a SASL setting is used by no listener."""
        protected = [listener for listener in listeners if listener.protocol.uses_sasl]
        if protected:
            from .security.mechanisms import ListenerLogins

            for listener in protected:
                ListenerLogins(listener, self.of_listener(listener.name))
            return
        self._refuse_unused(
            ("sasl.", "plain.", "delegation.token.", "connections.max.reauth.ms"), "SASL", SecurityProtocol.SASL_SSL
        )

    def _refuse_unused(self, prefixes: tuple[str, ...], protection: str, protocol: SecurityProtocol) -> None:
        """Raise ConfigError if a setting with one of the prefixes is set, but no listener uses this `protection`."""
        for name in sorted(self.explicit - {"ssl.reload.interval.ms"}):
            if name.startswith(prefixes):
                raise ConfigError(
                    name,
                    f"is set, but no listener uses {protection}. Use the protocol {protocol} in `listeners`, or remove"
                    " the setting",
                )

    def read_listeners(self) -> list[ListenerConfig]:
        """Return the listeners in the order of `listeners`; raise ConfigError if they contradict each other."""
        return read_listeners(self.listeners, self.listener_security_protocol_map, self.advertised_listeners)

    def read_metrics_listener(self) -> ListenerConfig | None:
        """Return the listener METRICS with the address in `metrics.listener`, or None if that setting is empty."""
        if not self.metrics_listener:
            return None
        certificates = self.of_listener(METRICS).get("ssl.client.auth") == "required"
        credentials = bool(self.metrics_users_location or self.metrics_bearer_token_location)
        encrypted = read_http_address(self.metrics_listener, authenticated=True).protocol.uses_tls
        return read_http_address(self.metrics_listener, authenticated=credentials or (encrypted and certificates))

    def of_listener(self, listener: str) -> ListenerSettings:
        """Return the settings of the listener with that name."""
        prefix = _prefix(listener)
        own = {name.removeprefix(prefix): value for name, value in self.overrides.items() if name.startswith(prefix)}
        return ListenerSettings(own, self.get)

    @classmethod
    def find(cls, key: str) -> Setting:
        """Return the setting with the name or alias `key`.

        Raises ConfigError if the name is unknown or belongs to a security setting that this release does not support.
        """
        name = normal_name(key)
        if name.startswith(LISTENER_PREFIX) and (row := cls._of_one_listener(name)) is not None:
            return row
        if name not in cls.names and is_security_setting(name):
            near = cls.similar(name, cutoff=0.85)
            hint = f" Did you mean {near}?" if near else ""
            raise ConfigError(
                key,
                "the broker has no such setting. It refuses unknown security settings, because ignoring them could"
                f" leave access open. Remove the setting if the broker is protected without it.{hint}",
            )
        return super().find(key)

    @classmethod
    def _of_one_listener(cls, name: str) -> Setting | None:
        """Return the setting that `name`, which begins with `listener.name.`, sets for one listener, or None."""
        for row in cls.rows.values():
            if row.per_listener and name.endswith(f".{row.name}") and len(name) > len(LISTENER_PREFIX + row.name) + 1:
                return replace(row, name=name)
        return None

    def take(self, name: str, value: Any) -> None:
        """Set one value, for the whole broker or for one listener."""
        if name.startswith(LISTENER_PREFIX):
            self.overrides[name] = value
        else:
            super().take(name, value)

    @property
    def retention_ms(self) -> int:
        """The time in ms for which records are kept, from the setting with the finest unit; -1 means forever."""
        if self.log_retention_ms != -2:
            return self.log_retention_ms
        if self.log_retention_minutes != -2:
            return -1 if self.log_retention_minutes < 0 else self.log_retention_minutes * 60_000
        return -1 if self.log_retention_hours < 0 else self.log_retention_hours * 3_600_000

    @property
    def roll_ms(self) -> int:
        """The age in ms of a segment's first record at which the next segment begins."""
        return self.log_roll_ms if self.log_roll_ms > 0 else self.log_roll_hours * 3_600_000

    @property
    def roll_jitter_ms(self) -> int:
        """The largest random time in ms that is subtracted from segment.ms."""
        return self.log_roll_jitter_ms if self.log_roll_jitter_ms >= 0 else self.log_roll_jitter_hours * 3_600_000


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Iterable[str] | Mapping[str, object] = (),
) -> tuple[BrokerConfig, list[str]]:
    """Read settings from a TOML file, variables such as ONCELOG_NUM_PARTITIONS, and `name=value` flags; later ones win.

    Return the configuration, and the names of given settings that have no effect. Raises ConfigError.
    """
    merged: dict[str, object] = {}
    ignored: list[str] = []

    def take(source: Mapping[str, object]) -> None:
        effective: dict[str, object] = {}
        for key, value in source.items():
            if key in WITHOUT_MEANING or _is_harmless(normal_name(key), value):
                ignored.append(key)
                continue
            effective[key] = value
        BrokerConfig.parse(effective)
        for key, value in effective.items():
            merged[BrokerConfig.find(key).name] = value

    if file is not None:
        take(read_toml(file))
    take(from_environment(os.environ if environment is None else environment))
    take(flags if isinstance(flags, Mapping) else from_flags(flags))
    return BrokerConfig(merged), sorted(set(ignored))


def read_toml(file: Path) -> dict[str, object]:
    """Read a TOML file; return its settings by dotted name.

    `num.partitions = 3`, `[num] partitions = 3` and `"num.partitions" = 3` mean the same. Raises ConfigError if the
    file cannot be read or is not TOML.
    """
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(str(file), f"the file cannot be read: {error.strerror}") from None
    except ValueError as error:  # not UTF-8, not TOML, or a number with thousands of digits
        raise ConfigError(str(file), f"the file is not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(str(file), "the file nests tables or arrays too deeply. Use at most two levels") from None

    def flatten(prefix: str, table: Mapping[str, Any]) -> Iterable[tuple[str, object]]:
        for key, value in table.items():
            if isinstance(value, Mapping):
                yield from flatten(f"{prefix}{key}.", value)
            else:
                yield f"{prefix}{key}", value

    try:
        return dict(flatten("", document))
    except RecursionError:
        raise ConfigError(str(file), "the file nests tables too deeply. Use dotted names like num.partitions") from None


def from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    """Return the settings that environment variables contain.

    A variable's name is ONCELOG_ followed by the setting's name in upper snake case. Raises ConfigError if a variable's
    name matches no setting.
    """
    found: dict[str, object] = {}
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")
        known = name in BrokerConfig.names or name in WITHOUT_MEANING or is_security_setting(name)
        if not known:
            raise ConfigError(variable, f"{name} is not a setting. Unset the variable or correct its name")
        found[name] = value
    return found


def from_flags(flags: Iterable[str]) -> dict[str, object]:
    """Return the settings of `--set name=value` flags; raise ConfigError if a flag has no `=`."""
    found: dict[str, object] = {}
    for flag in flags:
        name, equals, value = flag.partition("=")
        if not equals:
            raise ConfigError(flag, "the flag is not of the form name=value")
        found[name.strip()] = value
    return found
