"""Define a setting: its name, type, default, check and documentation, and the forms in which users write and read it.

The settings of a component form a table: a class body with one declaration per setting. Everything else follows from
the declaration: the typed attribute that the code reads, the parsing of settings from all sources, the types of keyword
arguments, DescribeConfigs and the reference page::

    class BrokerConfig(Table):
        num_partitions: int = integer(1, at_least(1), doc="Partitions of a topic that is created without a number.")

A setting's name is the attribute's name with dots (`num.partitions`), which is Kafka's name if Kafka has the setting.
This module contains no settings. The tables of the broker, of topics, of the clients and of the pipeline's source and
sink are in their own packages.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, ClassVar, Final

from ..protocol.errors import ErrorCode, KafkaError

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


class ConfigError(KafkaError, ValueError):
    """A setting has an invalid value.

    `key` is the setting's name. `problem` says what is wrong with the value and what the remedy is. If the message
    shows the value, `problem` begins with the value, and `reason` is the rest. If two settings contradict each other,
    `other_key` is the name of the second one.
    """

    remedy: ClassVar[str] = ""

    def __init__(self, key: str, reason: str, other_key: str | None = None, shown: str | None = None) -> None:
        """`shown` is the value as the message shows it, or None if the message does not begin with the value."""
        self.problem = reason if shown is None else f"{shown} {reason}"
        super().__init__(ErrorCode.INVALID_CONFIG, f"{key}: {self.problem}")
        self.key, self.reason = key, reason
        self.other_key = other_key
        self._shown = shown

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return ConfigError, (self.key, self.reason, self.other_key, self._shown)


class ConfigType(IntEnum):
    """The type of a setting; the numbers are those of DescribeConfigs (KIP-226, KIP-569).

    CLASS is the type of an object that only a program can give, such as a serializer.
    """

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


Parser = Callable[[object], Any]
"""A function that turns a given value into a typed one. Raises ValueError or TypeError."""

Check = Callable[[Any], str | None]
"""A function that checks a typed value: it returns what is wrong, or None if the value is valid."""


MOST_ITEMS: Final = 1000
"""The maximum number of items of a list without choices that a client may store."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a table.

    `attribute` is the name of the table's attribute, `name` the name that users know. A setting with the default None
    is optional: None is a valid value.

    `parser` replaces the parser of the type; the message of its ValueError says what is wrong. `keyword` is the type
    annotation, as source code, of the setting as a keyword argument. Without it, the annotation follows from the
    setting's type and choices. `default_text` describes the default on reference pages, if the default depends on
    something else. A `dynamic` setting can be changed while the broker is running.

    `synonyms` are the broker settings whose values apply if a topic setting is not given, the most specific one first.
    A setting that is `per_listener` can also be set for one listener, as `listener.name.<listener>.<name>`.
    """

    type: ConfigType
    default: Any
    check: Check | None
    doc: str
    name: str = ""
    attribute: str = ""
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    parser: Parser | None = None
    keyword: str = ""
    default_text: str | None = None
    secret: bool = False
    dynamic: bool = False
    synonyms: tuple[str, ...] = ()
    per_listener: bool = False

    @property
    def is_secret(self) -> bool:
        """Whether the value is a secret, which no log line, error message or response may contain."""
        return self.secret or self.type is ConfigType.PASSWORD

    @property
    def keyword_type(self) -> str:
        """The source code of the keyword argument's type."""
        if self.keyword:
            return self.keyword
        if self.choices and self.type is ConfigType.STRING:
            return literal(self.choices)
        return _KEYWORD_TYPES[self.type] + (" | None" if self.default is None else "")

    def check_items(self, text: str) -> None:
        """Check the text of a list that a client wants to store.

        Raises ConfigError if there are too many items, or if a list with choices has an empty or repeated item. Lists
        in configuration files are not checked in this way. An empty string means an empty list.
        """
        if not (self.type is ConfigType.LIST and text.strip()):
            return
        self.check_item_count(text)
        if not self.choices:
            return
        items = [item.strip() for item in text.split(",")]
        if not all(items):
            raise ConfigError(self.name, "has an empty item", shown=repr(text))
        if len(set(items)) < len(items):
            raise ConfigError(self.name, "has an item more than once", shown=repr(text))

    def check_item_count(self, text: str) -> None:
        """Raise ConfigError if a list has more items than there are choices, or more than `MOST_ITEMS` if there are no
        choices.

        The check is fast for a string of any length.
        """
        most = len(self.choices) or MOST_ITEMS
        if text.count(",") >= most:
            remedy = f"Use each of {', '.join(self.choices)} at most once" if self.choices else "Leave some out"
            raise ConfigError(self.name, f"has more than {most} items. {remedy}")

    def problem(self, parsed: Any) -> str | None:
        """Return what is wrong with a parsed value, or None if the value is valid."""
        if parsed is None:
            return None
        if self.type in _RANGES:
            low, high = _RANGES[self.type]
            if not low <= parsed <= high:
                return f"is outside of the range that the type {self.type.name.lower()} can hold"
        if self.choices:
            items = parsed if isinstance(parsed, list | tuple) else [parsed]
            if any(item not in self.choices for item in items):
                return f"is not one of {', '.join(self.choices)}"
        return self.check(parsed) if self.check is not None else None


