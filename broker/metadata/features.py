"""Define the names and levels of the protocol features (KIP-584) and when each is enabled.

`inter.broker.protocol.version` is the level at which a cluster's brokers work together. A feature is enabled if that
level is at least the level that introduced the feature. While a feature is disabled, the broker neither advertises nor
accepts it, and ignores the data that the feature left on disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..config import BrokerConfig

TRANSACTION_VERSION: Final = "transaction.version"
"""Kafka's feature for the protocol of transactions (KIP-890)."""

GROUP_AWARE_TRANSACTION: Final = "group.aware.transaction"
"""This project's feature. Producers initialise for partitions of a consumer group and claim them, which fences the
offset commits of other producers. In a session, partitions stay registered from one transaction to the next.
"""

GROUP_AWARE_LEVEL: Final = 1
"""The only level of `group.aware.transaction`."""

_LEVEL_OF_GROUP_AWARE: Final = (4, 1)


def group_aware(config: BrokerConfig) -> bool:
    """Return whether the feature `group.aware.transaction` is enabled."""
    level = tuple(int(part) for part in config.inter_broker_protocol_version.split("."))
    return level >= _LEVEL_OF_GROUP_AWARE


def supported_features(config: BrokerConfig) -> dict[str, tuple[int, int]]:
    """Return the lowest and highest level of each feature that this broker supports with its configuration."""
    features = {TRANSACTION_VERSION: (0, 2)}
    if group_aware(config):
        features[GROUP_AWARE_TRANSACTION] = (GROUP_AWARE_LEVEL, GROUP_AWARE_LEVEL)
    return features


def finalized_features(config: BrokerConfig, recorded: Mapping[str, int]) -> dict[str, int]:
    """Return the level of each enabled feature, from the metadata's `recorded` levels and from the configuration."""
    supported = supported_features(config)
    levels = {name: level for name, level in recorded.items() if level > 0 and name in supported}
    if GROUP_AWARE_TRANSACTION in supported:
        levels[GROUP_AWARE_TRANSACTION] = GROUP_AWARE_LEVEL
    return levels
