"""The classes that a connector may name for its clients: only the serializers and deserializers of bytes.

A worker produces bytes, as in Kafka Connect, and loads no Java classes. The classes for bytes change nothing, so they
are accepted and left out. A client with any other class would not start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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


def check_class(kind: str, name: str, value: str) -> None:
    """Raise ConfigValueError if a setting names a class that the clients do not have.

    `kind` is producer, consumer or admin, and `name` has no prefix such as producer.override. The message contains the
    value only in its first words, "Invalid value …".
    """
    if name in _CLASSES[kind] and value.strip() != _CLASSES[kind][name]:
        raise ConfigValueError(
            name, value, "Class could not be found. Workers load no Java classes: remove the setting"
        )


def without_classes(kind: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a client without those that name the classes for bytes."""
    classes = _CLASSES[kind]
    return {name: value for name, value in settings.items() if name not in classes or value.strip() != classes[name]}
