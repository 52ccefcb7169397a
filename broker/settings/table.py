"""Define what a setting is: its name, type, default, check, documentation, and whether it may change at run time.

The settings of a component form a table: a class body with one declaration per setting. The typed attributes that the
code reads, the parsing of files, environment variables and flags, DescribeConfigs and the reference page are all made
from the table::

    class BrokerConfig(ConfigTable):
        num_partitions: int = integer(1, at_least(1), doc="Partitions of a topic that is created without a number.")

A setting's name is the attribute's name with dots (`num.partitions`), which is Kafka's name if Kafka has the setting.
This module knows no setting; the tables are in `config.py` and `topic_config.py`.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, ClassVar

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class ConfigError(ValueError):
    """Raised for an invalid setting: `key` is the setting's name, `problem` says what is wrong and what to do."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


class ConfigType(IntEnum):
    """The type of a setting; the numbers are those of DescribeConfigs (KIP-226, KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


Check = Callable[[Any], str | None]
"""A function that checks a parsed value: it returns what is wrong, None if the value is valid."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a table.

    `synonyms` are the broker settings that a topic setting falls back to, the most specific first. A setting that is
    `per_listener` can also be set for one listener, as `listener.name.<listener>.<name>`.
    """

    type: ConfigType
    default: Any
    check: Check | None
    doc: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    dynamic: bool = False
    synonyms: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    per_listener: bool = False

    @property
    def is_secret(self) -> bool:
        """Whether the value is a secret, which no log line, error message or response may contain."""
        return self.type is ConfigType.PASSWORD

    @property
    def attribute(self) -> str:
        """The name of the table's attribute that holds the value."""
        return self.name.replace(".", "_")

    def parse(self, value: object) -> Any:
        """Return the typed value of `value`, which comes from a file, the environment, a flag or a request.

        Raises ConfigError if the value does not have the setting's type or is not allowed.
        """
        try:
            parsed = _PARSERS[self.type](value)
        except (ValueError, TypeError):
            kind = self.type.name.lower()
            article = "an" if kind[0] in "aeiou" else "a"
            shown = "the value" if self.is_secret else repr(value)
            raise ConfigError(self.name, f"{shown} is not {article} {kind}") from None
        if (problem := self.problem(parsed)) is not None:
            raise ConfigError(self.name, problem if self.is_secret else f"{format_value(parsed)!r} {problem}")
        return parsed

    def problem(self, parsed: Any) -> str | None:
        """Return what is wrong with a typed value, None if it is valid."""
        if self.type in _RANGES:
            low, high = _RANGES[self.type]
            if not low <= parsed <= high:
                return f"is outside of the range that the type {self.type.name.lower()} can hold"
        if self.choices:
            wrong = [item for item in (parsed if isinstance(parsed, list) else [parsed]) if item not in self.choices]
            if wrong:
                return f"is not one of {', '.join(self.choices)}"
        return self.check(parsed) if self.check is not None else None


_RANGES = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-(2**31), INT32_MAX),
    ConfigType.LONG: (-(2**63), INT64_MAX),
}


def _parse_bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "false": False}
    text = str(value).strip().lower()
    if text not in words:
        raise ValueError(text)
    return words[text]


def _parse_int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(value)
    return int(value.strip().replace("_", "x") if isinstance(value, str) else value)


def _parse_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(value)
    parsed = float(value)
    if parsed != parsed:
        raise ValueError(value)
    return parsed


def _parse_string(value: object) -> str:
    if not isinstance(value, str | int | float):
        raise ValueError(value)
    return str(value).strip()


def _parse_list(value: object) -> list[str]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, Iterable):
        raise ValueError(value)
    return [str(item).strip() for item in items if str(item).strip()]


_PARSERS: dict[ConfigType, Callable[[object], Any]] = {
    ConfigType.BOOLEAN: _parse_bool,
    ConfigType.STRING: _parse_string,
    ConfigType.INT: _parse_int,
    ConfigType.SHORT: _parse_int,
    ConfigType.LONG: _parse_int,
    ConfigType.DOUBLE: _parse_float,
    ConfigType.LIST: _parse_list,
    ConfigType.PASSWORD: _parse_string,
}


def normal_name(key: str) -> str:
    """Return a setting's name in Kafka's spelling, with dots in place of dashes and underscores, in lower case."""
    return key.replace("_", ".").replace("-", ".").lower()


