"""Find the source of each setting's value, for DescribeConfigs and CreateTopics (KIP-226)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import dropwhile
from typing import Final, TypeAlias

from ...settings import ConfigType, Setting, format_value
from ..config import BrokerConfig
from ..metadata.topic_config import TopicConfig
from .services import BrokerServices

WITHOUT_DEFAULT: Final = frozenset(
    {"log.retention.ms", "log.retention.minutes", "log.roll.ms", "log.roll.jitter.ms", "log.flush.interval.ms"}
)
"""Settings whose default in Kafka is null, which means that a related setting applies.

An empty text is such a default, too, and means that there is no value.
"""


class ConfigSource(IntEnum):
    """The source of a setting's value; the numbers are those of the Kafka protocol."""

    DYNAMIC_TOPIC_CONFIG = 1
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_GROUP_CONFIG = 8


class ResourceType(IntEnum):
    """The kinds of resources that have settings; the numbers are those of the Kafka protocol."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


Synonym: TypeAlias = tuple[str, str | None, ConfigSource]
"""The name of a setting, its value and the value's source. The value of a secret is None."""


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """The current value of one setting.

    `synonyms` are the (name, value, source) of every setting that could provide the value; the first one is in effect.
    The value of a secret (`is_secret`) is None.
    """

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    type: ConfigType
    doc: str
    synonyms: tuple[Synonym, ...]
    is_secret: bool = False


def describe_topic(broker: BrokerServices, effective: TopicConfig) -> list[ConfigRow]:
    """Return a row for every setting of a topic. `effective.explicit` are the settings that the topic overrides."""
    rows = []
    for name, setting in TopicConfig.rows.items():
        value = format_value(effective.get(name))
        synonyms = _broker_synonyms(broker.config, setting.synonyms)
        if name in effective.explicit:
            synonyms.insert(0, (name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG))
        source = synonyms[0][2] if synonyms else ConfigSource.DEFAULT_CONFIG
        rows.append(ConfigRow(name, value, source, False, setting.type, setting.doc, tuple(synonyms)))
    return rows


def _broker_synonyms(config: BrokerConfig, names: Sequence[str]) -> list[Synonym]:
    """Return the broker's settings that a topic setting falls back to: first those that were set, then the defaults.

    `names` are the broker settings, most specific first. As in Kafka the list begins with `names[0]`. It is empty if
    `names[0]` neither was set nor has a default, even if a coarser setting, for example one in hours, was set.
    """
    set_ones = [
        (name, format_value(config.get(name)), ConfigSource.STATIC_BROKER_CONFIG)
        for name in names
        if name in config.explicit
    ]
    defaults = [
        (name, format_value(BrokerConfig.rows[name].default), ConfigSource.DEFAULT_CONFIG)
        for name in names
        if name not in WITHOUT_DEFAULT
    ]
    return list(dropwhile(lambda synonym: synonym[0] != names[0], [*set_ones, *defaults]))


def describe_broker(broker: BrokerServices) -> list[ConfigRow]:
    """Return a row for every setting of the broker. All are read-only, because a change needs a restart."""
    config = broker.config
    values = [(name, setting, config.get(name)) for name, setting in BrokerConfig.rows.items()]
    values += [(name, BrokerConfig.find(name), value) for name, value in sorted(config.overrides.items())]
    rows = []
    for name, setting, value in values:
        synonyms = []
        if name in config.explicit:
            synonyms.append((name, _shown(setting, value), ConfigSource.STATIC_BROKER_CONFIG))
        if _has_default(setting):
            synonyms.append((name, _shown(setting, setting.default), ConfigSource.DEFAULT_CONFIG))
        _, shown, source = synonyms[0] if synonyms else (name, None, ConfigSource.DEFAULT_CONFIG)
        rows.append(ConfigRow(name, shown, source, True, setting.type, setting.doc, tuple(synonyms), setting.is_secret))
    return rows


def _has_default(setting: Setting) -> bool:
    return setting.name not in WITHOUT_DEFAULT and setting.default not in ("", None)


def _shown(setting: Setting, value: object) -> str | None:
    return None if setting.is_secret else format_value(value)
