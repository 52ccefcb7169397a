"""The tables of the clients' settings: Kafka's names, types and defaults for producer, consumer and admin client.

A setting is given as a keyword (`linger_ms=20`) or in a mapping by its dotted name (`{"linger.ms": 20}`). Units are in
the name: `_ms` is milliseconds, `_bytes` is bytes. Where a default differs from Kafka 4.1, the setting's description
says so.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from ..auth.mechanism_names import OAUTHBEARER, PLAIN, SCRAM_NUMBERS
from ..auth.stores import STORE_TYPES
from ..auth.suites import VERSIONS
from .addresses import parse_address
from .errors import ConfigError
from .serialization.protocols import DeserializerLike, SerializerLike, checked
from .settings import Settings, literal, setting
from .versions import GROUP_AWARE_TRANSACTION

INT32_MAX: Final = 2**31 - 1
IDEMPOTENT_MAX_IN_FLIGHT: Final = 5
"""Maximum of max.in.flight.requests.per.connection with idempotence. The broker remembers this many batches per
producer and partition, so more in flight could be duplicated or reordered.
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
    """Parse bootstrap.servers; raises ConfigError that names the wrong address."""
    name = "bootstrap.servers"
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, Iterable) or isinstance(items, bytes):
        raise ValueError("is not a list of host:port or a string of comma-separated host:port")
    addresses = []
    for item in items:
        if not isinstance(item, str):
            raise ConfigError(name, f"{item!r} is not host:port but of type {type(item).__name__}")
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
"""A function, async or not, that returns an access token, and the seconds for which it is valid from now on."""


def _token_provider(value: object) -> object:
    if value is not None and not callable(value):
        raise ValueError("is not a function that returns a token and the seconds for which it is valid")
    return value


