"""`ConfigDef`: the table of a plugin's settings, one row per setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import MissingConfigError
from .key import ConfigKey
from .types import parse
from .validation import ConfigValue, validate


class ConfigDef:
    """The settings of a plugin, in the order in which they are shown.

    ::

        ConfigDef(
            ConfigKey("file", Type.STRING, REQUIRED, Importance.HIGH, "Path of the file to read."),
            ConfigKey("batch.size", Type.INT, 2000, Importance.LOW, "Maximum lines per poll.", at_least(1)),
        )
    """

    def __init__(self, *keys: ConfigKey) -> None:
        """Raise ValueError if two rows have the same name."""
        self.keys: dict[str, ConfigKey] = {}
        for key in keys:
            if key.name in self.keys:
                raise ValueError(f"the setting {key.name} is defined twice")
            self.keys[key.name] = key

    def __iter__(self) -> Iterator[ConfigKey]:
        return iter(self.keys.values())

    def __add__(self, other: ConfigDef) -> ConfigDef:
        return ConfigDef(*self, *other)

    @property
    def groups(self) -> list[str]:
        """The distinct groups of the settings, in order."""
        return list(dict.fromkeys(key.group for key in self if key.group is not None))

    def parse(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the value of each setting, or its default. Raises ConfigValueError for the first invalid value."""
        values: dict[str, Any] = {}
        for key in self:
            if key.name in config:
                values[key.name] = parse(key.name, config[key.name], key.type)
            elif key.required:
                raise MissingConfigError(key.name)
            else:
                values[key.name] = parse(key.name, key.default, key.type)
            if key.validator is not None:
                key.validator(key.name, values[key.name])
        return values

    def validate(self, config: Mapping[str, str | None]) -> list[ConfigValue]:
        """Return the value, recommendations and errors of each setting. Invalid values do not raise an error."""
        return validate(self.keys, config)
