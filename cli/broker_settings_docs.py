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

This page lists the settings of the broker and of its topics. They have Kafka's names, and Kafka's defaults where a
single node allows them. The broker reads them from these sources. A later source overrides an earlier one:

1. a TOML file: `oncelog serve --config broker.toml`, with lines like `num.partitions = 3`;
2. environment variables: `ONCELOG_` and the setting's name in upper snake case, such as `ONCELOG_NUM_PARTITIONS=3`;
3. flags: `oncelog serve --set num.partitions=3`.

Some settings can be changed while the broker is running (KIP-226), as their rows say. To change them, use
`oncelog cluster alter --set NAME=VALUE`, `Admin.alter_configs` or Kafka's `kafka-configs.sh`. The new value overrides
those of all other sources, takes effect at once, and still applies when the broker starts again.

A broker in your own process takes settings as keyword arguments: `oncelog.Broker(num_partitions=3)`. The broker refuses
an unknown name or an invalid value with an error that states the name and the reason.

Some defaults differ from those in the table. `oncelog serve` listens on `127.0.0.1:9092`, and has its data in `./data`.
A broker in your own process listens on a free port of 127.0.0.1, has its data in a temporary directory, and logs only
warnings and errors.

## Broker

{broker}

## Topic

Set these when you create a topic, and change them with `oncelog topic alter` or IncrementalAlterConfigs. A topic
without its own value for a setting has the value of the broker's setting that the row names. If the row names none, the
topic has the default.

{topic}

## Security

By default, the broker encrypts nothing, and serves every client that can reach its port. [TLS](how-to/tls.md) shows
how to encrypt connections and to require certificates of clients. The settings of this table apply to all listeners.
With the prefix `listener.name.<listener>.`, a setting applies to one listener only, for example
`listener.name.external.ssl.client.auth=required`. `ssl.reload.interval.ms`, `connection.*`, `sasl.server.*`,
`sasl.oauthbearer.jwks.endpoint.refresh.ms` and `scram.max.users` exist only without this prefix.

{security}

The following settings are for access control. [ACLs](how-to/acls.md) shows how to use it.

{acls}

The following settings are for delegation tokens. [SASL](how-to/sasl.md#delegation-tokens) shows how to use them.

{tokens}

Kafka's other security settings (`security.*`, `password.encoder.*` and others) are refused, because ignoring them could
leave access open. The settings `ssl.*` (except `ssl.reload.interval.ms`) are also refused if no listener uses TLS, and
`sasl.*`, `plain.*`, `delegation.token.*` and `connections.max.reauth.ms` if no listener uses SASL. The following values
are accepted, but have no effect:

- any security setting: an empty value
- `listener.name.<listener>.<mechanism>.sasl.jaas.config`, for SCRAM and OAUTHBEARER: a line with only Kafka's login
  module for the mechanism
{harmless}

## Quotas

[Quotas](how-to/quotas.md) limit how much clients use. They are not settings of the broker: admin clients set them. The
following settings determine how the broker measures usage.

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
