"""The tables of the clients' settings: Kafka's names, types and defaults for producer, consumer and admin client.

A setting is given as a keyword (`linger_ms=20`) or in a mapping by its dotted name (`{"linger.ms": 20}`). Units are in
the name: `_ms` is milliseconds, `_bytes` is bytes. Where a default differs from Kafka 4.1, the setting's description
says so.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, ClassVar, Final

from ..auth.mechanism_names import OAUTHBEARER, PLAIN, SCRAM_NUMBERS
from ..auth.stores import STORE_TYPES
from ..auth.suites import VERSIONS
from ..settings import (
    INT32_MAX,
    ConfigError,
    at_least,
    between,
    boolean,
    instance,
    literal,
    long,
    password,
    text,
    text_list,
)
from .addresses import parse_address
from .serialization.protocols import DeserializerLike, SerializerLike, checked
from .settings import ClientTable
from .versions import GROUP_AWARE_TRANSACTION

IDEMPOTENT_MAX_IN_FLIGHT: Final = 5
"""Maximum of max.in.flight.requests.per.connection with idempotence. The broker remembers this many batches of each
producer in a partition. If more batches were in flight, they could be duplicated or reordered.
"""

_MECHANISMS: Final = (PLAIN, *SCRAM_NUMBERS, OAUTHBEARER)
"""The SASL mechanisms."""

_NOT_OFFERED: Final = "is not offered by this client, which"
_REFUSED: Final[Mapping[str, str]] = {
    "sasl.": f"{_NOT_OFFERED} has the sasl.* settings that are listed in the documentation",
    "ssl.": f"{_NOT_OFFERED} has the ssl.* settings that are listed in the documentation, or takes ssl_context",
    "interceptor.classes": f"{_NOT_OFFERED} has no interceptors; wrap send() or the records instead",
    "metric.reporters": f"{_NOT_OFFERED} loads no Java classes; leave it out",
    "metrics.": f"{_NOT_OFFERED} samples no metrics; leave it out",
    "enable.metrics.push": f"{_NOT_OFFERED} pushes no metrics; leave it out",
    "auto.include.jmx.reporter": f"{_NOT_OFFERED} has no JMX; leave it out",
    "config.providers": f"{_NOT_OFFERED} reads no config providers; pass the values themselves",
    "security.providers": f"{_NOT_OFFERED} loads no Java classes; leave it out",
}


def _addresses(value: object) -> tuple[str, ...]:
    """Parse bootstrap.servers. Raises a ConfigError that names the invalid address."""
    name = "bootstrap.servers"
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, Iterable) or isinstance(items, bytes):
        raise ValueError("is not a list of host:port or a string of comma-separated host:port")
    addresses = []
    for item in items:
        if not isinstance(item, str):
            raise ConfigError(name, f"{item!r} must be a host:port string, but is of type {type(item).__name__}")
        address = item.strip()
        if address:
            try:
                parse_address(address)
            except ValueError as error:
                raise ConfigError(name, f"{address!r} {error}") from None
            addresses.append(address)
    if not addresses:
        raise ConfigError(name, "is empty: name at least one host:port")
    return tuple(addresses)


def _tls_context(value: object) -> object:
    if value is not None and not isinstance(value, ssl.SSLContext):
        raise ValueError("is not an ssl.SSLContext")
    return value


TokenProvider = Callable[[], tuple[str, float] | Awaitable[tuple[str, float]]]
"""A function, async or not, that returns an access token and the remaining seconds of the token's validity."""


def _token_provider(value: object) -> object:
    if value is not None and not callable(value):
        raise ValueError("is not a function that returns a token and the seconds for which it is valid")
    return value


def _mechanism(value: object) -> object:
    name = str(value).upper()
    if name and name not in _MECHANISMS:
        raise ValueError(f"is not one of {', '.join(_MECHANISMS)}")
    return name


