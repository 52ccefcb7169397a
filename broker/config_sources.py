"""Where a setting's value comes from, for DescribeConfigs and CreateTopics (KIP-226)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from .config import BrokerConfig
from .services import BrokerServices
from .settings import ConfigType, format_value
from .topic_config import TopicConfig


class ConfigSource(IntEnum):
    """Who set a value; the numbers are the protocol's."""

    DYNAMIC_TOPIC_CONFIG = 1
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_GROUP_CONFIG = 8


class ResourceType(IntEnum):
    """What configs belong to; the numbers are the protocol's."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """One setting as it is: `synonyms` are (name, value, source) of everything that sets it, the winner first."""

    name: str
    value: str
    source: ConfigSource
    read_only: bool
    type: ConfigType
    doc: str
    synonyms: tuple[tuple[str, str, ConfigSource], ...]


def describe_topic(broker: BrokerServices, effective: TopicConfig, own: Mapping[str, str]) -> list[ConfigRow]:
    """Every setting of a topic whose own settings are `own`."""
    rows = []
    for name, setting in TopicConfig.settings.items():
        value = format_value(effective.get(name))
        synonyms: list[tuple[str, str, ConfigSource]] = []
        if name in own:
            synonyms.append((name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG))
        for synonym in setting.synonyms:
            source = _broker_source(broker.config, synonym)
            if source is ConfigSource.STATIC_BROKER_CONFIG or synonym == setting.synonyms[-1]:
                synonyms.append((synonym, format_value(broker.config.get(synonym)), source))
        source = synonyms[0][2] if synonyms else ConfigSource.DEFAULT_CONFIG
        rows.append(ConfigRow(name, value, source, False, setting.type, setting.doc, tuple(synonyms)))
    return rows


def describe_broker(broker: BrokerServices) -> list[ConfigRow]:
    """Every setting of the broker. All are read-only: they are changed in the file and with a restart."""
    rows = []
    for name, setting in BrokerConfig.settings.items():
        value = format_value(broker.config.get(name))
        source = _broker_source(broker.config, name)
        synonyms = [(name, value, source)]
        if source is not ConfigSource.DEFAULT_CONFIG:
            synonyms.append((name, format_value(setting.default), ConfigSource.DEFAULT_CONFIG))
        rows.append(ConfigRow(name, value, source, True, setting.type, setting.doc, tuple(synonyms)))
    return rows


def _broker_source(config: BrokerConfig, name: str) -> ConfigSource:
    return ConfigSource.STATIC_BROKER_CONFIG if name in config.explicit else ConfigSource.DEFAULT_CONFIG
