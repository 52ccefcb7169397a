"""The settings of clients that a worker accepts although its clients do not have them.

A worker produces bytes, as in Kafka Connect, and loads no Java classes. The serializers and deserializers of bytes
change nothing, so they are accepted and left out. A client with any other class would not start. Other settings that
the clients do not have are left out with a warning, as Java's clients do, unless leaving them out would change the
records or their protection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ...client.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from ...settings import normal_name
from ..errors import ConfigValueError

_SERIALIZATION: Final = "org.apache.kafka.common.serialization"
_SERIALIZER: Final = f"{_SERIALIZATION}.ByteArraySerializer"
_DESERIALIZER: Final = f"{_SERIALIZATION}.ByteArrayDeserializer"

_CLASSES: Final[Mapping[str, Mapping[str, str | None]]] = {
    "producer": {"key.serializer": _SERIALIZER, "value.serializer": _SERIALIZER, "partitioner.class": None},
    "consumer": {"key.deserializer": _DESERIALIZER, "value.deserializer": _DESERIALIZER},
    "admin": {},
}
"""By kind of client: the settings that name a class, with the class that is accepted."""

CLIENTS: Final[Mapping[str, type[ClientConfig]]] = {
    "producer": ProducerConfig,
    "consumer": ConsumerConfig,
    "admin": AdminConfig,
}
"""The tables of settings of the clients, by kind of client."""

_REFUSED: Final = ("ssl.", "sasl.", "security.", "interceptor.classes", "config.providers")
"""The beginnings of names that are never ignored: these settings change the records or their protection."""


def check_class(kind: str, name: str, value: str) -> None:
    """Raise ConfigValueError if a setting names a class that the clients do not have.

    `kind` is producer, consumer or admin, and `name` has no prefix such as producer.override. The message contains the
    value only in its first words, "Invalid value …".
    """
    if name in _CLASSES[kind] and value.strip() != _CLASSES[kind][name]:
        raise ConfigValueError(
            name, value, "Class could not be found. Workers load no Java classes: remove the setting"
        )


def ignored(settings: Iterable[str], prefix: str = "{}.override.") -> dict[str, str]:
    """Return the names of settings that `accepted` leaves out because the client does not have them, with the reasons.

    `settings` are the names of all settings of a connector or worker; with the client's kind, `prefix` becomes the
    prefix of a client's settings.
    """
    reasons = {}
    for kind, table in CLIENTS.items():
        beginning = prefix.format(kind)
        for full in settings:
            name = full.removeprefix(beginning)
            if name != full and _is_ignored(kind, name):
                reasons[full] = table.unknown(name).reason
    return reasons


def accepted(kind: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a client without the classes for bytes, and without those that `ignored` names."""
    classes = _CLASSES[kind]
    return {
        name: value
        for name, value in settings.items()
        if not _is_ignored(kind, name) and (name not in classes or value.strip() != classes[name])
    }


def _is_ignored(kind: str, name: str) -> bool:
    is_known = normal_name(name) in CLIENTS[kind].names or name in _CLASSES[kind]
    return not is_known and not normal_name(name).startswith(_REFUSED)
