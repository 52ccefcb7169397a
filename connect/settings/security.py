"""Refuses security settings that workers and their clients do not support.

An operator who sets such a setting relies on its protection, so it must not be ignored. A value that requests no
protection is accepted. The clients' own tables of settings say which security settings the clients support, and
`rest.py` has those of the REST interface.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ...client.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from ...client.errors import ConfigError
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
"""The only setting of TLS that concerns the REST interface alone, and no client."""

_OVERRIDES: Final = {
    "producer.override.": ProducerConfig,
    "consumer.override.": ConsumerConfig,
    "admin.override.": AdminConfig,
}

_UNSUPPORTED: Final[Mapping[str, str]] = {
    "rest.host.name": "is not supported, as in Kafka 3.0 and newer: set listeners=http://HOST:PORT instead",
    "response.http.headers.config": "is not supported. Remove the setting, and let a proxy add the headers",
}


def refuse_of_worker(settings: Mapping[str, str]) -> None:
    """Raise ConfigValueError for the first setting of a worker that asks for an unsupported protection."""
    for name, value in settings.items():
        for refused, problem in _UNSUPPORTED.items():
            if name == refused and asks_for_protection(value):
                raise ConfigValueError(name, HIDDEN, problem)
    of_clients = {name: value for name, value in settings.items() if name != _OF_LISTENERS}
    for name, problem in _of_clients(of_clients, _WORKERS_CLIENTS):
        raise ConfigValueError(name, HIDDEN, problem)


def refused_overrides(settings: Mapping[str, str]) -> dict[str, str]:
    """Return an error for each unsupported security setting among a connector's client overrides, by name."""
    return dict(_of_clients(settings, _OVERRIDES))


def _of_clients(settings: Mapping[str, str], tables: Mapping[str, type[ClientConfig]]) -> Iterator[tuple[str, str]]:
    for prefix, table in tables.items():
        own = {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}
        security = {name: value for name, value in own.items() if name.startswith(_OF_CLIENTS)}
        try:
            table.of({name: value for name, value in security.items() if asks_for_protection(value)})
        except ConfigError as error:
            yield f"{prefix}{error.key}", str(error).removeprefix(f"{error.key}: ")
