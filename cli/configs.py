"""Convert the configs of topics and brokers to the rows that commands print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..client.admin import ConfigEntry
    from .tables import Item

COLUMNS: Final = ("name", "value", "source")

DEFAULT_CONFIG: Final = 5
TOPIC_CONFIG: Final = 1
_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
"""Kafka's names of the places in which a config can be set, by code (DescribeConfigsResponse.ConfigSource)."""


def config_items(entries: Mapping[str, ConfigEntry]) -> list[Item]:
    """Return configs as table items, sorted by name. The value of a sensitive config is None."""
    return [
        {
            "name": name,
            "value": entry.value,
            "source": _SOURCES.get(entry.source, str(entry.source)),
            "read_only": entry.read_only,
            "sensitive": entry.sensitive,
        }
        for name, entry in sorted(entries.items())
    ]
