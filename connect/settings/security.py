"""Refuses security settings that workers and their clients do not support.

An operator who sets such a setting relies on its protection, so it must not be ignored. A value that requests no
protection is accepted. The clients' own tables of settings say which security settings the clients support, and
`rest.py` defines those that the REST interface supports.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from ...client.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from ...client.errors import ConfigError
from ...settings import normal_name
from ..config.protection import HIDDEN, asks_for_protection
from ..errors import ConfigValueError

_OF_CLIENTS: Final = ("ssl.", "sasl.", "security.")

_WORKERS_CLIENTS: Final = {
    "": ClientConfig,
    "producer.": ProducerConfig,
    "consumer.": ConsumerConfig,
    "admin.": AdminConfig,
}
_OF_LISTENERS: Final = "ssl.client.auth"
"""The only TLS setting that applies to the REST interface but to no client."""

_OVERRIDES: Final = {
    "producer.override.": ProducerConfig,
    "consumer.override.": ConsumerConfig,
    "admin.override.": AdminConfig,
}

_PASSWORDS: Final = ("ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.truststore.certificates")
"""Settings that have the type PASSWORD in Kafka's clients, even if they contain only certificates."""

_SECRET: Final = re.compile(r"password|passphrase|secret", re.IGNORECASE)

_UNSUPPORTED: Final[Mapping[str, str]] = {
    "rest.host.name": "is not supported, as in Kafka 3.0 and newer: set listeners=http://HOST:PORT instead",
    "response.http.headers.config": "is not supported. Remove the setting, and let a proxy add the headers",
}


def refuse_of_worker(settings: Mapping[str, str]) -> None:
    """Raise ConfigValueError for the first setting of a worker that requests unsupported protection."""
    for name, value in settings.items():
        for refused, problem in _UNSUPPORTED.items():
            if name == refused and asks_for_protection(value):
                raise ConfigValueError(name, HIDDEN, problem)
    of_clients = {name: value for name, value in settings.items() if name != _OF_LISTENERS}
    for error in _of_clients(of_clients, _WORKERS_CLIENTS):
        raise error


def refused_overrides(settings: Mapping[str, str]) -> dict[str, ConfigValueError]:
    """Check the security settings among a connector's client overrides. Return the errors by setting name.

    Only the first unsupported setting of each kind of client gets an error.
    """
    return {error.name: error for error in _of_clients(settings, _OVERRIDES)}


def is_secret(name: str) -> bool:
    """Return whether the value of a client's setting is, or may be, a secret that no response may show.

    `name` has no prefix such as producer.override. It may have any spelling that the clients accept.
    """
    name = normal_name(name)
    known = any(row.is_secret and row.name == name for table in _OVERRIDES.values() for row in table.rows.values())
    return known or name in _PASSWORDS or _SECRET.search(name) is not None


def _of_clients(settings: Mapping[str, str], tables: Mapping[str, type[ClientConfig]]) -> Iterator[ConfigValueError]:
    """Check the security settings with each prefix. For each prefix, yield an error for the first unsupported setting.

    The error shows the value if the clients have the setting and its value is not a secret.
    """
    for prefix, table in tables.items():
        given = {normal_name(name.removeprefix(prefix)): name for name in settings if name.startswith(prefix)}
        own = {name: settings[full] for name, full in given.items()}
        security = {name: value for name, value in own.items() if name.startswith(_OF_CLIENTS)}
        try:
            table.of({name: value for name, value in security.items() if asks_for_protection(value)})
        except ConfigError as error:
            known = any(row.name == error.key for row in table.rows.values()) and not is_secret(error.key)
            shown = own.get(error.key, HIDDEN) if known else HIDDEN
            yield ConfigValueError(given.get(error.key, f"{prefix}{error.key}"), shown, error.reason)
