"""`ClientTable`: the base of the tables of client settings, which are in `config.py`.

`ClientTable` adapts the framework of `oncelog.settings` to Kafka's clients. Settings are given in a mapping, as
keywords, or both. Words are compared without regard to case, as in librdkafka. If a program gives a setting of Kafka
that this client does not offer, the error gives the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final, Self

from ..settings import ConfigError, ConfigType, Parser, Table

MAX_STRING: Final = 32_767
"""Maximum length of a string in Kafka's protocol, in bytes."""

_STRING: Final = f"a string of at most {MAX_STRING} bytes in UTF-8"


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    if len(value.encode()) > MAX_STRING:  # no request can carry it; encoding a lone surrogate raises ValueError
        raise ValueError(value)
    return value


def _texts(value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, Iterable):
        raise TypeError(value)
    return tuple(text for item in items if (text := _text(item).strip()))


class ClientTable(Table):
    """Base of `ClientConfig`: reads a client's settings from a mapping, from keywords, or from both."""

    refused: ClassVar[Mapping[str, str]] = {}
    """Kafka's settings that this client knows but does not offer: {name or prefix: what to do instead}."""

    parsers: ClassVar[Mapping[ConfigType, Parser]] = {
        **Table.parsers,
        ConfigType.STRING: _text,
        ConfigType.PASSWORD: _text,
        ConfigType.LIST: _texts,
    }
    kinds: ClassVar[Mapping[ConfigType, str]] = {
        **Table.kinds,
        ConfigType.STRING: _STRING,
        ConfigType.PASSWORD: _STRING,
    }
    ignores_case: ClassVar[bool] = True

    def __init__(self, config: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        """Build a table from a mapping and keywords, with dotted or underscored names. Raises ConfigError."""
        client = type(self).__name__.removesuffix("Config")
        given = {str(name): value for name, value in mapping_of(config, client).items()}
        twice = {self.normal(name) for name in given} & {self.normal(name) for name in keywords}
        if twice:
            raise ConfigError(min(twice), "given twice, in the mapping and as a keyword: give it once")
        super().__init__({**given, **keywords})

    @classmethod
    def of(cls, config: Mapping[str, object] | None = None, /, **keywords: object) -> Self:
        """Return `cls(config, **keywords)`: a table with these settings. Raises ConfigError."""
        return cls(config, **keywords)

    @classmethod
    def normal(cls, key: str) -> str:
        """Return the dotted spelling of a name."""
        return key.replace("_", ".")

    @classmethod
    def unknown(cls, key: str) -> ConfigError:
        """Return the error for a name that no setting of this client has. It contains the reason or a suggestion."""
        dotted = cls.normal(key)
        for prefix, reason in cls.refused.items():
            if dotted == prefix or (prefix.endswith(".") and dotted.startswith(prefix)):
                return ConfigError(dotted, reason)
        near = cls.similar(dotted)
        hint = f"did you mean {near}?" if near else f"{cls.__name__}.settings() lists all settings"
        return ConfigError(dotted, f"is not a setting of this client; {hint}")


def mapping_of(config: object, client: str) -> Mapping[str, object]:
    """Return `config`, the settings given to a client, if it is a mapping. Raises TypeError, with an example, for any
    other type.
    """
    if config is None:
        return {}
    if isinstance(config, Mapping):
        return config
    example = f"{client}(bootstrap_servers={config!r})" if isinstance(config, str) else f"{client}(linger_ms=20)"
    raise TypeError(
        f"{client}({config!r}): settings are keywords, as in {example}, or a mapping of Kafka's names, as in "
        f"{client}({{'bootstrap.servers': 'localhost:9092'}})"
    )