def format_value(value: Any) -> str:
    """Return a typed value as text in the form of Kafka's tools."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(value)
    return str(value)


def _setting(type_: ConfigType, default: Any, check: Check | None, doc: str, **more: Any) -> Any:
    return Setting(type_, default, check, " ".join(doc.split()), **more)


# Each of the functions below declares a setting. They return Any, because the class body annotates the value's type.


def boolean(default: bool, check: Check | None = None, *, doc: str, **more: Any) -> Any:
    """Declare a setting that is true or false."""
    return _setting(ConfigType.BOOLEAN, default, check, doc, **more)


def integer(default: int, check: Check | None = None, *, doc: str, **more: Any) -> Any:
    """Declare a setting that is a 32-bit integer."""
    return _setting(ConfigType.INT, default, check, doc, **more)


def short(default: int, check: Check | None = None, *, doc: str, **more: Any) -> Any:
    """Declare a setting that is a 16-bit integer."""
    return _setting(ConfigType.SHORT, default, check, doc, **more)


def long(default: int, check: Check | None = None, *, doc: str, **more: Any) -> Any:
    """Declare a setting that is a 64-bit integer."""
    return _setting(ConfigType.LONG, default, check, doc, **more)


def double(default: float, check: Check | None = None, *, doc: str, **more: Any) -> Any:
    """Declare a setting that is a floating-point number."""
    return _setting(ConfigType.DOUBLE, default, check, doc, **more)


def text(default: str, check: Check | None = None, *, doc: str, **more: Any) -> Any:
    """Declare a setting that is a string."""
    return _setting(ConfigType.STRING, default, check, doc, **more)


def text_list(default: list[str], check: Check | None = None, *, doc: str, **more: Any) -> Any:
    """Declare a setting that is a comma-separated list."""
    return _setting(ConfigType.LIST, default, check, doc, **more)


def password(default: str = "", check: Check | None = None, *, doc: str, **more: Any) -> Any:
    """Declare a setting that is a secret, or text that contains one."""
    return _setting(ConfigType.PASSWORD, default, check, doc, **more)


def at_least(low: int | float) -> Check:
    """Return a check that a value is at least `low`."""
    return lambda value: None if value >= low else f"is less than {low}"


def between(low: int | float, high: int | float) -> Check:
    """Return a check that a value is between `low` and `high`, both included."""
    return lambda value: None if low <= value <= high else f"is not in {low}..{high}"


def gzip_level(value: int) -> str | None:
    """Return what is wrong with a gzip level, None if it is valid. Valid are 1 to 9, and -1 for the default."""
    return None if value == -1 or 1 <= value <= 9 else "is not a gzip level. Use 1 to 9, or -1 for the default"


def one_replica(value: int) -> str | None:
    """Return what is wrong with a replication factor, None if a single node supports it.

    Valid are 1, and -1 for the default.
    """
    if value in (1, -1):
        return None
    return "is not possible, because this broker is a single node with one replica. Use 1 or omit the setting"


class ConfigTable:
    """Base class of tables of settings.

    An instance holds all values as typed attributes; `explicit` has the names of the settings that were given.
    """

    settings: ClassVar[dict[str, Setting]] = {}
    names: ClassVar[dict[str, str]] = {}
    explicit: frozenset[str]

    def __init_subclass__(cls) -> None:
        cls.settings, cls.names = {}, {}
        for base in cls.__bases__:
            cls.settings |= getattr(base, "settings", {})
            cls.names |= getattr(base, "names", {})
        for attribute in inspect.get_annotations(cls):
            row = cls.__dict__.get(attribute)
            if not isinstance(row, Setting):
                continue
            row = replace(row, name=attribute.replace("_", "."))
            cls.settings[row.name] = row
            for name in (row.name, *row.aliases):
                cls.names[name] = row.name
            setattr(cls, attribute, row.default)

    def __init__(self, values: Mapping[str, object] | None = None) -> None:
        parsed = self.parse(values or {})
        for name, value in parsed.items():
            self.take(name, value)
        self.explicit = frozenset(parsed)
        self.check()

    def take(self, name: str, value: Any) -> None:
        """Set the typed value of the setting with the dotted name `name`. For `__init__` only."""
        setattr(self, self.settings[name].attribute, value)

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> dict[str, Any]:
        """Return the typed values by setting name.

        Raises ConfigError for an unknown name, an invalid value, or a setting that is given twice with different
        values.
        """
        parsed: dict[str, Any] = {}
        spelled: dict[str, str] = {}
        for key, value in values.items():
            row = cls.find(key)
            typed = row.parse(value)
            if row.name in parsed and parsed[row.name] != typed:
                raise ConfigError(
                    row.name, f"is set twice, as {spelled[row.name]} and as {key}, to different values. Keep one"
                )
            parsed[row.name] = typed
            spelled[row.name] = key
        return parsed

    @classmethod
    def find(cls, key: str) -> Setting:
        """Return the setting with the name or alias `key`, in which dots, dashes and underscores are equal.

        Raises ConfigError for an unknown name, with a suggestion if a similar name exists.
        """
        name = key if key in cls.names else normal_name(key)
        if name not in cls.names:
            near = difflib.get_close_matches(name, cls.names, n=1)
            hint = f". Did you mean {near[0]}?" if near else ""
            raise ConfigError(key, f"the setting does not exist{hint}")
        return cls.settings[cls.names[name]]

    def check(self) -> None:
        """Raise ConfigError if values contradict each other. Tables override this method."""

    def get(self, name: str) -> Any:
        """Return the value of the setting with the dotted name `name`."""
        return getattr(self, self.settings[name].attribute)

    def as_dict(self) -> dict[str, Any]:
        """Return all values by dotted name."""
        return {name: self.get(name) for name in self.settings}