_RANGES: Final = {
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


_PARSERS: Final[Mapping[ConfigType, Parser]] = {
    ConfigType.BOOLEAN: _parse_bool,
    ConfigType.STRING: _parse_string,
    ConfigType.INT: _parse_int,
    ConfigType.SHORT: _parse_int,
    ConfigType.LONG: _parse_int,
    ConfigType.DOUBLE: _parse_float,
    ConfigType.LIST: _parse_list,
    ConfigType.CLASS: lambda value: value,
    ConfigType.PASSWORD: _parse_string,
}

_KINDS: Final[Mapping[ConfigType, str]] = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.STRING: "a string",
    ConfigType.INT: "a whole number",
    ConfigType.SHORT: "a whole number",
    ConfigType.LONG: "a whole number",
    ConfigType.DOUBLE: "a number",
    ConfigType.LIST: "a list of strings or a string of comma-separated values",
    ConfigType.CLASS: "an object",
    ConfigType.PASSWORD: "a string",
}

_KEYWORD_TYPES: Final[Mapping[ConfigType, str]] = {
    ConfigType.BOOLEAN: "bool",
    ConfigType.STRING: "str",
    ConfigType.INT: "int",
    ConfigType.SHORT: "int",
    ConfigType.LONG: "int",
    ConfigType.DOUBLE: "float",
    ConfigType.LIST: "str | Iterable[str]",
    ConfigType.CLASS: "object",
    ConfigType.PASSWORD: "str",
}


def literal(choices: Iterable[str]) -> str:
    """Return the type of a value that is one of `choices`, as source code."""
    return "Literal[{}]".format(", ".join(f'"{choice}"' for choice in choices))


def normal_name(key: str) -> str:
    """Return a setting's name in Kafka's spelling, with dots in place of dashes and underscores, in lower case."""
    return key.replace("_", ".").replace("-", ".").lower()


