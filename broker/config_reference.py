"""The reference page of all settings, made from the tables; `make docs` writes it, a test compares it."""

from __future__ import annotations

from typing import Final

from .config import WITHOUT_MEANING, BrokerConfig
from .settings import ConfigTable, Setting, format_value
from .topic_config import TopicConfig

_PAGE: Final = """\
# Configuration

Settings have Kafka's names, and its defaults wherever one node can satisfy them. They come from, later ones winning:

1. a TOML file: `oncelog serve --config broker.toml`, with lines like `num.partitions = 3`;
2. the environment: `ONCELOG_` and the name in upper snake case, `ONCELOG_NUM_PARTITIONS=3`;
3. flags: `oncelog serve --set num.partitions=3`.

In-process brokers take them as keywords: `oncelog.Broker(num_partitions=3)`. An unknown name and an invalid value are
refused, with the name and the reason.

## Broker

{broker}

## Topic

Give these when you create a topic, and change them with `oncelog topic alter` or IncrementalAlterConfigs. A topic
without a setting of its own has the broker's.

{topic}

## Security

The broker serves plaintext to everyone who can reach its port. Kafka's security settings (`ssl.*`, `sasl.*`,
`listener.name.*`, `authorizer.class.name`, `super.users` and the like) are refused, never ignored, and so is a listener
whose protocol is not PLAINTEXT. Empty values, and `security.inter.broker.protocol=PLAINTEXT`, have no effect.

## Accepted without effect

These settings of Kafka have no meaning for one process with one event loop. The broker logs that it ignores them.

{ignored}
"""


def configuration_markdown() -> str:
    """The text of docs/configuration.md."""
    return _PAGE.format(
        broker=_table(BrokerConfig),
        topic=_table(TopicConfig),
        ignored="\n".join(f"- `{name}`" for name in sorted(WITHOUT_MEANING)),
    )


def _table(table: type[ConfigTable]) -> str:
    rows = [_row(setting) for setting in table.settings.values()]
    return "\n".join(["| name | type | default | meaning |", "|---|---|---|---|", *rows])


def _row(setting: Setting) -> str:
    meaning = setting.doc
    if setting.choices and len(setting.choices) > 1:
        meaning += f" One of {', '.join(f'`{choice}`' for choice in setting.choices)}."
    if setting.aliases:
        meaning += f" Also called {', '.join(f'`{alias}`' for alias in setting.aliases)}."
    if setting.synonyms:
        meaning += f" From the broker's `{setting.synonyms[0]}`."
    default = format_value(setting.default)
    shown = f"`{default}`" if default else "(empty)"
    return f"| `{setting.name}` | {setting.type.name.lower()} | {shown} | {meaning.replace('|', '&#124;')} |"
