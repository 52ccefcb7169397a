"""The settings of the broker that clients change while it runs (KIP-226).

A value for one broker comes before a value for all brokers, and both come before the broker's own configuration. Which
settings can be changed is said in their table, `config.py`. Kafka stores and ignores a setting that it does not know;
this broker refuses it, because a misspelled limit would have no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..protocol.errors import ErrorCode, KafkaError
from ..settings import ConfigError, Setting
from .config import BrokerConfig

EVERY_BROKER: Final = ""
"""The resource name of the values for all brokers."""


def dynamic_setting(name: str) -> Setting:
    """Return a setting that can be changed while the broker runs. Raises KafkaError INVALID_REQUEST for all others."""
    setting = BrokerConfig.rows.get(name)
    if setting is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The broker has no setting {name[:100]}. Correct its name.")
    if not setting.dynamic:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{name} cannot be changed while the broker runs. Change its configuration and restart it.",
        )
    return setting


def dynamic_value(name: str, text: str) -> Any:
    """Return the typed value of a dynamic setting. Raises KafkaError INVALID_REQUEST."""
    try:
        return BrokerConfig.parse_value(dynamic_setting(name), text)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{error}.") from None


def layers(stored: Mapping[str, Mapping[str, str]], node_id: int) -> Iterator[Mapping[str, str]]:
    """Yield the values that hold for a broker: first those for all brokers, then its own, which come before them."""
    for resource in (EVERY_BROKER, str(node_id)):
        yield stored.get(resource, {})


def take_dynamic_configs(config: BrokerConfig, stored: Mapping[str, Mapping[str, str]], node_id: int, log: Any) -> None:
    """Put the stored values in effect in `config`.

    A value that another release has stored, and that this one does not accept, is logged and ignored.
    """
    values: dict[str, Any] = {}
    for layer in layers(stored, node_id):
        for name, text in layer.items():
            try:
                values[name] = dynamic_value(name, text)
            except KafkaError as error:
                log.warning("broker_setting_ignored", setting=name, why=error.message)
    config.set_dynamic(values)
