"""Generate docs/reference/client-settings.md from the client's tables of settings."""

from __future__ import annotations

from typing import Final

from ..client.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from ..settings.documentation import settings_table

_PAGE: Final = """\
# Client settings

Settings have Kafka's names, and Kafka 4.1's defaults unless the description says otherwise. Give them as keywords with
underscores instead of dots, as a mapping with Kafka's names, or both:

```python
import oncelog

producer = oncelog.Producer({{"bootstrap.servers": "127.0.0.1:9092"}}, linger_ms=20)
```

An unknown name, an invalid value, and settings that contradict each other raise
[`ConfigError`](api/exceptions.md#oncelog.ConfigError). Times are in milliseconds and sizes in bytes.

Keywords are typed, so editors complete them, and mypy and pyright report a wrong name or value. Values in a mapping are
checked only at run time. Use a mapping for strings from a file or the environment, and for a `dict` of settings that
several clients share.

## Every client

{common}

## Producer

These settings are for [`Producer`](api/producer.md#oncelog.Producer), and for the producers of a
[`Processor`](api/processor.md#oncelog.Processor) and of a
[`TransactionalProducerPool`](api/pool.md#oncelog.TransactionalProducerPool).

{producer}

## Consumer

These settings are for [`Consumer`](api/consumer.md#oncelog.Consumer), and for the consumers of a
[`Processor`](api/processor.md#oncelog.Processor). A processor sets `isolation.level` and `enable.auto.commit` itself,
and its default for `auto.offset.reset` is `earliest`.

{consumer}

## Admin

{admin}

## Refused

The following settings of Kafka's clients are refused, except those that are listed above. The error states the reason:

{refused}
"""


def page() -> str:
    """Return the text of docs/reference/client-settings.md."""
    common = {row.name for row in ClientConfig.settings()}
    return _PAGE.format(
        common=_table(ClientConfig, frozenset()),
        producer=_table(ProducerConfig, common),
        consumer=_table(ConsumerConfig, common),
        admin=_table(AdminConfig, common),
        refused="\n".join(f"- `{name}{'*' if name.endswith('.') else ''}`" for name in sorted(ClientConfig.refused)),
    )


def _table(config: type[ClientConfig], elsewhere: frozenset[str] | set[str]) -> str:
    return settings_table(setting for setting in config.settings() if setting.name not in elsewhere)
