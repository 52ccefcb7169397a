"""Generate docs/reference/connect-settings.md: settings of workers, source connectors and built-in connectors."""

from __future__ import annotations

import html
from collections.abc import Iterable
from importlib import import_module
from typing import Final

from ..connect.config import REQUIRED, ConfigDef, ConfigKey, Type
from ..connect.config.types import Password
from ..connect.settings.connector import source_config_def
from ..connect.settings.distributed import DISTRIBUTED
from ..connect.settings.rest import SSL
from ..connect.settings.worker import COMMON, STANDALONE
from ..protocol.documentation import table

_PAGE: Final = """\
# Connect settings

Settings of workers and connectors have Kafka Connect's names. Give them in a `.properties`, `.toml` or `.json` file.
[Source connectors](../connect.md) shows how to use them. `oncelog connect plugins NAME` prints a plugin's settings.

## Every worker

A worker also accepts the settings of its clients, with the prefixes `producer.`, `consumer.` and `admin.`.

{common}

## TLS of the REST interface

For the addresses in `listeners`, give these settings with the prefix `listeners.https.`, such as
`listeners.https.ssl.keystore.location`. For those in `admin.listeners`, the prefix is `admin.listeners.https.`. If no
setting has the respective prefix, the addresses use the settings without a prefix, which also configure the worker's
clients.

{https}

## Standalone worker

{standalone}

## Distributed worker

{distributed}

## Every source connector

{connector}

{connectors}
"""

_CONNECTORS: Final = (
    ("FileStreamSource", "file.settings"),
    ("DirectorySource", "directory.settings"),
    ("SqlSource", "sql.settings"),
    ("PostgresSource", "postgres.settings"),
    ("HttpSource", "http.settings"),
    ("SingerSource", "singer.settings"),
    ("HeartbeatSource", "heartbeat.connector"),
)


def page() -> str:
    """Return the text of docs/reference/connect-settings.md."""
    connectors = [f"## {name}\n\n{_table(_settings(module))}" for name, module in _CONNECTORS]
    return _PAGE.format(
        common=_table(COMMON),
        https=_table(SSL),
        standalone=_table(_besides(STANDALONE, COMMON)),
        distributed=_table(_besides(DISTRIBUTED, COMMON)),
        connector=_table(source_config_def({})),
        connectors="\n\n".join(connectors),
    )


def _settings(module: str) -> ConfigDef:
    settings: ConfigDef = import_module(f"...connect.connectors.{module}", __name__).SETTINGS
    return settings


def _besides(definition: ConfigDef, common: ConfigDef) -> list[ConfigKey]:
    """Return the settings of `definition` that `common` lacks or defines differently."""
    known = {key.name: key for key in common}
    return [key for key in definition if known.get(key.name) is not key]


def _table(keys: Iterable[ConfigKey]) -> str:
    rows = [(f"`{key.name}`", key.type.name.lower(), _default(key), html.escape(key.doc, quote=False)) for key in keys]
    return table(("name", "type", "default", "meaning"), rows)


def _default(key: ConfigKey) -> str:
    if key.default is REQUIRED:
        return "(required)"
    if key.default in (None, "", []) or (isinstance(key.default, Password) and not key.default.value):
        return "(none)"
    if key.type is Type.BOOLEAN:
        return f"`{str(key.default).lower()}`"
    if isinstance(key.default, list):
        return f"`{','.join(map(str, key.default))}`"
    return f"`{key.default}`"
