"""The protocol features of this release beyond Kafka's own (KIP-584): what they are called and when they act.

`inter.broker.protocol.version` is the level at which a cluster works together; a feature acts from the level that
introduced it on. Below, nothing of it is advertised or understood, and what it left on disk stays and is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .config import BrokerConfig

TRANSACTION_VERSION: Final = "transaction.version"
"""Kafka's own (KIP-890)."""

GROUP_AWARE_TRANSACTION: Final = "group.aware.transaction"
"""Group-aware initialisation of producers, offset fencing by claims, transaction sessions."""

GROUP_AWARE_LEVEL: Final = 1
"""The one level of that feature."""

_LEVEL_OF_GROUP_AWARE: Final = (4, 1)


def group_aware(config: BrokerConfig) -> bool:
    """Whether the feature `group.aware.transaction` acts."""
    level = tuple(int(part) for part in config.inter_broker_protocol_version.split("."))
    return level >= _LEVEL_OF_GROUP_AWARE


def supported_features(config: BrokerConfig) -> dict[str, tuple[int, int]]:
    """Feature → levels that this broker can work at, as it is configured."""
    features = {TRANSACTION_VERSION: (0, 2)}
    if group_aware(config):
        features[GROUP_AWARE_TRANSACTION] = (GROUP_AWARE_LEVEL, GROUP_AWARE_LEVEL)
    return features


def finalized_features(config: BrokerConfig, recorded: Mapping[str, int]) -> dict[str, int]:
    """Feature → level that acts: what the metadata has recorded, and what follows from the configuration."""
    supported = supported_features(config)
    levels = {name: level for name, level in recorded.items() if level > 0 and name in supported}
    if GROUP_AWARE_TRANSACTION in supported:
        levels[GROUP_AWARE_TRANSACTION] = GROUP_AWARE_LEVEL
    return levels
