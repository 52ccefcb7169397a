"""The settings of a worker, with Kafka Connect's names. If Kafka Connect does not have a setting, its description says
so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...client.config import ClientConfig, ConsumerConfig, ProducerConfig
from ..config import REQUIRED, ConfigDef, ConfigKey, Importance, OneOfIgnoringCase, Type, at_least
from ..errors import ConfigValueError
from .overrides import accepted, ignored
from .providers import PROVIDERS, ConfigProviders
from .rest import ADMIN_LISTENERS, HTTPS_PREFIXES, ROWS, RestSettings
from .secrets import Secrets
from .security import refuse_of_worker

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

_PACKAGE: Final = "org.apache.kafka.connect.connector.policy."
_POLICY: Final = "ConnectorClientConfigOverridePolicy"
_POLICIES: Final = {
    name: policy
    for policy in ("All", "None", "Principal")
    for name in (policy, f"{policy}{_POLICY}", f"{_PACKAGE}{policy}{_POLICY}")
}
"""The policies by their names in Kafka Connect: short names, and names of classes with and without the package."""


def partitions(name: str, value: int) -> None:
    """Raise ConfigValueError unless the value is a number of partitions for a new topic."""
    if value < 1 and value != -1:
        raise ConfigValueError(name, value, "Number of partitions must be positive, or -1 to use the broker's default")


def replication_factor(name: str, value: int) -> None:
    """Raise ConfigValueError unless the value is a replication factor for a new topic."""
    if value < 1 and value != -1:
        raise ConfigValueError(
            name,
            value,
            "Replication factor must be positive and not larger than the number of brokers in the Kafka cluster, or -1 "
            "to use the broker's default",
        )


def _policy(name: str, value: str) -> None:
    if value not in _POLICIES:
        raise ConfigValueError(name, value, "is not a policy of Kafka Connect. Name All, None or Principal")


COMMON: Final = ConfigDef(
    ConfigKey("bootstrap.servers", Type.LIST, ["localhost:9092"], _HIGH, "Brokers to connect to first, as host:port."),
    ConfigKey("key.converter", Type.CLASS, REQUIRED, _HIGH, "Converter of keys for connectors that set none."),
    ConfigKey("value.converter", Type.CLASS, REQUIRED, _HIGH, "Converter of values for connectors that set none."),
    ConfigKey(
        "header.converter",
        Type.CLASS,
        "org.apache.kafka.connect.storage.SimpleHeaderConverter",
        _LOW,
        "Converter of headers for connectors that set none.",
    ),
    *ROWS,
    ConfigKey(
        PROVIDERS,
        Type.LIST,
        [],
        _LOW,
        "Names of config providers, which replace variables such as ${NAME:PATH:KEY} in the settings of the worker and "
        "of connectors. The setting config.providers.NAME.class is FileConfigProvider, DirectoryConfigProvider or "
        "EnvVarConfigProvider. config.providers.NAME.param.allowed.paths limits the paths of the first two, and "
        "config.providers.NAME.param.allowlist.pattern (a regular expression) limits the environment variables.",
    ),
    ConfigKey(
        "offset.flush.interval.ms",
        Type.LONG,
        60_000,
        _LOW,
        "Time between commits of offsets, in ms. With exactly-once, offsets are committed with each transaction, and "
        "this setting is only the default of transaction.boundary.interval.ms.",
        at_least(0),
    ),
    ConfigKey(
        "offset.flush.timeout.ms",
        Type.LONG,
        5_000,
        _LOW,
        "Maximum time, in ms, that a commit of offsets waits until its records are written, and then until the "
        "offsets are written. A longer commit is abandoned, and repeated after offset.flush.interval.ms. Has no effect "
        "with exactly-once.",
        at_least(0),
    ),
    ConfigKey(
        "task.shutdown.graceful.timeout.ms",
        Type.LONG,
        5_000,
        _LOW,
        "Maximum wait for all tasks to stop, in ms; then the worker abandons the remaining tasks.",
        at_least(0),
    ),
    ConfigKey(
        "connector.client.config.override.policy",
        Type.STRING,
        "All",
        _MEDIUM,
        "Which client settings a connector may override: All, None or Principal. The names of Kafka Connect's classes "
        "are also possible, such as org.apache.kafka.connect.connector.policy.AllConnectorClientConfigOverridePolicy.",
        _policy,
    ),
    ConfigKey(
        "topic.creation.enable",
        Type.BOOLEAN,
        True,
        _LOW,
        "Whether missing topics are created, as the connector's topic.creation.* settings say.",
    ),
    ConfigKey(
        "topic.tracking.enable",
        Type.BOOLEAN,
        True,
        _LOW,
        "Whether the worker records which topics a connector writes to.",
    ),
    ConfigKey(
        "topic.tracking.allow.reset",
        Type.BOOLEAN,
        True,
        _LOW,
        "Whether users may reset the recorded topics of a connector.",
    ),
    ConfigKey(
        "exactly.once.source.support",
        Type.STRING,
        "disabled",
        _HIGH,
        "Exactly-once delivery of source connectors (KIP-618): disabled, preparing or enabled. Set all workers of "
        "the group to preparing before you set one to enabled.",
        OneOfIgnoringCase("disabled", "preparing", "enabled"),
    ),
    ConfigKey(
        "group.id",
        Type.STRING,
        None,
        _HIGH,
        "Name of the group of workers. A standalone worker needs it only for exactly-once.",
    ),
    ConfigKey(
        "offset.storage.topic",
        Type.STRING,
        None,
        _HIGH,
        "Topic for the offsets of source connectors. A standalone worker needs it only for exactly-once.",
    ),
    ConfigKey(
        "offset.storage.partitions",
        Type.INT,
        25,
        _LOW,
        "Number of partitions of a new offsets topic; -1: the broker's default.",
        partitions,
    ),
    ConfigKey(
        "offset.storage.replication.factor",
        Type.SHORT,
        3,
        _LOW,
        "Replication factor of a new offsets topic; -1: the broker's default.",
        replication_factor,
    ),
    ConfigKey(
        "rest.max.body.bytes",
        Type.INT,
        16 * 1024 * 1024,
        _LOW,
        "Maximum size of a request's body in bytes; the response to a larger body is 413. Not a setting of Kafka "
        "Connect.",
        at_least(1024),
    ),
    ConfigKey(
        "rest.max.connections",
        Type.INT,
        1000,
        _LOW,
        "Maximum number of open connections to the addresses in listeners, and separately to those in "
        "admin.listeners. Further connections are closed at once. Not a setting of Kafka Connect.",
        at_least(1),
    ),
    ConfigKey(
        "task.restart.max.attempts",
        Type.INT,
        3,
        _LOW,
        "Maximum number of consecutive restarts of a task after one of these failures: the earlier tasks cannot be "
        "fenced, the producer cannot be initialised, the task was fenced, or the result of a commit is unknown. Not a "
        "setting of Kafka Connect.",
        at_least(0),
    ),
    ConfigKey(
        "task.restart.backoff.ms",
        Type.LONG,
        1_000,
        _LOW,
        "Wait before the first restart that task.restart.max.attempts counts, in ms. It doubles with each failed "
        "restart. Not a setting of Kafka Connect.",
        at_least(0),
    ),
)

STANDALONE: Final = COMMON + ConfigDef(
    ConfigKey(
        "offset.storage.file.filename",
        Type.STRING,
        None,
        _HIGH,
        "File for the offsets of source connectors; used by a standalone worker without offset.storage.topic.",
    ),
)

_CLIENT_PREFIXES: Final = ("producer.", "consumer.", "admin.")


class WorkerConfig:
    """The settings of a worker. `config["group.id"]` is a parsed setting; `client` returns the settings of a client."""

    def __init__(self, table: ConfigDef, originals: Mapping[str, str]) -> None:
        """Raise ConfigValueError for an invalid value, and for a setting that requests unsupported protection."""
        self.providers = ConfigProviders(originals)
        self.secrets = Secrets()
        """The values of the variables in the worker's settings."""
        self.originals = self.providers.resolved(originals, self.secrets)
        """The settings as text, with the values of their variables."""
        refuse_of_worker(self.originals)
        self.table = table
        self._values = table.parse(self.originals)
        self.rest = RestSettings(self.originals, self._values)
        self._check()

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    @property
    def exactly_once(self) -> bool:
        """Whether tasks write in transactions (exactly.once.source.support=enabled)."""
        return str(self["exactly.once.source.support"]).lower() == "enabled"

    @property
    def override_policy(self) -> str:
        """The policy for overrides of client settings: All, None or Principal."""
        return _POLICIES[self["connector.client.config.override.policy"]]

    @property
    def unknown(self) -> list[str]:
        """The names of given settings that the worker, its clients and its converters do not have."""
        known = {*self.table.keys, *ProducerConfig.rows, *ConsumerConfig.rows}
        known |= {"ssl.client.auth"} | self.providers.known
        prefixes = (*_CLIENT_PREFIXES, *HTTPS_PREFIXES, "key.converter.", "value.converter.", "header.converter.")
        others = [name for name in self.originals if name not in known and not name.startswith(prefixes)]
        # admin.listeners is not a setting of the admin client.
        return others + [name for name in ignored(self.originals, "{}.") if not name.startswith(ADMIN_LISTENERS)]

    def client(self, kind: str = "") -> dict[str, str]:
        """Return a client's settings: those for all clients, overridden by those for one `kind`, such as producer.

        Settings that the client does not have are left out (see `overrides.accepted`).
        """
        shared = {name: value for name, value in self.originals.items() if name in ClientConfig.rows}
        shared["bootstrap.servers"] = ",".join(self["bootstrap.servers"])
        return {**shared, **accepted(kind, self.with_prefix(f"{kind}."))} if kind else shared

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Return the settings whose names begin with the prefix, with the prefix removed from the names."""
        return {name.removeprefix(prefix): value for name, value in self.originals.items() if name.startswith(prefix)}

    def _check(self) -> None:
        if not self.exactly_once:
            return
        for name in ("group.id", "offset.storage.topic"):
            if not self[name]:
                raise ConfigValueError(
                    name,
                    self[name],
                    "must be set with exactly.once.source.support=enabled, because transactions need it",
                )