def format_value(value: Any) -> str:
    """Return a typed value as text in the form of Kafka's tools."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(value)
    return "" if value is None else str(value)


def _setting(type_: ConfigType, default: Any, check: Check | None, doc: str, **more: Any) -> Any:
    return Setting(type_, default, check, " ".join(doc.split()), **more)


# Each of the functions below declares a setting. They return Any, because the class body annotates the value's type.


def boolean(default: bool, check: Check | None = None, *, doc: str, **more: Any) -> Any:
    """Declare a setting that is true or false."""
    return _setting(ConfigType.BOOLEAN, default, check, doc, **more)


def integer(default: int | None, check: Check | None = None, *, doc: str, **more: Any) -> Any:
    """Declare a setting that is a 32-bit integer."""
    return _setting(ConfigType.INT, default, check, doc, **more)


def short(default: int, check: Check | None = None, *, doc: str, **more: Any) -> Any:
    """Declare a setting that is a 16-bit integer."""
    return _setting(ConfigType.SHORT, default, check, doc, **more)


def long(default: int | None, check: Check | None = None, *, doc: str, **more: Any) -> Any:
    """Declare a setting that is a 64-bit integer."""
    return _setting(ConfigType.LONG, default, check, doc, **more)


def double(default: float, check: Check | None = None, *, doc: str, **more: Any) -> Any:
    """Declare a setting that is a floating-point number."""
    return _setting(ConfigType.DOUBLE, default, check, doc, **more)


def text(default: str | None, check: Check | None = None, *, doc: str, **more: Any) -> Any:
    """Declare a setting that is a string."""
    return _setting(ConfigType.STRING, default, check, doc, **more)


def text_list(default: Iterable[str], check: Check | None = None, *, doc: str, **more: Any) -> Any:
    """Declare a setting that is a comma-separated list."""
    return _setting(ConfigType.LIST, default, check, doc, **more)


def password(default: str = "", check: Check | None = None, *, doc: str, **more: Any) -> Any:
    """Declare a setting that is a secret, or text that contains one."""
    return _setting(ConfigType.PASSWORD, default, check, doc, **more)


def instance(parser: Parser, keyword: str, *, doc: str, **more: Any) -> Any:
    """Declare an optional setting that is an object of the type `keyword`, which `parser` checks. None by default."""
    return _setting(ConfigType.CLASS, None, None, doc, parser=parser, keyword=keyword, **more)


def at_least(low: int | float) -> Check:
    """Return a check that a value is at least `low`."""
    return lambda value: None if value >= low else f"is below {low}, the smallest possible value"


def between(low: int | float, high: int | float) -> Check:
    """Return a check that a value is between `low` and `high`, both included."""
    return lambda value: None if low <= value <= high else f"is not between {low} and {high}"


class Table:
    """Base class of tables of settings.

    An instance has the values of all settings as typed attributes. Only the broker's dynamic settings can change.
    `explicit` contains the names of the settings that were given. A subclass can change how settings are spelled and
    parsed; see the class variables, and `spelled`, `normal` and `unknown`.
    """

    rows: ClassVar[dict[str, Setting]] = {}
    """The settings by name, in the order of their declaration."""

    names: ClassVar[dict[str, str]] = {}
    """The names of the settings by their normal name and by their aliases."""

    parsers: ClassVar[Mapping[ConfigType, Parser]] = _PARSERS
    """The parser for the values of each type."""

    kinds: ClassVar[Mapping[ConfigType, str]] = _KINDS
    """The words that describe a value of each type in error messages."""

    ignores_case: ClassVar[bool] = False
    """Whether settings with choices ignore the difference between upper and lower case."""

    explicit: frozenset[str]

    def __init_subclass__(cls) -> None:
        cls.rows, cls.names = {}, {}
        for base in cls.__bases__:
            cls.rows |= getattr(base, "rows", {})
            cls.names |= getattr(base, "names", {})
        for attribute in inspect.get_annotations(cls):
            row = cls.__dict__.get(attribute)
            if not isinstance(row, Setting):
                continue
            row = replace(row, name=cls.spelled(attribute), attribute=attribute)
            cls.rows[row.name] = row
            for name in (row.name, *row.aliases):
                cls.names[cls.normal(name)] = row.name
            setattr(cls, attribute, row.default)

    def __init__(self, values: Mapping[str, object] | None = None, *, explicit: Iterable[str] | None = None) -> None:
        """Parse and check the values, whose keys are names or aliases of settings. Raises ConfigError.

        `explicit` names the settings that count as given by the user. By default, these are all settings in `values`.
        """
        parsed = self.parse(values or {})
        for name, value in parsed.items():
            self.take(name, value)
        self.__dict__["explicit"] = frozenset(parsed if explicit is None else explicit)
        self.check()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: the settings of a {type(self).__name__} cannot be changed: make a new one")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), self.explicit))

    def __repr__(self) -> str:
        given = (row for row in self.rows.values() if row.name in self.explicit and not row.is_secret)
        return f"{type(self).__name__}({', '.join(f'{row.attribute}={self.get(row.name)!r}' for row in given)})"

    def take(self, name: str, value: Any) -> None:
        """Set the typed value of the setting `name`. For `__init__` and the table itself only."""
        self.__dict__[self.rows[name].attribute] = value

    def check(self) -> None:
        """Raise ConfigError if values contradict each other. Tables override this method."""

    def get(self, name: str) -> Any:
        """Return the value of the setting `name`."""
        return getattr(self, self.rows[name].attribute)

    @classmethod
    def settings(cls) -> tuple[Setting, ...]:
        """Return the rows of the table, sorted by name."""
        return tuple(sorted(cls.rows.values(), key=lambda row: row.name))

    @classmethod
    def spelled(cls, attribute: str) -> str:
        """Return the name of the setting whose value this attribute holds."""
        return attribute.replace("_", ".")

    @classmethod
    def normal(cls, key: str) -> str:
        """Return the spelling in which the name `key` is looked up."""
        return normal_name(key)

    @classmethod
    def unknown(cls, key: str) -> ConfigError:
        """Return the error for a name that no setting has."""
        near = cls.similar(key)
        return ConfigError(key, f"the setting does not exist{f'. Did you mean {near}?' if near else ''}")

    @classmethod
    def similar(cls, key: str, cutoff: float = 0.6) -> str | None:
        """Return the name or alias of a setting that `key` is probably meant to be, or None."""
        near = difflib.get_close_matches(cls.normal(key), cls.names, n=1, cutoff=cutoff)
        return next((name for name in cls._spellings() if cls.normal(name) == near[0]), None) if near else None

    @classmethod
    def _spellings(cls) -> Iterable[str]:
        for row in cls.rows.values():
            yield row.name
            yield from row.aliases

    @classmethod
    def has(cls, key: str) -> bool:
        """Return whether a setting has the name or alias `key`."""
        return key in cls.names or cls.normal(key) in cls.names

    @classmethod
    def find(cls, key: str) -> Setting:
        """Return the setting with the name or alias `key`. Raises ConfigError for an unknown name."""
        name = cls.names.get(key) or cls.names.get(cls.normal(key))
        if name is None:
            raise cls.unknown(key)
        return cls.rows[name]

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
            typed = cls.parse_value(row, value)
            if row.name in parsed and parsed[row.name] != typed:
                raise ConfigError(
                    row.name, f"is set twice, as {spelled[row.name]} and as {key}, to different values. Keep one"
                )
            parsed[row.name] = typed
            spelled[row.name] = key
        return parsed

    @classmethod
    def parse_value(cls, row: Setting, value: object) -> Any:
        """Return the typed value of a setting that was given as `value` in a file, a flag, a request or a program.

        Raises ConfigError if the value does not have the setting's type or is not allowed.
        """
        if value is None and row.default is None:
            return None
        try:
            parsed = (row.parser or cls.parsers[row.type])(value)
        except ConfigError:
            raise
        except (ValueError, TypeError) as error:
            shown = "the value" if row.is_secret else repr(value)
            reason = str(error) if row.parser else f"is not {cls.kinds[row.type]}"
            raise ConfigError(row.name, reason, shown=shown) from None
        if cls.ignores_case and row.choices:
            parsed = {choice.lower(): choice for choice in row.choices}.get(str(parsed).lower(), parsed)
        if (problem := row.problem(parsed)) is not None:
            raise ConfigError(row.name, problem, shown=None if row.is_secret else repr(format_value(parsed)))
        return parsed
