"""Find the source of each setting's value, for DescribeConfigs and CreateTopics (KIP-226)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import dropwhile
from typing import Final, TypeAlias

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.primitives import MAX_STRING_BYTES
from ...settings import ConfigType, Setting, format_value
from ..config import BrokerConfig
from ..dynamic_configs import EVERY_BROKER, in_effect
from ..metadata.topic_config import TopicConfig
from .services import BrokerServices

WITHOUT_DEFAULT: Final = frozenset(
    {"log.retention.ms", "log.retention.minutes", "log.roll.ms", "log.roll.jitter.ms", "log.flush.interval.ms"}
)
"""Settings that have a default here but none in Kafka, where a related setting applies instead.

No default is reported for these settings, nor for settings whose default is an empty string.
"""

COARSER: Final = {
    name: row.synonyms[1:] for row in TopicConfig.rows.values() for name in row.synonyms[:1] if len(row.synonyms) > 1
}
"""For each setting of the broker, the settings in coarser units to which it falls back."""


class ConfigSource(IntEnum):
    """The source of a setting's value; the numbers are those of the Kafka protocol."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_GROUP_CONFIG = 8


class ResourceType(IntEnum):
    """The kinds of resources that have settings; the numbers are those of the Kafka protocol."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


Synonym: TypeAlias = tuple[str, str | None, ConfigSource]
"""The name of a setting, its value and the value's source. The value is None if it is a secret or too long."""


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """The current value of one setting.

    `synonyms` are the (name, value, source) of every setting that could provide the value; the first one is in effect.
    `value` is None if the setting has no value, or if the value is a secret (`is_secret`) or too long for a response.
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
        synonyms = _broker_synonyms(broker, setting.synonyms)
        if name in effective.explicit:
            synonyms.insert(0, (name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG))
        source = synonyms[0][2] if synonyms else ConfigSource.DEFAULT_CONFIG
        rows.append(ConfigRow(name, value, source, False, setting.type, setting.doc, tuple(synonyms)))
    return rows


def _broker_synonyms(broker: BrokerServices, names: Sequence[str]) -> list[Synonym]:
    """Return the values that the broker setting `names[0]` could have, the one in effect first.

    `names` are a setting and the coarser ones that it falls back to, most specific first. As in Kafka, the list begins
    with a value of `names[0]` itself. It is empty if `names[0]` was not set and has no default, even if a coarser
    setting, for example one in hours, was set.
    """
    config, stored = broker.config, broker.metadata.broker_configs
    own, of_all = (in_effect(config, stored, resource) for resource in (str(broker.node_id), EVERY_BROKER))
    rows = [(name, _row(name)) for name in names]
    synonyms: list[Synonym] = []
    synonyms += [(name, own[name], ConfigSource.DYNAMIC_BROKER_CONFIG) for name in names if name in own]
    synonyms += [(name, of_all[name], ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG) for name in names if name in of_all]
    synonyms += [
        (name, _shown(row, config.get_static(name)), ConfigSource.STATIC_BROKER_CONFIG)
        for name, row in rows
        if name in config.explicit
    ]
    synonyms += [
        (name, _shown(row, row.default), ConfigSource.DEFAULT_CONFIG) for name, row in rows if _has_default(row)
    ]
    return list(dropwhile(lambda synonym: synonym[0] != names[0], synonyms))


def _row(name: str) -> Setting:
    return BrokerConfig.rows.get(name) or BrokerConfig.find(name)


def check_broker_name(broker: BrokerServices, name: str) -> None:
    """Raise KafkaError INVALID_REQUEST unless `name` is the broker's id or EVERY_BROKER."""
    if name not in (EVERY_BROKER, str(broker.node_id)):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {name[:100]!r} is unknown. The only broker is {broker.node_id}; an empty name means all brokers.",
        )


def describe_broker(broker: BrokerServices) -> list[ConfigRow]:
    """Return a row for every setting of the broker."""
    return [
        _broker_row(name, _broker_synonyms(broker, (name, *COARSER.get(name, ()))))
        for name in (*BrokerConfig.rows, *sorted(broker.config.overrides))
    ]


def describe_every_broker(broker: BrokerServices) -> list[ConfigRow]:
    """Return a row for every setting that was changed for all brokers."""
    stored = broker.metadata.broker_configs.get(EVERY_BROKER, {})
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return [_broker_row(name, [(name, value, source)]) for name, value in stored.items() if name in BrokerConfig.rows]


def _broker_row(name: str, synonyms: Sequence[Synonym]) -> ConfigRow:
    row = _row(name)
    _, value, source = synonyms[0] if synonyms else (name, None, ConfigSource.DEFAULT_CONFIG)
    read_only = name not in BrokerConfig.rows or not row.dynamic
    return ConfigRow(name, value, source, read_only, row.type, row.doc, tuple(synonyms), row.is_secret)


def _has_default(setting: Setting) -> bool:
    return setting.name not in WITHOUT_DEFAULT and setting.default not in ("", None)


def _shown(setting: Setting, value: object) -> str | None:
    """Return a value as text, or None for a secret and for a value that is too long for a response."""
    shown = None if setting.is_secret else format_value(value)
    return None if shown is None or len(shown.encode()) > MAX_STRING_BYTES else shown