def _mechanism(value: object) -> object:
    name = str(value).upper()
    if name and name not in _MECHANISMS:
        raise ValueError(f"is not one of {', '.join(_MECHANISMS)}")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig(Settings):
    """Settings of every client."""

    refused: ClassVar[Mapping[str, str]] = _REFUSED

    bootstrap_servers: tuple[str, ...] = setting(
        ("127.0.0.1:9092",),
        "Addresses host:port of one or more brokers, from which the client learns the others. Kafka has no default.",
        parse=_addresses,
        keyword="str | Iterable[str]",
    )
    client_id: str = setting("oncelog", "Name of this client in the broker's logs and metrics.")
    client_dns_lookup: str = setting(
        "use_all_dns_ips",
        "Accepted for compatibility and ignored: the client tries all addresses of a host name, one after the other.",
        choices=("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    )
    security_protocol: str = setting(
        "PLAINTEXT",
        "Protocol of the connections: PLAINTEXT, SSL for TLS, SASL_SSL for TLS and a login, or SASL_PLAINTEXT for a "
        "login without TLS.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
    sasl_mechanism: str = setting(
        "",
        "SASL mechanism of the login. Kafka's default is GSSAPI, which is not offered.",
        parse=_mechanism,
        keyword=literal(_MECHANISMS),
    )
    sasl_mechanisms: str = setting(
        "",
        "The same as sasl.mechanism, by librdkafka's older name. It takes one mechanism.",
        parse=_mechanism,
        keyword=literal(_MECHANISMS),
    )
    sasl_username: str = setting(
        "", "User name for PLAIN and SCRAM, as in librdkafka. A delegation token needs sasl.jaas.config instead."
    )
    sasl_password: str = setting("", "Password for PLAIN and SCRAM, as in librdkafka.", secret=True)
    sasl_plain_username: str = setting("", "The same as sasl.username, by aiokafka's name.")
    sasl_plain_password: str = setting("", "The same as sasl.password, by aiokafka's name.", secret=True)
    sasl_jaas_config: str = setting(
        "",
        "Credentials as in Kafka's Java client: PlainLoginModule, ScramLoginModule or OAuthBearerLoginModule with its "
        "options.",
        secret=True,
    )
    sasl_oauth_token_provider: TokenProvider | None = setting(
        None,
        "Function for OAUTHBEARER that returns an access token and the seconds for which it is valid. It is async, or "
        "runs in a thread. Not a setting of Kafka's Java client.",
        parse=_token_provider,
        secret=True,
    )
    sasl_oauthbearer_method: str = setting(
        "default",
        "oidc: fetch tokens from sasl.oauthbearer.token.endpoint.url, as in librdkafka. default: the same if that is "
        "given, else call sasl.oauth.token.provider.",
        choices=("default", "oidc"),
    )
    sasl_oauthbearer_token_endpoint_url: str = setting(
        "",
        "URL of an OAuth server from which OAUTHBEARER fetches tokens with the client's credentials. Over https, the "
        "certificates of the system are trusted.",
    )
    sasl_oauthbearer_client_id: str = setting("", "The client's id at the OAuth server, as in librdkafka.")
    sasl_oauthbearer_client_secret: str = setting(
        "", "The client's secret at the OAuth server, as in librdkafka.", secret=True
    )
    sasl_oauthbearer_scope: str = setting("", "Scope of the tokens, if the OAuth server needs it.")
    sasl_oauthbearer_extensions: tuple[str, ...] = setting(
        (),
        "Extensions that are sent to the broker with the token: name=value, separated by commas.",
        keyword="str | Iterable[str]",
    )
    ssl_context: object = setting(
        None,
        "TLS context to use instead of the other ssl.* settings, as in aiokafka.",
        parse=_tls_context,
        keyword="SSLContext | None",
    )
    ssl_ca_location: str = setting(
        "",
        "File in PEM with the certificates of the authorities that sign brokers' certificates, as in librdkafka. "
        "Empty: those of the system.",
    )
    ssl_ca_pem: str = setting("", "The same certificates as text in PEM, as in librdkafka.")
    ssl_certificate_location: str = setting(
        "", "File in PEM with the client's certificate chain, as in librdkafka. Empty: no certificate."
    )
    ssl_certificate_pem: str = setting("", "The client's certificate chain as text in PEM, as in librdkafka.")
    ssl_key_location: str = setting(
        "", "File in PEM with the client's private key, as in librdkafka. It may be the file of the certificate."
    )
    ssl_key_pem: str = setting("", "The client's private key as text in PEM, as in librdkafka.", secret=True)
    ssl_key_password: str = setting("", "Password of the private key, if the key itself is encrypted.", secret=True)
    ssl_truststore_type: str = setting(
        "PEM", "Format of ssl.truststore.location; JKS means PKCS12. Kafka's default is JKS.", choices=STORE_TYPES
    )
    ssl_truststore_location: str = setting("", "File with trusted certificates, as in Kafka's Java client.")
    ssl_truststore_certificates: str = setting(
        "", "Trusted certificates as text in PEM, as in Kafka's Java client (KIP-651)."
    )
    ssl_truststore_password: str = setting("", "Password of a PKCS12 file in ssl.truststore.location.", secret=True)
    ssl_keystore_type: str = setting(
        "PEM", "Format of ssl.keystore.location; JKS means PKCS12. Kafka's default is JKS.", choices=STORE_TYPES
    )
    ssl_keystore_location: str = setting(
        "", "File with the client's private key and certificate chain, as in Kafka's Java client."
    )
    ssl_keystore_certificate_chain: str = setting(
        "", "The client's certificate chain as text in PEM, as in Kafka's Java client (KIP-651)."
    )
    ssl_keystore_key: str = setting(
        "", "The client's private key as text in PEM, as in Kafka's Java client (KIP-651).", secret=True
    )
    ssl_keystore_password: str = setting("", "Password of a PKCS12 file in ssl.keystore.location.", secret=True)
    ssl_enabled_protocols: tuple[str, ...] = setting(
        tuple(VERSIONS), "Versions of TLS: TLSv1.2, TLSv1.3.", keyword="str | Iterable[str]"
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        (),
        "Cipher suites, by their standard names or OpenSSL's. Empty: OpenSSL's defaults.",
        keyword="str | Iterable[str]",
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "https",
        "Whether a broker's certificate must have the host name of its address: https (yes) or none. Kafka's Java "
        "client also takes an empty value for none.",
        choices=("https", "none", ""),
    )
    request_timeout_ms: int = setting(
        30_000, "Maximum wait for a response. After it, the connection is closed.", at_least=1
    )
    retries: int = setting(
        INT32_MAX,
        "Maximum number of retries of a Produce request. Prefer delivery.timeout.ms to bound retries.",
        at_least=0,
        at_most=INT32_MAX,
    )
    retry_backoff_ms: int = setting(100, "Wait before the first retry. It doubles with each further retry.", at_least=0)
    retry_backoff_max_ms: int = setting(1_000, "Maximum wait before a retry, without the jitter of 20 %.", at_least=0)
    reconnect_backoff_ms: int = setting(
        50,
        "Wait before the first new attempt to connect to a broker. It doubles with each further attempt.",
        at_least=0,
    )
    reconnect_backoff_max_ms: int = setting(
        1_000, "Maximum wait before a new attempt to connect, without the jitter of 20 %.", at_least=0
    )
    socket_connection_setup_timeout_ms: int = setting(
        10_000, "Maximum wait for a TCP connection, for each attempt.", at_least=1
    )
    socket_connection_setup_timeout_max_ms: int = setting(
        30_000,
        "Accepted for compatibility and ignored: each attempt waits for socket.connection.setup.timeout.ms.",
        at_least=1,
    )
    connections_max_idle_ms: int = setting(
        540_000, "Idle time after which a connection is closed; -1: never.", at_least=-1
    )
    metadata_max_age_ms: int = setting(
        300_000, "Age at which metadata is refreshed. Values above 60000 count as 60000.", at_least=1
    )
    metadata_recovery_strategy: str = setting(
        "rebootstrap",
        "When no known broker can be reached: start again from bootstrap.servers (rebootstrap), or keep trying (none).",
        choices=("rebootstrap", "none"),
    )
    metadata_recovery_rebootstrap_trigger_ms: int = setting(
        300_000,
        "Accepted for compatibility and ignored: bootstrap.servers are tried as soon as no known broker responds.",
        at_least=0,
    )
    send_buffer_bytes: int = setting(
        131_072, "Size of the TCP send buffer (SO_SNDBUF); -1: the system's default.", at_least=-1
    )
    receive_buffer_bytes: int = setting(
        65_536, "Size of the TCP receive buffer (SO_RCVBUF); -1: the system's default.", at_least=-1
    )
    cancel_grace_ms: int = setting(
        1_500,
        "Maximum wait for the broker after a cancellation, for example by asyncio.timeout, until a transaction is "
        "committed or aborted, or the group is left. Unfinished work continues in the background or is left to "
        "the broker's timeouts. Not a setting of Kafka's Java client.",
        at_least=0,
    )
    receive_message_max_bytes: int = setting(
        256 * 1024 * 1024,
        "Maximum size of a response; a larger response closes the connection. Not a setting of Kafka's Java client.",
        at_least=1024,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """Settings of a producer."""

    acks: int = setting(
        -1,
        "When the broker acknowledges records: all (or -1) when every in-sync replica has them; 1 when the leader has "
        "them; 0 never.",
        parse=_acks,
        keyword='Literal["all", -1, 0, 1]',
    )
    enable_idempotence: bool = setting(True, "Make sure that retries neither duplicate nor reorder records.")
    max_in_flight_requests_per_connection: int = setting(
        5, "Maximum number of unanswered Produce requests per broker; with idempotence at most 5.", at_least=1
    )
    batch_size: int = setting(
        16_384, "Bytes of records at which a batch is full; 0: each batch has one record.", at_least=0
    )
    linger_ms: int = setting(
        5,
        "Maximum wait for more records before a batch is sent; batches of other partitions may be sent earlier.",
        at_least=0,
    )
    buffer_memory: int = setting(
        33_554_432,
        "Maximum bytes of unacknowledged records. At the maximum, enqueue() waits and send() raises BufferFullError.",
        at_least=1,
    )
    max_block_ms: int = setting(
        60_000,
        "Maximum wait of enqueue() for metadata or memory, and of transaction calls for a response.",
        at_least=0,
    )
    max_request_size: int = setting(1_048_576, "Maximum bytes of a record, and of a request.", at_least=1)
    compression_type: str = setting("none", "Codec of the batches.", choices=("none", "gzip", "snappy", "lz4", "zstd"))
    compression_gzip_level: int = setting(
        -1, "Compression level of gzip, 1 to 9; -1: the codec's default.", at_least=-1, at_most=9
    )
    compression_lz4_level: int = setting(
        9, "Compression level of lz4, 1 to 17; the codec's default is 9.", at_least=1, at_most=17
    )
    compression_zstd_level: int = setting(3, "Compression level of zstd, -131072 to 22.", at_least=-131_072, at_most=22)
    delivery_timeout_ms: int = setting(
        120_000, "Maximum time from send() to its result, including waiting and retries.", at_least=1
    )
    partitioner_class: Partitioner | None = setting(
        None,
        "A callable (topic, key, number of partitions) → partition. None: Kafka's hash of the key; records without "
        "a key go to one partition for batch.size bytes, then to another (KIP-794).",
        parse=_partitioner,
    )
    partitioner_ignore_keys: bool = setting(False, "Whether to choose partitions as if no record had a key.")
    metadata_max_idle_ms: int = setting(
        300_000, "Time after which the metadata of an unused topic is no longer refreshed.", at_least=5_000
    )
    key_serializer: SerializerLike[Any] | None = setting(
        None,
        "Turns keys into bytes: an object with serialize(topic, value), or a function of the key. None: keys are "
        "bytes. None as a key stays null.",
        parse=checked("serialize"),
    )
    value_serializer: SerializerLike[Any] | None = setting(
        None,
        "Turns values into bytes: an object with serialize(topic, value), or a function of the value. None: values are "
        "bytes. None as a value stays null, which deletes the key in a compacted topic.",
        parse=checked("serialize"),
    )
    transactional_id: str | None = setting(
        None, "Name that makes the producer transactional. A newer producer with the same id fences it."
    )
    transaction_timeout_ms: int = setting(
        60_000, "Time after which the coordinator aborts an open transaction.", at_least=1
    )
    transactional_group_id: str | None = setting(
        None,
        "The consumer group for which transactions commit offsets; send_offsets(offsets) then needs no group. "
        "Without a transactional.id the producer is transactional as well, and the broker assigns an id. Not a setting "
        "of Kafka's Java client.",
    )
    consumer_group_aware_transaction: bool | str = setting(
        True,
        "true: init_transactions(assignment) fences by partition if the broker has the feature "
        f"{GROUP_AWARE_TRANSACTION}, else by member and generation (KIP-447); false: always by member and generation; "
        "require: raise UnsupportedVersionError if the broker lacks the feature. Not a setting of Kafka's Java client.",
        parse=_group_aware,
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
        if "delivery_timeout_ms" in self.explicit and self.delivery_timeout_ms < sum_ms:
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
                "0 contradicts enable.idempotence=true, which has to retry: raise it, or disable idempotence",
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
        raise ValueError("is not a list of range, roundrobin, sticky, cooperative-sticky")
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """Settings of a consumer."""

    group_id: str | None = setting(None, "The group that the consumer joins and commits offsets for.")
    group_instance_id: str | None = setting(
        None, "Name that makes the consumer a static member, which keeps its partitions over a restart."
    )
    group_protocol: str = setting("classic", "Protocol of the group. Only classic is supported.", choices=("classic",))
    session_timeout_ms: int = setting(
        45_000, "Time without heartbeats after which a member is removed from the group.", at_least=1
    )
    heartbeat_interval_ms: int = setting(
        3_000, "Time between heartbeats. It should be at most a third of session.timeout.ms.", at_least=1
    )
    max_poll_interval_ms: int = setting(
        300_000, "Time without a poll after which the member leaves the group.", at_least=1
    )
    max_poll_records: int = setting(500, "Maximum number of records that a poll returns.", at_least=1)
    partition_assignment_strategy: tuple[str, ...] = setting(
        ("range", "cooperative-sticky"),
        "Assignors in order of preference: range, roundrobin, sticky, cooperative-sticky, or Kafka's class names.",
        parse=_assignors,
        keyword="str | Iterable[str]",
    )
    auto_offset_reset: str = setting(
        "latest",
        "Where to start without a committed offset; none: the consumer raises NoOffsetForPartitionError.",
        choices=("earliest", "latest", "none"),
    )
    enable_auto_commit: bool = setting(
        True, "Whether to commit the positions every auto.commit.interval.ms and at close."
    )
    auto_commit_interval_ms: int = setting(5_000, "Time between automatic commits.", at_least=0)
    isolation_level: str = setting(
        "read_uncommitted",
        "read_committed hides records of open and of aborted transactions.",
        choices=("read_uncommitted", "read_committed"),
    )
    fetch_min_bytes: int = setting(
        1, "Bytes of records that the broker waits for before it responds, for at most fetch.max.wait.ms.", at_least=0
    )
    fetch_max_bytes: int = setting(
        52_428_800, "Maximum bytes of a fetch response, which has at least one batch.", at_least=0
    )
    max_partition_fetch_bytes: int = setting(
        1_048_576, "Maximum bytes per partition in a fetch response, which has at least one batch.", at_least=0
    )
    fetch_max_wait_ms: int = setting(500, "Maximum wait of the broker for fetch.min.bytes.", at_least=0)
    check_crcs: bool = setting(True, "Whether to verify the checksum of every batch.")
    max_batch_objects: int = setting(
        1_000_000,
        "Maximum number of records and headers in a batch; a batch with more raises RecordCorruptError.",
        at_least=1,
    )
    max_decompressed_bytes: int = setting(
        134_217_728, "Maximum bytes of a decompressed batch; a larger batch raises RecordCorruptError.", at_least=1
    )
    client_rack: str = setting("", "The rack of this client, for assignors. Records are always fetched from leaders.")
    default_api_timeout_ms: int = setting(60_000, "Maximum wait of calls that have no timeout argument.", at_least=0)
    allow_auto_create_topics: bool = setting(
        True, "Whether the broker may create topics to which the consumer subscribes."
    )
    exclude_internal_topics: bool = setting(True, "Whether to exclude internal topics from a subscription by pattern.")
    key_deserializer: DeserializerLike[Any] | None = setting(
        None,
        "Turns the bytes of keys into objects: an object with deserialize(topic, data), or a function of the bytes. "
        "None: keys are bytes. Null stays None.",
        parse=checked("deserialize"),
    )
    value_deserializer: DeserializerLike[Any] | None = setting(
        None,
        "Turns the bytes of values into objects: an object with deserialize(topic, data), or a function of the bytes. "
        "None: values are bytes. Null stays None.",
        parse=checked("deserialize"),
    )

    def check(self) -> None:
        """Raise ConfigError for an invalid value, naming both settings if two values contradict each other."""
        if self.group_id is not None and not self.group_id:
            raise ConfigError("group.id", "is empty: leave it out, or give the group a name")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                "heartbeat.interval.ms",
                f"{self.heartbeat_interval_ms} must be below session.timeout.ms = {self.session_timeout_ms}",
                "session.timeout.ms",
            )
        if self.group_id is None and "enable_auto_commit" in self.explicit and self.enable_auto_commit:
            raise ConfigError("enable.auto.commit", "true needs a group.id to commit for", "group.id")
        if self.fetch_max_wait_ms >= self.request_timeout_ms:
            raise ConfigError(
                "fetch.max.wait.ms",
                f"{self.fetch_max_wait_ms} must be below request.timeout.ms = {self.request_timeout_ms}",
                "request.timeout.ms",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    """Settings of an admin client."""

    default_api_timeout_ms: int = setting(60_000, "Maximum wait of calls that have no timeout argument.", at_least=0)
