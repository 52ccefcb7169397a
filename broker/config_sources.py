"""Where a setting's value comes from, for DescribeConfigs and CreateTopics (KIP-226)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import dropwhile
from typing import Final, TypeAlias

from .config import BrokerConfig
from .services import BrokerServices
from .settings import ConfigType, format_value
from .topic_config import TopicConfig

WITHOUT_DEFAULT: Final = frozenset(
    {"log.retention.ms", "log.retention.minutes", "log.roll.ms", "log.roll.jitter.ms", "log.flush.interval.ms"}
)
"""Settings whose default in Kafka is null: another one decides."""


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


Synonym: TypeAlias = tuple[str, str, ConfigSource]
"""(name, value, source)"""


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """One setting as it is: `synonyms` are (name, value, source) of everything that sets it, the winner first."""

    name: str
    value: str
    source: ConfigSource
    read_only: bool
    type: ConfigType
    doc: str
    synonyms: tuple[Synonym, ...]


def describe_topic(broker: BrokerServices, effective: TopicConfig, own: Mapping[str, str]) -> list[ConfigRow]:
    """Every setting of a topic whose own settings are `own`."""
    rows = []
    for name, setting in TopicConfig.settings.items():
        value = format_value(effective.get(name))
        synonyms = _broker_synonyms(broker.config, setting.synonyms)
        if name in own:
            synonyms.insert(0, (name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG))
        source = synonyms[0][2] if synonyms else ConfigSource.DEFAULT_CONFIG
        rows.append(ConfigRow(name, value, source, False, setting.type, setting.doc, tuple(synonyms)))
    return rows


def _broker_synonyms(config: BrokerConfig, names: Sequence[str]) -> list[Synonym]:
    """What the broker says of a topic's setting: first what was set, then defaults.

    As in Kafka the list begins with the setting that is named like the topic's: where only a coarser one was set, or
    none has a default, it is empty.
    """
    set_ones = [
        (name, format_value(config.get(name)), ConfigSource.STATIC_BROKER_CONFIG)
        for name in names
        if name in config.explicit
    ]
    defaults = [
        (name, format_value(BrokerConfig.settings[name].default), ConfigSource.DEFAULT_CONFIG)
        for name in names
        if name not in WITHOUT_DEFAULT
    ]
    return list(dropwhile(lambda synonym: synonym[0] != names[0], [*set_ones, *defaults]))


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
