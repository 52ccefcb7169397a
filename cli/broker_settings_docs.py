"""Generate the reference page of all settings from the settings' tables.

`make docs` writes the page, and a test compares it with the tables.
"""

from __future__ import annotations

from typing import Final

from ..broker.acls.settings import AclSettings
from ..broker.config import HARMLESS, WITHOUT_MEANING, BrokerConfig
from ..broker.metadata.topic_config import TopicConfig
from ..broker.quotas.settings import QuotaSettings
from ..broker.security.delegation_token_settings import DelegationTokenSettings
from ..broker.security.settings import SecuritySettings
from ..settings.documentation import settings_table

_PAGE: Final = """\
# Configuration

Settings have Kafka's names, and Kafka's defaults where a single node allows them. They are read from these sources;
a later source overrides an earlier one:

1. a TOML file: `oncelog serve --config broker.toml`, with lines like `num.partitions = 3`;
2. environment variables: `ONCELOG_` and the setting's name in upper snake case, `ONCELOG_NUM_PARTITIONS=3`;
3. flags: `oncelog serve --set num.partitions=3`.

A few settings can be changed while the broker runs (KIP-226); their rows say so. They are changed with
`oncelog cluster alter --set NAME=VALUE`, `Admin.alter_configs` or Kafka's `kafka-configs.sh`. Such a value overrides
those of all other sources, takes effect at once, and still applies when the broker starts again.

In-process brokers take settings as keyword arguments: `oncelog.Broker(num_partitions=3)`. The broker refuses an unknown
name or an invalid value with an error that states the name and the reason.

## Broker

{broker}

## Topic

Set these when you create a topic, and change them with `oncelog topic alter` or IncrementalAlterConfigs. A setting that
a topic does not set itself has the broker's value.

{topic}

## Security

Without these settings the broker serves plaintext to every client that can reach its port. [TLS](how-to/tls.md) shows
how to encrypt connections and to require certificates of clients. A setting of this table applies to all listeners, and
with the prefix `listener.name.<listener>.` to one, for example `listener.name.external.ssl.client.auth=required`.

{security}

These settings turn on access control by ACLs. [ACLs](how-to/acls.md) shows how to use it.

{acls}

These settings turn on delegation tokens. [SASL](how-to/sasl.md#delegation-tokens) shows how to use them.

{tokens}

Kafka's other security settings (`security.*`, `password.encoder.*` and others) are refused and never ignored. So are
`ssl.*` settings if no listener uses TLS, and `sasl.*`, `plain.*`, `delegation.token.*` and `connections.max.reauth.ms`
if no listener uses SASL. Empty values have no effect. The following values are accepted without effect, too:

{harmless}

## Quotas

[Quotas](how-to/quotas.md) limit what clients use, and are set while the broker runs. The following settings decide
how the broker measures this use.

{quotas}

## Accepted without effect

These settings of Kafka have no meaning for a broker with one process and one event loop. The broker logs that it
ignores them.

{ignored}
"""


def configuration_markdown() -> str:
    """Return the text of docs/configuration.md."""
    elsewhere = SecuritySettings.rows | AclSettings.rows | DelegationTokenSettings.rows | QuotaSettings.rows
    return _PAGE.format(
        broker=settings_table(row for name, row in BrokerConfig.rows.items() if name not in elsewhere),
        topic=settings_table(TopicConfig.rows.values()),
        security=settings_table(SecuritySettings.rows.values()),
        acls=settings_table(AclSettings.rows.values()),
        tokens=settings_table(DelegationTokenSettings.rows.values()),
        quotas=settings_table(QuotaSettings.rows.values()),
        harmless="\n".join(f"- `{name}`: {', '.join(values)}" for name, values in HARMLESS.items()),
        ignored="\n".join(f"- `{name}`" for name in sorted(WITHOUT_MEANING)),
    )
