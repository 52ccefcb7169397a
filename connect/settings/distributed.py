"""The settings of a distributed worker, with Kafka Connect's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..config import REQUIRED, ConfigDef, ConfigKey, Importance, OneOf, OneOfIgnoringCase, Type, at_least, between
from ..errors import ConfigValueError
from ..signatures import ALGORITHMS, MIN_KEY_BITS
from .worker import COMMON, WorkerConfig, partitions, replication_factor

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_MAX_INT: Final = 2**31 - 1

CONFIG_STORAGE: Final = "config.storage."
OFFSET_STORAGE: Final = "offset.storage."
STATUS_STORAGE: Final = "status.storage."


def _key_size(name: str, value: int | None) -> None:
    if value is not None:
        at_least(MIN_KEY_BITS)(name, value)


def _algorithms(name: str, value: list[str]) -> None:
    if not value:
        raise ConfigValueError(name, value, "At least one signature verification algorithm must be provided")
    for algorithm in value:
        OneOf(*ALGORITHMS)(name, algorithm)


_ROWS: Final = (
    ConfigKey("group.id", Type.STRING, REQUIRED, _HIGH, "Name of the group of workers."),
    ConfigKey(
        "session.timeout.ms", Type.INT, 10_000, _HIGH,
        "The group removes a worker that sends no heartbeat for this long, in ms.",
        at_least(1),
    ),
    ConfigKey(
        "heartbeat.interval.ms", Type.INT, 3_000, _HIGH,
        "Time between heartbeats, in ms; less than session.timeout.ms.",
        at_least(1),
    ),
    ConfigKey(
        "rebalance.timeout.ms", Type.INT, 60_000, _HIGH,
        "Maximum time, in ms, for a worker to stop revoked work and to rejoin when the group rebalances.", at_least(1),
    ),
    ConfigKey(
        "worker.sync.timeout.ms", Type.INT, 3_000, _MEDIUM,
        "Maximum time to catch up with the config topic, in ms. A slower worker leaves the group for a while.",
        at_least(0),
    ),
    ConfigKey(
        "worker.unsync.backoff.ms", Type.INT, 300_000, _MEDIUM,
        "How long a worker stays out of the group if it could not catch up with the config topic, in ms.", at_least(0),
    ),
    ConfigKey("config.storage.topic", Type.STRING, REQUIRED, _HIGH, "Topic for the settings of connectors and tasks."),
    ConfigKey(
        "config.storage.replication.factor", Type.SHORT, 3, _LOW,
        "Replication factor of a new config topic; -1: the broker's default.", replication_factor,
    ),
    ConfigKey("offset.storage.topic", Type.STRING, REQUIRED, _HIGH, "Topic for the offsets of source connectors."),
    ConfigKey("status.storage.topic", Type.STRING, REQUIRED, _HIGH, "Topic for the states of connectors and tasks."),
    ConfigKey(
        "status.storage.partitions", Type.INT, 5, _LOW,
        "Number of partitions of a new status topic; -1: the broker's default.", partitions,
    ),
    ConfigKey(
        "status.storage.replication.factor", Type.SHORT, 3, _LOW,
        "Replication factor of a new status topic; -1: the broker's default.", replication_factor,
    ),
    ConfigKey(
        "connect.protocol", Type.STRING, "sessioned", _LOW,
        "The newest group protocol that the worker offers: eager, compatible (incremental cooperative) or "
        "sessioned (as compatible, with signed internal requests).",
        OneOfIgnoringCase("eager", "compatible", "sessioned"),
    ),
    ConfigKey(
        "scheduled.rebalance.max.delay.ms", Type.INT, 300_000, _LOW,
        "How long the connectors and tasks of a departed worker wait for its return before they are reassigned, in ms.",
        between(0, _MAX_INT),
    ),
    ConfigKey(
        "inter.worker.key.generation.algorithm", Type.STRING, "HmacSHA256", _LOW,
        "Algorithm of the keys that sign requests between workers.", OneOf(*ALGORITHMS),
    ),
    ConfigKey(
        "inter.worker.key.size", Type.INT, None, _LOW,
        "Size of the keys that sign requests, in bits; by default the algorithm's own size.",
        _key_size,
    ),
    ConfigKey(
        "inter.worker.key.ttl.ms", Type.INT, 3_600_000, _LOW,
        "Age in ms at which the leader replaces the key; 0: never.", between(0, _MAX_INT),
    ),
    ConfigKey(
        "inter.worker.signature.algorithm", Type.STRING, "HmacSHA256", _LOW,
        "Algorithm that signs requests between workers.", OneOf(*ALGORITHMS),
    ),
    ConfigKey(
        "inter.worker.verification.algorithms", Type.LIST, ["HmacSHA256"], _LOW,
        "Accepted signature algorithms; must include inter.worker.signature.algorithm.", _algorithms,
    ),
)  # fmt: skip

DISTRIBUTED: Final = ConfigDef(*(row for row in COMMON if row.name not in {row.name for row in _ROWS}), *_ROWS)
"""The settings of a distributed worker. Settings that are required only here replace those of COMMON."""


class DistributedConfig(WorkerConfig):
    """The settings of a distributed worker."""

    def __init__(self, originals: Mapping[str, str]) -> None:
        """Raise ConfigValueError for an invalid value."""
        super().__init__(DISTRIBUTED, originals)

    @property
    def transactional_leader(self) -> bool:
        """Whether the leader writes in transactions, because exactly.once.source.support is enabled or preparing."""
        return str(self["exactly.once.source.support"]).lower() != "disabled"

    @property
    def leader_transactional_id(self) -> str:
        """The transactional id of the leader's writes to the config topic."""
        return f"connect-cluster-{self['group.id']}"

    @property
    def unknown(self) -> list[str]:
        """The names of given settings that the worker, its clients, converters and internal topics do not have."""
        prefixes = (CONFIG_STORAGE, OFFSET_STORAGE, STATUS_STORAGE)
        return [name for name in super().unknown if not name.startswith(prefixes)]

    def topic_settings(self, prefix: str) -> dict[str, str]:
        """Return the topic configs of a new internal topic, from the settings whose names begin with `prefix`.

        The settings for the topic's name, partitions, replication factor and cleanup.policy are left out.
        """
        own = ("topic", "partitions", "replication.factor", "cleanup.policy")
        return {name: value for name, value in self.with_prefix(prefix).items() if name not in own}

    def _check(self) -> None:
        super()._check()
        session_ms, interval_ms = self["session.timeout.ms"], self["heartbeat.interval.ms"]
        if interval_ms >= session_ms:
            raise ConfigValueError(
                "heartbeat.interval.ms", interval_ms, f"must be less than session.timeout.ms = {session_ms}"
            )
        protocol = self["connect.protocol"].lower()
        if self.rest.has_credentials and protocol != "sessioned":
            raise ConfigValueError(
                "connect.protocol",
                protocol,
                "must be sessioned if rest.users.location or rest.bearer.token.location is set, because workers prove "
                "their identity by signing their requests",
            )
        algorithm = self["inter.worker.signature.algorithm"]
        if algorithm not in self["inter.worker.verification.algorithms"]:
            raise ConfigValueError(
                "inter.worker.signature.algorithm",
                algorithm,
                "Signature algorithm must be present in inter.worker.verification.algorithms list",
            )