class ClientConfig(ClientTable):
    """The settings that all kinds of clients have."""

    refused: ClassVar[Mapping[str, str]] = _REFUSED

    bootstrap_servers: tuple[str, ...] = text_list(
        ("127.0.0.1:9092",),
        doc="Addresses host:port of one or more brokers, from which the client learns the others. Kafka has no"
        " default.",
        parser=_addresses,
    )
    client_id: str = text(
        "oncelog", doc="Name of this client in the broker's logs and metrics. Kafka's default is empty."
    )
    client_dns_lookup: str = text(
        "use_all_dns_ips",
        doc="Accepted for compatibility and ignored: the client tries all addresses of a host name, one after the"
        " other.",
        choices=("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    )
    security_protocol: str = text(
        "PLAINTEXT",
        doc="Protocol of the connections: PLAINTEXT, SSL for TLS, SASL_SSL for TLS and a login, or SASL_PLAINTEXT"
        " for a login without TLS.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
    sasl_mechanism: str = text(
        "",
        doc="SASL mechanism of the login. Kafka's default is GSSAPI, which is not offered.",
        parser=_mechanism,
        keyword=literal(_MECHANISMS),
    )
    sasl_mechanisms: str = text(
        "",
        doc="The same as sasl.mechanism, by librdkafka's older name. Only one mechanism is accepted.",
        parser=_mechanism,
        keyword=literal(_MECHANISMS),
    )
    sasl_username: str = text(
        "", doc="User name for PLAIN and SCRAM, as in librdkafka. A delegation token needs sasl.jaas.config instead."
    )
    sasl_password: str = password(doc="Password for PLAIN and SCRAM, as in librdkafka.")
    sasl_plain_username: str = text("", doc="The same as sasl.username, by aiokafka's name.")
    sasl_plain_password: str = password(doc="The same as sasl.password, by aiokafka's name.")
    sasl_jaas_config: str = password(
        doc="Credentials as in Kafka's Java client: PlainLoginModule, ScramLoginModule or OAuthBearerLoginModule"
        " with its options."
    )
    sasl_oauth_token_provider: TokenProvider | None = instance(
        _token_provider,
        "TokenProvider | None",
        doc="Function for OAUTHBEARER that returns an access token and the seconds for which it is valid. An"
        " async function is awaited; any other runs in a thread. Not a setting of Kafka's Java client.",
        secret=True,
    )
    sasl_oauthbearer_method: str = text(
        "default",
        doc="oidc: fetch tokens from sasl.oauthbearer.token.endpoint.url, as in librdkafka. default: the same if"
        " this URL is given, otherwise call sasl.oauth.token.provider.",
        choices=("default", "oidc"),
    )
    sasl_oauthbearer_token_endpoint_url: str = text(
        "",
        doc="URL of an OAuth server from which OAUTHBEARER fetches tokens with the client's credentials. Over"
        " https, the certificates of the system are trusted.",
    )
    sasl_oauthbearer_client_id: str = text("", doc="The client's id at the OAuth server, as in librdkafka.")
    sasl_oauthbearer_client_secret: str = password(doc="The client's secret at the OAuth server, as in librdkafka.")
    sasl_oauthbearer_scope: str = text("", doc="Scope of the tokens, if the OAuth server needs it.")
    sasl_oauthbearer_extensions: tuple[str, ...] = text_list(
        (), doc="Extensions that are sent to the broker with the token: name=value, separated by commas."
    )
    ssl_context: object = instance(
        _tls_context, "SSLContext | None", doc="TLS context to use instead of the other ssl.* settings, as in aiokafka."
    )
    ssl_ca_location: str = text(
        "",
        doc="File in PEM with the certificates of the authorities that sign brokers' certificates, as in"
        " librdkafka. Empty: those of the system.",
    )
    ssl_ca_pem: str = text("", doc="The certificates of ssl.ca.location as text in PEM, as in librdkafka.")
    ssl_certificate_location: str = text(
        "", doc="File in PEM with the client's certificate chain, as in librdkafka. Empty: no certificate."
    )
    ssl_certificate_pem: str = text("", doc="The client's certificate chain as text in PEM, as in librdkafka.")
    ssl_key_location: str = text(
        "", doc="File in PEM with the client's private key, as in librdkafka. It may be the certificate's file."
    )
    ssl_key_pem: str = password(doc="The client's private key as text in PEM, as in librdkafka.")
    ssl_key_password: str = password(doc="Password of the private key, if the key itself is encrypted.")
    ssl_truststore_type: str = text(
        "PEM",
        doc="Format of ssl.truststore.location. With PKCS12 or JKS, the file may have either of these two formats."
        " Kafka's default is JKS.",
        choices=STORE_TYPES,
    )
    ssl_truststore_location: str = text("", doc="File with trusted certificates, as in Kafka's Java client.")
    ssl_truststore_certificates: str = text(
        "", doc="Trusted certificates as text in PEM, as in Kafka's Java client (KIP-651)."
    )
    ssl_truststore_password: str = password(doc="Password of a PKCS12 or JKS file in ssl.truststore.location.")
    ssl_keystore_type: str = text(
        "PEM",
        doc="Format of ssl.keystore.location. With PKCS12 or JKS, the file may have either of these two formats."
        " Kafka's default is JKS.",
        choices=STORE_TYPES,
    )
    ssl_keystore_location: str = text(
        "", doc="File with the client's private key and certificate chain, as in Kafka's Java client."
    )
    ssl_keystore_certificate_chain: str = text(
        "", doc="The client's certificate chain as text in PEM, as in Kafka's Java client (KIP-651)."
    )
    ssl_keystore_key: str = password(
        doc="The client's private key as text in PEM, as in Kafka's Java client (KIP-651)."
    )
    ssl_keystore_password: str = password(doc="Password of a PKCS12 or JKS file in ssl.keystore.location.")
    ssl_enabled_protocols: tuple[str, ...] = text_list(
        tuple(VERSIONS), doc="Accepted versions of TLS: TLSv1.2, TLSv1.3."
    )
    ssl_cipher_suites: tuple[str, ...] = text_list(
        (), doc="Cipher suites, by their standard names or OpenSSL's. Empty: OpenSSL's defaults."
    )
    ssl_endpoint_identification_algorithm: str = text(
        "https",
        doc="Whether a broker's certificate must contain the broker's host name: https (yes) or none. As"
        " in Kafka's Java client, an empty value means none.",
        choices=("https", "none", ""),
    )
    request_timeout_ms: int = long(
        30_000, at_least(1), doc="Maximum wait for a response. After it, the connection is closed."
    )
    retries: int = long(
        INT32_MAX,
        between(0, INT32_MAX),
        doc="Maximum number of retries of a Produce request. Prefer delivery.timeout.ms to bound retries.",
    )
    retry_backoff_ms: int = long(
        100, at_least(0), doc="Wait before the first retry. Each further wait is about twice the one before."
    )
    retry_backoff_max_ms: int = long(
        1_000, at_least(0), doc="Maximum wait before a retry. A jitter of up to 20 % may lengthen or shorten each wait."
    )
    reconnect_backoff_ms: int = long(
        50,
        at_least(0),
        doc="Wait before the first new attempt to connect. Each further wait is about twice the one before.",
    )
    reconnect_backoff_max_ms: int = long(
        1_000,
        at_least(0),
        doc="Maximum wait before a new attempt to connect. A jitter of up to 20 % may lengthen or shorten each wait.",
    )
    socket_connection_setup_timeout_ms: int = long(
        10_000, at_least(1), doc="Maximum wait for a TCP connection, for each attempt."
    )
    socket_connection_setup_timeout_max_ms: int = long(
        30_000,
        at_least(1),
        doc="Accepted for compatibility and ignored: each attempt waits for socket.connection.setup.timeout.ms.",
    )
    connections_max_idle_ms: int = long(
        540_000,
        at_least(-1),
        doc="Idle time after which a connection is closed; -1: never. Kafka's admin client has 300000.",
    )
    metadata_max_age_ms: int = long(
        300_000, at_least(1), doc="Age at which metadata is refreshed. Values above 60000 have the effect of 60000."
    )
    metadata_recovery_strategy: str = text(
        "rebootstrap",
        doc="When no known broker can be reached: start again from bootstrap.servers (rebootstrap), or keep"
        " trying (none).",
        choices=("rebootstrap", "none"),
    )
    metadata_recovery_rebootstrap_trigger_ms: int = long(
        300_000,
        at_least(0),
        doc="Accepted for compatibility and ignored: bootstrap.servers are tried as soon as no known broker responds.",
    )
    send_buffer_bytes: int = long(
        131_072, at_least(-1), doc="Size of the TCP send buffer (SO_SNDBUF); -1: the system's default."
    )
    receive_buffer_bytes: int = long(
        65_536,
        at_least(-1),
        doc="Size of the TCP receive buffer (SO_RCVBUF); -1: the system's default. Kafka's producer has 32768.",
    )
    cancel_grace_ms: int = long(
        1_500,
        at_least(0),
        doc="Maximum time to wait for the broker after a call was cancelled, for example by asyncio.timeout, or after"
        " Ctrl-C has ended a with block. In this time, the broker can acknowledge records, commit or abort a"
        " transaction, or remove a group's member. Unfinished work then continues in the background, or is left to"
        " the broker's timeouts. Not a setting of Kafka's Java client.",
    )
    receive_message_max_bytes: int = long(
        256 * 1024 * 1024,
        at_least(1024),
        doc="Maximum size of a response; a larger response closes the connection. Not a setting of Kafka's Java"
        " client.",
    )


def _acks(value: object) -> int:
    known = {"all": -1, "-1": -1, "0": 0, "1": 1}
    text = str(value).strip().lower()
    if isinstance(value, bool) or text not in known:
        raise ValueError("is not one of all, -1, 0, 1")
    return known[text]


Partitioner = Callable[[str, bytes | None, int], int]
"""A callable that chooses a partition: (topic, key, number of partitions) → partition."""


def _partitioner(value: object) -> object:
    if value is not None and not callable(value):
        raise ValueError("is not a callable (topic, key, number of partitions) → partition")
    return value


def _group_aware(value: object) -> bool | str:
    known: dict[str, bool | str] = {"true": True, "false": False, "require": "require"}
    text = str(value).strip().lower()
    if text not in known:
        raise ValueError("is not one of true, false, require")
    return known[text]


class ProducerConfig(ClientConfig):
    """Settings of a producer."""

    acks: int = long(
        -1,
        doc="When the broker acknowledges records: all (or -1) when every in-sync replica has them; 1 when the"
        " leader has them; 0 never.",
        parser=_acks,
        keyword='Literal["all", -1, 0, 1]',
    )
    enable_idempotence: bool = boolean(True, doc="Make sure that retries neither duplicate nor reorder records.")
    max_in_flight_requests_per_connection: int = long(
        5, at_least(1), doc="Maximum number of unanswered Produce requests per broker; with idempotence at most 5."
    )
    batch_size: int = long(
        131_072,
        at_least(0),
        doc="Bytes of records at which a batch is full; 0: each batch has one record. With compression, a batch is"
        " full when its compressed size, as estimated from earlier batches, reaches batch.size, or when its"
        " uncompressed size reaches 512 KB or batch.size, whichever is larger. A batch begins with memory for"
        " 16 KB, and takes more as it grows. Kafka's default is 16384.",
    )
    linger_ms: int = long(
        5,
        at_least(0),
        doc="Maximum wait for more records before a batch is sent. A batch is sent earlier if it is full, during"
        " flush() or a commit, or while a record waits for memory.",
    )
    buffer_memory: int = long(
        33_554_432,
        at_least(1),
        doc="Maximum bytes of unacknowledged records. Records are counted uncompressed until their batch is sent, and"
        " compressed from then on. At the maximum, enqueue() waits and send() raises BufferFullError.",
    )
    max_block_ms: int = long(
        60_000,
        at_least(0),
        doc="Maximum wait of enqueue() for metadata or memory, and of transaction calls for a response.",
    )
    max_request_size: int = long(1_048_576, at_least(1), doc="Maximum bytes of a record, and of a request.")
    compression_type: str = text("none", doc="Codec of the batches.", choices=("none", "gzip", "snappy", "lz4", "zstd"))
    compression_gzip_level: int = long(
        -1, between(-1, 9), doc="Compression level of gzip, 1 to 9; -1: the codec's default."
    )
    compression_lz4_level: int = long(
        9, between(1, 17), doc="Compression level of lz4, 1 to 17; the codec's default is 9."
    )
    compression_zstd_level: int = long(3, between(-131_072, 22), doc="Compression level of zstd, -131072 to 22.")
    delivery_timeout_ms: int = long(
        120_000, at_least(1), doc="Maximum time from send() to its result, including waiting and retries."
    )
    partitioner_class: Partitioner | None = instance(
        _partitioner,
        "Partitioner | None",
        doc="A callable (topic, key, number of partitions) → partition. None: Kafka's hash of the key; records"
        " without a key go to one partition for batch.size bytes, then to another (KIP-794).",
    )
    partitioner_ignore_keys: bool = boolean(False, doc="Whether to choose partitions as if no record had a key.")
    metadata_max_idle_ms: int = long(
        300_000, at_least(5_000), doc="Time after which the metadata of an unused topic is no longer refreshed."
    )
    key_serializer: SerializerLike[Any] | None = instance(
        checked("serialize"),
        "SerializerLike[Any] | None",
        doc="Turns keys into bytes: an object with serialize(topic, value), or a function of the key. None: keys"
        " are bytes. A key that is None stays null.",
    )
    value_serializer: SerializerLike[Any] | None = instance(
        checked("serialize"),
        "SerializerLike[Any] | None",
        doc="Turns values into bytes: an object with serialize(topic, value), or a function of the value. None:"
        " values are bytes. A value that is None stays null, which deletes the key in a compacted topic.",
    )
    transactional_id: str | None = text(
        None, doc="Name that makes the producer transactional. A newer producer with the same id fences it."
    )
    transaction_timeout_ms: int = long(
        60_000, at_least(1), doc="Time after which the coordinator aborts an open transaction."
    )
    transactional_group_id: str | None = text(
        None,
        doc="The consumer group for which transactions commit offsets; send_offsets(offsets) then needs no group."
        " With this setting the producer is transactional even without a transactional.id: the broker then assigns"
        " an id. Not a setting of Kafka's Java client.",
    )
    consumer_group_aware_transaction: bool | str = boolean(
        True,
        doc=f"true: if the broker has the feature {GROUP_AWARE_TRANSACTION}, init_transactions(assignment) fences the "
        "producers that worked on the assigned partitions before; otherwise, the broker checks member and generation "
        "at each commit of offsets (KIP-447). false: always as in KIP-447. require: like true, but raise "
        "UnsupportedVersionError if the broker lacks the feature. Not a setting of Kafka's Java client.",
        parser=_group_aware,
        keyword='bool | Literal["require"]',
    )

    def check(self) -> None:
        """Raise ConfigError for an invalid value, naming both settings if two values contradict each other."""
        if self.transactional_id is not None and not self.transactional_id:
            raise ConfigError("transactional.id", "is empty: leave it out, or give the producer a name")
        if self.transactional_id is not None and not self.enable_idempotence:
            raise ConfigError(
                "transactional.id",
                "needs enable.idempotence=true: a transaction cannot be exactly-once without it",
                "enable.idempotence",
            )
        self._check_group()
        if self.enable_idempotence:
            self._check_idempotence()
        sum_ms = self.linger_ms + self.request_timeout_ms
        if "delivery.timeout.ms" in self.explicit and self.delivery_timeout_ms < sum_ms:
            raise ConfigError(
                "delivery.timeout.ms",
                f"{self.delivery_timeout_ms} is below linger.ms + request.timeout.ms = {sum_ms}: raise it",
                "request.timeout.ms",
            )

    def _check_group(self) -> None:
        name = "transactional.group.id"
        if self.transactional_group_id is None:
            return
        if not self.transactional_group_id:
            raise ConfigError(name, "is empty: leave it out, or name the consumer group")
        if not self.enable_idempotence:
            raise ConfigError(name, "needs enable.idempotence=true, as every transaction does", "enable.idempotence")
        if self.transactional_id is None and self.consumer_group_aware_transaction is False:
            raise ConfigError(
                name,
                "without a transactional.id needs consumer.group.aware.transaction=true, because the broker assigns an "
                "id only then; set either",
                "consumer.group.aware.transaction",
            )

    def _check_idempotence(self) -> None:
        other = "enable.idempotence"
        if self.acks != -1:
            raise ConfigError(
                "acks",
                f"{self.acks} contradicts enable.idempotence=true, which needs acks=all: change one of them",
                other,
            )
        if self.retries == 0:
            raise ConfigError(
                "retries",
                "0 contradicts enable.idempotence=true, which needs retries: set at least 1, or disable idempotence",
                other,
            )
        if self.max_in_flight_requests_per_connection > IDEMPOTENT_MAX_IN_FLIGHT:
            raise ConfigError(
                "max.in.flight.requests.per.connection",
                f"{self.max_in_flight_requests_per_connection} contradicts enable.idempotence=true, which allows at "
                f"most {IDEMPOTENT_MAX_IN_FLIGHT}: lower it, or disable idempotence",
                other,
            )

    @property
    def delivery_timeout_s(self) -> float:
        """The delivery timeout in seconds. As in Kafka, its default grows with linger.ms and request.timeout.ms."""
        return max(self.delivery_timeout_ms, self.linger_ms + self.request_timeout_ms) / 1000


_ASSIGNORS: Final = {
    "range": "range",
    "roundrobin": "roundrobin",
    "sticky": "sticky",
    "cooperative-sticky": "cooperative-sticky",
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}


def _assignors(value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, Iterable):
        raise ValueError("is not a list of assignor names")
    names = tuple(_ASSIGNORS.get(str(item).strip(), "") for item in items)
    if not names or "" in names:
        raise ValueError(
            "is not a list of assignors: choose one or more of range, roundrobin, sticky, cooperative-sticky"
        )
    return tuple(dict.fromkeys(names))


class ConsumerConfig(ClientConfig):
    """Settings of a consumer."""

    group_id: str | None = text(None, doc="The group that the consumer joins and commits offsets for.")
    group_instance_id: str | None = text(
        None, doc="Name that makes the consumer a static member, which keeps its partitions across restarts."
    )
    group_protocol: str = text("classic", doc="Protocol of the group. Only classic is supported.", choices=("classic",))
    session_timeout_ms: int = long(
        45_000, at_least(1), doc="Time without heartbeats after which a member is removed from the group."
    )
    heartbeat_interval_ms: int = long(
        3_000, at_least(1), doc="Time between heartbeats. It should be at most a third of session.timeout.ms."
    )
    max_poll_interval_ms: int = long(
        300_000, at_least(1), doc="Time without a poll after which the member leaves the group."
    )
    max_poll_records: int = long(500, at_least(1), doc="Maximum number of records that a poll returns.")
    partition_assignment_strategy: tuple[str, ...] = text_list(
        ("range", "cooperative-sticky"),
        doc="Assignors in order of preference: range, roundrobin, sticky, cooperative-sticky, or Kafka's class names.",
        parser=_assignors,
    )
    auto_offset_reset: str = text(
        "latest",
        doc="Where to start without a committed offset; none: the consumer raises NoOffsetForPartitionError.",
        choices=("earliest", "latest", "none"),
    )
    enable_auto_commit: bool = boolean(
        True, doc="Whether to commit the positions every auto.commit.interval.ms and at close."
    )
    auto_commit_interval_ms: int = long(5_000, at_least(0), doc="Time between automatic commits.")
    isolation_level: str = text(
        "read_uncommitted",
        doc="read_committed hides records of open and of aborted transactions.",
        choices=("read_uncommitted", "read_committed"),
    )
    fetch_min_bytes: int = long(
        1,
        at_least(0),
        doc="The broker responds as soon as it has this many bytes of records, or after fetch.max.wait.ms.",
    )
    fetch_max_bytes: int = long(
        52_428_800, at_least(0), doc="Maximum bytes of a fetch response. A larger first batch is returned nevertheless."
    )
    max_partition_fetch_bytes: int = long(
        1_048_576,
        at_least(0),
        doc="Maximum bytes per partition in a fetch response. A larger first batch of the response is returned"
        " nevertheless.",
    )
    fetch_max_wait_ms: int = long(500, at_least(0), doc="Maximum wait of the broker for fetch.min.bytes.")
    check_crcs: bool = boolean(True, doc="Whether to verify the checksum of every batch.")
    max_batch_objects: int = long(
        1_000_000,
        at_least(1),
        doc="Maximum number of records and headers in a batch; a batch with more raises RecordCorruptError. Not a"
        " setting of Kafka's Java client.",
    )
    max_decompressed_bytes: int = long(
        134_217_728,
        at_least(1),
        doc="Maximum bytes of a decompressed batch; a larger batch raises RecordCorruptError. Not a setting of Kafka's"
        " Java client.",
    )
    client_rack: str = text(
        "", doc="The rack of this client, for the group's assignor. Records are always fetched from leaders."
    )
    default_api_timeout_ms: int = long(60_000, at_least(0), doc="Maximum wait of calls that have no timeout argument.")
    allow_auto_create_topics: bool = boolean(
        True, doc="Whether the broker may create topics to which the consumer subscribes."
    )
    exclude_internal_topics: bool = boolean(
        True, doc="Whether to exclude internal topics from a subscription by pattern."
    )
    key_deserializer: DeserializerLike[Any] | None = instance(
        checked("deserialize"),
        "DeserializerLike[Any] | None",
        doc="Turns the bytes of keys into objects: an object with deserialize(topic, data), or a function of the"
        " bytes. None: keys are bytes. Null stays None.",
    )
    value_deserializer: DeserializerLike[Any] | None = instance(
        checked("deserialize"),
        "DeserializerLike[Any] | None",
        doc="Turns the bytes of values into objects: an object with deserialize(topic, data), or a function of"
        " the bytes. None: values are bytes. Null stays None.",
    )

    def check(self) -> None:
        """Raise ConfigError for an invalid value, naming both settings if two values contradict each other."""
        if self.group_id is not None and not self.group_id:
            raise ConfigError("group.id", "is empty: leave it out, or give the group a name")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                "heartbeat.interval.ms",
                f"must be less than session.timeout.ms ({self.session_timeout_ms}), but is"
                f" {self.heartbeat_interval_ms}",
                "session.timeout.ms",
            )
        if self.group_id is None and "enable.auto.commit" in self.explicit and self.enable_auto_commit:
            raise ConfigError(
                "enable.auto.commit",
                "true needs a group.id, because a group owns the committed offsets: set it, or leave this setting out",
                "group.id",
            )
        if self.fetch_max_wait_ms >= self.request_timeout_ms:
            raise ConfigError(
                "fetch.max.wait.ms",
                f"must be less than request.timeout.ms ({self.request_timeout_ms}), but is {self.fetch_max_wait_ms}",
                "request.timeout.ms",
            )


class AdminConfig(ClientConfig):
    """Settings of an admin client."""

    default_api_timeout_ms: int = long(60_000, at_least(0), doc="Maximum wait of calls that have no timeout argument.")
