"""The settings of a worker, under Kafka Connect's names. Those with `Not a setting of Kafka Connect` are ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from ...client.config import ClientConfig, ConsumerConfig, ProducerConfig
from ..config import REQUIRED, ConfigDef, ConfigKey, Importance, OneOf, OneOfIgnoringCase, Type, at_least
from ..errors import ConfigValueError

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

COMMON: Final = ConfigDef(
    ConfigKey("bootstrap.servers", Type.LIST, ["localhost:9092"], _HIGH, "Brokers to start from, host:port."),
    ConfigKey("key.converter", Type.CLASS, REQUIRED, _HIGH, "Converter of keys, where a connector names none."),
    ConfigKey("value.converter", Type.CLASS, REQUIRED, _HIGH, "Converter of values, where a connector names none."),
    ConfigKey(
        "header.converter",
        Type.CLASS,
        "org.apache.kafka.connect.storage.SimpleHeaderConverter",
        _LOW,
        "Converter of headers, where a connector names none.",
    ),
    ConfigKey("listeners", Type.LIST, ["http://:8083"], _LOW, "Where the REST interface listens, http://host:port."),
    ConfigKey("rest.advertised.host.name", Type.STRING, None, _LOW, "Host that other workers are told to use."),
    ConfigKey("rest.advertised.port", Type.INT, None, _LOW, "Port that other workers are told to use."),
    ConfigKey("offset.flush.interval.ms", Type.LONG, 60_000, _LOW, "Time between commits of offsets.", at_least(0)),
    ConfigKey(
        "offset.flush.timeout.ms", Type.LONG, 5_000, _LOW, "Longest wait for records before a commit.", at_least(0)
    ),
    ConfigKey(
        "task.shutdown.graceful.timeout.ms",
        Type.LONG,
        5_000,
        _LOW,
        "Longest wait for all tasks to end by themselves; then they are abandoned.",
        at_least(0),
    ),
    ConfigKey(
        "connector.client.config.override.policy",
        Type.STRING,
        "All",
        _MEDIUM,
        "Which settings of clients a connector may override: All, None or Principal.",
        OneOf("All", "None", "Principal"),
    ),
    ConfigKey("topic.creation.enable", Type.BOOLEAN, True, _LOW, "Create topics as topic.creation.* says."),
    ConfigKey("topic.tracking.enable", Type.BOOLEAN, True, _LOW, "Remember which topics a connector writes to."),
    ConfigKey("topic.tracking.allow.reset", Type.BOOLEAN, True, _LOW, "Let users forget the topics of a connector."),
    ConfigKey(
        "exactly.once.source.support",
        Type.STRING,
        "disabled",
        _HIGH,
        "Whether source connectors do exactly-once: disabled, preparing (on the way to it) or enabled (KIP-618).",
        OneOfIgnoringCase("disabled", "preparing", "enabled"),
    ),
    ConfigKey("group.id", Type.STRING, None, _HIGH, "Name of the cluster of workers."),
    ConfigKey("offset.storage.topic", Type.STRING, None, _HIGH, "Topic of the offsets of source connectors."),
    ConfigKey("offset.storage.partitions", Type.INT, 25, _LOW, "Partitions of a new offsets topic.", at_least(1)),
    ConfigKey(
        "offset.storage.replication.factor", Type.SHORT, 3, _LOW, "Replicas of a new offsets topic; -1: the broker's."
    ),
    ConfigKey(
        "rest.max.body.bytes",
        Type.INT,
        16 * 1024 * 1024,
        _LOW,
        "Largest body of a request; a larger one is answered with 413. Not a setting of Kafka Connect.",
        at_least(1024),
    ),
    ConfigKey(
        "task.restart.max.attempts",
        Type.INT,
        3,
        _LOW,
        "How often a task is started again after its fencing or initialisation has failed. Not a setting of Kafka "
        "Connect.",
        at_least(0),
    ),
    ConfigKey(
        "task.restart.backoff.ms",
        Type.LONG,
        1_000,
        _LOW,
        "Wait before the first such attempt; doubles with each further one. Not a setting of Kafka Connect.",
        at_least(0),
    ),
)

STANDALONE: Final = COMMON + ConfigDef(
    ConfigKey(
        "offset.storage.file.filename",
        Type.STRING,
        None,
        _HIGH,
        "File of the offsets of source connectors, for a worker alone without offset.storage.topic.",
    ),
)

_CLIENT_PREFIXES: Final = ("producer.", "consumer.", "admin.")


class WorkerConfig:
    """The settings of a worker: parsed ones by `config["group.id"]`, and those of its clients."""

    def __init__(self, table: ConfigDef, originals: Mapping[str, str]) -> None:
        """Raise ConfigValueError for a wrong value."""
        self.originals = dict(originals)
        self.table = table
        self._values = table.parse(originals)
        self._check()

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    @property
    def exactly_once(self) -> bool:
        """Whether tasks write in transactions."""
        return str(self["exactly.once.source.support"]).lower() == "enabled"

    @property
    def unknown(self) -> list[str]:
        """The names that are neither settings of the worker nor of its clients nor of its converters."""
        known = set(self.table.keys) | _names(ClientConfig) | _names(ProducerConfig) | _names(ConsumerConfig)
        prefixes = (*_CLIENT_PREFIXES, "key.converter.", "value.converter.", "header.converter.")
        return [name for name in self.originals if name not in known and not name.startswith(prefixes)]

    def client(self, kind: str = "") -> dict[str, str]:
        """Return the settings of a client: what all clients know, then those with the prefix `kind`."""
        shared = {name: value for name, value in self.originals.items() if name in _names(ClientConfig)}
        shared["bootstrap.servers"] = ",".join(self["bootstrap.servers"])
        return {**shared, **(self.with_prefix(f"{kind}.") if kind else {})}

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Return the settings whose names begin with a prefix, without it."""
        return {name.removeprefix(prefix): value for name, value in self.originals.items() if name.startswith(prefix)}

    def _check(self) -> None:
        if not self.exactly_once:
            return
        for name in ("group.id", "offset.storage.topic"):
            if not self[name]:
                raise ConfigValueError(
                    name, self[name], "must be set with exactly.once.source.support=enabled: transactions need it"
                )


def _names(table: type[ClientConfig]) -> set[str]:
    return {row.name.replace("_", ".") for row in fields(table) if row.metadata}
