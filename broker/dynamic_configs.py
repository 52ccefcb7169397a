"""The settings of the broker that clients change while it is running (KIP-226).

A value for one broker overrides a value for all brokers, and both override the broker's own configuration. The table in
`config.py` says which settings can be changed. Kafka stores and ignores a setting that it does not know; this broker
refuses it, because a misspelled limit would have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, Final, TypeAlias

from ..protocol.errors import ErrorCode, KafkaError
from ..settings import ConfigError, Setting
from .config import WITHOUT_MEANING, BrokerConfig

EVERY_BROKER: Final = ""
"""The resource name of the values for all brokers."""

_LEAST: Final = {"log.retention.ms": -1, "log.roll.ms": 1, "log.roll.jitter.ms": 0}
"""The lowest values that clients can set. In the configuration, a lower value selects a setting in a coarser unit."""

StoredConfigs: TypeAlias = Mapping[str, Mapping[str, str]]
"""The changed values as text, by the id of their broker or EVERY_BROKER, and by the name of their setting."""


def dynamic_setting(name: str) -> Setting:
    """Return the setting with this name. Raises KafkaError INVALID_REQUEST if it cannot be changed at runtime."""
    setting = BrokerConfig.rows.get(name)
    if name in WITHOUT_MEANING:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} has no effect in this broker. Do not change it.")
    if setting is None and not _is_known(name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The broker has no setting {name[:100]}. Correct its name.")
    if setting is None or not setting.dynamic:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{name[:100]} cannot be changed while the broker is running. Change it in the broker's configuration, and"
            " restart the broker.",
        )
    return setting


def _is_known(name: str) -> bool:
    """Return whether `name` is an alias, or a setting of one listener."""
    try:
        return bool(BrokerConfig.find(name))
    except ConfigError:
        return False


def dynamic_value(name: str, text: str) -> Any:
    """Return the typed value of a dynamic setting. Raises KafkaError INVALID_REQUEST if `text` is not valid."""
    try:
        value = BrokerConfig.parse_value(dynamic_setting(name), text)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{error}.") from None
    if name in _LEAST and value < _LEAST[name]:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{name}: {value} is below {_LEAST[name]}. To use the setting in a coarser unit instead, remove this one.",
        )
    return value


def in_effect(config: BrokerConfig, stored: StoredConfigs, resource: str) -> Mapping[str, str]:
    """Return the stored values of a broker or of EVERY_BROKER, or none if `dynamic.configs.enable` is false."""
    return stored.get(resource, {}) if config.dynamic_configs_enable else {}


def check_broker_configs(config: BrokerConfig, stored: StoredConfigs, node_id: int) -> None:
    """Raise KafkaError INVALID_REQUEST if the stored values contradict each other or the broker's configuration."""
    changed = copy(config)
    changed.set_dynamic(_typed(config, stored, node_id)[0])
    try:
        changed.check_compaction_lags()
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{error}.") from None


def take_dynamic_configs(config: BrokerConfig, stored: StoredConfigs, node_id: int, log: Any) -> None:
    """Put the stored values into effect in `config`.

    If another release has stored a value that this one does not accept, the value is logged and ignored.
    """
    values, ignored = _typed(config, stored, node_id)
    for name, why in ignored.items():
        log.warning("broker_setting_ignored", setting=name, why=why)
    config.set_dynamic(values)


def _typed(config: BrokerConfig, stored: StoredConfigs, node_id: int) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the typed values that apply to a broker, and the reasons why others are ignored, both by name."""
    values: dict[str, Any] = {}
    ignored: dict[str, str] = {}
    for resource in (EVERY_BROKER, str(node_id)):  # the broker's own values replace those for all brokers
        for name, text in in_effect(config, stored, resource).items():
            try:
                values[name] = dynamic_value(name, text)
            except KafkaError as error:
                ignored[name] = error.message
    return values, ignored
